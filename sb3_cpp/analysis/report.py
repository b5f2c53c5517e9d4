"""The ``report`` command: all results of some runs on one self-contained HTML page."""

import io
import re
import shlex
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import jinja2
import matplotlib
import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure

from sb3_cpp.analysis.comparison import (
    check_reference,
    choose_reference,
    left_out,
    ordered,
    positions,
    significance_table,
    suite_table,
    task_table,
    tasks_of,
    undecidable_tasks,
    why_no_average,
)
from sb3_cpp.analysis.figures import pictures, table1, table1_text
from sb3_cpp.analysis.results import Choice, Results, load_results
from sb3_cpp.analysis.style import label_of, short_name, step_text
from sb3_cpp.analysis.tables import decimals_for, print_excluded
from sb3_cpp.analysis.verdict import unequal_runs, verdict
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.files import write_text
from sb3_cpp.metrics import significance_stars

_SUITE = {
    "normalised_return": "final return",
    "normalised_oscillation_l2": "‖OJ‖₂",
    "normalised_training_oscillation_l2": "‖OJ‖₂ in training",
    "normalised_auc": "area under curve",
    "human_normalised": "human-normalised return",
}
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
_RUN = {
    "final_return": "final return",
    "final_training_return": "training return",
    "auc": "area under curve",
    "oscillation_l2": "‖OJ‖₂",
    "oscillation_inf": "‖OJ‖∞",
}
_TESTS = {
    "welch": "Welch",
    "welch_holm": "Welch, Holm",
    "mann_whitney": "Mann-Whitney",
    "mann_whitney_holm": "Mann-Whitney, Holm",
}


class Cell(NamedTuple):
    """A cell of a table: its text, the value it is sorted by, and in small print the interval."""

    text: str
    value: float | str | None = None
    interval: str = ""


Row = Sequence[Cell | str]
EMPTY = Cell("", "")


@dataclass
class HtmlTable:
    """A sortable table; its first ``text`` columns are aligned left, numbers right."""

    columns: Sequence[str]
    rows: Sequence[Row]
    caption: str = ""
    text: int = 1


class Image(NamedTuple):
    """A figure as a data URI."""

    title: str
    caption: str
    source: str
    width: int
    height: int


@dataclass
class Suite:
    """What the page shows of one suite; ``summary`` is None if no run of it can be compared."""

    name: str
    summary: str | None = None
    verdict: str = ""
    unequal: list[str] = field(default_factory=list)
    overall: HtmlTable | None = None
    no_average: str = ""
    label: str = ""
    positions: list[str] = field(default_factory=list)
    not_averaged: list[str] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    small_images: list[Image] = field(default_factory=list)
    not_drawn: list[str] = field(default_factory=list)
    tables: dict[str, HtmlTable] = field(default_factory=dict)


def report(
    paths: Sequence[str | Path],
    out: str | Path,
    title: str = "Results",
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Write the page; returns the exit code."""
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument(f"the report must be a file ending in .html, got {str(out)!r}")
    if out.exists() and not force:
        raise InvalidArgument(f"{out} already exists; choose another name, or use --force")
    results = load_results(*paths, choice=choice)
    check_reference(results, reference)
    command = shlex.join([Path(sys.executable).name, *sys.argv])
    text = report_page(results, title, reference, command)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text)
    print_excluded(results)
    print(f"written: {out} ({len(text.encode()) / 1e6:.1f} MB)")
    return 0


def report_page(
    results: Results, title: str, reference: str | None = None, command: str = ""
) -> str:
    """The page as text."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    # Escaped by default: names, settings and errors of runs may come from anywhere
    page = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True
    ).get_template("report.html")
    used, algos, tasks = results.used(), results.runs.algo.nunique(), results.runs.task.nunique()
    facts = {
        f"{_plural('run', len(used))} compared": len(used),
        "not compared": len(results.excluded()),
        _plural("algorithm", algos): algos,
        _plural("task", tasks): tasks,
        "steps": step_text(float(used.timesteps.sum())),
    }
    return page.render(
        title=title,
        facts=facts,
        suites=[_suite(results.suite(name), reference) for name in results.suites()],
        runs=_runs(results),
        excluded=_excluded(results),
        ignored=results.ignored,
        origins=_origins(results),
        command=command,
    )


