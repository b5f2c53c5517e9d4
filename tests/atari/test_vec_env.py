"""The native environment: SB3's semantics, checked on real games."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.atari_wrappers import AtariWrapper, ClipRewardEnv
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor, VecVideoRecorder

pytest.importorskip("ale_py")

from benchmarks.atari_parity import compare_in_step, parity_study
from sb3_cpp import DeepCPP
from sb3_cpp.atari import (
    AtariVecEnv,
    FrameReplayBuffer,
    check_frame_skip,
    make_atari_vec_env,
    make_render_env,
)
from sb3_cpp.atari.frame_buffer import guarantees_stacked_frames

BREAKOUT = "BreakoutNoFrameskip-v4"


def play(env: AtariVecEnv, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """(observations before, actions, and what the step returned) with random actions."""
    rng = np.random.default_rng(seed)
    obs = env.reset()
    record = []
    for _ in range(steps):
        actions = rng.integers(0, env.action_space.n, env.num_envs)
        step = env.step(actions)
        record.append((obs, actions, *step))
        obs = step[0]
    return record


@pytest.mark.parametrize("game", ["Breakout", "SpaceInvaders", "Seaquest"])
def test_every_step_agrees_with_sb3s_wrappers(game: str) -> None:
    result = compare_in_step(f"{game}NoFrameskip-v4", steps=700, seed=1)
    assert result.disagreements == 0  # rewards, done and truncation flags, scores, lengths
    assert result.lives_lost >= 2
    assert result.games >= 1
    assert result.pixel_mean < 0.05
    assert result.pixel_max <= 30
    assert result.life_loss_terminal_max <= 30
    assert result.game_over_terminal_older_frames_max <= 30
    if game != "Seaquest":  # no two sprites of different colour meet in these: the same pixels
        assert (
            result.pixel_max
            == result.life_loss_terminal_max
            == result.game_over_terminal_older_frames_max
            == 0
        )


def test_lost_lives_end_episodes_but_not_games() -> None:
    env = make_atari_vec_env(BREAKOUT, 2, seed=0)
    lives = np.array([5, 5])
    lost = over = 0
    for obs, _, next_obs, _, dones, infos in play(env, 450):
        for i, info in enumerate(infos):
            assert dones[i] == ("terminal_observation" in info)
            assert info["TimeLimit.truncated"] is False
            if not dones[i]:
                assert np.array_equal(next_obs[i, :-1], obs[i, 1:])
                assert info["lives"] == lives[i]
                continue
            assert info["lives"] == lives[i] - 1
            assert np.array_equal(info["terminal_observation"][:-1], obs[i, 1:])
            assert not next_obs[i, :-1].any()
            assert next_obs[i, -1].any()
            assert ("episode" in info) == (info["lives"] == 0)
            lost, over = lost + 1, over + (info["lives"] == 0)
            lives[i] = info["lives"] or 5
    assert lost > over >= 2
    assert env.get_attr("lives") == lives.tolist()


def test_the_score_is_raw_and_rewards_are_clipped() -> None:
    clipped = play(make_atari_vec_env("SpaceInvadersNoFrameskip-v4", 1, seed=4), 700)
    raw = play(make_atari_vec_env("SpaceInvadersNoFrameskip-v4", 1, seed=4, clip_reward=False), 700)
    total = 0.0
    games = 0
    for (*_, reward, _, _), (*_, raw_reward, _, infos) in zip(clipped, raw):
        assert reward[0] == np.sign(raw_reward[0])
        total += raw_reward[0]
        if "episode" in infos[0]:
            assert (
                infos[0]["episode"]["r"] == total
            )  # nothing is scored in the unseen steps of this game
            total, games = 0.0, games + 1
    assert games >= 1
    assert max(raw_reward[0] for *_, raw_reward, _, _ in raw) > 1


def test_without_terminal_on_life_loss_only_games_end() -> None:
    env = make_atari_vec_env(BREAKOUT, 1, seed=0, terminal_on_life_loss=False)
    ends = [infos[0] for *_, dones, infos in play(env, 400) if dones[0]]
    assert ends
    assert all("episode" in info and info["lives"] == 0 for info in ends)


def test_a_time_limit_truncates_and_starts_a_new_game() -> None:
    env = make_atari_vec_env("PongNoFrameskip-v4", 1, seed=0, max_episode_frames=200)
    ends = [(step, infos[0]) for step, (*_, dones, infos) in enumerate(play(env, 200)) if dones[0]]
    assert len(ends) >= 3
    for _, info in ends:
        assert info["TimeLimit.truncated"] is True
        assert 200 <= info["episode"]["l"] < 204
        assert info["terminal_observation"].any()
    gaps = np.diff([step for step, _ in ends])
    assert (
        (gaps > 30) & (gaps < 50)
    ).all()  # 200 frames less 1 to 30 no-ops and 8 of FIRE, 4 to a step


def test_equal_seeds_give_equal_games_and_others_do_not() -> None:
    def run(seed: int) -> list[tuple[Any, ...]]:
        return play(make_atari_vec_env(BREAKOUT, 2, seed=seed, repeat_action_probability=0.25), 120)

    first, again, other = run(7), run(7), run(8)
    for one, two in zip(first, again):
        for a, b in zip(one[:5], two[:5]):
            assert np.array_equal(a, b)
    assert not all(np.array_equal(one[0], two[0]) for one, two in zip(first, other))
    assert not all(
        np.array_equal(step[0][0], step[0][1]) for step in first
    )  # environments differ from each other


def test_games_start_after_1_to_30_no_ops() -> None:
    env = make_atari_vec_env("FreewayNoFrameskip-v4", 1)  # no FIRE, no lives
    env.seed(0)
    noops = []
    for _ in range(40):
        env.reset()
        noops.append(env.games[0].noops)
    assert min(noops) >= 1
    assert max(noops) <= 30
    assert len(set(noops)) > 10


def test_sticky_actions_are_those_asked_for() -> None:
    steady = play(make_atari_vec_env(BREAKOUT, 1, seed=3), 60)
    sticky = play(
        make_atari_vec_env("ALE/Breakout-v5", 1, seed=3, repeat_action_probability=0.9), 60
    )
    same = play(make_atari_vec_env("ALE/Breakout-v5", 1, seed=3, repeat_action_probability=0.0), 60)
    assert all(np.array_equal(one[0], two[0]) for one, two in zip(steady, same))
    assert not all(np.array_equal(one[0], two[0]) for one, two in zip(steady, sticky))


def test_v5_asks_for_a_choice_of_sticky_actions() -> None:
    with pytest.raises(
        ValueError, match="repeat_action_probability must be given for 'ALE/Breakout-v5'"
    ):
        make_atari_vec_env("ALE/Breakout-v5")


@pytest.mark.parametrize(
    ("env_id", "settings", "words"),
    [
        ("CartPole-v1", {}, "env_id must be an Atari game's.*'CartPole-v1'"),
        ("NoSuchGameNoFrameskip-v4", {}, "env_id must be an Atari game's"),
        ("Breakout-v4", {}, "random frame skip.*use 'BreakoutNoFrameskip-v4'"),
        (BREAKOUT, {"n_envs": 0}, "n_envs must be a whole number of at least 1, got 0"),
        (BREAKOUT, {"noop_max": -1}, "noop_max must be a whole number of at least 0, got -1"),
        (BREAKOUT, {"n_stack": 2.5}, "n_stack must be a whole number"),
        (BREAKOUT, {"repeat_action_probability": 1.5}, "repeat_action_probability must be .*1.5"),
    ],
)
def test_bad_arguments_are_named(env_id: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_atari_vec_env(env_id, **settings)


@pytest.mark.parametrize("actions", [[4, 0], [-1, 0], [0], [0, 1, 2]])
def test_actions_the_emulator_would_hang_on_are_refused(actions: list[int]) -> None:
    env = make_atari_vec_env(BREAKOUT, 2)
    env.reset()
    with pytest.raises(ValueError, match="actions must be 2 numbers from 0 to 3"):
        env.step(np.array(actions))
    env.step(np.array([0, 3]))  # and it still works


def test_skipping_frames_twice_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"'ALE/Pong-v5' skips 4 frames by itself .* use 'PongNoFrameskip-v4'"
    ):
        check_frame_skip("ALE/Pong-v5")
    with pytest.raises(ValueError, match="'Pong-v4' skips 2 to 4 frames"):
        check_frame_skip("Pong-v4")
    check_frame_skip("ALE/Pong-v5", env_kwargs={"frameskip": 1})
    check_frame_skip("ALE/Pong-v5", wrapper_skip=1)
    check_frame_skip("PongNoFrameskip-v4")


def test_vec_env_questions_are_answered() -> None:
    env = make_atari_vec_env(BREAKOUT, 3)
    assert (
        env.env_method("get_action_meanings", indices=[0, 2])
        == [["NOOP", "FIRE", "RIGHT", "LEFT"]] * 2
    )
    assert env.get_attr("spec", indices=1)[0].id == BREAKOUT
    assert env.get_attr("render_mode") == [None] * 3
    assert not env.has_attr("no_such_thing")
    assert guarantees_stacked_frames(env)
    assert not guarantees_stacked_frames(make_atari_vec_env(BREAKOUT, n_stack=1))
    assert env.env_is_wrapped(Monitor) == env.env_is_wrapped(AtariWrapper) == [True] * 3
    assert not make_atari_vec_env(BREAKOUT, clip_reward=False).env_is_wrapped(ClipRewardEnv)[0]
    with pytest.raises(AttributeError, match="cannot be set"):
        env.set_attr("lives", 3)
    with pytest.raises(AttributeError, match="must be 'get_action_meanings', got 'clone_state'"):
        env.env_method("clone_state")
    with pytest.raises(NotImplementedError, match="make_render_env"):
        env.get_images()
    env.close()


def test_monitor_file_and_vec_monitor(tmp_path: Path) -> None:
    inner = make_atari_vec_env(BREAKOUT, 2, seed=0, monitor_file=str(tmp_path / "monitor.csv"))
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        env = VecMonitor(inner)
    record = play(env, 400)  # type: ignore[arg-type]
    env.close()
    games = [
        info for *_, infos in record for info in infos if info["lives"] == 0 and "episode" in info
    ]
    assert len(load_results(str(tmp_path))) == len(games) >= 2


def test_evaluate_policy_counts_games_by_their_raw_score() -> None:
    env = make_atari_vec_env("SpaceInvadersNoFrameskip-v4", 2, seed=0, max_episode_frames=600)
    model = DQN(
        "CnnPolicy", env, buffer_size=10, seed=0, device="cpu", policy_kwargs={"net_arch": []}
    )
    rewards, lengths = evaluate_policy(model, env, n_eval_episodes=2, return_episode_rewards=True)
    assert len(rewards) == 2
    assert all(reward % 5 == 0 for reward in rewards)  # this game scores in fives
    assert all(300 < length < 604 for length in lengths)


def test_sb3s_dqn_learns_on_it_with_the_frame_buffer(tmp_path: Path) -> None:
    env = make_atari_vec_env(BREAKOUT, 2, seed=0)
    model = DQN(
        "CnnPolicy",
        env,
        replay_buffer_class=FrameReplayBuffer,
        buffer_size=200,
        learning_starts=150,
        batch_size=4,
        seed=0,
        device="cpu",
    )
    model.learn(260)
    assert model.replay_buffer is not None
    assert model.replay_buffer.full
    assert model.replay_buffer.dones.any()
    model.save_replay_buffer(tmp_path / "buffer")
    model.load_replay_buffer(tmp_path / "buffer")
    model.learn(60, reset_num_timesteps=False)
    assert isinstance(model.replay_buffer, FrameReplayBuffer)


@pytest.mark.parametrize("native", [True, False])
def test_the_call_of_the_papers_users_stores_each_frame_once(
    native: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all default arguments, a million transitions among them."""
    sb3s = VecFrameStack(make_atari_env(BREAKOUT, 1, seed=0), 4)
    model = DeepCPP("CnnPolicy", make_atari_vec_env(BREAKOUT, seed=0) if native else sb3s)
    assert type(model.replay_buffer) is FrameReplayBuffer
    assert model.replay_buffer.buffer_size == 1_000_000
    assert "FrameReplayBuffer, 7.1 GB when full" in capsys.readouterr().err
    model.learn(120)
    assert model.replay_buffer.n_frames < 140


