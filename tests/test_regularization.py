"""The regularised greedy step: limits, identities and numbers derived by hand."""

import math

import pytest
import torch as th

from sb3_cpp import regularization as reg

TAU, SIGMA = 0.3, 0.1
TEMPERATURE, ALPHA = TAU + SIGMA, SIGMA / (TAU + SIGMA)


@pytest.fixture
def q() -> th.Tensor:
    return th.randn(50, 4, dtype=th.float64, generator=th.Generator().manual_seed(0))


@pytest.fixture
def log_baseline() -> th.Tensor:
    return th.log_softmax(
        th.randn(50, 4, dtype=th.float64, generator=th.Generator().manual_seed(1)), dim=-1
    )


def objective(policy: th.Tensor, q: th.Tensor, log_baseline: th.Tensor) -> th.Tensor:
    """The definition, with tau and sigma written out."""
    return (policy * (q - TAU * policy.log() - SIGMA * (policy.log() - log_baseline))).sum(
        -1, keepdim=True
    )


def test_regularized_value_is_the_definition_with_tau_and_sigma(q, log_baseline):
    log_policy = th.log_softmax(q, dim=-1)
    value = reg.regularized_value(log_policy, q, log_baseline, ALPHA, TEMPERATURE)
    assert th.allclose(value, objective(log_policy.exp(), q, log_baseline), atol=1e-12, rtol=0)


def test_value_at_the_maximiser_is_the_greedy_value(q, log_baseline):
    maximiser = reg.log_greedy(q, log_baseline, ALPHA, TEMPERATURE)
    value = reg.greedy_value(q, log_baseline, ALPHA, TEMPERATURE)
    assert th.allclose(objective(maximiser.exp(), q, log_baseline), value, atol=1e-12, rtol=0)


def test_no_policy_beats_the_maximiser(q, log_baseline):
    value = reg.greedy_value(q, log_baseline, ALPHA, TEMPERATURE)
    generator = th.Generator().manual_seed(2)
    for _ in range(200):
        other = th.softmax(3 * th.randn(50, 4, dtype=th.float64, generator=generator), dim=-1)
        assert (objective(other, q, log_baseline) <= value + 1e-12).all()


def test_the_printed_alpha_is_not_the_maximiser(q, log_baseline):
    printed_alpha = TAU / (TAU + SIGMA)
    policy = reg.log_greedy(q, log_baseline, printed_alpha, TEMPERATURE)
    gap = reg.greedy_value(q, log_baseline, ALPHA, TEMPERATURE) - objective(
        policy.exp(), q, log_baseline
    )
    assert gap.max() > 0.01


def test_greedy_step_by_hand():
    # baseline (1/4, 3/4), Q = (ln 2, 0), temperature 1, alpha 1/2: weights 2 * 1/2, 1 * sqrt(3)/2
    policy = reg.log_greedy(
        th.tensor([math.log(2.0), 0.0]), th.tensor([0.25, 0.75]).log(), 0.5, 1.0
    ).exp()
    assert policy.tolist() == pytest.approx(
        [1 / (1 + math.sqrt(3) / 2), math.sqrt(3) / (2 + math.sqrt(3))]
    )


def test_without_kl_the_greedy_value_is_soft(q, log_baseline):
    assert th.equal(
        reg.greedy_value(q, log_baseline, 0.0, TEMPERATURE), reg.soft_value(q, TEMPERATURE)
    )
    assert th.equal(
        reg.log_greedy(q, log_baseline, 0.0, TEMPERATURE), reg.log_boltzmann(q, TEMPERATURE)
    )


@pytest.mark.parametrize("value", [reg.soft_value, reg.mellow_value])
def test_zero_temperature_limit_is_the_maximum(q, value):
    assert th.allclose(value(q, 1e-9), q.amax(-1, keepdim=True), atol=1e-7, rtol=0)


def test_soft_and_mellow_values_by_hand():
    values = th.tensor([math.log(1.0), math.log(3.0)])
    assert reg.soft_value(values, 1.0).item() == pytest.approx(math.log(4.0))
    assert reg.mellow_value(values, 1.0).item() == pytest.approx(math.log(2.0))


def test_mellow_value_lies_between_mean_and_maximum(q):
    mellow = reg.mellow_value(q, TEMPERATURE)
    assert (mellow >= q.mean(-1, keepdim=True)).all()
    assert (mellow <= q.amax(-1, keepdim=True)).all()


