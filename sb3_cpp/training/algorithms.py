"""The names of the command line and of the suites: algorithms, and the few classes a plain YAML file can ask for by name."""

import difflib
import inspect
from collections.abc import Collection, Mapping
from typing import Any

from sb3_contrib import QRDQN
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.utils import LinearSchedule
from torch import nn, optim

from sb3_cpp import ALGORITHMS
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.minatar import MinAtarCNN

_registry: dict[str, type[BaseAlgorithm]] = {
    **ALGORITHMS,
    "dqn": DQN,
    "qrdqn": QRDQN,
    "ppo": PPO,
    "a2c": A2C,
}

# Arguments the runner itself gives to a constructor
_RESERVED = ("env", "seed", "verbose", "tensorboard_log", "_init_setup_model")

# Where YAML can only say a name: key of a constructor or of policy_kwargs -> name -> class
_CLASSES: dict[str, dict[str, Any]] = {
    "activation_fn": {"relu": nn.ReLU, "tanh": nn.Tanh, "elu": nn.ELU, "leaky_relu": nn.LeakyReLU},
    "features_extractor_class": {"minatar": MinAtarCNN},
    "replay_buffer_class": {"frames": FrameReplayBuffer},
    "optimizer_class": {"adam": optim.Adam, "rmsprop": optim.RMSprop, "rmsprop_tf": RMSpropTFLike},
}


def register(name: str, algorithm: type[BaseAlgorithm]) -> None:
    """Give an algorithm of SB3's kind a name, for suites and scripts."""
    if _registry.get(name, algorithm) is not algorithm:
        raise InvalidArgument(f"name must not be taken, got {name!r} of {_registry[name].__name__}")
    _registry[name] = algorithm


def algorithm_names() -> list[str]:
    return list(_registry)


def get_algorithm(name: str) -> type[BaseAlgorithm]:
    """The class behind a name; an unknown name is answered with the nearest ones."""
    if not isinstance(name, str) or name not in _registry:  # a suite may say anything
        raise InvalidArgument(f"unknown algorithm {name!r}{suggestion(str(name), _registry)}")
    return _registry[name]


def suggestion(name: str, known: Collection[str]) -> str:
    """``; did you mean 'x' or 'y'?``, or all names if none is near."""
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; known: {', '.join(known)}" if len(known) <= 30 else ""


def hyperparameter_defaults(algorithm: type[BaseAlgorithm]) -> dict[str, Any]:
    """What can be set on the constructor, with its defaults (those of required arguments are None)."""
    parameters = inspect.signature(algorithm).parameters.values()
    return {
        p.name: None if p.default is p.empty else p.default
        for p in parameters
        if p.name not in _RESERVED
    }


def check_hyperparameters(
    algorithm: type[BaseAlgorithm], names: Collection[str], place: str
) -> None:
    """Refuse what the constructor does not have, with the nearest names."""
    known = hyperparameter_defaults(algorithm)
    for name in names:
        if name not in known:
            raise InvalidArgument(
                f"{place}: {algorithm.__name__} has no hyperparameter {name!r}{suggestion(str(name), known)}"
            )


def resolve_classes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Hyperparameters for the constructor: names turned into classes, ``lin_0.001`` into a schedule that falls to 0."""
    resolved: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            resolved[key] = resolve_classes(value)
        elif isinstance(value, str) and key in _CLASSES:
            if value not in _CLASSES[key]:
                raise InvalidArgument(
                    f"{key}: unknown name {value!r}{suggestion(value, _CLASSES[key])}"
                )
            resolved[key] = _CLASSES[key][value]
        elif isinstance(value, str) and value.startswith("lin_"):
            resolved[key] = _linear_schedule(key, value)
        else:
            resolved[key] = value
    return resolved


def _linear_schedule(key: str, value: str) -> LinearSchedule:
    try:
        return LinearSchedule(float(value.removeprefix("lin_")), 0.0, 1.0)
    except ValueError:
        raise InvalidArgument(f"{key} must be a number or lin_<number>, got {value!r}") from None
