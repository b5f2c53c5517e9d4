"""Statistics over the runs of several tasks: interquartile mean, probability of improvement, performance profiles.

Scores come as a mapping from task to the scores of its runs, already in comparable units if there are several tasks. Tasks
count equally, however many runs each has.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_cpp.metrics.bootstrap import DRAWS, Array, Interval, Statistic, bootstrap_interval

Scores = Mapping[str, ArrayLike]


class Profile(NamedTuple):
    """For each threshold the share of runs above it, with its pointwise interval."""

    thresholds: Array
    share: Interval


def iqm(scores: Scores) -> NDArray[np.float64]:
    """Interquartile mean: the mean of the middle half of the pooled runs, tasks weighted equally.

    Runs on the edge count by the part of them that lies inside, so that it is exactly the half; with equal numbers of runs,
    and those divisible by four, it is ``scipy.stats.trim_mean(values, 0.25)``.
    """
    strata = _strata(scores)
    return _iqm(_weights(strata))(np.concatenate(strata)[None])[0]


def iqm_interval(
    scores: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """IQM with its stratified bootstrap interval. Scores may have further dimensions (runs, …), for curves."""
    strata = _strata(scores)
    return bootstrap_interval(strata, _iqm(_weights(strata)), confidence, draws, seed)


def iqm_difference(
    first: Scores, second: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """IQM of the first minus that of the second, both on the same tasks, with its interval."""
    a, b, count = _both(first, second)
    left, right = _iqm(_weights(a)), _iqm(_weights(b))
    return bootstrap_interval(
        [*a, *b], lambda v: left(v[:, :count]) - right(v[:, count:]), confidence, draws, seed
    )


def probability_of_improvement(
    first: Scores, second: Scores, confidence: float = 0.95, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """Probability that a run of the first beats a run of the second, ties counting half, averaged over tasks.

    For one task it is the Mann-Whitney U over the number of pairs. On a task where one side wins every pair, or all are ties,
    drawing again shows no spread; Clopper and Pearson's doubt for as many independent pairs as the smaller sample has runs
    is then added to the interval, as that of an independent part of a mean (Zou and Donner 2008, "MOVER").
    """
    a, b, count = _both(first, second)
    sizes = [(len(x), len(y)) for x, y in zip(a, b)]
    result = bootstrap_interval([*a, *b], _win_share(sizes, count), confidence, draws, seed).clip(
        0.0, 1.0
    )
    if np.isnan(result.low):
        return result
    below, above = (result.estimate - result.low) ** 2, (result.high - result.estimate) ** 2
    for x, y in zip(a, b):
        outcomes = np.sign(x[:, None] - y)
        if np.ptp(outcomes) == 0:
            share = (1.0 + outcomes[0, 0]) / 2.0
            doubt = (1.0 - ((1.0 - confidence) / 2.0) ** (1.0 / min(outcomes.shape))) / len(sizes)
            below, above = below + (share * doubt) ** 2, above + ((1.0 - share) * doubt) ** 2
    return Interval(
        result.estimate, result.estimate - np.sqrt(below), result.estimate + np.sqrt(above)
    ).clip(0.0, 1.0)


def performance_profile(
    scores: Scores,
    thresholds: ArrayLike,
    confidence: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
) -> Profile:
    """Share of runs with a score above each threshold, tasks weighted equally, with a pointwise band.

    As in the literature the band has no width where all runs of every task are on one side of the threshold.
    """
    strata, levels = _strata(scores), np.asarray(thresholds, dtype=np.float64)
    weights = _weights(strata)
    above = [(stratum[:, None] > levels).astype(np.float64) for stratum in strata]
    share = bootstrap_interval(
        above, lambda values: np.einsum("drt,r->dt", values, weights), confidence, draws, seed
    )
    return Profile(levels, share.clip(0.0, 1.0))


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


def _iqm(weights: Array) -> Statistic:
    def statistic(values: Array) -> Array:
        order = np.argsort(values, axis=1, kind="stable")
        inside = weights[order]
        upto = np.cumsum(inside, axis=1)
        inside = np.maximum(np.minimum(upto, 0.75) - np.maximum(upto - inside, 0.25), 0.0)
        return (np.take_along_axis(values, order, axis=1) * inside).sum(axis=1) / 0.5

    return statistic


def _win_share(sizes: Sequence[tuple[int, int]], count: int) -> Statistic:
    """The first ``count`` runs are those of the first algorithm, task by task, then those of the second."""

    def statistic(values: Array) -> Array:
        shares, left, right = [], 0, count
        for n, m in sizes:
            difference = values[:, left : left + n, None] - values[:, None, right : right + m]
            shares.append(((difference > 0) + 0.5 * (difference == 0)).mean(axis=(1, 2)))
            left, right = left + n, right + m
        return np.mean(shares, axis=0)

    return statistic
