"""Environments by their id, as SB3's vector of environments: gymnasium's, MinAtar, Atari, and the paper's two."""

import importlib.util
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.error import DependencyNotInstalled
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training import minatar
from sb3_cpp.training.algorithms import suggestion

# gymnasium learns these only when they are made
_MINATAR = [f"MinAtar/{game}-v{version}" for game in minatar.GAMES for version in (0, 1)]


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
        maker = minatar.make_minatar if env_id in _MINATAR else gym.make
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
