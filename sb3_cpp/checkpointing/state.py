"""What the future of a run depends on beside model.zip and the replay buffer.

These are the random generators, the environments (the episode in progress, wrappers' buffers),
exploration noise, the values waiting for the next row of the log, and the clock.
"""

import random
import time
from typing import Any
from weakref import WeakKeyDictionary

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecMonitor,
    VecNormalize,
)

from sb3_cpp.checkpointing.buffer import pickle_with_references, unpickle_with_references
from sb3_cpp.checks import InvalidArgument

# What a resumed model gets back when its learn() begins, not before: setting up learn() resets part
# of it, and other callbacks may draw random numbers first. Kept beside the model, so never saved.
_PENDING: WeakKeyDictionary[BaseAlgorithm, dict[str, Any]] = WeakKeyDictionary()

_LOG_VALUES = ("name_to_value", "name_to_count", "name_to_excluded")


class CannotBeSaved(Exception):
    """Why the state of an environment cannot be saved."""


# --- the whole state ------------------------------------------------------------------------------


def capture(model: BaseAlgorithm) -> tuple[dict[str, Any], str | None]:
    """State between two rollouts, and why the environment's is missing (None if it is not)."""
    assert model.env is not None
    environment, reason = None, None
    try:
        environment = capture_environment(model.env)
    except CannotBeSaved as error:
        reason = str(error)
    state = {
        "action_space": model.action_space,
        "environment": environment,
        "normalization": [
            # SB3 has no obs_rms with norm_obs=False
            (getattr(layer, "obs_rms", None), layer.ret_rms)
            for layer in _normalizers(model.env)
        ],
        "spec": _specification(model.env),
        # SB3 acts on the observation it got last, which no environment can be asked for again
        "last_obs": model._last_obs,
        # saved between resume() and learn(), a model passes on what it still waits for
        **(_PENDING.get(model) or _capture_learning(model)),
    }
    return state, reason


