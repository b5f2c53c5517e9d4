"""All figures of a suite, and the ``plot`` command that writes them with the paper's Table 1."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from sb3_cpp.analysis.comparison import check_reference, choose_reference, ordered, tasks_of
from sb3_cpp.analysis.figures_comparison import (
    improvement,
    oscillation_bars,
    pareto_by_task,
    pareto_of_all_tasks,
    profiles,
)
from sb3_cpp.analysis.figures_falls import falls
from sb3_cpp.analysis.figures_learning import (
    ablation_curves,
    curves_of_all_tasks,
    curves_of_task,
    traces,
)
from sb3_cpp.analysis.results import Choice, Results, load_results
from sb3_cpp.analysis.style import (
    FORMATS,
    Picture,
    fixed_styles,
    label_of,
    save_figure,
    short_name,
)
from sb3_cpp.analysis.tables import markdown_table, print_excluded
from sb3_cpp.checks import InvalidArgument, check_choice
from sb3_cpp.files import write_text
from sb3_cpp.run_folder import folder_name

_FIGURES: dict[str, Callable[[Results, str], Picture]] = {  # of results and reference
    "fig4": lambda results, _: curves_of_all_tasks(results),
    "falls": lambda results, _: falls(results),
    "pareto": lambda results, _: pareto_of_all_tasks(results),
    "pareto_tasks": lambda results, _: pareto_by_task(results),
    "oscillation_l2": lambda results, reference: oscillation_bars(results, "l2", reference),
    "oscillation_inf": lambda results, reference: oscillation_bars(results, "inf", reference),
    "profiles": lambda results, _: profiles(results),
    "improvement": improvement,
    "training_curves": lambda results, _: curves_of_all_tasks(results, series="training"),
    "traces": lambda results, _: traces(results),
    "fig5": lambda results, _: ablation_curves(results),
}
CRITERIA = {"oscillation_l2": "||OJ||_2", "oscillation_inf": "||OJ||_inf"}
_LATEX = {"||OJ||_2": r"$\|\mathcal{O}J\|_2$", "||OJ||_inf": r"$\|\mathcal{O}J\|_\infty$"}
CURVES, TABLE1 = "curves", "table1"
NAMES = (*_FIGURES, CURVES)  # "curves" stands for one figure per task


def pictures(results: Results, reference: str, names: Sequence[str] = NAMES) -> Iterator[Picture]:
    """The chosen figures of one suite, drawn one at a time."""
    chosen = [partial(_FIGURES[name], results, reference) for name in names if name != CURVES]
    if CURVES in names:
        chosen += [partial(curves_of_task, results, task) for task in tasks_of(results)]
    for make in chosen:
        # Not around the yield: the caller's figures keep their own styles
        with fixed_styles(results.used().algo):
            picture = make()
        yield picture


def plot(
    paths: Sequence[str | Path],
    out: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    figures: Sequence[str] = (),
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Draw the chosen figures (by default all) of every suite; returns the exit code."""
    for kind in formats:
        check_choice("--formats", kind, FORMATS)
    for name in figures:
        check_choice("--figures", name, (*NAMES, TABLE1))
    chosen = tuple(figures) or (*NAMES, TABLE1)
    results, out = load_results(*paths, choice=choice), Path(out)
    check_reference(results, reference)
    parts = {name: results.suite(name) for name in results.suites()}
    parts = {name: part for name, part in parts.items() if len(part.used())}
    if not parts:
        print_excluded(results)
        raise InvalidArgument("no run can be compared, so there is nothing to draw")
    folders = {name: out / name if len(parts) > 1 else out for name in parts}
    # All suites are checked before the first file is written
    if not force:
        for name, part in parts.items():
            _refuse_overwriting(folders[name], part, chosen, formats)
    for name, part in parts.items():
        draw_suite(part, folders[name], chosen, formats, choose_reference(part, reference))
    print_excluded(results)
    return 0


