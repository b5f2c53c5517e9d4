"""Settings from plain YAML files, checked: nothing is evaluated, nothing unknown is let through."""

import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sb3_cpp.checks import InvalidArgument

Settings = TypeVar("Settings")


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; refuses text that was meant as a number.

    YAML 1.1 reads ``1e-3`` as text (a number needs the point: ``1.0e-3``), which would surface much later as a type error.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"config must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from error
    except (
        yaml.YAMLError,
        UnicodeDecodeError,
        ValueError,
        RecursionError,
    ) as error:  # ValueError: 2020-13-45 as a date
        raise InvalidArgument(
            f"config must be YAML, got {str(path)!r} ({' '.join(str(error).split())})"
        ) from error
    if not isinstance(content, dict):
        raise InvalidArgument(
            f"config must be a mapping of names to values, got {str(path)!r} with {content!r}"
        )
    refuse_text_numbers(content, str(path))
    return content


def refuse_text_numbers(
    value: Any,
    place: str,
    above: tuple[int, ...] = (),
    seen: frozenset[int] | set[int] = frozenset(),
) -> None:
    """Raise for text such as ``1e-3``, at any depth, and for what contains itself, which YAML can say."""
    seen = (
        seen if isinstance(seen, set) else set()
    )  # what is repeated by reference is looked at once
    if isinstance(value, (Mapping, list)):
        if id(value) in above:
            raise InvalidArgument(f"{place} must not contain itself")
        if id(value) in seen:
            return
        seen.add(id(value))
        above = (*above, id(value))
    if isinstance(value, Mapping):
        for key, entry in value.items():
            refuse_text_numbers(entry, f"{place}: {key}", above, seen)
    elif isinstance(value, list):
        for entry in value:
            refuse_text_numbers(entry, place, above, seen)
    elif isinstance(value, str) and "e" in value.lower():
        try:
            number = float(value)
        except ValueError:
            return
        if math.isfinite(number):
            raise InvalidArgument(
                f"{place} must be a number written with a point, as in 1.0e-3, got the text {value!r}"
            )


def settings_from(cls: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """An instance of a dataclass of settings; a name it does not have is an error, not ignored."""
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise InvalidArgument(
                f"{source}: unknown name {name!r}, must be one of {', '.join(known)}"
            )
    return cls(**values)
