"""scripts/benchmark.py: each cell once, whatever dies on the way."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sb3_cpp.training.run import find_checkpoint
from tests.scripts.processes import SMALL, Script

GRID = ["classic", "--algos", "cpp", "dqn", "--envs", "CartPole-v1"]


def histories(folder: Path) -> dict[str, list[str]]:
    """What each cell's run.log says, without times: its events and the process of the last one."""
    return {
        str(path.parent.relative_to(folder)): path.read_text().splitlines()
        for path in folder.rglob("run.log")
    }


def wait_for_training(folder: Path, seconds: float = 90.0) -> tuple[Path, int]:
    """A cell that has a checkpoint and is not finished, and the process that trains it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for cell in folder.glob("*/*/*/*"):
            if find_checkpoint(cell) is not None and not (cell / "model.zip").exists():
                return cell, int((cell / "run.log").read_text().split(" process ")[1].split()[0])
        time.sleep(0.05)
    raise AssertionError("no cell was saved in time")


def check_grid(folder: Path, killed: Path, cells: int) -> None:
    """Every cell finishes; only the killed one starts twice, the second time from a checkpoint."""
    logs = histories(folder)
    assert len(logs) == cells
    for name, lines in logs.items():
        assert len([line for line in lines if " finished at " in line]) == 1, name
        assert len([line for line in lines if " started at " in line]) == 1, name
        assert len([line for line in lines if " resumed at " in line]) == (
            folder / name == killed
        ), name


@pytest.mark.slow
def test_a_killed_process_costs_only_its_cell_and_nothing_is_done_twice(
    script: Script, call: Callable[..., tuple[int, str, str]]
) -> None:
    arguments = [
        *GRID,
        "--seeds",
        "2",
        "-n",
        "2000",
        "--jobs",
        "2",
        *SMALL,
        "save_freq:200",
        "eval_freq:1000",
    ]
    process = script.start("benchmark", *arguments)
    killed, worker = wait_for_training(script.folder / "runs")
    os.kill(worker, signal.SIGKILL)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "its process was killed (SIGKILL)" in out
    check_grid(script.folder / "runs", killed, cells=4)

    before = histories(script.folder)
    code, out, _ = call("benchmark", *arguments)
    assert code == 0
    assert "4 cells: 4 finished before, 0 to train" in out
    assert histories(script.folder) == before


@pytest.mark.slow
def test_a_stopped_worker_or_a_dead_grid_leaves_cells_to_go_on_with(
    script: Script, call: Callable[..., tuple[int, str, str]]
) -> None:
    arguments = [*GRID, "--seeds", "1", "-n", "1500", *SMALL, "save_freq:200", "eval_freq:-1"]
    stopped = script.start("benchmark", *arguments)
    cell, worker = wait_for_training(script.folder / "runs")
    os.kill(worker, signal.SIGTERM)
    _, err = stopped.communicate(timeout=240)
    assert stopped.returncode == 1
    assert "interrupted: cpp CartPole-v1 seed 0: stopped and saved at step" in err
    assert "run the same command again" in err

    dead = script.start("benchmark", *arguments)
    worker = wait_for_resume(cell, worker)
    os.kill(worker, signal.SIGSTOP)  # so that it is still training when the next grid starts
    try:
        dead.kill()
        dead.wait()
        code, _, err = call("benchmark", *arguments)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert code == 1
    assert "is being trained by another process" in err
    assert "--retry" not in err
    end = time.monotonic() + 60
    while not (cell / "model.zip").exists() or is_running(worker):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "Traceback" not in (cell / "output.log").read_text()
    assert "2 finished before" in call("benchmark", *arguments)[1]


def wait_for_resume(cell: Path, former: int) -> int:
    """The process that trains a cell after another one."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        process = int((cell / "run.log").read_text().split(" process ")[-1].split()[0])
        if process != former:
            return process
        time.sleep(0.01)
    raise AssertionError("no process resumed the cell in time")


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def cluster(script: Script) -> Iterator[str]:
    """A scheduler and two worker processes on this machine; gives the scheduler's address."""
    pytest.importorskip("distributed", reason="needs the extra cluster")
    address = "tcp://127.0.0.1:28786"
    quiet = {
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "env": script.environment,
        "cwd": script.folder,
    }
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen([*dask, "scheduler", "--port", "28786", "--no-dashboard"], **quiet)  # type: ignore[call-overload]
    worker = [*dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]  # type: ignore[call-overload]
    yield address
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_killed_dask_worker_costs_only_its_cell(script: Script, cluster: str) -> None:
    arguments = [
        *GRID,
        "--seeds",
        "2",
        "-n",
        "2000",
        "--dask",
        cluster,
        *SMALL,
        "save_freq:200",
        "eval_freq:1000",
    ]
    process = script.start("benchmark", *arguments)
    killed, worker = wait_for_training(script.folder / "runs")
    os.kill(worker, signal.SIGKILL)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    check_grid(script.folder / "runs", killed, cells=4)


@pytest.mark.slow
def test_failed_cells_are_reported_with_their_log_and_retried_on_request(
    tmp_path: Path, call: Callable[..., tuple[int, str, str]]
) -> None:
    arguments = [
        "classic",
        "--algos",
        "cpp",
        "--envs",
        "CartPole-v1",
        "--seeds",
        "1",
        "-n",
        "300",
        *SMALL,
    ]
    diverging = [*arguments, "learning_rate:1.0e+30"]
    code, _, err = call("benchmark", *diverging)
    assert code == 1
    log = "runs/classic/cpp/CartPole-v1/seed_0/failure.log"
    assert f"(log: {log})" in err
    assert "non-finite loss" in (tmp_path / log).read_text()
    code, out, _ = call("benchmark", *diverging)
    assert code == 1
    assert "0 to train" in out
    assert "1 to train" in call("benchmark", *diverging, "--retry")[1]
    code, _, err = call("benchmark", *arguments)
    assert code == 2
    assert "another config" in err
