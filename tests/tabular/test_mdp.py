"""Exact values against numbers derived by hand, and the identities they have to satisfy."""

import math

import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_cpp.regularization import log_boltzmann, soft_value
from sb3_cpp.tabular import MDP, garnet, policy_advantage, uniform_log_policy


def two_state_mdp() -> MDP:
    """Action 0 stays, action 1 changes the state; r = [[0, 1], [0.5, -1]], gamma = 0.5, start in
    state 0."""
    stay, switch = [1.0, 0.0], [0.0, 1.0]
    return MDP(
        th.tensor([[stay, switch], [switch, stay]]), th.tensor([[0.0, 1.0], [0.5, -1.0]]), 0.5
    )


def random_log_policy(mdp: MDP, seed: int) -> th.Tensor:
    values = th.randn(
        mdp.reward.shape, dtype=th.float64, generator=th.Generator().manual_seed(seed)
    )
    return log_boltzmann(values, 0.5)


def test_uniform_policy_of_the_two_state_mdp_has_the_values_derived_by_hand() -> None:
    """V0 = 1/2 + (V0 + V1)/4 and V1 = -1/4 + (V0 + V1)/4, hence V = (5/8, -1/8).

    d0 = 1/2 + (d0 + d1)/4 with d0 + d1 = 1, hence d = (3/4, 1/4); J = (1-gamma) V0 = 5/16.
    """
    mdp = two_state_mdp()
    result = mdp.evaluate(uniform_log_policy(mdp))
    assert result.v.tolist() == pytest.approx([5 / 8, -1 / 8])
    assert result.q.flatten().tolist() == pytest.approx([5 / 16, 15 / 16, 7 / 16, -11 / 16])
    assert result.visitation.tolist() == pytest.approx([3 / 4, 1 / 4])
    assert result.J.item() == pytest.approx(5 / 16)


def test_advantage_of_the_two_state_mdp_is_the_one_derived_by_hand() -> None:
    """New policy: always action 1 in state 0, action 0 in state 1: A(0) = 15/16 - 5/8 and A(1) =
    7/16 + 1/8."""
    mdp = two_state_mdp()
    old = uniform_log_policy(mdp)
    new = th.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=th.float64).log()
    assert policy_advantage(mdp.evaluate(old).q, new, old).tolist() == pytest.approx(
        [5 / 16, 9 / 16]
    )


def test_optimum_of_the_two_state_mdp_changes_once_and_stays() -> None:
    """V1 = 0.5 / (1 - 0.5) = 1 and V0 = 1 + 0.5 * 1 = 1.5, so J = 0.75."""
    best = two_state_mdp().optimum()
    assert best.v.tolist() == pytest.approx([1.5, 1.0])
    assert best.J.item() == pytest.approx(0.75)


def test_regularised_value_of_one_state_is_the_closed_form() -> None:
    """With one state the regularised reward comes at every step: V = (p.r + tau H - sigma KL) /
    (1 - gamma)."""
    tau, sigma, gamma = 0.2, 0.3, 0.8
    p, base, r = (0.7, 0.3), (0.4, 0.6), (1.0, -0.5)
    entropy = -sum(x * math.log(x) for x in p)
    kl = sum(x * math.log(x / y) for x, y in zip(p, base, strict=True))
    expected = (0.7 * 1.0 - 0.3 * 0.5 + tau * entropy - sigma * kl) / (1.0 - gamma)
    mdp = MDP(th.ones(1, 2, 1), th.tensor([r]), gamma)
    log_p, log_base = (
        th.tensor([p], dtype=th.float64).log(),
        th.tensor([base], dtype=th.float64).log(),
    )
    value = mdp.regularized_v(log_p, log_base, sigma / (tau + sigma), tau + sigma)
    assert value.item() == pytest.approx(expected)


def test_regularised_values_of_the_soft_optimal_policy_satisfy_the_log_sum_exp_equation() -> None:
    """Without KL weight the best policy is softmax(Q / tau), and then V = tau log sum_a exp(Q /
    tau)."""
    tau, mdp = 0.3, garnet(th.Generator().manual_seed(0), 3, gamma=0.9)
    log_policy = uniform_log_policy(mdp)
    for _ in range(200):
        q = mdp.backup(mdp.regularized_v(log_policy, log_policy, 0.0, tau))
        log_policy = log_boltzmann(q, tau)
    v = mdp.regularized_v(log_policy, log_policy, 0.0, tau)
    assert th.allclose(v, soft_value(mdp.backup(v), tau).squeeze(-1), atol=1e-10)


