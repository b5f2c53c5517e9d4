"""Checkpoints of a run: the model, its replay buffer and how far the logs had come, written whole or not at all."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import yaml
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from sb3_cpp.checks import InvalidArgument

FOLDER, MODEL, BUFFER, COUNTERS = "checkpoint", "model.zip", "replay_buffer.pkl", "counters.yml"


def save_model(model: BaseAlgorithm, path: Path) -> None:
    """Write a model beside its place and move it there, so that a half-written file never carries the name."""
    part = path.with_suffix(".part.zip")
    try:
        model.save(part)
        os.replace(part, path)
    except RuntimeError as error:  # torch reports a write that failed in its own way
        raise OSError(errno.ENOSPC, f"could not write {path}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def save_checkpoint(run: Path, model: BaseAlgorithm, counters: dict[str, Any]) -> Path:
    """Replace the checkpoint of a run; the previous one stays until the new one is complete.

    :param run: the run's folder
    :param counters: what else a continued run must know, plain values
    """
    folder, part, old = run / FOLDER, run / f"{FOLDER}.part", run / f"{FOLDER}.old"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_model(model, part / MODEL)
        if isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None:
            model.save_replay_buffer(part / BUFFER)
        (part / COUNTERS).write_text(yaml.safe_dump({"timesteps": model.num_timesteps, **counters}), encoding="utf-8")
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        os.replace(folder, old)
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)
    return folder


def find_checkpoint(run: Path) -> Path | None:
    """The newest complete checkpoint of a run (the previous one, if a process died between two renames)."""
    return next((run / name for name in (FOLDER, f"{FOLDER}.old") if (run / name / COUNTERS).is_file()), None)


def locate_checkpoint(path: str | Path) -> Path:
    """What a user may point at: a run's folder, its checkpoint, or a saved model."""
    path = Path(path)
    if path.is_file() and path.suffix == ".zip":
        return path
    if (path / COUNTERS).is_file():
        return path
    found = find_checkpoint(path)
    if found is None:
        raise InvalidArgument(f"no checkpoint at {path} (a run's folder, its {FOLDER}/ or a model.zip)")
    return found


def read_counters(checkpoint: Path) -> dict[str, Any]:
    return yaml.safe_load((checkpoint / COUNTERS).read_text(encoding="utf-8"))


def load_checkpoint(algorithm: type[BaseAlgorithm], checkpoint: Path, env: VecEnv) -> BaseAlgorithm:
    """The model with its replay buffer, ready to go on learning."""
    model = algorithm.load(checkpoint if checkpoint.is_file() else checkpoint / MODEL, env=env)
    if isinstance(model, OffPolicyAlgorithm) and (checkpoint / BUFFER).is_file():
        model.load_replay_buffer(checkpoint / BUFFER)
    return model
