"""The command behind scripts/results.py: gather, write, and print what was found."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from sb3_cpp.experiments.cell_checks import describe_excluded
from sb3_cpp.experiments.comparison import choose_reference, left_out, positions, suite_table, task_table
from sb3_cpp.experiments.results import Choice, Results, load_results, save_results
from sb3_cpp.experiments.tables import print_table


def gather(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Load runs, print the comparison and what is missing, and write the tidy files; returns the exit code of the script."""
    results = load_results(*paths, choice=choice)
    for suite in results.suites():
        print_suite(results.suite(suite), reference)
    report_gaps(results)
    if out is not None:
        for path in save_results(results, out, force):
            print(f"written: {path}")
    return 0


def print_suite(results: Results, reference: str | None = None) -> None:
    """The tables of one suite."""
    name = results.suites()[0]
    if not len(results.used()):
        print(f"{name}: no run can be compared")
        return
    reference = choose_reference(results, reference)
    table = task_table(results)
    for task in dict.fromkeys(table.task):
        here = table[table.task == task].set_index(["algo", "measure"])
        rows = [
            [algo, str(int(here.loc[(algo, "final_return"), "runs"]))]
            + [
                interval_text(here.loc[(algo, measure)]) if (algo, measure) in here.index else "-"
                for measure in ("final_return", "oscillation_l2", "oscillation_noise", "auc")
            ]
            for algo in dict.fromkeys(here.index.get_level_values("algo"))
        ]
        columns = ("algo", "runs", "final return", "l2 oscillation", "of noise alone", "area under curve")
        print_table(f"{name}, {task}: IQM over seeds [95 % interval]", columns, rows)
    print_overall(results, name, reference)


def print_overall(results: Results, name: str, reference: str) -> None:
    table = suite_table(results, reference).set_index(["algo", "measure"])
    if not len(table):
        print(f"{name}: no algorithm has runs on all tasks")
        return
    measures = ("normalised_return", "normalised_oscillation_l2", "normalised_auc")
    rows = []
    for algo in dict.fromkeys(table.index.get_level_values("algo")):
        chance = table.loc[(algo, "normalised_return")]
        better = "" if np.isnan(chance.better) else f"{chance.better:.2f} [{chance.better_low:.2f}, {chance.better_high:.2f}]"
        rows.append([algo, *[interval_text(table.loc[(algo, measure)]) for measure in measures], better])
    columns = ("algo", "return", "l2 oscillation", "area under curve", f"P({reference} returns more)")
    tasks = int(table.tasks.iloc[0])
    print_table(f"{name}, {tasks} task(s), normalised by their range: IQM [95 % interval]", columns, rows)
    for line in positions(results, reference):
        print(line)
    for algo, tasks_missing in left_out(results).items():
        print(f"not averaged: {algo} has no run to compare on {', '.join(tasks_missing)}")


def interval_text(row: pd.Series) -> str:
    """As in ``8.40 [7.92, 8.81]``, all three with the same decimals; without the brackets if there is no interval."""
    places = decimals_for(row.iqm, row.low, row.high)
    value, low, high = (f"{part + 0.0:,.{places}f}" for part in (row.iqm, row.low, row.high))
    return value if np.isnan(row.low) else f"{value} [{low}, {high}]"


def decimals_for(*values: float) -> int:
    """How many decimals the largest of some numbers calls for."""
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    return next((places for places, least in ((0, 1000), (1, 10), (2, 1)) if largest >= least), 3)


def report_gaps(results: Results) -> None:
    """Name on stderr what is not compared."""
    for line in describe_excluded(results.runs):
        print(f"not compared: {line}", file=sys.stderr)
    if results.ignored:
        count = len(results.ignored)
        print(f"ignored: {count} folder{'s' if count > 1 else ''} of no suite, e.g. {results.ignored[0]}", file=sys.stderr)
