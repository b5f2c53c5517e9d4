"""bfloat16 in the features extractors of image networks, float32 everywhere else."""

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_cpp import MDQN, MoDQN
from sb3_cpp.deep import fast


def make(precision, cls=MDQN, **kwargs):
    env = FakeImageEnv(screen_height=36, screen_width=36, n_channels=2, discrete=True)
    return cls(
        "CnnPolicy",
        env,
        precision=precision,
        buffer_size=200,
        learning_starts=20,
        batch_size=8,
        target_update_interval=20,
        seed=0,
        device="cpu",
        **kwargs,
    )


def samples(model):
    generator = np.random.default_rng(0)
    shape = (8, *model.observation_space.shape)
    images = [generator.integers(0, 256, shape, dtype=np.uint8) for _ in range(2)]
    now, later = (th.as_tensor(image) for image in images)
    actions = th.as_tensor(generator.integers(0, model.action_space.n, (8, 1)))
    return ReplayBufferSamples(now, actions, later, th.zeros(8, 1), th.ones(8, 1))


def gradients(model):
    batch = model._make_batch(samples(model))
    with th.no_grad():
        target = model._target(batch)
    model.policy.optimizer.zero_grad()
    sum(model._losses(batch, target).values()).backward()
    return batch.q.detach(), th.cat([p.grad.flatten() for p in model.q_net.parameters()])


def test_bf16_is_near_fp32_and_leaves_weights_and_values_in_fp32():
    (q, g), (q_low, g_low) = (gradients(make(precision)) for precision in ("fp32", "bf16"))
    assert q_low.dtype is g_low.dtype is th.float32
    assert not th.equal(q, q_low), "bf16 must have been used"
    assert th.allclose(q, q_low, atol=0.02)
    cosine = th.nn.functional.cosine_similarity(g, g_low, dim=0)
    assert cosine > 0.99


@pytest.mark.parametrize("cls", [MDQN, MoDQN])
def test_it_learns_and_saves_fp32(cls, tmp_path):
    model = make("bf16", cls).learn(60)
    assert all(p.dtype is th.float32 for p in model.policy.parameters())
    model.save(tmp_path / "model")
    loaded = cls.load(tmp_path / "model", device="cpu")
    assert loaded.precision == "bf16"
    assert fast.uses_bf16(loaded.q_net)


def test_auto_follows_the_hardware(monkeypatch):
    for native in (False, True):
        monkeypatch.setattr(fast, "has_native_bf16", lambda device, native=native: native)
        assert fast.uses_bf16(make("auto").q_net) is native


def test_networks_without_convolutions_stay_in_fp32():
    model = MDQN("MlpPolicy", "CartPole-v1", precision="bf16", buffer_size=10)
    assert not fast.uses_bf16(model.q_net)


def test_an_unknown_precision_is_refused():
    with pytest.raises(
        ValueError, match="precision must be one of 'fp32', 'bf16', 'auto', got 'fp8'"
    ):
        make("fp8")
