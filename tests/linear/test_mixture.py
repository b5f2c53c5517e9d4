import pytest
import torch as th

from sb3_cpp.linear.policy import Mixture, StatewiseMixture
from sb3_cpp.regularization import l1_distance, log_boltzmann, log_mixture
from sb3_cpp.tabular import policy_advantage

TRIALS, ACTIONS, M, TEMPERATURE = 2, 3, 4, 0.3


def _random(generator: th.Generator) -> th.Tensor:
    return th.randn(TRIALS, ACTIONS, M, dtype=th.float64, generator=generator)


def _chain(zetas: list[float]) -> tuple[Mixture, th.Tensor, th.Tensor]:
    """A mixture, states, and its log-probabilities there by mixing one policy after the other."""
    generator = th.Generator().manual_seed(0)
    phi = th.randn(TRIALS, 6, M, dtype=th.float64, generator=generator)
    first = _random(generator)
    mixture, expected = Mixture(first, TEMPERATURE), log_boltzmann(phi @ first.mT, TEMPERATURE)
    for zeta in zetas:
        new, z = _random(generator), th.tensor([zeta, 0.5 * zeta], dtype=th.float64)
        mixture = mixture.mixed_with(new, z)
        expected = log_mixture(log_boltzmann(phi @ new.mT, TEMPERATURE), expected, z[:, None, None])
    return mixture, phi, expected


@pytest.mark.parametrize("zetas", [[], [0.3], [0.1, 0.0, 0.9, 0.2], [0.5, 1.0]])
def test_probabilities_are_those_of_mixing_step_by_step(zetas: list[float]) -> None:
    mixture, phi, expected = _chain(zetas)
    th.testing.assert_close(mixture.log_policy(phi), expected, rtol=0.0, atol=1e-12)
    th.testing.assert_close(
        mixture.of_trial(1).log_policy(phi[1:]), expected[1:], rtol=0.0, atol=1e-12
    )
    th.testing.assert_close(mixture.weights.sum(-1), th.ones(TRIALS, dtype=th.float64))


def test_drawing_a_member_and_then_its_action_has_the_law_of_the_mixture() -> None:
    mixture, phi, expected = _chain([0.4, 0.7, 0.2])
    draws = 40_000
    members = mixture.draw_members(draws, th.Generator().manual_seed(1))
    state, trial = 2, 0
    conditional = th.stack(
        [log_boltzmann(phi[trial, state] @ m[trial].T, TEMPERATURE).exp() for m in mixture.members]
    )
    found = conditional[members[:, trial]].mean(0)
    th.testing.assert_close(
        found, expected[trial, state].exp(), rtol=0.0, atol=4.0 * 0.5 / draws**0.5
    )


def test_a_full_step_leaves_only_the_new_policy() -> None:
    generator = th.Generator().manual_seed(0)
    mixture = Mixture(_random(generator), TEMPERATURE)
    for _ in range(3):
        mixture = mixture.mixed_with(_random(generator), th.full((TRIALS,), 0.1, dtype=th.float64))
    assert len(mixture.members) == 4
    new = _random(generator)
    mixture = mixture.mixed_with(new, th.ones(TRIALS, dtype=th.float64))
    assert len(mixture.members) == 1
    assert mixture.members[0] is new


def test_statewise_mixture_takes_the_new_policy_where_its_advantage_exceeds_the_error() -> None:
    generator = th.Generator().manual_seed(0)
    phi = th.randn(TRIALS, 40, M, dtype=th.float64, generator=generator)
    old, new, q = (_random(generator) for _ in range(3))
    error = th.tensor([0.0, 0.3], dtype=th.float64)
    mixture = StatewiseMixture(old, new, q, error, TEMPERATURE)
    log_old, log_new = (log_boltzmann(phi @ part.mT, TEMPERATURE) for part in (old, new))
    gain = policy_advantage(phi @ q.mT, log_new, log_old)
    accepted = gain >= error[:, None] * l1_distance(log_new, log_old)
    assert 0 < int(accepted.sum()) < accepted.numel()
    found = mixture.log_policy(phi)
    assert th.equal(found, log_new.where(accepted[..., None], log_old))
    assert th.equal(mixture.of_trial(1).log_policy(phi[1:]), found[1:])
    acting = mixture.acting(40, generator)
    for t in range(40):
        expected = new.where(accepted[:, t, None, None], old)
        assert th.equal(th.from_numpy(acting(t, phi[:, t].numpy())), expected)
