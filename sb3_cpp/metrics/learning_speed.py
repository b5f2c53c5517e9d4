"""How soon a curve of returns rises."""

import numpy as np
from numpy.typing import ArrayLike


def area_under_curve(steps: ArrayLike, returns: ArrayLike) -> float:
    """Mean height of a curve of returns over training: its area by the trapezoid rule, divided by the span of steps.

    In units of the return, so that it can be read beside the final return; a curve of one point has that point's height.
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
    return float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2.0) / (x[-1] - x[0]))
