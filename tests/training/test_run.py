"""One run: its folder, its end, its continuation, and what it refuses."""

import errno
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
import yaml
from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp import DeepCPP
from sb3_cpp.analysis.results import load_results
from sb3_cpp.checkpointing import store
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training import logs, run
from sb3_cpp.training.algorithms import get_algorithm
from sb3_cpp.training.run import (
    RunFailed,
    RunLocked,
    check_folder,
    find_checkpoint,
    locked,
    read_counters,
    train_run,
)
from sb3_cpp.training.suites import RunConfig
from sb3_cpp.training.train import train
from tests.training.small_runs import rows, small_config


class At(BaseCallback):
    """Does something once, at a step."""

    def __init__(self, step: int, action: Any) -> None:
        super().__init__()
        self.step, self.action = step, action

    def _on_step(self) -> bool:
        if self.num_timesteps == self.step:
            self.action()
        return True


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def interrupted_run(root: Path, **overrides: Any) -> Path:
    """A run with two checkpoints, at steps 200 and 320."""
    config = small_config(**overrides)
    return train_run(config, root, show="nothing", callbacks=[At(320, terminate)]).folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("algo", ["cpp", "ppo", "qrdqn"])
def test_a_run_leaves_the_folder_of_the_architecture(tmp_path: Path, algo: str) -> None:
    config = small_config(algo)
    outcome = train_run(config, tmp_path, show="nothing")
    folder = tmp_path / "classic" / algo / "CartPole-v1" / "seed_0"
    assert (outcome.state, outcome.folder) == ("finished", folder)
    names = {path.name for path in folder.iterdir()}
    expected = {
        "config.yml",
        "monitor.csv",
        "progress.csv",
        "evaluations.npz",
        "model.zip",
        "best_model.zip",
        "checkpoint",
        "status.json",
        "run.log",
    }
    assert names - {".lock"} == expected | ({"iterations.csv"} if algo == "cpp" else set())
    record = yaml.safe_load((folder / "config.yml").read_text())
    assert record["config"] == config.plain()
    assert {"command", "commit", "versions"} <= set(record["provenance"])
    episodes = rows(folder / "monitor.csv")
    assert 0 < sum(int(row["l"]) for row in episodes) <= outcome.timesteps
    with np.load(folder / "evaluations.npz") as saved:
        assert saved["results"].shape == (3 if algo != "ppo" else len(saved["timesteps"]), 2)
        assert saved["timesteps"][-1] >= 600
    if algo == "cpp":
        assert [int(row["K"]) for row in rows(folder / "iterations.csv")] == list(range(1, 12))


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_run(small_config(), tmp_path / name, show="nothing")
    a, b = (tmp_path / name / "classic/cpp/CartPole-v1/seed_0" for name in ("a", "b"))
    assert (a / "iterations.csv").read_bytes() == (b / "iterations.csv").read_bytes()
    assert [(r["r"], r["l"]) for r in rows(a / "monitor.csv")] == [
        (r["r"], r["l"]) for r in rows(b / "monitor.csv")
    ]
    with np.load(a / "evaluations.npz") as one, np.load(b / "evaluations.npz") as two:
        assert all(np.array_equal(one[key], two[key]) for key in one.files)


def test_a_finished_run_is_left_as_it_is(tmp_path: Path) -> None:
    train_run(small_config(), tmp_path, show="nothing")
    before = contents(tmp_path)
    assert train_run(small_config(), tmp_path, show="nothing").state == "kept"
    assert contents(tmp_path) == before


def test_another_config_is_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    train_run(small_config(), tmp_path, show="nothing")
    before = contents(tmp_path)
    with pytest.raises(InvalidArgument, match=r"batch_size: 16 there, 8 here"):
        train_run(small_config(batch_size=8), tmp_path, show="nothing")
    with pytest.raises(InvalidArgument, match=r"net_arch: \[16\] there, \[8\] here"):
        train_run(small_config(policy_kwargs={"net_arch": [8]}), tmp_path, show="nothing")
    assert contents(tmp_path) == before


