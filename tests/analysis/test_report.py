"""The report: what is on the page."""

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from sb3_cpp.analysis.comparison import task_table
from sb3_cpp.analysis.figures import pictures
from sb3_cpp.analysis.report import report, report_page
from sb3_cpp.analysis.results import load_results, save_results
from tests.analysis.synthetic_runs import PROVENANCE, write_grid, write_run

EVIL = "<script>alert(\"1\")</script> & 'more'"


class Tags(HTMLParser):
    """Fails on tags that are not closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_grid(tmp_path_factory.mktemp("runs"), algos=("cpp", "dqn"))
    write_run(folder, "mdqn", "CartPole-v1", 1, state="failed", error="loss is <not> finite")
    write_run(folder, "cpi_0.5", suite="ablation")
    return folder


@pytest.fixture(scope="module")
def page(runs: Path) -> str:
    return report_page(load_results(runs), "My <results>", command="python scripts/report.py runs")


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page: str) -> None:
    parser = Tags()
    parser.feed(page)
    assert parser.open == []
    assert re.findall(r'(?:src|href)="(?!data:|#)', page) == []
    assert "http://" not in re.sub(r'src="data:[^"]*"', "", page)
    assert "default-src 'none'" in page


def test_the_page_begins_with_the_verdict_and_says_what_oscillation_is(page: str) -> None:
    body = unescape(page[page.index("<body>") :])
    verdict = body.index("<b>classic:</b> DeepCPP returned most")
    explained = body.index("‖OJ‖₂, is the root of the sum of a run's squared falls")
    assert body.index("<h1>") < verdict < explained < body.index('<ul class="numbers">')
    assert body.index("‖OJ‖") == body.index("‖OJ‖₂, is the root")  # where it first stands


def test_every_figure_is_on_the_page(runs: Path, page: str) -> None:
    results = load_results(runs)
    for suite, reference in (("classic", "cpp"), ("ablation", "cpi_0.5")):
        for drawn in pictures(results.suite(suite), reference):
            if drawn.figure is not None:
                assert f'alt="{drawn.title}"' in unescape(page), drawn.name
            else:
                assert drawn.caption in unescape(page)


def test_commands_hardware_versions_and_settings_are_on_the_page(page: str) -> None:
    assert PROVENANCE["command"] in page
    for group in ("versions", "machine"):
        for name, value in PROVENANCE[group].items():  # type: ignore[attr-defined]
            assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "classic: cpp on CartPole-v1, seeds 0, 1, 2" in page
    assert "gamma: 0.99" in page
    assert "python scripts/report.py runs" in page


def test_failed_and_missing_cells_are_on_the_page(page: str) -> None:
    assert "failed at step 400: loss is &lt;not&gt; finite" in page
    assert page.count("<td>missing</td>") >= 5  # mdqn: two seeds on CartPole, three on Acrobot
    assert "Not averaged: MDQN has no run to compare on Acrobot-v1, CartPole-v1." in page


def test_every_run_has_its_row(runs: Path, page: str) -> None:
    section = page[page.index('<section id="runs">') : page.index('<section id="excluded">')]
    assert section.count("<tr>") == 1 + len(load_results(runs).runs)


@pytest.mark.slow
def test_folders_and_csv_files_give_the_same_page(runs: Path, page: str, tmp_path: Path) -> None:
    save_results(load_results(runs), tmp_path / "tidy")
    assert (
        report_page(
            load_results(tmp_path / "tidy"), "My <results>", command="python scripts/report.py runs"
        )
        == page
    )


def test_runs_without_record_of_their_machine_say_so(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "config.yml"
    record = yaml.safe_load(path.read_text())
    del record["provenance"]["machine"]
    path.write_text(yaml.safe_dump(record))
    page = report_page(load_results(tmp_path), "t")
    assert page[page.index("<h3>Hardware</h3>") :].startswith(
        "<h3>Hardware</h3>\n<dl><dt>not recorded</dt>"
    )


def test_runs_that_cannot_be_compared_still_have_a_page(tmp_path: Path) -> None:
    write_run(tmp_path, state="interrupted")
    page = report_page(load_results(tmp_path), "t")
    assert "No run of this suite can be compared" in page
    assert "unfinished: 400 of 400 steps" in page


def test_an_existing_page_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs")
    out = tmp_path / "new" / "report.html"
    assert report([tmp_path / "runs"], out) == 0
    assert f"written: {out}" in capsys.readouterr().out
    with pytest.raises(ValueError, match="already exists; choose another name, or use --force"):
        report([tmp_path / "runs"], out)
    assert report([tmp_path / "runs"], out, force=True) == 0


def test_the_page_must_be_html(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be a file ending in"):
        report([tmp_path], tmp_path / "report.pdf")


def test_every_text_is_escaped(tmp_path: Path) -> None:
    """Names, settings, provenance, problems, title and command come from elsewhere."""
    folder = write_run(tmp_path, EVIL.replace("/", ""), suite=EVIL.replace("/", ""))
    write_run(tmp_path, "dqn", suite=EVIL.replace("/", ""), state="failed", error=EVIL)
    record = yaml.safe_load((folder / "config.yml").read_text())
    record["config"]["hyperparameters"] = {EVIL: EVIL}
    record["provenance"] = {"command": EVIL, "commit": EVIL, "versions": {EVIL: EVIL}}
    (folder / "config.yml").write_text(yaml.safe_dump(record))
    page = report_page(load_results(tmp_path), EVIL, command=EVIL)
    assert page.count("<script") == 1  # the page's own
    assert 'alert("1")' not in page
    assert page.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; &#39;more&#39;") >= 9
    assert f"<title>{EVIL}</title>" in unescape(page)


def test_a_cell_is_sorted_by_its_value_and_shows_its_interval(runs: Path, page: str) -> None:
    table = task_table(load_results(runs).suite("classic"))
    row = table[(table.algo == "cpp") & (table.measure == "final_return")].iloc[-1]
    assert row.task == "CartPole-v1"
    text = f'{row.iqm:.2f} <span class="interval">[{row.low:.2f}, {row.high:.2f}]</span>'
    assert f'<td class="number" data-value="{row.iqm}">{text}</td>' in page
