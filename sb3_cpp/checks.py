"""Checks of arguments: one clear line naming the argument, the value and what is allowed."""

import difflib
import importlib.util
import math
import numbers
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any


class InvalidArgument(ValueError, AssertionError):
    """A bad argument. Also an AssertionError, which is what SB3 itself raises for some of them."""


class MissingExtra(InvalidArgument, ImportError):
    """A package of an extra is not installed."""


def require(extra: str, *modules: str) -> None:
    """Refuse to go on without the modules of an extra, in one line with the pip command."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(f"this needs {', '.join(missing)}: pip install 'sb3_cpp[{extra}]'")


def check_number(
    name: str,
    value: Any,
    low: float,
    high: float = math.inf,
    *,
    low_open: bool = False,
    high_open: bool = False,
) -> float:
    """The value as a float, if it is a number in the interval.

    :param name: of the argument
    :param value: the argument
    :param low: lower end
    :param high: upper end
    :param low_open: whether the lower end is excluded
    :param high_open: whether the upper end is excluded (infinity always is)
    """
    left, right = "(" if low_open else "[", ")" if high_open or math.isinf(high) else "]"
    allowed = f"a number in {left}{low:g}, {high:g}{right}"
    # To Python a bool is a number; as an argument it is a mistake
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InvalidArgument(f"{name} must be {allowed}, got {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidArgument(
            f"{name} must be {allowed} that fits a float, got one of more than 308 digits"
        ) from None
    inside = (low < number if low_open else low <= number) and (
        number < high if right == ")" else number <= high
    )
    if not inside:  # also for NaN
        raise InvalidArgument(f"{name} must be {allowed}, got {value!r}")
    return number


def check_whole_number(name: str, value: Any, low: int) -> int:
    """The value, if it is a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise InvalidArgument(f"{name} must be a whole number of at least {low}, got {value!r}")
    return int(value)


def check_seed(name: str, value: Any) -> int:
    """The value, if it is a seed: numpy's generator, the strictest, takes [0, 2**32)."""
    if check_whole_number(name, value, 0) >= 2**32:
        raise InvalidArgument(f"{name} must be below 2**32, got {value!r}")
    return int(value)


def check_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """The value, if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgument(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}"
        )
    return value


def suggestion(name: str, known: Collection[str]) -> str:
    """``; did you mean 'x' or 'y'?`` for close names, or else the list of known ones."""
    near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; known: {', '.join(known)}" if len(known) <= 30 else ""


@contextmanager
def sb3_assertions(model: Any, action_space: type) -> Iterator[None]:
    """In this context SB3's own assertions, as of its constructors, are bad arguments too.

    :param model: the algorithm that is being built
    :param action_space: the class that its action space must have
    """
    try:
        yield
    except InvalidArgument:
        raise
    except AssertionError as error:
        given = getattr(model, "action_space", None)
        if given is not None and not isinstance(given, action_space):
            raise InvalidArgument(
                f"env must have a {action_space.__name__} action space, got {given}"
            ) from None
        if not str(error):
            raise
        raise InvalidArgument(str(error)) from error
