"""Measures of one learning curve: policy oscillation (falls of the return) and area under it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
    curve = np.asarray(returns, dtype=np.float64)
    if curve.ndim == 0 or not np.all(np.isfinite(curve)):
        raise ValueError(f"returns must be a series of finite numbers, got {returns!r}")
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
