"""The danger gridworld: its layout, its environment, and that both are the same world."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3 import DQN
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from sb3_cpp.tabular import ENV_ID, DangerGrid, DangerGridworldEnv
from sb3_cpp.tabular.gridworld import ACTIONS

UP, RIGHT, DOWN, LEFT = range(4)


def test_a_move_succeeds_with_p_and_otherwise_goes_one_of_the_three_other_ways() -> None:
    """From (1,1), state 6: up 1, right 7, down 11, left 5; each wrong way has probability 0.1/3."""
    p = DangerGrid(success_probability=0.9).transition
    assert p[6, RIGHT, [1, 7, 11, 5]].tolist() == pytest.approx([0.1 / 3, 0.9, 0.1 / 3, 0.1 / 3])
    assert len(ACTIONS) == 4


def test_walls_stop_a_move() -> None:
    """In the start corner up and left both stay: 0.9 + 0.1/3 for the action up."""
    p = DangerGrid(success_probability=0.9).transition
    assert p[0, UP, 0].item() == pytest.approx(0.9 + 0.1 / 3)


def test_rewards_replace_the_cost_of_the_step() -> None:
    """Danger at (2,2) = 12 and (2,3) = 13, goal 24; right of (2,1) = 11 with certainty lies
    danger."""
    grid = DangerGrid(success_probability=1.0)
    assert grid.danger_states.nonzero().flatten().tolist() == [12, 13]
    reward = grid.mdp(0.9).reward
    assert reward[11, RIGHT].item() == -1.0
    assert reward[23, RIGHT].item() == 1.0
    assert reward[0, RIGHT].item() == pytest.approx(-0.1)
    assert (reward[24] == 0.0).all()


def test_shortest_way_avoids_danger() -> None:
    """Without slips 8 steps lead to the goal: V(start) = -0.1 (1 + g + ... + g^6) + g^7."""
    g = 0.9
    value = DangerGrid(success_probability=1.0).mdp(g).optimum().v[0].item()
    assert value == pytest.approx(-0.1 * sum(g**t for t in range(7)) + g**7)


def test_environment_passes_the_checks_of_gymnasium_and_sb3() -> None:
    gymnasium_check_env(gym.make(ENV_ID).unwrapped)
    sb3_check_env(DangerGridworldEnv(), warn=True)


def test_environment_steps_have_the_frequencies_of_the_mdp() -> None:
    """20,000 steps down from the start: the share of each successor lies within 4 standard
    deviations of its probability."""
    env, n = DangerGridworldEnv(success_probability=0.7), 20_000
    counts = np.zeros(25)
    env.reset(seed=0)
    for _ in range(n):
        env.reset()
        state, reward, terminated, truncated, info = env.step(np.int64(DOWN))
        counts[state] += 1
        assert (reward, terminated, truncated, info["danger"]) == (-0.1, False, False, False)
    p = env.grid.transition[0, DOWN].numpy()
    assert (np.abs(counts / n - p) <= 4.0 * np.sqrt(p * (1.0 - p) / n)).all()


def test_episode_ends_at_the_goal_or_after_20_steps() -> None:
    env = gym.make(ENV_ID, success_probability=1.0)
    env.reset(seed=0)
    outcomes = [env.step(a)[1:4] for a in [RIGHT] * 4 + [DOWN] * 4]
    assert outcomes[-1] == (1.0, True, False)
    assert sum(reward for reward, *_ in outcomes) == pytest.approx(-0.7 + 1.0)
    env.reset()
    assert [env.step(UP)[3] for _ in range(20)] == [False] * 19 + [True]


def test_danger_is_reported_and_costs_one() -> None:
    env = DangerGridworldEnv(success_probability=1.0)
    env.reset(seed=0)
    *_, last = [env.step(np.int64(a)) for a in (DOWN, DOWN, RIGHT, RIGHT)]
    assert (last[0], last[1], last[4]["danger"]) == (12, -1.0, True)


def test_text_shows_agent_danger_and_goal() -> None:
    env = gym.make(ENV_ID, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "A . . . .\n. . . . .\n. . X X .\n. . . . .\n. . . . G"


def test_picture_has_the_agent_where_it_is() -> None:
    env = gym.make(ENV_ID, render_mode="rgb_array", success_probability=1.0)
    env.reset(seed=0)
    before = env.render()
    env.step(RIGHT)
    after = env.render()
    assert isinstance(before, np.ndarray)
    assert isinstance(after, np.ndarray)
    assert (before.shape, before.dtype) == ((160, 160, 3), np.uint8)
    assert np.array_equal(
        before[16, 16], after[16, 48]
    )  # centre of the first and of the second cell
    assert not np.array_equal(before[16, 16], after[16, 16])


def test_a_deep_algorithm_runs_on_it() -> None:
    model = DQN(
        "MlpPolicy", gym.make(ENV_ID), learning_starts=20, policy_kwargs={"net_arch": [8]}, seed=0
    ).learn(100)
    assert model.num_timesteps == 100


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 1}, "size must be a whole number of at least 2, got 1"),
        (
            {"success_probability": 1.5},
            r"success_probability must be a number in \[0, 1\], got 1.5",
        ),
        ({"danger": ((5, 0),)}, r"danger must list cells .* got \(5, 0\)"),
        ({"danger": ((0, 0),)}, "danger must list cells"),
        ({"danger": ((1.5, 2),)}, "danger must list cells"),
        ({"goal_reward": 2.0}, r"goal_reward must be a number in \[-1, 1\], got 2.0"),
        ({"render_mode": "human"}, "render_mode must be one of"),
    ],
)
def test_a_wrong_layout_is_refused_by_name(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DangerGridworldEnv(**wrong)


def test_grid_tensors_are_double_precision() -> None:
    assert DangerGrid().transition.dtype == th.float64
