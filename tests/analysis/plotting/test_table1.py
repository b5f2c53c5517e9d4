"""The paper's Table 1."""

from pathlib import Path

import pytest

from sb3_cpp.analysis.plotting.table1 import latex, markdown, table1
from sb3_cpp.analysis.results import Results, load_results
from tests.analysis.synthetic_runs import write_run


@pytest.fixture
def results(tmp_path: Path) -> Results:
    write_run(
        tmp_path, "cpp", "MinAtar/Breakout-v1", 0, suite="m", evaluations=[0, 4, 1, 5, 1]
    )  # falls 3, 4: l2 5, inf 4
    write_run(
        tmp_path, "cpp", "MinAtar/Breakout-v1", 1, suite="m", evaluations=[0, 1, 2, 3, 4]
    )  # none
    write_run(
        tmp_path, "cpi_0.5", "MinAtar/Breakout-v1", 0, suite="m", evaluations=[0, 200, 0, 0, 0]
    )
    write_run(tmp_path, "cpp", "MinAtar/Asterix-v1", 0, suite="m", evaluations=[0, 1, 0, 1, 1])
    return load_results(tmp_path)


def test_values_are_means_over_seeds(results: Results) -> None:
    table = table1(results).set_index(["Criterion", "Algorithm"])
    assert list(table.columns) == ["MinAtar/Asterix-v1", "MinAtar/Breakout-v1"]
    assert table.loc[("||OJ||_2", "CPP"), "MinAtar/Breakout-v1"] == pytest.approx(2.5)
    assert table.loc[("||OJ||_inf", "CPP"), "MinAtar/Breakout-v1"] == pytest.approx(2.0)


def test_markdown_has_a_row_per_criterion_and_algorithm(results: Results) -> None:
    lines = markdown(table1(results)).splitlines()
    assert lines[0] == "| Criterion | Algorithm | MinAtar Asterix | MinAtar Breakout |"
    assert lines[2] == r"| \|\|OJ\|\|_2 | CPP | 1.00 | 2 |"
    assert lines[3].endswith("|  | 200 |")  # no run of it on Asterix
    assert len(lines) == 2 + 4


def test_latex_has_the_layout_of_the_paper(results: Results) -> None:
    text = latex(table1(results))
    assert text.startswith(
        "\\begin{tabular}{|c|c|c|c|}\n\\hline\nCriterion & Algorithm & \\texttt{MinAtar Asterix}"
    )
    assert r"\multirow{2}{*}{$\|\mathcal{O}J\|_2$} & CPP & 1.00 & 2 \\" in text
    assert r"DCPI, $\zeta$ = 0.5" in text
    assert text.count(r"\hline") == 4