def draw_suite(
    results: Results, folder: Path, chosen: Sequence[str], formats: Sequence[str], reference: str
) -> None:
    """Write the files of one suite and name them."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures(results, reference, [name for name in chosen if name != TABLE1]):
        if picture.figure is None:
            print(f"not drawn: {picture.name}: {picture.caption}", file=sys.stderr)
            continue
        for kind in formats:
            print(f"written: {save_figure(picture.figure, folder / f'{picture.name}.{kind}')}")
    if TABLE1 in chosen:
        for name, text in table1_files(results).items():
            write_text(folder / name, text)
            print(f"written: {folder / name}")


def _refuse_overwriting(
    folder: Path, results: Results, chosen: Sequence[str], formats: Sequence[str]
) -> None:
    stems = [name for name in chosen if name in _FIGURES]
    if CURVES in chosen:
        stems += [f"curve_{folder_name(task)}" for task in tasks_of(results)]
    files = [f"{stem}.{kind}" for stem in stems for kind in formats]
    files += list(table1_files(results)) if TABLE1 in chosen else []
    present = [name for name in files if (folder / name).exists()]
    if present:
        more = f" and {len(present) - 1} more" if len(present) > 1 else ""
        raise InvalidArgument(
            f"{folder} already holds {present[0]}{more}; choose another folder, or use --force"
        )


def table1(results: Results) -> pd.DataFrame:
    """The paper's Table 1: both norms of the oscillation, means over seeds, algorithms by tasks.

    In the units of the return, as in the paper; NaN where there is no run.
    """
    runs, rows = results.used(), []
    for measure, criterion in CRITERIA.items():
        for algo in ordered(list(runs.algo)):
            row: dict[str, object] = {"Criterion": criterion, "Algorithm": label_of(algo)}
            for task in tasks_of(results):
                row[task] = runs.loc[(runs.algo == algo) & (runs.task == task), measure].mean()
            rows.append(row)
    return pd.DataFrame(rows)


def table1_text(table: pd.DataFrame) -> pd.DataFrame:
    """Table 1 as text, the decimals of each task by its size."""
    text = table.astype(object).copy()
    for task in table.columns[2:]:
        steps = ((0, 100), (1, 10), (2, 1))
        decimals = next((n for n, least in steps if table[task].max() >= least), 3)
        text[task] = ["" if pd.isna(value) else f"{value:.{decimals}f}" for value in table[task]]
    return text.rename(columns={task: short_name(task) for task in table.columns[2:]})


def table1_markdown(table: pd.DataFrame) -> str:
    text = table1_text(table)
    return markdown_table(list(text.columns), text.to_numpy().tolist(), 2) + "\n"


def table1_latex(table: pd.DataFrame) -> str:
    """With the rules of the paper; needs the package multirow."""
    text = table1_text(table)
    escape = str.maketrans(
        {"_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "ζ": r"$\zeta$", "α": r"$\alpha$"}
    )
    lines = [r"\begin{tabular}{|c|c|" + "c|" * (len(text.columns) - 2) + "}", r"\hline"]
    heads = [rf"\texttt{{{name.translate(escape)}}}" for name in text.columns[2:]]
    lines += [" & ".join(["Criterion", "Algorithm", *heads]) + r" \\", r"\hline"]
    for criterion, block in text.groupby("Criterion", sort=False):
        for i, row in enumerate(block.to_numpy().tolist()):
            first = rf"\multirow{{{len(block)}}}{{*}}{{{_LATEX[str(criterion)]}}}" if i == 0 else ""
            lines.append(" & ".join([first, row[1].translate(escape), *row[2:]]) + r" \\")
        lines.append(r"\hline")
    return "\n".join([*lines, r"\end{tabular}"]) + "\n"


def table1_files(results: Results) -> dict[str, str]:
    """Table 1 as CSV, Markdown and LaTeX, by file name."""
    table = table1(results)
    return {
        "table1.csv": table.to_csv(index=False),
        "table1.md": table1_markdown(table),
        "table1.tex": table1_latex(table),
    }
