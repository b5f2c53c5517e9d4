"""The gridworld with danger (CPP Section 5.1) as an exact MDP.

A square grid; the start is the upper left corner, the goal the lower right one. A move succeeds with ``success_probability``
and otherwise goes in one of the three other directions; a wall stops it. A step brings -0.1, into a danger cell -1 instead,
into the goal +1 instead (so rewards stay within [-1, 1]); the goal ends the episode.
"""

from dataclasses import dataclass
from functools import cached_property

import torch as th

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number
from sb3_cpp.tabular.mdp import MDP

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


@dataclass(frozen=True)
class DangerGrid:
    """Layout and rewards; states are numbered row by row.

    :param size: cells per side
    :param danger: cells (row, column), counted from 0; the default lies in the middle, as in the paper
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
            if (
                len(cell) != 2
                or not all(isinstance(c, int) and 0 <= c < self.size for c in cell)
                or tuple(cell) in corners
            ):
                raise InvalidArgument(
                    f"danger must list cells (row, column) of the grid, not start or goal, got {cell!r}"
                )
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
        """P(s'|s,a), shape (S, 4, S); the goal keeps itself."""
        slip = (1.0 - self.success_probability) / (len(ACTIONS) - 1)
        p = th.zeros(self.n_states, len(ACTIONS), self.n_states, dtype=th.float64)
        for s in range(self.n_states - 1):
            for direction, (down, right) in enumerate(MOVES):
                row = min(max(s // self.size + down, 0), self.size - 1)
                column = min(max(s % self.size + right, 0), self.size - 1)
                for action in range(len(ACTIONS)):
                    p[s, action, self.state(row, column)] += (
                        self.success_probability if action == direction else slip
                    )
        p[self.goal, :, self.goal] = 1.0
        return p

    def mdp(self, gamma: float) -> MDP:
        """The same world with expected rewards r(s,a), and none at the goal."""
        reward = self.transition @ self.entry_reward
        reward[self.goal] = 0.0
        return MDP(self.transition, reward, gamma)