def test_without_temperature_the_regularised_value_is_the_plain_one() -> None:
    mdp = garnet(th.Generator().manual_seed(1), 4)
    policy, baseline = random_log_policy(mdp, 2), random_log_policy(mdp, 3)
    assert th.allclose(
        mdp.regularized_v(policy, baseline, 0.5, 0.0), mdp.evaluate(policy).v, atol=1e-12
    )


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10_000), gamma=st.floats(0.0, 0.99), n_states=st.integers(2, 9))
def test_visitation_is_a_distribution_and_gives_the_performance_difference(
    seed: int, gamma: float, n_states: int
) -> None:
    """Lemma 1: J' - J = sum_s d'(s) sum_a pi'(a|s) (Q(s,a) - V(s))."""
    mdp = garnet(th.Generator().manual_seed(seed), 3, n_states, 3, 2, gamma)
    old, new = random_log_policy(mdp, seed + 1), random_log_policy(mdp, seed + 2)
    before, after = mdp.evaluate(old), mdp.evaluate(new)
    assert (after.visitation >= -1e-12).all()
    assert th.allclose(after.visitation.sum(-1), th.ones(3, dtype=th.float64), atol=1e-10)
    difference = (after.visitation * (new.exp() * (before.q - before.v[..., None])).sum(-1)).sum(-1)
    assert th.allclose(after.J - before.J, difference, atol=1e-10)


def test_a_batch_has_the_values_of_its_members() -> None:
    batch = garnet(th.Generator().manual_seed(4), 5)
    policy = random_log_policy(batch, 5)
    together = batch.evaluate(policy)
    alone = [
        MDP(batch.transition[i], batch.reward[i], batch.gamma).evaluate(policy[i]) for i in range(5)
    ]
    for i, single in enumerate(alone):
        for a, b in zip(single, together, strict=True):
            assert th.allclose(a, b[i], atol=1e-12)


def test_garnets_are_stochastic_with_the_given_number_of_successors_and_bounded_rewards() -> None:
    mdp = garnet(th.Generator().manual_seed(6), 10, 8, 3, 2)
    assert ((mdp.transition > 0.0).sum(-1) == 2).all()
    assert mdp.r_max <= 1.0


GOOD = {
    "transition": th.full((2, 2, 2), 0.5),
    "reward": th.zeros(2, 2),
    "gamma": 0.9,
    "start": th.tensor([0.5, 0.5]),
}


def changed(name: str, index: tuple[int, ...], value: float) -> dict:
    tensor = GOOD[name].clone()  # type: ignore[attr-defined]
    tensor[index] = value
    return {**GOOD, name: tensor}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (changed("transition", (1, 0, 1), 0.4), r"sum of transition\[1, 0\] must be 1, got 0.9"),
        (
            changed("transition", (0, 1, 0), -0.5),
            r"transition\[0, 1, 0\] must be a probability in \[0, 1\], got -0.5",
        ),
        (
            changed("transition", (0, 1, 0), math.nan),
            r"transition\[0, 1, 0\] must be a probability",
        ),
        (changed("reward", (1, 1), math.inf), r"reward\[1, 1\] must be finite, got inf"),
        (changed("reward", (0, 1), math.nan), r"reward\[0, 1\] must be finite, got nan"),
        (changed("start", (0,), 0.7), r"sum of start.* must be 1, got 1.2"),
        ({**GOOD, "gamma": 1.0}, r"gamma must be a number in \[0, 1\), got 1.0"),
        ({**GOOD, "gamma": -0.1}, r"gamma must be a number in \[0, 1\), got -0.1"),
        ({**GOOD, "gamma": math.nan}, "gamma must be a number"),
        (
            {**GOOD, "transition": th.ones(2, 2)},
            r"transition must have shape \(..., S, A, S\), got \(2, 2\)",
        ),
        ({**GOOD, "transition": th.ones(2, 2, 3)}, r"transition must have shape"),
        ({**GOOD, "reward": th.zeros(2, 3)}, r"reward must have shape \(2, 2\), got \(2, 3\)"),
        ({**GOOD, "start": th.ones(3)}, r"start must have shape \(2,\), got \(3,\)"),
    ],
)
def test_a_wrong_entry_is_refused_by_name(arguments: dict, message: str) -> None:
    MDP(**GOOD)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        MDP(**arguments)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_mdps": 2.7}, "n_mdps must be a whole number of at least 1, got 2.7"),
        ({"n_states": 8.5}, "n_states must be a whole number of at least 1, got 8.5"),
        ({"n_actions": 0}, "n_actions must be a whole number of at least 1, got 0"),
        ({"branching": 2.7}, "branching must be a whole number of at least 1, got 2.7"),
        ({"branching": 9}, "branching must be at most n_states = 8, got 9"),
    ],
)
def test_a_garnet_of_a_broken_size_is_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        garnet(**{"generator": th.Generator(), "n_mdps": 2, **wrong})
