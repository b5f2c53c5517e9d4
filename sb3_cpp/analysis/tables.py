"""The comparison as text tables, for the console and for files; the ``results`` command."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from rich import box
from rich import table as rich_table
from rich.console import Console

from sb3_cpp.analysis.comparison import (
    check_reference,
    choose_reference,
    left_out,
    positions,
    suite_table,
    task_table,
    undecidable_tasks,
    unknown_noise,
    why_no_average,
)
from sb3_cpp.analysis.results import (
    Choice,
    Results,
    describe_excluded,
    load_results,
    save_results,
    unequal_settings,
)
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.files import write_text

TABLES = "tables.md"
_WIDTH = 100  # of a narrower terminal, or none: a wrapped line is better than a number cut off
_MEASURES = {
    "final_return": "final return",
    "oscillation_l2": "l2 oscillation",
    "oscillation_l2_denoised": "l2 without noise (rms)",
    "oscillation_noise": "of noise alone",
    "oscillation_inf": "inf oscillation",
    "drawdown": "largest drawdown",
    "auc": "area under curve",
    "human_normalised": "human-normalised",
}
_OVERALL = {
    "normalised_return": "return",
    "normalised_oscillation_l2": "l2 oscillation",
    "normalised_oscillation_l2_denoised": "l2 without noise (rms)",
    "normalised_oscillation_inf": "inf oscillation",
    "normalised_drawdown": "largest drawdown",
    "normalised_auc": "area under curve",
    "human_normalised": "human-normalised return",
}


class Table(NamedTuple):
    """Strings; the first ``text`` columns are aligned left, numbers right."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
    text: int = 1

    def markdown(self) -> str:
        return f"**{self.title}**\n\n{markdown_table(self.columns, self.rows, self.text)}"


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1
) -> None:
    """Print a table of strings; the first ``text`` columns are aligned left, numbers right."""
    table = rich_table.Table(
        title=title, box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False
    )
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    needed = table.__rich_measure__(console, console.options.update(max_width=1000)).maximum
    console.width = max(console.width, _WIDTH, needed)
    console.print(table)


def print_and_save(tables: Sequence[Table], folder: Path) -> None:
    """Write the tables as ``tables.md``, and print them."""
    write_text(folder / TABLES, as_markdown(tables))
    for table in tables:
        print_table(*table)


