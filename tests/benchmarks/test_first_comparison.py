"""The newcomer's comparison keeps what was trained, and never mixes lengths."""

from pathlib import Path

import pandas as pd
import pytest

from benchmarks import first_comparison
from benchmarks.first_comparison import compare
from sb3_cpp.checks import InvalidArgument

CORRIDOR = ["corridor, 6,000 steps"]


def small_comparison(folder: Path, n_timesteps: int | None = 300) -> int:
    return compare(str(folder), 1, 0, CORRIDOR, ["DQN"], n_timesteps, jobs=1)


@pytest.mark.slow
def test_runs_of_another_length_are_refused_and_finished_ones_are_kept(tmp_path: Path) -> None:
    assert small_comparison(tmp_path) == 0
    rows = pd.read_csv(tmp_path / "cells.csv")
    assert rows.n_timesteps.tolist() == [300, 300]  # both settings
    written = (tmp_path / "cells.csv").read_bytes()
    with pytest.raises(InvalidArgument, match=r"runs of 300 steps on corridor.* these have 6,000"):
        small_comparison(tmp_path, None)
    assert small_comparison(tmp_path) == 0
    assert (tmp_path / "cells.csv").read_bytes() == written


@pytest.mark.slow
def test_a_failed_run_costs_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number of steps that is none fails in the worker."""
    first = {"task": CORRIDOR[0], "settings": "usual", "algorithm": "DQN", "factor": 1.0, "seed": 0}
    row = {**first, "n_timesteps": "many", "return": 0.5, "solved": False}
    pd.DataFrame([row]).to_csv(tmp_path / "cells.csv", index=False)
    assert compare(str(tmp_path), 1, 0, CORRIDOR, ["DQN"], "many", jobs=1) == 1  # type: ignore[arg-type]
    assert "failed: Cell(" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "cells.csv")["return"].tolist() == [0.5]


def test_rows_without_a_length_have_that_of_their_task() -> None:
    published = Path(__file__).resolve().parents[2] / "results" / "first_comparison" / "cells.csv"
    rows = first_comparison.read_rows(published)
    assert set(rows[rows.task == "corridor, 6,000 steps"].n_timesteps) == {6000}


def test_a_number_of_processes_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="--jobs must be"):
        compare(str(tmp_path), 1, 0, CORRIDOR, ["DQN"], 300, jobs=0)
