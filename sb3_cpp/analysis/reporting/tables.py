"""The tables of a report."""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sb3_cpp.analysis.comparison import significance_table, suite_table, task_table
from sb3_cpp.analysis.plotting.canvas import short_name
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.plotting.table1 import numbers, table1
from sb3_cpp.analysis.reporting.html import Cell, table
from sb3_cpp.analysis.result_tables import decimals_for
from sb3_cpp.analysis.results import Results
from sb3_cpp.metrics import significance_stars

_SUITE = {
    "normalised_return": "final return",
    "normalised_oscillation_l2": "‖OJ‖₂",
    "normalised_training_oscillation_l2": "‖OJ‖₂ in training",
    "normalised_auc": "area under curve",
    "human_normalised": "human-normalised return",
}
_UNKNOWN: dict[Hashable, Any] = dict.fromkeys(("iqm", "low", "high"), np.nan)
_TASK = {
    "final_return": "final return",
    "oscillation_l2": "‖OJ‖₂",
    "oscillation_inf": "‖OJ‖∞",
    "oscillation_noise": "‖OJ‖₂ of noise",
    "auc": "area under curve",
    "final_training_return": "final training return",
    "training_oscillation_l2": "‖OJ‖₂ in training",
    "human_normalised": "human-normalised return",
}


