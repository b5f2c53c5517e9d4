"""What the paper's theorems promise, on random MDPs; for each check a case in which it fails."""

import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_cpp.regularization import kl_divergence, l1_distance
from sb3_cpp.tabular import (
    MDP,
    ExactView,
    Settings,
    Update,
    bounds,
    garnet,
    iterate,
    uniform_log_policy,
)
from sb3_cpp.tabular.algorithms import evaluate, improve

TOLERANCE = 1e-10
ITERATIONS = 12

worlds = st.tuples(
    st.integers(0, 100_000),
    st.sampled_from([0.3, 0.6, 0.9, 0.97]),
    st.sampled_from([(0.0, 1.0), (0.0, 0.03), (0.02, 0.02), (0.3, 0.1), (0.05, 0.4)]),
    st.integers(2, 9),
    st.integers(2, 4),
)
World = tuple[int, float, tuple[float, float], int, int]
sweep = settings(max_examples=40, deadline=None, derandomize=True)


def make(world: World) -> tuple[MDP, dict[str, float]]:
    seed, gamma, (tau, sigma), n_states, n_actions = world
    mdp = garnet(th.Generator().manual_seed(seed), 6, n_states, n_actions, 2, gamma)
    return mdp, {"temperature": tau + sigma, "alpha": sigma / (tau + sigma)}


def run(mdp: MDP, chosen: Settings, seed: int = 0) -> list[tuple[Update, th.Tensor]]:
    """Updates with what they gained over the policy they mixed with."""
    view, generator = ExactView(mdp), th.Generator().manual_seed(seed)
    updates = iterate(chosen, uniform_log_policy(mdp), view, ITERATIONS, generator)
    return [
        (update, mdp.evaluate(update.log_deployed).J - mdp.evaluate(update.log_old).J)
        for update in updates
    ]


def change(update: Update) -> tuple[float, float]:
    """Largest KL and L1 distance between new and old policy, over states and MDPs."""
    kl = kl_divergence(update.log_new, update.log_old).max().item()
    return kl, l1_distance(update.log_new, update.log_old).max().item()


def quadratic(update: Update, gamma: float, delta: th.Tensor, exact: bool = True) -> th.Tensor:
    evidence = update.evidence
    return bounds.quadratic_bound(
        update.zeta, evidence.advantage, delta * evidence.advantage_range, gamma, exact
    )


@sweep
@given(world=worlds)
@pytest.mark.parametrize("exact", [True, False])
def test_espi_never_falls_and_gains_its_bound(exact: bool, world: World) -> None:
    mdp, weights = make(world)
    for update, gain in run(mdp, Settings("espi", exact_constants=exact, **weights)):
        assert (gain >= -TOLERANCE).all()
        assert (
            gain >= quadratic(update, mdp.gamma, update.evidence.delta, exact) - TOLERANCE
        ).all()
        product = update.evidence.delta * update.evidence.advantage_range
        known = (update.evidence.advantage > 0.0) & (product > 0.0)
        promised = bounds.lemma2(update.evidence.advantage, product, mdp.gamma, exact)
        assert (gain >= promised - TOLERANCE)[known].all()


@sweep
@given(world=worlds)
@pytest.mark.parametrize("rule", ["cpp", "linear_cpp", "aspi", "cpi"])
def test_cpp_aspi_and_cpi_never_fall(rule: str, world: World) -> None:
    mdp, weights = make(world)
    for update, gain in run(mdp, Settings(rule, **weights)):
        assert (gain >= -TOLERANCE).all()
        assert (gain >= quadratic(update, mdp.gamma, update.evidence.delta) - TOLERANCE).all()


@sweep
@given(world=worlds)
def test_without_entropy_weight_the_mixed_policies_of_cpp_stay_within_lemma3(world: World) -> None:
    seed, gamma, (_, sigma), n_states, n_actions = world
    mdp, weights = make((seed, gamma, (0.0, sigma), n_states, n_actions))
    for update, _ in run(mdp, Settings("cpp", **weights)):
        allowed = bounds.lemma3(update.K, 1.0, gamma, weights["temperature"])
        kl, l1 = change(update)
        assert kl <= allowed.kl + TOLERANCE
        assert l1 <= allowed.l1 + TOLERANCE


@sweep
@given(world=worlds)
def test_policies_of_the_pure_cvi_chain_stay_within_lemma3(world: World) -> None:
    mdp, weights = make(world)
    for update, _ in run(mdp, Settings("cvi", scheme="1", backups=1, regularized=True, **weights)):
        allowed = bounds.lemma3(update.K, gamma=mdp.gamma, **weights)
        kl, l1 = change(update)
        assert kl <= allowed.kl + TOLERANCE
        assert l1 <= min(allowed.l1, (2.0 * allowed.kl) ** 0.5) + TOLERANCE


