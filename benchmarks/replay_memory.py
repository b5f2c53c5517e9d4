"""Measure memory and sampling time of the Atari replay buffers: SB3's and the frame buffer.

Memory of a million transitions is computed from a small buffer; `--fill` really stores them in the
frame buffer (7 GB; SB3's would need 56). `--games` plays games and compares the frame buffer with
and without compression on their frames.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.atari.frame_buffer import COMPRESSIONS, CompressedFrames
from sb3_cpp.checks import require
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.threads import torch_threads

BUFFERS: dict[str, type[ReplayBuffer]] = {"SB3": ReplayBuffer, "frames": FrameReplayBuffer}
FULL = 1_000_000
EPISODE = 100  # steps; a life in Breakout is shorter, a game of SpaceInvaders longer
N_ENVS = 4
BATCH_SIZE = 64


class Footprint(NamedTuple):
    """Memory of a million transitions in one kind of buffer, and the CPU time of a sample."""

    buffer: str
    computed_gb: float
    measured_gb: float | None  # growth of the process when the buffer was filled
    sample_ms: float
    sampled_from: int  # transitions in the buffer during sampling
    stream_ms: float  # CPU time of copying as many bytes in one piece: what the memory allows


def fill(buffer: ReplayBuffer, episode: int = EPISODE) -> None:
    """Add stacked random frames until the buffer is full; every episode starts with black ones."""
    n_envs = buffer.n_envs
    pictures = np.random.default_rng(0).integers(1, 256, (257, 84, 84), dtype=np.uint8)
    obs = np.zeros((n_envs, 4, 84, 84), dtype=np.uint8)
    action, reward = np.zeros((n_envs, 1), dtype=np.int64), np.zeros(n_envs, dtype=np.float32)
    infos: list[dict[str, object]] = [{} for _ in range(n_envs)]
    for step in range(buffer.buffer_size):
        if step % episode == 0:
            obs = np.zeros_like(obs)
            obs[:, -1] = pictures[step % len(pictures)]
        newest = np.broadcast_to(pictures[(step + 1) % len(pictures)], (n_envs, 1, 84, 84))
        next_obs = np.concatenate([obs[:, 1:], newest], axis=1)
        done = np.full(n_envs, step % episode == episode - 1)
        buffer.add(obs, next_obs, action, reward, done, infos)
        obs = next_obs


def make_filled(kind: str, size: int) -> ReplayBuffer:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = BUFFERS[kind](size, space, spaces.Discrete(4), device="cpu", n_envs=N_ENVS)
    fill(buffer)
    return buffer


def bytes_in_use(buffer: ReplayBuffer) -> int:
    """Bytes of the arrays of a full buffer, without what is reserved and never written."""
    small = (buffer.actions, buffer.rewards, buffer.dones, buffer.timeouts)
    n_bytes = sum(array.nbytes for array in small)
    if isinstance(buffer, FrameReplayBuffer):
        n_bytes += buffer.places.nbytes
        if isinstance(buffer.frames, CompressedFrames):
            return n_bytes + buffer.frames.nbytes
        return n_bytes + buffer.n_frames * buffer.frames[0].nbytes
    return n_bytes + buffer.observations.nbytes + buffer.next_observations.nbytes


def sampling_ms(buffer: ReplayBuffer) -> float:
    """CPU time of `sample(64)`, with one torch thread: one that waits for work also counts."""
    with torch_threads(1):
        return _median_ms(lambda: buffer.sample(BATCH_SIZE))


def streaming_ms(buffer: ReplayBuffer) -> float:
    """CPU time of copying the bytes of a sample, in one piece from anywhere in the buffer."""
    pixels, frames = buffer.observations, 8  # four in a stack, four in the next
    if isinstance(buffer, FrameReplayBuffer):
        pixels, frames = buffer.frames[: buffer.n_frames], 5
    pixels = pixels.reshape(-1)
    size = min(BATCH_SIZE * frames * 84 * 84, pixels.size)
    copy, rng = np.empty(size, np.uint8), np.random.default_rng(0)

    def stream() -> None:
        start = int(rng.integers(0, pixels.size - size + 1))
        copy[:] = pixels[start : start + size]

    return _median_ms(stream)


def _median_ms(call: Callable[[], object], blocks: int = 9, calls: int = 50) -> float:
    """Median over blocks of calls, each block long against the resolution of the clock."""
    times = []
    for _ in range(blocks):
        start = time.process_time()
        for _ in range(calls):
            call()
        times.append((time.process_time() - start) / calls)
    return 1000.0 * statistics.median(times)


def footprints(size: int = 10_000, fill_all: bool = False) -> list[Footprint]:
    """All buffers, from `size` transitions; with `fill_all` the frame buffer from a million."""
    found = []
    for kind in BUFFERS:
        buffer = make_filled(kind, size)
        computed = bytes_in_use(buffer) / size * FULL / 1e9
        times = sampling_ms(buffer), size, streaming_ms(buffer)
        found.append(Footprint(kind, computed, None, *times))
        del buffer
    if fill_all:  # in a process of its own, whose growth is the buffer
        command = [sys.executable, __file__, "--measure"]
        output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        found[-1] = found[-1]._replace(**json.loads(output), sampled_from=FULL)
    return found


def compression(games: Sequence[str], size: int = 10_000) -> pd.DataFrame:
    """A row per game: memory of a million transitions, CPU time of a sample and of an addition."""
    require("atari", "ale_py", "cv2")
    from sb3_cpp.atari import make_atari_vec_env
    from sb3_cpp.atari.game_ids import game_spec

    for game in games:  # before minutes of measuring the first ones
        game_spec(f"{game}NoFrameskip-v4")
    rows = []
    for game in games:
        env = make_atari_vec_env(f"{game}NoFrameskip-v4", N_ENVS, seed=0)
        spaces_of_game = (env.observation_space, env.action_space)
        buffers = {
            name: FrameReplayBuffer(size, *spaces_of_game, "cpu", N_ENVS, compress=name)
            for name in (None, *COMPRESSIONS)
        }
        seconds = dict.fromkeys(buffers, 0.0)
        obs: Any = env.reset()
        rng = np.random.default_rng(0)
        for _ in range(size // N_ENVS):
            action = rng.integers(0, env.action_space.n, N_ENVS)  # type: ignore[attr-defined]
            new, reward, done, infos = env.step(action)
            stored = np.array(new)
            for i in np.flatnonzero(done):
                stored[i] = infos[i]["terminal_observation"]
            for name, buffer in buffers.items():
                start = time.process_time()
                buffer.add(obs, stored, action, reward, done, infos)
                seconds[name] += time.process_time() - start
            obs = new
        env.close()
        for name, buffer in buffers.items():
            gb, ms = bytes_in_use(buffer) / size * FULL / 1e9, sampling_ms(buffer)
            rows.append((game, name or "none", gb, ms, 1e6 * seconds[name] / size))
    columns = ["game", "compress", "gb_per_million", "sample_ms", "add_us"]
    return pd.DataFrame(rows, columns=columns)


def measure_full() -> None:
    """Fill the frame buffer with a million transitions and print what the process took."""
    before = _resident_gb()
    buffer = make_filled("frames", FULL)
    grown = _resident_gb() - before
    times = {"sample_ms": sampling_ms(buffer), "stream_ms": streaming_ms(buffer)}
    json.dump({"measured_gb": grown, **times}, sys.stdout)


def _resident_gb() -> float:
    """Resident memory now, or where /proc is missing the largest so far."""
    status = Path("/proc/self/statm")
    if status.exists():
        return int(status.read_text().split()[1]) * resource.getpagesize() / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def main() -> int:
    parser = CommandLine(prog="replay_memory.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--fill", action="store_true", help="store a million transitions (7 GB)")
    parser.add_argument("--games", nargs="+", metavar="GAME", help="like Breakout SpaceInvaders")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure_full()
    elif args.games:
        print(compression(args.games).to_string(index=False, float_format="{:.2f}".format))
    else:
        print(f"1,000,000 transitions of 4 x 84 x 84, episodes of {EPISODE} steps")
        table = pd.DataFrame(footprints(fill_all=args.fill)).set_index("buffer")
        print(table.to_string(float_format="{:.3f}".format, na_rep=""))
    return 0


if __name__ == "__main__":
    run_command(main)
