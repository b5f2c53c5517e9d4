"""Pages under results/ come from the CSV files there, tables of the documentation from them."""

import html
from pathlib import Path

import pytest

from sb3_cpp.analysis.comparison import choose_reference, positions
from sb3_cpp.analysis.results import load_results
from sb3_cpp.analysis.tables import tables_as_markdown

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
WITH_PAGES = ("ablation", "acrobot", "cartpole", "minatar", "study", "study_long")
WITHOUT = ("minatar_earlier", "study_cartpole")


def test_nothing_is_published_that_is_not_checked_here() -> None:
    assert sorted(path.name for path in RESULTS.iterdir()) == sorted(WITH_PAGES + WITHOUT)


@pytest.mark.parametrize("name", WITH_PAGES + WITHOUT)
def test_published_tables_are_those_of_the_csv_files(name: str) -> None:
    assert (RESULTS / name / "tables.md").read_text(encoding="utf-8") == tables_as_markdown(
        load_results(RESULTS / name)
    )


@pytest.mark.parametrize("name", WITH_PAGES + WITHOUT)
def test_algorithms_of_an_earlier_version_are_explained(name: str) -> None:
    note = (RESULTS / name / "README.md").read_text(encoding="utf-8")
    algos = {algo for algo in load_results(RESULTS / name).runs.algo if "cpp" in algo}
    algos |= {"cmdqn", "dqn_average"} & set(load_results(RESULTS / name).runs.algo)
    assert algos
    assert all(f"`{algo}`" in note for algo in algos)
    assert "version 0.1.0" in note


@pytest.mark.parametrize("name", ["acrobot", "cartpole", "minatar"])
def test_cmdqn_has_the_recorded_defaults_of_the_former_class(name: str) -> None:
    entries = [entry for entry in load_results(RESULTS / name).configs if entry["algo"] == "cmdqn"]
    assert entries
    for entry in entries:
        defaults = entry["class_defaults"]
        assert not defaults.keys() & entry["config"]["hyperparameters"].keys()
        assert (defaults["form"], defaults["zeta"]) == ("munchausen", "typical")
        assert (defaults["averaging"], defaults["projection_coef"]) == (2000, 10.0)


@pytest.mark.parametrize("name", WITH_PAGES)
def test_published_pages_and_figures_are_of_the_same_results(name: str) -> None:
    results = load_results(RESULTS / name)
    page = html.unescape((RESULTS / name / "report.html").read_text(encoding="utf-8"))
    assert f"<li><b>{len(results.used())}</b> runs compared</li>" in page
    for line in positions(results, choose_reference(results)):
        assert line in page
    figures = {path.name for path in (RESULTS / name / "figures").iterdir()}
    assert {f"curve_{task.replace('/', '-')}.png" for task in results.used().task} <= figures
    assert {"fig4.png", "pareto.png", "table1.md"} <= figures


def test_tables_of_results_in_the_documentation_are_published_ones() -> None:
    published = {
        line
        for name in ("ablation", "acrobot", "cartpole", "minatar")
        for line in (RESULTS / name / "tables.md").read_text(encoding="utf-8").splitlines()
    }
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
    parts = [part for page in pages for part in page.read_text(encoding="utf-8").split("\n\n")]
    quoted = [part for part in parts if part.startswith(("| algo |", "- cmdqn against"))]
    assert len(quoted) >= 5
    for table in quoted:
        for line in table.splitlines():
            assert line in published
