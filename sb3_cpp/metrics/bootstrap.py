"""Intervals of statistics of few runs: the stratified bootstrap, widened to what few runs deserve.

A stratum is the runs of one algorithm on one task; runs are drawn again within their stratum only (Agarwal et al. 2021, "Deep
reinforcement learning at the edge of the statistical precipice"). The plain percentile interval is too short for 3 or 5 runs:
the bootstrap knows n - 1 of n degrees of freedom and uses normal quantiles. Its two ends are therefore moved away from the
estimate by ``sqrt(n / (n-1)) * t / z``, t being Student's quantile (Hesterberg 2015, "What teachers should know about the
bootstrap"). With several strata, n / (n-1) is averaged by their share in the variance, and the degrees of freedom are those of
Welch and Satterthwaite. On normal runs, 1 to 5 tasks with 3 to 20 runs each, 95 % intervals of the IQM hold the truth in 94 to
97 % of the cases (tests/metrics/test_coverage.py).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]
Statistic = Callable[[Array], Array]
"""From (draws, runs, …), the strata one after the other along runs, to (draws, …)."""

DRAWS = 2000
_SHARE_DRAWS = 300


class Interval(NamedTuple):
    """An estimate with the ends of its confidence interval (NaN where there is a stratum of fewer than two runs)."""

    estimate: Array
    low: Array
    high: Array

    def clip(self, low: float, high: float) -> "Interval":
        """For a quantity that cannot leave a range."""
        return Interval(*(np.clip(part, low, high) for part in self))


def bootstrap_interval(
    strata: Sequence[Array],
    statistic: Statistic,
    confidence: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """The statistic of the runs and its interval.

    :param strata: per stratum an array of (runs, …), the further dimensions equal in all
    :param statistic: vectorised over draws
    """
    if not strata or any(stratum.shape[0] == 0 for stratum in strata):
        raise ValueError("every stratum needs at least one run")
    if not all(np.isfinite(stratum).all() for stratum in strata):
        raise ValueError("scores must be finite numbers")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence!r}")
    values = np.concatenate(strata)
    estimate = statistic(values[None])[0]
    sizes = np.array([stratum.shape[0] for stratum in strata])
    if sizes.min() < 2:
        return Interval(estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan))
    rng = np.random.default_rng(seed)
    replicates = statistic(values[_draw(sizes, draws, rng, range(len(sizes)))])
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail], axis=0)
    widening = _widening(values, sizes, statistic, tail, rng)
    return Interval(
        estimate, estimate + widening * (low - estimate), estimate + widening * (high - estimate)
    )


def _draw(
    sizes: NDArray[np.int64], draws: int, rng: np.random.Generator, which: Sequence[int]
) -> NDArray[np.int64]:
    """Indices (draws, runs): the strata in ``which`` drawn with replacement, the others as they are."""
    columns, first = [], 0
    for number, size in enumerate(sizes):
        if number in which:
            columns.append(first + rng.integers(0, size, (draws, size)))
        else:
            columns.append(np.tile(np.arange(first, first + size), (draws, 1)))
        first += size
    return np.concatenate(columns, axis=1)


def _widening(
    values: Array,
    sizes: NDArray[np.int64],
    statistic: Statistic,
    tail: float,
    rng: np.random.Generator,
) -> Array | float:
    """By what the distance of the ends from the estimate grows; see the head of this file."""
    normal = -special.ndtri(tail)
    if len(sizes) == 1:
        n = int(sizes[0])
        return float(np.sqrt(n / (n - 1)) * -special.stdtrit(n - 1, tail) / normal)
    alone = [
        statistic(values[_draw(sizes, _SHARE_DRAWS, rng, [i])]).var(axis=0)
        for i in range(len(sizes))
    ]
    inflation = sizes / (sizes - 1)
    variances = np.stack([variance * factor for variance, factor in zip(alone, inflation)])
    total = variances.sum(axis=0)
    certain = total == 0.0  # nothing varies: the interval is the point
    freedom = total**2 / np.where(
        certain, 1.0, sum(v**2 / (n - 1) for v, n in zip(variances, sizes))
    )
    scale = np.sqrt(total / np.where(certain, 1.0, sum(alone)))
    quantile = -special.stdtrit(np.where(certain, 1.0, np.maximum(freedom, 1.0)), tail)
    return np.where(certain, 1.0, scale * quantile / normal)
