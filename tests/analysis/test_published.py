"""Tables of results/ come from the CSV files there, tables of the documentation from them."""

import re
from pathlib import Path

import pandas as pd
import pytest
import yaml

from benchmarks import first_comparison
from benchmarks.speed import markdown_start, markdown_summary
from sb3_cpp.analysis.figures import table1, table1_files
from sb3_cpp.analysis.results import load_results
from sb3_cpp.analysis.tables import Table, as_markdown, tables_as_markdown
from sb3_cpp.studies import certificate, gridworld, pendulum_report
from sb3_cpp.studies.pendulum import PendulumSettings
from sb3_cpp.training import tuning_report

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
# With the algorithm that the others are compared with; None is the first one
REFERENCES = {
    "ablation": "cpp",
    "acrobot": "cmdqn",
    "bf16": None,
    "cartpole": "cmdqn",
    "caution_study": "cmdqn",
    "continuous": "csac",
    "minatar": "cmdqn",
}
OF_0_1 = ("ablation",)  # made by version 0.1.0
SPEED, FIRST = "speed", "first_comparison"  # of benchmarks/speed.py and first_comparison.py
TUNING = "tuning"  # of `sb3-cpp tune`
DIDACTIC = ("certificate", "gridworld", "pendulum")  # of the programs in sb3_cpp/studies
PENDULUMS = ("gamma_0.85", "gamma_0.9", "scheme_1b")


def test_nothing_is_published_that_is_not_checked_here() -> None:
    assert sorted(path.name for path in RESULTS.iterdir()) == sorted(
        (*REFERENCES, *DIDACTIC, SPEED, FIRST, TUNING)
    )
    assert sorted(path.name for path in (RESULTS / "pendulum").iterdir()) == sorted(PENDULUMS)


def didactic_tables(folder: Path) -> list[Table]:
    if folder.name == "certificate":
        return [certificate.table(pd.read_csv(folder / "certificate.csv"))]
    summary = pd.read_csv(folder / "summary.csv")
    if folder.name == "gridworld":
        return gridworld.tables(summary, pd.read_csv(folder / "claims.csv"))
    config = yaml.safe_load((folder / "config.yml").read_text(encoding="utf-8"))["config"]
    return pendulum_report.tables(summary, PendulumSettings(**config))


@pytest.mark.parametrize(
    "name", ["certificate", "gridworld", *(f"pendulum/{n}" for n in PENDULUMS)]
)
def test_published_tables_of_the_didactic_studies_are_those_of_the_csv_files(name: str) -> None:
    written = (RESULTS / name / "tables.md").read_text(encoding="utf-8")
    assert written == as_markdown(didactic_tables(RESULTS / name))


def test_the_published_certificate_holds() -> None:
    cases = pd.read_csv(RESULTS / "certificate" / "certificate.csv").set_index("rule")
    guaranteed = cases[cases.guaranteed > 0.8 * cases.updates]
    assert (cases.updates >= 1_000_000).all()
    assert (cases.violations == 0).all()
    assert len(guaranteed) == 11
    assert (guaranteed.falls == 0).all()
    assert cases.loc["state-wise", "J_reached"] >= cases.loc["CVI, zeta = 1", "J_reached"]


@pytest.mark.parametrize("name", ["mlp", "fp32", "bf16"])
@pytest.mark.parametrize("machine", ["zen4", "zen5"])
def test_published_speeds_are_those_of_the_csv_files(machine: str, name: str) -> None:
    folder = RESULTS / SPEED / machine / name
    table = markdown_summary(pd.read_csv(folder / "summary.csv"))
    assert (folder / "table.md").read_text(encoding="utf-8") == table + "\n"


def test_published_starts_are_those_of_the_csv_file() -> None:
    folder = RESULTS / SPEED / "zen5" / "start"
    table = markdown_start(pd.read_csv(folder / "start.csv"))
    assert (folder / "table.md").read_text(encoding="utf-8") == table + "\n"


def test_the_published_first_comparison_is_that_of_the_csv_file() -> None:
    folder = RESULTS / FIRST
    cells = first_comparison.cells(easy_seeds=10, scale_seeds=5)
    rows = first_comparison.in_order(pd.read_csv(folder / "cells.csv"), cells)
    table = first_comparison.table(rows)
    assert (folder / "table.md").read_text(encoding="utf-8") == table + "\n"


def test_published_tables_of_the_search_are_those_of_the_csv_files() -> None:
    folder = RESULTS / TUNING
    trials, fresh = (pd.read_csv(folder / name) for name in ("trials.csv", "fresh.csv"))
    written = (folder / "tables.md").read_text(encoding="utf-8")
    assert written == as_markdown(tuning_report.tables(trials, fresh))
    (algos,) = yaml.safe_load((folder / "best.yml").read_text("utf-8"))["envs"].values()
    best = fresh.groupby("trial")["return"].mean().idxmax()
    row = trials.set_index("number").loc[best]
    assert algos["algos"]["cpp"]["alpha"] == pytest.approx(row.alpha, rel=1e-5)


