"""Interrupted, killed or damaged runs end as undisturbed ones do; the comparison can fail."""

import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback

from benchmarks import stress
from benchmarks.faults import TASKS, crash_config, crash_points, differences, run_case, same
from sb3_cpp import ALGORITHMS, CautiousSAC, RegularizedDQN
from sb3_cpp.checkpointing import state, store
from sb3_cpp.training.run import find_checkpoint, make_run_environment, train_run
from tests.training.small_runs import small_config
from tests.training.test_run import At, terminate


class Killed(Exception):
    pass


def kill() -> None:
    raise Killed


def interrupted(config: Any, root: Path, *callbacks: BaseCallback) -> Path:
    """Train with one end after the other, then to the end."""
    for callback in callbacks:
        try:
            train_run(config, root, show="nothing", callbacks=[callback])
        except Exception:  # the runner's own, with ours as its cause
            continue
    return train_run(config, root, show="nothing").folder


@pytest.mark.parametrize("algo", ["cpp", "dqn", "qrdqn", "a2c"])
def test_an_interrupted_run_equals_an_undisturbed_one(tmp_path: Path, algo: str) -> None:
    config = small_config(algo)
    straight = train_run(config, tmp_path / "a", show="nothing").folder
    # In the middle of a rollout, at an evaluation, just before the end
    ends = (
        [At(215, kill), At(400, terminate), At(590, kill)]
        if algo != "a2c"
        else [At(256, kill), At(384, terminate)]
    )
    found = differences(straight, interrupted(config, tmp_path / "b", *ends))
    if algo == "a2c":  # SB3 counts on-policy iterations anew in every learn()
        found = [difference for difference in found if difference != "progress.csv has other rows"]
    assert found == []


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    straight = train_run(config, tmp_path / "a", show="nothing").folder
    first = train_run(config, tmp_path / "b", show="nothing", callbacks=[At(420, terminate)])
    newest = find_checkpoint(first.folder)
    assert newest is not None
    data = bytearray((newest / store.MODEL).read_bytes())
    data[len(data) // 2] ^= 1
    (newest / store.MODEL).write_bytes(data)
    second = train_run(config, tmp_path / "b", show="nothing")
    reason = "model.zip has another checksum than when it was written"
    assert f"is damaged ({reason}); going on from the one before" in capsys.readouterr().err
    assert differences(straight, second.folder) == []


def test_every_kind_of_difference_is_found(tmp_path: Path) -> None:
    one = train_run(small_config(), tmp_path / "a", show="nothing").folder
    other = train_run(small_config(learning_rate=0.05), tmp_path / "b", show="nothing").folder
    found = differences(one, other)
    for words in (
        "policy differs",
        "policy.optimizer differs",
        "the replay buffer differs",
        "iterations.csv has other rows",
        "caution differs",
    ):
        assert words in found
    shutil.copytree(one, tmp_path / "c")
    assert differences(one, tmp_path / "c") == []
    rows = (tmp_path / "c/monitor.csv").read_text().splitlines(keepends=True)
    (tmp_path / "c/monitor.csv").write_text("".join([*rows[:5], *rows[4:]]))  # one row twice
    assert differences(one, tmp_path / "c") == ["monitor.csv has other rows"]


def test_another_entropy_coefficient_is_found(tmp_path: Path) -> None:
    """It is a tensor outside of every network."""
    folders = [tmp_path / name for name in ("a", "b")]
    for folder, ent_coef in zip(folders, ("auto_0.5", "auto_0.6"), strict=True):
        model = CautiousSAC("MlpPolicy", "Pendulum-v1", buffer_size=1, ent_coef=ent_coef, seed=0)
        folder.mkdir()
        model.save(folder / "model")
    assert differences(*folders) == ["log_ent_coef differs"]


def test_same_means_to_the_bit() -> None:
    array = np.array([1.0, np.nan])
    assert same({"a": [array, 1]}, {"a": [array.copy(), 1]})
    assert not same({"a": array}, {"a": array.astype(np.float32)})
    assert not same(np.array([1.0]), np.array([np.nextafter(1.0, 2.0)]))
    assert not same([1], [1, 2])


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_the_study_can_be_saved(tmp_path: Path, task: str) -> None:
    for module in {"minatar": ("minatar",), "ale": ("ale_py", "cv2")}.get(task, ()):
        pytest.importorskip(module)
    env = make_run_environment(TASKS[task].config(TASKS[task].algos[0], 0))
    env.reset()
    assert state.capture_environment(env)
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "algo", "n_timesteps"),
    [("cartpole", "cpp", 900), ("minatar", "cpi", 700), ("pendulum", "csac", 700)],
)
def test_kills_at_random_moments_change_nothing(
    tmp_path: Path, task: str, algo: str, n_timesteps: int
) -> None:
    """The study itself: benchmarks/faults.py."""
    if task == "minatar":
        pytest.importorskip("minatar")
    result = run_case(task, algo, 3, 0, tmp_path, n_timesteps)
    assert (result.kills, result.differences) == (3, 0), result


@pytest.mark.slow
def test_a_run_survives_a_kill_before_any_file_operation(tmp_path: Path) -> None:
    """Once for each name that a file gets; all operations: benchmarks/faults.py --crash."""
    operations: list[str] = []

    def choose(found: list[str]) -> list[int]:
        operations.extend(found)
        kinds = ("os.rename", "os.rmdir")
        last = {name: point for point, name in enumerate(found) if name.startswith(kinds)}
        return sorted(last.values())

    tried, wrong = crash_points(tmp_path, crash_config(keep_checkpoint=False), choose)
    assert wrong == {}
    assert len(operations) > 90
    assert tried >= 10


def test_by_default_only_algorithms_that_can_act_there_are_tried() -> None:
    """CautiousSAC refuses discrete actions, the others refuse continuous ones."""
    for task in TASKS.values():
        on_dqn = task.suite != "continuous"
        assert task.algos
        assert all(issubclass(ALGORITHMS[a], RegularizedDQN) == on_dqn for a in task.algos)
    assert stress.DISCRETE
    assert all(issubclass(cls, RegularizedDQN) for cls in stress.DISCRETE.values())


def test_missing_extras_are_named_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("minatar", "ale_py"):
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    monkeypatch.setattr(sys, "argv", ["faults.py", "-f", str(tmp_path / "new")])
    path = Path(__file__).parents[2] / "benchmarks" / "faults.py"
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    output = capsys.readouterr()
    assert (end.value.code, output.out) == (2, "")
    assert len(output.err.splitlines()) == 1
    assert 'pip install "sb3_cpp[minatar,atari]"' in output.err
    assert not (tmp_path / "new").exists()
