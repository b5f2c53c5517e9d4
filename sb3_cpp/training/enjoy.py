"""The command enjoy: a trained agent plays, in a window, on the console or into a video."""

import contextlib
import os
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from sb3_cpp.checkpointing.store import FOREIGN, read_normalization
from sb3_cpp.checks import InvalidArgument, check_number, check_seed, require
from sb3_cpp.deep import RegularizedDQN
from sb3_cpp.deep.masks import MaskedPolicy, RecordMasks
from sb3_cpp.run_folder import BEST_MODEL, CONFIG, MODEL, read_config
from sb3_cpp.threads import torch_threads
from sb3_cpp.training.algorithms import get_algorithm
from sb3_cpp.training.environments import find_environment, is_atari, load_normalization
from sb3_cpp.training.logs import current_zeta
from sb3_cpp.training.run import find_checkpoint, make_run_environment
from sb3_cpp.training.suites import RunConfig, suite_of

_TAKEN, _OTHER, _TEXT, _BACKGROUND = (213, 94, 0), (0, 114, 178), (30, 30, 30), (250, 250, 250)
_ROW = 18


def enjoy(
    algo: str,
    env: str,
    seed: int = 0,
    *,
    suite: str | None = None,
    gym_packages: Sequence[str] = (),
    root: str = "runs",
    run: str | None = None,
    episodes: int = 5,
    stochastic: bool = False,
    video: str | None = None,
    render: bool = True,
    show_policy: bool = False,
    play_seed: int = 0,
    load_best: bool = False,
    force: bool = False,
) -> int:
    """Play a trained run and print its returns; returns the exit code of the command."""
    check_number("--episodes", episodes, 1)
    check_seed("--play-seed", play_seed)
    path = check_video(video, force) if video is not None else None
    if run is not None:
        folder = Path(run)
    else:
        name = Path(suite).stem if suite is not None else suite_of(env).name
        folder = RunConfig(name, algo, env, seed, 1, algo).folder(root)
        if not folder.is_dir():
            find_environment(env, gym_packages)  # a misspelt name is the likely reason
    if run is not None and Path(root).resolve() not in folder.resolve().parents:
        print(FOREIGN.format(folder), flush=True)
    config, model = load_run(folder, load_best)
    if show_policy and not isinstance(model.action_space, spaces.Discrete):
        raise InvalidArgument(
            f"--show-policy needs a discrete action space, {config.env} has {model.action_space}"
        )
    mode = "rgb_array" if path is not None else "human" if render and has_display() else None
    if mode != "human":
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws without a screen
    packages = [*config.gym_packages, *gym_packages]
    config = replace(config, eval_envs=1, gym_packages=packages)
    threads = None if is_atari(config.env) else 1
    with (
        torch_threads(threads),
        contextlib.closing(
            make_run_environment(config, training=False, **({"render_mode": mode} if mode else {}))
        ) as venv,
    ):
        load_run_normalization(venv, folder, load_best)
        if render and mode is None:
            print("no display: playing without a window (--video FILE.gif records one)", flush=True)
        venv.seed(play_seed)
        record = path is not None
        frames, returns = _play(model, venv, episodes, not stochastic, record, show_policy)
        fps = venv.get_attr("metadata")[0].get("render_fps", 30)
    print(
        f"{config.name()}: return {np.mean(returns):.1f} ± {np.std(returns):.1f} "
        f"over {len(returns)} episodes"
    )
    if path is not None:
        save_video(path, frames, fps)
        print(f"video: {path} ({len(frames)} frames)")
    return 0


def has_display() -> bool:
    screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.platform != "linux" or bool(screen)


def _model_file(folder: Path, best: bool) -> Path | None:
    """The model of a run; of an unfinished one that of its last checkpoint."""
    names = (BEST_MODEL,) if best else (MODEL,)
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None and not best and (checkpoint := find_checkpoint(folder)) is not None:
        path = checkpoint / MODEL
    return path