def as_markdown(tables: Sequence[Table]) -> str:
    return "\n\n".join(table.markdown() for table in tables) + "\n"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """The same in Markdown."""
    lines = [list(columns), [*["---"] * text, *["---:"] * (len(columns) - text)], *rows]
    escaped = ([str(cell).replace("|", r"\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


def interval_text(row: pd.Series) -> str:
    """``8.40 [7.92, 8.81]``, all with the same decimals; no brackets if there is no interval."""
    places = decimals_for(row.iqm, row.low, row.high)
    # + 0.0 turns -0.0 into 0.0
    value, low, high = (f"{part + 0.0:,.{places}f}" for part in (row.iqm, row.low, row.high))
    return value if np.isnan(row.low) else f"{value} [{low}, {high}]"


def decimals_for(*values: float) -> int:
    """Decimals by the size of the largest of some numbers."""
    largest = max((abs(value) for value in values if np.isfinite(value)), default=0.0)
    return next((places for places, least in ((0, 1000), (1, 10), (2, 1)) if largest >= least), 3)


def tables_of_tasks(results: Results) -> list[Table]:
    """One table per task, a row per algorithm."""
    name, found, tables = results.suites()[0], task_table(results), []
    shown = {
        measure: head for measure, head in _MEASURES.items() if (found.measure == measure).any()
    }
    for task in dict.fromkeys(found.task):
        here = found[found.task == task].set_index(["algo", "measure"])
        rows = []
        for algo in dict.fromkeys(here.index.get_level_values("algo")):
            row = [algo, str(int(here.loc[(algo, "final_return"), "runs"]))]
            for measure in shown:
                known = (algo, measure) in here.index
                row.append(interval_text(here.loc[(algo, measure)]) if known else "-")
            rows.append(row)
        columns = ("algo", "runs", *shown.values())
        tables.append(Table(f"{name}, {task}: IQM over seeds [95 % interval]", columns, rows))
    return tables


def table_of_all_tasks(results: Results, reference: str) -> Table | None:
    """A row per algorithm over all tasks; None if no algorithm has runs on all of them."""
    found = suite_table(results, reference).set_index(["algo", "measure"])
    if not len(found):
        return None
    known = set(found.index.get_level_values("measure"))
    measures = {measure: head for measure, head in _OVERALL.items() if measure in known}
    rows = []
    for algo in dict.fromkeys(found.index.get_level_values("algo")):
        chance = found.loc[(algo, "normalised_return")]
        better = f"{chance.better:.2f}"
        if not np.isnan(chance.better_low):  # single runs have no interval
            better += f" [{chance.better_low:.2f}, {chance.better_high:.2f}]"
        cells = [
            interval_text(found.loc[(algo, measure)]) if (algo, measure) in found.index else "-"
            for measure in measures
        ]
        rows.append([algo, *cells, "" if np.isnan(chance.better) else better])
    columns = ("algo", *measures.values(), f"P({reference} returns more)")
    title = f"{results.suites()[0]}, {int(found.tasks.iloc[0])} task(s), normalised by their range"
    return Table(f"{title}: IQM [95 % interval]", columns, rows)


def remarks(results: Results, reference: str) -> list[str]:
    """The reference against each other algorithm, settings that differ between seeds, what is not
    known and not averaged."""
    lines = positions(results, reference) + unequal_settings(results.configs)
    if unknown := unknown_noise(results):
        reason = "standard errors of the evaluations were not stored, or cannot be had of one"
        where = "; ".join(f"{algo} on {', '.join(tasks)}" for algo, tasks in unknown.items())
        everywhere = results.used().oscillation_l2_denoised.isna().all()
        where = "" if everywhere else f" for {where}"
        lines.append(f"l2 without noise is not known{where}: {reason} episode")
    for task in undecidable_tasks(results):
        lines.append(f"not averaged: {task}, where all evaluations are equal")
    for algo, tasks in left_out(results).items():
        lines.append(f"not averaged: {algo} has no run to compare on {', '.join(tasks)}")
    return lines


def tables_as_markdown(results: Results, reference: str | None = None) -> str:
    """All tables of all suites, the remarks on them, and the runs that are not compared."""
    parts = []
    for name in results.suites():
        suite = results.suite(name)
        if not len(suite.used()):
            parts.append(f"{name}: no run can be compared")
            continue
        own_reference = choose_reference(suite, reference)
        overall = table_of_all_tasks(suite, own_reference)
        for table in [*([overall] if overall else []), *tables_of_tasks(suite)]:
            parts.append(table.markdown())
        if lines := remarks(suite, own_reference):
            parts.append("\n".join(f"- {line}" for line in lines))
    gaps = [f"- not compared: {line}" for line in describe_excluded(results.runs)]
    gaps += [f"- ignored, because it belongs to no suite: {folder}" for folder in results.ignored]
    parts.append("\n".join(gaps) or "Every run was compared, none is missing.")
    return "\n\n".join(parts) + "\n"


def gather(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """The ``results`` command: print the comparison, write tidy files; returns the exit code."""
    results = load_results(*paths, choice=choice)
    check_reference(results, reference)
    for suite in results.suites():
        print_suite(results.suite(suite), reference)
    print_excluded(results)
    if out is not None:
        # Checked before the CSV files are written, so that all or nothing is new
        tables = Path(out) / TABLES
        if tables.exists() and not force:
            raise InvalidArgument(f"{tables} already exists; choose another folder, or use --force")
        written = save_results(results, out, force)
        write_text(tables, tables_as_markdown(results, reference))
        for path in [*written, tables]:
            print(f"written: {path}")
    return 0


def print_suite(results: Results, reference: str | None = None) -> None:
    """The tables of one suite."""
    name = results.suites()[0]
    if not len(results.used()):
        print(f"{name}: no run can be compared")
        return
    reference = choose_reference(results, reference)
    for table in tables_of_tasks(results):
        print_table(*table)
    overall = table_of_all_tasks(results, reference)
    if overall is None:
        print(f"{name}: {why_no_average(results)}")
    else:
        print_table(*overall)
    for line in remarks(results, reference):
        print(line)


def print_excluded(results: Results) -> None:
    """Name on stderr the runs that are not compared."""
    for line in describe_excluded(results.runs):
        print(f"not compared: {line}", file=sys.stderr)
    if results.ignored:
        count = f"{len(results.ignored)} folder{'s' if len(results.ignored) > 1 else ''}"
        print(f"ignored: {count} of no suite, e.g. {results.ignored[0]}", file=sys.stderr)
