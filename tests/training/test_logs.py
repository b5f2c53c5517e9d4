"""What a run writes while it trains, piece by piece."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_cpp.training.logs import EvaluationCallback


class CountsSteps(gym.Wrapper[Any, Any, Any, Any]):
    total = 0

    def step(self, action: Any) -> Any:
        CountsSteps.total += 1
        return super().step(action)


@pytest.mark.parametrize(("n_envs", "episodes"), [(1, 3), (4, 4), (3, 7), (5, 2)])
def test_an_evaluation_plays_the_episodes_it_counts_and_no_others(
    tmp_path: Path, n_envs: int, episodes: int
) -> None:
    def make() -> Monitor:
        return Monitor(CountsSteps(gym.make("CartPole-v1")))

    model = DQN("MlpPolicy", DummyVecEnv([make]), learning_starts=0, seed=0)
    model.learn(1)
    plain = DummyVecEnv([make] * n_envs)
    callback = EvaluationCallback(
        DummyVecEnv([make] * n_envs), tmp_path, every=10, episodes=episodes, seed=0, total=100
    )
    callback.init_callback(model)
    for number in range(3):
        CountsSteps.total = 0
        callback.evaluate()
        played = CountsSteps.total
        plain.seed(1_000_003 + number * n_envs)
        expected = evaluate_policy(model, plain, episodes, return_episode_rewards=True)
        assert (callback.results[-1], callback.lengths[-1]) == expected
        assert played == sum(callback.lengths[-1])
    assert len(set(np.ravel(callback.lengths))) > 1
