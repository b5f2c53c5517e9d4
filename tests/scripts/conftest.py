"""Scripts as a user runs them: in their own process or, where only output counts, in this one."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scripts.processes import ROOT, Script


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a script in this process; returns exit code, output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        path = str(ROOT / "scripts" / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path, *arguments])
        with pytest.raises(SystemExit) as end:
            runpy.run_path(path, run_name="__main__")
        captured = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, captured.out, captured.err

    return run
