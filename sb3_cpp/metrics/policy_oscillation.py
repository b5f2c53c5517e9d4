"""How far a curve of returns falls back."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Oscillation(NamedTuple):
    """Size of the falls of a curve of returns: the largest one, and the root of the sum of their squares."""

    inf: NDArray[np.float64]
    l2: NDArray[np.float64]


def oscillation(returns: ArrayLike) -> Oscillation:
    """Policy oscillation ``||OJ||_inf`` and ``||OJ||_2`` over the iterations with R_{K+1} < R_K (CPP Eq. oscillation_measure).

    :param returns: R_K, iterations in the last dimension; further dimensions (trials, algorithms) are kept
    :return: both norms, with the last dimension reduced; 0 for a curve that never falls
    """
    curve = np.asarray(returns, dtype=np.float64)
    if curve.ndim == 0 or not np.all(np.isfinite(curve)):
        raise ValueError(f"returns must be a series of finite numbers, got {returns!r}")
    drops = np.maximum(curve[..., :-1] - curve[..., 1:], 0.0)
    if drops.shape[-1] == 0:
        zero = np.zeros(curve.shape[:-1])
        return Oscillation(zero, zero.copy())
    return Oscillation(drops.max(axis=-1), np.sqrt((drops**2).sum(axis=-1)))


def oscillation_of_noise(standard_errors: ArrayLike) -> float:
    """The ``||OJ||_2`` that a policy of constant return would show, only because each R_K is a mean of few episodes.

    R_K - R_{K+1} of such a policy is symmetric around 0 with the variance s_K^2 + s_{K+1}^2, of which the falls are half:
    ``sqrt(sum_K (s_K^2 + s_{K+1}^2) / 2)``. Oscillation that does not exceed it says nothing about the policy.

    :param standard_errors: s_K, of each mean
    """
    variances = np.asarray(standard_errors, dtype=np.float64) ** 2
    if variances.ndim != 1 or not np.all(np.isfinite(variances)):
        raise ValueError(
            f"standard errors must be a list of finite numbers, got {standard_errors!r}"
        )
    return float(np.sqrt(np.sum(variances[:-1] + variances[1:]) / 2.0))


def normalised_oscillation(returns: ArrayLike, low: float, high: float) -> Oscillation:
    """Both norms in units of the task's range of returns, ``oscillation((R - low) / (high - low))``.

    1 is a fall from the best return of the task to the worst, so tasks with different rewards can be averaged.
    """
    if not np.isfinite([low, high]).all() or not low < high:
        raise ValueError(
            f"the range of returns must be two finite numbers, low < high, got {low!r} and {high!r}"
        )
    norms = oscillation(returns)
    return Oscillation(norms.inf / (high - low), norms.l2 / (high - low))
