"""Folders that SB3's EvalCallback and Monitor, or rl_zoo3, have written, compared like our own."""

import importlib.util
import os
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import yaml
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from sb3_cpp.analysis.results import Choice, load_results, save_results
from sb3_cpp.analysis.runs import RunRecord
from sb3_cpp.analysis.sb3_folders import read_sb3_run
from tests.analysis.synthetic_runs import write_run

STEPS, EVERY = 300, 100


def train(folder: Path, algo: str, seed: int, n_envs: int = 1, evaluate: bool = True) -> None:
    """A real run of SB3, with its own monitors and evaluations."""
    folder.mkdir(parents=True)
    env = make_vec_env("CartPole-v1", n_envs, seed=seed, monitor_dir=str(folder))
    model = (
        DQN("MlpPolicy", env, learning_starts=50, seed=seed, device="cpu")
        if algo == "dqn"
        else A2C("MlpPolicy", env, n_steps=5, seed=seed, device="cpu")
    )
    callback = None
    if evaluate:
        eval_env = Monitor(gym.make("CartPole-v1"))
        frequency = EVERY // n_envs
        callback = EvalCallback(
            eval_env, log_path=str(folder), eval_freq=frequency, n_eval_episodes=2, verbose=0
        )
    model.learn(STEPS, callback=callback)
    env.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``logs/<algo>/<env>_<n>/``, as rl_zoo3 has it; A2C with two environments."""
    root = tmp_path_factory.mktemp("sb3") / "logs"
    for number in (1, 2):
        train(root / "dqn" / f"CartPole-v1_{number}", "dqn", number)
        train(root / "a2c" / f"CartPole-v1_{number}", "a2c", number, n_envs=2)
    return root


def read(folder: Path, layout: str = "{algo}/{env}_{seed}", steps: int | None = None) -> RunRecord:
    record = read_sb3_run(folder, layout, steps)
    assert record is not None
    return record


def write_arguments(folder: Path, **arguments: object) -> None:
    """As rl_zoo3 writes them: ordered dictionaries, with Python's types in the YAML."""
    inside = folder / "CartPole-v1"
    inside.mkdir()
    values = {"algo": "dqn", "env": "CartPole-v1", "seed": 123, "n_timesteps": -1}
    settings = {"n_timesteps": 300.0, "policy": "MlpPolicy", "train_freq": (4, "step")}
    (inside / "args.yml").write_text(yaml.dump(OrderedDict({**values, **arguments})))
    (inside / "config.yml").write_text(yaml.dump(OrderedDict(settings)))
    (inside / "command.txt").write_text("python train.py --algo dqn")


def test_folders_of_sb3_are_compared_like_our_own(logs: Path) -> None:
    results = load_results(logs)
    assert results.suites() == ["logs"]
    assert list(zip(results.used().algo, results.used().seed)) == [
        ("a2c", 1),
        ("a2c", 2),
        ("dqn", 1),
        ("dqn", 2),
    ]
    assert results.runs.n_timesteps.tolist() == [STEPS] * 4
    assert results.runs.evaluations.tolist() == [3] * 4
    assert results.runs.normalised_return.notna().all()
    folder = logs / "dqn" / "CartPole-v1_1"
    with np.load(folder / "evaluations.npz") as saved:
        expected = saved["results"].mean(axis=1)
    run = results.runs[(results.runs.algo == "dqn") & (results.runs.seed == 1)].iloc[0]
    assert run.final_return == pytest.approx(expected.mean())
    assert run.best_return == expected.max()


def test_the_folder_of_one_algorithm_belongs_to_the_same_suite(logs: Path) -> None:
    results = load_results(logs / "dqn", logs / "a2c" / "CartPole-v1_2")
    assert results.suites() == ["logs"]
    assert results.used().algo.tolist() == ["a2c", "dqn", "dqn"]


