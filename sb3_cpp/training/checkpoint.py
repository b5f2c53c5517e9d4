"""Checkpoints in the folder of a run, and what a run may be started from."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from sb3_cpp.checkpointing import DamagedCheckpoint, manifest, resuming, store
from sb3_cpp.checkpointing.files import discard, write_durably
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import CHECKPOINT


def save_model(model: BaseAlgorithm, path: Path) -> None:
    """Write a model beside its place and move it there, so that a half-written file never carries the name."""
    part = path.with_suffix(".part.zip")
    zipped = io.BytesIO()
    model.save(zipped, exclude=store.TRANSIENT)
    try:
        write_durably(part, zipped.getvalue())
        os.replace(part, path)
    except OSError as error:
        raise OSError(
            error.errno or errno.EIO, f"could not write {path}: {error.strerror}"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def find_checkpoint(run: Path) -> Path | None:
    """The newest checkpoint of a run."""
    return store.newest(run / CHECKPOINT)


def locate_checkpoint(path: str | Path) -> Path:
    """What a user may point at: a run's folder, its checkpoint, or a saved model."""
    path = Path(path)
    if path.is_file() and path.suffix == ".zip":
        return path
    for folder in (path, path / CHECKPOINT):
        if (folder / manifest.NAME).is_file() or store.newest(folder) is not None:
            return store.locate(folder)
    raise InvalidArgument(
        f"no checkpoint at {path} (a run's folder, its {CHECKPOINT}/ or a model.zip)"
    )


def read_counters(checkpoint: Path) -> dict[str, Any]:
    """How far the run and its logs had come."""
    content = manifest.read(checkpoint)
    return {"timesteps": content["timesteps"], **content["counters"]}


def load_model(algorithm: type[BaseAlgorithm], path: Path, env: VecEnv) -> BaseAlgorithm:
    """A saved model, ready to go on learning with an empty replay buffer."""
    return algorithm.load(path, env=env)


def load_checkpoint(
    algorithm: type[BaseAlgorithm], checkpoint: Path, env: VecEnv
) -> tuple[BaseAlgorithm, Path]:
    """The model of a checkpoint, as it was; if that is damaged the one before, which leads to the same results, with a line
    that says so. Gives the checkpoint it came from, too."""
    try:
        return resuming.load(algorithm, checkpoint, env), checkpoint
    except DamagedCheckpoint as error:
        previous = resuming.previous_intact(checkpoint)
        if previous is None:
            raise DamagedCheckpoint(
                f"{checkpoint} is damaged ({error}); no earlier one is intact"
            ) from None
        step = manifest.read(previous)["timesteps"]
        print(
            f"{checkpoint} is damaged ({error}); going on from the one before, at step {step:,}",
            file=sys.stderr,
        )
        model = resuming.load(algorithm, previous, env)
        discard(checkpoint)
        return model, previous
