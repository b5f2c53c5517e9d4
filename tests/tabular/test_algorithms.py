"""The shared loop: what the schemes mean, limits in which algorithms coincide, independence of
the trials."""

import itertools
import math

import pytest
import torch as th

from sb3_cpp import coefficients
from sb3_cpp.regularization import log_boltzmann, log_mixture
from sb3_cpp.tabular import (
    MDP,
    RULES,
    SCHEMES,
    ExactView,
    Settings,
    Update,
    garnet,
    iterate,
    uniform_log_policy,
)


def world(n_mdps: int = 4, gamma: float = 0.9) -> MDP:
    return garnet(th.Generator().manual_seed(0), n_mdps, gamma=gamma)


def run(mdp: MDP, settings: Settings, iterations: int = 8) -> list[Update]:
    return list(iterate(settings, uniform_log_policy(mdp), ExactView(mdp), iterations))


def test_scheme_1_mixes_the_chain_and_scheme_2_continues_from_the_mixture() -> None:
    for scheme in SCHEMES:
        updates = run(world(), Settings("espi", 0.1, 0.5, scheme))
        for before, after in itertools.pairwise(updates):
            expected = before.log_new if scheme == "1" else before.log_deployed
            assert th.equal(after.log_old, expected)


@pytest.mark.parametrize("scheme", ["1", "1b"])
def test_in_schemes_1_and_1b_the_mixture_does_not_change_what_is_learned(scheme: str) -> None:
    """The chain of regularised policies is that of CVI, whatever zeta is."""
    careful = run(world(), Settings("aspi", 0.1, 0.5, scheme, backups=1, regularized=True))
    plain = run(world(), Settings("cvi", 0.1, 0.5, scheme, backups=1, regularized=True))
    for a, b in zip(careful, plain, strict=True):
        assert th.equal(a.log_new, b.log_new)
        assert not th.allclose(a.log_deployed, b.log_deployed)


def test_with_zeta_1_the_three_schemes_are_one_algorithm() -> None:
    final = [run(world(), Settings("cvi", 0.1, 0.5, scheme))[-1].log_deployed for scheme in SCHEMES]
    for log_policy in final[1:]:
        assert th.allclose(log_policy, final[0], atol=1e-12)


def test_deployed_policy_is_the_mixture_with_the_rules_zeta() -> None:
    mdp = world()
    for update in run(mdp, Settings("cpp", 0.1, 0.5)):
        log_c = coefficients.log_policy_change_bound(update.K, 0.5, mdp.gamma, 0.1)
        expected = coefficients.theorem4_zeta(
            update.evidence.advantage, log_c, mdp.gamma, exact=True
        )
        assert th.equal(update.zeta, expected)
        assert th.equal(
            update.log_deployed,
            log_mixture(update.log_new, update.log_old, expected[:, None, None]),
        )


def test_hard_greedy_full_steps_are_policy_iteration() -> None:
    mdp = world(20)
    last = run(mdp, Settings("cvi", 0.0, 0.0), iterations=20)[-1]
    assert th.allclose(mdp.evaluate(last.log_deployed).J, mdp.optimum().J, atol=1e-4)


def test_pure_kl_keeps_the_sum_of_all_values() -> None:
    """alpha = 1: log pi_K = beta sum_k Q_k up to a constant per state (dynamic policy
    programming)."""
    mdp, temperature = world(), 0.7
    updates = run(mdp, Settings("cvi", temperature, 1.0), iterations=5)
    total = sum((mdp.evaluate(update.log_old).q for update in updates), th.zeros_like(mdp.reward))
    assert th.allclose(updates[-1].log_new, log_boltzmann(total, temperature), atol=1e-10)


@pytest.mark.parametrize("regularized", [True, False])
def test_many_backups_are_the_exact_evaluation(regularized: bool) -> None:
    mdp = world(gamma=0.6)
    exact = run(mdp, Settings("espi", 0.2, 0.5, regularized=regularized), iterations=4)
    backed = run(mdp, Settings("espi", 0.2, 0.5, regularized=regularized, backups=80), iterations=4)
    for a, b in zip(exact, backed, strict=True):
        assert th.allclose(a.log_deployed, b.log_deployed, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_trial_does_not_depend_on_its_neighbours(rule: str, scheme: str) -> None:
    mixture = "geometric" if rule == "geometric_spi" else "arithmetic"
    mdp, settings = world(3), Settings(rule, 0.1, 0.5, scheme, mixture=mixture)
    together = run(mdp, settings)[-1]
    alone = run(MDP(mdp.transition[1:2], mdp.reward[1:2], mdp.gamma), settings)[-1]
    assert th.allclose(together.log_deployed[1], alone.log_deployed[0], atol=1e-10)
    assert ((together.zeta >= 0.0) & (together.zeta <= 1.0)).all()


def test_adaptive_zeta_is_the_tracked_ratio_over_c() -> None:
    """First update: m = mean A, M = max A over the states met, so zeta = mean / max / C_1 with
    C_1 = 1/temperature = 1/5."""
    mdp, temperature = world(), 5.0
    first = run(mdp, Settings("adaptive_cpp", temperature, 0.5), iterations=1)[0]
    old = mdp.evaluate(first.log_old)
    advantage = (old.q.amax(-1) - old.v).clamp(min=0.0)
    ratio = (old.visitation * advantage).sum(-1) / advantage.where(old.visitation > 0.0, 0.0).amax(
        -1
    )
    assert th.allclose(first.zeta, (ratio * temperature).clamp(max=1.0), atol=1e-10)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "ppo"}, "rule must be one of"),
        ({"scheme": "3"}, "scheme must be one of '1', '1b', '2', got '3'"),
        ({"temperature": -0.1}, "temperature must be a number in"),
        ({"alpha": 1.1}, r"alpha must be a number in \[0, 1\], got 1.1"),
        ({"alpha": math.nan}, "alpha must be a number"),
        ({"backups": 0}, "backups must be a whole number of at least 1, got 0"),
        ({"rho1": 1.0}, "rho1 must be a number in"),
        ({"mixture": "harmonic"}, "mixture must be one of 'arithmetic', 'geometric', got"),
        ({"rule": "geometric_spi"}, "mixture must be 'geometric' for geometric_spi, got"),
        ({"noise_law": "cauchy"}, "noise_law must be one of 'normal', 'uniform', got 'cauchy'"),
        ({"error_bound": -0.1}, "error_bound must be a number in"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**{"rule": "cpp", "temperature": 0.1, "alpha": 0.5, **wrong})
