"""Algorithms against each other, on each task and over all tasks of a suite, always with intervals."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sb3_cpp.analysis.results import Results
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.metrics import (
    Interval,
    Scores,
    holm_correction,
    iqm_difference,
    iqm_interval,
    mann_whitney_p_value,
    permutation_p_value,
    probability_of_improvement,
    welch_p_value,
)

TASK_MEASURES = (
    "final_return",
    "oscillation_l2",
    "oscillation_inf",
    "oscillation_noise",
    "auc",
    "final_training_return",
    "training_oscillation_l2",
    "human_normalised",
)
SUITE_MEASURES = (
    "normalised_return",
    "normalised_oscillation_l2",
    "normalised_oscillation_inf",
    "normalised_training_oscillation_l2",
    "normalised_auc",
    "human_normalised",
)
TESTED = ("final_return", "oscillation_l2", "oscillation_inf", "auc")
_ORDER = ("cpp", "cvi", "mdqn", "modqn", "cpi", "dqn", "qrdqn", "ppo", "a2c")


def ordered(algos: Sequence[str]) -> list[str]:
    """Ours first, then the baselines, then other names by the alphabet: the same order in every table and figure."""
    return sorted(
        set(algos), key=lambda algo: (_ORDER.index(algo) if algo in _ORDER else len(_ORDER), algo)
    )


def tasks_of(results: Results) -> list[str]:
    """The tasks of the compared runs."""
    return list(dict.fromkeys(results.used().task))


def check_reference(results: Results, name: str | None) -> None:
    """Refuse a reference that no suite has."""
    algos = ordered(list(results.used().algo))
    if name is not None and algos and name not in algos:
        raise InvalidArgument(
            f"the reference must be one of the compared algorithms {', '.join(algos)}, got {name!r}"
        )


def choose_reference(results: Results, name: str | None = None) -> str:
    """The algorithm that the others of a suite are compared with: the one named, where it is, else ``cpp``, else the first."""
    algos = ordered(list(results.used().algo))
    return name if name is not None and name in algos else algos[0]


def scores(
    results: Results, algo: str, measure: str, tasks: Sequence[str]
) -> dict[str, np.ndarray]:
    """The measure of the compared runs of an algorithm, by task."""
    runs = results.used()
    runs = runs[(runs.algo == algo) & runs[measure].notna()]
    return {
        task: runs.loc[runs.task == task, measure].to_numpy(np.float64)
        for task in tasks
        if (runs.task == task).any()
    }


def task_table(results: Results) -> pd.DataFrame:
    """One row per task, algorithm and measure: the IQM over seeds with its 95 % interval."""
    rows = []
    for task in tasks_of(results):
        for algo in ordered(list(results.used().algo)):
            for measure in TASK_MEASURES:
                values = scores(results, algo, measure, [task])
                if values:
                    row = {
                        "task": task,
                        "algo": algo,
                        "measure": measure,
                        "runs": len(values[task]),
                    }
                    rows.append({**row, **_iqm(values, measure)})
    return pd.DataFrame(rows, columns=["task", "algo", "measure", "runs", "iqm", "low", "high"])


def shared_tasks(results: Results) -> list[str]:
    """The tasks over which algorithms are averaged: those on which the returns differ at all."""
    runs = results.used()
    return [
        task
        for task in tasks_of(results)
        if runs.loc[runs.task == task, "normalised_return"].notna().any()
    ]


def undecidable_tasks(results: Results) -> list[str]:
    """The tasks that are in no average, because all evaluations of all runs are equal there."""
    return [task for task in tasks_of(results) if task not in shared_tasks(results)]


def why_no_average(results: Results) -> str:
    """The reason why there is nothing to show over all tasks."""
    return (
        "no algorithm has runs on all tasks"
        if shared_tasks(results)
        else "all evaluations are equal on every task"
    )


def left_out(results: Results) -> dict[str, list[str]]:
    """Algorithms that cannot be averaged over the tasks, with the tasks on which they have no run to compare."""
    runs, tasks = results.used(), shared_tasks(results)
    lacking = {
        algo: [task for task in tasks if not ((runs.algo == algo) & (runs.task == task)).any()]
        for algo in ordered(list(results.runs.algo))
    }
    return {algo: missing for algo, missing in lacking.items() if missing}


def averaged_algorithms(results: Results) -> list[str]:
    return [algo for algo in ordered(list(results.used().algo)) if algo not in left_out(results)]


def suite_table(results: Results, reference: str) -> pd.DataFrame:
    """One row per algorithm and normalised measure, over all tasks of a suite.

    iqm, low, high; ``better`` is the probability that a run of the reference has the better value (a larger return or area, a
    smaller oscillation) than one of the algorithm, and ``difference`` the reference's IQM minus the algorithm's, both with
    intervals; ``p`` is of the stratified permutation test, ``p_holm`` corrected over the algorithms.
    Algorithms without a run on some task are not in it (:func:`left_out`), and no measure that is unknown on some task.
    """
    tasks, rows = shared_tasks(results), []
    algos = averaged_algorithms(results) if tasks else []
    for algo in algos:
        for measure in SUITE_MEASURES:
            own = scores(results, algo, measure, tasks)
            if set(own) != set(tasks):  # no training episode ended on one of them, say
                continue
            runs = sum(len(values) for values in own.values())
            row = {
                "algo": algo,
                "measure": measure,
                "tasks": len(tasks),
                "runs": runs,
                **_iqm(own, measure),
            }
            theirs = scores(results, reference, measure, tasks)
            if algo != reference and reference in algos and set(theirs) == set(tasks):
                pair = (own, theirs) if "oscillation" in measure else (theirs, own)
                row |= _columns(
                    probability_of_improvement(*pair), "better", "better_low", "better_high"
                )
                row |= _columns(
                    iqm_difference(theirs, own), "difference", "difference_low", "difference_high"
                )
                row["p"] = permutation_p_value(theirs, own)
            rows.append(row)
    columns = [
        "algo",
        "measure",
        "tasks",
        "runs",
        "iqm",
        "low",
        "high",
        "better",
        "better_low",
        "better_high",
    ]
    table = pd.DataFrame(
        rows, columns=[*columns, "difference", "difference_low", "difference_high", "p"]
    ).assign(p_holm=np.nan)
    for _, group in table[table.p.notna()].groupby("measure", sort=False):
        table.loc[group.index, "p_holm"] = holm_correction(group.p)
    return table


def significance_table(results: Results, reference: str) -> pd.DataFrame:
    """The reference against every other algorithm on every task: Welch's and the Mann-Whitney test, two-sided.

    Holm's correction is over all comparisons of one measure by one test. Pairs with fewer than two runs on a side have NaN for
    a p-value and do not count among the comparisons.
    """
    rows = []
    for measure in TESTED:
        for task in tasks_of(results):
            own = scores(results, reference, measure, [task]).get(task, np.zeros(0))
            for algo in ordered(list(results.used().algo)):
                theirs = scores(results, algo, measure, [task]).get(task, np.zeros(0))
                if algo == reference or not (own.size and theirs.size):
                    continue
                row = {
                    "measure": measure,
                    "task": task,
                    "algo": algo,
                    "runs": theirs.size,
                    "reference_runs": own.size,
                }
                row |= {
                    "mean": theirs.mean(),
                    "reference_mean": own.mean(),
                    "welch": np.nan,
                    "mann_whitney": np.nan,
                }
                if min(own.size, theirs.size) >= 2:
                    row |= {
                        "welch": welch_p_value(own, theirs),
                        "mann_whitney": mann_whitney_p_value(own, theirs),
                    }
                rows.append(row)
    columns = [
        "measure",
        "task",
        "algo",
        "runs",
        "reference_runs",
        "mean",
        "reference_mean",
        "welch",
        "mann_whitney",
    ]
    table = pd.DataFrame(rows, columns=columns).assign(welch_holm=np.nan, mann_whitney_holm=np.nan)
    for _, group in table.groupby("measure", sort=False):
        for test in ("welch", "mann_whitney"):
            known = group.index[group[test].notna()]
            table.loc[known, f"{test}_holm"] = holm_correction(table.loc[known, test])
    return table


def pareto_front(points: dict[str, tuple[float, float]]) -> list[str]:
    """Of (return, oscillation) the algorithms that no other one beats: none has more return and less oscillation at once."""
    return [
        name
        for name, (value, fall) in points.items()
        if not any(v >= value and f <= fall and (v > value or f < fall) for v, f in points.values())
    ]


def positions(results: Results, reference: str) -> list[str]:
    """Where the reference stands against each other algorithm in the plane of return and oscillation, one sentence each.

    An axis is decided if the 95 % interval of the difference (the reference minus the other, normalised IQM) excludes 0.
    """
    table = (
        suite_table(results, reference).dropna(subset=["difference"]).set_index(["algo", "measure"])
    )
    lines = []
    for algo in dict.fromkeys(table.index.get_level_values("algo")):
        gain, fall = (
            table.loc[(algo, "normalised_return")],
            table.loc[(algo, "normalised_oscillation_l2")],
        )
        words = f"{_verdict(gain, 'higher return', 'lower return')}, {_verdict(fall, 'more oscillation', 'less oscillation')}"
        lines.append(f"{reference} against {algo}: {words}")
    return lines


def _verdict(row: pd.Series, above: str, below: str) -> str:
    """As in ``less oscillation (-0.148 [-0.204, -0.088])``."""
    quantity = above.rpartition(" ")[2]
    if np.isnan(row.difference_low):
        return f"{quantity} undecided ({row.difference:+.3f}, no interval from single runs)"
    word = (
        above
        if row.difference_low > 0
        else below
        if row.difference_high < 0
        else f"{quantity} undecided"
    )
    return f"{word} ({row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}])"


def _columns(interval: Interval, *names: str) -> dict[str, float]:
    return {name: float(part) for name, part in zip(names or ("iqm", "low", "high"), interval)}


def _iqm(values: Scores, measure: str) -> dict[str, float]:
    """An oscillation is never negative, and neither is the end of its interval."""
    interval = iqm_interval(values)
    return _columns(interval.clip(0.0, np.inf) if "oscillation" in measure else interval)
