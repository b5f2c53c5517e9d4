"""From a checkpoint back to a model that continues as if nothing had happened."""

import io
import sys
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import gymnasium as gym
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv

from sb3_cpp.checkpointing import buffer as buffers
from sb3_cpp.checkpointing import state as states
from sb3_cpp.checkpointing import store
from sb3_cpp.checkpointing.buffer import DamagedCheckpoint, SavedBuffer
from sb3_cpp.checks import InvalidArgument

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

FOREIGN = (
    "warning: {} comes from elsewhere, and the pickles in it can run any code "
    "(a file of weights only cannot)"
)


def resume(algorithm: type[Algorithm], path: str | Path, env: GymEnv | None = None) -> Algorithm:
    """The model of a checkpoint, its environment and all random generators as they were.

    :param algorithm: the class that was saved
    :param path: a folder of checkpoints (the newest is used) or one checkpoint
    :param env: an environment built as in the saved run; without it, one is made from the
        specification in the checkpoint
    """
    entry = store.locate(path)
    try:
        if store.read_manifest(entry)["origin"] != store.origin():
            print(FOREIGN.format(entry), file=sys.stderr)
        return load(algorithm, entry, env)
    except DamagedCheckpoint as error:
        # not resumed from by itself: the user decides whether to lose those steps
        other = previous_intact(entry)
        hint = "no earlier one is intact"
        if other is not None:
            hint = f"the one before is intact: resume from {other}"
        raise DamagedCheckpoint(f"{entry} is damaged ({error}); {hint}") from None


def remaining_timesteps(model: BaseAlgorithm) -> int:
    """Steps until the end of the ``learn()`` that was interrupted."""
    return max(model._total_timesteps - model.num_timesteps, 0)


def previous_intact(entry: Path) -> Path | None:
    """The newest intact checkpoint before this one; nothing is changed."""
    earlier = [other for other in store.entries(entry.parent) if other.name < entry.name]
    for other in reversed(earlier):
        try:
            store.verify(other)
        except DamagedCheckpoint:
            continue
        return other
    return None


def load(algorithm: type[Algorithm], entry: Path, env: GymEnv | None = None) -> Algorithm:
    """The model of one checkpoint, every part of it checked before it is unpickled."""
    manifest = store.read_manifest(entry)
    if manifest["algorithm"] != algorithm.__name__:
        raise InvalidArgument(
            f"{entry} is a checkpoint of {manifest['algorithm']}, not of {algorithm.__name__}"
        )
    # Unpickling runs whatever the file says, so it comes after the checksums.
    files = store.read_files(entry, manifest)
    state: dict[str, Any] = cloudpickle.loads(files[store.STATE])
    env = _make_env(entry, state) if env is None else env
    model = algorithm.load(io.BytesIO(files[store.MODEL]), env=env)
    saved = None
    if isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None:
        buffer, steps = model.replay_buffer, model.num_timesteps // model.n_envs
        arrays = buffers.read(entry.parent, manifest["arrays"], buffers.arrays_of(buffer))
        buffers.restore(buffer, state["buffer"], arrays)
        saved = SavedBuffer(manifest["arrays"], id(buffer), buffer.pos, steps)
    store.remember_source(model, entry, saved)
    if manifest["environment"] != store.SAVED:
        reason = manifest["environment"]
        print(f"not exact: the environment starts a new episode, because {reason}", file=sys.stderr)
    # last, because building the model and its environment drew random numbers
    states.restore(model, state)
    return model


def read_normalization(entry: Path) -> list[tuple[Any, Any]]:
    """The statistics ``(obs_rms, ret_rms)`` of each VecNormalize around a checkpoint's env."""
    state = cloudpickle.loads(store.read_files(entry, store.read_manifest(entry))[store.STATE])
    return state.get("normalization", [])


def _make_env(entry: Path, state: dict[str, Any]) -> gym.Env[Any, Any]:
    try:
        return gym.make(state["spec"])
    except Exception as error:  # no specification, or a package that is not imported
        raise InvalidArgument(
            f"env must be given: that of {entry} cannot be made again ({error})"
        ) from None
