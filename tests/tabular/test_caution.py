"""Our own theorems (docs/theory/caution.md): each on random policies or MDPs, and with its premise
broken."""

import math
from typing import Any

import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_cpp import coefficients
from sb3_cpp.regularization import (
    kl_divergence,
    l1_distance,
    log_boltzmann,
    log_geometric_mixture,
    log_greedy,
    log_mixture,
    log_ratio_span,
)
from sb3_cpp.tabular import (
    MDP,
    ExactView,
    Settings,
    Update,
    bounds,
    garnet,
    iterate,
    policy_advantage,
    uniform_log_policy,
)

TOLERANCE = 1e-10
sweep = settings(max_examples=40, deadline=None, derandomize=True)
seeds = st.integers(0, 100_000)
zetas = st.floats(0.0, 1.0)


def policies(seed: int, n_actions: int = 4, scale: float = 3.0) -> tuple[th.Tensor, th.Tensor]:
    """Q and an old policy in 50 states, from nearly uniform to nearly deterministic."""
    generator = th.Generator().manual_seed(seed)
    sizes = scale * th.rand(50, 1, dtype=th.float64, generator=generator)
    values = th.randn(2, 50, n_actions, dtype=th.float64, generator=generator) * sizes
    return values[0], log_boltzmann(values[1], 1.0)


def world(seed: int, gamma: float, n_mdps: int = 6) -> MDP:
    return garnet(th.Generator().manual_seed(seed), n_mdps, 6, 3, 2, gamma)


def run(mdp: MDP, chosen: Settings, iterations: int = 12) -> list[tuple[Update, th.Tensor]]:
    """Updates with what they gained over the policy they mixed with."""
    generator = th.Generator().manual_seed(0)
    updates = iterate(chosen, uniform_log_policy(mdp), ExactView(mdp), iterations, generator)
    return [(u, mdp.evaluate(u.log_deployed).J - mdp.evaluate(u.log_old).J) for u in updates]


def falls(gains: list[tuple[Update, th.Tensor]]) -> int:
    return sum(int((gain < -TOLERANCE).sum()) for _, gain in gains)


worlds = st.tuples(seeds, st.sampled_from([0.3, 0.9, 0.97]))
weights = st.sampled_from([(0.0, 1.0), (0.0, 0.03), (0.02, 0.02), (0.3, 0.1), (0.05, 0.4)])


def shares(pair: tuple[float, float]) -> dict[str, float]:
    """(entropy weight, KL weight) as temperature and alpha."""
    return {"temperature": sum(pair), "alpha": pair[1] / sum(pair)}


# --- A: the geometric mixture is a regularised greedy step ----------------------------------------


@sweep
@given(seed=seeds, alpha=st.floats(0.0, 1.0), zeta=st.floats(0.01, 1.0))
def test_geometric_mixture_is_a_greedy_step_with_a_larger_kl_weight(
    seed: int, alpha: float, zeta: float
) -> None:
    temperature = 0.4
    q, log_old = policies(seed)
    mixed = log_geometric_mixture(log_greedy(q, log_old, alpha, temperature), log_old, zeta)
    step = log_greedy(q, log_old, 1.0 - zeta * (1.0 - alpha), temperature / zeta)
    assert th.allclose(mixed, step, atol=1e-9)
    entropy_weight = (1.0 - (1.0 - zeta * (1.0 - alpha))) * temperature / zeta
    assert entropy_weight == pytest.approx((1.0 - alpha) * temperature, abs=1e-12)


def test_an_arithmetic_mixture_is_no_greedy_step() -> None:
    """Its logarithm is not linear in those of its parts: the rest would be constant per state."""
    q, log_old = policies(0)
    log_new = log_greedy(q, log_old, 0.5, 0.4)
    for mixture, linear in ((log_geometric_mixture, True), (log_mixture, False)):
        rest = mixture(log_new, log_old, 0.3) - 0.3 * log_new - 0.7 * log_old
        assert bool(((rest.amax(-1) - rest.amin(-1)) < 1e-9).all()) is linear


def test_geometric_mixture_is_exact_at_its_ends_also_for_deterministic_policies() -> None:
    new, old = th.tensor([[0.0, 1.0]]).log(), th.tensor([[0.5, 0.5]]).log()
    assert th.equal(log_geometric_mixture(new, old, 1.0), new)
    assert th.equal(log_geometric_mixture(new, old, 0.0), old)
    assert th.equal(log_geometric_mixture(old, new, th.tensor([[0.0]])), new)
    both = log_geometric_mixture(new.repeat(2, 1), old.repeat(2, 1), th.tensor([[0.0], [1.0]]))
    assert th.equal(both, th.cat((old, new)))


# --- B: the span bounds the change of the policy, for any baseline --------------------------------


