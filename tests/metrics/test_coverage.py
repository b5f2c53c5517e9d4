"""A 95 % interval holds the truth in 95 % of the cases, with as few runs as benchmarks have."""

import numpy as np
import pytest
from scipy import stats

from sb3_cpp.metrics import (
    iqm_difference,
    iqm_interval,
    mean_difference,
    performance_profile,
    probability_of_improvement,
)

SETS = 1000
DRAWS = 400
Runs = dict[str, np.ndarray]


def normal_runs(
    rng: np.random.Generator, tasks: int, runs: int, spread: float, mean: float = 0.0
) -> Runs:
    """Task means around ``mean``, ``spread`` apart; by symmetry the true IQM is ``mean``."""
    means = mean + np.linspace(-spread / 2, spread / 2, tasks) if tasks > 1 else [mean]
    return {str(i): rng.normal(m, 1.0, runs) for i, m in enumerate(means)}


@pytest.mark.parametrize(
    ("tasks", "runs", "spread"), [(1, 4, 0.0), (1, 20, 0.0), (3, 3, 2.0), (3, 3, 8.0), (5, 5, 1.0)]
)
def test_iqm_interval_covers_the_truth(tasks: int, runs: int, spread: float) -> None:
    rng = np.random.default_rng(1)
    intervals = [
        iqm_interval(normal_runs(rng, tasks, runs, spread), draws=DRAWS, seed=i)
        for i in range(SETS)
    ]
    covered = np.mean([interval.low <= 0.0 <= interval.high for interval in intervals])
    assert 0.93 <= covered <= 0.97


def test_interval_of_the_difference_covers_the_truth() -> None:
    rng, hits = np.random.default_rng(2), 0
    for i in range(SETS):
        first, second = normal_runs(rng, 3, 3, 2.0, mean=0.5), normal_runs(rng, 3, 4, 2.0)
        interval = iqm_difference(first, second, draws=DRAWS, seed=i)
        hits += interval.low <= 0.5 <= interval.high
    assert 0.93 <= hits / SETS <= 0.97


@pytest.mark.parametrize("runs", [3, 10])
def test_interval_of_mean_squares_covers_the_truth(runs: int) -> None:
    """Skewed as squares of falls are: three tasks, means of 0 and 1, standard deviation 1."""
    rng, hits = np.random.default_rng(5), 0
    for i in range(SETS):
        first, second = (
            {task: mean - 1.0 + rng.gamma(1.0, 1.0, runs) for task in "abc"} for mean in (0.0, 1.0)
        )
        interval = mean_difference(first, second, draws=DRAWS, seed=i)
        hits += interval.low <= -1.0 <= interval.high
    assert 0.93 <= hits / SETS <= 0.98


def test_probability_of_improvement_covers_the_truth() -> None:
    """One run beats another with probability Phi(0.7 / sqrt(2)); few runs: longer intervals."""
    truth, rng, hits = stats.norm.cdf(0.7 / np.sqrt(2)), np.random.default_rng(3), 0
    for i in range(SETS):
        first, second = normal_runs(rng, 1, 10, 0.0, mean=0.7), normal_runs(rng, 1, 10, 0.0)
        interval = probability_of_improvement(first, second, draws=DRAWS, seed=i)
        hits += interval.low <= truth <= interval.high
    assert 0.93 <= hits / SETS <= 0.97


@pytest.mark.parametrize(
    ("effects", "runs"), [((2.5, 2.5, -2.5), 3), ((1.0, 1.0, 0.0), 3), ((3.0,), 3)]
)
def test_probability_of_improvement_knows_that_few_runs_may_all_win_by_chance(
    effects: tuple[float, ...], runs: int
) -> None:
    """Tasks on which one side wins every pair have no spread; their intervals are not points."""
    truth, rng, hits = (
        np.mean(stats.norm.cdf(np.array(effects) / np.sqrt(2))),
        np.random.default_rng(6),
        0,
    )
    for i in range(SETS // 4):
        first = {str(task): rng.normal(effect, 1.0, runs) for task, effect in enumerate(effects)}
        second = {task: rng.normal(0.0, 1.0, runs) for task in first}
        interval = probability_of_improvement(first, second, draws=DRAWS, seed=i)
        hits += interval.low <= truth <= interval.high
    assert hits / (SETS // 4) >= 0.93


def test_band_of_the_profile_covers_the_truth() -> None:
    """Half of all runs lie above their mean; steps of 1/30 make the band a little long."""
    rng = np.random.default_rng(4)
    runs = [{str(t): rng.normal(size=10) for t in range(3)} for _ in range(SETS)]
    bands = [
        performance_profile(scores, [0.0], draws=DRAWS, seed=i) for i, scores in enumerate(runs)
    ]
    assert (
        0.93
        <= np.mean([(band.low <= 0.5).all() and (band.high >= 0.5).all() for band in bands])
        <= 0.98
    )