def _suite(results: Results, reference: str | None) -> Suite:
    used, suite = results.used(), Suite(results.suites()[0])
    if not len(used):
        return suite
    reference = choose_reference(results, reference)
    suite.label = label_of(reference)
    suite.verdict, suite.unequal = verdict(results), unequal_runs(results)
    names = ", ".join(_name(algo) for algo in ordered(list(used.algo)))
    lengths = "; ".join(
        f"{short_name(task)} {int(runs.n_timesteps.iloc[0]):,} steps, {runs.seed.nunique()} "
        f"{_plural('seed', runs.seed.nunique())}"
        for task in tasks_of(results)
        for runs in [used[used.task == task]]
    )
    suite.summary = f"{names}. {lengths}."
    suite.overall, suite.no_average = _overall(results, reference), why_no_average(results)
    suite.positions = positions(results, reference, label_of)
    suite.not_averaged = [
        f"{label_of(algo)} has no run to compare on {', '.join(tasks)}"
        for algo, tasks in left_out(results).items()
    ]
    suite.not_averaged += [
        f"{task}, where all evaluations are equal" for task in undecidable_tasks(results)
    ]
    for picture in pictures(results, reference):
        if picture.figure is None:
            suite.not_drawn.append(f"{picture.title}: {picture.caption}")
        elif picture.name.startswith("curve_"):
            caption = f"{picture.title}. {picture.caption}"
            suite.small_images.append(_image(picture.figure, picture.title, caption))
        else:
            suite.images.append(_image(picture.figure, picture.title, picture.caption))
    suite.tables = {
        "tasks": _tasks(results),
        "tests": _significance(results, reference),
        "table1": _table1(results),
    }
    return suite


