"""Rollouts in the gridworld for many trials at once, what is expected of them, and the model their counts give."""

from typing import NamedTuple

import torch as th

from sb3_cpp.tabular.gridworld import DangerGrid
from sb3_cpp.tabular.mdp import MDP


class Rollout(NamedTuple):
    """One episode per trial."""

    counts: th.Tensor
    """Transitions seen, shape (trials, S, A, S)."""
    returns: th.Tensor
    """Undiscounted sum of rewards, shape (trials,)."""
    danger_visits: th.Tensor
    """Steps into danger, shape (trials,)."""


class ExpectedRollout(NamedTuple):
    """The means of :class:`Rollout` over the randomness of policy and world, shape (trials,)."""

    returns: th.Tensor
    danger_visits: th.Tensor


def _sample(probabilities: th.Tensor, generator: th.Generator) -> th.Tensor:
    """One index per row, by inversion."""
    cumulative = probabilities.cumsum(-1)
    u = th.rand(*probabilities.shape[:-1], 1, dtype=th.float64, generator=generator)
    return (u >= cumulative).sum(-1).clamp(max=probabilities.shape[-1] - 1)


def rollout(
    grid: DangerGrid, log_policy: th.Tensor, horizon: int, generator: th.Generator
) -> Rollout:
    """Act from the start until the goal or the horizon; ``log_policy`` has shape (trials, S, A)."""
    trials = log_policy.shape[0]
    trial, policy, transition = th.arange(trials), log_policy.exp(), grid.transition
    counts = th.zeros(trials, *transition.shape, dtype=th.float64)
    returns, danger_visits = th.zeros(trials, dtype=th.float64), th.zeros(trials, dtype=th.float64)
    state = th.zeros(trials, dtype=th.int64)
    for _ in range(horizon):
        running = (state != grid.goal).double()
        action = _sample(policy[trial, state], generator)
        following = _sample(transition[state, action], generator)
        counts[trial, state, action, following] += running
        returns += running * grid.entry_reward[following]
        danger_visits += running * grid.danger_states[following]
        state = following
    return Rollout(counts, returns, danger_visits)


def expected_rollout(grid: DangerGrid, log_policy: th.Tensor, horizon: int) -> ExpectedRollout:
    """Exact expectation of a rollout's return and danger visits, by carrying the distribution of the state forward."""
    world = grid.mdp(gamma=0.0)
    p = world.state_transition(log_policy)
    reward = (log_policy.exp() * world.reward).sum(-1)
    state = th.zeros(p.shape[:-1], dtype=th.float64)
    state[..., 0] = 1.0
    returns, danger_visits = th.zeros_like(state[..., 0]), th.zeros_like(state[..., 0])
    for _ in range(horizon):
        returns += (state * reward).sum(-1)
        state = (state[..., None, :] @ p).squeeze(-2)
        danger_visits += state @ grid.danger_states
    return ExpectedRollout(returns, danger_visits)


def model_from_counts(grid: DangerGrid, counts: th.Tensor, gamma: float) -> MDP:
    """Relative frequencies and mean rewards; a pair never tried counts as ending the episode with reward 0.

    Since nearly every step costs something, that value of 0 is optimistic: it is what makes the learner try new cells.
    """
    visits = counts.sum(-1, keepdim=True)
    end = th.zeros(grid.n_states, dtype=th.float64)
    end[grid.goal] = 1.0
    transition = th.where(visits > 0.0, counts / visits.clamp(min=1.0), end)
    reward = (counts @ grid.entry_reward) / visits.squeeze(-1).clamp(min=1.0)
    return MDP(transition, reward, gamma)
