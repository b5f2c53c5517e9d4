"""The gridworld with danger (CPP Section 5.1): exact MDP, gymnasium environment, rollouts.

A square grid; the start is the upper left corner, the goal the lower right one. A move succeeds
with ``success_probability`` and otherwise goes in one of the three other directions; a wall stops
it. A step brings -0.1, into a danger cell -1 instead, into the goal +1 instead (so rewards stay
within [-1, 1]); the goal ends the episode.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.tabular.mdp import MDP

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ENV_ID = "sb3_cpp/DangerGridworld-v0"
MAX_STEPS = 20  # the paper ends an iteration after 20 steps or at the goal


@dataclass(frozen=True)
class DangerGrid:
    """Layout and rewards; states are numbered row by row.

    :param size: cells per side
    :param danger: cells (row, column), counted from 0; by default in the middle, as in the paper
    :param success_probability: of moving where the action says (the paper gives none)
    """

    size: int = 5
    danger: tuple[tuple[int, int], ...] = ((2, 2), (2, 3))
    success_probability: float = 0.9
    step_reward: float = -0.1
    danger_reward: float = -1.0
    goal_reward: float = 1.0

    def __post_init__(self) -> None:
        check_whole_number("size", self.size, 2)
        check_number("success_probability", self.success_probability, 0.0, 1.0)
        corners = ((0, 0), (self.size - 1, self.size - 1))
        for cell in self.danger:
            inside = all(isinstance(c, int) and 0 <= c < self.size for c in cell)
            if len(cell) != 2 or not inside or tuple(cell) in corners:
                raise InvalidArgument(
                    "danger must list cells (row, column) of the grid, not start or goal, "
                    f"got {cell!r}"
                )
        # the bounds and A-SPI's coefficient assume rewards in [-1, 1]
        for name in ("step_reward", "danger_reward", "goal_reward"):
            check_number(name, getattr(self, name), -1.0, 1.0)

    @property
    def n_states(self) -> int:
        return self.size**2

    @property
    def goal(self) -> int:
        """The terminal state."""
        return self.n_states - 1

    def state(self, row: int, column: int) -> int:
        return row * self.size + column

    @cached_property
    def danger_states(self) -> th.Tensor:
        """1 where the state is dangerous, shape (S,)."""
        marks = th.zeros(self.n_states, dtype=th.float64)
        for row, column in self.danger:
            marks[self.state(row, column)] = 1.0
        return marks

    @cached_property
    def entry_reward(self) -> th.Tensor:
        """Reward of a step that ends in the state, shape (S,)."""
        reward = th.full((self.n_states,), self.step_reward, dtype=th.float64)
        reward[self.danger_states > 0.0] = self.danger_reward
        reward[self.goal] = self.goal_reward
        return reward

    @cached_property
    def transition(self) -> th.Tensor:
        """``P(s'|s,a)``, shape (S, 4, S); the goal keeps itself."""
        # the paper's "random different direction", read as one of the three others
        slip = (1.0 - self.success_probability) / (len(ACTIONS) - 1)
        p = th.zeros(self.n_states, len(ACTIONS), self.n_states, dtype=th.float64)
        for s in range(self.n_states - 1):
            for direction, (down, right) in enumerate(MOVES):
                row = min(max(s // self.size + down, 0), self.size - 1)
                column = min(max(s % self.size + right, 0), self.size - 1)
                for action in range(len(ACTIONS)):
                    share = self.success_probability if action == direction else slip
                    p[s, action, self.state(row, column)] += share
        p[self.goal, :, self.goal] = 1.0
        return p

    def mdp(self, gamma: float) -> MDP:
        """The same grid with expected rewards r(s,a), and none at the goal."""
        reward = self.transition @ self.entry_reward
        reward[self.goal] = 0.0
        return MDP(self.transition, reward, gamma)


# --- many trials at once --------------------------------------------------------------------------


class Rollout(NamedTuple):
    """One episode per trial."""

    counts: th.Tensor  # transitions seen, shape (trials, S, A, S)
    returns: th.Tensor  # undiscounted sum of rewards, shape (trials,)
    danger_visits: th.Tensor  # steps into danger, shape (trials,)


def _sample(probabilities: th.Tensor, generator: th.Generator) -> th.Tensor:
    """One index per row, by inversion."""
    cumulative = probabilities.cumsum(-1)
    u = th.rand(*probabilities.shape[:-1], 1, dtype=th.float64, generator=generator)
    # the clamp: rounding may leave the last sum below u
    return (u >= cumulative).sum(-1).clamp(max=probabilities.shape[-1] - 1)


def rollout(
    grid: DangerGrid, log_policy: th.Tensor, horizon: int, generator: th.Generator
) -> Rollout:
    """Act from the start until the goal or the horizon; policies of shape (trials, S, A)."""
    trials = log_policy.shape[0]
    trial, policy, transition = th.arange(trials), log_policy.exp(), grid.transition
    counts = th.zeros(trials, *transition.shape, dtype=th.float64)
    returns, danger_visits = th.zeros(trials, dtype=th.float64), th.zeros(trials, dtype=th.float64)
    state = th.zeros(trials, dtype=th.int64)
    for _ in range(horizon):
        # A trial at its goal steps on uncounted: when it ends must not change which random numbers
        # the others draw.
        running = (state != grid.goal).double()
        action = _sample(policy[trial, state], generator)
        following = _sample(transition[state, action], generator)
        counts[trial, state, action, following] += running
        returns += running * grid.entry_reward[following]
        danger_visits += running * grid.danger_states[following]
        state = following
    return Rollout(counts, returns, danger_visits)


def expected_rollout(
    grid: DangerGrid, log_policy: th.Tensor, horizon: int
) -> tuple[th.Tensor, th.Tensor]:
    """Exact means of return and danger visits: the state distribution, carried forward in time."""
    mdp = grid.mdp(gamma=0.0)  # only its rewards and transitions are used
    p = mdp.state_transition(log_policy)
    reward = (log_policy.exp() * mdp.reward).sum(-1)
    state = th.zeros(p.shape[:-1], dtype=th.float64)
    state[..., 0] = 1.0
    returns, danger_visits = th.zeros_like(state[..., 0]), th.zeros_like(state[..., 0])
    for _ in range(horizon):
        returns += (state * reward).sum(-1)
        state = (state[..., None, :] @ p).squeeze(-2)
        danger_visits += state @ grid.danger_states
    return returns, danger_visits


def model_from_counts(grid: DangerGrid, counts: th.Tensor, gamma: float) -> MDP:
    """Relative frequencies and mean rewards; an untried pair ends the episode with reward 0."""
    # Since nearly every step costs something, that value of 0 is optimistic: the learner tries new
    # cells because of it.
    visits = counts.sum(-1, keepdim=True)
    end = th.zeros(grid.n_states, dtype=th.float64)
    end[grid.goal] = 1.0
    transition = th.where(visits > 0.0, counts / visits.clamp(min=1.0), end)
    reward = (counts @ grid.entry_reward) / visits.squeeze(-1).clamp(min=1.0)
    return MDP(transition, reward, gamma)


# --- the gymnasium environment --------------------------------------------------------------------

_CELL = 32
_BACKGROUND, _LINE = (245, 245, 245), (200, 200, 200)
# Okabe-Ito: vermillion, green, blue
_DANGER, _GOAL, _AGENT = (213, 94, 0), (0, 158, 115), (0, 114, 178)


class DangerGridworldEnv(gym.Env[np.int64, np.int64]):
    """Observation: the number of the cell, row by row. Actions: up, right, down, left.

    :param render_mode: None, "ansi" (text) or "rgb_array"
    :param layout: arguments of :class:`DangerGrid`, such as ``success_probability``
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (gymnasium's own form)
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 4,
    }

    def __init__(self, render_mode: str | None = None, **layout: Any) -> None:
        if render_mode is not None:
            check_choice("render_mode", render_mode, self.metadata["render_modes"])
        self.render_mode = render_mode
        self.grid = DangerGrid(**layout)
        self.observation_space = gym.spaces.Discrete(self.grid.n_states)
        self.action_space = gym.spaces.Discrete(len(ACTIONS))
        self._transition = self.grid.transition.numpy()
        self._reward = self.grid.entry_reward.numpy()
        self._danger = self.grid.danger_states.numpy() > 0.0
        self._state = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self._state = 0
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        # the goal keeps itself, so stepping on would collect its reward again and again
        if self._state == self.grid.goal:
            raise RuntimeError("the episode ended at the goal, call reset()")
        following = self._transition[self._state, int(action)]
        self._state = int(self.np_random.choice(self.grid.n_states, p=following))
        reward, terminated = float(self._reward[self._state]), self._state == self.grid.goal
        info = {"danger": bool(self._danger[self._state])}
        return np.int64(self._state), reward, terminated, False, info

    def render(self) -> str | NDArray[np.uint8] | None:
        if self.render_mode == "ansi":
            marks = np.where(self._danger, "X", ".")
            marks[self.grid.goal] = "G"
            marks[self._state] = "A"  # last: the agent hides what it stands on
            return "\n".join(" ".join(row) for row in marks.reshape(self.grid.size, -1))
        return self._picture() if self.render_mode == "rgb_array" else None

    def _picture(self) -> NDArray[np.uint8]:
        size = self.grid.size
        cells = np.full((self.grid.n_states, 3), _BACKGROUND, dtype=np.uint8)
        cells[self._danger] = _DANGER
        cells[self.grid.goal] = _GOAL
        picture = cells.reshape(size, size, 3).repeat(_CELL, axis=0).repeat(_CELL, axis=1)
        picture[::_CELL] = picture[:, ::_CELL] = _LINE
        y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
        row, column = divmod(self._state, size)
        distance = np.hypot(y - (row + 0.5) * _CELL, x - (column + 0.5) * _CELL)
        picture[distance < 0.32 * _CELL] = _AGENT
        return picture


gym.register(ENV_ID, entry_point=f"{__name__}:DangerGridworldEnv", max_episode_steps=MAX_STEPS)
