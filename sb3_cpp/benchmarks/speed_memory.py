"""Memory and sampling time of the Atari replay buffers; run as a module it fills one and reports what the process took."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.benchmarks.speed_tasks import BATCH_SIZE
from sb3_cpp.threads import torch_threads

BUFFERS: dict[str, type[ReplayBuffer]] = {"SB3": ReplayBuffer, "frames": FrameReplayBuffer}
FULL = 1_000_000
EPISODE = 100  # steps; a life in Breakout is shorter, a game of SpaceInvaders longer
_N_ENVS = 4
STATUS = Path("/proc/self/statm")
_ARRAYS = ("actions", "rewards", "dones", "timeouts")


class Footprint(NamedTuple):
    """Of one kind of buffer: memory for a million transitions, and the CPU time of a sample."""

    buffer: str
    computed_gb: float
    measured_gb: float | None  # what the process grew by when it was filled
    sample_ms: float
    sampled_from: int  # transitions in the buffer that the sample was drawn from
    stream_ms: float  # CPU time of copying as many bytes of it in one piece: what the memory allows


def fill(buffer: ReplayBuffer, episode: int = EPISODE) -> None:
    """Add transitions of stacked random frames until the buffer is full; every episode starts with black frames."""
    pictures = np.random.default_rng(0).integers(1, 256, (257, 84, 84), dtype=np.uint8)
    obs = np.zeros((buffer.n_envs, 4, 84, 84), dtype=np.uint8)
    action, reward = (
        np.zeros((buffer.n_envs, 1), dtype=np.int64),
        np.zeros(buffer.n_envs, dtype=np.float32),
    )
    infos: list[dict[str, object]] = [{} for _ in range(buffer.n_envs)]
    for step in range(buffer.buffer_size):
        if step % episode == 0:
            obs = np.zeros_like(obs)
            obs[:, -1] = pictures[step % len(pictures)]
        new = np.concatenate(
            [
                obs[:, 1:],
                np.broadcast_to(pictures[(step + 1) % len(pictures)], (buffer.n_envs, 1, 84, 84)),
            ],
            1,
        )
        done = np.full(buffer.n_envs, step % episode == episode - 1)
        buffer.add(obs, new, action, reward, done, infos)
        obs = new


def make_filled(kind: str, size: int) -> ReplayBuffer:
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    buffer = BUFFERS[kind](size, space, spaces.Discrete(4), device="cpu", n_envs=_N_ENVS)
    fill(buffer)
    return buffer


def bytes_in_use(buffer: ReplayBuffer) -> int:
    """Of the arrays of a full buffer, without what is reserved and never written."""
    small = sum(getattr(buffer, name).nbytes for name in _ARRAYS)
    if isinstance(buffer, FrameReplayBuffer):
        return small + buffer.places.nbytes + buffer.n_frames * buffer.frames[0].nbytes
    return small + buffer.observations.nbytes + buffer.next_observations.nbytes


def sampling_ms(buffer: ReplayBuffer, blocks: int = 9, calls: int = 50) -> float:
    """CPU time of one ``sample(64)``: the median of blocks, each long against the resolution of the clock.

    With one torch thread, since a second one that waits for work counts as CPU time too.
    """
    with torch_threads(1):
        return _median_ms(lambda: buffer.sample(BATCH_SIZE), blocks, calls)


def streaming_ms(buffer: ReplayBuffer, blocks: int = 9, calls: int = 50) -> float:
    """CPU time of copying as many bytes as a sample has, in one piece from anywhere in the buffer's observations."""
    pixels, frames = buffer.observations, 8  # four in a stack, four in the next
    if isinstance(buffer, FrameReplayBuffer):
        pixels, frames = buffer.frames[: buffer.n_frames], 5
    pixels = pixels.reshape(-1)
    size = min(BATCH_SIZE * frames * 84 * 84, pixels.size)
    copy, places = np.empty(size, np.uint8), np.random.default_rng(0)

    def stream() -> None:
        start = int(places.integers(0, pixels.size - size + 1))
        copy[:] = pixels[start : start + size]

    return _median_ms(stream, blocks, calls)


def _median_ms(call: Callable[[], object], blocks: int, calls: int) -> float:
    times = []
    for _ in range(blocks):
        start = time.process_time()
        for _ in range(calls):
            call()
        times.append((time.process_time() - start) / calls)
    return 1000.0 * statistics.median(times)


def footprints(size: int = 10_000, fill_all: bool = False) -> list[Footprint]:
    """Both buffers, from ``size`` transitions; with ``fill_all`` ours is also filled with a million, in a process of its own
    (SB3's would need 56 GB)."""
    found = []
    for kind in BUFFERS:
        buffer = make_filled(kind, size)
        computed = bytes_in_use(buffer) / size * FULL / 1e9
        found.append(
            Footprint(kind, computed, None, sampling_ms(buffer), size, streaming_ms(buffer))
        )
        del buffer
    if fill_all:
        command = [sys.executable, "-m", __spec__.name, "frames", str(FULL)]
        full = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        )
        found[-1] = found[-1]._replace(**full, sampled_from=FULL)
    return found


def _resident_gb() -> float:
    """Resident memory now, or where /proc is missing the largest so far (which a new process inherits from its parent)."""
    if STATUS.exists():
        pages = int(STATUS.read_text().split()[1])
        return pages * resource.getpagesize() / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def _report(kind: str, size: int) -> None:
    before = _resident_gb()
    buffer = make_filled(kind, size)
    grown = _resident_gb() - before
    json.dump(
        {"measured_gb": grown, "sample_ms": sampling_ms(buffer), "stream_ms": streaming_ms(buffer)},
        sys.stdout,
    )


if __name__ == "__main__":
    _report(sys.argv[1], int(sys.argv[2]))
