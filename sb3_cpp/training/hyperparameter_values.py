"""Values of hyperparameters, checked before a model is built: SB3 takes most of them as they come, and stumbles much later."""

from collections.abc import Callable, Mapping
from typing import Any

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number

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
)
_POSITIVE = ("max_grad_norm",)
_NUMBERS = ("ent_coef", "vf_coef")
_SWITCHES = ("optimize_memory_usage", "fast", "normalize_advantage", "use_rms_prop", "use_sde")
_LARGEST_FLOAT = 3.4e38  # networks compute in single precision


def check_values(values: Mapping[str, Any]) -> None:
    """Raise one line that names the first value that cannot be."""
    for name, value in values.items():
        if name in _CHECKS:
            _CHECKS[name](name, value)
        elif name in _UNIT:
            check_number(name, value, 0.0, 1.0)
        elif name in _COUNTS:
            check_whole_number(name, value, 1)
        elif name in _POSITIVE:
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
    "learning_starts": lambda name, value: check_whole_number(name, value, 0),
    "gradient_steps": lambda name, value: check_whole_number(name, value, -1),
}
