"""scripts/train.py in real processes: interrupted, out of room, and to its end."""

import os
import resource
import signal
import time
from pathlib import Path

import pytest
from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp.training.logs import MonitorCallback
from sb3_cpp.training.run import find_checkpoint
from sb3_cpp.training.train import train
from tests.scripts.processes import SMALL, Script

RUN = ["--algo", "cpp", "--env", "CartPole-v1", "--seed", "1"]


def wait_for_checkpoint(run: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while find_checkpoint(run) is None:
        assert time.monotonic() < end, f"{run} has no checkpoint"
        time.sleep(0.1)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_ctrl_c_saves_and_the_command_it_prints_goes_on(script: Script) -> None:
    arguments = [*RUN, "-n", "4000", "--save-freq", "500", "--eval-freq", "-1", *SMALL]
    process = script.start("train", *arguments)
    folder = script.folder / "runs/classic/cpp/CartPole-v1/seed_1"
    wait_for_checkpoint(folder)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "to resume, run the same command again" in out
    assert not (folder / "model.zip").exists()

    again = script.run("train", *arguments, "--tensorboard", "tb")
    assert again.returncode == 0, again.stderr
    assert "finished: runs/classic/cpp/CartPole-v1/seed_1" in again.stdout
    assert "steps/s" in again.stdout
    assert (folder / "model.zip").is_file()
    assert list((script.folder / "tb").rglob("events.out.tfevents.*"))
    assert not err.strip()


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_leaves_the_checkpoint(script: Script) -> None:
    """Files may not grow beyond 10 kB: a checkpoint does not fit, and the last one is kept."""
    arguments = [
        *RUN,
        "-n",
        "3000",
        "--save-freq",
        "300",
        "--eval-freq",
        "-1",
        *SMALL,
        "policy_kwargs.net_arch:[8]",
    ]
    process = script.start("train", *arguments)
    folder = script.folder / "runs/classic/cpp/CartPole-v1/seed_1"
    wait_for_checkpoint(folder)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 143
    before = contents(folder / "checkpoint")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    full = script.run("train", *arguments, preexec_fn=small_files)
    assert full.returncode == 2, full.stderr
    assert len(full.stderr.strip().splitlines()) == 1
    assert "too large" in full.stderr
    assert contents(folder / "checkpoint") == before


def test_a_tracked_run_resumes_under_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline: W&B writes a folder per process, named after the run's id."""
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setattr("sys.argv", ["train"])
    settings = {"n_timesteps": 600, "params": SMALL[1:], "root": str(tmp_path), "track": True}

    def interrupt(self: BaseCallback) -> bool:
        if self.num_timesteps == 300:
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    with monkeypatch.context() as patch:
        patch.setattr(MonitorCallback, "_on_step", interrupt)
        assert train("cpp", "CartPole-v1", **settings) == 143
    time.sleep(1.1)  # W&B names its folders by the second
    assert train("cpp", "CartPole-v1", **settings) == 0
    folder = tmp_path / "classic/cpp/CartPole-v1/seed_0"
    name = (folder / "wandb_id").read_text()
    runs = [path.name for path in (folder / "wandb").glob("offline-run-*")]
    assert len(runs) == 2
    assert all(run.endswith(f"-{name}") for run in runs)
    before = sorted(folder.rglob("*"))
    assert train("cpp", "CartPole-v1", **settings) == 0  # finished: nothing is logged
    assert sorted(folder.rglob("*")) == before
