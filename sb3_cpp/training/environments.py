"""Environments by their id, as SB3's vector of environments.

An id is gymnasium's (``CartPole-v1``), one that a package registers (``package:Env-v0``), or a
class (``package.module:EnvClass``). MinAtar and Atari games get their usual preprocessing.
"""

import contextlib
import copy
import importlib
import importlib.util
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    unwrap_vec_normalize,
)
from torch import nn

from sb3_cpp import files
from sb3_cpp.checks import InvalidArgument, check_whole_number, require, suggestion

# gymnasium knows these only after they were made once
_GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
_MINATAR = [f"MinAtar/{game}-v{version}" for game in _GAMES for version in (0, 1)]
_PIXELS = 32  # side of one of the 10 x 10 cells of MinAtar in a picture


def is_atari(env_id: str) -> bool:
    name = env_id.rpartition(":")[2]
    return name.startswith("ALE/") or "NoFrameskip" in name


def find_environment(env_id: str, gym_packages: Sequence[str] = ()) -> str | EnvSpec:
    """What :func:`gymnasium.make` is given for an id; an unknown one is answered with the nearest.

    :param env_id: an id, ``package:id`` or ``package.module:EnvClass``
    :param gym_packages: packages to import first, because they register environments
    """
    for package in gym_packages:
        _import(package, f"--gym-packages {package}")
    package, _, name = env_id.rpartition(":")
    module = _import(package, f"environment {env_id}") if package else None
    if is_atari(env_id):
        require("atari", "ale_py", "cv2")
        _import("ale_py", env_id)  # registers the games
    if name in _MINATAR:
        require("minatar", "minatar")
        return name
    if name in gym.registry:
        _check_dependencies(env_id, gym.registry[name])
        return name
    if callable(getattr(module, name, None)):
        return EnvSpec(name, entry_point=f"{package}:{name}")
    if module is not None:
        raise InvalidArgument(
            f"environment {env_id}: {package} neither registers {name!r} nor has a class of that "
            f"name{_nearest(name, list(gym.registry))}"
        )
    if importlib.util.find_spec("ale_py"):  # for the suggestion
        _import("ale_py", env_id)
    known = [*gym.registry, *_MINATAR]
    raise InvalidArgument(f"unknown environment {env_id!r}{_nearest(env_id, known)}")


def _import(package: str, place: str) -> Any:
    try:
        return importlib.import_module(package)
    # "", "." and ".a" are no names
    except (ImportError, ValueError, TypeError, SyntaxError) as error:
        raise InvalidArgument(f"{place}: cannot import {package!r} ({error})") from None


def _check_dependencies(env_id: str, spec: EnvSpec) -> None:
    """Import the environment's class, which tells what is missing before anything is printed."""
    try:
        if isinstance(spec.entry_point, str):
            load_env_creator(spec.entry_point)
    except DependencyNotInstalled as error:
        raise _missing(env_id, error) from None
    except (ImportError, AttributeError, SyntaxError) as error:
        raise InvalidArgument(f"environment {env_id} cannot be imported ({error})") from None


def _missing(env_id: str, error: DependencyNotInstalled) -> InvalidArgument:
    """With the extra of this package, if it has one, and else with gymnasium's advice."""
    advice = " ".join(str(error).split())
    for extra, word in (("box2d", "box2d"), ("mujoco", "mujoco"), ("video", "pygame")):
        if word in advice.lower():
            advice = f"pip install 'sb3_cpp[{extra}]'"
    return InvalidArgument(f"{env_id} needs further packages: {advice}")


# What environments and wrappers raise for arguments or spaces that they do not take
_MISFITS = (
    TypeError,
    ValueError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    gym.error.Error,
)


@contextlib.contextmanager
def _naming(complaint: str) -> Iterator[None]:
    """In this context an error is the user's mistake, told in one line that begins so."""
    try:
        yield
    except (InvalidArgument, DependencyNotInstalled):  # these say it better
        raise
    except _MISFITS as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InvalidArgument(f"{complaint}: {reason}") from error


def has_time_limit(
    env_id: str, max_episode_steps: int | None = None, gym_packages: Sequence[str] = ()
) -> bool:
    """Whether an episode ends whatever the agent does."""
    if max_episode_steps is not None or is_atari(env_id):
        return True
    found = find_environment(env_id, gym_packages)
    spec = gym.registry.get(found) if isinstance(found, str) else found
    return spec is not None and spec.max_episode_steps is not None


