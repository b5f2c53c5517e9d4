"""What a curve of returns says about falling back, and whether two samples differ."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special


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


def welch_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value that two samples have the same mean, without assuming equal variances (Welch's t-test).

    Two constant samples have no variance to test with: 1 if they are equal, 0 if not.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if min(a.size, b.size) < 2:
        raise ValueError(f"each sample needs at least 2 values, got {a.size} and {b.size}")
    if np.ptp(a) == 0.0 and np.ptp(b) == 0.0:
        return float(a.flat[0] == b.flat[0])
    # scipy.special has the distribution; scipy.stats takes half a second to import
    error_a, error_b = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    t = (a.mean() - b.mean()) / np.sqrt(error_a + error_b)
    freedom = (error_a + error_b) ** 2 / (error_a**2 / (a.size - 1) + error_b**2 / (b.size - 1))
    return float(2.0 * special.stdtr(freedom, -abs(t)))


def significance_stars(p_value: float) -> str:
    """``*`` below 0.05 (the level of the paper), ``**`` below 0.01, ``***`` below 0.001, else ``n.s.``"""
    return next((mark for level, mark in ((0.001, "***"), (0.01, "**"), (0.05, "*")) if p_value < level), "n.s.")