def test_episodes_of_two_environments_end_at_the_steps_of_both(logs: Path) -> None:
    record = read(logs / "a2c" / "CartPole-v1_1")
    files = [logs / "a2c" / "CartPole-v1_1" / f"{n}.monitor.csv" for n in (0, 1)]
    lengths = [np.loadtxt(file, delimiter=",", skiprows=2, ndmin=2)[:, 1] for file in files]
    ends = np.concatenate([2 * np.cumsum(values) for values in lengths])
    assert len(record.returns) == (ends <= STEPS).sum()
    assert record.training["step"].iloc[0] >= ends.min()
    assert record.seconds > 0.0


def test_a_run_with_monitors_only_is_compared_by_its_training_curve(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "dqn" / "CartPole-v1_1"
    train(folder, "dqn", 0, evaluate=False)
    record = read(folder)
    assert "its length is not recorded, see --timesteps" in record.problem
    record = read(folder, steps=STEPS)
    assert (record.state, record.problem, len(record.evaluations)) == ("finished", "", 50)
    assert record.evaluations["return"].iloc[-1] == pytest.approx(record.returns[-100:].mean())
    record = read(folder, steps=10_000)
    assert record.problem.startswith("unfinished: ")


@pytest.mark.parametrize(
    ("path", "layout", "expected"),
    [
        ("CartPole-v1/dqn/7", "{env}/{algo}/{seed}", ("CartPole-v1", "dqn", 7)),
        ("dqn-seed7", "{algo}-seed{seed}", ("CartPole-v1", "dqn", 7)),  # environment: monitor file
        ("dqn/seed_7", "{algo}/seed_{seed}", ("CartPole-v1", "dqn", 7)),
        ("mine/run", "{algo}/run", ("CartPole-v1", "mine", 0)),  # numbered
    ],
)
def test_a_layout_says_what_the_parts_of_a_path_are(
    logs: Path, tmp_path: Path, path: str, layout: str, expected: tuple[str, str, int]
) -> None:
    (tmp_path / "study" / path).parent.mkdir(parents=True)
    (tmp_path / "study" / path).symlink_to(logs / "dqn" / "CartPole-v1_1")
    results = load_results(tmp_path / "study", choice=Choice(layout=layout))
    assert results.suites() == ["study"]
    assert results.used()[["task", "algo", "seed"]].to_numpy().tolist() == [list(expected)]


def test_arguments_of_rl_zoo3_are_read_without_making_objects(logs: Path, tmp_path: Path) -> None:
    for number, arguments in ((1, {}), (2, {"n_timesteps": 200}), (3, {"n_timesteps": 900})):
        folder = tmp_path / "logs" / "dqn" / f"CartPole-v1_{number}"
        folder.mkdir(parents=True)
        source = logs / "dqn" / "CartPole-v1_1"
        for name in ("evaluations.npz", "0.monitor.csv"):
            (folder / name).write_bytes((source / name).read_bytes())
        write_arguments(folder, **arguments)
    records = [read(tmp_path / "logs" / "dqn" / f"CartPole-v1_{number}") for number in (1, 2, 3)]
    assert [record.n_timesteps for record in records] == [300, 200, 900]
    assert [record.state for record in records] == ["finished", "finished", "unfinished"]
    assert [len(record.evaluations) for record in records] == [3, 2, 3]
    assert [record.seed for record in records] == [1, 2, 3]  # the run number
    settings = records[0].settings
    assert settings["config"]["hyperparameters"]["train_freq"] == [4, "step"]
    assert settings["provenance"] == {"command": "python train.py --algo dqn"}
    save_results(load_results(tmp_path / "logs"), tmp_path / "tidy")
    assert load_results(tmp_path / "tidy").configs[0]["seeds"] == [1]
    code = "!!python/object/apply:os.system ['exit 1']\n"
    (tmp_path / "logs" / "dqn" / "CartPole-v1_1" / "CartPole-v1" / "args.yml").write_text(code)
    assert "args.yml has no settings" in read(tmp_path / "logs" / "dqn" / "CartPole-v1_1").problem


def test_the_seed_of_rl_zoo3_is_used_where_the_path_has_none(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "dqn"
    folder.mkdir(parents=True)
    source = logs / "dqn" / "CartPole-v1_1" / "evaluations.npz"
    (folder / "evaluations.npz").write_bytes(source.read_bytes())
    write_arguments(folder)
    record = read(folder, "{algo}")
    assert (record.suite, record.task, record.seed) == ("runs", "CartPole-v1", 123)


def test_runs_of_sb3_and_of_ours_are_compared_in_one_suite(logs: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, "cpp", seed=seed, evaluations=(9.0, 20.0, 30.0), n_timesteps=STEPS)
    results = load_results(tmp_path, logs, choice=Choice(suite="all"))
    assert results.suites() == ["all"]
    assert sorted(set(results.used().algo)) == ["a2c", "cpp", "dqn"]
    assert len(results.excluded()) == 0
    save_results(load_results(logs), tmp_path / "tidy")
    again = load_results(tmp_path / "classic", tmp_path / "tidy", choice=Choice(suite="all"))
    assert again.runs.algo.nunique() == 3
    assert {entry["suite"] for entry in again.configs} == {"all"}


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("evaluations.npz", b"", "evaluations.npz cannot be read"),
        ("evaluations.npz", b"PK\x03\x04", "evaluations.npz cannot be read"),
        ("0.monitor.csv", b"r,l,t\n1,2,3\n", "0.monitor.csv has no header"),
        ("0.monitor.csv", b'#{"t_start": 0}\nr,l\n1,2\n', "its logs cannot be read"),
        ("0.monitor.csv", b"#{\n", "its logs cannot be read"),
        ("0.monitor.csv", b"\xff\xfe", "its logs cannot be read"),
    ],
)
def test_a_damaged_file_excludes_its_run_with_the_reason(
    logs: Path, tmp_path: Path, file: str, content: bytes, reason: str
) -> None:
    folder = tmp_path / "logs" / "dqn" / "CartPole-v1_1"
    folder.mkdir(parents=True)
    for path in (logs / "dqn" / "CartPole-v1_1").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / file).write_bytes(content)
    results = load_results(tmp_path / "logs")
    assert results.runs.state.tolist() == ["unreadable"]
    assert reason in results.runs.problem[0]


