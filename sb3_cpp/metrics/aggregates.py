"""Statistics over the runs of several tasks: IQM, probability of improvement, performance profiles.

Scores map each task to the scores of its runs, in comparable units if there are several tasks.
Tasks have equal weight, however many runs each has.

Intervals come from the stratified bootstrap: runs are drawn again within their stratum, the runs of
one algorithm on one task (Agarwal et al. 2021, "Deep reinforcement learning at the edge of the
statistical precipice"), with a small-sample correction. On normal runs, 1 to 5 tasks with 3 to 20
runs each, 95 % intervals of the IQM contain the true value in 94 to 97 % of the cases
(tests/metrics/test_coverage.py).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_cpp.checks import require

Array = NDArray[np.float64]
Scores = Mapping[str, ArrayLike]
# From (draws, runs, …), the strata one after the other along runs, to (draws, …)
Statistic = Callable[[Array], Array]

DRAWS = 2000
_SHARE_DRAWS = 300  # a stratum's share in the variance need not be as precise as a quantile


class Interval(NamedTuple):
    """An estimate with its confidence interval (NaN if some stratum has fewer than two runs)."""

    estimate: Array
    low: Array
    high: Array

    def clip(self, low: float, high: float) -> "Interval":
        """For a quantity that cannot leave a range."""
        return Interval(*(np.clip(part, low, high) for part in self))


def iqm(scores: Scores) -> NDArray[np.float64]:
    """Interquartile mean: the mean of the middle half of the pooled runs, tasks weighted equally.

    A run on a quartile counts by the fraction inside it. With equal numbers of runs that are
    divisible by four this is ``scipy.stats.trim_mean(values, 0.25)``.
    """
    strata = _strata(scores)
    return _iqm(_weights(strata))(np.concatenate(strata)[None])[0]


def iqm_interval(
    scores: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """IQM with its stratified bootstrap interval; scores may be curves of shape (runs, …)."""
    strata = _strata(scores)
    return bootstrap_interval(strata, _iqm(_weights(strata)), confidence, draws, seed)


def iqm_difference(
    first: Scores, second: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """IQM of the first minus that of the second, both on the same tasks, with its interval."""
    return _difference(_iqm, first, second, confidence, draws, seed)


def mean_interval(
    scores: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Mean over runs, tasks weighted equally, with its stratified bootstrap interval."""
    strata = _strata(scores)
    return bootstrap_interval(strata, _mean(_weights(strata)), confidence, draws, seed)


def mean_difference(
    first: Scores, second: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Mean of the first minus that of the second, both on the same tasks, with its interval."""
    return _difference(_mean, first, second, confidence, draws, seed)


def probability_of_improvement(
    first: Scores, second: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Probability that a run of the first beats a run of the second, averaged over tasks.

    Ties count half: for one task it is the Mann-Whitney U over the number of pairs.
    """
    a, b, count = _both(first, second)
    sizes = [(len(x), len(y)) for x, y in zip(a, b)]
    statistic = _win_share(sizes, count)
    result = bootstrap_interval([*a, *b], statistic, confidence, draws, seed).clip(0.0, 1.0)
    if np.isnan(result.low):
        return result
    # Where one side wins every pair of a task, or all are ties, the bootstrap shows no spread.
    # There the width of Clopper and Pearson's interval, for as many independent pairs as the
    # smaller sample has runs, is added as that of an independent term of the mean (Zou and Donner
    # 2008, "MOVER").
    below, above = (result.estimate - result.low) ** 2, (result.high - result.estimate) ** 2
    for x, y in zip(a, b):
        outcomes = np.sign(x[:, None] - y)
        if np.ptp(outcomes) == 0:  # the same outcome for every pair
            share = (1.0 + outcomes[0, 0]) / 2.0
            width = (1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / min(outcomes.shape))) / len(sizes)
            below, above = below + (share * width) ** 2, above + ((1.0 - share) * width) ** 2
    return Interval(
        result.estimate, result.estimate - np.sqrt(below), result.estimate + np.sqrt(above)
    ).clip(0.0, 1.0)