@sweep
@given(seed=seeds, alpha=st.floats(0.0, 1.0), n_actions=st.integers(2, 8), zeta=zetas)
def test_kl_and_l1_of_a_greedy_step_stay_within_the_span_bound(
    seed: int, alpha: float, n_actions: int, zeta: float
) -> None:
    q, log_old = policies(seed, n_actions)
    log_new = log_greedy(q, log_old, alpha, 0.5)
    exponent = q / 0.5 - (1.0 - alpha) * log_old
    span = exponent.amax(-1) - exponent.amin(-1)
    assert th.allclose(span, log_ratio_span(log_new, log_old), atol=1e-9)
    allowed = bounds.span_change(span, zeta)
    mixed = log_geometric_mixture(log_new, log_old, zeta)
    assert (kl_divergence(mixed, log_old) <= allowed.kl + TOLERANCE).all()
    assert (l1_distance(mixed, log_old) <= allowed.l1 + TOLERANCE).all()


@pytest.mark.parametrize("span", [0.1, 1.0, 5.0])
def test_two_actions_attain_the_bound_on_l1(span: float) -> None:
    """old(1) = 1 / (1 + e^(s/2)) and f = (s, 0) give new(1) = e^(s/2) old(1): TV = tanh(s/4)."""
    p = 1.0 / (1.0 + math.exp(span / 2.0))
    log_old = th.tensor([p, 1.0 - p], dtype=th.float64).log()
    log_new = log_boltzmann(log_old + th.tensor([span, 0.0], dtype=th.float64), 1.0)
    allowed = bounds.span_change(th.tensor(span, dtype=th.float64))
    assert l1_distance(log_new, log_old).item() == pytest.approx(2.0 * math.tanh(span / 4.0))
    assert l1_distance(log_new, log_old).item() == pytest.approx(allowed.l1.item())


def test_span_bound_fails_if_the_baseline_is_left_out_of_the_span() -> None:
    """Q = 0: span(Q / temperature) is 0, but with an entropy weight the policy still moves."""
    q, log_old = policies(1)
    log_new = log_greedy(0.0 * q, log_old, 0.5, 0.4)
    assert (kl_divergence(log_new, log_old) > bounds.span_change(th.zeros(50)).kl + 1e-6).all()


# --- C: CPP with the span bound -------------------------------------------------------------------


@sweep
@given(world_of=worlds, pair=weights)
def test_cpp_with_the_span_bound_never_falls_and_gains_its_bound(
    world_of: tuple[int, float], pair: tuple[float, float]
) -> None:
    mdp = world(*world_of)
    for update, gain in run(mdp, Settings("span_cpp", **shares(pair))):
        e = update.evidence
        product = bounds.span_product(e.span, e.q_span)
        assert (e.delta * e.advantage_range <= product + TOLERANCE).all()
        promise = bounds.quadratic_bound(update.zeta, e.advantage, product, mdp.gamma)
        assert (gain >= promise - TOLERANCE).all()
        assert (gain >= -TOLERANCE).all()


def test_lemma3_of_the_paper_fails_where_the_span_bound_holds() -> None:
    """In scheme 2 with an entropy weight: C_K belongs to a chain that these policies left."""
    mdp = world(0, 0.5, 100)
    outside = 0
    for update, _ in run(mdp, Settings("span_cpp", temperature=0.4, alpha=0.25), iterations=30):
        kl = kl_divergence(update.log_new, update.log_old)
        outside += int((kl > bounds.lemma3(update.K, 0.25, 0.5, 0.4).kl).sum())
        allowed = bounds.span_change(log_ratio_span(update.log_new, update.log_old))
        assert (kl <= allowed.kl + TOLERANCE).all()
    assert outside > 0


def test_a_tenth_of_the_span_does_not_bound_the_product() -> None:
    mdp = world(0, 0.9, 50)
    for update, _ in run(mdp, Settings("span_cpp", temperature=0.1, alpha=0.5), iterations=3):
        e = update.evidence
        wrong = bounds.span_product(0.1 * e.span, e.q_span)
        assert (e.delta * e.advantage_range > wrong).any()


# --- D: improvement of a geometric mixture --------------------------------------------------------


@sweep
@given(world_of=worlds, pair=weights, zeta=zetas)
def test_geometric_bound_holds_for_every_zeta(
    world_of: tuple[int, float], pair: tuple[float, float], zeta: float
) -> None:
    mdp = world(*world_of)
    for update, gain in run(
        mdp, Settings("geometric_spi", mixture="geometric", **shares(pair)), iterations=6
    ):
        e = update.evidence
        arguments = e.covariance, e.span, e.q_span, mdp.gamma
        assert (gain >= -TOLERANCE).all()
        assert (gain >= bounds.geometric_bound(update.zeta, *arguments) - TOLERANCE).all()
        mixed = log_geometric_mixture(update.log_new, update.log_old, zeta)
        other = mdp.evaluate(mixed).J - mdp.evaluate(update.log_old).J
        promise = bounds.geometric_bound(th.full_like(gain, zeta), *arguments)
        assert (other >= promise - TOLERANCE).all()


