"""A learned policy on its own: it acts in a gymnasium environment, and answers ``predict`` as SB3's models do."""

from pathlib import Path
from typing import Any

import numpy as np
import torch as th

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.linear.features import RadialBasis, StateFeatures
from sb3_cpp.regularization import log_boltzmann


class LinearPolicy:
    """``softmax(preferences . phi(s) / temperature)`` of one trial, or its most probable action.

    ``predict`` has SB3's signature, so that ``stable_baselines3.common.evaluation.evaluate_policy`` takes it as a model.

    :param state_features: maps states (..., dims) to (..., M)
    :param preferences: one vector of weights per action, shape (actions, M)
    :param temperature: of the sampled policy (``deterministic=False``)
    :param seed: of the sampled policy
    """

    def __init__(
        self,
        state_features: StateFeatures,
        preferences: th.Tensor,
        temperature: float,
        seed: int = 0,
    ) -> None:
        self.state_features, self.preferences, self.temperature = (
            state_features,
            preferences,
            temperature,
        )
        self.generator = th.Generator().manual_seed(seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Actions for observations of shape (..., dims); ``state`` is handed back, there is no memory."""
        states = np.asarray(observation, dtype=self.preferences.numpy().dtype)
        values = th.from_numpy(self.state_features(states)) @ self.preferences.T
        if deterministic:
            return values.argmax(-1).numpy(), state
        probabilities = log_boltzmann(values, self.temperature).exp()
        actions = th.multinomial(
            probabilities.reshape(-1, values.shape[-1]), 1, generator=self.generator
        )
        return actions.reshape(values.shape[:-1]).numpy(), state


def save_weights(
    path: str | Path, basis: RadialBasis, preferences: th.Tensor, temperature: float
) -> None:
    """Write the preferences of all trials, (trials, actions, M), and the grid they belong to, as a plain ``.npz``."""
    arrays = {name: np.asarray(value) for name, value in basis.arguments.items()}
    np.savez(
        path, allow_pickle=False, preferences=preferences.numpy(), temperature=temperature, **arrays
    )


def load_policy(path: str | Path, trial: int = 0) -> LinearPolicy:
    """The policy of one trial from a file of :func:`save_weights`."""
    with np.load(path) as file:
        content = dict(file)
    preferences, temperature = (
        th.from_numpy(content.pop("preferences")),
        float(content.pop("temperature")),
    )
    if not 0 <= trial < len(preferences):
        raise InvalidArgument(
            f"trial must be a whole number in [0, {len(preferences) - 1}], got {trial!r}"
        )
    basis = RadialBasis(**{name: value.tolist() for name, value in content.items()})
    return LinearPolicy(basis, preferences[trial], temperature)
