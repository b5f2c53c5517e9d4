"""The scripts as a person runs them: results, and one line for a mistake."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., object]
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a script in this process, without importing everything again; returns its exit code."""

    def run_script(script: str, *arguments: str) -> object:
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(SCRIPTS / script), run_name="__main__")
        return end.value.code

    return run_script


def test_gridworld_ends_with_its_folder_and_repeats_it(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, arguments = tmp_path / "g", ["--trials", "3", "--seed", "3", "--iterations", "4"]
    assert run("gridworld.py", *arguments, "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "danger visits: CPP < CVI" in printed
    assert printed.splitlines()[-1] == f"written: {out}"
    summary = (out / "summary.csv").read_bytes()
    assert run("gridworld.py", *arguments, "--out", str(out)) == 0
    assert (out / "summary.csv").read_bytes() == summary
    assert run("gridworld.py", "--trials", "6", "--out", str(out)) == 2
    assert (out / "summary.csv").read_bytes() == summary


def test_flags_override_the_file(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "mine.yml"
    config.write_text("trials: 2\niterations: 3\ngamma: 0.7\n", encoding="utf-8")
    assert (
        run("gridworld.py", "--config", str(config), "--gamma", "0.6", "--out", str(tmp_path / "g"))
        == 0
    )
    record = (tmp_path / "g" / "config.yml").read_text(encoding="utf-8")
    assert "gamma: 0.6" in record
    assert "iterations: 3" in record


def test_theory_ends_with_its_folder(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("theory.py", "--updates", "500", "--iterations", "5", "--out", str(tmp_path / "t")) == 0
    )
    assert "certificate holds" in capsys.readouterr().out
    assert (tmp_path / "t" / "certificate.png").exists()


@pytest.mark.parametrize(
    ("script", "arguments", "names"),
    [
        ("gridworld.py", ["--trials", "0"], ("trials", "0", "at least 2")),
        ("gridworld.py", ["--trials", "many"], ("--trials", "many")),
        ("gridworld.py", ["--trial", "5"], ("--trial",)),
        ("gridworld.py", ["--gamma", "nan"], ("gamma", "nan", "(0, 1)")),
        ("gridworld.py", ["--seed", "-1"], ("seed", "-1", "at least 0")),
        ("gridworld.py", ["--scheme", "3"], ("scheme", "3", "'1b'")),
        ("gridworld.py", ["--config", "nowhere.yml"], ("config", "nowhere.yml")),
        ("theory.py", ["--updates", "-5"], ("updates", "-5", "at least 1")),
        ("theory.py", ["--colour", "red"], ("--colour",)),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Run,
    script: str,
    arguments: list[str],
    names: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(script, *arguments, "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert all(name in said for name in names)
    assert not (tmp_path / "out").exists()