def _nearest(env_id: str, known: list[str]) -> str:
    """A suggestion for which case and namespace do not count."""
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
    *,
    gym_packages: Sequence[str] = (),
    env_wrapper: Sequence[str | Mapping[str, Any]] = (),
    normalize: bool | Mapping[str, Any] = False,
    frame_stack: int | None = None,
    vec_env: str = "dummy",
    **kwargs: Any,
) -> VecEnv:
    """The environments of a run, each inside SB3's Monitor, layered as rl_zoo3 does.

    :param env_id: as for :func:`find_environment`
    :param n_envs: number of environments (Atari: stepped in threads)
    :param seed: of the first reset
    :param max_episode_steps: time limit; None is the environment's own
    :param training: for Atari, whether rewards are clipped and a lost life ends an episode; for
        ``normalize``, whether statistics are updated and rewards normalised
    :param gym_packages: packages that register environments
    :param env_wrapper: wrappers around each environment, outermost last: ``module.Class``, or
        ``{module.Class: arguments}``
    :param normalize: whether to wrap them in VecNormalize, or its arguments
    :param frame_stack: number of observations to stack
    :param vec_env: "dummy" steps them one after the other, "subproc" in a process each
    :param kwargs: of the environment
    """
    found = find_environment(env_id, gym_packages)
    try:
        if is_atari(env_id):
            if env_wrapper or normalize or frame_stack or vec_env != "dummy":
                raise InvalidArgument(
                    f"{env_id} has its own wrappers, frame stack and threads: env_wrapper, "
                    "normalize, frame_stack and vec_env must not be set"
                )
            with _naming(f"env_kwargs do not fit {env_id}"):
                return _make_atari(str(found), n_envs, seed, max_episode_steps, training, kwargs)
        wrappers = [_find_wrapper(entry) for entry in env_wrapper]

        def make() -> gym.Env[Any, Any]:
            chosen = find_environment(env_id, gym_packages)  # a worker has not imported anything
            maker: Any = make_minatar if chosen in _MINATAR else gym.make
            with _naming(f"env_kwargs do not fit {env_id}"):
                inner = maker(chosen, max_episode_steps=max_episode_steps, **kwargs)
            monitor: Monitor[Any, Any] = Monitor(inner)
            env: gym.Env[Any, Any] = monitor
            for entry, (wrapper, arguments) in zip(env_wrapper, wrappers):
                with _naming(f"env_wrapper {entry} does not fit {env_id}"):
                    env = wrapper(env, **arguments)
            return EpisodeReport(env, monitor) if wrappers else env

        def make_in_worker() -> gym.Env[Any, Any]:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which then saves
            return make()

        if vec_env == "subproc":
            make().close()  # a mistake is one line here, and a traceback per worker there
            venv: VecEnv = SubprocVecEnv([make_in_worker] * n_envs)
        else:
            venv = DummyVecEnv([make] * n_envs)
    except DependencyNotInstalled as error:
        raise _missing(env_id, error) from None
    venv.seed(seed)
    if normalize:
        arguments = dict(normalize) if isinstance(normalize, Mapping) else {}
        with _naming(f"normalize does not fit {env_id}"):
            venv = VecNormalize(venv, training=training, **arguments)
        venv.norm_reward = venv.norm_reward and training  # an evaluation reports what was earned
    if frame_stack is not None:
        with _naming(f"frame_stack does not fit {env_id}"):
            venv = VecFrameStack(venv, frame_stack)
    if is_image_space(venv.observation_space) and not is_image_space_channels_first(
        venv.observation_space  # type: ignore[arg-type]
    ):
        venv = VecTransposeImage(venv)
    return venv


class EpisodeReport(gym.Wrapper[Any, Any, Any, Any]):
    """Reports an episode that a wrapper around SB3's Monitor has ended, as Monitor does: with the
    rewards of the environment itself. Evaluations and logs wait for this report.

    :param env: the wrapped environment
    :param monitor: the Monitor inside it
    """

    def __init__(self, env: gym.Env[Any, Any], monitor: Monitor[Any, Any]) -> None:
        super().__init__(env)
        self.monitor = monitor

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if (terminated or truncated) and "episode" not in info:
            rewards, seconds = self.monitor.rewards, time.time() - self.monitor.t_start
            values = {"r": round(sum(rewards), 6), "l": len(rewards), "t": round(seconds, 6)}
            info["episode"] = values
        return observation, reward, terminated, truncated, info