def test_a_class_default_that_has_changed_since_is_noticed(tmp_path: Path) -> None:
    path = train_run(small_config(), tmp_path, show="nothing").folder / "config.yml"
    record = yaml.safe_load(path.read_text())
    assert record["class_defaults"]["rho1"] == 0.99

    def check(config: RunConfig, **defaults: float) -> None:
        path.write_text(
            yaml.safe_dump({**record, "class_defaults": {**record["class_defaults"], **defaults}})
        )
        check_folder(path.parent, config)

    with pytest.raises(InvalidArgument, match=r"hyperparameters\.rho1: 0.9 there, 0.99 here"):
        check(small_config(), rho1=0.9)
    check(small_config(rho1=0.9), rho1=0.9)  # said here, a default there: the same run
    check(small_config(), no_longer_an_argument=1.0)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("important")
    with pytest.raises(InvalidArgument, match="no readable config"):
        check_folder(tmp_path, small_config())


@pytest.mark.parametrize(
    ("algo", "step"), [("cpp", 320), ("cpp", 400), ("a2c", 320)]
)  # at step 400 an iteration ends
def test_a_signal_ends_a_run_whole_and_it_goes_on(tmp_path: Path, algo: str, step: int) -> None:
    config = small_config(algo)
    first = train_run(config, tmp_path, show="nothing", callbacks=[At(step, terminate)])
    assert (first.state, first.exit_code) == ("interrupted", 143)
    assert step <= first.timesteps <= step + 64
    checkpoint = find_checkpoint(first.folder)
    assert checkpoint is not None
    assert read_counters(checkpoint)["timesteps"] == first.timesteps
    second = train_run(config, tmp_path, show="nothing")
    assert second.state == "finished"
    with np.load(first.folder / "evaluations.npz") as saved:
        assert len(set(saved["timesteps"].tolist())) == len(saved["timesteps"])
        assert saved["timesteps"][0] < first.timesteps < saved["timesteps"][-1]
    if algo == "cpp":
        iterations = [int(row["K"]) for row in rows(first.folder / "iterations.csv")]
        assert iterations == list(range(1, iterations[-1] + 1))
    history = (first.folder / "run.log").read_text()
    assert f"saved at step {first.timesteps}" in history
    assert f"resumed at step {first.timesteps}" in history


def test_exploration_goes_on_by_the_horizon_of_the_whole_run(tmp_path: Path) -> None:
    config = small_config(exploration_fraction=1.0, exploration_final_eps=0.0)
    train_run(config, tmp_path, show="nothing", callbacks=[At(320, terminate)])
    seen: list[tuple[int, float]] = []

    class Watch(BaseCallback):
        def _on_step(self) -> bool:
            seen.append((self.num_timesteps, self.model.exploration_rate))  # type: ignore[attr-defined]
            return True

    train_run(config, tmp_path, show="nothing", callbacks=[Watch()])
    step, epsilon = seen[100]
    assert epsilon == pytest.approx(1.0 - (step - 1) / 600, abs=1e-3)


def test_what_was_logged_after_the_checkpoint_is_cut_back(tmp_path: Path) -> None:
    """As after SIGKILL: the logs are further than the checkpoint."""
    config = small_config()
    first = train_run(config, tmp_path, show="nothing", callbacks=[At(320, terminate)])
    for name, row in {"monitor.csv": "-1.0,99,9.9", "iterations.csv": "7,350,0,0,0,0,0,0"}.items():
        with (first.folder / name).open("a") as file:
            file.write(row + "\n")
    train_run(config, tmp_path, show="nothing")
    assert all(row["r"] != "-1.0" for row in rows(first.folder / "monitor.csv"))
    iterations = [int(row["K"]) for row in rows(first.folder / "iterations.csv")]
    assert iterations == sorted(set(iterations))


def test_a_run_can_be_prolonged(tmp_path: Path) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    longer = train_run(
        small_config(n_timesteps=800), tmp_path, show="nothing", start_from=first.folder
    )
    assert longer.timesteps >= 800
    assert yaml.safe_load((first.folder / "config.yml").read_text())["config"]["n_timesteps"] == 800
    assert (first.folder / "model.zip").is_file()


