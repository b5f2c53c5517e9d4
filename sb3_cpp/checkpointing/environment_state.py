"""The state of a vector of environments, layer by layer: the episode in progress, generators, wrappers' buffers.

A layer (a wrapper or an environment) is what its attributes are. References between layers stay references, so the state is
put into environments built in the same way; nothing is rebuilt from the file. Three kinds of attributes are not data: files a
Monitor writes, the emulator of ALE, which gives and takes its state itself, and clocks, which go on from now.
"""

import io
import pickle
import time
from typing import Any

import cloudpickle
import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper, VecMonitor

from sb3_cpp.checks import InvalidArgument

_EMULATOR = "ale"


class CannotBeSaved(Exception):
    """Why the state of an environment cannot be saved."""


def layers(env: VecEnv) -> list[Any]:
    """All layers, from the outermost to the environments themselves."""
    found: list[Any] = []
    while isinstance(env, VecEnvWrapper):
        found.append(env)
        env = env.venv
    found.append(env)
    if isinstance(env, DummyVecEnv):
        for single in env.envs:
            inner: Any = single
            while isinstance(inner, gym.Wrapper):
                found.append(inner)
                inner = inner.env
            found.append(inner)
    return found


def specification(env: VecEnv) -> EnvSpec | None:
    """How gymnasium makes the environment to which SB3 adds its own layers; None if there are several, or it does not know."""
    base = env.unwrapped
    if not isinstance(base, DummyVecEnv) or len(base.envs) > 1:
        return None
    single = base.envs[0]
    return (single.env if isinstance(single, Monitor) else single).spec


def _names(parts: list[Any]) -> list[list[str]]:
    """Of each layer, its class and the classes that is derived from."""
    return [[cls.__qualname__ for cls in type(part).__mro__] for part in parts]


def _fit(saved: list[list[str]], here: list[list[str]]) -> bool:
    """Whether layer by layer one class is the other or derived from it: packages that replace a wrapper of gymnasium by
    their own (rl_zoo3 does so with TimeLimit) are imported here and not there."""
    return len(saved) == len(here) and all(
        one[0] in two or two[0] in one for one, two in zip(saved, here)
    )


def _has_emulator(layer: Any) -> bool:
    return hasattr(getattr(layer, _EMULATOR, None), "cloneSystemState") and isinstance(
        layer, gym.Env
    )


class _Pickler(cloudpickle.Pickler):
    """Writes layers as their numbers."""

    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file)
        self._numbers = {id(part): number for number, part in enumerate(parts)}

    def persistent_id(self, value: Any) -> int | None:
        return self._numbers.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: list[Any]) -> None:
        super().__init__(file)
        self._parts = parts

    def persistent_load(self, number: int) -> Any:
        return self._parts[number]


def capture(env: VecEnv) -> bytes:
    """The state of an environment between two steps, or :class:`CannotBeSaved`."""
    parts = layers(env)
    if not isinstance(env.unwrapped, DummyVecEnv):
        raise CannotBeSaved(
            f"{type(env.unwrapped).__name__} keeps its games outside of Python's reach"
        )
    states = []
    for part in parts:
        state = {
            key: value for key, value in vars(part).items() if not isinstance(value, ResultsWriter)
        }
        state.pop("class_attributes", None)  # a VecEnvWrapper's list of what its class has
        if _has_emulator(part):
            state[_EMULATOR] = getattr(part, _EMULATOR).cloneSystemState()
        states.append(state)
    file = io.BytesIO()
    try:
        _Pickler(file, parts).dump({"names": _names(parts), "time": time.time(), "states": states})
    except Exception as error:  # whatever an environment's own objects raise
        reason = " ".join(str(error).split())
        raise CannotBeSaved(f"{type(parts[-1]).__name__} cannot be pickled ({reason})") from None
    return file.getvalue()


def restore(env: VecEnv, saved: bytes) -> None:
    """Put a state into an environment that is built as the one it was taken from."""
    parts = layers(env)
    try:
        content = _Unpickler(io.BytesIO(saved), parts).load()
    except IndexError:
        raise InvalidArgument(
            "env must be built as in the run that was saved; it has fewer layers"
        ) from None
    if not _fit(content["names"], _names(parts)):
        saved_as, given = (
            " > ".join(names[0] for names in layer) for layer in (content["names"], _names(parts))
        )
        raise InvalidArgument(
            f"env must be built as in the run that was saved, {saved_as}, got {given}"
        )
    for part, state in zip(parts, content["states"]):
        if _has_emulator(part):
            getattr(part, _EMULATOR).restoreSystemState(state.pop(_EMULATOR))
        if isinstance(part, (Monitor, VecMonitor)):  # the time between is no time of the run
            state["t_start"] += time.time() - content["time"]
        vars(part).update(state)