def _find_wrapper(entry: str | Mapping[str, Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    ((path, arguments),) = ({entry: {}} if isinstance(entry, str) else entry).items()
    module, _, name = path.rpartition(".")
    wrapper = getattr(_import(module, f"env_wrapper {path}"), name, None)
    if not callable(wrapper):
        raise InvalidArgument(f"env_wrapper {path}: {module} has no class {name!r}")
    return wrapper, dict(arguments or {})


# Statistics of VecNormalize, plain arrays beside a saved model


def copy_normalization(source: VecEnv | None, target: VecEnv) -> None:
    """Give an environment the statistics of another one, if both normalise."""
    ours = unwrap_vec_normalize(target)
    theirs = None if source is None else unwrap_vec_normalize(source)
    if ours is not None and theirs is not None:
        for name in ("obs_rms", "ret_rms"):
            if hasattr(theirs, name):  # SB3 has no obs_rms with norm_obs=False
                setattr(ours, name, copy.deepcopy(getattr(theirs, name)))


def save_normalization(env: VecEnv | None, path: Path) -> None:
    """Write the statistics of an environment that normalises; nothing for others."""
    normalizer = None if env is None else unwrap_vec_normalize(env)
    if normalizer is None:
        return
    arrays: dict[str, Any] = {
        f"{name}/{field}": np.asarray(getattr(rms, field))
        for name, rms in _statistics(normalizer).items()
        for field in ("mean", "var", "count")
    }
    files.write_with(path, lambda part: np.savez(part, **arrays))


def load_normalization(env: VecEnv, path: Path) -> None:
    """Read the statistics of :func:`save_normalization` into an environment that normalises."""
    normalizer = unwrap_vec_normalize(env)
    if normalizer is None:
        return
    try:
        with np.load(path) as saved:
            for name, rms in _statistics(normalizer).items():
                rms.mean, rms.var = saved[f"{name}/mean"], saved[f"{name}/var"]
                rms.count = float(saved[f"{name}/count"])
    except (OSError, KeyError, ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise InvalidArgument(f"{path} has no statistics of VecNormalize ({reason})") from None


def _statistics(normalizer: VecNormalize) -> dict[str, RunningMeanStd]:
    """Its running means and variances by name; those of a dict of observations by their key."""
    observations = getattr(normalizer, "obs_rms", None)
    if not isinstance(observations, dict):
        observations = {} if observations is None else {"": observations}
    return {f"obs/{key}": rms for key, rms in observations.items()} | {"ret": normalizer.ret_rms}


def _make_atari(
    env_id: str,
    n_envs: int,
    seed: int | None,
    max_episode_steps: int | None,
    training: bool,
    kwargs: dict[str, Any],
) -> VecEnv:
    """ALE's native environments, or one that renders.

    ``native: false`` is for runs that must be resumed exactly: SB3's wrappers around one emulator,
    whose state can be saved.
    """
    from sb3_cpp.atari import make_atari_vec_env, make_render_env

    settings = {**kwargs, "terminal_on_life_loss": training, "clip_reward": training}
    mode = settings.pop("render_mode", None)
    if mode == "human":
        raise InvalidArgument(f"{env_id} has no window; record a video, or play without one")
    if not isinstance(native := settings.pop("native", True), bool):
        raise InvalidArgument(f"env_kwargs: native must be true or false, got {native!r}")
    if not native and n_envs > 1:
        raise InvalidArgument(f"env_kwargs: native: false needs n_envs: 1, got {n_envs}")
    if max_episode_steps is not None:
        if "max_episode_frames" in settings:
            raise InvalidArgument(
                f"{env_id}: max_episode_steps and env_kwargs.max_episode_frames are the same time "
                "limit; set one of them"
            )
        frame_skip = check_whole_number("frame_skip", settings.get("frame_skip", 4), 1)
        settings["max_episode_frames"] = frame_skip * max_episode_steps
    if mode is not None or not native:
        return make_render_env(env_id, seed, **settings)
    return make_atari_vec_env(env_id, n_envs, seed, **settings)


class MinAtarEnv(gym.Wrapper[np.ndarray, int, np.ndarray, int]):
    """A MinAtar game with channels first, shape (channels, 10, 10), and a picture to look at."""

    def __init__(self, env: gym.Env[np.ndarray, int]) -> None:
        super().__init__(env)
        height, width, channels = env.observation_space.shape  # type: ignore[misc]
        self.observation_space = spaces.Box(0, 1, (channels, height, width), np.bool_)

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        # A sticky first action would be the last one before the reset, which no seed decides
        if kwargs.get("seed") is not None:
            self.unwrapped.game.last_action = 0  # type: ignore[attr-defined]
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
    """A game by its id, ``MinAtar/Breakout-v1`` (v1: minimal actions, v0: all six)."""
    from minatar.gym import register_envs

    if env_id not in gym.registry:
        register_envs()
    # Its reset does not seed gymnasium's generator, which it does not use; the checker would warn
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