def test_a_video_is_recorded_in_the_rendering_environment(tmp_path: Path) -> None:
    pytest.importorskip("moviepy")
    env = make_render_env("ALE/Breakout-v5", seed=0, repeat_action_probability=0)
    native = make_atari_vec_env(BREAKOUT)
    assert env.observation_space == native.observation_space
    assert env.action_space == native.action_space
    recorder = VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=10)
    recorder.reset()
    for _ in range(12):
        recorder.step(np.array([1]))
    recorder.close()
    assert list(tmp_path.glob("*.mp4"))


def test_missing_packages_are_named_and_the_buffer_does_not_need_them() -> None:
    code = (
        "import sys; sys.modules['ale_py'] = None\n"
        "from sb3_cpp.atari import FrameReplayBuffer\n"
        "from sb3_cpp.atari import make_atari_vec_env\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    last = result.stderr.strip().splitlines()[-1]
    needed = "Atari environments need ale-py and opencv-python: pip install 'sb3_cpp[atari]'"
    assert last == f"ImportError: {needed}"


@pytest.mark.slow
def test_scores_and_lengths_have_sb3s_distribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = parity_study(
        [BREAKOUT], n_games=24, steps=50, n_envs=4, seed=0, csv=str(tmp_path / "out" / "parity.csv")
    )
    assert (table[["score_p", "length_p"]] > 0.01).all(axis=None)
    assert (tmp_path / "out" / "parity.csv").exists()
    assert "score_p" in capsys.readouterr().out