def restore(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Put a captured state into a model loaded from model.zip, its replay buffer restored."""
    assert model.env is not None
    if state["environment"] is not None:
        restore_environment(model.env, state["environment"])
        model._last_obs = state["last_obs"]
    else:  # a new episode, with the statistics of all before
        model.env.seed((model.seed or 0) + model.num_timesteps)  # not the run's first one again
        saved = state.get("normalization", [])
        for layer, (obs_rms, ret_rms) in zip(_normalizers(model.env), saved):
            layer.obs_rms, layer.ret_rms = obs_rms, ret_rms
    # exploration samples from it, and it has a generator of its own
    model.action_space = state["action_space"]
    _PENDING[model] = {name: state[name] for name in _capture_learning(model) if name in state}
    restore_generators(state["random"])


def restore_pending(model: BaseAlgorithm) -> bool:
    """Give a resumed model, whose ``learn()`` is set up, what had to wait for that.

    :return: whether this ``learn()`` continues an interrupted one
    """
    pending = _PENDING.pop(model, None)
    if pending is None:
        return False
    # learn() made a new logger; means recorded since its last row would otherwise lack a part
    for name, values in pending["log"].items():
        getattr(model._logger, name).update(values)
    # time/fps counts from here; the pause is no time of the run
    model.start_time = time.time_ns() - pending["elapsed"]
    model._num_timesteps_at_start = pending["first_timestep"]
    model.action_noise = pending.get("action_noise")
    restore_randomness(model, pending)
    return True


def start_anew(model: BaseAlgorithm, seed: int) -> None:
    """Give a loaded model a new episode and random numbers of its own: it no longer goes on as the
    run would that it comes from. What it has learned stays, statistics of VecNormalize too."""
    _PENDING.pop(model, None)
    model._last_obs = None  # learn() resets the environment
    model.seed = seed
    model.set_random_seed(seed)


def pending(model: BaseAlgorithm) -> dict[str, Any] | None:
    """What a resumed model waits for, if its ``learn()`` has not begun."""
    return _PENDING.get(model)


def _capture_learning(model: BaseAlgorithm) -> dict[str, Any]:
    log = getattr(model, "_logger", None)
    return {
        "random": capture_generators(),
        "sde_noise": {
            name: (noise.exploration_mat.detach(), noise.exploration_matrices.detach())
            for name, noise in _sde_noise(model).items()
            if hasattr(noise, "exploration_mat")  # not before the first rollout
        },
        "action_noise": model.action_noise,
        "log": {} if log is None else {name: dict(getattr(log, name)) for name in _LOG_VALUES},
        "elapsed": time.time_ns() - model.start_time,
        "first_timestep": model._num_timesteps_at_start,
    }


# --- random numbers -------------------------------------------------------------------------------


def restore_randomness(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Restore the generators, and the noise of gSDE, which is drawn just before a rollout."""
    restore_generators(state["random"])
    for name, noise in _sde_noise(model).items():
        if name in state.get("sde_noise", {}):
            one, many = state["sde_noise"][name]
            noise.exploration_mat = one.to(model.device)
            noise.exploration_matrices = many.to(model.device)


def capture_generators() -> dict[str, Any]:
    """State of the generators of python, numpy and torch."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": th.get_rng_state(),
        "cuda": th.cuda.get_rng_state_all() if th.cuda.is_available() else None,
    }


def restore_generators(state: dict[str, Any]) -> None:
    """As :func:`capture_generators` found them; GPUs only if there are as many as there were."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    th.set_rng_state(state["torch"])
    # a run moved to a machine with other GPUs continues, but not to the bit
    if state["cuda"] is not None and len(state["cuda"]) == th.cuda.device_count():
        th.cuda.set_rng_state_all(state["cuda"])


def _sde_noise(model: BaseAlgorithm) -> dict[str, StateDependentNoiseDistribution]:
    found = {
        name: getattr(module, "action_dist", None) for name, module in model.policy.named_modules()
    }
    return {k: v for k, v in found.items() if isinstance(v, StateDependentNoiseDistribution)}


# --- environments ---------------------------------------------------------------------------------
# A layer (a wrapper or an environment) is saved as its attributes. References between layers stay
# references, so the state fits environments built in the same way. Three kinds of attributes are no
# data: files of a Monitor, ALE's emulator (which has its own way to save), and clocks.


def capture_environment(env: VecEnv) -> bytes:
    """The state of a vector of environments between two steps; raises :class:`CannotBeSaved`."""
    layers = _layers(env)
    if not isinstance(env.unwrapped, DummyVecEnv):
        name = type(env.unwrapped).__name__
        # a SubprocVecEnv could only be asked for attributes by name, not for all of its state
        raise CannotBeSaved(f"{name} runs its environments outside this process")
    states = []
    for layer in layers:
        state = {k: v for k, v in vars(layer).items() if not isinstance(v, ResultsWriter)}
        state.pop("class_attributes", None)  # a VecEnvWrapper's list of what its class has
        if _has_emulator(layer):
            state["ale"] = layer.ale.cloneSystemState()
        states.append(state)
    content = {"names": _class_names(layers), "time": time.time(), "states": states}
    try:
        return pickle_with_references(content, {id(layer): i for i, layer in enumerate(layers)})
    except Exception as error:  # whatever an environment's own objects raise
        reason = " ".join(str(error).split())
        raise CannotBeSaved(f"{type(layers[-1]).__name__} cannot be pickled ({reason})") from None


def restore_environment(env: VecEnv, saved: bytes) -> None:
    """Put a state into environments built as those it was captured from."""
    layers = _layers(env)
    must = "env must be built as in the run that was saved"
    try:
        content = unpickle_with_references(saved, dict(enumerate(layers)))
    except KeyError:
        raise InvalidArgument(f"{must}; it has fewer layers") from None
    names = _class_names(layers)
    if not _fit(content["names"], names):
        expected, given = (
            " > ".join(mro[0] for mro in found) for found in (content["names"], names)
        )
        raise InvalidArgument(f"{must}, {expected}, got {given}")
    for layer, state in zip(layers, content["states"]):
        if _has_emulator(layer):
            layer.ale.restoreSystemState(state.pop("ale"))
        if isinstance(layer, (Monitor, VecMonitor)):  # the pause is no time of the run
            state["t_start"] += time.time() - content["time"]
        vars(layer).update(state)


def _layers(env: VecEnv) -> list[Any]:
    """All layers, from the outermost wrapper to the environments themselves."""
    # The order is the identity of a layer: references between layers are saved as positions.
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


def _normalizers(env: VecEnv) -> list[VecNormalize]:
    return [layer for layer in _layers(env) if isinstance(layer, VecNormalize)]


def _specification(env: VecEnv) -> EnvSpec | None:
    """How gymnasium makes the environment, below SB3's layers; None for several, or unknown."""
    base = env.unwrapped
    if not isinstance(base, DummyVecEnv) or len(base.envs) > 1:
        return None
    single = base.envs[0]
    return (single.env if isinstance(single, Monitor) else single).spec


def _class_names(layers: list[Any]) -> list[list[str]]:
    """Of each layer, its class and the classes that is derived from."""
    return [[cls.__qualname__ for cls in type(layer).__mro__] for layer in layers]


def _fit(saved: list[list[str]], here: list[list[str]]) -> bool:
    """Whether each layer's class is the saved one or derived from it, or the other way round:
    packages may replace a wrapper of gymnasium by their own (rl_zoo3 does so with TimeLimit)."""
    same_length = len(saved) == len(here)
    return same_length and all(one[0] in two or two[0] in one for one, two in zip(saved, here))


def _has_emulator(layer: Any) -> bool:
    emulator = getattr(layer, "ale", None)
    return isinstance(layer, gym.Env) and hasattr(emulator, "cloneSystemState")
