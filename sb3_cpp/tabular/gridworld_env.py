"""The danger gridworld as a gymnasium environment, so that the deep algorithms run on it too."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import register, registry
from numpy.typing import NDArray

from sb3_cpp.checks import check_choice
from sb3_cpp.tabular.gridworld import ACTIONS, DangerGrid

ENV_ID = "sb3_cpp/DangerGridworld-v0"
MAX_STEPS = 20
"""The paper ends an iteration after 20 steps or at the goal."""

_CELL = 32
_BACKGROUND, _LINE = (245, 245, 245), (200, 200, 200)
_DANGER, _GOAL, _AGENT = (
    (213, 94, 0),
    (0, 158, 115),
    (0, 114, 178),
)  # Okabe-Ito: vermillion, green, blue


class DangerGridworldEnv(gym.Env[np.int64, np.int64]):
    """Observation: the number of the cell, row by row. Actions: up, right, down, left. See :class:`DangerGrid` for the rest.

    :param render_mode: None, "ansi" (text) or "rgb_array"
    :param layout: arguments of :class:`DangerGrid`, such as ``success_probability``
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (an instance variable of gym.Env)

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
        if self._state == self.grid.goal:
            raise RuntimeError("the episode ended at the goal, call reset()")
        self._state = int(
            self.np_random.choice(self.grid.n_states, p=self._transition[self._state, int(action)])
        )
        info = {"danger": bool(self._danger[self._state])}
        return (
            np.int64(self._state),
            float(self._reward[self._state]),
            self._state == self.grid.goal,
            False,
            info,
        )

    def render(self) -> str | NDArray[np.uint8] | None:
        if self.render_mode == "ansi":
            return self._text()
        return self._picture() if self.render_mode == "rgb_array" else None

    def _text(self) -> str:
        """A = agent, X = danger, G = goal."""
        marks = np.where(self._danger, "X", ".")
        marks[self.grid.goal] = "G"
        marks[self._state] = "A"
        return "\n".join(" ".join(row) for row in marks.reshape(self.grid.size, -1))

    def _picture(self) -> NDArray[np.uint8]:
        cells = np.full((self.grid.n_states, 3), _BACKGROUND, dtype=np.uint8)
        cells[self._danger] = _DANGER
        cells[self.grid.goal] = _GOAL
        picture = (
            cells.reshape(self.grid.size, self.grid.size, 3)
            .repeat(_CELL, axis=0)
            .repeat(_CELL, axis=1)
        )
        picture[::_CELL] = picture[:, ::_CELL] = _LINE
        y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
        row, column = divmod(self._state, self.grid.size)
        disc = (y - (row + 0.5) * _CELL) ** 2 + (x - (column + 0.5) * _CELL) ** 2 < (
            0.32 * _CELL
        ) ** 2
        picture[disc] = _AGENT
        return picture


def register_envs() -> None:
    """Make ``gymnasium.make("sb3_cpp/DangerGridworld-v0")`` work; calling it again does nothing."""
    if ENV_ID not in registry:
        entry_point = f"{DangerGridworldEnv.__module__}:{DangerGridworldEnv.__name__}"
        register(id=ENV_ID, entry_point=entry_point, max_episode_steps=MAX_STEPS)
