"""One iteration's experience: every trial acts with its deployed mixture and fills its on-policy buffer."""

from typing import NamedTuple

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
    env: BatchEnv, q: LinearQ, policy: Mixture, steps: int, generator: th.Generator, seed: int | None = None
) -> Rollout:
    """Start anew and take ``steps`` steps with the mixture.

    An action is drawn as ``argmax_a preference(s,a) + temperature * g_a`` with Gumbel noise g: exactly the law
    ``softmax(preference / temperature)``, without computing it.
    """
    n = env.n_trials
    members = th.cat(policy.members)  # (members * trials, actions, M)
    acting = policy.draw_members(steps, generator) * n + th.arange(n)
    gumbel = -th.empty(steps, n, env.n_actions, dtype=env.dtype).exponential_(generator=generator).log()
    noise = (policy.temperature * gumbel).unsqueeze(-1)
    states = env.reset(seed)
    phi = q.state_features(states)
    all_phi = phi.new_empty(n, steps + 1, phi.shape[-1])
    columns = all_phi.unsqueeze(-1).unbind(1)
    visited, actions, transitions = [], [], []
    for member, noise_t, rows, column in zip(acting.unbind(0), noise.unbind(0), all_phi.unbind(1), columns):
        rows.copy_(phi)
        preferences = members.index_select(0, member) if len(members) > n else members
        action = th.baddbmm(noise_t, preferences, column).argmax(1).squeeze(-1)
        transition = env.step(action)
        visited.append(states)
        actions.append(action)
        transitions.append(transition)
        states = transition.states
        phi = q.state_features(states)
    _, rewards, arrived, terminated, truncated = (th.stack(column, dim=1) for column in zip(*transitions))
    states, ended = th.stack(visited, dim=1), terminated | truncated
    _check_finite("observation", states, first_step=0)
    _check_finite("observation", arrived, first_step=1)
    _check_finite("reward", rewards.unsqueeze(-1), first_step=1)
    all_phi[:, -1] = q.state_features(arrived[:, -1])
    next_phi = all_phi[:, 1:]
    if ended[:, :-1].any():  # there, the next state in the list is the start of another episode
        next_phi = next_phi.clone()
        next_phi[ended] = q.state_features(arrived[ended])
    buffer = Buffer(all_phi[:, :-1], th.stack(actions, dim=1), rewards, next_phi, terminated)
    return Rollout(buffer, states, episode_return(rewards, ended))


def episode_return(rewards: th.Tensor, ended: th.Tensor) -> th.Tensor:
    """Mean return of the episodes that ended within the iteration; where none did, the return so far. (trials, steps) each."""
    so_far = rewards.double().cumsum(dim=-1)
    episodes = ended.sum(dim=-1)
    last_end = (ended.cumsum(dim=-1) < episodes.unsqueeze(-1)).sum(dim=-1, keepdim=True).clamp(max=rewards.shape[-1] - 1)
    return th.where(episodes > 0, so_far.gather(-1, last_end).squeeze(-1) / episodes.clamp(min=1), so_far[:, -1])


def _check_finite(name: str, values: th.Tensor, first_step: int) -> None:
    """Refuse values (trials, steps, ...) that are not numbers; their first column was seen after ``first_step`` steps."""
    bad = ~th.isfinite(values).all(dim=-1)
    if bad.any():
        trial, step = (int(i) for i in bad.nonzero()[0])
        raise BadObservation(
            f"{name} must be finite, got {values[trial, step].tolist()} in trial {trial} after {first_step + step} steps"
        )
