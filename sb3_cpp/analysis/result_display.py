"""The command behind scripts/results.py: gather, write, and print what was found."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_cpp.analysis.cell_checks import describe_excluded
from sb3_cpp.analysis.comparison import check_reference, choose_reference, why_no_average
from sb3_cpp.analysis.result_tables import (
    remarks,
    table_of_all_tasks,
    tables_as_markdown,
    tables_of_tasks,
)
from sb3_cpp.analysis.results import Choice, Results, load_results, save_results
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.checks import InvalidArgument

TABLES = "tables.md"


def gather(
    paths: Sequence[str | Path],
    out: str | Path | None = None,
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Load runs, print the comparison and what is missing, and write the tidy files; returns the exit code of the script."""
    results = load_results(*paths, choice=choice)
    check_reference(results, reference)
    for suite in results.suites():
        print_suite(results.suite(suite), reference)
    report_gaps(results)
    if out is not None:
        tables = Path(out) / TABLES
        if tables.exists() and not force:
            raise InvalidArgument(f"{tables} already exists; choose another folder, or use --force")
        written = save_results(results, out, force)
        tables.write_text(tables_as_markdown(results, reference), encoding="utf-8")
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


def report_gaps(results: Results) -> None:
    """Name on stderr what is not compared."""
    for line in describe_excluded(results.runs):
        print(f"not compared: {line}", file=sys.stderr)
    if results.ignored:
        count = len(results.ignored)
        print(
            f"ignored: {count} folder{'s' if count > 1 else ''} of no suite, e.g. {results.ignored[0]}",
            file=sys.stderr,
        )
