"""Many trials side by side: what the array program asks of an environment, and any gymnasium environment made to answer it."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike

from sb3_cpp.checks import InvalidArgument, check_whole_number


class Transition(NamedTuple):
    """One step of every trial; where an episode ended, ``states`` is the start of the next one, ``arrived`` the last state."""

    states: np.ndarray  # (trials, dims): where each trial goes on
    rewards: np.ndarray  # (trials,)
    arrived: np.ndarray  # (trials, dims): where the action led
    terminated: np.ndarray  # (trials,)
    truncated: np.ndarray  # (trials,)


class BatchEnv(Protocol):
    """Independent copies of one environment with flat states and discrete actions."""

    n_trials: int
    n_actions: int
    dtype: np.dtype

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Start every trial anew; states (trials, dims)."""

    def step(self, actions: np.ndarray) -> Transition:
        """One action per trial; a finished episode is followed by the start of the next."""


class GymBatch:
    """Copies of a gymnasium environment with a flat Box observation and Discrete actions, one per trial.

    :param make: builds one environment, or its registered id
    :param n_trials: number of copies
    """

    def __init__(
        self, make: str | Callable[[], gym.Env], n_trials: int = 1, dtype: DTypeLike = np.float32
    ) -> None:
        self.n_trials, self.dtype = check_whole_number("n_trials", n_trials, 1), np.dtype(dtype)
        first = self._make(make)
        observations, actions = first.observation_space, first.action_space
        if not isinstance(observations, gym.spaces.Box) or len(observations.shape) != 1:
            raise InvalidArgument(f"observation space must be a flat Box, got {observations}")
        if not isinstance(actions, gym.spaces.Discrete):
            raise InvalidArgument(f"action space must be Discrete, got {actions}")
        self.observation_space = observations
        self.n_actions, self._first_action = int(actions.n), int(actions.start)
        self.envs = [first] + [self._make(make) for _ in range(self.n_trials - 1)]

    @staticmethod
    def _make(make: str | Callable[[], gym.Env]) -> gym.Env:
        return gym.make(make, disable_env_checker=True) if isinstance(make, str) else make()

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Start every trial anew; with a seed, trial i is seeded with a number drawn from it."""
        seeds: list[Any] = [None] * self.n_trials
        if seed is not None:
            seeds = np.random.SeedSequence(seed).generate_state(self.n_trials).tolist()
        return self._array([env.reset(seed=s)[0] for env, s in zip(self.envs, seeds)])

    def step(self, actions: np.ndarray) -> Transition:
        states, rewards, arrived, terminated, truncated = [], [], [], [], []
        for env, action in zip(self.envs, actions.tolist()):
            observation, reward, end, cut, _ = env.step(action + self._first_action)
            arrived.append(observation)
            states.append(env.reset()[0] if end or cut else observation)
            rewards.append(float(reward))
            terminated.append(bool(end))
            truncated.append(bool(cut))
        return Transition(
            self._array(states),
            self._array(rewards),
            self._array(arrived),
            np.array(terminated),
            np.array(truncated),
        )

    def _array(self, rows: list[Any]) -> np.ndarray:
        return np.asarray(rows, dtype=self.dtype)
