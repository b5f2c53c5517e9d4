"""Whatever the Q-values, every target, loss and gradient is finite in float32."""

import pytest
import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPI, DeepCPP, MoDQN
from sb3_cpp.deep.batch import Batch

N_BATCHES, BATCH, N_ACTIONS = 10_000, 4, 5
PAPER_TEMPERATURES = [0.0134, 0.03, 0.000225]  # CPP, MDQN, CVI


class Values(th.nn.Module):
    """A "network" whose output is a parameter: gradients are those with respect to the Q-values."""

    def __init__(self, values: th.Tensor) -> None:
        super().__init__()
        self.values = th.nn.Parameter(values.clone())

    def forward(self, index: th.Tensor) -> th.Tensor:
        return self.values[index]


def random_values(generator: th.Generator) -> th.Tensor:
    """All batches in one call, each with its own magnitude from 1e-8 to 1e6, a third with ties."""
    magnitude = 10 ** (th.rand(N_BATCHES, 1, 1, generator=generator) * 14 - 8)
    values = magnitude * th.randn(N_BATCHES, 2 * BATCH, N_ACTIONS, generator=generator)
    values[::3] = values[::3].sign() * magnitude[::3]
    return values.reshape(-1, N_ACTIONS)


VARIANTS = [
    *[(cls, {"temperature": t, "zeta": z})
      for t in PAPER_TEMPERATURES for z in (0.0, 0.01, 1.0) for cls in (DeepCPP, CautiousMDQN)],
    *[(CVI, {"temperature": t}) for t in PAPER_TEMPERATURES],
    *[
        (MDQN, {"temperature": t, "munchausen_clip": c})
        for t in PAPER_TEMPERATURES
        for c in (-1.0, -float("inf"))
    ],
    (MoDQN, {}),
    (DeepCPI, {"zeta": 0.01}),
    (DeepCPI, {"zeta": 1.0}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "kwargs"), VARIANTS, ids=lambda x: str(x) if isinstance(x, dict) else x.__name__
)
def test_ten_thousand_random_batches_are_finite(cls, kwargs):
    model = cls("MlpPolicy", "CartPole-v1", buffer_size=10, device="cpu", **kwargs)
    generator = th.Generator().manual_seed(0)
    names = ["q_net", "q_net_target"] + (
        ["acting_net", "acting_net_target"] if hasattr(model, "acting_net") else []
    )
    for name in names:
        setattr(model, name, Values(random_values(generator)))
    index = th.arange(N_BATCHES * 2 * BATCH).reshape(N_BATCHES, 2, BATCH)
    samples = ReplayBufferSamples(
        index[:, 0].flatten(),
        th.randint(N_ACTIONS, (N_BATCHES * BATCH, 1), generator=generator),
        index[:, 1].flatten(),
        th.randint(2, (N_BATCHES * BATCH, 1), generator=generator).float(),
        th.randn(N_BATCHES * BATCH, 1, generator=generator),
    )
    networks = (model.q_net, model.q_net_target)
    batch = Batch(samples, model.gamma, *networks, coefficients=model._coefficients())
    with th.no_grad():
        model._statistics(batch)
        target = model._target(batch)
    losses = model._losses(batch, target)
    assert target.shape == (N_BATCHES * BATCH, 1)
    assert target.dtype == th.float32
    assert target.isfinite().all()
    for loss in losses.values():
        assert loss.isfinite()
        network = [network.values for network, _ in model._network_pairs()]
        gradients = th.autograd.grad(loss, network, retain_graph=True, allow_unused=True)
        assert any(g is not None for g in gradients)
        assert all(g.isfinite().all() for g in gradients if g is not None)
    tracked = [vars(model)["caution"].tracker] if "caution" in vars(model) else []
    assert all(0.0 <= tracker.ratio.item() <= 1.0 for tracker in tracked)