def test_a_truncated_evaluations_file_is_named(logs: Path, tmp_path: Path) -> None:
    whole = (logs / "dqn" / "CartPole-v1_1" / "evaluations.npz").read_bytes()
    folder = tmp_path / "logs" / "dqn" / "CartPole-v1_1"
    folder.mkdir(parents=True)
    for size in range(0, len(whole), 97):
        (folder / "evaluations.npz").write_bytes(whole[:size])
        assert "evaluations.npz cannot be read" in read(folder).problem, size


def test_paths_that_do_not_fit_are_named(logs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "dqn" / "first"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(logs / "dqn" / "CartPole-v1_1")
    message = "the algorithm and seed of .*first cannot be told from its path; .* --layout"
    with pytest.raises(ValueError, match=message):
        load_results(tmp_path / "logs")
    (tmp_path / "logs" / "dqn" / "CartPole-v1_1").symlink_to(logs / "dqn" / "CartPole-v1_2")
    assert load_results(tmp_path / "logs").ignored == (str(folder),)


@pytest.mark.parametrize("layout", ["{env}", "{algo}/{algo}", "{algo}_{n}", "{algo", "", "{}"])
def test_a_layout_that_makes_no_sense_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match=r"--layout must"):
        Choice(layout=layout)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("rl_zoo3") is None, reason="needs rl_zoo3")
def test_folders_that_rl_zoo3_made_are_read(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1"]
    options = "-n 600 --eval-freq 200 --eval-episodes 2 --n-eval-envs 1 -f logs --device cpu"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*command, *options.split()], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    results = load_results(tmp_path / "logs")
    run = results.used().iloc[0]
    assert (run.suite, run.algo, run.task, run.seed) == ("logs", "ppo", "CartPole-v1", 1)
    assert run.n_timesteps == 600
    assert "n_steps" in results.configs[0]["config"]["hyperparameters"]
    assert "rl_zoo3" in results.configs[0]["provenance"]["command"]