@pytest.mark.parametrize("place", ["write_config", "_note", "_make_callbacks"])
def test_a_run_that_dies_while_it_is_prolonged_is_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    class Killed(BaseException):
        pass

    def die(*args: Any, **kwargs: Any) -> None:
        raise Killed

    first = train_run(small_config(), tmp_path, show="nothing")
    longer = small_config(n_timesteps=800)
    owner = run if place.startswith("write") else run._Run
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, die)
        with pytest.raises(Killed):
            train_run(longer, tmp_path, show="nothing", start_from=first.folder)
    left = load_results(tmp_path).runs.iloc[0]
    # Its config.yml was not replaced yet, or it is a part of the longer run
    assert (left.n_timesteps, left.state) in ((600, "finished"), (800, "unfinished"))
    outcome = train_run(longer, tmp_path, show="nothing", start_from=first.folder)
    assert (outcome.state, outcome.timesteps) == ("finished", 800)
    ended = load_results(tmp_path).runs.iloc[0]
    assert (ended.n_timesteps, ended.timesteps, ended.state) == (800, 800, "finished")


@pytest.mark.parametrize("name", ["model.zip", "best_model.zip"])
def test_a_run_is_not_started_over_from_its_own_model(tmp_path: Path, name: str) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    before = contents(first.folder)
    with pytest.raises(
        InvalidArgument,
        match=r"-i must not name a model inside the run's own folder, got .*prolongs the run",
    ):
        train_run(small_config(n_timesteps=800), tmp_path, start_from=first.folder / name)
    assert contents(first.folder) == before


@pytest.mark.parametrize("length", [300, 600])
def test_a_run_cannot_be_prolonged_to_less_than_it_has(tmp_path: Path, length: int) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    before = contents(first.folder)
    with pytest.raises(
        InvalidArgument, match=f"-n is the length of the whole run and must be larger, got {length}"
    ):
        train_run(small_config(n_timesteps=length), tmp_path, start_from=first.folder)
    assert contents(first.folder) == before


@pytest.mark.parametrize("algo", ["cpp", "ppo"])
def test_a_run_that_died_after_its_last_checkpoint_still_ends(tmp_path: Path, algo: str) -> None:
    first = train_run(small_config(algo), tmp_path, show="nothing")
    rows_before = rows(first.folder / "monitor.csv")
    (first.folder / "model.zip").unlink()
    second = train_run(small_config(algo), tmp_path, show="nothing")
    assert (second.state, second.timesteps, second.final_returns) == (
        "finished",
        first.timesteps,
        first.final_returns,
    )
    assert (first.folder / "model.zip").is_file()
    assert rows(first.folder / "monitor.csv") == rows_before


@pytest.mark.parametrize(
    ("time_limit", "patience", "evaluated"),
    [(False, -1.0, False), (False, 60.0, True), (True, -1.0, True)],
)
def test_a_signal_waits_for_an_evaluation_that_will_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    time_limit: bool,
    patience: float,
    evaluated: bool,
) -> None:
    monkeypatch.setattr(logs, "PATIENCE", patience)
    monkeypatch.setattr(run, "has_time_limit", lambda *_: time_limit)
    outcome = train_run(
        small_config(eval_freq=400), tmp_path, show="nothing", callbacks=[At(399, terminate)]
    )
    assert (outcome.state, outcome.exit_code) == ("interrupted", 143)
    assert (outcome.folder / "evaluations.npz").is_file() is evaluated
    assert (outcome.timesteps >= 400) is evaluated
    assert train_run(small_config(eval_freq=400), tmp_path, show="nothing").state == "finished"


def test_what_is_finished_after_an_interruption_does_not_pass_on_its_random_numbers(
    tmp_path: Path,
) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    undisturbed = DeepCPP.load(first.folder / "model.zip", device="cpu")
    (first.folder / "model.zip").unlink()
    train_run(small_config(), tmp_path, show="nothing")
    model = DeepCPP.load(first.folder / "model.zip", device="cpu")
    assert set(vars(model)) == set(vars(undisturbed))


def test_a_run_from_an_old_model_records_the_defaults_of_that_time(tmp_path: Path) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    path = first.folder / "config.yml"
    record = yaml.safe_load(path.read_text())
    path.write_text(
        yaml.safe_dump(
            {**record, "class_defaults": {**record["class_defaults"], "error_bound": 0.5}}
        )
    )
    second = train_run(
        small_config(seed=1, n_timesteps=700),
        tmp_path,
        show="nothing",
        start_from=first.folder / "model.zip",
    )
    assert (
        yaml.safe_load((second.folder / "config.yml").read_text())["config"]["hyperparameters"][
            "error_bound"
        ]
        == 0.5
    )


