"""Adam's step without its bookkeeping is Adam's step."""

from collections.abc import Callable

import pytest
import torch as th
from torch import nn

from sb3_cpp.deep.fused_adam import CLEAR_EVERY, FusedAdam, clear_tiny_moments


def make_pair(**kwargs: object) -> list[tuple[nn.Module, th.optim.Adam]]:
    """Two equal networks, each with an Adam of its own."""
    pair = []
    for _ in range(2):
        th.manual_seed(0)
        network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
        groups = [
            {"params": list(network[0].parameters())},
            {"params": list(network[2].parameters()), "lr": 0.01},
        ]
        pair.append((network, th.optim.Adam(groups, fused=True, **kwargs)))  # type: ignore[arg-type]
    return pair


def learn(network: nn.Module, optimizer: th.optim.Optimizer | FusedAdam, seed: int) -> None:
    x = th.randn(16, 3, generator=th.Generator().manual_seed(seed))
    optimizer.zero_grad()
    network(x).square().mean().backward()
    optimizer.step()


def assert_equal(pair: list[tuple[nn.Module, th.optim.Adam]]) -> None:
    (a, adam_a), (b, adam_b) = pair
    for left, right in zip(a.parameters(), b.parameters(), strict=True):
        assert th.equal(left, right)
        for name in ("exp_avg", "exp_avg_sq", "step"):
            assert th.equal(adam_a.state[left][name], adam_b.state[right][name])


def reload(optimizer: th.optim.Adam) -> None:
    optimizer.load_state_dict(optimizer.state_dict())


def slow_down(optimizer: th.optim.Adam) -> None:
    optimizer.param_groups[0]["lr"] = 1e-4


def freeze(optimizer: th.optim.Adam) -> None:
    optimizer.param_groups[0]["params"][0].requires_grad_(False)


def add_group(optimizer: th.optim.Adam) -> None:
    optimizer.add_param_group({"params": [nn.Parameter(th.ones(2))]})


@pytest.mark.parametrize(
    "kwargs", [{}, {"weight_decay": 0.1}, {"amsgrad": True}, {"betas": (0.5, 0.9), "eps": 1e-3}]
)
@pytest.mark.parametrize("change", [None, reload, slow_down, freeze, add_group])
def test_the_same_to_the_bit_whatever_happens_between(
    kwargs: dict, change: Callable[[th.optim.Adam], None] | None
) -> None:
    pair = make_pair(**kwargs)
    (plain, adam), (quick, other) = pair
    stepper = FusedAdam(other)
    for seed in range(6):
        if seed == 3 and change is not None:
            change(adam)
            change(other)
        learn(plain, adam, seed)
        learn(quick, stepper, seed)
    assert_equal(pair)


def test_parameters_that_join_later_learn_from_their_first_step() -> None:
    pair = make_pair()
    steppers = [pair[0][1], FusedAdam(pair[1][1])]
    for seed in range(6):
        for (network, adam), stepper in zip(pair, steppers, strict=True):
            if seed == 3:
                network.append(nn.Linear(2, 2))
                with th.no_grad():
                    network[3].weight.fill_(0.5)
                    network[3].bias.fill_(0.1)
                adam.add_param_group({"params": list(network[3].parameters())})
            learn(network, stepper, seed)
    assert_equal(pair)
    assert pair[1][1].state[pair[1][0][3].bias]["step"] == 3


def test_steps_of_both_kinds_can_take_turns() -> None:
    pair = make_pair()
    quick = FusedAdam(pair[1][1])
    for seed in range(6):
        learn(*pair[0], seed)
        learn(pair[1][0], quick if seed % 3 else pair[1][1], seed)
    assert_equal(pair)


def test_hooks_and_schedulers_are_heard() -> None:
    (_, _), (network, adam) = make_pair()
    heard: list[str] = []
    adam.register_step_post_hook(lambda *_: heard.append("hook"))
    stepper = FusedAdam(adam)
    for seed in range(3):
        learn(network, stepper, seed)
    assert heard == ["hook"] * 3


def test_another_optimiser_makes_its_own_step() -> None:
    th.manual_seed(0)
    network = nn.Linear(3, 2)
    before = network.weight.detach().clone()
    learn(network, FusedAdam(th.optim.SGD(network.parameters(), lr=0.1)), 0)
    assert not th.equal(network.weight, before)


def idle_steps(clear: bool, steps: int = 1200) -> tuple[th.Tensor, dict[str, th.Tensor]]:
    """A layer that learns from half of its inputs always, from the others at first only."""
    th.manual_seed(0)
    layer = nn.Linear(8, 4)
    adam = th.optim.Adam(layer.parameters(), fused=True)
    stepper = FusedAdam(adam)
    for step in range(steps):
        x = th.randn(16, 8, generator=th.Generator().manual_seed(step))
        x[:, 4:] *= step < 10
        stepper.zero_grad()
        layer(x).square().mean().backward()
        stepper.step()
        if clear and (step + 1) % CLEAR_EVERY == 0:
            clear_tiny_moments(adam)
    return layer.weight.detach(), adam.state[layer.weight]


def is_denormal(values: th.Tensor) -> th.Tensor:
    return (values != 0) & (values.abs() < th.finfo(values.dtype).tiny)


def test_tiny_moments_are_cleared_before_they_are_denormal_and_weights_stay_the_same() -> None:
    weight, state = idle_steps(clear=True)
    other_weight, other_state = idle_steps(clear=False)
    assert is_denormal(other_state["exp_avg"][:, 4:]).all()  # what Adam itself leaves there
    assert not is_denormal(state["exp_avg"]).any()
    assert th.equal(weight, other_weight)
    assert th.equal(state["exp_avg"][:, :4], other_state["exp_avg"][:, :4])
    assert th.equal(state["exp_avg_sq"], other_state["exp_avg_sq"])


def test_tiny_moments_stay_where_eps_is_tiny_too() -> None:
    layer = nn.Linear(1, 1)
    adam = th.optim.Adam(layer.parameters(), eps=1e-20)
    layer(th.ones(1, 1)).sum().backward()
    adam.step()
    adam.state[layer.weight]["exp_avg"].fill_(1e-35)
    clear_tiny_moments(adam)
    assert adam.state[layer.weight]["exp_avg"].item() == pytest.approx(1e-35)
