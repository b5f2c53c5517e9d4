"""The paper's pendulum swing-up (CPP Sec. 5.2): a gymnasium environment, and one for many trials.

State [angle, velocity]: angle 0 is upright, -pi and pi hang down; an episode starts hanging at
rest. Three torques. Reward ``-(angle^2 + 0.01 velocity^2) / 10``.
"""
# Deviation: the paper prints a minus between the squares and puts the start at 0 and the goal at
# pi, against its own text (velocity is penalised, the pendulum starts hanging).

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import DTypeLike

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number
from sb3_cpp.linear.rollout import Transition

if TYPE_CHECKING:
    from PIL import ImageDraw

ENV_ID = "sb3_cpp/PendulumSwingUp-v0"
EPISODE_STEPS = 500


@dataclass(frozen=True)
class Physics:
    """A uniform rod as in gymnasium's Pendulum-v1; length, mass, torques, reward: the paper's."""

    length: float = 1.5
    mass: float = 1.0
    gravity: float = 10.0  # the paper gives none; gymnasium's value
    dt: float = 0.1
    max_speed: float = 8.0
    torques: tuple[float, ...] = (-2.0, 0.0, 2.0)
    angle_cost: float = 1.0  # a
    velocity_cost: float = 0.01  # b
    normaliser: float = 10.0  # z

    def constants(self, dtype: DTypeLike) -> list[np.ndarray]:
        """What :func:`move` computes with, in the precision of the states."""
        pull, push = 1.5 * self.gravity / self.length, 3.0 / (self.mass * self.length**2)
        costs = self.angle_cost, self.velocity_cost, -self.normaliser
        # arrays without dimension: numpy multiplies them twice as fast as Python's numbers
        numbers = (pull, push, self.dt, self.max_speed, math.pi, *costs)
        return [np.array(number, dtype=dtype) for number in numbers]


def move(
    angle: np.ndarray, velocity: np.ndarray, torque: np.ndarray, constants: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Next angle, next velocity and reward: ``acceleration = 3g/(2l) sin(angle) + 3u/(m l^2)``,
    velocity first; reward ``-(a angle^2 + b velocity^2) / z`` of the state it leads to.
    """
    pull, push, dt, max_speed, pi, angle_cost, velocity_cost, minus_z = constants
    acceleration = pull * np.sin(angle) + push * torque
    # np.clip takes three times as long on small arrays
    velocity = np.minimum(np.maximum(velocity + acceleration * dt, -max_speed), max_speed)
    angle = (angle + velocity * dt + pi) % (pi + pi) - pi  # to [-pi, pi)
    # The next state's reward is the paper's r_ss'. With that of the state before, the first
    # Q-function would not depend on the action at all.
    reward = (angle_cost * angle**2 + velocity_cost * velocity**2) / minus_z
    return angle, velocity, reward


class PendulumSwingUp(gym.Env[np.ndarray, np.int64]):
    """Swing the pendulum up and hold it there: ``sb3_cpp/PendulumSwingUp-v0``, 500 steps.

    ``reset(options={"angle": ..., "velocity": ...})`` starts elsewhere than hanging at rest.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (gymnasium's own form)
        "render_modes": ["rgb_array"],
        "render_fps": 10,
    }

    def __init__(self, render_mode: str | None = None, physics: Physics | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise InvalidArgument(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        self.render_mode, self.physics = render_mode, physics or Physics()
        self._constants = self.physics.constants(np.float64)
        bound = np.array([np.pi, self.physics.max_speed], dtype=np.float32)
        self.observation_space = gym.spaces.Box(-bound, bound, dtype=np.float32)
        self.action_space = gym.spaces.Discrete(len(self.physics.torques))
        self._place(-math.pi, 0.0)

    def _place(self, angle: float, velocity: float) -> None:
        # Arrays of one entry, because numpy's sine of a single number may round otherwise than its
        # vectorised one, and the motion is chaotic: the batch would soon be elsewhere.
        self._angle, self._velocity = np.array([angle]), np.array([velocity])
        self._torque = 0.0

    def _observation(self) -> np.ndarray:
        return np.concatenate((self._angle, self._velocity), dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        start = {"angle": -math.pi, "velocity": 0.0, **(options or {})}
        speed = self.physics.max_speed
        self._place(
            check_number("angle", start["angle"], -math.pi, math.pi),
            check_number("velocity", start["velocity"], -speed, speed),
        )
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            last = len(self.physics.torques) - 1
            raise InvalidArgument(f"action must be an integer in [0, {last}], got {action!r}")
        self._torque = self.physics.torques[int(action)]
        torque = np.array([self._torque])
        self._angle, self._velocity, reward = move(
            self._angle, self._velocity, torque, self._constants
        )
        return self._observation(), float(reward[0]), False, False, {}

    def render(self) -> np.ndarray | None:
        if self.render_mode is None:
            return None
        push = self._torque / max(map(abs, self.physics.torques))
        return draw_pendulum(float(self._angle[0]), push)


class PendulumBatch:
    """The same pendulum for many independent trials: the environment of the array program."""

    def __init__(
        self, n_trials: int, dtype: DTypeLike = np.float32, physics: Physics | None = None
    ) -> None:
        self.n_trials, self.dtype = check_whole_number("n_trials", n_trials, 1), np.dtype(dtype)
        self.physics = physics or Physics()
        self._constants = self.physics.constants(dtype)
        self.n_actions = len(self.physics.torques)
        self._torques = np.array(self.physics.torques, dtype=dtype)
        # made once: every step returns one of the two
        self._no, self._yes = np.zeros(n_trials, dtype=bool), np.ones(n_trials, dtype=bool)
        self.reset()

    def reset(self, seed: int | None = None) -> np.ndarray:
        """Hang every trial down at rest; nothing here is random. Returns states (trials, 2)."""
        self._angle = np.full(self.n_trials, -math.pi, dtype=self._torques.dtype)
        self._velocity = np.zeros_like(self._angle)
        self._steps = 0
        return self._states()

    def _states(self) -> np.ndarray:
        states = np.empty((self.n_trials, 2), dtype=self._angle.dtype)
        states[:, 0], states[:, 1] = self._angle, self._velocity
        return states

    def step(self, actions: np.ndarray) -> Transition:
        """Apply one action per trial; after 500 steps every trial is truncated and starts anew."""
        torque = self._torques.take(actions)
        self._angle, self._velocity, reward = move(
            self._angle, self._velocity, torque, self._constants
        )
        self._steps += 1
        arrived = self._states()
        truncated = self._steps == EPISODE_STEPS
        states = self.reset() if truncated else arrived
        return Transition(states, reward, arrived, self._no, self._yes if truncated else self._no)


# --- drawing --------------------------------------------------------------------------------------

SIZE = 240  # pixels
_OVERSAMPLING = 2  # drawn larger and scaled down, for smooth edges
_PAPER, _GREY = (255, 255, 255), (214, 219, 224)
_ROD, _BOB, _TORQUE = (58, 76, 99), (201, 84, 58), (226, 150, 40)


def draw_pendulum(angle: float, push: float, size: int = SIZE) -> np.ndarray:
    """Pivot, rod, bob, the goal above, and the torque as an arc: an RGB image (size, size, 3).

    :param angle: 0 is upright, growing clockwise
    :param push: the torque, in [-1, 1]
    """
    from PIL import Image, ImageDraw  # of an extra, and only pictures need it

    n = size * _OVERSAMPLING
    image = Image.new("RGB", (n, n), _PAPER)
    pen = ImageDraw.Draw(image)
    centre, rod, goal = n / 2, 0.36 * n, 0.062 * n

    pen.ellipse(_box(centre, centre, rod), outline=_GREY, width=max(1, n // 180))
    pen.ellipse(_box(centre, centre - rod, goal), outline=_GREY, width=max(2, n // 90))
    x, y = centre + rod * math.sin(angle), centre - rod * math.cos(angle)
    pen.line((centre, centre, x, y), fill=_ROD, width=n // 36)
    pen.ellipse(_box(x, y, 0.05 * n), fill=_BOB)
    if push != 0.0:
        _draw_push(pen, centre, 0.13 * n, push)
    pen.ellipse(_box(centre, centre, 0.025 * n), fill=_ROD)  # last, over rod and arc
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.uint8)


def _box(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return (x - radius, y - radius, x + radius, y + radius)


def _draw_push(pen: "ImageDraw.ImageDraw", centre: float, radius: float, push: float) -> None:
    """An arc around the pivot, headed in the direction of the torque, in proportion to it."""
    turn = math.copysign(1.0, push)
    half = 70.0 * min(abs(push), 1.0)
    arc_width = max(2, int(radius / 6))
    pen.arc(_box(centre, centre, radius), -90.0 - half, -90.0 + half, fill=_TORQUE, width=arc_width)
    tip = math.radians(-90.0 + turn * (half + 18.0))
    base = math.radians(-90.0 + turn * half)
    spread = radius / 3.2
    corners = [(radius, tip), (radius + spread, base), (radius - spread, base)]
    head = [(centre + r * math.cos(at), centre + r * math.sin(at)) for r, at in corners]
    pen.polygon(head, fill=_TORQUE)


gym.register(ENV_ID, entry_point=f"{__name__}:PendulumSwingUp", max_episode_steps=EPISODE_STEPS)
