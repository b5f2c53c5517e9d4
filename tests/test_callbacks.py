"""iterations.csv: one row per K, appended on resume, never overwritten."""

import gymnasium as gym
import pandas as pd
import pytest
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_cpp import ALGORITHMS, CheckpointCallback, DeepCPP, IterationCallback

COLUMNS = ["K", "timesteps", "zeta", "m_K", "M_K", "C_K", "return_mean"]
QUANTITIES = {
    "cpp": {"zeta", "m_K", "M_K", "C_K"},
    "cmdqn": {"zeta", "m_K", "M_K"},
    "cpi": {"zeta", "m_K", "M_K"},
    "cvi": set(),
    "mdqn": set(),
    "modqn": set(),
    "csac": {"zeta", "m_K", "M_K"},
}


def make(name: str = "cpp", **kwargs):
    settings = {
        "buffer_size": 1000,
        "learning_starts": 60,
        "target_update_interval": 50,
        "seed": 0,
        "device": "cpu",
    }
    if name == "cmdqn":
        settings["zeta"] = 1.0  # a smaller step would come more often
    if name == "csac":
        settings["iteration_interval"] = settings.pop("target_update_interval")
    env = "Pendulum-v1" if name == "csac" else "CartPole-v1"
    return ALGORITHMS[name]("MlpPolicy", env, **{**settings, **kwargs})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_one_row_per_iteration_with_empty_cells_for_what_does_not_exist(name, tmp_path):
    model = make(name).learn(310, callback=IterationCallback(tmp_path))
    rows = pd.read_csv(tmp_path / "iterations.csv")
    assert list(rows.columns)[:7] == COLUMNS
    assert rows["K"].tolist() == [1, 2, 3, 4, 5]
    assert rows["timesteps"].tolist() == [100, 150, 200, 250, 300]
    filled = {column for column in ("zeta", "m_K", "M_K", "C_K") if rows[column].notna().all()}
    assert filled == QUANTITIES[name]
    assert {
        column for column in ("zeta", "m_K", "M_K", "C_K") if rows[column].notna().any()
    } == filled
    assert model.iteration == 5


def test_the_last_iteration_is_written_when_training_ends_on_it(tmp_path):
    make().learn(300, callback=IterationCallback(tmp_path))
    assert pd.read_csv(tmp_path / "iterations.csv")["timesteps"].tolist()[-1] == 300


def test_training_returns_are_averaged_over_the_iteration(tmp_path):
    make().learn(1000, callback=IterationCallback(tmp_path / "a.csv"))
    rows = pd.read_csv(tmp_path / "a.csv")
    assert (rows["episodes"] > 0).any()
    assert (rows["return_mean"].isna() == (rows["episodes"] == 0)).all()
    # CartPole pays 1 per step: the finished episodes cannot be longer than the time they had
    assert (rows["return_mean"] * rows["episodes"]).sum() <= 1000


def test_evaluation_returns_on_request(tmp_path):
    callback = IterationCallback(
        tmp_path, eval_env=gym.make("CartPole-v1"), n_eval_episodes=2, eval_every=2
    )
    make().learn(310, callback=callback)
    rows = pd.read_csv(tmp_path / "iterations.csv")
    assert rows["episodes"].tolist() == [0, 2, 0, 2, 0]
    assert rows["return_mean"].isna().tolist() == [True, False, True, False, True]


def test_evaluating_does_not_change_the_run(tmp_path):
    plain = make().learn(310)
    watched = make().learn(
        310, callback=IterationCallback(tmp_path, eval_env=gym.make("CartPole-v1"))
    )
    for key, value in plain.policy.state_dict().items():
        assert value.equal(watched.policy.state_dict()[key])


def test_rows_are_appended_on_resume(tmp_path):
    model = make().learn(210, callback=IterationCallback(tmp_path))
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
    loaded.learn(200, callback=IterationCallback(tmp_path), reset_num_timesteps=False)
    rows = pd.read_csv(tmp_path / "iterations.csv")
    assert rows["K"].tolist() == list(range(1, len(rows) + 1))
    assert rows["timesteps"].tolist()[-1] == 400


def test_a_fresh_run_does_not_overwrite_another(tmp_path):
    make().learn(210, callback=IterationCallback(tmp_path))
    before = (tmp_path / "iterations.csv").read_text()
    with pytest.raises(
        ValueError, match=r"path must not hold the iterations of another run, got .*iterations\.csv"
    ):
        make().learn(210, callback=IterationCallback(tmp_path))
    assert (tmp_path / "iterations.csv").read_text() == before


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "iterations.csv").write_text("name,value\nmine,1\n")
    with pytest.raises(ValueError, match="path must not hold the iterations of another run"):
        make().learn(110, callback=IterationCallback(tmp_path))
    assert (tmp_path / "iterations.csv").read_text() == "name,value\nmine,1\n"


def test_a_loaded_model_does_not_write_into_the_file_of_a_longer_run(tmp_path):
    model = make().learn(210)
    model.save(tmp_path / "model")
    make().learn(410, callback=IterationCallback(tmp_path))
    before = (tmp_path / "iterations.csv").read_text()
    loaded = type(model).load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
    with pytest.raises(
        ValueError, match=r"path must not hold .* with rows after K = 3 of this model"
    ):
        loaded.learn(200, callback=IterationCallback(tmp_path), reset_num_timesteps=False)
    assert (tmp_path / "iterations.csv").read_text() == before


