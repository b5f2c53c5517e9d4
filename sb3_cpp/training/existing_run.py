"""What a run's folder already holds: nothing, this run, or something that must not be overwritten."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import CONFIG, LOCK, OUTPUT, read_record
from sb3_cpp.training.algorithms import get_algorithm, hyperparameter_defaults
from sb3_cpp.training.suites import RunConfig


def check_folder(folder: Path, config: RunConfig, ignore: Sequence[str] = ()) -> None:
    """Refuse a folder that holds something else, naming what differs."""
    if not folder.exists() or not any(path.name not in (LOCK, OUTPUT) for path in folder.iterdir()):
        return
    try:
        record = read_record(folder)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{folder} holds files but no readable {CONFIG}; remove it or choose another -f ({error})"
        ) from None
    there, defaults_there = record["config"], record.get("class_defaults") or {}
    here, defaults_here = config.plain(), class_defaults(config)
    differences = _differences(
        _completed(there, defaults_there, here, defaults_here),
        _completed(here, defaults_here, there, defaults_there),
        ignore,
    )
    if differences:
        raise InvalidArgument(
            f"{folder} holds a run with another config ({'; '.join(differences[:3])}); remove it or choose another -f"
        )


def class_defaults(config: RunConfig) -> dict[str, Any]:
    """What the class itself sets where the config says nothing, as far as it can be written down."""
    defaults = hyperparameter_defaults(get_algorithm(config.algorithm))
    return {
        k: v
        for k, v in defaults.items()
        if k not in config.hyperparameters and isinstance(v, (int, float, str, bool, type(None)))
    }


def _completed(
    config: dict[str, Any],
    defaults: dict[str, Any],
    other: dict[str, Any],
    other_defaults: dict[str, Any],
) -> dict[str, Any]:
    """The config with its class defaults, so that one that has changed since is noticed; without those of arguments that the
    other's version of the class did not have."""
    known = {*(other.get("hyperparameters") or {}), *other_defaults}
    set_here = config.get("hyperparameters") or {}
    completed = {k: v for k, v in defaults.items() if k in known} | set_here
    return {**config, "hyperparameters": completed}


def _differences(
    there: dict[str, Any], here: dict[str, Any], ignore: Sequence[str] = (), prefix: str = ""
) -> list[str]:
    found: list[str] = []
    for key in dict.fromkeys([*there, *here]):
        if key in ignore or (key in there and key in here and there[key] == here[key]):
            continue
        if isinstance(there.get(key), dict) and isinstance(here.get(key), dict):
            found += _differences(there[key], here[key], prefix=f"{prefix}{key}.")
        else:
            found.append(
                f"{prefix}{key}: {there.get(key, 'not set')} there, {here.get(key, 'not set')} here"
            )
    return found


def stored_hyperparameters(source: Path) -> dict[str, Any]:
    """A loaded model keeps the hyperparameters it was saved with: those of the run it comes from, as far as that is known."""
    for folder in list(source.parents)[:2]:
        if (folder / CONFIG).is_file():
            record = read_record(folder)
            stored = record["config"].get("hyperparameters") or {}
            return {**(record.get("class_defaults") or {}), **stored}
    return {}