def test_geometric_zeta_maximises_its_bound() -> None:
    c, span, q_span = (th.tensor(x, dtype=th.float64) for x in (0.02, 1.5, 0.8))
    grid = th.linspace(0.0, 1.0, 100_001, dtype=th.float64)
    best = grid[bounds.geometric_bound(grid, c, span, q_span, 0.9).argmax()]
    zeta = coefficients.geometric_spi(c, span, q_span, 0.9)
    assert zeta.item() == pytest.approx(best.item(), abs=1e-5)
    assert 0.0 < zeta.item() < 1.0


def test_geometric_bound_fails_for_values_of_another_policy() -> None:
    """Its Q has to be that of the old policy: normal errors make it promise what is not there."""
    mdp = world(0, 0.9, 100)
    chosen = Settings("geometric_spi", 0.1, 0.5, mixture="geometric", noise=0.5)
    assert falls(run(mdp, chosen)) > 0


# --- E: state-wise caution ------------------------------------------------------------------------


@sweep
@given(world_of=worlds, pair=weights, error=st.sampled_from([0.0, 0.05, 0.2, 1.0]))
def test_statewise_caution_never_falls_within_its_error_bound(
    world_of: tuple[int, float], pair: tuple[float, float], error: float
) -> None:
    mdp = world(*world_of)
    chosen = Settings(
        "statewise", noise=error, noise_law="uniform", error_bound=error, **shares(pair)
    )
    for update, gain in run(mdp, chosen):
        e = update.evidence
        zeta = coefficients.statewise(e.state_advantage, e.state_l1, error)
        promise = bounds.statewise_bound(
            zeta, e.state_advantage, e.state_l1, mdp.start, mdp.gamma, error
        )
        assert (promise >= 0.0).all()
        assert (gain >= promise - TOLERANCE).all()


@sweep
@given(world_of=worlds, seed=seeds)
def test_any_coefficients_are_safe_where_no_state_loses(
    world_of: tuple[int, float], seed: int
) -> None:
    """The theorem is about the sign of A(s): zeta(s) itself may be anything in [0, 1]."""
    mdp = world(*world_of)
    generator = th.Generator().manual_seed(seed)
    old, new = (
        log_boltzmann(th.randn(6, 6, 3, dtype=th.float64, generator=generator), 0.5)
        for _ in range(2)
    )
    before = mdp.evaluate(old)
    random = th.rand(6, 6, dtype=th.float64, generator=generator)
    zeta = th.where(policy_advantage(before.q, new, old) >= 0.0, random, 0.0)
    mixed = log_mixture(new, old, zeta[..., None])
    assert (mdp.evaluate(mixed).J >= before.J - TOLERANCE).all()


@sweep
@given(world_of=worlds, temperature=st.sampled_from([0.01, 0.1, 1.0]), zeta=zetas)
@pytest.mark.parametrize("mixture", [log_mixture, log_geometric_mixture])
def test_without_entropy_weight_every_step_of_any_size_is_safe(
    mixture, world_of: tuple[int, float], temperature: float, zeta: float
) -> None:
    mdp = world(*world_of)
    _, log_old = policies(world_of[0], 3)
    log_old = log_old[:36].reshape(6, 6, 3)
    before = mdp.evaluate(log_old)
    new = log_greedy(before.q, log_old, 1.0, temperature)
    assert (policy_advantage(before.q, new, log_old) >= -TOLERANCE).all()
    after = mdp.evaluate(mixture(new, log_old, zeta))
    assert (after.J >= before.J - TOLERANCE).all()


def test_a_mean_advantage_that_is_not_negative_is_not_enough() -> None:
    """The new policy may gain where the old one goes, and lose where only the new one goes."""
    mdp = world(1, 0.9, 300)
    generator = th.Generator().manual_seed(0)
    old, new = (
        log_boltzmann(th.randn(300, 6, 3, dtype=th.float64, generator=generator), 0.3)
        for _ in range(2)
    )
    before, after = mdp.evaluate(old), mdp.evaluate(new)
    mean = (before.visitation * policy_advantage(before.q, new, old)).sum(-1)
    assert ((after.J < before.J - TOLERANCE) & (mean > 0.0)).any()


@pytest.mark.parametrize("known", [0.0, 0.1])
def test_statewise_caution_falls_if_the_error_is_larger_than_its_bound(known: float) -> None:
    mdp = world(2, 0.9, 100)
    errors: dict[str, Any] = {"noise": 0.4, "noise_law": "uniform"}
    chosen = Settings("statewise", 0.1, 0.5, error_bound=known, **errors)
    assert falls(run(mdp, chosen)) > 0
    assert falls(run(mdp, Settings("statewise", 0.1, 0.5, error_bound=0.4, **errors))) == 0
