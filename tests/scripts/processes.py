"""Scripts in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = [
    "-params",
    "learning_starts:50",
    "train_freq:8",
    "gradient_steps:1",
    "batch_size:16",
    "buffer_size:1000",
]


class Script:
    """Starts a script in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }

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

    def run(
        self, name: str, *arguments: str, **kwargs: object
    ) -> "subprocess.CompletedProcess[str]":
        process = self.start(name, *arguments, **kwargs)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