def test_a_run_can_start_from_the_model_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train_run(small_config(), tmp_path, show="nothing")
    model = first.folder / "model.zip"
    config = small_config(seed=1, n_timesteps=300)  # its own steps, whatever the donor's are
    second = train_run(config, tmp_path, show="nothing", start_from=model)
    assert 300 <= second.timesteps < 308  # whole rollouts of 8 steps
    record = yaml.safe_load((second.folder / "config.yml").read_text())["config"]
    assert record["start_from"] == str(model)
    assert "elsewhere" not in capsys.readouterr().out
    other = tmp_path / "another"
    train_run(config, other, show="nothing", start_from=model)
    assert "model.zip comes from elsewhere" in capsys.readouterr().out
    with pytest.raises(InvalidArgument, match="no checkpoint at"):
        train_run(small_config(seed=3), tmp_path, start_from=tmp_path / "nowhere")
    assert not (tmp_path / "classic/cpp/CartPole-v1/seed_3").exists()


def test_a_run_that_was_started_from_a_model_can_be_prolonged_without_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = {"eval_freq": -1, "save_freq": -1, "eval_episodes": 2}
    first = train_run(small_config(n_timesteps=64, gamma=0.5, **few), "runs", show="nothing")
    model = first.folder / "model.zip"
    begun = small_config(seed=1, n_timesteps=64, **few)
    folder = train_run(begun, "runs", show="nothing", start_from=model).folder
    before = yaml.safe_load((folder / "config.yml").read_text())["config"]
    assert before["hyperparameters"]["gamma"] == 0.5
    command = {"algo": "cpp", "env": "CartPole-v1", "seed": 1, "start_from": str(folder)}
    with pytest.raises(InvalidArgument, match=r"-params must not have gamma with -i"):
        train(n_timesteps=128, params=["gamma:0.9"], **few, **command)
    assert train(n_timesteps=128, params=["gamma:0.5"], **few, **command) == 0
    after = yaml.safe_load((folder / "config.yml").read_text())["config"]
    assert after == {**before, "n_timesteps": 128}


@pytest.mark.parametrize(
    ("algo", "name"), [("cpp", "model.zip"), ("cpp", "checkpoint"), ("ppo", "checkpoint")]
)
def test_runs_from_the_same_model_differ_by_their_seeds(
    tmp_path: Path, algo: str, name: str
) -> None:
    steps = {"eval_freq": -1, "save_freq": -1}
    first = train_run(small_config(algo, n_timesteps=128, **steps), tmp_path, show="nothing").folder
    length = 64 if name == "model.zip" else 256  # steps of a checkpoint count
    twins = []
    for seed, root in ((1, "one"), (1, "two"), (2, "one")):
        config = small_config(algo, seed=seed, n_timesteps=length, **steps)
        twins.append(train_run(config, tmp_path / root, show="nothing", start_from=first / name))
    models = [get_algorithm(algo).load(twin.folder / "model.zip") for twin in twins]
    assert [model.seed for model in models] == [1, 1, 2]
    one, same, other = (model.policy.state_dict() for model in models)
    assert all(th.equal(one[key], same[key]) for key in one)
    assert not all(th.equal(one[key], other[key]) for key in one)
    episodes = [
        [(row["r"], row["l"]) for row in rows(twin.folder / "monitor.csv")] for twin in twins
    ]
    assert episodes[0] == episodes[1] != episodes[2]


def test_a_run_of_a_version_with_fewer_settings_is_resumed(tmp_path: Path) -> None:
    folder = train_run(small_config(), tmp_path, show="nothing").folder
    path = folder / "config.yml"
    record = yaml.safe_load(path.read_text())
    for key in ("vec_env", "gym_packages", "env_wrapper", "normalize", "frame_stack"):
        del record["config"][key]
    path.write_text(yaml.safe_dump(record))
    assert train_run(small_config(), tmp_path, show="nothing").state == "kept"
    with pytest.raises(InvalidArgument, match="normalize: False there, True here"):
        train_run(small_config(normalize=True), tmp_path, show="nothing")


def test_a_model_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    first = train_run(small_config("ppo"), tmp_path, show="nothing")
    with pytest.raises(InvalidArgument, match="is no cpp for CartPole-v1"):
        train_run(small_config("cpp"), tmp_path, start_from=first.folder / "model.zip")


