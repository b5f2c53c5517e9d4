"""Algorithms compared on each task and over all tasks of a suite, with intervals."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sb3_cpp.analysis.results import Results
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.metrics import (
    Interval,
    holm_correction,
    iqm_difference,
    iqm_interval,
    mann_whitney_p_value,
    mean_difference,
    mean_interval,
    permutation_p_value,
    probability_of_improvement,
    welch_p_value,
)

TASK_MEASURES = (
    *("final_return", "oscillation_l2", "oscillation_l2_denoised", "oscillation_noise"),
    *("oscillation_inf", "drawdown", "auc"),
    *("final_training_return", "training_oscillation_l2", "human_normalised"),
)
SUITE_MEASURES = (
    *("normalised_return", "normalised_oscillation_l2", "normalised_oscillation_l2_denoised"),
    *("normalised_oscillation_inf", "normalised_drawdown"),
    *("normalised_training_oscillation_l2", "normalised_auc", "human_normalised"),
)
LEVEL = 0.05  # of Holm-corrected p-values
LEARNED = 0.25  # share of the best return, from which on an algorithm counts as having learned
TESTED = ("final_return", "oscillation_l2", "oscillation_inf", "auc")
# Ours first, then the baselines
_ORDER = ["cpp", "cmdqn", "csac", "cvi", "mdqn", "modqn", "cpi"]
_ORDER += ["dqn", "qrdqn", "ppo", "a2c", "sac", "td3"]
_TASK_COLUMNS = ["task", "algo", "measure", "runs", "iqm", "low", "high"]
_SUITE_COLUMNS = [
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
    "difference",
    "difference_low",
    "difference_high",
    "p",
]
_TEST_COLUMNS = [
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


def ordered(algos: Sequence[str]) -> list[str]:
    """The order of all tables and figures: ours, the baselines, other names alphabetically."""
    rank = {algo: place for place, algo in enumerate(_ORDER)}
    # A variant, as in cpp_zeta_1, stands beside its algorithm
    return sorted(set(algos), key=lambda algo: (rank.get(algo.split("_")[0], len(_ORDER)), algo))


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
    """The algorithm that the others are compared with: the named one if present, else the first."""
    algos = ordered(list(results.used().algo))
    return name if name is not None and name in algos else algos[0]


def scores(
    results: Results, algo: str, measure: str, tasks: Sequence[str]
) -> dict[str, np.ndarray]:
    """The measure of the compared runs of an algorithm, by task; tasks without it are left out.

    The oscillation without noise must be known for all runs: a part of them would be another
    sample than that of the other measures.
    """
    runs = results.used()
    runs = runs[runs.algo == algo]
    found = {task: runs.loc[runs.task == task, measure].dropna() for task in tasks}
    return {
        task: values.to_numpy(np.float64)
        for task, values in found.items()
        if len(values) and not (_denoised(measure) and len(values) < (runs.task == task).sum())
    }


def task_table(results: Results) -> pd.DataFrame:
    """One row per task, algorithm and measure: the IQM over seeds with its 95 % interval.

    For the oscillation without noise, the root of the mean of the squares instead of the IQM.
    """
    rows = []
    for task in tasks_of(results):
        for algo in ordered(list(results.used().algo)):
            for measure in TASK_MEASURES:
                values = scores(results, algo, measure, [task])
                if values:
                    row: dict[str, Any] = {"task": task, "algo": algo, "measure": measure}
                    row |= {"runs": len(values[task])} | _iqm(values, measure)
                    rows.append(row)
    return pd.DataFrame(rows, columns=_TASK_COLUMNS)


def shared_tasks(results: Results) -> list[str]:
    """The tasks over which algorithms are averaged: those on which returns differ."""
    runs = results.used()
    return [
        task
        for task in tasks_of(results)
        if runs.loc[runs.task == task, "normalised_return"].notna().any()
    ]


def undecidable_tasks(results: Results) -> list[str]:
    """The tasks that are not averaged because all evaluations of all runs are equal."""
    return [task for task in tasks_of(results) if task not in shared_tasks(results)]


def why_no_average(results: Results) -> str:
    """The reason why there is nothing to show over all tasks."""
    return (
        "no algorithm has runs on all tasks"
        if shared_tasks(results)
        else "all evaluations are equal on every task"
    )


def left_out(results: Results) -> dict[str, list[str]]:
    """Algorithms that are not averaged over tasks, with the tasks on which they have no run."""
    runs, tasks = results.used(), shared_tasks(results)
    lacking = {
        algo: [task for task in tasks if not ((runs.algo == algo) & (runs.task == task)).any()]
        for algo in ordered(list(results.runs.algo))
    }
    return {algo: missing for algo, missing in lacking.items() if missing}


def unknown_noise(results: Results) -> dict[str, list[str]]:
    """Tasks, by algorithm, on which some compared run has no oscillation without noise."""
    runs = results.used()
    runs = runs[runs.oscillation_l2_denoised.isna()]
    return {
        algo: list(dict.fromkeys(runs.loc[runs.algo == algo, "task"]))
        for algo in ordered(list(runs.algo))
    }


def averaged_algorithms(results: Results) -> list[str]:
    return [algo for algo in ordered(list(results.used().algo)) if algo not in left_out(results)]


def suite_table(results: Results, reference: str) -> pd.DataFrame:
    """One row per algorithm and normalised measure, over all tasks of a suite.

    iqm, low, high; ``better`` is the probability that a run of the reference has the better value
    (larger return or area, smaller falls) than one of the algorithm, ``difference`` the
    reference's IQM minus the algorithm's, both with intervals; ``p`` is of the stratified
    permutation test, ``p_holm`` corrected over the algorithms. Algorithms without a run on some
    task are left out (:func:`left_out`), as are measures unknown on some task.

    Of the oscillation without noise only the squares are unbiased, so they are averaged: ``iqm``,
    ``low`` and ``high`` are roots of the mean square and its interval, ``difference`` is that of
    the mean squares, and ``p`` is of the squares.
    """
    tasks, rows = shared_tasks(results), []
    algos = averaged_algorithms(results) if tasks else []
    for algo in algos:
        for measure in SUITE_MEASURES:
            own = scores(results, algo, measure, tasks)
            if set(own) != set(tasks):  # e.g. no training episode ended on one of them
                continue
            row: dict[str, Any] = {"algo": algo, "measure": measure, "tasks": len(tasks)}
            row |= {"runs": sum(map(len, own.values()))} | _iqm(own, measure)
            theirs = scores(results, reference, measure, tasks)
            if algo != reference and reference in algos and set(theirs) == set(tasks):
                # Smaller falls are better: the probability that the algorithm has larger ones
                pair = (own, theirs) if _falls(measure) else (theirs, own)
                row |= _columns(probability_of_improvement(*pair), "better")
                difference = iqm_difference
                if _denoised(measure):
                    own, theirs, difference = _squares(own), _squares(theirs), mean_difference
                row |= _columns(difference(theirs, own), "difference")
                row["p"] = permutation_p_value(theirs, own)
            rows.append(row)
    table = pd.DataFrame(rows, columns=_SUITE_COLUMNS).assign(p_holm=np.nan)
    # Holm's family: all algorithms compared with the reference on one measure
    for _, group in table[table.p.notna()].groupby("measure", sort=False):
        table.loc[group.index, "p_holm"] = holm_correction(group.p)
    return table


def significance_table(results: Results, reference: str) -> pd.DataFrame:
    """The reference against each algorithm on each task: Welch's and the Mann-Whitney test.

    Two-sided. Holm's correction is over all comparisons of one measure by one test. Pairs with
    fewer than two runs on a side have no p-value (NaN) and do not count among the comparisons.
    """
    rows = []
    for measure in TESTED:
        for task in tasks_of(results):
            own = scores(results, reference, measure, [task]).get(task, np.zeros(0))
            for algo in ordered(list(results.used().algo)):
                theirs = scores(results, algo, measure, [task]).get(task, np.zeros(0))
                if algo == reference or not (own.size and theirs.size):
                    continue
                row: dict[str, Any] = {"measure": measure, "task": task, "algo": algo}
                row |= {"runs": theirs.size, "reference_runs": own.size}
                row |= {"mean": theirs.mean(), "reference_mean": own.mean()}
                if min(own.size, theirs.size) >= 2:
                    row["welch"] = welch_p_value(own, theirs)
                    row["mann_whitney"] = mann_whitney_p_value(own, theirs)
                rows.append(row)
    table = pd.DataFrame(rows, columns=_TEST_COLUMNS)
    table = table.assign(welch_holm=np.nan, mann_whitney_holm=np.nan)
    for _, group in table.groupby("measure", sort=False):
        for test in ("welch", "mann_whitney"):
            known = group.index[group[test].notna()]
            table.loc[known, f"{test}_holm"] = holm_correction(table.loc[known, test])
    return table


def learned(returns: Mapping[str, float], low: float) -> list[str]:
    """The algorithms that returned enough for their oscillation to mean something.

    :param returns: by algorithm
    :param low: the lowest return
    """
    enough = low + LEARNED * (max(returns.values()) - low)
    return [algo for algo, value in returns.items() if value >= enough]


def positions(
    results: Results, reference: str, name: Callable[[str], str] = lambda algo: algo
) -> list[str]:
    """One sentence per other algorithm: return, oscillation and drawdown of the reference.

    Each with the difference (the reference minus the other, normalised), its 95 % interval and the
    Holm-corrected p-value. It is undecided if the interval includes 0; if only the p-value does
    not reject, the sentence says so. The oscillation is the one without noise (difference of the
    mean squares), or, where standard errors are unknown, the raw one.

    :param name: what an algorithm is called
    """
    table = suite_table(results, reference).dropna(subset=["difference"])
    table, lines = table.set_index(["algo", "measure"]), []
    for algo in dict.fromkeys(table.index.get_level_values("algo")):
        rows = table.loc[algo]
        words = [_verdict(rows.loc["normalised_return"], "return", "higher", "lower")]
        if "normalised_oscillation_l2_denoised" in rows.index:
            fall = rows.loc["normalised_oscillation_l2_denoised"]
            words.append(_verdict(fall, "oscillation without noise", "more", "less", squared=True))
        else:
            fall = rows.loc["normalised_oscillation_l2"]
            words.append(_verdict(fall, "raw oscillation", "more", "less"))
        words.append(_verdict(rows.loc["normalised_drawdown"], "drawdown", "larger", "smaller"))
        lines.append(f"{name(reference)} against {name(str(algo))}: {', '.join(words)}")
    return lines


def _verdict(row: pd.Series, quantity: str, above: str, below: str, squared: bool = False) -> str:
    """As in ``smaller drawdown (-0.148 [-0.204, -0.088], p = 0.012)``."""
    # Squares of parts of a range are small
    number = "+.4f" if squared else "+.3f"
    text = f"{'squared: ' if squared else ''}{row.difference:{number}}"
    if np.isnan(row.difference_low):
        return f"{quantity} undecided ({text}, no interval from single runs)"
    text += f" [{row.difference_low:{number}}, {row.difference_high:{number}}]"
    text += f", p = {row.p_holm:.3f}"
    if row.difference_low <= 0 <= row.difference_high:
        return f"{quantity} undecided ({text})"
    word = f"{above if row.difference_low > 0 else below} {quantity}"
    return f"{word}{'' if row.p_holm < LEVEL else ' by the interval alone'} ({text})"


def _columns(interval: Interval, name: str) -> dict[str, float]:
    columns = (name, f"{name}_low", f"{name}_high")
    return {column: float(part) for column, part in zip(columns, interval)}


def _iqm(values: dict[str, np.ndarray], measure: str) -> dict[str, float]:
    if _denoised(measure):
        # The root keeps the order: it has the coverage of the interval of the squares
        interval = Interval(*map(_signed_root, mean_interval(_squares(values))))
    else:
        interval = iqm_interval(values)
        if _falls(measure):  # never negative
            interval = interval.clip(0.0, np.inf)
    return {column: float(part) for column, part in zip(("iqm", "low", "high"), interval)}


def _falls(measure: str) -> bool:
    """Whether less of it is better."""
    return "oscillation" in measure or "drawdown" in measure


def _denoised(measure: str) -> bool:
    return measure.endswith("oscillation_l2_denoised")


def _squares(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The unbiased estimates behind signed roots."""
    return {task: roots * np.abs(roots) for task, roots in values.items()}


def _signed_root(square: np.ndarray) -> np.ndarray:
    return np.sign(square) * np.sqrt(np.abs(square))
