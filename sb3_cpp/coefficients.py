"""Mixing coefficient of the new policy: rules for ``zeta``, the bound C_K, the advantage tracker.

Every rule maps floats to a float, or tensors (one entry per trial) to a tensor, clipped to [0, 1].
``A`` is the expected advantage of the new policy over the old one; A <= 0 gives zeta = 0.

*Printed* constants are the paper's. Its ``A`` is over an occupancy that sums to 1/(1-gamma) in
some formulas and to 1 in others. *Exact* constants (``exact=True``) are for the plain mean
``A = sum_s d(s) A(s)`` with a visitation ``d`` that sums to 1 and ordinary Q-values: with them
improvement is guaranteed.
"""

import math
import sys
from typing import TypeVar

import torch as th

Scalar = TypeVar("Scalar", float, th.Tensor)

__all__ = [
    "AdvantageTracker",
    "approximate_spi",
    "cpi",
    "dcpi",
    "dcpp",
    "error_sum",
    "exact_spi",
    "geometric_spi",
    "linear_cpp",
    "log_policy_change_bound",
    "measured_spi",
    "policy_change_bound",
    "span_cpp",
    "statewise",
    "theorem4_zeta",
    "track",
]


# --- the bound on how far one regularised step moves the policy -----------------------------------


def log_policy_change_bound(
    K: int,
    alpha: float,
    gamma: float,
    temperature: float,
    r_max: float = 1.0,
    error_bound: float = 0.0,
) -> float:
    """``log(C_K + B_K)``: finite where C_K itself would underflow (it falls like gamma^K).

    ``C_K = (r_max / temperature) sum_{k<K} alpha^k gamma^(K-k-1)`` (CPP Lemma 3). With the paper's
    convention ``pi_{K+1} = G Q_K``, ``Q_0 = 0``, and without errors,
    ``KL(pi_{K+1} || pi_K) <= 2 C_K``; with errors ``4 B_K`` is added (see :func:`error_sum`). With
    ``pi_K = G Q_K`` the same bound holds for ``KL(pi_K || pi_{K-1})``.

    :param K: number of the iteration, at least 1
    :param alpha: share of the KL weight in the temperature
    :param gamma: discount
    :param temperature: sum of the entropy and the KL weight
    :param r_max: bound of the absolute reward
    :param error_bound: bound of the error of one backup
    """
    if K < 1:
        raise ValueError(f"K must be at least 1, got {K}")
    # Closed form of the sum, with x = low / high: high^(K-1) (1 - x^K) / (1 - x). expm1 and log1p
    # keep the quotient accurate for x close to 1, where it tends to K.
    high, low = max(alpha, gamma), min(alpha, gamma)
    log_sum: float
    if K == 1:
        log_sum = 0.0
    elif high == 0.0:
        log_sum = -math.inf
    elif low == 0.0:
        log_sum = (K - 1) * math.log(high)
    else:
        log_x = math.log1p((low - high) / high)
        ratio = K if log_x == 0.0 else math.expm1(K * log_x) / math.expm1(log_x)
        log_sum = (K - 1) * math.log(high) + math.log(ratio)
    log_c = math.log(r_max) - math.log(temperature) + log_sum
    if error_bound == 0.0:
        return log_c
    # log(exp(log_c) + exp(log_b)) without overflow
    log_b = math.log(error_sum(K, gamma, temperature, error_bound))
    return max(log_c, log_b) + math.log1p(math.exp(-abs(log_c - log_b)))


def policy_change_bound(
    K: int,
    alpha: float,
    gamma: float,
    temperature: float,
    r_max: float = 1.0,
    error_bound: float = 0.0,
) -> float:
    """``C_K + B_K`` itself, clipped to the positive floats.

    See :func:`log_policy_change_bound`.
    """
    log_bound = log_policy_change_bound(K, alpha, gamma, temperature, r_max, error_bound)
    low, high = sys.float_info.min, sys.float_info.max
    return min(max(math.exp(min(log_bound, math.log(high))), low), high)


def error_sum(K: int, gamma: float, temperature: float, error_bound: float) -> float:
    """Error term of Lemma 3, ``B_K = (1 - gamma^K) / (1 - gamma) * error_bound / temperature``."""
    steps = float(K) if gamma == 1.0 else (1.0 - gamma**K) / (1.0 - gamma)
    return steps * error_bound / temperature


# --- coefficient rules ----------------------------------------------------------------------------


def _clip(zeta: Scalar) -> Scalar:
    """Clip to [0, 1]; NaN from 0/0 (no advantage, no distance) becomes 0."""
    if isinstance(zeta, th.Tensor):
        return th.nan_to_num(zeta, nan=0.0, posinf=1.0, neginf=0.0).clamp(0.0, 1.0)
    return 0.0 if math.isnan(zeta) else min(max(zeta, 0.0), 1.0)


def _divide(numerator: Scalar, denominator: Scalar | float) -> Scalar:
    """Quotient with the IEEE conventions of tensors for floats too: x/0 is infinite, 0/0 NaN."""
    if isinstance(numerator, th.Tensor) or isinstance(denominator, th.Tensor):
        return numerator / denominator
    if denominator == 0.0:
        return math.copysign(math.inf, numerator) if numerator else math.nan
    return numerator / denominator