@pytest.mark.parametrize(
    ("saved", "asked", "known", "message"),
    [
        ("a2c", "ppo", True, "its run trained a2c"),  # SB3 loads it without a word
        ("cmdqn", "dqn", True, "its run trained cmdqn"),
        ("cmdqn", "dqn", False, ""),  # its file alone
        ("cmdqn", "qrdqn", False, ""),
        ("cmdqn", "ppo", False, ""),
    ],
)
def test_a_model_of_another_class_is_refused_in_one_line(
    tmp_path: Path, saved: str, asked: str, known: bool, message: str
) -> None:
    source = tmp_path / "source"
    source.mkdir()
    algorithm = get_algorithm(saved)
    algorithm("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [4]}).save(source / "model")
    if known:
        (source / "config.yml").write_text(f"config: {{algorithm: {saved}}}")
    with pytest.raises(InvalidArgument, match=f"is no {asked} for CartPole-v1: .*{message}") as e:
        train_run(small_config(asked), tmp_path, start_from=source / "model.zip")
    assert "\n" not in str(e.value)
    assert not (tmp_path / "classic").exists()


def test_a_full_disk_leaves_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = store.sync_file

    def sync(path: Path) -> None:
        if path.parent.name == "000002.part":
            os.truncate(path, path.stat().st_size // 2)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(path)

    monkeypatch.setattr(store, "sync_file", sync)
    config = small_config()
    with pytest.raises(OSError, match=r"could not write .*000002: No space left"):
        train_run(config, tmp_path, show="nothing")
    folder = config.folder(tmp_path)
    checkpoint = find_checkpoint(folder)
    assert checkpoint is not None
    assert read_counters(checkpoint)["timesteps"] == 200
    assert not list((folder / "checkpoint").rglob("*.part"))
    monkeypatch.undo()
    assert train_run(config, tmp_path, show="nothing").state == "finished"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
@pytest.mark.parametrize("name", ["monitor.csv", "iterations.csv", "run.log"])
def test_a_full_disk_is_reported_with_the_path(tmp_path: Path, name: str) -> None:
    folder = interrupted_run(tmp_path, eval_freq=100)
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"could not write {folder / name}: No space left"):
        train_run(small_config(eval_freq=100), tmp_path, show="nothing")


@pytest.mark.parametrize("algo", ["dqn", "cpp"])
def test_a_run_can_learn_after_each_episode(tmp_path: Path, algo: str) -> None:
    config = small_config(algo, n_timesteps=100, train_freq=[1, "episode"], eval_freq=-1)
    outcome = train_run(config, tmp_path, show="nothing")
    lengths = [int(row["l"]) for row in rows(outcome.folder / "monitor.csv")]
    # Rollouts are whole episodes: the last one ends the run
    assert outcome.timesteps == sum(lengths) >= 100 > sum(lengths[:-1])


def test_a_failure_is_kept_with_its_traceback_and_can_be_retried(tmp_path: Path) -> None:
    def fail() -> None:
        raise ValueError("non-finite loss")

    config = small_config()
    with pytest.raises(RunFailed, match="non-finite loss"):
        train_run(config, tmp_path, show="nothing", callbacks=[At(300, fail)])
    log = config.folder(tmp_path) / "failure.log"
    assert "Traceback" in log.read_text()
    assert train_run(config, tmp_path, show="nothing").state == "finished"
    assert not log.exists()


def test_what_cannot_be_built_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="temperature must be"):
        train_run(small_config(temperature=-1.0), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damaged", [False, True])
def test_a_refused_process_touches_nothing(tmp_path: Path, damaged: bool) -> None:
    folder = interrupted_run(tmp_path)
    if damaged:
        newest = find_checkpoint(folder)
        assert newest is not None
        (newest / "model.zip").write_bytes(b"damaged")
    before = contents(folder)
    with locked(folder), pytest.raises(RunLocked, match="another process"):
        train_run(small_config(), tmp_path, show="nothing")
    assert contents(folder) == before
    assert train_run(small_config(), tmp_path, show="nothing").state == "finished"


@pytest.mark.parametrize("new", [False, True])
def test_what_another_process_did_before_the_lock_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    folder = small_config().folder(tmp_path) if new else interrupted_run(tmp_path)
    after_first: list[dict[str, bytes]] = []

    @contextmanager
    def lock_after_another_process(path: Path) -> Iterator[None]:
        monkeypatch.setattr(run, "locked", locked)
        assert train_run(small_config(), tmp_path, show="nothing").state == "finished"
        after_first.append(contents(folder))
        with locked(path):
            yield

    monkeypatch.setattr(run, "locked", lock_after_another_process)
    assert train_run(small_config(), tmp_path, show="nothing").state == "kept"
    assert contents(folder) == after_first[0]


@pytest.mark.parametrize("name", ["config.part", "config.part.yml"])
def test_a_half_written_config_does_not_block_a_folder(tmp_path: Path, name: str) -> None:
    folder = small_config().folder(tmp_path)
    folder.mkdir(parents=True)
    (folder / name).write_text("config: {se")
    assert train_run(small_config(), tmp_path, show="nothing").state == "finished"


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_damaged_evaluations_are_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    folder = interrupted_run(tmp_path)
    (folder / "evaluations.npz").write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"evaluations\.npz cannot be read") as error:
        train_run(small_config(), tmp_path, show="nothing")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x80", b"", b"config: {}", b"config: {seed: 0}"])
