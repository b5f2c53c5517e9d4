"""The grid's view of its cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sb3_cpp.analysis.results import load_results, save_results
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import read_evaluations, write_status
from sb3_cpp.training.grid import (
    leave_out_published,
    make_cells,
    report_outcome,
    select_unfinished,
)
from sb3_cpp.training.pools import Cell
from sb3_cpp.training.run import settings_of, train_run
from sb3_cpp.training.suites import load_suite
from tests.analysis.synthetic_runs import write_run
from tests.training.small_runs import small_config


def test_the_table_shows_the_last_evaluation_of_a_run_that_died_before_its_last_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    folder = train_run(config, tmp_path, show="nothing").folder
    write_status(folder, state="training", timesteps=400, **{"return": -77.0})
    cells = [Cell(config, folder)]
    assert select_unfinished(cells, retry=False) == []
    assert report_outcome(cells) == 0
    table = capsys.readouterr().out
    assert f" {np.mean(read_evaluations(folder)['results'][-1]):.1f} " in table
    assert "-77" not in table


def cells_of(seeds: int, root: Path) -> list[Cell]:
    algos, envs = ["dqn", "cmdqn"], ["CartPole-v1", "Acrobot-v1"]
    return make_cells(load_suite("classic"), algos, envs, range(seeds), {}, root)


def test_a_grid_is_trained_seed_by_seed(tmp_path: Path) -> None:
    assert [cell.config.seed for cell in cells_of(2, tmp_path)] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_finished_runs_of_published_results_are_not_trained_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = cells_of(2, tmp_path)
    publish(cells, tmp_path)
    left = leave_out_published(cells, str(tmp_path / "results"))
    (out,) = [cell for cell in cells if cell not in left]
    assert (out.config.algo, out.config.env, out.config.seed) == ("dqn", "CartPole-v1", 1)
    assert "has 1 of 8 cells" in capsys.readouterr().out


def publish(cells: list[Cell], folder: Path) -> None:
    """Results of two of the cells, one finished and one failed."""
    for algo, seed, state in (("dqn", 1, "finished"), ("cmdqn", 0, "failed")):
        (config,) = [
            cell.config
            for cell in cells
            if (cell.config.algo, cell.config.seed, cell.config.env) == (algo, seed, "CartPole-v1")
        ]
        run = write_run(
            folder / "runs", algo, seed=seed, n_timesteps=config.n_timesteps, state=state
        )
        (run / "config.yml").write_text(yaml.safe_dump(settings_of(config)))
    save_results(load_results(folder / "runs"), folder / "results")


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"gamma": 0.5}, "hyperparameters.gamma: 0.99 there, 0.5 here"),
        ({"n_timesteps": 77}, "n_timesteps: 50000 there, 77 here"),
        ({"save_freq": 5000}, ""),  # no number depends on it
    ],
)
def test_published_runs_with_other_settings_are_refused(
    tmp_path: Path, overrides: dict[str, Any], named: str
) -> None:
    publish(cells_of(2, tmp_path), tmp_path)
    suite, results = load_suite("classic"), str(tmp_path / "results")
    cells = make_cells(suite, ["dqn"], ["CartPole-v1"], range(2), overrides, tmp_path)
    if not named:
        assert len(leave_out_published(cells, results)) == 1
        return
    with pytest.raises(InvalidArgument, match=f"other settings .*{named}"):
        leave_out_published(cells, results)


@pytest.mark.parametrize(
    ("state", "failure", "again", "retry"),
    [
        ("interrupted", False, True, False),
        ("failed", False, True, False),
        ("failed", True, False, True),
    ],
)
def test_an_unfinished_cell_is_an_error_and_names_what_to_do(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
    failure: bool,
    again: bool,
    retry: bool,
) -> None:
    cell = Cell(small_config(), tmp_path, state, "its reason")
    if failure:
        (tmp_path / "failure.log").write_text("Traceback")
    assert report_outcome([cell]) == 1
    err = capsys.readouterr().err
    assert f"{state}: cpp CartPole-v1 seed 0: its reason" in err
    assert ("run the same command again" in err, "add --retry" in err) == (again, retry)