def cpi(advantage: Scalar, gamma: float, r_max: float = 1.0, exact: bool = False) -> Scalar:
    """Conservative policy iteration (Kakade and Langford 2002; CPP Eq. cpi_zeta).

    Printed: ``(1-gamma) A / (4 r_max)``. Exact: ``(1-gamma)^2 A / (4 r_max)``.
    """
    return _clip((1.0 - gamma) ** (2 if exact else 1) * advantage / (4.0 * r_max))


def exact_spi(
    advantage: Scalar, delta: Scalar, advantage_range: Scalar, gamma: float, exact: bool = False
) -> Scalar:
    """Exact safe policy iteration, E-SPI (Pirotta et al. 2013; CPP Eq. espi_zeta).

    ``delta = max_s sum_a |new - old|`` (the paper prints ``|sum_a (new - old)|``, which is 0) and
    ``advantage_range = max_{s,s'} |A(s) - A(s')|``.
    Printed: ``(1-gamma)^2 A / (gamma delta range)``. Exact: ``(1-gamma) A / (gamma delta range)``.
    """
    return _clip(
        _divide((1.0 - gamma) ** (1 if exact else 2) * advantage, gamma * delta * advantage_range)
    )


def approximate_spi(
    advantage: Scalar, gamma: float, r_max: float = 1.0, exact: bool = False
) -> Scalar:
    """Approximate SPI, A-SPI (CPP Eq. aspi_zeta, where r_max = 1).

    It is E-SPI with the bound ``delta * range <= 4 r_max / (1-gamma)``.
    Printed: ``(1-gamma)^3 A / (4 gamma r_max)``. Exact: ``(1-gamma)^2 A / (4 gamma r_max)``.
    """
    return _clip(_divide((1.0 - gamma) ** (2 if exact else 3) * advantage, 4.0 * gamma * r_max))


def linear_cpp(advantage: Scalar, log_c: float, gamma: float, exact: bool = False) -> Scalar:
    """Linear CPP: E-SPI with ``delta * range`` bounded through C_K (CPP Eq. linear_cpp).

    ``log_c = log C_K``; rewards are within [-1, 1].
    Printed: ``(1-gamma)^3 A / (8 gamma C_K)``. Exact: ``(1-gamma)^2 A / (8 gamma C_K)``.
    """
    log_scale = log_c + math.log(8.0 * gamma) if gamma > 0.0 else -math.inf
    return _scaled_by_inverse((1.0 - gamma) ** (2 if exact else 3) * advantage, log_scale)


def theorem4_zeta(advantage: Scalar, log_c: float, gamma: float, exact: bool = False) -> Scalar:
    """Theorem 4 with both branches (CPP).

    Printed: ``(1-gamma)^3 A / (8 gamma min(C_K, 1 - exp(-2 C_K)))``.
    Exact: ``(1-gamma)^2 A / (8 gamma min(C_K, 1 - exp(-2 C_K)))``.
    The paper prints the second branch 4 times too large (total variation is half of the L1
    distance); it is corrected in both.
    """
    # exp overflows above 709; from there on the second branch is 1 anyway
    c = math.exp(min(log_c, 700.0))
    log_branch = min(log_c, math.log(-math.expm1(-2.0 * c))) if c > 0.0 else log_c
    return linear_cpp(advantage, log_branch, gamma, exact)


def span_cpp(advantage: th.Tensor, span: th.Tensor, q_span: th.Tensor, gamma: float) -> th.Tensor:
    """CPP with measured spans instead of C_K: ``(1-gamma) A / (4 gamma q_span tanh(span/4)^2)``.

    ``span`` and ``q_span`` are the largest spans over actions of ``log(new / old)`` and of Q_old
    (at most ``2 r_max / (1-gamma)``). Exact constants. Unlike Theorem 4 of the paper it needs no
    chain from Q_0 = 0: it holds for any old policy. (docs/theory/caution.md, C)
    """
    scale = 4.0 * gamma * q_span * th.tanh(span / 4.0) ** 2
    return _clip(_divide((1.0 - gamma) * advantage, scale))


def geometric_spi(
    covariance: th.Tensor, span: th.Tensor, q_span: th.Tensor, gamma: float
) -> th.Tensor:
    """Coefficient of a *geometric* mixture: ``4 (1-gamma) c / (span^2 q_span)``, exact constants.

    ``c`` is the mean over the visitation of the covariance, under the old policy, of ``Q_old`` and
    ``f = log(new / old)``; ``span`` and ``q_span`` are the largest spans over actions of f and Q.
    (docs/theory/caution.md, D)
    """
    return _clip(_divide(4.0 * (1.0 - gamma) * covariance, span**2 * q_span))


def statewise(
    advantage: th.Tensor, l1: th.Tensor, error_bound: float | th.Tensor = 0.0
) -> th.Tensor:
    """One coefficient per state: 1 where ``A(s) >= error_bound * L1(s)``, else 0.

    If ``|Q^ - Q_old| <= error_bound`` and ``A(s) = sum_a (new - old) Q^``, the true advantage is
    then not negative in any state, and J cannot fall. (docs/theory/caution.md, E)
    """
    return (advantage >= error_bound * l1).to(advantage.dtype)