def test_munchausen_bonus_by_hand():
    # The policies are (1/4, 3/4), the same again, and (1/2, 1/2)
    values = th.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)], [0.0, 0.0]])
    actions = th.tensor([[0], [1], [0]])
    bonus = reg.munchausen_bonus(values, actions, alpha=0.9, temperature=1.0, clip_min=-1.0)
    assert bonus.flatten().tolist() == pytest.approx(
        [-0.9, 0.9 * math.log(0.75), 0.9 * math.log(0.5)]
    )


@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
def test_mixture_is_the_convex_combination(q, log_baseline, zeta):
    log_new = reg.log_boltzmann(q, TEMPERATURE)
    expected = zeta * log_new.exp() + (1 - zeta) * log_baseline.exp()
    assert th.allclose(
        reg.log_mixture(log_new, log_baseline, zeta).exp(), expected, atol=1e-14, rtol=0
    )


def test_mixture_at_its_ends_is_exact(q, log_baseline):
    log_new = reg.log_boltzmann(q, TEMPERATURE)
    assert th.equal(reg.log_mixture(log_new, log_baseline, 1.0), log_new)
    assert th.equal(reg.log_mixture(log_new, log_baseline, 0.0), log_baseline)


def test_mixture_takes_one_coefficient_per_row(q, log_baseline):
    zeta = th.linspace(0, 1, 50, dtype=th.float64).unsqueeze(-1)
    mixed = reg.log_mixture(reg.log_boltzmann(q, TEMPERATURE), log_baseline, zeta)
    assert th.equal(mixed[0], log_baseline[0])
    assert th.allclose(
        mixed[25],
        reg.log_mixture(reg.log_boltzmann(q[25], TEMPERATURE), log_baseline[25], zeta[25].item()),
    )


def test_distances_by_hand():
    p, r = th.tensor([0.5, 0.5]).log(), th.tensor([0.25, 0.75]).log()
    assert reg.kl_divergence(p, r).item() == pytest.approx(
        0.5 * math.log(2.0) + 0.5 * math.log(2 / 3)
    )
    assert reg.l1_distance(p, r).item() == pytest.approx(0.5)
    assert reg.entropy(p).item() == pytest.approx(math.log(2.0))


def test_greedy_advantage_by_hand_and_never_negative(q, log_baseline):
    assert reg.greedy_advantage(
        th.tensor([1.0, 3.0]), th.tensor([0.25, 0.75]).log()
    ).item() == pytest.approx(3 - 2.5)
    assert (reg.greedy_advantage(q, log_baseline) > 0).all()
    huge = th.full((1, 3), 1e6) + th.tensor([0.0, 0.1, 0.2])
    assert (reg.greedy_advantage(huge, th.log_softmax(th.zeros(1, 3), -1)) >= 0).all()


def test_one_hot_is_greedy_and_finite():
    log_policy = reg.log_one_hot(th.tensor([[0.0, 2.0, 2.0], [5.0, 1.0, 0.0]]))
    assert log_policy.isfinite().all()
    assert log_policy.argmax(-1).tolist() == [1, 0]  # ties to the first
    assert log_policy.exp().sum(-1).tolist() == pytest.approx([1.0, 1.0])
    assert log_policy.exp().amax(-1).min() > 1 - 1e-5


def test_projection_loss_has_the_value_and_gradient_of_the_kl(q, log_baseline):
    logits = q.clone().requires_grad_()
    log_policy = th.log_softmax(logits, dim=-1)
    mixture = reg.log_mixture(log_policy.detach(), log_baseline, 0.4)
    loss = reg.projection_loss(log_policy, mixture)
    reference = reg.kl_divergence(log_policy, mixture).mean()
    assert loss.item() == pytest.approx(reference.item(), abs=1e-14)
    gradient, expected = (
        th.autograd.grad(x, logits, retain_graph=True)[0] for x in (loss, reference)
    )
    assert th.allclose(gradient, expected, atol=1e-15, rtol=1e-10)
    assert gradient.abs().max() > 1e-4


def test_projection_onto_itself_is_exactly_zero(q, log_baseline):
    logits = q.float().requires_grad_()
    log_policy = th.log_softmax(logits, dim=-1)
    loss = reg.projection_loss(
        log_policy, reg.log_mixture(log_policy.detach(), log_baseline.float(), 1.0)
    )
    loss.backward()
    assert loss.item() == 0.0
    assert (logits.grad == 0.0).all()


def test_boltzmann_of_huge_values_at_a_small_temperature_is_finite():
    values = th.tensor([3e38, 2e38, 3e38])
    assert reg.boltzmann(values, 1e-3).tolist() == [0.5, 0.0, 0.5]
