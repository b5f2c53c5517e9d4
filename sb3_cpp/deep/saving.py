"""Saved models hold plain values: our classes and functions are stored by name.

SB3 pickles every attribute that is not JSON. Pickled objects of our own classes would tie a file to
this version's modules, and a loader that refuses pickles could not read them.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from stable_baselines3 import SAC

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.deep.caution import name_of_rule

if TYPE_CHECKING:
    from sb3_cpp.deep.base import RegularizedDQN
    from sb3_cpp.deep.cautious_sac import CautiousSAC

FORMAT = 2  # of saved models; version 0.1 of this package wrote none


def saved_as(model: "RegularizedDQN | CautiousSAC") -> list[Any]:
    """Name of the class and version of the format, which every saved model holds."""
    return [type(model).__name__, FORMAT]


def check_saved_as(model: "RegularizedDQN | CautiousSAC") -> None:
    """Refuse a file of another algorithm, of SB3 itself, or of an older version."""
    # load() restores the attributes of the file, lr_schedule too, before it sets the model up; a
    # constructor has none yet at this point
    if model.saved_as is None and "lr_schedule" not in vars(model):
        model.saved_as = saved_as(model)
    name = type(model).__name__
    if model.saved_as is None:
        parent = "SAC" if isinstance(model, SAC) else "DQN"
        raise InvalidArgument(
            f"path must be a model that {name} saved with sb3_cpp 0.2 or later, got one of an "
            f"older version or of SB3's {parent}; "
            f"{name}(...).set_parameters(path, exact_match=False) "
            "takes over the weights that fit"
        )
    if model.saved_as != saved_as(model):
        other, version = model.saved_as
        raise InvalidArgument(
            f"path must be a model saved by {name} in format {FORMAT}, "
            f"got one saved by {other} in format {version}"
        )


@contextmanager
def refusing_old_files(cls: type) -> Iterator[None]:
    """Say in one line that a file holds pickles of classes that this version no longer has."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sb3_cpp."):
            raise
        raise InvalidArgument(
            f"path must be a model that {cls.__name__} saved with sb3_cpp 0.2 or later, "
            "got one of an older version; load it with that version"
        ) from None


@contextmanager
def plain_values(model: "RegularizedDQN | CautiousSAC") -> Iterator[None]:
    """In this context the model's attributes hold names instead of our classes and functions."""
    names: dict[str, Any] = {}
    for alias, policy_class in model.policy_aliases.items():
        if model.policy_class is policy_class:
            names["policy_class"] = alias
    buffer_class = model.replay_buffer_class
    if buffer_class is not None and buffer_class.__module__.startswith("sb3_cpp."):
        names["replay_buffer_class"] = f"{buffer_class.__module__}:{buffer_class.__qualname__}"
    zeta = vars(model).get("zeta")
    if callable(zeta):
        names["zeta"] = name_of_rule(zeta)
    values = vars(model)
    before = {name: values[name] for name in names}
    values.update(names)
    try:
        yield
    finally:
        values.update(before)


def objects_from_names(model: "RegularizedDQN | CautiousSAC") -> None:
    """Undo :func:`plain_values` in a model that is being loaded."""
    values = vars(model)
    if isinstance(values["policy_class"], str):
        values["policy_class"] = model._get_policy_from_name(values["policy_class"])
    name = values["replay_buffer_class"]
    if isinstance(name, str):
        module, _, attribute = name.partition(":")
        # A file must not choose what is imported
        if not module.startswith("sb3_cpp."):
            raise InvalidArgument(f"replay_buffer_class must be one of sb3_cpp, got {name!r}")
        values["replay_buffer_class"] = getattr(importlib.import_module(module), attribute)


def check_quantiles(model: "RegularizedDQN", parts: dict[str, Any]) -> None:
    """Refuse a file of another number of quantiles, in one line."""
    name = [key for key in model.q_net.state_dict() if key.endswith("weight")][-1]
    key = f"q_net.{name}"
    saved = parts.get("policy", {}).get(key)
    if saved is None or len(saved) == len(model.policy.state_dict()[key]):
        return
    quantiles, rest = divmod(len(saved), model._n_actions)
    if not rest:
        # One quantile takes as many outputs as none
        allowed = "0 or 1" if quantiles == 1 else quantiles
        raise InvalidArgument(
            f"n_quantiles must be {allowed} as in the saved model, got {model.n_quantiles}"
        )


def without_foreign_optimizer(model: "RegularizedDQN", parts: dict[str, Any]) -> dict[str, Any]:
    """Parameters without an optimiser's state of other groups of weights, such as DQN's for a
    class with two networks."""
    groups = parts.get("policy.optimizer", {}).get("param_groups")
    own = [len(group["params"]) for group in model.policy.optimizer.param_groups]
    if groups is None or [len(group["params"]) for group in groups] == own:
        return parts
    return {name: part for name, part in parts.items() if name != "policy.optimizer"}


def fit_average(model: "RegularizedDQN", parts: dict[str, Any]) -> dict[str, Any]:
    """Saved parameters with the average this model has: as saved, dropped, or started anew."""
    prefix = "average.network."
    saved = parts.get("policy", {})
    if not saved or any(name.startswith(prefix) for name in saved) == bool(model.averaging):
        return parts
    fitting = {name: value for name, value in saved.items() if not name.startswith(prefix)}
    if model.averaging:
        acting = model._acting_network()
        name = next(name for name, module in model.policy.named_modules() if module is acting)
        for key in acting.state_dict():
            if f"{name}.{key}" in saved:  # else a part of the weights, given to set_parameters
                fitting[f"{prefix}{key}"] = saved[f"{name}.{key}"]
    return {**parts, "policy": fitting}
