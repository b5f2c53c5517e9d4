"""Measures of one learning curve: policy oscillation (falls of the return) and area under it."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_cpp.checks import require

# Copies with added noise behind oscillation_without_noise: with more of them the bias shrinks
# slowly while the variance grows (20: bias 0.036 instead of 0.046, standard deviation 1.23
# instead of 1.09, in units of the variance of a difference)
_COPIES = 10


class Oscillation(NamedTuple):
    """Falls of a learning curve: the largest one, and the root of the sum of their squares."""

    inf: NDArray[np.float64]
    l2: NDArray[np.float64]


def oscillation(returns: ArrayLike) -> Oscillation:
    """Policy oscillation ``||OJ||_inf`` and ``||OJ||_2`` (CPP Eq. oscillation_measure).

    Both norms are over the iterations with R_{K+1} < R_K.

    :param returns: R_K, iterations in the last dimension; further dimensions are kept
    :return: both norms, without the last dimension; 0 for a curve that never falls
    """
    curve = _curve(returns)
    drops = np.maximum(curve[..., :-1] - curve[..., 1:], 0.0)
    # one evaluation only: without `initial`, max() of nothing would raise
    return Oscillation(drops.max(axis=-1, initial=0.0), np.sqrt((drops**2).sum(axis=-1)))


def oscillation_of_noise(standard_errors: ArrayLike) -> float:
    """Expected ``||OJ||_2`` of a policy of constant return, evaluated with few episodes.

    ``sqrt(sum_K (s_K^2 + s_{K+1}^2) / 2)``. An oscillation that does not exceed this value says
    nothing about the policy.

    :param standard_errors: s_K, of each mean
    """
    # R_K - R_{K+1} of such a policy is symmetric around 0 with variance s_K^2 + s_{K+1}^2, and the
    # falls carry half of it.
    variances = np.asarray(standard_errors, dtype=np.float64) ** 2
    if variances.ndim != 1 or not np.all(np.isfinite(variances)):
        raise ValueError(
            f"standard errors must be a list of finite numbers, got {standard_errors!r}"
        )
    return float(np.sqrt(np.sum(variances[:-1] + variances[1:]) / 2.0))


class DenoisedOscillation(NamedTuple):
    """Estimate of ``||OJ||_2^2``, which may be negative, and its root with the same sign."""

    squared: NDArray[np.float64]
    l2: NDArray[np.float64]


def oscillation_without_noise(
    returns: ArrayLike, standard_errors: ArrayLike
) -> DenoisedOscillation:
    """Estimate of the ``||OJ||_2`` of the true returns from noisy evaluations of them.

    ``||OJ||_2`` of the evaluations is too large on average: noise adds falls that are not there.
    Here still more noise is added, by calculation, and its effect is extrapolated back to none
    (SIMEX; Cook and Stefanski 1994). For a difference D = R_{K+1} - R_K with noise of variance
    s^2 = s_K^2 + s_{K+1}^2, let G(D, v) = E[min(D + N(0, v), 0)^2]. The polynomial through
    G(D, 0), G(D, s^2), ..., G(D, m s^2), m = 10, is evaluated at v = -s^2:

        sum_{k=0..m} (-1)^k binomial(m + 1, k + 1) G(D, k s^2),  summed over K.

    No function of D is an unbiased estimate of min(d, 0)^2 for every true difference d, because
    that has a kink and expectations under normal noise have none. The bias of this one, per
    difference, is 0 at d = 0, vanishes for d far from 0, and is at most 0.046 s^2 between: negative
    for slight rises, positive for slight falls. That of ``||OJ||_2^2`` is 0.5 s^2 at d = 0 and
    s^2 for large falls. Summed, the bias is at most 9 % of the squared oscillation of noise
    (:func:`oscillation_of_noise`), and therefore below 5 % of true squared falls that are twice
    that. On simulated curves that rise it is at most 4 % of it: below 5 % of true falls that
    exceed the noise, up to tens of percent of falls far below it. A single run may give a
    negative estimate, and the root is concave: average the squares over runs, then take the root.

    :param returns: R_K, evaluations in the last dimension; further dimensions are kept
    :param standard_errors: s_K, of each mean, in the same shape
    """
    require("analysis", "scipy")
    from scipy import special  # scipy.stats takes half a second to import

    curve, errors = _curve(returns), np.asarray(standard_errors, dtype=np.float64)
    if errors.shape != curve.shape or not (np.isfinite(errors) & (errors >= 0.0)).all():
        raise ValueError(
            f"standard errors must be a number of at least 0 per return, got {standard_errors!r}"
        )
    difference = np.diff(curve, axis=-1)
    variance = errors[..., :-1] ** 2 + errors[..., 1:] ** 2
    seen = np.minimum(difference, 0.0) ** 2
    total = (_COPIES + 1) * seen  # k = 0: G(D, 0)
    for k in range(1, _COPIES + 1):
        spread = np.sqrt(k * np.where(variance > 0.0, variance, 1.0))
        ratio = difference / spread
        density = np.exp(-(ratio**2) / 2.0) / math.sqrt(2.0 * math.pi)
        copy = (difference**2 + spread**2) * special.ndtr(-ratio) - difference * spread * density
        total += (-1) ** k * math.comb(_COPIES + 1, k + 1) * copy
    # Without noise every G is that of k = 0, and the coefficients add up to 1
    squared = np.where(variance > 0.0, total, seen).sum(axis=-1)
    return DenoisedOscillation(squared, np.sign(squared) * np.sqrt(np.abs(squared)))


def largest_drawdown(returns: ArrayLike) -> NDArray[np.float64]:
    """Largest fall below the best return so far: ``max_K (max_{L <= K} R_L - R_K)``.

    A slow decline counts in full, however many evaluations it takes; 0 for a curve that never
    falls.

    :param returns: R_K, evaluations in the last dimension; further dimensions are kept
    """
    curve = _curve(returns)
    falls = np.maximum.accumulate(curve, axis=-1) - curve
    return falls.max(axis=-1, initial=0.0)


def _curve(returns: ArrayLike) -> NDArray[np.float64]:
    curve = np.asarray(returns, dtype=np.float64)
    if curve.ndim == 0 or not np.all(np.isfinite(curve)):
        raise ValueError(f"returns must be a series of finite numbers, got {returns!r}")
    return curve


def area_under_curve(steps: ArrayLike, returns: ArrayLike) -> float:
    """Mean height of a learning curve: its area (trapezoid rule) over its span of steps.

    In units of the return, to be read beside the final return; a single point is its own height.
    """
    x, y = np.asarray(steps, dtype=np.float64), np.asarray(returns, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size == 0:
        raise ValueError(
            f"steps and returns must be two lists of equal length, got {x.shape} and {y.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.all(np.diff(x) > 0)):
        raise ValueError("steps must grow, and steps and returns must be finite numbers")
    if x.size == 1:
        return float(y[0])
    # np.trapezoid exists from numpy 2 on, np.trapz until then
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2.0) / (x[-1] - x[0]))
