"""A replay buffer that stores each frame of a frame stack once: an eighth of the memory of SB3's,
the same samples to the bit.

SB3's ReplayBuffer keeps both stacks of every transition, so each 84x84 frame is stored eight times.
Here a transition is n_stack + 1 numbers, the places of its frames in one array: the first n_stack
of them are the observation, the last n_stack the next observation.
"""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
    VecVideoRecorder,
)

from sb3_cpp.checks import InvalidArgument, check_choice
from sb3_cpp.quick_replay import QuickReplayBuffer, gather

try:
    import psutil  # type: ignore[import-untyped]
except ImportError:  # then there is no warning, as in SB3
    psutil = None

# Place of the black frame that pads the first stacks of every episode; stored once, never released
BLANK = 0
# Frames reserved for an environment at a time: neighbouring frames are gathered faster
RUN = 32
# zstd takes half to three quarters of lz4's memory, but 0.6 to 1.5 ms for the frames of a sample
COMPRESSIONS = ("lz4",)
_RING_ARRAYS = ("places", "actions", "rewards", "dones", "timeouts")  # row i is transition i


# Wrappers that leave frames as they are (VecTransposeImage: but for the order of the axes)
_KEEP_FRAMES = (VecTransposeImage, VecMonitor, VecCheckNan, VecVideoRecorder)


def guarantees_stacked_frames(env: VecEnv | None) -> bool:
    """Whether every observation of the environment is the one before it, moved on by one frame.

    True for `VecFrameStack` over uint8 frames of one channel, and for environments that say so
    themselves with an attribute `stacks_frames` (AtariVecEnv does). An image space alone does not
    tell: its channels may be colours.

    :param env: the environment of an algorithm, in its wrappers
    """
    while isinstance(env, _KEEP_FRAMES):
        env = env.venv
    if isinstance(env, VecFrameStack):
        space, frame = env.observation_space, env.venv.observation_space
        if not _is_frame_stack(space) or not isinstance(frame, spaces.Box):
            return False
        axis = env.stacked_obs.repeat_axis
        return len(frame.shape) == 3 and frame.shape[axis] == 1
    return not isinstance(env, VecEnvWrapper) and bool(getattr(env, "stacks_frames", False))


def _is_frame_stack(space: spaces.Space) -> bool:
    try:
        _frame_layout(space)
    except InvalidArgument:
        return False
    return True


def default_buffer_class(model: OffPolicyAlgorithm) -> type[ReplayBuffer]:
    """The replay buffer of an algorithm whose user named none, said in a line if it is not SB3's.

    :param model: an algorithm on one observation tensor, before its buffer is made
    """
    if model.optimize_memory_usage or not guarantees_stacked_frames(model.env):
        return QuickReplayBuffer
    frame_shape = _frame_layout(model.observation_space)[2]
    print(
        f"{type(model).__name__}: stacked frames, so the replay buffer stores each frame once "
        f"(FrameReplayBuffer, {model.buffer_size * np.prod(frame_shape) / 1e9:.1f} GB when full); "
        "replay_buffer_class=ReplayBuffer for SB3's",
        file=sys.stderr,
    )
    return FrameReplayBuffer


class Stacks:
    """View in place of SB3's arrays `observations` and `next_observations`: rebuilds the stacks."""

    def __init__(self, buffer: "FrameReplayBuffer", shift: int):
        self.buffer = buffer
        self.shift = shift

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.buffer.buffer_size, self.buffer.n_envs, *self.buffer.obs_shape)

    def __getitem__(self, key: Any) -> np.ndarray:
        """Index rows and environments as in the full array; a trailing `:` (SB3's) is allowed."""
        while isinstance(key, tuple) and len(key) > 2 and key[-1] == slice(None):
            key = key[:-1]
        if isinstance(key, tuple) and len(key) > 2:
            raise IndexError(
                f"only rows and environments can be indexed here, got {len(key)} indices"
            )
        buffer = self.buffer
        places = buffer.places[key][..., self.shift : self.shift + buffer.n_stack]
        stacks = buffer.frames.take(places, axis=0)
        return (
            stacks if buffer.channels_first else np.ascontiguousarray(np.moveaxis(stacks, -3, -1))
        )


