"""The frame buffer against SB3's own: the same samples to the bit, whatever the episodes do."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from sb3_cpp import CautiousMDQN
from sb3_cpp.atari.frame_buffer import (
    BLANK,
    RUN,
    FrameReplayBuffer,
    NStepFrameReplayBuffer,
    guarantees_stacked_frames,
)
from sb3_cpp.quick_replay import QuickReplayBuffer
from tests.atari.frame_streams import FRAME, N_STACK, random_stream, stacked_space

ACTIONS = spaces.Discrete(5)


def make(cls: Any, size: int, n_envs: int, channels_first: bool = True, **kwargs: Any) -> Any:
    return cls(size, stacked_space(channels_first), ACTIONS, device="cpu", n_envs=n_envs, **kwargs)


def pair(
    size: int, n_envs: int, channels_first: bool = True, compress: str | None = None
) -> tuple[ReplayBuffer, FrameReplayBuffer]:
    expected = make(ReplayBuffer, size, n_envs, channels_first)
    return expected, make(FrameReplayBuffer, size, n_envs, channels_first, compress=compress)


compressions = pytest.mark.parametrize("compress", [None, "lz4"])


def assert_same_samples(
    expected: ReplayBuffer, actual: ReplayBuffer, batch: int, seed: int = 0
) -> None:
    np.random.seed(seed)
    wanted = expected.sample(batch)
    state = np.random.get_state()[1].tolist()
    np.random.seed(seed)
    got = actual.sample(batch)
    assert np.random.get_state()[1].tolist() == state, (
        "sampling must use the random numbers that SB3's uses"
    )
    for name, one, other in zip(wanted._fields, wanted, got):
        if one is not None:
            assert one.dtype == other.dtype, name
            assert th.equal(one, other), name


def assert_same_contents(expected: ReplayBuffer, actual: FrameReplayBuffer) -> None:
    rows = np.arange(expected.size())
    assert np.array_equal(expected.observations[rows], actual.observations[rows])
    assert np.array_equal(expected.next_observations[rows], actual.next_observations[rows])


@pytest.mark.parametrize("channels_first", [True, False])
@pytest.mark.parametrize("n_envs", [1, 4])
@compressions
def test_100000_samples_equal_sb3_to_the_bit(
    n_envs: int, channels_first: bool, compress: str | None
) -> None:
    rng = np.random.default_rng(n_envs)
    expected, actual = pair(300 * n_envs, n_envs, channels_first, compress)
    for step, transition in enumerate(random_stream(rng, n_envs, 1000, 0.05, channels_first)):
        expected.add(*transition)
        actual.add(*transition)
        if step % 10 == 9:  # before the first and after each of three wrap-arounds
            assert_same_samples(expected, actual, 1000, seed=step)
    assert expected.timeouts.any()
    assert expected.dones.any()
    assert actual.pos == expected.pos
    assert actual.full


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(1, 3),
    st.floats(0, 1),
    st.integers(0, 120),
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, "lz4"]),
)
def test_every_stored_transition_equals_sb3s(
    size: int, n_envs: int, ends: float, steps: int, seed: int, compress: str | None
) -> None:
    expected, actual = pair(size, n_envs, compress=compress)
    for transition in random_stream(np.random.default_rng(seed), n_envs, steps, ends):
        expected.add(*transition)
        actual.add(*transition)
        assert_same_contents(expected, actual)


def test_each_frame_of_a_long_episode_is_stored_once() -> None:
    actual = make(FrameReplayBuffer, 500, 1)
    for transition in random_stream(np.random.default_rng(0), 1, 3000, end_probability=0):
        actual.add(*transition)
    # The black frame, one frame per transition, the frames before the oldest one's newest, no more
    assert actual.n_frames == 1 + 500 + N_STACK
    assert actual._n_used <= 1 + 500 + N_STACK + RUN


def test_the_frames_of_an_environment_lie_side_by_side_however_often_the_ring_went_round() -> None:
    actual = make(FrameReplayBuffer, 4 * 500, 4)
    for transition in random_stream(np.random.default_rng(0), 4, 3000, end_probability=0.01):
        actual.add(*transition)
    side_by_side = (np.diff(actual.places, axis=-1) == 1).all(axis=-1).mean()
    # All but the seams of runs and the first stacks of episodes; taken in turns it would be 0
    assert side_by_side > 0.5


def test_padding_of_first_stacks_takes_no_room() -> None:
    actual = make(FrameReplayBuffer, 10, 1)
    newest = np.full(FRAME, 7, dtype=np.uint8)
    for padding in (np.zeros_like(newest), newest):
        obs = np.stack([padding, padding, padding, newest])[None]
        next_obs = np.concatenate([obs[:, 1:], newest[None, None] + 1], axis=1)
        before = actual.n_frames
        actual.add(obs, next_obs, np.zeros(1), np.zeros(1), np.ones(1), [{}])
        assert actual.n_frames == before + 2
    assert (actual.places[0, 0, :3] == BLANK).all()


@compressions
def test_array_grows_when_every_transition_is_an_episode(compress: str | None) -> None:
    expected, actual = pair(200, 2, compress=compress)
    planned = len(actual.frames)
    # Somebody's view must stay valid: then the array is copied instead of resized
    view = actual.frames[:1] if compress is None else None
    for step, transition in enumerate(
        random_stream(np.random.default_rng(1), 2, 450, end_probability=1)
    ):
        expected.add(*transition)
        actual.add(*transition)
        if step == 60:
            del view
    assert len(actual.frames) > planned
    assert_same_contents(expected, actual)


@pytest.mark.parametrize("steps", [37, 250])
@compressions
def test_a_pickled_buffer_gives_the_same_samples_and_continues(
    steps: int, compress: str | None
) -> None:
    expected, actual = pair(200, 2, compress=compress)
    stream = random_stream(np.random.default_rng(2), 2, steps + 300)
    for _, transition in zip(range(steps), stream):
        expected.add(*transition)
        actual.add(*transition)
    pickled = pickle.dumps(actual)
    frames_saved = actual._n_used * np.prod(FRAME)
    assert len(pickled) < frames_saved + 40_000
    loaded = pickle.loads(pickled)
    assert_same_samples(expected, loaded, 500)
    for transition in stream:
        expected.add(*transition)
        loaded.add(*transition)
    assert_same_samples(expected, loaded, 500)


def test_time_outs_are_not_ends_only_if_handled() -> None:
    for handled, expected_done in ((True, 0.0), (False, 1.0)):
        actual = make(FrameReplayBuffer, 4, 1, handle_timeout_termination=handled)
        transition = next(random_stream(np.random.default_rng(0), 1, 1))
        actual.add(*transition[:4], np.array([True]), [{"TimeLimit.truncated": True}])
        assert actual.sample(1).dones.item() == expected_done


def test_reset_empties_the_buffer_and_frees_all_frames() -> None:
    expected, actual = pair(50, 2)
    for transition in random_stream(np.random.default_rng(3), 2, 70):
        actual.add(*transition)
    actual.reset()
    assert actual.size() == 0
    for transition in random_stream(np.random.default_rng(4), 2, 33):
        expected.add(*transition)
        actual.add(*transition)
    assert_same_contents(expected, actual)
    assert actual._n_used <= 1 + 2 * 33 * (N_STACK + 1)


@compressions
def test_n_step_samples_equal_sb3s(compress: str | None) -> None:
    expected = make(NStepReplayBuffer, 200, 2, n_steps=3, gamma=0.9)
    actual = make(NStepFrameReplayBuffer, 200, 2, n_steps=3, gamma=0.9, compress=compress)
    for transition in random_stream(np.random.default_rng(5), 2, 250):
        expected.add(*transition)
        actual.add(*transition)
    assert_same_samples(expected, actual, 2000)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(-1, 1, (4,)), "3-dimensional uint8"),
        (spaces.Box(0, 1, (4, 84, 84)), "3-dimensional uint8"),
        (spaces.Discrete(3), "3-dimensional uint8"),
        (spaces.Dict({"image": stacked_space()}), "3-dimensional uint8"),
        (spaces.Box(0, 255, (84, 84, 1), np.uint8), r"\(84, 84, 1\)"),
        (spaces.Box(0, 255, (84, 4, 84), np.uint8), r"\(84, 4, 84\)"),
    ],
)
def test_spaces_that_are_not_frame_stacks_are_refused(space: spaces.Space, words: str) -> None:
    with pytest.raises(ValueError, match=f"observation_space must .*{words}"):
        FrameReplayBuffer(10, space, ACTIONS)


def test_optimize_memory_usage_is_refused() -> None:
    with pytest.raises(ValueError, match="optimize_memory_usage must be False"):
        make(FrameReplayBuffer, 10, 1, optimize_memory_usage=True, handle_timeout_termination=False)


def test_a_stream_that_is_not_stacked_is_refused_and_changes_nothing() -> None:
    actual = make(FrameReplayBuffer, 10, 1)
    obs, next_obs = np.random.default_rng(0).integers(
        0, 255, (2, 1, N_STACK, *FRAME), dtype=np.uint8
    )
    with pytest.raises(
        ValueError, match="next_obs must be obs moved on by one frame, with 4 frames"
    ):
        actual.add(obs, next_obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
    assert actual.size() == 0
    assert actual._n_used == BLANK + 1


@pytest.mark.parametrize(
    "bad", [np.zeros((2, N_STACK, *FRAME), np.uint8), np.zeros((1, N_STACK, *FRAME))]
)
def test_observations_of_another_shape_or_type_are_refused(bad: np.ndarray) -> None:
    actual = make(FrameReplayBuffer, 10, 1)
    with pytest.raises(ValueError, match=r"obs must be uint8 of shape \(1, 4, 7, 6\), got"):
        actual.add(bad, bad, np.zeros(1), np.zeros(1), np.zeros(1), [{}])


def test_too_large_a_buffer_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil")
    memory = type("memory", (), {"available": 1000})
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.warns(UserWarning, match="enough memory"):
        make(FrameReplayBuffer, 100, 1)


def test_compressed_frames_take_less_room() -> None:
    space = spaces.Box(0, 255, (N_STACK, 84, 84), np.uint8)
    plain, compressed = (
        FrameReplayBuffer(100, space, ACTIONS, device="cpu", compress=compress)
        for compress in (None, "lz4")
    )
    obs = np.zeros((1, N_STACK, 84, 84), np.uint8)
    for step in range(100):
        next_obs = np.roll(obs, -1, axis=1)
        next_obs[0, -1] = 0
        next_obs[0, -1, step % 80 : step % 80 + 4, 40:44] = 200  # a ball on black
        for buffer in (plain, compressed):
            buffer.add(obs, next_obs, np.zeros(1), np.zeros(1), np.zeros(1), [{}])
        obs = next_obs
    assert compressed.frames.nbytes < 0.05 * plain.frames.nbytes
    assert_same_samples(plain, compressed, 200)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="compress must be one of 'lz4', got 'zip'"):
        make(FrameReplayBuffer, 10, 1, compress="zip")


def test_the_extra_for_compression_is_named() -> None:
    code = (
        "import sys; sys.modules['lz4'] = sys.modules['lz4.block'] = None\n"
        "from gymnasium import spaces\n"
        "from sb3_cpp.atari import FrameReplayBuffer\n"
        "space = spaces.Box(0, 255, (4, 84, 84), 'uint8')\n"
        "FrameReplayBuffer(10, space, spaces.Discrete(2), compress='lz4')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = result.stderr.strip().splitlines()[-1]
    assert last == "ImportError: compress='lz4' needs lz4: pip install 'sb3_cpp[compress]'"


class Frames(gym.Env):
    """Random frames of the given shape."""

    def __init__(self, shape: tuple[int, ...] = (36, 36, 1), dtype: Any = np.uint8) -> None:
        self.observation_space = spaces.Box(0, 255, shape, dtype)
        self.action_space = ACTIONS

    def reset(self, **kwargs: Any) -> Any:
        super().reset(seed=kwargs.get("seed"))
        return self._frame(), {}

    def step(self, action: Any) -> Any:
        return self._frame(), float(action), bool(self.np_random.random() < 0.1), False, {}

    def _frame(self) -> Any:
        space = self.observation_space
        return self.np_random.integers(0, 256, space.shape).astype(space.dtype)


def frames_env(*args: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Frames(*args)])


# SB3's own way to save memory, which cannot handle time-outs
HALVED = {
    "optimize_memory_usage": True,
    "replay_buffer_kwargs": {"handle_timeout_termination": False},
}
CNN: dict[str, Any] = {"buffer_size": 60, "learning_starts": 40, "batch_size": 4, "device": "cpu"}


def test_stacked_frames_are_stored_once_by_default_and_it_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def make_env() -> VecEnv:
        return VecFrameStack(frames_env(), 4)

    model = CautiousMDQN("CnnPolicy", make_env(), **CNN).learn(50)
    assert type(model.replay_buffer) is FrameReplayBuffer
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "CautiousMDQN: stacked frames, so the replay buffer stores each frame once" in line
    assert "replay_buffer_class=ReplayBuffer for SB3's" in line
    model.save(tmp_path / "model")
    loaded = CautiousMDQN.load(tmp_path / "model", make_env())
    assert type(loaded.replay_buffer) is FrameReplayBuffer
    loaded.learn(50)
    assert type(CautiousMDQN.load(tmp_path / "model").replay_buffer) is FrameReplayBuffer
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("env", "changes", "expected"),
    [
        (VecFrameStack(frames_env(), 4), {"replay_buffer_class": ReplayBuffer}, ReplayBuffer),
        (VecFrameStack(frames_env(), 4), HALVED, QuickReplayBuffer),
        (VecFrameStack(frames_env((36, 36, 3)), 4), {}, QuickReplayBuffer),
        (frames_env((36, 36, 4)), {}, QuickReplayBuffer),
    ],
)
def test_other_images_and_other_wishes_keep_the_usual_buffer(
    env: VecEnv,
    changes: dict[str, Any],
    expected: type,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = CautiousMDQN("CnnPolicy", env, **CNN, **changes).learn(50)
    assert type(model.replay_buffer) is expected
    assert capsys.readouterr().err == ""


def test_the_default_buffer_changes_no_weight() -> None:
    def weights(**changes: Any) -> Any:
        env = VecFrameStack(frames_env(), 4)
        model = CautiousMDQN("CnnPolicy", env, seed=3, **CNN, **changes)
        return model.learn(60).policy.state_dict()

    ours, sb3s = weights(), weights(replay_buffer_class=ReplayBuffer)
    assert all(th.equal(ours[name], sb3s[name]) for name in sb3s)


@pytest.mark.parametrize(
    ("env", "guaranteed"),
    [
        (VecFrameStack(frames_env(), 4), True),
        (VecMonitor(VecTransposeImage(VecFrameStack(frames_env(), 4))), True),
        (VecFrameStack(VecTransposeImage(frames_env()), 4, channels_order="first"), True),
        (VecFrameStack(frames_env((36, 36, 3)), 4), False),  # colours: moved on by three channels
        (VecFrameStack(frames_env(), 1), False),
        (VecFrameStack(frames_env((4,), np.float32), 4), False),
        (frames_env((36, 36, 4)), False),  # four channels that nobody stacked
        (VecNormalize(VecFrameStack(frames_env(), 4)), False),  # changes what it passes on
        (None, False),
    ],
)
def test_frames_are_stacked_only_where_the_environment_guarantees_it(
    env: VecEnv | None, guaranteed: bool
) -> None:
    assert guarantees_stacked_frames(env) is guaranteed
    if env is not None and guaranteed:
        DQN(
            "CnnPolicy", env, replay_buffer_class=FrameReplayBuffer, buffer_size=60, device="cpu"
        ).learn(80)