def dcpi(ratio: Scalar) -> Scalar:
    """Deep CPI: ``1/4 * m/M`` (Vieillard et al. 2020; CPP Eq. adaptive_zeta).

    ``ratio = m/M`` of an :class:`AdvantageTracker`.
    """
    return _clip(0.25 * ratio)


def dcpp(ratio: Scalar, log_c: float) -> Scalar:
    """Deep CPP: ``1/C_K * m/M`` (CPP Eq. cpp_zeta).

    ``ratio = m/M`` of an :class:`AdvantageTracker`, ``log_c = log C_K``.
    """
    return _scaled_by_inverse(ratio, log_c)


def measured_spi(ratio: Scalar) -> Scalar:
    """E-SPI's ``A / (delta * range)`` estimated on batches, without its factor of gamma.

    ``ratio = m/M`` of an :class:`AdvantageTracker` that observes the mean advantage of the new
    policy over the old one and, as the maximum, ``delta * range`` (see :func:`exact_spi`), which
    C_K only bounds. For typical instead of worst states, the scale is the mean L1 distance times
    the standard deviation of the advantages. :func:`dcpi` and :func:`dcpp` drop the factor too.
    """
    return _clip(ratio)


def _scaled_by_inverse(advantage: Scalar, log_scale: float) -> Scalar:
    """``clip(advantage / scale)``, computed in logs: finite for scales that would underflow too."""
    if isinstance(advantage, th.Tensor):
        zeta = th.exp((advantage.clamp(min=0.0).log() - log_scale).clamp(max=0.0))
        return th.where(advantage > 0.0, zeta, 0.0)
    return math.exp(min(math.log(advantage) - log_scale, 0.0)) if advantage > 0.0 else 0.0


# --- the only state -------------------------------------------------------------------------------


def track(
    m: th.Tensor, M: th.Tensor, mean: th.Tensor, maximum: th.Tensor, rho1: float, rho2: float
) -> tuple[th.Tensor, th.Tensor]:
    """``m <- rho1 m + (1-rho1) mean A`` and ``M <- max(rho2 M, max A)`` (CPP Eq. adaptive_zeta)."""
    return th.lerp(mean, m, rho1), th.maximum(rho2 * M, maximum)


class AdvantageTracker:
    """Running mean ``m`` and decaying maximum ``M`` of the advantage (CPP Eq. adaptive_zeta).

    ``m <- rho1 m + (1-rho1) mean A``, ``M <- max(rho2 M, max A)``, with
    ``A(s) = max_a Q(s,a) - V(s) >= 0`` and ``V = sum_a pi- Q``. The paper prints ``min`` for M.
    That fits a soft V, for which A <= 0. With the plain mean it sends M to 0 and zeta to 1 for
    ever, which is the fixed ``zeta=1.0``.

    :param rho1: decay of the mean, in [0, 1)
    :param rho2: decay of the maximum, in [0, 1]
    :param start: "first" initialises m and M from the first batch; "zero" starts both at 0, so that
        zeta grows slowly
    """

    def __init__(self, rho1: float = 0.99, rho2: float = 0.9999, start: str = "first") -> None:
        if start not in ("first", "zero"):
            raise ValueError(f"start must be 'first' or 'zero', got {start!r}")
        self.rho1, self.rho2, self.start = rho1, rho2, start
        self.mean: th.Tensor | None = None
        self.maximum: th.Tensor | None = None

    def update(self, mean_advantage: th.Tensor, max_advantage: th.Tensor) -> None:
        """Include one batch: the mean and the maximum of its advantages.

        Tensors of any shape, for example one entry per trial.
        """
        mean, maximum = mean_advantage.detach(), max_advantage.detach()
        if self.mean is None or self.maximum is None:
            first = self.start == "first"
            self.mean = mean.clone() if first else th.zeros_like(mean)
            self.maximum = maximum.clone() if first else th.zeros_like(maximum)
            if first:
                return
        # A model saved on another device or in another precision follows its new batches
        old = (self.mean.to(mean), self.maximum.to(maximum))
        self.mean, self.maximum = track(*old, mean, maximum, self.rho1, self.rho2)

    @property
    def ratio(self) -> th.Tensor:
        """``m/M`` clipped to [0, 1]; 0 before the first batch and where M = 0."""
        if self.mean is None or self.maximum is None:
            return th.zeros(())
        # The mean can lag behind a falling maximum, so the ratio may exceed 1 before the clip. The
        # denominator is replaced where it is 0, so that no NaN is computed
        positive = self.maximum > 0.0
        return th.where(
            positive, self.mean / self.maximum.where(positive, th.ones_like(self.maximum)), 0.0
        ).clamp(0.0, 1.0)

    def __getstate__(self) -> dict:
        """Tensors on the CPU, so that a model saved on a GPU loads anywhere."""
        return {
            key: value.cpu() if isinstance(value, th.Tensor) else value
            for key, value in self.__dict__.items()
        }
