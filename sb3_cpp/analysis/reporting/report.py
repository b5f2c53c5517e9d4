"""The command behind scripts/report.py: everything that is known about some runs, on one page that needs nothing else."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_cpp.analysis.cell_checks import describe_excluded
from sb3_cpp.analysis.comparison import (
    check_reference,
    choose_reference,
    left_out,
    ordered,
    positions,
    tasks_of,
    undecidable_tasks,
    why_no_average,
)
from sb3_cpp.analysis.plotting.canvas import short_name
from sb3_cpp.analysis.plotting.pictures import pictures
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.reporting.html import (
    bullets,
    definitions,
    page,
    paragraph,
    picture,
    preformatted,
    text_of,
    unfolding,
)
from sb3_cpp.analysis.reporting.origins import origins
from sb3_cpp.analysis.reporting.tables import (
    by_task_table,
    excluded_table,
    overall_table,
    paper_table,
    runs_table,
    significance,
)
from sb3_cpp.analysis.reporting.words import WORDS
from sb3_cpp.analysis.result_display import report_gaps
from sb3_cpp.analysis.results import Choice, Results, load_results
from sb3_cpp.checks import InvalidArgument


def report(
    paths: Sequence[str | Path],
    out: str | Path,
    title: str = "Results",
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Write the page; returns the exit code of the script."""
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument(f"the report must be a file ending in .html, got {str(out)!r}")
    if out.exists() and not force:
        raise InvalidArgument(f"{out} already exists; choose another name, or use --force")
    results = load_results(*paths, choice=choice)
    check_reference(results, reference)
    text = report_page(
        results, title, reference, shlex.join([Path(sys.executable).name, *sys.argv])
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    report_gaps(results)
    print(f"written: {out} ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def report_page(
    results: Results, title: str, reference: str | None = None, command: str = ""
) -> str:
    """The page as text."""
    sections = [
        (f"suite-{i}", f"Suite {name}", _suite(results.suite(name), reference))
        for i, name in enumerate(results.suites())
    ]
    sections.append(
        (
            "runs",
            "All runs",
            paragraph("A click on a column's head sorts by it.", "quiet") + runs_table(results),
        )
    )
    sections.append(("excluded", "Not compared", _excluded(results)))
    sections.append(("origins", "Where the numbers come from", origins(results)))
    sections.append(("words", "What the words mean", definitions(WORDS)))
    contents = "".join(
        f'<li><a href="#{name}">{text_of(heading)}</a></li>' for name, heading, _ in sections
    )
    body = [f"<h1>{text_of(title)}</h1>", _overview(results), f"<nav><ul>{contents}</ul></nav>"]
    body += [
        f'<section id="{name}"><h2>{text_of(heading)}</h2>\n{content}</section>'
        for name, heading, content in sections
    ]
    if command:
        body.append("<h3>This page</h3>" + preformatted(command, "command"))
    return page(title, "\n".join(body))


def _overview(results: Results) -> str:
    runs = results.runs
    facts = [
        (len(results.used()), "runs compared"),
        (len(results.excluded()), "not compared"),
        (runs.algo.nunique(), "algorithms"),
        (runs.task.nunique(), "tasks"),
        (f"{results.used().timesteps.sum() / 1e6:.3g} M", "steps"),
    ]
    return f'<ul class="numbers">{"".join(f"<li><b>{text_of(value)}</b> {text_of(name)}</li>" for value, name in facts)}</ul>'


def _suite(results: Results, reference: str | None) -> str:
    used = results.used()
    if not len(used):
        return paragraph("No run of this suite can be compared; see below.")
    reference = choose_reference(results, reference)
    label = styles_for([reference])[reference].label
    names = ", ".join(style.label for style in styles_for(ordered(list(used.algo))).values())
    tasks = [used[used.task == task] for task in tasks_of(results)]
    lengths = "; ".join(
        f"{short_name(runs.task.iloc[0])} {int(runs.n_timesteps.iloc[0]):,} steps, {runs.seed.nunique()} seeds"
        for runs in tasks
    )
    parts = [paragraph(f"{names}. {lengths}."), "<h3>All tasks</h3>"]
    parts.append(
        overall_table(results, reference) or paragraph(f"{why_no_average(results).capitalize()}.")
    )
    missing = [
        f"Not averaged: {algo} has no run to compare on {', '.join(lacking)}."
        for algo, lacking in left_out(results).items()
    ]
    missing += [
        f"Not averaged: {task}, where all evaluations are equal."
        for task in undecidable_tasks(results)
    ]
    found = positions(results, reference)
    if found:
        parts.append(
            paragraph(
                f"{label} minus the other in the plane of return and oscillation; undecided: the 95 % interval includes 0."
            )
        )
    parts.append(bullets([*found, *missing]))
    small, not_drawn = [], []
    for drawn in pictures(results, reference):
        if drawn.figure is None:
            not_drawn.append(f"Not drawn: {drawn.title}: {drawn.caption}.")
        elif drawn.name.startswith("curve_"):
            small.append(picture(drawn.figure, drawn.title, f"{drawn.title}. {drawn.caption}"))
        else:
            parts += [
                f"<h3>{text_of(drawn.title)}</h3>",
                picture(drawn.figure, drawn.title, drawn.caption),
            ]
    parts += [
        "<h3>Learning curves, task by task</h3>",
        f'<div class="pairs">{"".join(small)}</div>',
    ]
    parts += [paragraph(line, "quiet") for line in not_drawn]
    parts += [
        "<h3>Each task</h3>",
        by_task_table(results),
        unfolding("Tests of significance", significance(results, reference)),
    ]
    parts += ["<h3>The paper's Table 1</h3>", paper_table(results)]
    return "\n".join(parts)


def _excluded(results: Results) -> str:
    parts = [
        excluded_table(results)
        if describe_excluded(results.runs)
        else paragraph("" if results.ignored else "Every run was compared, none is missing.")
    ]
    if results.ignored:
        parts.append(
            paragraph(f"Ignored, because they belong to no suite: {len(results.ignored)} folders.")
        )
        parts.append(bullets(results.ignored[:20], "quiet"))
    return "\n".join(parts)
