"""One run's folder: what is read from it, and that nothing it lacks goes unsaid."""

from pathlib import Path

import numpy as np
import pytest

from sb3_cpp.analysis.figures_learning import plot_run
from sb3_cpp.analysis.runs import (
    MOST_ITERATIONS,
    episode_ends,
    read_episodes,
    read_run,
    training_curve,
)
from sb3_cpp.checks import InvalidArgument
from tests.analysis.synthetic_runs import write_run


def test_a_finished_run_has_its_curves(tmp_path: Path) -> None:
    record = read_run(
        write_run(tmp_path, "cpp", "MinAtar/Breakout-v1", 3, suite="minatar", evaluations=[1, 5, 3])
    )
    assert record is not None
    assert (record.suite, record.task, record.algo, record.seed) == (
        "minatar",
        "MinAtar/Breakout-v1",
        "cpp",
        3,
    )
    assert (record.state, record.problem) == ("finished", "")
    assert record.evaluations["return"].tolist() == [1.0, 5.0, 3.0]
    assert record.evaluations["step"].tolist() == [133, 266, 400]
    assert record.seconds == 20.0  # the last of 40 episodes, half a second each


def test_a_failed_run_says_why(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, state="failed", error="non-finite loss"))
    assert record is not None
    assert (record.state, record.problem) == ("failed", "failed at step 400: non-finite loss")


def test_an_unfinished_run_says_how_far_it_is(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, state="interrupted", evaluations=[], n_timesteps=5000))
    assert record is not None
    assert (record.state, record.problem) == ("unfinished", "unfinished: 2,500 of 5,000 steps")


def test_the_files_of_a_shorter_run_do_not_finish_a_longer_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path, n_timesteps=400)
    config = (folder / "config.yml").read_text().replace("n_timesteps: 400", "n_timesteps: 800")
    (folder / "config.yml").write_text(config)
    record = read_run(folder)
    assert record is not None
    assert (record.state, record.problem) == ("unfinished", "unfinished: 400 of 800 steps")


def test_a_run_without_evaluations_says_so(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, evaluations=[]))
    assert record is not None
    assert (record.state, record.problem) == ("finished", "has no evaluations")


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.yml", b"config: [", "config.yml cannot be read"),
        ("config.yml", b"\xff\xfe", "config.yml cannot be read"),
        ("config.yml", b"just words", "config.yml cannot be read"),
        ("config.yml", b"config: {}", "config.yml cannot be read"),
        ("config.yml", b"", "config.yml cannot be read"),
        ("evaluations.npz", b"", "evaluations.npz cannot be read"),
        ("evaluations.npz", b"PK\x03\x04", "evaluations.npz cannot be read"),
        ("evaluations.npz", b"not a zip", "its logs cannot be read"),
        ("monitor.csv", b"#{}\nr,l,t\nx,1,1\n", "its logs cannot be read"),
        ("monitor.csv", b"#{}\nr,l,t\nnan,1,1\n", "not finite"),
        ("monitor.csv", b"#{}\na,b\n1,1\n", "its logs cannot be read"),
    ],
)
def test_a_broken_file_makes_the_run_unreadable_by_name(
    tmp_path: Path, file: str, content: bytes, reason: str
) -> None:
    folder = write_run(tmp_path, "cpp", "CartPole-v1", 1)
    (folder / file).write_bytes(content)
    record = read_run(folder)
    assert record is not None
    assert (record.task, record.algo, record.seed, record.state) == (
        "CartPole-v1",
        "cpp",
        1,
        "unreadable",
    )
    assert reason in record.problem


def test_truncated_evaluations_are_refused_by_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    whole = (folder / "evaluations.npz").read_bytes()
    for size in range(0, len(whole), 61):
        (folder / "evaluations.npz").write_bytes(whole[:size])
        record = read_run(folder)
        assert record is not None
        assert "evaluations.npz cannot be read" in record.problem, size


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.yml", b"\xff\xfe"),
        ("config.yml", b"config: {}"),
        ("config.yml", b"config: {env: CartPole-v1}"),
        ("evaluations.npz", b""),
        ("evaluations.npz", b"PK\x03\x04"),
        ("monitor.csv", b""),
        ("monitor.csv", b"#{}\na,b\n1,1\n"),
        ("monitor.csv", b"\xff\xfe"),
        ("iterations.csv", b""),
        ("iterations.csv", b"\xff\xfe"),
        ("iterations.csv", b"zeta\n0.5\n"),
    ],
)
def test_the_picture_of_a_damaged_run_is_refused_by_name(
    tmp_path: Path, file: str, content: bytes
) -> None:
    folder = write_run(tmp_path, zetas=[0.1, 0.2])
    (folder / file).write_bytes(content)
    with pytest.raises(InvalidArgument, match=file):
        plot_run(folder)
    assert not (folder / "picture.png").exists()


