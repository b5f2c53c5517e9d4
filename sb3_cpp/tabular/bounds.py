"""Lower bounds on policy improvement, as functions: the paper's, and our own at the end.

``A`` is the mean of ``A(s) = sum_a (new - old) Q_old`` over the *normalised* visitation of the old
policy, ``J`` is the normalised return ``(1-gamma) E sum_t gamma^t r_t``, and ``product`` stands for
``delta * DeltaA``, or for anything at least as large: ``delta = max_s sum_a |new - old|`` (the
paper prints ``|sum_a (new - old)|``, which is 0), ``DeltaA = max_{s,s'} |A(s) - A(s')|``. Rewards
lie in [-1, 1] unless a function takes ``r_max``.
"""

import math
from typing import Any, NamedTuple

import torch as th

from sb3_cpp.coefficients import error_sum, log_policy_change_bound, policy_change_bound


def quadratic_bound(
    zeta: th.Tensor,
    advantage: th.Tensor,
    product: th.Tensor | float,
    gamma: float,
    exact: bool = True,
) -> th.Tensor:
    """Lower bound on J(mixture) - J(old) for *any* zeta in [0, 1] (CPP Eq. SPI_quadratic).

    Exact: ``zeta A - gamma zeta^2 product / (2 (1-gamma))``.
    Printed: the same with ``(1-gamma)^2``, true but looser.
    """
    # |d_mix - d_old|_1 <= zeta gamma delta / (1-gamma) for visitations that sum to 1, and moving a
    # mass m changes the mean of A(s) by at most m DeltaA / 2
    scale = 2.0 * (1.0 - gamma) ** (1 if exact else 2)
    return zeta * advantage - gamma * zeta**2 * product / scale


def clipped_improvement(advantage: th.Tensor, zeta_star: th.Tensor) -> th.Tensor:
    """The quadratic bound at ``zeta = min(1, zeta*)``, for ``A >= 0`` and its maximiser ``zeta*``.

    ``A zeta* / 2`` if ``zeta* <= 1`` (printed for every zeta*), else ``A - A / (2 zeta*)``.
    """
    # corrected: with the step cut off at 1 the printed value is out of reach
    return th.where(
        zeta_star <= 1.0, 0.5 * advantage * zeta_star, advantage - 0.5 * advantage / zeta_star
    )


def lemma2(
    advantage: th.Tensor, product: th.Tensor | float, gamma: float, exact: bool = True
) -> th.Tensor:
    """Improvement promised at the best zeta (CPP Lemma 2, Pirotta et al. 2013), for ``A >= 0``.

    Printed: ``((1-gamma) A)^2 / (2 gamma product)`` with
    ``zeta* = (1-gamma)^2 A / (gamma product)``. Exact: one power of ``1-gamma`` less in both.
    Corrected in both: delta, and the case ``zeta* > 1``.
    """
    zeta_star = (1.0 - gamma) ** (1 if exact else 2) * advantage / (gamma * product)
    return clipped_improvement(advantage, zeta_star)


class ChangeBound(NamedTuple):
    """How far apart the new and the old policy can be, in any state."""

    kl: Any
    l1: Any


def lemma3(
    K: int,
    alpha: float,
    gamma: float,
    temperature: float,
    r_max: float = 1.0,
    error_bound: float = 0.0,
) -> ChangeBound:
    """``KL(pi_K || pi_{K-1}) <= 4 B_K + 2 C_K`` and the L1 distance that follows.

    CPP Lemma 3 (Kozuno et al. 2019) for the chain ``Q_K = T Q_{K-1} + error``, ``Q_0 = 0``, uniform
    ``pi_0``, errors of at most ``error_bound``. ``alpha`` is the share of the KL weight.
    ``L1 <= min( sqrt(2 KL), 2 sqrt(1 - exp(-KL)) )``.
    """
    # Here pi_K = G Q_K; the paper has pi_{K+1} = G Q_K and prints this bound for (pi_{K+1}, pi_K).
    # Corrected: the L1 distance is twice the total variation; the paper's exponential form lacks
    # the 2. Pinsker's bound is the smaller one for close policies, Bretagnolle and Huber's stays
    # below 2.
    change = policy_change_bound(K, alpha, gamma, temperature, r_max)
    kl = 4.0 * error_sum(K, gamma, temperature, error_bound) + 2.0 * change
    return ChangeBound(kl, min(math.sqrt(2.0 * kl), 2.0 * math.sqrt(-math.expm1(-kl))))


