"""From a checkpoint back to a model that goes on as if nothing had happened."""

import io
import sys
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import gymnasium as gym
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv

from sb3_cpp.checkpointing import buffer_state, manifest, segments, store, training_state
from sb3_cpp.checkpointing.files import DamagedCheckpoint, read_checked
from sb3_cpp.checkpointing.store import SAVED
from sb3_cpp.checks import InvalidArgument

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

FOREIGN = "warning: {} comes from elsewhere, and the pickles in it can run any code (a file of weights only cannot)"


def resume(algorithm: type[Algorithm], path: str | Path, env: GymEnv | None = None) -> Algorithm:
    """The model of a checkpoint, its environment and all generators as they were.

    :param algorithm: the class that was saved
    :param path: a folder of checkpoints (its newest is taken) or one checkpoint
    :param env: an environment built as in the saved run; without it, one is made from the specification in the checkpoint
    """
    entry = store.locate(path)
    try:
        content = manifest.read(entry)
        if content["origin"] != manifest.origin():
            print(FOREIGN.format(entry), file=sys.stderr)
        return load(algorithm, entry, env)
    except DamagedCheckpoint as error:
        raise DamagedCheckpoint(f"{entry} is damaged ({error}){offer(entry)}") from None


def offer(entry: Path) -> str:
    """What to resume from instead of a damaged checkpoint."""
    other = previous_intact(entry)
    return (
        "; no earlier one is intact"
        if other is None
        else f"; the one before is intact: resume from {other}"
    )


def previous_intact(entry: Path) -> Path | None:
    """The newest intact checkpoint before this one."""
    for other in reversed(
        [other for other in store.entries(entry.parent) if other.name < entry.name]
    ):
        try:
            store.verify(other)
        except DamagedCheckpoint:
            continue
        return other
    return None


def load(algorithm: type[Algorithm], entry: Path, env: GymEnv | None = None) -> Algorithm:
    """The model of one checkpoint, every part of it checked before it is unpickled."""
    content = manifest.read(entry)
    if content["algorithm"] != algorithm.__name__:
        raise InvalidArgument(
            f"{entry} is a checkpoint of {content['algorithm']}, not of {algorithm.__name__}"
        )
    parts = {
        name: read_checked(entry / name, *described) for name, described in content["files"].items()
    }
    state: dict[str, Any] = cloudpickle.loads(parts[store.STATE])
    model = algorithm.load(
        io.BytesIO(parts[store.MODEL]), env=env if env is not None else _make_env(entry, state)
    )
    if isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None:
        live = segments.arrays_of(model.replay_buffer)
        arrays: dict[str, np.ndarray] = {
            name: segments.read_into(entry.parent, array, live.get(name))
            for name, array in content["arrays"].items()
        }
        buffer_state.restore(model.replay_buffer, state["buffer"], arrays)
        vars(model)[store.RESUMED] = (entry.parent.resolve(), content["arrays"])
    training_state.restore(model, state)
    if content["environment"] != SAVED:
        print(
            f"not exact: the environment starts a new episode, because {content['environment']}",
            file=sys.stderr,
        )
    return model


def _make_env(entry: Path, state: dict[str, Any]) -> gym.Env[Any, Any]:
    try:
        return gym.make(state["spec"])
    except Exception as error:  # no specification, one of a package that is not imported, a wrapper that cannot be rebuilt
        raise InvalidArgument(
            f"env must be given: that of {entry} cannot be made again ({error})"
        ) from None
