"""One iteration's experience: every trial acts with its deployed mixture and fills its on-policy buffer."""

from typing import NamedTuple

import torch as th

from sb3_cpp.linear.batch import BatchEnv
from sb3_cpp.linear.features import LinearQ
from sb3_cpp.linear.mixture import Mixture
from sb3_cpp.regularization import log_boltzmann


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


def collect(env: BatchEnv, q: LinearQ, policy: Mixture, steps: int, generator: th.Generator, seed: int | None = None) -> Rollout:
    """Start anew and take ``steps`` steps with the mixture.

    An action is drawn as ``argmax_a log pi(a|s) + g_a`` with Gumbel noise g, which has exactly the law pi(.|s).
    """
    n = env.n_trials
    states = env.reset(seed)
    members, trials = th.stack(policy.members), th.arange(n)
    acting = policy.draw_members(steps, generator)
    gumbel = -th.empty(steps, n, env.n_actions, dtype=env.dtype).exponential_(generator=generator).log()
    seen, actions, transitions = [], [], []
    for member, noise in zip(acting.unbind(0), gumbel.unbind(0)):
        preferences = members[member, trials] if len(members) > 1 else members[0]
        values = (preferences @ q.state_features(states).unsqueeze(-1)).squeeze(-1)
        action = (log_boltzmann(values, policy.temperature) + noise).argmax(-1)
        transition = env.step(action)
        seen.append(states)
        actions.append(action)
        transitions.append(transition)
        states = transition.states
    visited = th.stack(seen, dim=1)
    _, rewards, arrived, terminated, truncated = (th.stack(column, dim=1) for column in zip(*transitions))
    for name, tensor in (("observation", visited), ("observation", arrived), ("reward", rewards.unsqueeze(-1))):
        _check_finite(name, tensor)
    buffer = Buffer(q.state_features(visited), th.stack(actions, dim=1), rewards, q.state_features(arrived), terminated)
    return Rollout(buffer, visited, episode_return(rewards, terminated | truncated))


def episode_return(rewards: th.Tensor, ended: th.Tensor) -> th.Tensor:
    """Mean return of the episodes that ended within the iteration; where none did, the return so far. (trials, steps) each."""
    so_far = rewards.double().cumsum(dim=-1)
    episodes = ended.sum(dim=-1)
    last_end = (ended.cumsum(dim=-1) < episodes.unsqueeze(-1)).sum(dim=-1, keepdim=True).clamp(max=rewards.shape[-1] - 1)
    return th.where(episodes > 0, so_far.gather(-1, last_end).squeeze(-1) / episodes.clamp(min=1), so_far[:, -1])


def _check_finite(name: str, values: th.Tensor) -> None:
    bad = ~th.isfinite(values).all(dim=-1)
    if bad.any():
        trial, step = (int(i) for i in bad.nonzero()[0])
        raise BadObservation(f"{name} must be finite, got {values[trial, step].tolist()} in trial {trial} at step {step}")