def test_evaluations_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, evaluations=[1.0, np.nan]))
    assert record is not None
    assert record.state == "unreadable"
    assert "not finite" in record.problem


def test_evaluations_whose_steps_do_not_grow_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    arrays = {"timesteps": [100, 200, 200], "results": [[1.0], [2.0], [3.0]]}
    np.savez(folder / "evaluations.npz", **arrays, ep_lengths=[[1], [1], [1]])
    record = read_run(folder)
    assert record is not None
    assert record.problem == "its logs cannot be read (evaluations.npz has steps that do not grow)"


def test_a_config_with_nothing_for_a_number_makes_the_run_unreadable(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    config = (folder / "config.yml").read_text()
    (folder / "config.yml").write_text(config.replace("n_envs: 1", "n_envs: null"))
    record = read_run(folder)
    assert record is not None
    assert record.problem.startswith("its logs cannot be read")


def test_a_folder_without_config_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    (folder / "config.yml").unlink()
    record = read_run(folder)
    assert record is not None
    assert record.problem == "config.yml is missing"


def test_a_trial_of_a_search_is_no_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    trial = tmp_path / "tune" / "cpp_CartPole-v1" / "trial_0" / "seed_0"
    trial.mkdir(parents=True)
    (trial / "config.yml").write_bytes((folder / "config.yml").read_bytes())
    assert read_run(trial) is None


def test_what_lies_beyond_the_steps_asked_for_is_left_out(tmp_path: Path) -> None:
    """PPO finishes its rollout: 4 evaluations lie within 400 steps, 2 after them."""
    folder = write_run(
        tmp_path,
        "ppo",
        evaluations=[1, 2, 3, 4, 9, 9],
        episodes=[1.0] * 4 + [9.0] * 2,
        n_timesteps=600,
    )
    text = (folder / "config.yml").read_text()
    (folder / "config.yml").write_text(text.replace("n_timesteps: 600", "n_timesteps: 400"))
    record = read_run(folder)
    assert record is not None
    assert record.evaluations["return"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert record.returns.tolist() == [1.0] * 4


def test_training_curve_by_hand() -> None:
    """Episodes end at steps 30, 60 and 90 with 1, 2 and 6: means 1, 1.5 and 3 from there on."""
    curve = training_curve(np.array([30.0, 60.0, 90.0]), np.array([1.0, 2.0, 6.0]), 100).set_index(
        "step"
    )["return"]
    assert curve.index[0] == 30
    assert (curve[30], curve[58], curve[60], curve[100]) == (1.0, 1.0, 1.5, 3.0)


def test_training_curve_forgets_all_but_a_hundred_episodes() -> None:
    returns = np.concatenate([np.zeros(50), np.ones(100)])
    assert training_curve(np.arange(1.0, 151.0), returns, 150)["return"].iloc[-1] == 1.0


def test_episodes_of_one_environment_end_at_the_sum_of_their_lengths() -> None:
    assert episode_ends(np.array([3.0, 4.0, 5.0])).tolist() == [3.0, 7.0, 12.0]


@pytest.mark.parametrize("n_envs", [4, 16])
def test_episodes_of_several_environments_end_about_where_they_did(n_envs: int) -> None:
    """The running sum lags by half an episode of every other environment, the estimate does not."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(n_envs):
        ends = np.cumsum(rng.integers(20, 200, 400))
        rows += list(zip(ends, np.diff(ends, prepend=0)))
    rows = sorted(row for row in rows if row[0] * n_envs <= 50_000)
    truth, lengths = (
        n_envs * np.array([end for end, _ in rows]),
        np.array([float(length) for _, length in rows]),
    )
    error = episode_ends(lengths, n_envs) - truth
    assert abs(error.mean()) < 0.1 * n_envs * 55  # 55 is the mean age of a running episode
    assert np.sqrt((error**2).mean()) < 0.4 * np.sqrt(((np.cumsum(lengths) - truth) ** 2).mean())


def test_long_traces_are_thinned_and_keep_their_ends(tmp_path: Path) -> None:
    record = read_run(write_run(tmp_path, zetas=np.linspace(0.0, 1.0, 1000)))
    assert record is not None
    assert len(record.iterations) == MOST_ITERATIONS
    assert record.iterations.K.iloc[[0, -1]].tolist() == [1, 1000]
    assert record.iterations.zeta.iloc[-1] == 1.0


def test_lengths_of_atari_episodes_are_frames_and_ends_are_steps(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    path.write_text('#{"t_start": 0.0}\nr,l,t\n1.0,400,0.1\n2.0,80,0.2\n')
    assert read_episodes(path, "SpaceInvadersNoFrameskip-v4")["end"].tolist() == [100.0, 120.0]
    assert read_episodes(path, "CartPole-v1")["end"].tolist() == [400.0, 480.0]