def performance_profile(
    scores: Scores,
    thresholds: ArrayLike,
    confidence: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Interval:
    """Share of runs with a score above each threshold, tasks weighted equally.

    The pointwise band has no width where all runs of every task are on one side.
    """
    strata, levels = _strata(scores), np.asarray(thresholds, dtype=np.float64)
    weights = _weights(strata)
    above = [(stratum[:, None] > levels).astype(np.float64) for stratum in strata]
    share = bootstrap_interval(
        above, lambda values: np.einsum("drt,r->dt", values, weights), confidence, draws, seed
    )
    return share.clip(0.0, 1.0)


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
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence!r}")
    values = np.concatenate(strata)
    estimate = statistic(values[None])[0]
    sizes = np.array([stratum.shape[0] for stratum in strata])
    if sizes.min() < 2:  # a single run says nothing about the spread
        return Interval(estimate, np.full_like(estimate, np.nan), np.full_like(estimate, np.nan))
    # Seeded: the same runs give the same interval in every table and figure
    # _widening draws after the replicates from the same generator: the order is part of the result
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
    """Indices (draws, runs): strata in ``which`` drawn with replacement, the others unchanged."""
    # as many runs as there are, so that a draw has the size, and the spread, of the sample
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
    """Small-sample correction of the distance between the estimate and the ends of its interval."""
    # The plain percentile interval is too short for 3 or 5 runs: the bootstrap variance is
    # (n-1) / n of the true one, and its quantiles are normal ones. Both ends are therefore moved
    # away from the estimate by sqrt(n / (n-1)) * t / z, t being Student's quantile (Hesterberg
    # 2015, "What teachers should know about the bootstrap"). With several strata, n / (n-1) is
    # averaged by their share in the variance, and the degrees of freedom are those of Welch and
    # Satterthwaite.
    require("analysis", "scipy")
    from scipy import special  # scipy.stats takes half a second to import

    normal = -special.ndtri(tail)
    if len(sizes) == 1:
        n = int(sizes[0])
        return float(np.sqrt(n / (n - 1)) * -special.stdtrit(n - 1, tail) / normal)
    # Variance of the statistic if only one stratum is drawn again
    shares = [
        statistic(values[_draw(sizes, _SHARE_DRAWS, rng, [i])]).var(axis=0)
        for i in range(len(sizes))
    ]
    inflation = sizes / (sizes - 1)
    variances = np.stack([share * factor for share, factor in zip(shares, inflation)])
    total = variances.sum(axis=0)
    certain = total == 0.0  # no variance: the interval is a point
    # Welch and Satterthwaite
    freedom = total**2 / np.where(
        certain, 1.0, sum(v**2 / (n - 1) for v, n in zip(variances, sizes))
    )
    scale = np.sqrt(total / np.where(certain, 1.0, sum(shares)))
    # rounding may give less than one degree of freedom, where the quantile explodes
    quantile = -special.stdtrit(np.where(certain, 1.0, np.maximum(freedom, 1.0)), tail)
    return np.where(certain, 1.0, scale * quantile / normal)


def _strata(scores: Scores) -> list[Array]:
    strata = [np.asarray(values, dtype=np.float64) for values in scores.values()]
    if not strata or any(stratum.ndim == 0 or stratum.shape[0] == 0 for stratum in strata):
        raise ValueError(
            f"scores must map every task to the scores of at least one run, got {dict(scores)!r}"
        )
    if not all(np.isfinite(stratum).all() for stratum in strata):
        raise ValueError("scores must be finite numbers")
    return strata


def _both(first: Scores, second: Scores) -> tuple[list[Array], list[Array], int]:
    if set(first) != set(second):
        raise ValueError(f"both must have the same tasks, got {sorted(first)} and {sorted(second)}")
    a, b = _strata(first), _strata({task: second[task] for task in first})
    return a, b, sum(len(stratum) for stratum in a)


def _weights(strata: Sequence[Array]) -> Array:
    return np.concatenate(
        [np.full(len(stratum), 1.0 / (len(strata) * len(stratum))) for stratum in strata]
    )


def _difference(
    kind: Callable[[Array], Statistic],
    first: Scores,
    second: Scores,
    confidence: float,
    draws: int,
    seed: int,
) -> Interval:
    a, b, count = _both(first, second)
    left, right = kind(_weights(a)), kind(_weights(b))
    return bootstrap_interval(
        [*a, *b], lambda v: left(v[:, :count]) - right(v[:, count:]), confidence, draws, seed
    )


def _mean(weights: Array) -> Statistic:
    return lambda values: np.einsum("dr...,r->d...", values, weights)


def _iqm(weights: Array) -> Statistic:
    def statistic(values: Array) -> Array:
        # Each run covers an interval of length `weight` on [0, 1]; it counts by what of that lies
        # between the quartiles. With equal weights this is the usual trimmed mean.
        order = np.argsort(values, axis=1, kind="stable")
        inside = weights[order]
        upto = np.cumsum(inside, axis=1)
        # A run covers the weights from upto - inside to upto; count the part in [0.25, 0.75]
        inside = np.maximum(np.minimum(upto, 0.75) - np.maximum(upto - inside, 0.25), 0.0)
        return (np.take_along_axis(values, order, axis=1) * inside).sum(axis=1) / 0.5

    return statistic


def _win_share(sizes: Sequence[tuple[int, int]], count: int) -> Statistic:
    """Runs come task by task, the ``count`` runs of the first algorithm before the second's."""

    def statistic(values: Array) -> Array:
        shares, left, right = [], 0, count
        for n, m in sizes:
            # (draws, runs of the first, runs of the second)
            difference = values[:, left : left + n, None] - values[:, None, right : right + m]
            shares.append(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(1, 2)))
            left, right = left + n, right + m
        return np.mean(shares, axis=0)

    return statistic


def pareto_front(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """Of named (return, oscillation) pairs, those that no other pair dominates."""
    # dominated: another one has at least its return and at most its oscillation, and differs
    return [
        name
        for name, (value, fall) in points.items()
        if not any(v >= value and f <= fall and (v > value or f < fall) for v, f in points.values())
    ]
