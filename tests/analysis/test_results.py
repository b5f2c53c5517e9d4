"""Many runs as one table: what is measured, and that every run is either compared or named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sb3_cpp.analysis.comparison import why_no_average
from sb3_cpp.analysis.results import (
    FILES,
    Choice,
    describe_excluded,
    load_results,
    save_results,
)
from sb3_cpp.analysis.tables import remarks, table_of_all_tasks, tables_as_markdown
from sb3_cpp.metrics import iqm, oscillation_without_noise
from sb3_cpp.training.run import train_run
from tests.analysis.synthetic_runs import write_grid, write_run
from tests.training.small_runs import small_config


def test_measures_by_hand(tmp_path: Path) -> None:
    """0, 8, 5, 9, 5: falls of 3 and 4; last three (5 + 9 + 5) / 3; area (4 + 6.5 + 7 + 7) / 4."""
    write_run(tmp_path, evaluations=[0, 8, 5, 9, 5], episodes=[0.0] * 50 + [2.0] * 100)
    run = load_results(tmp_path).runs.iloc[0]
    assert run.oscillation_l2 == pytest.approx(5.0)
    assert run.oscillation_inf == pytest.approx(4.0)
    assert run.final_return == pytest.approx(19 / 3)
    assert run.auc == pytest.approx(24.5 / 4)
    assert run.best_return == 9.0
    assert run.final_training_return == 2.0
    assert run.training_oscillation_l2 == 0.0
    assert run.oscillation_noise == pytest.approx(
        1.0
    )  # two episodes 1 apart: standard errors 0.5, four pairs of 0.25 each


def test_drawdown_and_oscillation_without_noise_by_hand(tmp_path: Path) -> None:
    """0, 8, 6, 7, 3, 9: 8 sinks to 3. Without noise nothing is taken away from falls of 2 and 4."""
    values = [0, 8, 6, 7, 3, 9]
    for algo, spread in (("exact", (0.0, 0.0)), ("noisy", (-1.0, 1.0)), ("single", (0.0,))):
        write_run(tmp_path, algo, evaluations=values, spread=spread)
    results = load_results(tmp_path)
    runs = results.runs.set_index("algo")
    assert runs.drawdown.tolist() == [5.0] * 3
    assert runs.normalised_drawdown.tolist() == pytest.approx([5 / 9] * 3)
    assert runs.oscillation_l2_denoised["exact"] == pytest.approx(np.sqrt(20.0))
    expected = oscillation_without_noise(values, [1.0] * 6).l2  # 2 episodes, 2 apart
    assert runs.oscillation_l2_denoised["noisy"] == pytest.approx(float(expected))
    assert expected < np.sqrt(20.0)
    assert np.isnan(runs.oscillation_l2_denoised["single"])
    assert np.isnan(runs.normalised_oscillation_l2_denoised["single"])
    errors = results.curves[results.curves.series == "evaluation"].groupby("algo").standard_error
    assert errors.mean().fillna(-1.0).to_dict() == {"exact": 0.0, "noisy": 1.0, "single": -1.0}
    assert results.curves[results.curves.series == "training"].standard_error.isna().all()


def test_csv_files_of_the_version_before_have_drawdowns_but_no_standard_errors(
    tmp_path: Path,
) -> None:
    results = load_results(write_grid(tmp_path / "runs"))
    save_results(results, tmp_path / "old")
    new = [name for name in results.runs if "denoised" in name or "drawdown" in name]
    for file, columns in (("runs.csv", new), ("curves.csv", ["standard_error"])):
        path = tmp_path / "old" / file
        pd.read_csv(path).drop(columns=columns).to_csv(path, index=False)
    again = load_results(tmp_path / "old")
    pd.testing.assert_frame_equal(
        again.runs.drop(columns=[name for name in new if "denoised" in name]),
        results.runs.drop(columns=[name for name in new if "denoised" in name]),
    )
    assert again.runs.oscillation_l2_denoised.isna().all()
    text = tables_as_markdown(again)
    assert "l2 without noise (rms)" not in text
    assert "- l2 without noise is not known: standard errors of the evaluations were not" in text


def test_runs_without_standard_errors_are_named(tmp_path: Path) -> None:
    for algo, spread in (("cpp", (-0.5, 0.5)), ("dqn", (0.0,))):
        for seed in range(3):
            write_run(tmp_path, algo, seed=seed, evaluations=(1, 5, 3, 4 + seed), spread=spread)
    text = tables_as_markdown(load_results(tmp_path))
    assert "- l2 without noise is not known for dqn on CartPole-v1: " in text
    assert "cpp against dqn: return undecided" in text
    assert "raw oscillation undecided (" in text
    overall = table_of_all_tasks(load_results(tmp_path), "cpp")
    assert overall is not None
    place = overall.columns.index("l2 without noise (rms)")
    assert [row[place] == "-" for row in overall.rows] == [False, True]


def test_normalisation_is_by_the_range_of_all_compared_runs_of_the_task(tmp_path: Path) -> None:
    write_run(tmp_path, "cpp", evaluations=[0, 6, 4, 4])
    write_run(tmp_path, "dqn", evaluations=[-2, 8, 8, 8])
    write_run(
        tmp_path, "dqn", seed=1, evaluations=[1000, 1000, 1000, 1000], state="interrupted"
    )  # not compared: no part in it
    write_run(tmp_path, "dqn", "Acrobot-v1", evaluations=[0, 500, 500, 500])
    runs = load_results(tmp_path).runs.set_index(["algo", "task", "seed"])
    cpp = runs.loc[("cpp", "CartPole-v1", 0)]
    assert (cpp.return_low, cpp.return_high) == (-2.0, 8.0)
    assert cpp.normalised_oscillation_l2 == pytest.approx(0.2)
    assert cpp.normalised_return == pytest.approx((14 / 3 + 2) / 10)
    assert runs.loc[("dqn", "Acrobot-v1", 0)].normalised_return == pytest.approx(1.0)


def test_a_task_on_which_nothing_differs_has_no_normalised_values(tmp_path: Path) -> None:
    write_run(tmp_path, evaluations=[5, 5, 5])
    run = load_results(tmp_path).runs.iloc[0]
    assert run.final_return == 5.0
    assert np.isnan(run.normalised_return)
    assert np.isnan(run.normalised_oscillation_l2)


def test_atari_returns_are_human_normalised_too(tmp_path: Path) -> None:
    write_run(tmp_path, env="PongNoFrameskip-v4", evaluations=[-20.7, 14.6, 14.6, 14.6])
    write_run(tmp_path, env="CartPole-v1")
    assert load_results(tmp_path).runs.set_index("task").human_normalised.round(6).to_dict() == {
        "CartPole-v1": pytest.approx(np.nan, nan_ok=True),
        "PongNoFrameskip-v4": 1.0,
    }


def test_every_run_that_is_not_compared_is_named_with_its_reason(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path, "cpp", seed=seed)
    write_run(tmp_path, "dqn", seed=0, state="failed", error="non-finite loss")
    write_run(tmp_path, "dqn", seed=1, n_timesteps=200)
    (write_run(tmp_path, "ppo", seed=0) / "config.yml").write_text("")
    write_run(tmp_path, "ppo", seed=1, state="interrupted")
    write_run(tmp_path, "ppo", seed=2, evaluations=[1, 2])
    results = load_results(tmp_path)
    reasons = results.excluded().set_index(["algo", "seed"]).excluded.to_dict()
    assert reasons == {
        ("dqn", 0): "failed at step 400: non-finite loss",
        ("dqn", 1): "unequal length: 200 steps and 4 evaluations, most have 400 and 4",
        ("dqn", 2): "missing",
        ("ppo", 0): "config.yml cannot be read",
        ("ppo", 1): "unfinished: 400 of 400 steps",
        ("ppo", 2): "unequal length: 400 steps and 2 evaluations, most have 400 and 4",
    }
    assert sorted(results.used().algo.unique()) == ["cpp"]
    assert len(results.runs) == 9
    assert "classic: dqn on CartPole-v1, seed 2: missing" in describe_excluded(results.runs)


def test_missing_seeds_of_one_algorithm_are_named_in_one_line(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path, "cpp", seed=seed)
    write_run(tmp_path, "dqn", seed=1)
    write_run(tmp_path, "mdqn", "Acrobot-v1")
    lines = describe_excluded(load_results(tmp_path).runs)
    assert "classic: dqn on CartPole-v1, seeds 0, 2: missing" in lines
    assert "classic: mdqn on CartPole-v1, seeds 0, 1, 2: missing" in lines
    assert "classic: cpp on Acrobot-v1, seed 0: missing" in lines


def test_suites_are_compared_apart(tmp_path: Path) -> None:
    write_run(tmp_path, "cpp", suite="classic", evaluations=[0, 10])
    write_run(tmp_path, "cpp", suite="ablation", evaluations=[0, 100])
    results = load_results(tmp_path)
    assert results.suites() == ["ablation", "classic"]
    assert results.suite("classic").runs.return_high.tolist() == [10.0]
    assert results.suite("classic").curves["return"].max() == 10.0


def test_the_csv_files_say_the_same_as_the_folders(tmp_path: Path) -> None:
    write_grid(tmp_path / "runs")
    write_run(
        tmp_path / "runs", "cpp", "CartPole-v1", 7, state="failed", error="a, comma and a\nnew line"
    )
    results = load_results(tmp_path / "runs")
    assert [path.name for path in save_results(results, tmp_path / "tidy")] == list(FILES)
    again = load_results(tmp_path / "tidy")
    for name in ("runs", "curves", "iterations"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(results, name))
    assert again.configs == results.configs


def test_folders_and_csv_files_can_be_mixed(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "cpp")
    write_run(tmp_path / "b", "dqn")
    save_results(load_results(tmp_path / "a"), tmp_path / "tidy")
    assert load_results(tmp_path / "tidy", tmp_path / "b").runs.algo.tolist() == ["cpp", "dqn"]


def test_a_run_beside_the_csv_files_made_of_it_is_counted_once(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "a", "cpp", "CartPole-v1", seed)
    save_results(load_results(tmp_path / "a"), tmp_path / "tidy")
    write_run(tmp_path / "a", "cpp", "CartPole-v1", 2)
    mixed, alone = load_results(tmp_path / "tidy", tmp_path / "a"), load_results(tmp_path / "a")
    for name in ("runs", "curves", "iterations"):
        pd.testing.assert_frame_equal(getattr(mixed, name), getattr(alone, name))
    assert sorted(seed for entry in mixed.configs for seed in entry["seeds"]) == [0, 1, 2]


@pytest.mark.parametrize("state", ["unfinished", "failed"])
def test_a_published_run_that_was_finished_later_counts_as_it_is_now(
    tmp_path: Path, state: str
) -> None:
    write_run(tmp_path / "a", "cpp", state=state, evaluations=[1.0, 2.0])
    write_run(tmp_path / "a", "cpp", seed=1)
    save_results(load_results(tmp_path / "a"), tmp_path / "tidy")
    shutil.rmtree(tmp_path / "a")
    write_run(tmp_path / "a", "cpp")
    for paths in (("tidy", "a"), ("a", "tidy")):
        results = load_results(*(tmp_path / name for name in paths))
        assert results.runs[["seed", "state"]].values.tolist() == [[0, "finished"], [1, "finished"]]
        assert (results.curves[results.curves.series == "evaluation"].seed == 0).sum() == 4


def test_copies_with_standard_errors_are_preferred_to_those_without(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "cpp", evaluations=[1.0, 3.0, 2.0])
    save_results(load_results(tmp_path / "a"), tmp_path / "tidy")
    runs, curves = (pd.read_csv(tmp_path / "tidy" / name) for name in ("runs.csv", "curves.csv"))
    runs.assign(oscillation_l2_denoised=np.nan).to_csv(tmp_path / "tidy" / "runs.csv", index=False)
    curves.drop(columns="standard_error").to_csv(tmp_path / "tidy" / "curves.csv", index=False)
    for paths in (("tidy", "a"), ("a", "tidy")):
        results = load_results(*(tmp_path / name for name in paths))
        assert results.runs.oscillation_l2_denoised.notna().tolist() == [True]
        of_evaluations = results.curves[results.curves.series == "evaluation"]
        assert of_evaluations.standard_error.notna().tolist() == [True, True, True]


def test_names_that_look_like_numbers_or_gaps_stay_names(tmp_path: Path) -> None:
    for algo, suite in (("0.001", "2024"), ("None", "2024"), ("cpp", "None")):
        write_run(tmp_path / "a", algo, suite=suite)
    folders = load_results(tmp_path / "a")
    save_results(folders, tmp_path / "tidy")
    files = load_results(tmp_path / "tidy")
    assert files.runs[["suite", "algo"]].values.tolist() == [
        ["2024", "0.001"],
        ["2024", "None"],
        ["None", "cpp"],
    ]
    assert tables_as_markdown(files) == tables_as_markdown(folders)
    assert [len(files.suite(name).configs) for name in files.suites()] == [2, 1]
    assert len(load_results(tmp_path / "a", tmp_path / "tidy").runs) == 3


def test_the_order_of_the_paths_does_not_matter(tmp_path: Path) -> None:
    write_grid(tmp_path / "a", ("cpp", "dqn"), ("CartPole-v1",))
    write_grid(tmp_path / "b", ("cpp", "dqn"), ("Acrobot-v1",))
    one, other = (load_results(tmp_path / x, tmp_path / y) for x, y in ("ab", "ba"))
    assert tables_as_markdown(one) == tables_as_markdown(other)
    assert one.configs == other.configs


def test_seeds_with_different_settings_are_named(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        folder = write_run(tmp_path / "runs", "cpp", seed=seed)
        if seed == 2:
            text = (folder / "config.yml").read_text()
            (folder / "config.yml").write_text(text.replace("gamma: 0.99", "gamma: 0.5"))
    lines = remarks(load_results(tmp_path / "runs"), "cpp")
    assert lines == [
        "cpp on CartPole-v1, seeds 0, 1 and 2 have different settings: "
        "hyperparameters.gamma: 0.99 there, 0.5 here"
    ]


def test_a_monitor_file_above_the_runs_does_not_hide_them(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "monitor.csv").write_text('#{"t_start": 0.0}\nr,l,t\n1.0,10,0.5\n')
    (tmp_path / "logs" / "round").symlink_to(tmp_path / "logs")
    write_run(tmp_path / "logs", "cpp")
    results = load_results(tmp_path / "logs")
    assert results.used().algo.tolist() == ["cpp"]
    assert results.ignored == (str(tmp_path / "logs"),)


def test_two_different_runs_of_one_cell_are_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "cpp", evaluations=[1.0, 2.0])
    write_run(tmp_path / "b", "cpp", evaluations=[1.0, 3.0])
    save_results(load_results(tmp_path / "a"), tmp_path / "tidy")
    where = r"in .*tidy and in .*/b/classic/cpp/CartPole-v1/seed_0"
    with pytest.raises(
        ValueError,
        match=f"two runs are cpp on CartPole-v1, seed 0, of suite classic, {where}",
    ):
        load_results(tmp_path / "tidy", tmp_path / "b")


def test_a_run_that_is_twice_below_one_folder_is_refused(tmp_path: Path) -> None:
    for copy in ("a", "b"):
        write_run(tmp_path / "runs" / copy, "cpp")
    with pytest.raises(ValueError, match=r"two runs are cpp on CartPole-v1, seed 0, .*/a/.*/b/"):
        load_results(tmp_path / "runs")


def test_some_algorithms_and_tasks_can_be_chosen(tmp_path: Path) -> None:
    write_grid(tmp_path / "runs")
    all_of_them = load_results(tmp_path / "runs")
    chosen = load_results(tmp_path / "runs", choice=Choice(["cpp", "dqn"], ["Acrobot-v1"]))
    for table in (chosen.runs, chosen.curves):
        assert set(zip(table.algo, table.task, strict=True)) == {
            ("cpp", "Acrobot-v1"),
            ("dqn", "Acrobot-v1"),
        }
    assert set(chosen.iterations.algo) == {"cpp"}
    assert {(entry["algo"], entry["task"]) for entry in chosen.configs} == {
        ("cpp", "Acrobot-v1"),
        ("dqn", "Acrobot-v1"),
    }
    assert len(chosen.used()) == 6 < len(all_of_them.used()) == 18
    assert not (chosen.runs.state == "missing").any()
    for choice, message in (
        (Choice(["sac"]), "--algos must be among those of the runs, cpp, dqn, ppo, got 'sac'"),
        (
            Choice(envs=["Pong"]),
            "--envs must be among those of the runs, Acrobot-v1, CartPole-v1, got 'Pong'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            load_results(tmp_path / "runs", choice=choice)


def test_a_choice_that_no_run_meets_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, "cpp", "CartPole-v1")
    write_run(tmp_path, "dqn", "Acrobot-v1")
    with pytest.raises(ValueError, match="no run is of --algos cpp and of --envs Acrobot-v1"):
        load_results(tmp_path, choice=Choice(["cpp"], ["Acrobot-v1"]))


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    results = load_results(tmp_path / "runs")
    save_results(results, tmp_path / "tidy")
    with pytest.raises(ValueError, match="already holds runs"):
        save_results(results, tmp_path / "tidy")
    save_results(results, tmp_path / "tidy", force=True)


def test_settings_are_kept_once_for_the_seeds_that_share_them(tmp_path: Path) -> None:
    write_grid(tmp_path, algos=("cpp", "dqn"), envs=("CartPole-v1",), seeds=3)
    configs = load_results(tmp_path).configs
    assert [(entry["algo"], entry["seeds"]) for entry in configs] == [
        ("cpp", [0, 1, 2]),
        ("dqn", [0, 1, 2]),
    ]
    assert configs[0]["provenance"]["command"].startswith("python scripts/benchmark.py")


def test_other_folders_are_ignored_by_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    trial = tmp_path / "tune" / "study" / "trial_0" / "seed_0"
    trial.mkdir(parents=True)
    (trial / "config.yml").write_bytes((folder / "config.yml").read_bytes())
    results = load_results(tmp_path)
    assert len(results.runs) == 1
    assert results.ignored == (str(trial),)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "must be a folder of runs"),
        (lambda path: path.write_text(""), "must be a folder of runs"),
        (lambda path: path.mkdir(), "holds no runs"),
    ],
)
def test_a_place_without_runs_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path / "x")
    with pytest.raises(ValueError, match=message):
        load_results(tmp_path / "x")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("runs.csv", "suite,task\na,b\n", "lacks the columns algo, seed"),
        ("runs.csv", "", "must be a CSV file"),
        ("curves.csv", None, "must be a CSV file"),
        ("curves.csv", "suite,task,algo,seed,series,step\n", "lacks the column return"),
        ("configs.yml", "a: [", "must be YAML"),
        ("configs.yml", "a: 1", "must be a list of entries"),
        ("configs.yml", "- 1", "must be a list of entries"),
    ],
)
def test_broken_csv_files_are_refused_by_name(
    tmp_path: Path, file: str, content: str | None, message: str
) -> None:
    save_results(load_results(write_grid(tmp_path / "runs", seeds=1)), tmp_path / "tidy")
    if content is None:
        (tmp_path / "tidy" / file).unlink()
    else:
        (tmp_path / "tidy" / file).write_text(content)
    with pytest.raises(ValueError, match=f"{file} {message}"):
        load_results(tmp_path / "tidy")


@pytest.mark.parametrize(
    ("file", "column", "value", "message"),
    [
        ("runs.csv", "final_return", "many", "must have numbers in the column final_return"),
        ("runs.csv", "final_return", "inf", "must have a finite final_return for seed 0 of cpp on"),
        ("runs.csv", "final_return", "", "must have a finite final_return for seed 0 of cpp on"),
        ("runs.csv", "seed", "first", "must have numbers in the column seed"),
        ("runs.csv", "seed", "", "must have whole numbers in the column seed"),
        ("curves.csv", "return", "high", "must have numbers in the column return"),
    ],
)
def test_cells_that_make_no_sense_are_refused_by_name(
    tmp_path: Path, file: str, column: str, value: str, message: str
) -> None:
    save_results(
        load_results(write_grid(tmp_path / "runs", algos=("cpp",), seeds=1)), tmp_path / "tidy"
    )
    table = pd.read_csv(tmp_path / "tidy" / file).astype({column: object})
    table.loc[0, column] = value
    table.to_csv(tmp_path / "tidy" / file, index=False)
    with pytest.raises(ValueError, match=f"{file} {message}"):
        load_results(tmp_path / "tidy")


def test_a_table_without_runs_is_refused(tmp_path: Path) -> None:
    save_results(load_results(write_grid(tmp_path / "runs", seeds=1)), tmp_path / "tidy")
    pd.read_csv(tmp_path / "tidy" / "runs.csv").head(0).to_csv(
        tmp_path / "tidy" / "runs.csv", index=False
    )
    with pytest.raises(ValueError, match="holds no run"):
        load_results(tmp_path / "tidy")


def test_runs_beside_csv_files_are_not_overlooked(tmp_path: Path) -> None:
    save_results(load_results(write_grid(tmp_path, seeds=1)), tmp_path)
    with pytest.raises(
        ValueError, match=r"holds both runs.csv and runs \(.*seed_0\); move the CSV files elsewhere"
    ):
        load_results(tmp_path)


def test_a_renamed_run_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path, seed=2)
    folder.rename(folder.with_name("seed_12"))
    runs = load_results(tmp_path).runs
    assert runs[["seed", "state", "excluded"]].to_numpy().tolist() == [
        [12, "unreadable", "config.yml is of another run, with seed 2"]
    ]


def test_runs_behind_a_link_are_read_under_the_name_of_the_link(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "cpp")
    write_run(tmp_path / "disk", "dqn", suite="elsewhere")
    (tmp_path / "runs" / "classic" / "mine").symlink_to(tmp_path / "disk" / "elsewhere" / "dqn")
    (tmp_path / "runs" / "classic" / "loop").symlink_to(tmp_path / "runs")
    runs = load_results(tmp_path / "runs").runs
    assert list(zip(runs.suite, runs.algo)) == [("classic", "cpp"), ("classic", "mine")]


def test_tasks_without_any_difference_are_named(tmp_path: Path) -> None:
    write_grid(tmp_path, algos=("cpp", "dqn"), envs=("CartPole-v1",), seeds=2)
    for algo in ("cpp", "dqn"):
        for seed in range(2):
            write_run(tmp_path, algo, "MountainCar-v0", seed, evaluations=(-200.0,) * 10)
    assert "not averaged: MountainCar-v0, where all evaluations are equal" in remarks(
        load_results(tmp_path), "cpp"
    )
    alone = load_results(tmp_path, choice=Choice(envs=["MountainCar-v0"]))
    assert why_no_average(alone) == "all evaluations are equal on every task"


def test_human_normalised_scores_are_averaged_over_games(tmp_path: Path) -> None:
    for env in ("SeaquestNoFrameskip-v4", "BreakoutNoFrameskip-v4"):
        for algo in ("cpp", "dqn"):
            for seed in range(2):
                write_run(tmp_path, algo, env, seed, evaluations=(1.0, 2.0, 3.0 + seed))
    results = load_results(tmp_path)
    assert "| human-normalised |" in tables_as_markdown(results)
    overall = table_of_all_tasks(results, "cpp")
    assert overall is not None
    scores = (
        results.runs.loc[results.runs.algo == "cpp", ["task", "human_normalised"]]
        .groupby("task")
        .human_normalised
    )
    expected = float(iqm({str(task): values.to_numpy() for task, values in scores}))
    assert overall.rows[0][overall.columns.index("human-normalised return")].startswith(
        f"{expected:.3f} ["
    )


@pytest.mark.slow
def test_a_real_run_is_read(tmp_path: Path) -> None:
    for algo in ("cpp", "ppo"):
        train_run(small_config(algo), tmp_path, show="nothing")
    results = load_results(tmp_path)
    assert results.used().algo.tolist() == ["cpp", "ppo"]
    assert results.runs.evaluations.tolist() == [3, 3]
    assert set(results.iterations.algo) == {"cpp"}
    assert results.runs.final_return.notna().all()
    assert "processor" in results.configs[0]["provenance"]["machine"]