class CompressedFrames:
    """In place of the array of frames: each frame is compressed by itself with LZ4.

    :param n_frames: number of places, all of them black at first
    :param frame_shape: (H, W)
    """

    def __init__(self, n_frames: int, frame_shape: tuple[int, int]) -> None:
        self.frame_shape = frame_shape
        self._load_codec()
        self._frames = [self._compress(bytes(self._n_pixels))] * n_frames

    def _load_codec(self) -> None:
        try:
            from lz4.block import compress, decompress  # type: ignore[import-untyped]
        except ImportError as error:
            raise ImportError(
                "compress='lz4' needs lz4: pip install 'sb3_cpp[compress]'"
            ) from error
        n_pixels = self._n_pixels = int(np.prod(self.frame_shape))
        self._compress: Callable[[Any], bytes] = partial(compress, store_size=False)
        self._decompress: Callable[[bytes], bytes] = lambda frame: decompress(frame, n_pixels)

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def nbytes(self) -> int:
        """Of the compressed frames, with what Python stores beside them."""
        return sum(map(sys.getsizeof, self._frames)) + sys.getsizeof(self._frames)

    def __setitem__(self, places: Any, frames: np.ndarray) -> None:
        for place, frame in zip(np.ravel(places), frames.reshape(-1, self._n_pixels)):
            self._frames[place] = self._compress(np.ascontiguousarray(frame))

    def take(self, places: np.ndarray, axis: int = 0) -> np.ndarray:
        frames = [self._decompress(self._frames[place]) for place in places.ravel().tolist()]
        # A bytearray, because torch wants memory that can be written
        pixels = np.frombuffer(bytearray().join(frames), dtype=np.uint8)
        return pixels.reshape(*places.shape, *self.frame_shape)

    def resize(self, shape: tuple[int, ...]) -> None:
        self._frames += [self._frames[BLANK]] * (shape[0] - len(self))

    def __getstate__(self) -> dict[str, Any]:
        lengths = np.array([len(frame) for frame in self._frames], dtype=np.uint32)
        data = b"".join(self._frames)
        return {"frame_shape": self.frame_shape, "lengths": lengths, "data": data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.frame_shape = state["frame_shape"]
        self._load_codec()
        ends = np.cumsum(state["lengths"]).tolist()
        self._frames = [state["data"][i:j] for i, j in zip([0, *ends], ends)]


class FrameReplayBuffer(QuickReplayBuffer):
    """SB3's ReplayBuffer for stacked frames, each frame stored once.

    Frames that no transition needs are released when the oldest transition is overwritten. Kept are
    the frames of `buffer_size` transitions: one per transition and one more per episode. Room for
    one extra frame in 16 is reserved (the system hands out memory when it is written). If episodes
    are so short that this does not suffice, the array grows by a 32nd at a time, at worst to 5/8 of
    SB3's memory; no transition is dropped.

    Observations and next observations of a sample are two views of the same frames: do not change
    them in place. Loading a pickled buffer holds it twice for a moment.

    :param buffer_size: number of transitions, divided among the environments as in SB3
    :param observation_space: uint8 images, channels first (n_stack, H, W) or last (H, W, n_stack),
        one channel per frame
    :param action_space: of the environment
    :param device: of the samples
    :param n_envs: number of environments
    :param optimize_memory_usage: must be False; SB3's own way to save half, which cannot handle
        time-outs
    :param handle_timeout_termination: whether to bootstrap at time limits, as in SB3
    :param compress: "lz4" stores frames compressed, for the same samples to the bit: 0.4 to 2 GB
        instead of 7 for 1,000,000 transitions of eight Atari games, while `sample(64)` takes 0.3 to
        0.6 ms instead of 0.1 (needs the extra `compress`). A checkpoint then writes all frames
        each time. None stores them as they are
    :param kwargs: further arguments of the parent class (n_steps and gamma for
        NStepFrameReplayBuffer)
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        compress: str | None = None,
        **kwargs: Any,
    ):
        if optimize_memory_usage:
            raise InvalidArgument(
                "optimize_memory_usage must be False for a frame buffer, which saves more, got True"
            )
        if compress is not None:
            check_choice("compress", compress, COMPRESSIONS)
        self.channels_first, self.n_stack, frame_shape = _frame_layout(observation_space)
        # The parent gets an observation without pixels, so that it allocates everything else
        super().__init__(
            buffer_size,
            spaces.Box(0, 255, (0,), np.uint8),
            action_space,
            device=device,
            n_envs=n_envs,
            handle_timeout_termination=handle_timeout_termination,
            **kwargs,
        )
        assert observation_space.shape is not None
        self.observation_space = observation_space
        self.obs_shape = observation_space.shape
        self.observations = Stacks(self, shift=0)  # type: ignore[assignment]
        self.next_observations = Stacks(self, shift=1)  # type: ignore[assignment]

        n_transitions = self.buffer_size * n_envs
        # Room for episode ends, and: the black frame, the first stacks, what one add takes before
        # it releases, the rest of each environment's last run
        self._planned = (
            1 + n_transitions + n_transitions // 16 + n_envs * (2 * (self.n_stack + 1) + RUN)
        )
        self.places = np.zeros((self.buffer_size, n_envs, self.n_stack + 1), dtype=np.int32)
        self.frames: Any  # array (places, H, W), or what stands for it
        if compress is None:
            self.frames = np.zeros((self._planned, *frame_shape), dtype=np.uint8)
            n_bytes = n_transitions * self.frames[0].nbytes
            _warn_if_too_large(n_bytes + self.places.nbytes + self.actions.nbytes)
        else:
            self.frames = CompressedFrames(self._planned, frame_shape)
        self._reset_places()

    def _reset_places(self) -> None:
        """All places but the black frame's are free."""
        self._free: list[list[int]] = [[] for _ in range(self.n_envs)]
        self._n_used = BLANK + 1

    @property
    def n_frames(self) -> int:
        """Number of stored frames, with the black one."""
        return self._n_used - sum(map(len, self._free))

    def reset(self) -> None:
        super().reset()
        self._reset_places()

    def add(
        self,
        obs: np.ndarray,
        next_obs: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        stacks, next_stacks = self._as_stacks("obs", obs), self._as_stacks("next_obs", next_obs)
        if not np.array_equal(next_stacks[:, :-1], stacks[:, 1:]):
            raise InvalidArgument(
                f"next_obs must be obs moved on by one frame, with {self.n_stack} frames of one "
                "channel stacked; it is not. Is the environment frame-stacked, and does it give "
                "terminal_observation?"
            )
        row = np.empty((self.n_envs, self.n_stack + 1), dtype=np.int32)
        continued = self._continued(stacks)
        row[continued, :-1] = self.places[self.pos - 1, continued, 1:]
        for env in np.flatnonzero(~continued).tolist():
            row[env, :-1] = self._store_stack(env, stacks[env])
        row[:, -1] = [self._take_place(env) for env in range(self.n_envs)]
        self.frames[row[:, -1]] = next_stacks[:, -1]

        oldest = self.places[self.pos].copy()
        self.places[self.pos] = row
        if self.full:
            self._release(oldest, still_used=self.places[(self.pos + 1) % self.buffer_size])

        self.actions[self.pos] = action.reshape((self.n_envs, self.action_dim))
        self.rewards[self.pos] = reward
        self.dones[self.pos] = done
        if self.handle_timeout_termination:
            self.timeouts[self.pos] = [info.get("TimeLimit.truncated", False) for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full = True
            self.pos = 0

    def _as_stacks(self, name: str, obs: np.ndarray) -> np.ndarray:
        """The observations as (n_envs, n_stack, H, W), without a copy."""
        obs = np.asarray(obs)
        if obs.shape != (self.n_envs, *self.obs_shape) or obs.dtype != np.uint8:
            expected = (self.n_envs, *self.obs_shape)
            raise InvalidArgument(
                f"{name} must be uint8 of shape {expected}, got {obs.dtype} of shape {obs.shape}"
            )
        return obs if self.channels_first else np.moveaxis(obs, -1, 1)

    def _continued(self, stacks: np.ndarray) -> np.ndarray:
        """For each environment, whether its stack is the previous next stack.

        Done flags do not tell: a caller may reset in mid-episode, and a lost life may keep the
        stack.
        """
        if self.pos == 0 and not self.full:
            return np.zeros(self.n_envs, dtype=bool)
        previous = self.frames.take(self.places[self.pos - 1, :, 1:], axis=0)
        return np.array([np.array_equal(*pair) for pair in zip(previous, stacks)])

    def _store_stack(self, env: int, stack: np.ndarray) -> np.ndarray:
        """Places of an episode's first stack; black and repeated frames take no room."""
        places = np.empty(self.n_stack, dtype=np.int32)
        for i, frame in enumerate(stack):
            if not frame.any():
                places[i] = BLANK
            elif i > 0 and np.array_equal(frame, stack[i - 1]):
                places[i] = places[i - 1]
            else:
                places[i] = self._take_place(env)
                self.frames[places[i]] = frame
        return places

    def _take_place(self, env: int) -> int:
        """A free place of this environment, or the first of a new run.

        The place released last, which held its oldest frame: so its places fill as a ring.
        """
        free = self._free[env]
        if not free:
            first, self._n_used = self._n_used, self._n_used + RUN
            if self._n_used > len(self.frames):
                self._grow()
            free.extend(reversed(range(first, self._n_used)))
        return free.pop()

    def _grow(self) -> None:
        """Make room for a 32nd more frames.

        Resizing in place copies nothing on Linux; numpy refuses it while somebody holds a view.
        """
        n_frames = self._n_used + max(len(self.frames) // 32, self.n_envs)
        shape = (n_frames, *_frame_layout(self.observation_space)[2])
        try:
            self.frames.resize(shape)
        except ValueError:
            grown = np.zeros(shape, dtype=np.uint8)
            grown[: len(self.frames)] = self.frames
            self.frames = grown

    def _release(self, oldest: np.ndarray, still_used: np.ndarray) -> None:
        """Release the frames of an overwritten row that the row after it does not use.

        No later row can use them: a row's frames are new or were in the row before, and no two
        environments share one.
        """
        unused = (oldest[:, :, None] != still_used[:, None, :]).all(axis=2) & (oldest != BLANK)
        for free, places, mask in zip(self._free, oldest, unused):
            free.extend(sorted(set(places[mask].tolist()), reverse=True))

    def _gather_observations(self, at: np.ndarray) -> tuple[th.Tensor, th.Tensor]:
        """Each sample's n_stack + 1 frames are gathered once."""
        frames = self.frames.take(gather(self.places, at), axis=0)
        if not self.channels_first:
            frames = np.ascontiguousarray(np.moveaxis(frames, 1, -1))
        both = self.to_torch(frames, copy=False)
        axis = 1 if self.channels_first else -1
        return both.narrow(axis, 0, self.n_stack), both.narrow(axis, 1, self.n_stack)

    def rows_in_use(self, name: str) -> int:
        """Rows of an array that were ever written; checkpoints store only those."""
        if name == "frames":
            return self._n_used
        ring = not self.full and name in _RING_ARRAYS
        return self.pos if ring else len(getattr(self, name))

    def rows_changed(self, name: str, transitions: np.ndarray) -> np.ndarray | None:
        """Rows of an array that adding these transitions changed; None if that is not known."""
        if name == "frames":
            return np.unique(self.places[transitions])
        return transitions if name in _RING_ARRAYS else None

    def __getstate__(self) -> dict[str, Any]:
        """Frames never written are not saved."""
        if isinstance(self.frames, CompressedFrames):
            return self.__dict__
        return {**self.__dict__, "frames": self.frames[: self._n_used]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self.frames, CompressedFrames):
            return
        used = self.frames
        self.frames = np.zeros((max(self._planned, len(used)), *used.shape[1:]), dtype=np.uint8)
        self.frames[: len(used)] = used


class NStepFrameReplayBuffer(FrameReplayBuffer, NStepReplayBuffer):
    """SB3's NStepReplayBuffer with each frame stored once.

    Example: `replay_buffer_kwargs={"n_steps": 3, "gamma": 0.99}`.
    """

    # Reads the stacks through `observations` and `next_observations`
    _get_samples = NStepReplayBuffer._get_samples


def _frame_layout(space: spaces.Space) -> tuple[bool, int, tuple[int, int]]:
    """Whether channels come first, the number of stacked frames, and a frame's (H, W).

    The shortest axis is that of the channels, as in SB3.
    """
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.dtype != np.uint8:
        raise InvalidArgument(
            f"observation_space must be a stack of frames, a 3-dimensional uint8 Box, got {space}"
        )
    axis = int(np.argmin(space.shape))
    if axis == 1 or space.shape[axis] < 2:
        raise InvalidArgument(
            "observation_space must have its 2 or more stacked frames on the first or last axis, "
            f"got shape {space.shape}"
        )
    first, second = (n for i, n in enumerate(space.shape) if i != axis)
    return axis == 0, space.shape[axis], (first, second)


def _warn_if_too_large(n_bytes: int) -> None:
    available = psutil.virtual_memory().available if psutil is not None else n_bytes
    if n_bytes > available:
        warnings.warn(
            "This system does not have apparently enough memory to store the complete "
            f"replay buffer {n_bytes / 1e9:.2f}GB > {available / 1e9:.2f}GB",
            stacklevel=3,
        )
