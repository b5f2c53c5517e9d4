"""The command behind scripts/plot.py: figures and the paper's Table 1 as files."""

import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_cpp.analysis.comparison import check_reference, choose_reference, tasks_of
from sb3_cpp.analysis.plotting.canvas import FORMATS, save_figure
from sb3_cpp.analysis.plotting.pictures import NAMES, pictures
from sb3_cpp.analysis.plotting.table1 import table1_files
from sb3_cpp.analysis.result_display import report_gaps
from sb3_cpp.analysis.results import Choice, Results, load_results
from sb3_cpp.checks import InvalidArgument, check_choice

TABLE1 = "table1"


def plot(
    paths: Sequence[str | Path],
    out: str | Path,
    formats: Sequence[str] = ("png", "pdf"),
    figures: Sequence[str] = (),
    reference: str | None = None,
    force: bool = False,
    choice: Choice | None = None,
) -> int:
    """Draw the chosen figures (all of them without a choice) of every suite; returns the exit code of the script."""
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
        report_gaps(results)
        raise InvalidArgument("no run can be compared, so there is nothing to draw")
    folders = {name: out / name if len(parts) > 1 else out for name in parts}
    if not force:
        for name, part in parts.items():
            _refuse_overwriting(folders[name], part, chosen, formats)
    references = {name: choose_reference(part, reference) for name, part in parts.items()}
    for name, part in parts.items():
        draw_suite(part, folders[name], chosen, formats, references[name])
    report_gaps(results)
    return 0


def draw_suite(
    results: Results, folder: Path, chosen: Sequence[str], formats: Sequence[str], reference: str
) -> None:
    """Write the files of one suite and say which."""
    folder.mkdir(parents=True, exist_ok=True)
    for picture in pictures(results, reference, tuple(name for name in chosen if name in NAMES)):
        if picture.figure is None:
            print(f"not drawn: {picture.name}: {picture.caption}", file=sys.stderr)
            continue
        for kind in formats:
            print(f"written: {save_figure(picture.figure, folder / f'{picture.name}.{kind}')}")
    if TABLE1 in chosen:
        for name, text in table1_files(results).items():
            (folder / name).write_text(text, encoding="utf-8")
            print(f"written: {folder / name}")


def _refuse_overwriting(
    folder: Path, results: Results, chosen: Sequence[str], formats: Sequence[str]
) -> None:
    stems = [name for name in chosen if name in NAMES and name != "curves"]
    if "curves" in chosen:
        stems += [f"curve_{task.replace('/', '-')}" for task in tasks_of(results)]
    files = [f"{stem}.{kind}" for stem in stems for kind in formats]
    files += list(table1_files(results)) if TABLE1 in chosen else []
    there = [name for name in files if (folder / name).exists()]
    if there:
        more = f" and {len(there) - 1} more" if len(there) > 1 else ""
        raise InvalidArgument(
            f"{folder} already holds {there[0]}{more}; choose another folder, or use --force"
        )
