"""Environments by id."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.environments import find_environment, make_environment, make_minatar


def test_minatar_is_channels_first_and_ends_at_its_time_limit() -> None:
    pytest.importorskip("minatar", reason="needs the extra minatar")
    env = make_environment("MinAtar/Freeway-v1", n_envs=2, seed=3, max_episode_steps=7)
    observation = env.reset()
    assert observation.shape == (2, 7, 10, 10)
    for step in range(1, 8):
        observation, _, dones, infos = env.step(np.zeros(2, dtype=np.int64))
        assert dones.all() == (step == 7)
    assert infos[0]["TimeLimit.truncated"]
    assert infos[0]["episode"]["l"] == 7


def test_minatar_repeats_with_its_seed() -> None:
    pytest.importorskip("minatar", reason="needs the extra minatar")
    runs = []
    for _ in range(2):
        env = make_environment("MinAtar/Breakout-v1", seed=5)
        observations = [env.reset()]
        observations += [env.step(np.array([step % 3]))[0] for step in range(30)]
        runs.append(np.concatenate(observations))
    assert np.array_equal(*runs)


def test_what_minatar_plays_after_a_seed_does_not_depend_on_what_it_played_before() -> None:
    """MinAtar repeats the last action with probability 0.1, the last one before a reset too."""
    pytest.importorskip("minatar", reason="needs the extra minatar")
    left, right = 1, 2
    used = make_minatar("MinAtar/Breakout-v1")
    for seed in range(60):
        used.reset(seed=1000)
        used.step(right)
        fresh = make_minatar("MinAtar/Breakout-v1")
        for env in (used, fresh):
            env.reset(seed=seed)
        assert np.array_equal(used.step(left)[0], fresh.step(left)[0]), seed


def test_minatar_can_be_seen() -> None:
    pytest.importorskip("minatar", reason="needs the extra minatar")
    env = make_minatar("MinAtar/Breakout-v1", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (320, 320, 3)  # type: ignore[union-attr]
    assert picture.dtype == np.uint8  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "env_id", ["CartPole-v1", "sb3_cpp/DangerGridworld-v0", "sb3_cpp/PendulumSwingUp-v0"]
)
def test_environments_are_watched_by_a_monitor(env_id: str) -> None:
    env = make_environment(env_id, seed=0)
    assert is_wrapped(env.envs[0], Monitor)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env_id", "meant"),
    [
        ("Cartpole-v1", "CartPole-v1"),
        ("breakout-v1", "MinAtar/Breakout-v1"),
        ("DangerGridworld-v0", "sb3_cpp/DangerGridworld-v0"),
    ],
)
def test_an_unknown_environment_is_answered_with_the_nearest(env_id: str, meant: str) -> None:
    with pytest.raises(InvalidArgument, match=f"did you mean .*{meant}"):
        find_environment(env_id)


GRAY = "gymnasium.wrappers.GrayscaleObservation"


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("CartPole-v1", {"env_wrapper": [GRAY]}, f"env_wrapper {GRAY} does not fit CartPole-v1: "),
        ("CartPole-v1", {"gravity": 3}, "env_kwargs do not fit CartPole-v1: TypeError: "),
        (
            "FrozenLake-v1",
            {"map_name": "foo"},
            "env_kwargs do not fit FrozenLake-v1: KeyError: 'foo'",
        ),
        ("FrozenLake-v1", {"frame_stack": 2}, "frame_stack does not fit FrozenLake-v1: "),
        ("FrozenLake-v1", {"normalize": True}, "normalize does not fit FrozenLake-v1: "),
    ],
)
def test_a_setting_that_does_not_fit_is_named_in_one_line(
    env_id: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument) as error:
        make_environment(env_id, **settings)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_physical_constant_out_of_range_is_named_in_one_line() -> None:
    pytest.importorskip("Box2D", reason="needs the extra box2d")
    with pytest.raises(InvalidArgument, match=r"env_kwargs do not fit LunarLander-v3: .*gravity"):
        make_environment("LunarLander-v3", gravity=5)


def test_missing_packages_and_wrong_arguments_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise gym.error.DependencyNotInstalled(
            'Box2D is not installed, run `pip install "gymnasium[box2d]"`'
        )

    with pytest.raises(InvalidArgument, match="env_kwargs do not fit"):
        make_environment("CartPole-v1", gravity=3)
    monkeypatch.setattr(gym, "make", missing)
    with pytest.raises(InvalidArgument, match=r"pip install 'sb3_cpp\[box2d\]'"):
        make_environment("LunarLander-v3")


@pytest.mark.parametrize("how", [{}, {"native": False}, {"render_mode": "rgb_array"}])
@pytest.mark.parametrize("frame_skip", [1, 4])
def test_an_atari_time_limit_counts_steps_of_the_agent(
    how: dict[str, Any], frame_skip: int
) -> None:
    """Without no-ops only the two hidden steps at the start (FIRE and the one after) count too."""
    pytest.importorskip("ale_py", reason="needs the extra atari")
    env = make_environment(
        "SpaceInvadersNoFrameskip-v4",
        seed=0,
        max_episode_steps=50,
        training=False,
        frame_skip=frame_skip,
        noop_max=0,
        **how,
    )
    env.reset()
    for step in range(1, 49):
        _, _, dones, infos = env.step(np.zeros(1, dtype=np.int64))
        assert dones[0] == (step == 50 - 2)
    assert infos[0]["TimeLimit.truncated"]
    env.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_episode_steps": 50, "max_episode_frames": 300}, "the same time limit; set one"),
        ({"max_episode_steps": 50, "frame_skip": "x"}, "frame_skip must be a whole number"),
        ({"native": False, "noop_max": -1}, "noop_max must be a whole number of at least 0"),
        ({"native": False, "n_envs": 2}, "native: false needs n_envs: 1, got 2"),
    ],
)
def test_wrong_atari_settings_are_one_line(settings: dict[str, Any], message: str) -> None:
    pytest.importorskip("ale_py", reason="needs the extra atari")
    with pytest.raises(InvalidArgument, match=message):
        make_environment("PongNoFrameskip-v4", **settings)