def test_a_damaged_config_is_named_in_one_line(tmp_path: Path, content: bytes) -> None:
    folder = interrupted_run(tmp_path)
    (folder / "config.yml").write_bytes(content)
    with pytest.raises(InvalidArgument, match="config") as error:
        train_run(small_config(), tmp_path, show="nothing")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", ["monitor.csv", "progress.csv", "iterations.csv", "evaluations.npz"]
)
@pytest.mark.parametrize("missing", [True, False])
def test_rows_that_got_lost_are_reported_at_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, missing: bool
) -> None:
    folder = interrupted_run(tmp_path, eval_freq=100, learning_starts=10)
    path = folder / name
    if missing:
        path.unlink()
    elif name.endswith(".npz"):
        with np.load(path) as saved:
            np.savez(path, **{key: saved[key][:1] for key in saved.files})
    else:
        path.write_bytes(path.read_bytes()[:-3])
    capsys.readouterr()
    config = small_config(eval_freq=100, learning_starts=10)
    assert train_run(config, tmp_path, show="nothing").state == "finished"
    warnings = capsys.readouterr().err.strip().splitlines()
    assert len(warnings) == 1
    assert f"{path} has lost" in warnings[0]
    assert warnings[0].removeprefix("warning: ") in (folder / "run.log").read_text()
    if name == "monitor.csv":
        assert {tuple(row) for row in rows(path)} == {("r", "l", "t")}


@pytest.mark.parametrize("function", ["save_model", "_save_evaluations"])
def test_a_run_that_dies_in_its_last_evaluation_keeps_its_best_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    config = small_config(eval_freq=1000)  # evaluated once, after the last checkpoint

    def die(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(logs, function, die)
        with pytest.raises(SystemExit):
            train_run(config, tmp_path, show="nothing")
    assert train_run(config, tmp_path, show="nothing").state == "finished"
    folder = config.folder(tmp_path)
    best, last = (
        DeepCPP.load(folder / name, device="cpu").policy.state_dict()
        for name in ("best_model.zip", "model.zip")
    )
    assert all(th.equal(best[key], last[key]) for key in last)


def test_small_networks_get_one_torch_thread_unless_told_otherwise(tmp_path: Path) -> None:
    seen: list[int] = []
    before = th.get_num_threads()
    for seed, n_threads in enumerate((None, 2)):
        watch = At(100, lambda: seen.append(th.get_num_threads()))
        train_run(
            small_config(seed=seed, n_timesteps=104),
            tmp_path,
            show="nothing",
            callbacks=[watch],
            n_threads=n_threads,
        )
    assert seen == [1, 2]
    assert th.get_num_threads() == before


def test_a_run_computes_without_denormal_numbers(tmp_path: Path) -> None:
    def product() -> float:
        return float(th.full((1,), 1e-20) * 1e-20)

    seen: list[float] = []
    train_run(
        small_config(n_timesteps=104),
        tmp_path,
        show="nothing",
        callbacks=[At(100, lambda: seen.append(product()))],
    )
    assert seen == [0.0]
    assert product() > 0.0