def _image(figure: Figure, title: str, caption: str) -> Image:
    """The figure as an SVG."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "sb3_cpp"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Hundredths of a point are enough for a line, and save a sixth of the page
    drawing = re.sub(
        rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), buffer.getvalue()
    )
    # Percent-encoding is shorter than base64 for SVG, and the page stays one file
    data = quote(drawing, safe=" ,.:;=/()-")
    width, height = (round(inches * 120) for inches in figure.get_size_inches())
    return Image(title, caption, f"data:image/svg+xml,{data}", width, height)


def _overall(results: Results, reference: str) -> HtmlTable | None:
    """One row per algorithm over all tasks; None if no algorithm has runs on all of them."""
    found = suite_table(results, reference)
    if not len(found):
        return None
    label = label_of(reference)
    shown = [measure for measure in _SUITE if (found.measure == measure).any()]
    columns = ["algorithm", "runs", *(_SUITE[measure] for measure in shown)]
    columns += [f"P({label} returns more)", f"P({label} oscillates less)"]
    columns += ["p of return", "p of ‖OJ‖₂"]
    rows: list[Row] = []
    for algo, group in found.groupby("algo", sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        pair = by["normalised_return"], by["normalised_oscillation_l2"]
        cells: list[Cell | str] = [label_of(str(algo)), _number(pair[0]["runs"], 0)]
        cells += [_estimate(by[measure]) if measure in by else EMPTY for measure in shown]
        cells += [_estimate(row, "better", 2) for row in pair]
        rows.append([*cells, *(_p_value(row["p_holm"]) for row in pair)])
    tasks = int(found.tasks.iloc[0])
    caption = (
        f"Over {tasks} {_plural('task', tasks)}, in units of each task's range of returns: "
        "interquartile means with 95 % intervals. p: permutation test stratified by task, "
        "Holm-corrected."
    )
    return HtmlTable(columns, rows, caption)


def _tasks(results: Results) -> HtmlTable:
    """One row per task and algorithm."""
    found = task_table(results)
    measures = [measure for measure in _TASK if (found.measure == measure).any()]
    rows: list[Row] = []
    for (task, algo), group in found.groupby(["task", "algo"], sort=False):
        by = {row["measure"]: row for row in group.to_dict("records")}
        cells = [_estimate(by[measure]) if measure in by else EMPTY for measure in measures]
        runs = _number(by["final_return"]["runs"], 0)
        rows.append([short_name(str(task)), label_of(str(algo)), runs, *cells])
    columns = ["task", "algorithm", "runs", *(_TASK[measure] for measure in measures)]
    caption = "In the units of the return: interquartile means over seeds with 95 % intervals."
    return HtmlTable(columns, rows, caption, 2)


def _significance(results: Results, reference: str) -> HtmlTable:
    """The reference against each algorithm on each task."""
    label = label_of(reference)
    rows: list[Row] = []
    for row in significance_table(results, reference).to_dict("records"):
        names = (_TASK[row["measure"]], short_name(row["task"]), label_of(row["algo"]))
        means = (_number(row["reference_mean"]), _number(row["mean"]))
        rows.append([*names, *means, *(_p_value(row[test]) for test in _TESTS)])
    columns = ["measure", "task", "algorithm", f"mean of {label}", "its mean"]
    columns += [f"p, {name}" for name in _TESTS.values()]
    caption = (
        f"{label} against each other algorithm, two-sided; Holm's correction is over all rows of "
        "one measure."
    )
    return HtmlTable(columns, rows, caption, 3)


def _table1(results: Results) -> HtmlTable:
    """Table 1 of the paper."""
    raw = table1(results)
    text = table1_text(raw)
    rows: list[Row] = []
    for i, row in enumerate(text.to_numpy().tolist()):
        criterion = "‖OJ‖₂" if row[0].endswith("_2") else "‖OJ‖∞"
        values = zip(row[2:], raw.iloc[i, 2:])
        cells = [Cell(shown, "" if pd.isna(value) else float(value)) for shown, value in values]
        rows.append([criterion, row[1], *cells])
    caption = "Means over seeds, in the units of the return, as in the paper's Table 1."
    return HtmlTable(list(text.columns), rows, caption, 2)


def _runs(results: Results) -> HtmlTable:
    """Every run, compared or not."""
    several = len(results.suites()) > 1
    rows: list[Row] = []
    for run in results.runs.to_dict("records"):
        # Other states already say why a run is not compared
        omitted = run["excluded"] and run["state"] == "finished"
        state = run["state"] + (", not compared" if omitted else "")
        names = [run["suite"]] if several else []
        names += [short_name(run["task"]), label_of(run["algo"]), state]
        counts = [_number(run["seed"], 0), _number(run["timesteps"] or np.nan, 0)]
        measures = [_number(run[measure]) for measure in _RUN]
        rows.append([*names, *counts, *measures, _number(run["seconds"] / 60, 1)])
    columns = [*(["suite"] if several else []), "task", "algorithm", "state", "seed", "steps"]
    return HtmlTable([*columns, *_RUN.values(), "minutes"], rows, "", 4 if several else 3)


def _excluded(results: Results) -> HtmlTable | None:
    """The runs that are not compared, with the reason."""
    runs = results.excluded().to_dict("records")
    rows = [
        [run["suite"], run["task"], label_of(run["algo"]), str(run["seed"]), run["excluded"]]
        for run in runs
    ]
    return (
        HtmlTable(["suite", "task", "algorithm", "seed", "reason"], rows, "", 5) if rows else None
    )


def _origins(results: Results) -> dict[str, Any]:
    """Commands, commits, versions, machines and settings of the runs, each once."""
    provenances = [entry.get("provenance") or {} for entry in results.configs]
    missing = "not recorded"
    settings = []
    for entry in results.configs:
        seeds = ", ".join(str(seed) for seed in entry["seeds"])
        name = f"{entry['suite']}: {entry['algo']} on {entry['task']}, seeds {seeds}"
        record = {"config": entry["config"], "class_defaults": entry.get("class_defaults") or {}}
        settings.append((name, yaml.safe_dump(record, sort_keys=False, width=100)))
    return {
        "commands": _distinct(p.get("command", missing) for p in provenances),
        "commits": _distinct(str(p.get("commit", missing)) for p in provenances),
        "versions": _distinct(p.get("versions") or {missing: ""} for p in provenances),
        "machines": _distinct(p.get("machine") or {missing: ""} for p in provenances),
        "settings": settings,
    }


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _distinct(values: Iterable[Any]) -> list[Any]:
    """In the order of first appearance; also for mappings, which cannot be hashed."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _name(algo: str) -> str:
    """The label, and the name on the command line if it differs."""
    label = label_of(algo)
    return label if label.lower().replace("-", "") == algo or label == algo else f"{label} ({algo})"


def _estimate(row: Mapping[Hashable, Any], name: str = "iqm", decimals: int | None = None) -> Cell:
    middle = row[name]
    low, high = (
        (row["low"], row["high"]) if name == "iqm" else (row[f"{name}_low"], row[f"{name}_high"])
    )
    if np.isnan(middle):
        return EMPTY
    places = decimals if decimals is not None else decimals_for(middle, low, high)
    interval = "" if np.isnan(low) else f"[{low + 0.0:,.{places}f}, {high + 0.0:,.{places}f}]"
    return Cell(f"{middle + 0.0:,.{places}f}", float(middle), interval)


def _number(value: float, decimals: int | None = None) -> Cell:
    if pd.isna(value):
        return EMPTY
    places = decimals if decimals is not None else decimals_for(value)
    return Cell(f"{value + 0.0:,.{places}f}", float(value))


def _p_value(p: float) -> Cell:
    if np.isnan(p):
        return EMPTY
    stars = significance_stars(p)
    return Cell(f"{p:.3f}" if p >= 0.001 else "< 0.001", p, "" if stars == "n.s." else stars)
