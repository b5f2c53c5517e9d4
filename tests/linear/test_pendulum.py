import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from stable_baselines3.common.env_checker import check_env as sb3_check_env

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.linear import ENV_ID, PendulumBatch, PendulumSwingUp

STEPS = 10_000


def _step_by_hand(angle: float, velocity: float, torque: float) -> tuple[float, float, float]:
    """Rod of length 1.5 and mass 1 under gravity 10, steps of 0.1 s: 3g/(2l) = 10 and 3/(m l^2) =
    4/3."""
    velocity = min(max(velocity + 0.1 * (10.0 * math.sin(angle) + 4.0 / 3.0 * torque), -8.0), 8.0)
    angle = math.remainder(angle + 0.1 * velocity, 2.0 * math.pi)
    return angle, velocity, -(angle**2 + 0.01 * velocity**2) / 10.0


def test_vectorised_pendulum_equals_the_gymnasium_one_for_10000_random_steps() -> None:
    env, twin = gym.make(ENV_ID), PendulumBatch(3, dtype=np.float64)
    env.reset(seed=0)
    twin.reset()
    actions = np.random.default_rng(0).integers(0, 3, STEPS)
    cuts = 0
    for action in actions:
        observation, reward, terminated, truncated, _ = env.step(action)
        step = twin.step(np.full(3, action))
        np.testing.assert_array_equal(step.arrived.astype(np.float32), np.tile(observation, (3, 1)))
        np.testing.assert_array_equal(step.rewards, np.full(3, reward))
        assert step.truncated.tolist() == [truncated] * 3
        assert step.terminated.tolist() == [terminated] * 3
        if truncated:
            cuts += 1
            np.testing.assert_array_equal(step.states[0].astype(np.float32), env.reset()[0])
    assert cuts == STEPS // 500


def test_trials_of_the_batch_are_independent_and_single_precision_follows_double() -> None:
    generator = np.random.default_rng(0)
    double, single = PendulumBatch(8, dtype=np.float64), PendulumBatch(8)
    for _ in range(20):  # few: the motion is chaotic, so that rounding grows
        actions = generator.integers(0, 3, 8)
        a, b = double.step(actions), single.step(actions)
        np.testing.assert_allclose(a.arrived, b.arrived, rtol=1e-4, atol=1e-4)
    assert len(np.unique(a.arrived[:, 0])) == 8


def test_a_step_is_the_rod_equation_and_the_corrected_reward() -> None:
    env = PendulumSwingUp()
    generator = np.random.default_rng(1)
    for _ in range(200):
        angle, velocity = generator.uniform(-math.pi, math.pi), generator.uniform(-8.0, 8.0)
        action = generator.integers(0, 3)
        env.reset(options={"angle": angle, "velocity": velocity})
        observation, reward, *_ = env.step(action)
        expected = _step_by_hand(angle, velocity, (-2.0, 0.0, 2.0)[action])
        np.testing.assert_allclose([*observation, reward], expected, rtol=1e-5, atol=1e-6)


def test_it_starts_hanging_at_rest_and_upright_is_the_best_state() -> None:
    env = PendulumSwingUp()
    np.testing.assert_allclose(env.reset()[0], [-math.pi, 0.0], rtol=1e-6)
    env.reset(options={"angle": 0.0})
    assert env.step(1)[1] == 0.0


def test_torque_alone_cannot_lift_it_so_that_it_must_swing() -> None:
    env = PendulumSwingUp()
    for action in (0, 2):
        env.reset()
        angles = [abs(env.step(action)[0][0]) for _ in range(200)]
        assert min(angles) > math.pi / 2.0


def test_environment_checkers_have_no_complaint() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb3_check_env(PendulumSwingUp(render_mode="rgb_array"))
        gymnasium_check_env(gym.make(ENV_ID).unwrapped, skip_render_check=True)


def test_picture_shows_the_bob_where_the_angle_says() -> None:
    env = gym.make(ENV_ID, render_mode="rgb_array")
    env.reset(options={"angle": math.pi / 2.0})
    picture = np.asarray(env.render()).astype(int)
    assert picture.shape == (240, 240, 3)
    red = (picture[..., 0] - picture[..., 2] > 100) & (picture[..., 1] < 120)
    rows, columns = red.nonzero()
    assert rows.mean() == pytest.approx(120.0, abs=2.0)
    assert columns.mean() == pytest.approx(120.0 + 0.36 * 240.0, abs=2.0)


@pytest.mark.parametrize("action", [3, -1, 1.0])
def test_an_action_that_does_not_exist_is_refused(action: object) -> None:
    env = PendulumSwingUp()
    env.reset()
    with pytest.raises(InvalidArgument, match="action must be an integer in"):
        env.step(action)  # type: ignore[arg-type]


def test_unknown_render_mode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="render_mode"):
        PendulumSwingUp(render_mode="human")