def theorem4_product(
    K: int, alpha: float, gamma: float, temperature: float, error_bound: float = 0.0
) -> float:
    """``delta DeltaA <= 8 min(C, 1 - exp(-2C)) / (1-gamma)`` where Lemma 3 holds, C = C_K + 2 B_K.

    From ``DeltaA <= 2 delta / (1-gamma)`` and ``delta^2 <= 4 min(C, 1 - exp(-2C))``.
    """
    # Corrected: the paper's second branch is 4 times too small (total variation for an L1
    # distance), and with errors it prints C_K + B_K where Lemma 3 gives 2 C = 2 C_K + 4 B_K.
    # error_sum is linear in the error, so twice the error gives 2 B_K.
    log_c = log_policy_change_bound(K, alpha, gamma, temperature, error_bound=2.0 * error_bound)
    c = math.exp(min(log_c, 700.0))  # exp(710) overflows; the other branch is 1 long before
    return 8.0 * min(c, -math.expm1(-2.0 * c)) / (1.0 - gamma)


def theorem4_improvement(
    advantage: th.Tensor,
    K: int,
    alpha: float,
    gamma: float,
    temperature: float,
    error_bound: float = 0.0,
    exact: bool = True,
) -> th.Tensor:
    """Improvement promised by Theorem 4 at its own zeta, for ``A >= 0``.

    Printed: ``(1-gamma)^3 A^2 / (4 gamma) * max(1/(1 - exp(-2C)), 1/(4C))``. Corrected: the first
    branch is ``1/(4 (1 - exp(-2C)))``, so ``(1-gamma)^3 A^2 / (16 gamma min(C, 1 - exp(-2C)))``,
    and ``A - A/(2 zeta*)`` where ``zeta* > 1``. Exact: ``(1-gamma)^2`` instead of the cube.
    """
    product = theorem4_product(K, alpha, gamma, temperature, error_bound)
    return lemma2(advantage, product, gamma, exact)


def approximate_spi_product(gamma: float, r_max: float = 1.0) -> float:
    """A-SPI's bound on ``delta DeltaA``: ``4 r_max / (1-gamma)`` (printed for r_max = 1).

    Holds if A(s) >= 0 in every state: then ``DeltaA <= max_s A(s) <= 2 r_max / (1-gamma)`` and
    ``delta <= 2``.
    """
    # For any new policy the product is at most twice that, so A-SPI's zeta is at most twice the
    # best one and still cannot make J fall.
    return 4.0 * r_max / (1.0 - gamma)


def cpi_product(gamma: float, r_max: float = 1.0) -> float:
    """The ``delta DeltaA`` for which CPI's zeta is best: ``4 r_max / (gamma (1-gamma))``."""
    return approximate_spi_product(gamma, r_max) / gamma


# --- beyond the paper: bounds for any baseline (proofs: docs/theory/caution.md) -------------------


def span_change(span: th.Tensor, zeta: th.Tensor | float = 1.0) -> ChangeBound:
    """Lemma 3 for any baseline: KL(new || old) and the L1 distance from ``span`` per state.

    With ``new ∝ old exp(f)`` and ``span`` the span of f over actions:
    ``KL <= min(span^2 / 8, span)`` and ``L1 <= 2 tanh(span / 4)``, which two actions attain. The
    geometric mixture with coefficient zeta has the span ``zeta * span``. (Theorem B)
    """
    scaled = zeta * span
    # s^2/8 from a variance of at most s^2/4; s, the smaller one from 8 on, from the range of f
    return ChangeBound(th.minimum(scaled**2 / 8.0, scaled), 2.0 * th.tanh(scaled / 4.0))


def span_product(span: th.Tensor, q_span: th.Tensor) -> th.Tensor:
    """``delta DeltaA <= 4 q_span tanh(span/4)^2``, with the largest spans over states of f and Q.

    From ``DeltaA <= 2 max_s |A(s)| <= delta q_span`` and :func:`span_change`. Without measuring Q,
    ``q_span <= 2 r_max / (1-gamma)``. (Theorem C)
    """
    return 4.0 * q_span * th.tanh(span / 4.0) ** 2


def geometric_bound(
    zeta: th.Tensor, covariance: th.Tensor, span: th.Tensor, q_span: th.Tensor, gamma: float
) -> th.Tensor:
    """Lower bound on J(geometric mixture) - J(old) for any zeta in [0, 1].

    ``zeta c - zeta^2 span^2 q_span / (8 (1-gamma))``, with ``c`` the mean over the visitation of
    ``Cov_old(Q_old, f)`` and ``f = log(new / old)``. (Theorem D)
    """
    return zeta * covariance - zeta**2 * span**2 * q_span / (8.0 * (1.0 - gamma))


def statewise_bound(
    zeta: th.Tensor,
    advantage: th.Tensor,
    l1: th.Tensor,
    start: th.Tensor,
    gamma: float,
    error_bound: float | th.Tensor = 0.0,
) -> th.Tensor:
    """Lower bound on the gain of a state-wise mixture that is never worse in any state.

    ``(1-gamma) sum_s start(s) zeta(s) (A(s) - error_bound L1(s))``: where ``A(s)`` is computed from
    values with errors of at most ``error_bound``, the bracket bounds the true advantage. Holds if
    every term is at least 0. (Theorem E)
    """
    return (1.0 - gamma) * (start * zeta * (advantage - error_bound * l1)).sum(-1)
