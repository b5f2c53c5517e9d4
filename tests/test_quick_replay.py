import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_cpp import DeepCPP
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.quick_replay import QuickReplayBuffer

SPACES = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "board": spaces.Box(0, 1, (4, 10, 10), np.bool_),
    "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
    "number": spaces.Discrete(7),
}


def _fill(buffer: ReplayBuffer, space: spaces.Space, steps: int) -> None:
    generator = np.random.default_rng(0)
    space.seed(0)
    obs = np.stack([space.sample() for _ in range(buffer.n_envs)])
    for _ in range(steps):
        new = np.stack([space.sample() for _ in range(buffer.n_envs)])
        action, reward = (
            generator.integers(0, 5, buffer.n_envs),
            generator.normal(size=buffer.n_envs),
        )
        done, cut = generator.random(buffer.n_envs) < 0.3, generator.random(buffer.n_envs) < 0.5
        buffer.add(
            obs,
            new,
            action,
            reward,
            done,
            [{"TimeLimit.truncated": bool(d and c)} for d, c in zip(done, cut)],
        )
        obs = new


def _assert_same_samples(
    expected: ReplayBuffer, actual: ReplayBuffer, env: VecNormalize | None = None
) -> None:
    for seed in range(20):
        np.random.seed(seed)
        theirs = expected.sample(32, env)
        np.random.seed(seed)
        ours = actual.sample(32, env)
        for name, value in theirs._asdict().items():
            if value is None:
                assert getattr(ours, name) is None
            else:
                th.testing.assert_close(
                    getattr(ours, name), value, rtol=0.0, atol=0.0
                )  # type and shape too


@pytest.mark.parametrize("n_envs", [1, 3])
@pytest.mark.parametrize("steps", [20, 150], ids=["filling", "full"])
@pytest.mark.parametrize("kind", sorted(SPACES))
def test_samples_equal_sb3s_to_the_bit(kind: str, steps: int, n_envs: int) -> None:
    arguments = (50 * n_envs, SPACES[kind], spaces.Discrete(5), "cpu", n_envs)
    expected, actual = ReplayBuffer(*arguments), QuickReplayBuffer(*arguments)
    for buffer in (expected, actual):
        _fill(buffer, SPACES[kind], steps)
    _assert_same_samples(expected, actual)


def test_a_sample_is_nobody_elses() -> None:
    buffer = QuickReplayBuffer(50, SPACES["vector"], spaces.Discrete(5), "cpu")
    _fill(buffer, SPACES["vector"], 50)
    before = buffer.observations.copy()
    for tensor in buffer.sample(32)[:5]:
        tensor.zero_()
    np.testing.assert_array_equal(buffer.observations, before)


def test_normalised_observations_and_sb3s_own_way_to_save_memory_are_sb3s() -> None:
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    env.reset()
    for _ in range(30):
        env.step(np.zeros(1, dtype=int))
    space = env.observation_space
    for saving in (False, True):
        kwargs = {"optimize_memory_usage": saving, "handle_timeout_termination": not saving}
        expected, actual = (
            kind(40, space, spaces.Discrete(2), "cpu", **kwargs)
            for kind in (ReplayBuffer, QuickReplayBuffer)
        )
        for buffer in (expected, actual):
            _fill(buffer, spaces.Box(-1.0, 1.0, space.shape), 70)
        _assert_same_samples(expected, actual, env)
        _assert_same_samples(expected, actual)


def test_algorithms_use_it_unless_told_otherwise() -> None:
    assert type(DeepCPP("MlpPolicy", "CartPole-v1").replay_buffer) is QuickReplayBuffer
    assert (
        type(DeepCPP("MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer).replay_buffer)
        is ReplayBuffer
    )
    assert type(DeepCPP("MlpPolicy", "CartPole-v1", fast=False).replay_buffer) is ReplayBuffer
    assert type(RegularizedDQN("MlpPolicy", "CartPole-v1").replay_buffer) is ReplayBuffer