def test_the_search_chose_no_caution() -> None:
    trials = pd.read_csv(RESULTS / TUNING / "trials.csv")
    complete = trials[trials.state == "COMPLETE"]
    assert set(complete[complete["return"] > 20].zeta) == {"1.0"}
    cautious = complete[complete.zeta != "1.0"]
    assert (cautious["return"] > 10).sum() == 1


@pytest.mark.parametrize("name", REFERENCES)
def test_published_tables_are_those_of_the_csv_files(name: str) -> None:
    assert (RESULTS / name / "tables.md").read_text(encoding="utf-8") == tables_as_markdown(
        load_results(RESULTS / name), REFERENCES[name]
    )


@pytest.mark.parametrize("name", REFERENCES)
def test_the_version_that_made_the_results_is_the_recorded_one(name: str) -> None:
    note = (RESULTS / name / "README.md").read_text(encoding="utf-8")
    made = {
        entry["algo"]: entry["provenance"]["versions"]["sb3_cpp"]
        for entry in load_results(RESULTS / name).configs
    }
    old = {algo for algo, version in made.items() if version == "0.1.0"}
    assert ("0.1.0" in note) == bool(old)
    assert bool(old) == (name in (*OF_0_1, "caution_study"))
    if name == "caution_study":
        assert old == {"cpp_munchausen_typical"}


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "bf16"])
def test_the_published_table_1_is_that_of_the_csv_files(name: str) -> None:
    results, folder = load_results(RESULTS / name), RESULTS / name / "figures"
    files = table1_files(results)
    assert {path.name for path in folder.iterdir() if path.suffix != ".png"} == files.keys()
    pd.testing.assert_frame_equal(pd.read_csv(folder / "table1.csv"), table1(results))
    for file in ("table1.md", "table1.tex"):
        assert (folder / file).read_text(encoding="utf-8") == files[file]


def test_only_figures_that_a_page_shows_are_published() -> None:
    """The others, and the report page, are drawn from the CSV files by a command."""
    shown = {
        (page.parent / target).resolve()
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    published = {path for path in RESULTS.rglob("*") if path.suffix in (".png", ".pdf", ".svg")}
    assert published == {path for path in shown if path.is_relative_to(RESULTS)}
    assert len(published) >= 4
    assert not list(RESULTS.rglob("*.html"))


def test_make_benchmark_draws_the_published_figures() -> None:
    calls = re.findall(
        r"\$\(call publish,\w+,(\w+),(?:\$\(\w+\)|[^,]*),([^,)]*),(\w+)\)",
        (ROOT / "Makefile").read_text("utf-8"),
    )
    published = {name: reference for name, _, reference in calls if (RESULTS / name).exists()}
    drawn = {
        (name, figure)
        for name, figures, _ in calls
        for figure in figures.split()
        if name in published
    }
    assert published == {name: own for name, own in REFERENCES.items() if name != "bf16"}
    elsewhere = (*DIDACTIC, TUNING)
    pngs = {
        path
        for path in RESULTS.rglob("*.png")
        if path.relative_to(RESULTS).parts[0] not in elsewhere
    }
    assert drawn == {(path.parts[-3], path.stem) for path in pngs}


def test_tables_of_results_in_the_documentation_are_published_ones() -> None:
    published = {
        line
        for name in REFERENCES
        for line in (RESULTS / name / "tables.md").read_text(encoding="utf-8").splitlines()
    }
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
    parts = [part for page in pages for part in page.read_text(encoding="utf-8").split("\n\n")]
    quoted = [part for part in parts if part.startswith(("| algo |", "- cmdqn against"))]
    assert len(quoted) >= 2
    for table in quoted:
        for line in table.splitlines():
            assert line in published


NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.\d+(?![\w.]*\d)")
PARAMETERS = {"0.9254", "0.0134", "0.0746", "0.95", "0.01", "0.03", "0.9", "0.3", "0.5"}


def prose_of(page: Path) -> str:
    """The sentences of a page: without code, tables, targets of links and versions."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith("|"))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return re.sub(r"\b0\.[12]\.0\b", "", text)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "results").glob("*.md")), ids=lambda p: p.stem
)
def test_decimal_numbers_in_sentences_about_results_are_published_ones(page: Path) -> None:
    """Each is a number, rounded, of the published tables that the page names."""
    named = set(re.findall(r"results/([\w.]+)[/`]", page.read_text(encoding="utf-8")))
    folders = [RESULTS / name for name in {*named, page.stem} if (RESULTS / name).is_dir()]
    tables = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in folders or [RESULTS]
        for path in folder.rglob("*.md")
        if path.name != "README.md"
    )
    published = {abs(float(n.replace(",", ""))) for n in re.findall(r"\d[\d,]*\.?\d*", tables)}
    unknown = []
    for number in NUMBER.findall(prose_of(page)):
        digits = len(number.split(".")[1])
        value = abs(float(number.replace(",", "")))
        rounded = {round(other, digits) for other in published}
        if number.lstrip("+-") not in PARAMETERS and round(value, digits) not in rounded:
            unknown.append(number)
    assert unknown == []
