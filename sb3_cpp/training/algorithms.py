"""Algorithms by name, and their hyperparameters as plain values: checked, then made into classes
and schedules."""

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from sb3_contrib import QRDQN
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.utils import LinearSchedule
from torch import nn, optim

from sb3_cpp import ALGORITHMS, RegularizedDQN
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checks import (
    InvalidArgument,
    check_choice,
    check_number,
    check_whole_number,
    suggestion,
)
from sb3_cpp.deep.cautious_sac import check_ent_coef
from sb3_cpp.training.environments import MinAtarCNN

_registry: dict[str, type[BaseAlgorithm]] = {
    **ALGORITHMS,
    "regularized_dqn": RegularizedDQN,  # exactly DQN, with the options of this package
    "dqn": DQN,
    "qrdqn": QRDQN,
    "ppo": PPO,
    "a2c": A2C,
    "sac": SAC,
    "td3": TD3,
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


def hyperparameter_defaults(algorithm: type[BaseAlgorithm]) -> dict[str, Any]:
    """Arguments of the constructor with their defaults, None for required ones."""
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
                f"{place}: {algorithm.__name__} has no hyperparameter {name!r}"
                f"{suggestion(str(name), known)}"
            )


def resolve_classes(values: Mapping[str, Any], n_dimensions: int = 1) -> dict[str, Any]:
    """Hyperparameters for the constructor: names turned into classes, ``lin_0.001`` into a schedule
    that falls to 0, ``normal_0.1`` into Gaussian action noise.

    :param values: from a suite or the command line
    :param n_dimensions: of a continuous action
    """
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
        elif key == "action_noise" and value is not None:
            deviation = _noise_deviation(key, value)
            resolved[key] = NormalActionNoise(
                *np.array([[0.0], [deviation]]).repeat(n_dimensions, 1)
            )
        elif key == "train_freq" and isinstance(value, list):
            resolved[key] = tuple(value)  # YAML has no tuples, and SB3 takes nothing else
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


def _noise_deviation(key: str, value: Any) -> float:
    """Of ``normal_<standard deviation>``, the only noise that a suite can name."""
    try:
        kind, _, number = str(value).partition("_")
        deviation = float(number)
    except ValueError:
        kind, deviation = "", 0.0
    if kind != "normal" or not 0.0 < deviation <= _LARGEST_FLOAT:
        raise InvalidArgument(f"{key} must be normal_<standard deviation>, got {value!r}")
    return deviation


def _entropy_coefficient(name: str, value: Any) -> None:
    """A number (any for PPO and A2C), or ``auto`` or ``auto_<initial value>`` for SAC."""
    if isinstance(value, str):
        check_ent_coef(name, value)
    else:
        check_number(name, value, -_LARGEST_FLOAT, _LARGEST_FLOAT)


# SB3 accepts most values as they are and fails much later

_UNIT = (
    "gamma",
    "tau",
    "exploration_fraction",
    "exploration_initial_eps",
    "exploration_final_eps",
    "gae_lambda",
)
_COUNTS = (
    "batch_size",
    "buffer_size",
    "n_steps",
    "n_epochs",
    "target_update_interval",
    "stats_window_size",
    "iteration_interval",
    "policy_delay",
)
_POSITIVE = ("max_grad_norm",)
_NUMBERS = ("vf_coef", "target_policy_noise", "target_noise_clip")
_SWITCHES = ("optimize_memory_usage", "fast", "normalize_advantage", "use_rms_prop", "use_sde")
_LARGEST_FLOAT = 3.4e38  # networks compute in single precision


def check_values(values: Mapping[str, Any], algorithm: type[BaseAlgorithm]) -> None:
    """Refuse the first value that is not allowed, in one line."""
    coefficient = values.get("ent_coef")
    if isinstance(coefficient, str) and not issubclass(algorithm, SAC):
        name = algorithm.__name__
        raise InvalidArgument(f"ent_coef must be a number for {name}, got {coefficient!r}")
    for name, value in values.items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
        elif name in _UNIT:
            check_number(name, value, 0.0, 1.0)
        elif name in _COUNTS:
            check_whole_number(name, value, 1)
        elif name in _POSITIVE:
            unclipped = value is None and issubclass(algorithm, (RegularizedDQN, QRDQN))
            if not unclipped:
                check_number(name, value, 0.0, low_open=True)
        elif name in _NUMBERS:
            check_number(name, value, -_LARGEST_FLOAT, _LARGEST_FLOAT)
        elif name in _SWITCHES and not (
            isinstance(value, bool) or (name == "fast" and value is None)
        ):
            raise InvalidArgument(f"{name} must be true or false, got {value!r}")


def _rate(name: str, value: Any) -> None:
    """A number, or ``lin_<number>`` for one that falls to 0."""
    number: Any = value
    if isinstance(value, str):
        try:
            number = float(value.removeprefix("lin_"))
        except ValueError:
            raise InvalidArgument(
                f"{name} must be a number or lin_<number>, got {value!r}"
            ) from None
        if not value.startswith("lin_"):
            raise InvalidArgument(f"{name} must be a number or lin_<number>, got {value!r}")
    check_number(name, number, 0.0, _LARGEST_FLOAT, low_open=True)


def _train_freq(name: str, value: Any) -> None:
    count, unit = value if isinstance(value, (list, tuple)) and len(value) == 2 else (value, "step")
    if isinstance(count, (list, tuple)):
        raise InvalidArgument(
            f"{name} must be a number of steps or [number, step or episode], got {value!r}"
        )
    check_whole_number(name, count, 1)
    check_choice(name, unit, ("step", "episode"))


def _policy(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_choice(name, value, ("MlpPolicy", "CnnPolicy", "MultiInputPolicy"))


def _policy_kwargs(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name} must be a mapping of names to values, got {value!r}")
    sizes = value.get("net_arch", [])
    for entry in sizes.values() if isinstance(sizes, Mapping) else [sizes]:
        if not isinstance(entry, list):
            raise InvalidArgument(
                f"{name}.net_arch must be a list of numbers of units, got {sizes!r}"
            )
        for units in entry:
            check_whole_number(f"{name}.net_arch", units, 1)


def _device(name: str, value: Any) -> None:
    if not isinstance(value, str) or value.split(":")[0] not in ("auto", "cpu", "cuda", "mps"):
        raise InvalidArgument(f"{name} must be auto, cpu, cuda or mps, got {value!r}")


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "learning_rate": _rate,
    "clip_range": _rate,
    "train_freq": _train_freq,
    "policy": _policy,
    "policy_kwargs": _policy_kwargs,
    "device": _device,
    "ent_coef": _entropy_coefficient,
    "action_noise": lambda name, value: value is None or _noise_deviation(name, value),
    "learning_starts": lambda name, value: check_whole_number(name, value, 0),
    "n_quantiles": lambda name, value: check_whole_number(name, value, 0),
    "gradient_steps": lambda name, value: check_whole_number(name, value, -1),
}
