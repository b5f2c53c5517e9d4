"""What checkpoints cost is measured; the figures are those of benchmarks/checkpoint_costs.py."""

import re
from pathlib import Path

import pytest

from benchmarks.checkpoint_costs import checkpoint_costs, incremental, time_share
from sb3_cpp.checkpointing import buffer


def test_the_share_of_the_time_is_that_of_all_checkpoints(tmp_path: Path) -> None:
    pytest.importorskip("minatar")
    text = time_share(tmp_path, 400, 100)
    assert "400 steps in" in text
    assert "3 checkpoints took" in text  # none at the end: nobody goes on from there


def test_new_frames_cost_what_they_take_and_not_the_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "SMALL", 0)
    text = incremental(tmp_path, 4000, 80)
    whole, *later = [float(size) for size in re.findall(r"([\d.]+) MB", text)]
    model = 3 * 6.8  # networks, target networks and what Adam will keep lie in model.zip each time
    assert whole > 4000 * 84 * 84 / 1e6
    assert all(size < 80 * 84 * 84 / 1e6 + 8 + model for size in later), text


def test_nothing_stays_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made" / "if missing"
    assert checkpoint_costs(0, 1, 400, 8, str(folder)) == 0
    assert "a buffer of 400 frames" in capsys.readouterr().out
    assert not list(folder.iterdir())
