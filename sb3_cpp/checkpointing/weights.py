"""Policies to share: a file of tensors and nothing else, which cannot run code when it is loaded."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from torch import nn

from sb3_cpp.checks import InvalidArgument

_FORMAT = "sb3_cpp weights"


def save_weights(model: BaseAlgorithm, path: str | Path) -> None:
    """Write the networks of a model, without optimiser, hyperparameters or replay buffer."""
    path = Path(path)
    part = path.with_name(f"{path.name}.part")
    weights = {
        name: value.detach().cpu().contiguous()
        for name, value in _networks(model).state_dict().items()
    }
    try:
        th.save({"format": _FORMAT, "algorithm": type(model).__name__, "weights": weights}, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load_weights(model: BaseAlgorithm, path: str | Path) -> None:
    """Put the networks of a file into a model of the same algorithm and sizes; nothing in the file is executed."""
    try:
        content: Any = th.load(path, map_location=model.device, weights_only=True)
    except FileNotFoundError:
        raise InvalidArgument(
            f"path must be a file of weights, got {str(path)!r}, which does not exist"
        ) from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError):
        raise InvalidArgument(
            f"path must be a file of weights and nothing else, got {str(path)!r}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InvalidArgument(f"path must be a file that save_weights() wrote, got {str(path)!r}")
    if content["algorithm"] != type(model).__name__:
        raise InvalidArgument(
            f"path must hold weights of {type(model).__name__}, got those of {content['algorithm']}"
        )
    networks = _networks(model)
    expected, given = networks.state_dict(), content["weights"]
    for name in dict.fromkeys([*expected, *given]):
        sizes = [
            tuple(weights[name].shape) if name in weights else None for weights in (expected, given)
        ]
        if sizes[0] != sizes[1]:
            raise InvalidArgument(
                f"path must fit the model: {name} has size {sizes[0]} in the model, {sizes[1]} in the file"
            )
    networks.load_state_dict(given)


def _networks(model: BaseAlgorithm) -> nn.ModuleDict:
    """All networks of a model: those of its policy, and the average that it deploys."""
    average = getattr(model, "average_net", None)
    return nn.ModuleDict(
        {"policy": model.policy, **({} if average is None else {"average_net": average})}
    )
