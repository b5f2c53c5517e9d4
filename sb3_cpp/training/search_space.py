"""Search spaces in plain YAML: ``{low, high, log}`` for a range (whole numbers if both ends are), ``{choices}`` for a list."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sb3_cpp.checks import InvalidArgument, check_number, suggestion
from sb3_cpp.training.algorithms import get_algorithm, hyperparameter_defaults
from sb3_cpp.training.suites import Suite

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter to search: a range, or choices."""

    name: str
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    def suggest(self, trial: "optuna.Trial") -> Any:
        if self.choices:
            # Optuna keeps only plain values; lists (net_arch) travel as text
            plain = [
                json.dumps(choice) if isinstance(choice, (list, dict)) else choice
                for choice in self.choices
            ]
            return trial.suggest_categorical(self.name, plain)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.name, self.low, self.high, log=self.log)
        assert self.low is not None
        assert self.high is not None
        return trial.suggest_float(self.name, float(self.low), float(self.high), log=self.log)


def search_space(suite: Suite, algo: str) -> list[Dimension]:
    """What a suite says is to be searched for an algorithm: its own keys, and the ``shared`` ones that the algorithm has."""
    name = (suite.algos.get(algo) or {}).get("algorithm", algo)
    known = hyperparameter_defaults(get_algorithm(name))
    own = suite.search.get(algo) or {}
    if not own:
        raise InvalidArgument(
            f"suite {suite.name} has no search space for {algo!r}; it has {', '.join(suite.search) or 'none'}"
        )
    for key in own:
        if key.split(".")[0] not in known:
            raise InvalidArgument(
                f"suite {suite.name}, search, {algo}: no hyperparameter {key!r}{suggestion(key, known)}"
            )
    shared = {
        key: value
        for key, value in (suite.search.get("shared") or {}).items()
        if key.split(".")[0] in known
    }
    return [
        _dimension(key, value, f"suite {suite.name}, search, {key}")
        for key, value in {**shared, **own}.items()
    ]


def _dimension(name: str, entry: Any, place: str) -> Dimension:
    if not isinstance(entry, Mapping) or not (
        set(entry) == {"choices"} or {"low", "high"} <= set(entry) <= {"low", "high", "log"}
    ):
        raise InvalidArgument(f"{place} must be {{low, high, log}} or {{choices}}, got {entry!r}")
    if "choices" in entry:
        if not isinstance(entry["choices"], list) or not entry["choices"]:
            raise InvalidArgument(f"{place}: choices must be a list, got {entry['choices']!r}")
        return Dimension(name, choices=tuple(entry["choices"]))
    low, high, log = entry["low"], entry["high"], bool(entry.get("log", False))
    check_number(f"{place}: low", low, 0.0 if log else -float("inf"), low_open=log)
    check_number(f"{place}: high", high, low)
    return Dimension(name, low, high, log)


def is_fixed(name: str, overrides: Mapping[str, Any]) -> bool:
    """Whether ``-params`` gives a value to the hyperparameter ``a.b``, or to all of ``a``."""
    inside: Any = overrides
    for part in name.split("."):
        if not isinstance(inside, Mapping):
            return True
        if part not in inside:
            return False
        inside = inside[part]
    return True


def sample(dimensions: list[Dimension], trial: "optuna.Trial") -> dict[str, Any]:
    """A trial's hyperparameters."""
    return hyperparameters({dimension.name: dimension.suggest(trial) for dimension in dimensions})


def hyperparameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """What Optuna keeps of a trial as hyperparameters: text lists as lists, ``{"a.b": 1}`` as ``{"a": {"b": 1}}``."""
    tree: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, str) and value[:1] in ("[", "{"):
            value = json.loads(value)
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree
