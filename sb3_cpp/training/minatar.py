"""MinAtar as SB3 wants it: channels first, a picture to look at, and the usual small network."""

from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from sb3_cpp.checks import InvalidArgument

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_PIXELS = 32  # side of one of the 10 x 10 cells in a picture


class MinAtarEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """A MinAtar game with channels first: shape (channels, 10, 10), values 0 and 1, and a picture of ``_PIXELS`` a cell."""

    def __init__(self, env: gym.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        height, width, channels = env.observation_space.shape  # type: ignore[misc]
        self.observation_space = spaces.Box(0, 1, (channels, height, width), np.bool_)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return observation.transpose(2, 0, 1), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation.transpose(2, 0, 1), float(reward), terminated, truncated, info

    def render(self) -> Any:
        picture = self.env.render()
        if self.render_mode != "rgb_array":
            return picture
        scaled = (np.asarray(picture) * 255).astype(np.uint8)
        return scaled.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)


def make_minatar(env_id: str, **kwargs: Any) -> gym.Env[np.ndarray, int]:
    """A game by its id, ``MinAtar/Breakout-v1`` (v1: only the actions that do something, v0: all six)."""
    try:
        from minatar.gym import register_envs
    except ImportError as error:
        raise InvalidArgument(
            f"{env_id} needs MinAtar: pip install 'sb3_cpp[minatar]' ({error})"
        ) from None
    if env_id not in gym.registry:
        register_envs()
    # Its reset does not seed gymnasium's generator, which it does not use; the checker would say so at every start
    return MinAtarEnv(gym.make(env_id, disable_env_checker=True, **kwargs))


class MinAtarCNN(BaseFeaturesExtractor):
    """The network of the MinAtar paper (Young and Tian 2019): 16 filters of 3 x 3, then 128 units.

    :param observation_space: (channels, 10, 10)
    :param features_dim: units of the dense layer
    """

    def __init__(self, observation_space: spaces.Box, features_dim: int = 128) -> None:
        super().__init__(observation_space, features_dim)
        channels, height, width = observation_space.shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, kernel_size=3, stride=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16 * (height - 2) * (width - 2), features_dim),
            nn.ReLU(),
        )

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.layers(observations)
