"""A run that is killed before any of its file operations ends as if it had not been."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th

from sb3_cpp import DeepCPP
from sb3_cpp.files import is_part
from sb3_cpp.training.run import train_run
from tests.training.small_runs import rows, small_config

CLOCK = {"t", "time/fps", "time/time_elapsed"}
EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir")


def train(root: str, crash_at: int, record: str | None = None) -> None:
    """Train in this process and die by SIGKILL before the given file operation (-1: never).

    :param record: where to write the events of all operations
    """
    seen: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or not str(arguments[0]).startswith(root):
            return
        if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR):
            return
        if len(seen) == crash_at:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(f"{event} {Path(arguments[1] if event == 'os.rename' else arguments[0]).name}")

    sys.addaudithook(watch)
    train_run(config(), root, show="nothing", n_threads=1)
    if record is not None:
        Path(record).write_text("\n".join(seen))


def config() -> Any:
    return small_config(n_timesteps=160, learning_starts=20, save_freq=60, eval_freq=60)


def differences(one: Path, two: Path) -> list[str]:
    """What two finished runs do not have in common, but for the time they took."""
    found = []
    for name in ("monitor.csv", "progress.csv", "iterations.csv"):
        tables = [
            [{k: v for k, v in row.items() if k not in CLOCK} for row in rows(run / name)]
            for run in (one, two)
        ]
        found += [name] if tables[0] != tables[1] else []
    with np.load(one / "evaluations.npz") as a, np.load(two / "evaluations.npz") as b:
        same = all(np.array_equal(a[key], b[key]) for key in ("timesteps", "results"))
        found += [] if same else ["evaluations.npz"]
    for name in ("model.zip", "best_model.zip"):
        a, b = (DeepCPP.load(run / name, device="cpu").policy.state_dict() for run in (one, two))
        found += [] if all(th.equal(a[key], b[key]) for key in a) else [name]
    parts = {path.name for path in two.rglob("*") if is_part(path)}
    # A run that dies in its very last write is finished, and is not touched again
    return found + sorted(parts - {"status.part.json"})


@pytest.mark.slow
def test_a_run_survives_a_kill_before_any_file_operation(tmp_path: Path) -> None:
    """Once for each name that a file is renamed to; with CRASH_POINTS=all before every one of the
    about 190 operations."""
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])

    def run(*arguments: Any) -> int | None:
        process = context.Process(target=train, args=arguments)
        process.start()
        process.join()
        return process.exitcode

    assert run(str(tmp_path / "whole"), -1, str(tmp_path / "events")) == 0
    events = (tmp_path / "events").read_text().splitlines()
    points = list(range(len(events)))
    if os.environ.get("CRASH_POINTS") != "all":
        last = {event: point for point, event in enumerate(events) if event.startswith("os.rename")}
        points = sorted(last.values())
    whole, wrong = config().folder(tmp_path / "whole"), {}
    for point in points:
        root = tmp_path / f"killed_{point}"
        assert run(str(root), point) == -signal.SIGKILL, point
        if run(str(root), -1) != 0:
            wrong[point] = ["did not finish"]
        elif found := differences(whole, config().folder(root)):
            wrong[point] = found
    assert not wrong, f"{len(wrong)} of {len(points)} points: {wrong}"
    assert len(events) > 100
