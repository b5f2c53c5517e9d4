"""One iteration's experience: every trial acts with its deployed mixture and fills its on-policy buffer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch as th

from sb3_cpp.linear.batch import BatchEnv
from sb3_cpp.linear.linear_q import LinearQ
from sb3_cpp.linear.mixture import Mixture


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
    policy: Mixture,
    steps: int,
    generator: th.Generator,
    seed: int | None = None,
) -> Rollout:
    """Start anew and take ``steps`` steps with the mixture.

    An action is drawn as ``argmax_a preference(s,a) + temperature * g_a`` with Gumbel noise g: exactly the law
    ``softmax(preference / temperature)``, without computing it.
    """
    n = env.n_trials
    members = th.cat(policy.members).numpy()  # (members * trials, actions, M)
    acting = (policy.draw_members(steps, generator) * n + th.arange(n)).numpy()
    gumbel = (
        -th.empty(steps, n, env.n_actions, dtype=policy.members[0].dtype)
        .exponential_(generator=generator)
        .log()
    )
    noise = (policy.temperature * gumbel).numpy()
    states = env.reset(seed)
    phi = q.state_features(states)
    all_phi = np.empty((n, steps + 1, phi.shape[-1]), dtype=phi.dtype)
    visited, actions, transitions = [], [], []
    for t in range(steps):
        all_phi[:, t] = phi
        preferences = members.take(acting[t], axis=0) if len(members) > n else members
        action = (np.einsum("nam,nm->na", preferences, phi) + noise[t]).argmax(1)
        transition = env.step(action)
        visited.append(states)
        actions.append(action)
        transitions.append(transition)
        states = transition.states
        phi = q.state_features(states)
    _, rewards, arrived, terminated, truncated = map(_side_by_side, zip(*transitions))
    visits, ended = _side_by_side(visited), terminated | truncated
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
    return th.from_numpy(np.ascontiguousarray(np.array(steps).swapaxes(0, 1)))


def episode_return(rewards: th.Tensor, ended: th.Tensor) -> th.Tensor:
    """Mean return of the episodes that ended within the iteration; where none did, the return so far. (trials, steps) each."""
    so_far = rewards.double().cumsum(dim=-1)
    episodes = ended.sum(dim=-1)
    last_end = (
        (ended.cumsum(dim=-1) < episodes.unsqueeze(-1))
        .sum(dim=-1, keepdim=True)
        .clamp(max=rewards.shape[-1] - 1)
    )
    return th.where(
        episodes > 0, so_far.gather(-1, last_end).squeeze(-1) / episodes.clamp(min=1), so_far[:, -1]
    )


def _check_finite(name: str, values: th.Tensor, first_step: int) -> None:
    """Refuse values (trials, steps, ...) that are not numbers; their first column was seen after ``first_step`` steps."""
    bad = ~th.isfinite(values).all(dim=-1)
    if bad.any():
        trial, step = (int(i) for i in bad.nonzero()[0])
        raise BadObservation(
            f"{name} must be finite, got {values[trial, step].tolist()} in trial {trial} after {first_step + step} steps"
        )
