"""Many trials side by side: batched environments, and one iteration's experience from them."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
import torch as th
from numpy.typing import DTypeLike

from sb3_cpp.checks import InvalidArgument, check_whole_number
from sb3_cpp.linear.features import LinearQ
from sb3_cpp.linear.policy import Mixture, StatewiseMixture


class Transition(NamedTuple):
    """One step of every trial."""

    # (trials, dims): after the end of an episode, the start of the next one
    states: np.ndarray
    rewards: np.ndarray  # (trials,)
    arrived: np.ndarray  # (trials, dims): where the action led, also at the end of an episode
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
    """Copies of a gymnasium environment with a flat Box observation and Discrete actions.

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
        # the checker's warnings would come once per copy
        return gym.make(make, disable_env_checker=True) if isinstance(make, str) else make()

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Start every trial anew; with a seed, trial i is seeded with a number drawn from it."""
        seeds: list[Any] = [None] * self.n_trials
        if seed is not None:
            # not seed + i, which another run with the next seed would use again
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
        numbers = self._array(states), self._array(rewards), self._array(arrived)
        return Transition(*numbers, np.array(terminated), np.array(truncated))

    def _array(self, rows: list[Any]) -> np.ndarray:
        return np.asarray(rows, dtype=self.dtype)


class BadObservation(ValueError):
    """The environment returned a state or reward that is not a number."""


class Buffer(NamedTuple):
    """The transitions (s_t, a_t, r_t, s_{t+1}) of one iteration, states as features."""

    phi: th.Tensor  # (trials, steps, M)
    actions: th.Tensor  # (trials, steps)
    rewards: th.Tensor  # (trials, steps)
    next_phi: th.Tensor  # (trials, steps, M)
    terminated: th.Tensor  # (trials, steps)


class Rollout(NamedTuple):
    """A buffer, and what is reported of it."""

    buffer: Buffer
    states: th.Tensor  # (trials, steps, dims)
    returns: th.Tensor  # (trials,)


def collect(
    env: BatchEnv,
    q: LinearQ,
    policy: Mixture | StatewiseMixture,
    steps: int,
    generator: th.Generator,
    seed: int | None = None,
) -> Rollout:
    """Reset every trial and take ``steps`` steps with the policy.

    An action is drawn as ``argmax_a preference(s,a) + temperature * g_a`` with Gumbel noise g.
    """
    # That is exactly the law softmax(preference / temperature), without computing it. All noise is
    # drawn in one call before the first step: a call per step takes as long as the physics.
    n = env.n_trials
    preferences = policy.acting(steps, generator)
    dtype = th.from_numpy(np.empty(0, dtype=env.dtype)).dtype
    exponential = th.empty(steps, n, env.n_actions, dtype=dtype)
    gumbel = -exponential.exponential_(generator=generator).log()
    noise = (policy.temperature * gumbel).numpy()
    states = env.reset(seed)
    phi = q.state_features(states)
    all_phi = np.empty((n, steps + 1, phi.shape[-1]), dtype=phi.dtype)
    visited, actions, transitions = [], [], []
    for t in range(steps):
        all_phi[:, t] = phi
        action = (np.einsum("nam,nm->na", preferences(t, phi), phi) + noise[t]).argmax(1)
        transition = env.step(action)
        visited.append(states)
        actions.append(action)
        transitions.append(transition)
        states = transition.states
        phi = q.state_features(states)
    _, rewards, arrived, terminated, truncated = map(_side_by_side, zip(*transitions))
    visits, ended = _side_by_side(visited), terminated | truncated
    # checked once per rollout, not per step; a NaN until then only makes actions arbitrary
    _check_finite("observation", visits, first_step=0)
    _check_finite("observation", arrived, first_step=1)
    _check_finite("reward", rewards.unsqueeze(-1), first_step=1)
    all_phi[:, -1] = q.state_features(arrived[:, -1].numpy())
    every_phi = th.from_numpy(all_phi)
    next_phi = every_phi[:, 1:]
    if ended[:, :-1].any():  # there, the next state in the list is the start of another episode
        next_phi = next_phi.clone()
        next_phi[ended] = th.from_numpy(q.state_features(arrived[ended].numpy()))
    buffer = Buffer(every_phi[:, :-1], _side_by_side(actions), rewards, next_phi, terminated)
    return Rollout(buffer, visits, episode_return(rewards, ended))


def _side_by_side(steps: Sequence[np.ndarray]) -> th.Tensor:
    """One array (trials, ...) per step -> one tensor (trials, steps, ...)."""
    # contiguous, because trials and steps are flattened into one dimension later
    return th.from_numpy(np.ascontiguousarray(np.array(steps).swapaxes(0, 1)))


def episode_return(rewards: th.Tensor, ended: th.Tensor) -> th.Tensor:
    """Mean return of the episodes that ended; where none did, the return so far.

    Both arguments have shape (trials, steps), the result (trials,).
    """
    # every trial has another number of episodes, so they are counted instead of split
    so_far = rewards.double().cumsum(dim=-1)
    episodes = ended.sum(dim=-1)
    before_last_end = ended.cumsum(dim=-1) < episodes.unsqueeze(-1)
    last_end = before_last_end.sum(dim=-1, keepdim=True).clamp(max=rewards.shape[-1] - 1)
    mean = so_far.gather(-1, last_end).squeeze(-1) / episodes.clamp(min=1)
    return th.where(episodes > 0, mean, so_far[:, -1])


def _check_finite(name: str, values: th.Tensor, first_step: int) -> None:
    """Refuse values (trials, steps, ...) that are not numbers.

    :param first_step: number of steps after which the first column was seen
    """
    bad = ~th.isfinite(values).all(dim=-1)
    if bad.any():
        trial, step = (int(i) for i in bad.nonzero()[0])
        raise BadObservation(
            f"{name} must be finite, got {values[trial, step].tolist()} in trial {trial} "
            f"after {first_step + step} steps"
        )
