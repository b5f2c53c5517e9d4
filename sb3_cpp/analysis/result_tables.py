"""The comparison of the runs of one suite as tables of text, for the console and for a file."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sb3_cpp.analysis.cell_checks import describe_excluded
from sb3_cpp.analysis.comparison import (
    choose_reference,
    left_out,
    positions,
    suite_table,
    task_table,
    undecidable_tasks,
)
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.tables import markdown_table

_MEASURES = {
    "final_return": "final return",
    "oscillation_l2": "l2 oscillation",
    "oscillation_noise": "of noise alone",
    "auc": "area under curve",
    "human_normalised": "human-normalised",
}
_OVERALL = {
    "normalised_return": "return",
    "normalised_oscillation_l2": "l2 oscillation",
    "normalised_auc": "area under curve",
    "human_normalised": "human-normalised return",
}


class Table(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: list[list[str]]


def tables_of_tasks(results: Results) -> list[Table]:
    """One table per task, a row per algorithm."""
    name, found, tables = results.suites()[0], task_table(results), []
    shown = {
        measure: head for measure, head in _MEASURES.items() if (found.measure == measure).any()
    }
    for task in dict.fromkeys(found.task):
        here = found[found.task == task].set_index(["algo", "measure"])
        rows = [
            [algo, str(int(here.loc[(algo, "final_return"), "runs"]))]
            + [
                interval_text(here.loc[(algo, measure)]) if (algo, measure) in here.index else "-"
                for measure in shown
            ]
            for algo in dict.fromkeys(here.index.get_level_values("algo"))
        ]
        columns = ("algo", "runs", *shown.values())
        tables.append(Table(f"{name}, {task}: IQM over seeds [95 % interval]", columns, rows))
    return tables


def table_of_all_tasks(results: Results, reference: str) -> Table | None:
    """A row per algorithm over all tasks; None if no algorithm has runs on all of them."""
    name, found = (
        results.suites()[0],
        suite_table(results, reference).set_index(["algo", "measure"]),
    )
    if not len(found):
        return None
    measures = {
        measure: head
        for measure, head in _OVERALL.items()
        if measure in found.index.get_level_values("measure")
    }
    rows = []
    for algo in dict.fromkeys(found.index.get_level_values("algo")):
        chance = found.loc[(algo, "normalised_return")]
        better = (
            ""
            if np.isnan(chance.better)
            else f"{chance.better:.2f} [{chance.better_low:.2f}, {chance.better_high:.2f}]"
        )
        rows.append(
            [algo, *[interval_text(found.loc[(algo, measure)]) for measure in measures], better]
        )
    columns = ("algo", *measures.values(), f"P({reference} returns more)")
    tasks = int(found.tasks.iloc[0])
    return Table(
        f"{name}, {tasks} task(s), normalised by their range: IQM [95 % interval]", columns, rows
    )


def remarks(results: Results, reference: str) -> list[str]:
    """Where the reference stands against each other algorithm, and what could not be averaged."""
    gaps = left_out(results).items()
    return [
        *positions(results, reference),
        *(
            f"not averaged: {task}, where all evaluations are equal"
            for task in undecidable_tasks(results)
        ),
        *(
            f"not averaged: {algo} has no run to compare on {', '.join(tasks)}"
            for algo, tasks in gaps
        ),
    ]


def tables_as_markdown(results: Results, reference: str | None = None) -> str:
    """All tables of all suites, the remarks on them, and what is not compared."""
    parts = []
    for name in results.suites():
        suite = results.suite(name)
        if not len(suite.used()):
            parts.append(f"{name}: no run can be compared")
            continue
        own_reference = choose_reference(suite, reference)
        overall = table_of_all_tasks(suite, own_reference)
        for table in [*([overall] if overall else []), *tables_of_tasks(suite)]:
            parts += [f"**{table.title}**", markdown_table(table.columns, table.rows)]
        if lines := remarks(suite, own_reference):
            parts.append("\n".join(f"- {line}" for line in lines))
    gaps = [f"not compared: {line}" for line in describe_excluded(results.runs)]
    gaps += [f"ignored, because it belongs to no suite: {folder}" for folder in results.ignored]
    parts.append(
        "\n".join(f"- {line}" for line in gaps)
        if gaps
        else "Every run was compared, none is missing."
    )
    return "\n\n".join(parts) + "\n"


def interval_text(row: pd.Series) -> str:
    """As in ``8.40 [7.92, 8.81]``, all three with the same decimals; without the brackets if there is no interval."""
    places = decimals_for(row.iqm, row.low, row.high)
    value, low, high = (f"{part + 0.0:,.{places}f}" for part in (row.iqm, row.low, row.high))
    return value if np.isnan(row.low) else f"{value} [{low}, {high}]"


def decimals_for(*values: float) -> int:
    """How many decimals the largest of some numbers calls for."""
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    return next((places for places, least in ((0, 1000), (1, 10), (2, 1)) if largest >= least), 3)