def overall_table(results: Results, reference: str) -> str:
    """One row per algorithm over all tasks; empty text if no algorithm has runs on all of them."""
    found = suite_table(results, reference)
    if not len(found):
        return ""
    label = styles_for([reference])[reference].label
    shown = [measure for measure in _SUITE if (found.measure == measure).any()]
    columns = [
        "algorithm",
        "runs",
        *(_SUITE[measure] for measure in shown),
        f"P({label} returns more)",
        f"P({label} oscillates less)",
    ]
    columns += ["p of return", "p of ‖OJ‖₂"]
    rows: list[list[Cell | str]] = []
    for algo, group in found.groupby("algo", sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        gain, fall = by["normalised_return"], by["normalised_oscillation_l2"]
        cells = [
            _number(gain["runs"], 0),
            *(_estimate(by.get(measure, _UNKNOWN), "iqm", "low", "high") for measure in shown),
        ]
        cells += [_estimate(row, "better", "better_low", "better_high", 2) for row in (gain, fall)]
        rows.append(
            [_algorithm(str(algo)), *cells, *(_p_value(row["p_holm"]) for row in (gain, fall))]
        )
    tasks = int(found.tasks.iloc[0])
    caption = (
        f"Over {tasks} task{'s' if tasks > 1 else ''}, in units of each task's range of returns: interquartile means with "
        "95 % intervals. p: permutation test stratified by task, Holm-corrected."
    )
    return table(columns, rows, caption)


def by_task_table(results: Results) -> str:
    """One row per task and algorithm."""
    found = task_table(results)
    measures = [measure for measure in _TASK if (found.measure == measure).any()]
    rows: list[list[Cell | str]] = []
    for (task, algo), group in found.groupby(["task", "algo"], sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        cells = [
            _estimate(by[measure], "iqm", "low", "high") if measure in by else Cell("", "")
            for measure in measures
        ]
        rows.append(
            [
                short_name(str(task)),
                _algorithm(str(algo)),
                _number(by["final_return"]["runs"], 0),
                *cells,
            ]
        )
    columns = ["task", "algorithm", "runs", *(_TASK[measure] for measure in measures)]
    return table(
        columns,
        rows,
        "In the units of the return: interquartile means over seeds with 95 % intervals.",
        2,
    )


def significance(results: Results, reference: str) -> str:
    """The reference against each algorithm on each task."""
    found = significance_table(results, reference)
    label = styles_for([reference])[reference].label
    tests = {"welch": "Welch", "welch_holm": "Welch, Holm", "mann_whitney": "Mann-Whitney"}
    tests["mann_whitney_holm"] = "Mann-Whitney, Holm"
    rows: list[list[Cell | str]] = []
    for row in found.to_dict("records"):
        names = (_TASK[row["measure"]], short_name(row["task"]), _algorithm(row["algo"]))
        means = (_number(row["reference_mean"]), _number(row["mean"]))
        rows.append([*names, *means, *(_p_value(row[test]) for test in tests)])
    columns = [
        "measure",
        "task",
        "algorithm",
        f"mean of {label}",
        "its mean",
        *(f"p, {name}" for name in tests.values()),
    ]
    caption = f"{label} against each other algorithm, two-sided; Holm's correction is over all rows of one measure."
    return table(columns, rows, caption, 3)


def paper_table(results: Results) -> str:
    """Table 1 of the paper."""
    raw = table1(results)
    text = numbers(raw)
    rows: list[list[Cell | str]] = []
    for i, row in enumerate(text.to_numpy().tolist()):
        criterion = "‖OJ‖₂" if row[0].endswith("_2") else "‖OJ‖∞"
        values = [
            Cell(shown, "" if pd.isna(value) else float(value))
            for shown, value in zip(row[2:], raw.iloc[i, 2:])
        ]
        rows.append([criterion, row[1], *values])
    return table(
        list(text.columns),
        rows,
        "Means over seeds, in the units of the return, as in the paper's Table 1.",
        2,
    )


def runs_table(results: Results) -> str:
    """Every run, compared or not."""
    several = len(results.suites()) > 1
    measures = {
        "final_return": "final return",
        "final_training_return": "training return",
        "auc": "area under curve",
    }
    measures |= {"oscillation_l2": "‖OJ‖₂", "oscillation_inf": "‖OJ‖∞"}
    columns = [
        *(["suite"] if several else []),
        "task",
        "algorithm",
        "state",
        "seed",
        "steps",
        *measures.values(),
        "minutes",
    ]
    rows: list[list[Cell | str]] = []
    for run in results.runs.to_dict("records"):
        state = run["state"] + (
            ", not compared" if run["excluded"] and run["state"] == "finished" else ""
        )
        names = [
            *([run["suite"]] if several else []),
            short_name(run["task"]),
            _algorithm(run["algo"]),
            state,
        ]
        numbers_of_run = [_number(run["seed"], 0), _number(run["timesteps"] or np.nan, 0)]
        numbers_of_run += [_number(run[measure]) for measure in measures]
        rows.append([*names, *numbers_of_run, _number(run["seconds"] / 60, 1)])
    return table(columns, rows, "", 4 if several else 3)


def excluded_table(results: Results) -> str:
    """What is not compared, with the reason."""
    rows = [
        [run["suite"], run["task"], _algorithm(run["algo"]), str(run["seed"]), run["excluded"]]
        for run in results.excluded().to_dict("records")
    ]
    return table(["suite", "task", "algorithm", "seed", "reason"], rows, "", 5)


def _algorithm(algo: str) -> str:
    """The label, and the name of the command line where that says more."""
    label = styles_for([algo])[algo].label
    return (
        label
        if label.lower().replace("-", "") == algo
        else f"{label} ({algo})"
        if label != algo
        else algo
    )


def _estimate(
    row: Mapping[Hashable, Any], middle: str, low: str, high: str, decimals: int | None = None
) -> Cell:
    if np.isnan(row[middle]):
        return Cell("", "")
    places = decimals if decimals is not None else decimals_for(row[middle], row[low], row[high])
    interval = (
        ""
        if np.isnan(row[low])
        else f"[{row[low] + 0.0:,.{places}f}, {row[high] + 0.0:,.{places}f}]"
    )
    return Cell(f"{row[middle] + 0.0:,.{places}f}", float(row[middle]), interval)


def _number(value: float, decimals: int | None = None) -> Cell:
    if pd.isna(value):
        return Cell("", "")
    places = decimals if decimals is not None else decimals_for(value)
    return Cell(f"{value + 0.0:,.{places}f}", float(value))


def _p_value(p: float) -> Cell:
    if np.isnan(p):
        return Cell("", "")
    stars = significance_stars(p)
    return Cell(f"{p:.3f}" if p >= 0.001 else "< 0.001", p, "" if stars == "n.s." else stars)