def test_a_resumed_run_writes_the_rows_after_its_checkpoint_again(tmp_path):
    make().learn(
        480,
        callback=[CheckpointCallback(tmp_path / "checkpoints", 300), IterationCallback(tmp_path)],
    )
    whole = (tmp_path / "iterations.csv").read_bytes()
    assert whole.count(b"\n") == 9
    with (tmp_path / "iterations.csv").open("a") as file:
        file.write("9,5")  # a row that was being written
    resumed = DeepCPP.resume(tmp_path / "checkpoints")
    assert resumed.iteration < 8
    resumed.learn(
        callback=[CheckpointCallback(tmp_path / "checkpoints", 300), IterationCallback(tmp_path)]
    )
    assert (tmp_path / "iterations.csv").read_bytes() == whole


def test_a_resumed_run_keeps_the_rows_of_another(tmp_path):
    make(seed=1).learn(480, callback=IterationCallback(tmp_path / "other"))
    theirs = (tmp_path / "other" / "iterations.csv").read_bytes()
    make().learn(
        480,
        callback=[CheckpointCallback(tmp_path / "checkpoints", 300), IterationCallback(tmp_path)],
    )
    with pytest.raises(ValueError, match="path must not hold the iterations of another run"):
        DeepCPP.resume(tmp_path / "checkpoints").learn(
            callback=IterationCallback(tmp_path / "other")
        )
    assert (tmp_path / "other" / "iterations.csv").read_bytes() == theirs


def test_two_callbacks_count_the_same_episodes(tmp_path):
    model = make()
    for first in (True, False):
        callbacks = [IterationCallback(tmp_path / name) for name in ("a", "b")]
        model.learn(500, callback=callbacks, reset_num_timesteps=first)
    a, b = ((tmp_path / name / "iterations.csv").read_text() for name in ("a", "b"))
    assert a == b
    assert pd.read_csv(tmp_path / "a" / "iterations.csv")["episodes"].sum() > 20


def test_an_evaluation_without_the_trainings_normalisation_is_refused(tmp_path):
    venv = VecNormalize(make_vec_env("CartPole-v1"))
    model = DeepCPP(
        "MlpPolicy",
        venv,
        buffer_size=100,
        learning_starts=60,
        target_update_interval=50,
        device="cpu",
    )
    for eval_env, kind in (
        (gym.make("CartPole-v1"), "TimeLimit"),
        (make_vec_env("CartPole-v1"), "DummyVecEnv"),
    ):
        with pytest.raises(
            ValueError, match=f"eval_env must be wrapped in VecNormalize, .* got .*{kind}"
        ):
            model.learn(100, callback=IterationCallback(tmp_path, eval_env=eval_env))
    evaluation = VecNormalize(make_vec_env("CartPole-v1"), training=False, norm_reward=False)
    model.learn(160, callback=IterationCallback(tmp_path, eval_env=evaluation, n_eval_episodes=1))
    assert pd.read_csv(tmp_path / "iterations.csv")["return_mean"].notna().all()


@pytest.mark.parametrize("vectorized", [True, False])
def test_normalised_rewards_need_no_normalised_evaluation(tmp_path, vectorized):
    venv = VecNormalize(make_vec_env("CartPole-v1"), norm_obs=False)
    model = DeepCPP(
        "MlpPolicy",
        venv,
        buffer_size=100,
        learning_starts=60,
        target_update_interval=50,
        device="cpu",
    )
    eval_env = make_vec_env("CartPole-v1") if vectorized else gym.make("CartPole-v1")
    model.learn(160, callback=IterationCallback(tmp_path, eval_env=eval_env, n_eval_episodes=1))
    assert (pd.read_csv(tmp_path / "iterations.csv")["return_mean"] >= 1).all()


def test_other_algorithms_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match="IterationCallback needs an algorithm of sb3_cpp, got DQN"
    ):
        DQN("MlpPolicy", "CartPole-v1", buffer_size=100).learn(
            100, callback=IterationCallback(tmp_path)
        )


def test_a_run_again_may_overwrite_the_file_of_the_first(tmp_path):
    for _ in range(2):
        make().learn(210, callback=IterationCallback(tmp_path, overwrite=True))
    assert pd.read_csv(tmp_path / "iterations.csv")["K"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_second_learn_appends_to_the_rows_of_the_first(tmp_path, overwrite):
    model = make()
    for _ in range(2):
        model.learn(210, callback=IterationCallback(tmp_path, overwrite=overwrite))
    rows = pd.read_csv(tmp_path / "iterations.csv")["K"].tolist()
    assert rows == list(range(1, model.iteration + 1))
    assert len(rows) > 3


@pytest.mark.parametrize("name", ["n_eval_episodes", "eval_every"])
def test_numbers_that_are_not_whole_are_refused(name, tmp_path):
    with pytest.raises(ValueError, match=rf"{name} must be a whole number .*, got 2\.7"):
        IterationCallback(tmp_path, **{name: 2.7})