def load_run(folder: Path, best: bool = False) -> tuple[RunConfig, BaseAlgorithm]:
    """The config and the model of a run, without its replay buffer.

    :param folder: of the run; an unfinished one gives the model of its last checkpoint
    :param best: the model of the best evaluation instead of the last one
    """
    path = _model_file(folder, best)
    if path is None and best and _model_file(folder, best=False) is not None:
        raise InvalidArgument(
            f"{folder} has no best model, because the run was not evaluated; without --load-best "
            "its last model plays"
        )
    if path is None or not (folder / CONFIG).is_file():
        raise InvalidArgument(f"no trained run at {folder} (`sb3-cpp train` makes one)")
    try:
        config = RunConfig(**read_config(folder))
    except TypeError as error:
        raise InvalidArgument(f"{folder / CONFIG} must be that of a run ({error})") from None
    algorithm = get_algorithm(config.algorithm)
    off_policy = issubclass(algorithm, OffPolicyAlgorithm)
    changes: dict[str, Any] = {"buffer_size": 1} if off_policy else {}
    try:
        return config, algorithm.load(path, **changes)
    except (
        ValueError,
        KeyError,
        RuntimeError,
        AssertionError,
        TypeError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        reason = " ".join(str(error).split())
        raise InvalidArgument(f"{path} cannot be loaded as {config.algorithm}: {reason}") from None


def load_run_normalization(env: VecEnv, folder: Path, best: bool = False) -> None:
    """Give an environment that normalises the statistics of a run."""
    normalizer, path = unwrap_vec_normalize(env), _model_file(folder, best)
    if normalizer is None or path is None:
        return
    if path.parent == folder:
        load_normalization(env, path.with_suffix(".npz"))
    else:  # a checkpoint keeps them with the state of the training
        ((normalizer.obs_rms, normalizer.ret_rms),) = read_normalization(path.parent)


def action_probabilities(
    model: BaseAlgorithm,
    observation: np.ndarray,
    deployed: bool = True,
    action_masks: np.ndarray | None = None,
) -> np.ndarray | None:
    """Probabilities of the actions at a batch of one observation; None for DQN and QR-DQN, which
    have values only.

    :param deployed: those of deterministic play, or else those of learning
    :param action_masks: True for valid actions
    """
    if isinstance(model, RegularizedDQN):
        return model.action_probabilities(observation, action_masks, deployed)[0]
    if isinstance(model, OnPolicyAlgorithm):
        tensor, _ = model.policy.obs_to_tensor(observation)
        with th.no_grad():
            distribution: Any = model.policy.get_distribution(tensor).distribution
        return distribution.probs[0].cpu().numpy()
    return None


def _play(
    model: BaseAlgorithm,
    venv: VecEnv,
    episodes: int,
    deterministic: bool,
    record: bool,
    show_policy: bool,
) -> tuple[list[np.ndarray], list[float]]:
    """Frames (if recorded) and returns of some episodes."""
    frames: list[np.ndarray] = []
    returns: list[float] = []
    zeta = current_zeta(model)
    venv = RecordMasks(venv)
    policy = MaskedPolicy(model, venv)
    observation: Any = venv.reset()
    step = 0
    while len(returns) < episodes:
        action, _ = policy.predict(observation, deterministic=deterministic)
        title, probabilities = f"step {step}", None
        if show_policy:
            probabilities = action_probabilities(model, observation, deterministic, venv.masks)
            title += "" if zeta is None else f"   zeta {zeta:.4g}"
        if record:
            frame = venv.get_images()[0]
            if frame is None:
                raise InvalidArgument("--video needs an environment that renders to rgb_array")
            shown = annotate(frame, probabilities, int(action[0]), title) if show_policy else frame
            frames.append(shown.copy())
        elif show_policy:
            print(f"{title}: action {int(action[0])}{_describe(model, observation, probabilities)}")
        observation, _, _, infos = venv.step(action)
        step += 1
        if "episode" in infos[0]:
            returns.append(float(infos[0]["episode"]["r"]))
            length, step = infos[0]["episode"]["l"], 0
            print(f"episode {len(returns)}: return {returns[-1]:.1f}, {length} steps", flush=True)
    return frames, returns


def _describe(
    model: BaseAlgorithm, observation: np.ndarray, probabilities: np.ndarray | None
) -> str:
    """Probabilities and Q-values of the actions, as far as the algorithm has them."""
    values = None
    if isinstance(model, RegularizedDQN):
        values = model.q_values(observation)[0]
    elif isinstance(model, DQN):
        with th.no_grad():
            values = model.q_net(model.policy.obs_to_tensor(observation)[0])[0].cpu().numpy()
    known = {"probabilities": probabilities, "values": values}
    return "".join(
        f", {name} {' '.join(f'{number:.3f}' for number in numbers)}"
        for name, numbers in known.items()
        if numbers is not None
    )


def check_video(path: str | Path, force: bool = False) -> Path:
    """Refuse early what could not, or without ``force`` should not, be written after the last
    episode."""
    path = Path(path)
    if path.suffix not in (".mp4", ".gif"):
        raise InvalidArgument(f"--video must end in .mp4 or .gif, got {str(path)!r}")
    if path.is_dir():
        raise InvalidArgument(f"--video must be a file, got the folder {path}")
    if path.exists() and not force:
        raise InvalidArgument(f"{path} already exists; choose another name, or use --force")
    require("video", "PIL", *(["imageio_ffmpeg"] if path.suffix == ".mp4" else []))
    return path


def annotate(
    frame: np.ndarray,
    probabilities: Sequence[float] | np.ndarray | None,
    action: int,
    title: str,
) -> np.ndarray:
    """The frame with a line of text and a bar per action below it; the chosen action is orange."""
    from PIL import Image, ImageDraw, ImageFont

    rows = 1 + (len(probabilities) if probabilities is not None else 0)
    height, width = frame.shape[:2]
    canvas = Image.new("RGB", (width, height + rows * _ROW + 6), _BACKGROUND)
    canvas.paste(Image.fromarray(frame), (0, 0))
    draw, font = ImageDraw.Draw(canvas), ImageFont.load_default(size=12)
    draw.text((6, height + 3), title, fill=_TEXT, font=font)
    for a, p in enumerate([] if probabilities is None else probabilities):
        top = height + 3 + (a + 1) * _ROW
        draw.text((6, top), f"action {a}: {p:.3f}", fill=_TEXT, font=font)
        left, room = 110, max(width - 116, 1)
        draw.rectangle(
            (left, top + 3, left + room * p, top + _ROW - 5), fill=_TAKEN if a == action else _OTHER
        )
    return np.asarray(canvas)


def save_video(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    """Write the film in one go; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gif":
        from PIL import Image

        first, *rest = [Image.fromarray(frame).quantize(64) for frame in frames]
        # A GIF counts in hundredths of a second, and browsers slow down below two of them
        first.save(path, save_all=True, append_images=rest, duration=max(1000 / fps, 20), loop=0)
        return
    import imageio_ffmpeg

    height, width = frames[0].shape[:2]
    even = (width - width % 2, height - height % 2)  # the codec wants even sides
    writer = imageio_ffmpeg.write_frames(str(path), even, fps=fps, macro_block_size=1)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[: even[1], : even[0]]))
    writer.close()
