"""Measure what checkpoints cost: their share of the time of a MinAtar run, and the bytes written of
a frame buffer when some frames are new.

    python benchmarks/checkpoint_costs.py --steps 100000 --frames 0

A million frames need 8 GB of memory and, for a while, 16 GB of disk.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_cpp import CheckpointCallback, DeepCPP
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checkpointing import CheckpointStore
from sb3_cpp.checks import check_whole_number, require
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.threads import torch_threads
from sb3_cpp.training.run import make_model, make_run_environment
from sb3_cpp.training.suites import load_suite

GAME = "MinAtar/Breakout-v1"
_N_ENVS = 8
_EPISODE = 500  # steps of the vector


class _TimedCheckpoints(CheckpointCallback):
    """Notes the seconds and bytes of every checkpoint."""

    def _init_callback(self) -> None:
        super()._init_callback()
        self.seconds: list[float] = []
        self.megabytes: list[float] = []

    def save(self) -> Path:
        began = time.perf_counter()
        entry = super().save()
        self.seconds.append(time.perf_counter() - began)
        self.megabytes.append(self.store.bytes_written / 1e6)
        return entry


def time_share(folder: Path, steps: int, save_freq: int) -> str:
    """Train with checkpoints and add up their time: the difference of two runs is mostly noise."""
    config = load_suite("minatar").run_config("cpp", GAME, 0, {"n_timesteps": steps})
    env = make_run_environment(config)
    try:
        model = make_model(config, env)
        checkpoints = _TimedCheckpoints(folder, save_freq)
        with torch_threads(1):
            began = time.perf_counter()
            model.learn(steps, callback=checkpoints)
            total = time.perf_counter() - began
    finally:
        env.close()
    saving = sum(checkpoints.seconds)
    sizes = ", ".join(f"{size:.0f}" for size in checkpoints.megabytes)
    return (
        f"DeepCPP on {GAME}, {steps:,} steps in {total:.1f} s, of which "
        f"{len(checkpoints.seconds)} checkpoints took {saving:.2f} s: "
        f"{100 * saving / (total - saving):.2f} % of the time without them "
        f"(MB written: {sizes or 'none'})"
    )


class _Screen(gym.Env[np.ndarray, int]):
    """An environment of Atari's shape, never stepped."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(4)  # type: ignore[assignment]

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros((4, 84, 84), np.uint8), {}


class _Filler:
    """Fills a model's replay buffer with random frames, episode after episode."""

    def __init__(self, model: DeepCPP) -> None:
        assert model.replay_buffer is not None
        self.model, self.buffer = model, model.replay_buffer
        self.rng = np.random.default_rng(0)
        # random pixels do not compress: the bytes written are the worst case
        self.pictures = self.rng.integers(1, 255, (256, 84, 84), dtype=np.uint8)
        self.steps, self.stacks = 0, self._first()

    def _new(self) -> np.ndarray:
        return self.pictures[self.rng.integers(0, len(self.pictures), (_N_ENVS, 1))]

    def _first(self) -> np.ndarray:
        return np.concatenate([np.zeros((_N_ENVS, 3, 84, 84), np.uint8), self._new()], axis=1)

    def add(self, frames: int) -> None:
        for _ in range(frames // _N_ENVS):
            following = np.concatenate([self.stacks[:, 1:], self._new()], axis=1)
            self.steps += 1
            done = np.full(_N_ENVS, self.steps % _EPISODE == 0)
            actions, rewards = self.rng.integers(0, 4, (_N_ENVS, 1)), self.rng.random(_N_ENVS)
            self.buffer.add(self.stacks, following, actions, rewards, done, [{}] * _N_ENVS)
            self.stacks = self._first() if done[0] else following
        self.model.num_timesteps = self.steps * _N_ENVS


def incremental(folder: Path, frames: int, new: int, times: int = 3) -> str:
    """Fill a frame buffer beyond its size, write it, and write it again after ``new`` frames."""
    env = DummyVecEnv([_Screen] * _N_ENVS)
    settings: dict[str, Any] = {"buffer_size": frames, "device": "cpu", "seed": 0}
    model = DeepCPP("CnnPolicy", env, replay_buffer_class=FrameReplayBuffer, **settings)
    filler, store = _Filler(model), CheckpointStore(folder)
    # beyond the end of the ring, where new frames overwrite old ones
    filler.add(frames + frames // 10)
    written = []
    for number in range(times + 1):
        if number:
            filler.add(new)
        began = time.perf_counter()
        store.save(model)
        written.append(f"{store.bytes_written / 1e6:.1f} MB in {time.perf_counter() - began:.1f} s")
    later = ", ".join(written[1:])
    return f"a buffer of {frames:,} frames: {written[0]}; after {new:,} new ones each: {later}"


def checkpoint_costs(
    steps: int, save_freq: int, frames: int, new_frames: int, folder: str | None
) -> int:
    """Measure and print; what is written goes to a temporary folder."""
    check_whole_number("--steps", steps, 0)
    check_whole_number("--save-freq", save_freq, 1)
    check_whole_number("--frames", frames, 0)
    check_whole_number("--new-frames", new_frames, _N_ENVS)
    if steps:
        require("minatar", "minatar")
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        if steps:
            print(time_share(Path(place) / "run", steps, save_freq), flush=True)
        if frames:
            print(incremental(Path(place) / "buffer", max(frames, _N_ENVS), new_frames), flush=True)
    return 0


def main() -> int:
    parser = CommandLine(prog="checkpoint_costs.py", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="of the MinAtar run; 0: none")
    parser.add_argument("--save-freq", type=int, default=10_000, help="steps between checkpoints")
    parser.add_argument("--frames", type=int, default=1_000_000, help="of the buffer; 0: none")
    parser.add_argument("--new-frames", type=int, default=10_000, help="between two checkpoints")
    parser.add_argument("-f", "--folder", help="where to write for a while (default: temporary)")
    return checkpoint_costs(**parser.parse())


if __name__ == "__main__":
    run_command(main)
