"""Networks to share: a file of tensors only, which cannot run code when it is loaded."""

import io
import pickle
from pathlib import Path
from typing import Any

import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.files import write_bytes

_FORMAT = "sb3_cpp weights"


def save_weights(model: BaseAlgorithm, path: str | Path) -> None:
    """Write the networks of a model, without optimiser, hyperparameters or replay buffer."""
    # the policy's own state holds the average of the weights too, from which predict() acts
    state = model.policy.state_dict()
    weights = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    # In memory first: torch reports a full disk as a RuntimeError without the path
    file = io.BytesIO()
    th.save({"format": _FORMAT, "algorithm": type(model).__name__, "weights": weights}, file)
    write_bytes(Path(path), file.getvalue())


def load_weights(model: BaseAlgorithm, path: str | Path) -> None:
    """Read networks into a model of the same algorithm and sizes; no code in the file is run."""
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
    # torch's own error lists every tensor in as many lines; the first one that differs is enough
    expected, given = model.policy.state_dict(), content["weights"]
    for name in dict.fromkeys([*expected, *given]):
        here, there = (tuple(w[name].shape) if name in w else None for w in (expected, given))
        if here != there:
            raise InvalidArgument(
                f"path must fit the model: {name} has size {here} in the model, {there} in the file"
            )
    model.policy.load_state_dict(given)