@sweep
@given(world=worlds)
@pytest.mark.parametrize("rule", ["cpp", "espi"])
def test_scheme_1_mixture_is_no_worse_than_the_policy_it_started_from(
    rule: str, world: World
) -> None:
    mdp, weights = make(world)
    for update, gain in run(
        mdp, Settings(rule, scheme="1", backups=1, regularized=True, **weights)
    ):
        assert (gain >= -TOLERANCE).all()
        if rule == "cpp":
            promised = bounds.theorem4_improvement(
                update.evidence.advantage.clamp(min=0.0), update.K, gamma=mdp.gamma, **weights
            )
            assert (gain >= promised - TOLERANCE).all()


@sweep
@given(world=worlds, error=st.sampled_from([0.01, 0.1, 1.0]))
def test_cvi_with_bounded_errors_stays_within_lemma3_with_b(world: World, error: float) -> None:
    mdp, weights = make(world)
    chosen = Settings("cvi", scheme="1", backups=1, regularized=True, **weights)
    generator = th.Generator().manual_seed(world[0])
    before = chain = uniform_log_policy(mdp)
    q = th.zeros_like(chain)
    for K in range(1, ITERATIONS + 1):
        signs = 2.0 * th.randint(0, 2, q.shape, generator=generator).double() - 1.0
        q = evaluate(mdp, q, chain, before, chosen) + error * signs
        before, chain = chain, improve(q, chain, chosen)
        allowed = bounds.lemma3(K, gamma=mdp.gamma, error_bound=error, **weights)
        assert kl_divergence(chain, before).max().item() <= allowed.kl + TOLERANCE


# --- the checks can fail --------------------------------------------------------------------------


def test_check_fails_on_noise() -> None:
    """Hard greedy steps on noisy values fall in a third to a half of all updates."""
    mdp = garnet(th.Generator().manual_seed(0), 200)
    gains = th.stack(
        [gain for _, gain in run(mdp, Settings("cvi", temperature=0.0, alpha=0.0, noise=0.5))]
    )
    assert 0.3 < (gains < -TOLERANCE).double().mean().item() < 0.55


def test_check_passes_for_the_same_greedy_steps_without_noise() -> None:
    mdp = garnet(th.Generator().manual_seed(0), 200)
    # the greedy policy is smoothed by 1e-6, so it may lose that much of what it had
    assert all(
        (gain > -1e-4).all() for _, gain in run(mdp, Settings("cvi", temperature=0.0, alpha=0.0))
    )


def test_check_fails_for_full_steps_with_an_entropy_weight() -> None:
    mdp = garnet(th.Generator().manual_seed(1), 200)
    gains = th.stack([gain for _, gain in run(mdp, Settings("cvi", temperature=0.4, alpha=0.25))])
    assert (gains < -TOLERANCE).any()


def test_check_fails_with_the_printed_delta() -> None:
    """|sum_a (new - old)| is 0, which makes the bound zeta A and E-SPI's zeta 1: the bound is
    then broken."""
    mdp = garnet(th.Generator().manual_seed(2), 100)
    broken = 0
    for update, gain in run(mdp, Settings("espi", temperature=0.05, alpha=0.5)):
        printed = (update.log_new.exp() - update.log_old.exp()).sum(-1).abs().amax(-1)
        assert (printed < 1e-12).all()
        broken += int((gain < quadratic(update, mdp.gamma, printed) - TOLERANCE).sum())
    assert broken > 0


def test_check_fails_with_the_share_of_the_entropy_weight_as_alpha() -> None:
    """Entropy weight 0.1, KL weight 0.3: the bound needs the share of the KL weight, 0.75.

    The printed alpha, tau/(tau+sigma) with tau said to be the entropy weight, is 0.25: the chain
    leaves the bound for it.
    """
    mdp = garnet(th.Generator().manual_seed(3), 100, gamma=0.3)
    updates = run(mdp, Settings("cvi", 0.4, 0.75, scheme="1", backups=1, regularized=True))
    assert all(change(u)[0] <= bounds.lemma3(u.K, 0.75, 0.3, 0.4).kl for u, _ in updates)
    assert any(change(u)[0] > bounds.lemma3(u.K, 0.25, 0.3, 0.4).kl for u, _ in updates)


def test_check_fails_for_errors_without_b() -> None:
    mdp = garnet(th.Generator().manual_seed(4), 100, gamma=0.5)
    chosen = Settings("cvi", 0.4, 0.5, scheme="1", noise=1.0, backups=1, regularized=True)
    assert any(change(u)[0] > bounds.lemma3(u.K, 0.5, 0.5, 0.4).kl for u, _ in run(mdp, chosen))
