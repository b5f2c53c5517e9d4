"""Scripts as a user runs them: real processes, or the script's own main in this one where only its words count."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["-params", "learning_starts:50", "train_freq:8", "gradient_steps:1", "batch_size:16", "buffer_size:1000"]


class Script:
    """Starts a script in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}

    def command(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *arguments]

    def start(self, name: str, *arguments: str, **kwargs: object) -> "subprocess.Popen[str]":
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            self.command(name, *arguments),
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **kwargs,
        )

    def run(self, name: str, *arguments: str, **kwargs: object) -> "subprocess.CompletedProcess[str]":
        process = self.start(name, *arguments, **kwargs)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run a script's main here, without starting Python anew; gives exit code, output and errors."""
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
