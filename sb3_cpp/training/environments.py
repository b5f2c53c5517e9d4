"""Environments by their id, as SB3's vector of environments: gymnasium's, MinAtar, Atari, and the paper's two."""

import importlib.util
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from torch import nn

from sb3_cpp.checks import InvalidArgument, suggestion

# gymnasium learns these only when they are made
_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_MINATAR = [f"MinAtar/{game}-v{version}" for game in _GAMES for version in (0, 1)]
_PIXELS = 32  # side of one of the 10 x 10 cells of MinAtar in a picture


def is_atari(env_id: str) -> bool:
    return env_id.startswith("ALE/") or "NoFrameskip" in env_id


def known_environments() -> list[str]:
    """Ids that can be asked for (those of packages that are not imported by gymnasium itself only if installed)."""
    if importlib.util.find_spec("ale_py"):
        import ale_py

        gym.register_envs(ale_py)
    return [*gym.registry, *_MINATAR]


def check_environment(env_id: str) -> None:
    """Refuse an id nobody knows, with the nearest ones."""
    if is_atari(env_id) and not (
        importlib.util.find_spec("ale_py") and importlib.util.find_spec("cv2")
    ):
        raise InvalidArgument(f"{env_id} needs further packages: pip install 'sb3_cpp[atari]'")
    known = known_environments()
    if env_id not in known:
        raise InvalidArgument(f"unknown environment {env_id!r}{_nearest(env_id, known)}")


def has_time_limit(env_id: str, max_episode_steps: int | None = None) -> bool:
    """Whether an episode ends whatever the agent does."""
    if max_episode_steps is not None or is_atari(env_id):
        return True
    return env_id in gym.registry and gym.spec(env_id).max_episode_steps is not None


def _nearest(env_id: str, known: list[str]) -> str:
    """Case and namespace do not count."""
    short = {name.split("/")[-1].lower(): name for name in known} | {
        name.lower(): name for name in known
    }
    hint = suggestion(env_id, short)
    for key in sorted(short, key=len, reverse=True):
        hint = hint.replace(f"'{key}'", f"'{short[key]}'")
    return hint


def make_environment(
    env_id: str,
    n_envs: int = 1,
    seed: int | None = None,
    max_episode_steps: int | None = None,
    training: bool = True,
    **kwargs: Any,
) -> VecEnv:
    """The environments of a run, each watched by SB3's Monitor; for Atari with the usual preprocessing.

    :param env_id: as for ``gymnasium.make``, or ``MinAtar/Breakout-v1``
    :param n_envs: how many, stepped one after the other in this process (Atari: in threads)
    :param seed: of the first reset
    :param max_episode_steps: time limit; None is the environment's own
    :param training: for Atari, whether rewards are clipped and a lost life ends an episode
    :param kwargs: of the environment
    """
    check_environment(env_id)
    try:
        if is_atari(env_id):
            return _make_atari(env_id, n_envs, seed, max_episode_steps, training, kwargs)
        venv = DummyVecEnv([_thunk(env_id, max_episode_steps, kwargs) for _ in range(n_envs)])
    except DependencyNotInstalled as error:
        extra = "box2d" if "box2d" in str(error).lower() else "video"
        raise InvalidArgument(
            f"{env_id} needs a further package: pip install 'sb3_cpp[{extra}]'"
        ) from None
    except TypeError as error:
        raise InvalidArgument(f"env_kwargs do not fit {env_id}: {error}") from None
    venv.seed(seed)
    return venv


def _thunk(
    env_id: str, max_episode_steps: int | None, kwargs: dict[str, Any]
) -> Callable[[], gym.Env[Any, Any]]:
    def make() -> gym.Env[Any, Any]:
        maker = make_minatar if env_id in _MINATAR else gym.make
        return Monitor(maker(env_id, max_episode_steps=max_episode_steps, **kwargs))

    return make


def _make_atari(
    env_id: str,
    n_envs: int,
    seed: int | None,
    max_episode_steps: int | None,
    training: bool,
    kwargs: dict[str, Any],
) -> VecEnv:
    """ALE's native environments, or one that can be seen; a lost life and clipped rewards are for training only.

    ``native: false`` is for runs that must be resumed exactly: SB3's wrappers around one emulator whose state can be saved.
    """
    from sb3_cpp.atari import make_atari_vec_env, make_render_env

    settings = {**kwargs, "terminal_on_life_loss": training, "clip_reward": training}
    mode = settings.pop("render_mode", None)
    if mode == "human":
        raise InvalidArgument(f"{env_id} has no window; record a video, or play without one")
    if not isinstance(native := settings.pop("native", True), bool):
        raise InvalidArgument(f"env_kwargs: native must be true or false, got {native!r}")
    if not native and (n_envs > 1 or max_episode_steps is not None):
        limit = "none" if max_episode_steps is None else max_episode_steps
        raise InvalidArgument(
            f"env_kwargs: native: false needs n_envs: 1 and no max_episode_steps, got {n_envs} environments and {limit}"
        )
    if mode is not None or not native:
        return make_render_env(env_id, seed, **settings)
    if max_episode_steps is not None:
        settings["max_episode_frames"] = 4 * max_episode_steps
    return make_atari_vec_env(env_id, n_envs, seed, **settings)


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

    fast_layers = ("layers",)  # the forward pass is these layers and nothing else

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
