"""A wrong argument of a benchmark is one line and exit code 2, before anything is measured."""

import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.stress import stress

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("faults", "--tasks", "cartpole", "--algos", "csac"),
            "--algos must have an algorithm of --tasks cartpole, got csac",
        ),
        (("faults", "--seed", "4294967296"), "--seed must be below 2**32, got 4294967296"),
        (("stress", "--seed", "4294967296"), "--seed must be below 2**32, got 4294967296"),
        (("replay_memory", "--games", "Foo"), "an Atari game's, like"),
        (("replay_memory", "--game", "Foo"), "unrecognized arguments"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "Foo" in arguments:
        pytest.importorskip("ale_py", reason="needs the extra atari")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(arguments))
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(FOLDER / f"{arguments[0]}.py"), run_name="__main__")
    output = capsys.readouterr()
    assert (end.value.code, output.out) == (2, "")
    assert len(output.err.splitlines()) == 1
    assert message in output.err
    assert list(tmp_path.iterdir()) == []


def test_a_world_that_is_named_twice_is_tried_once(capsys: pytest.CaptureFixture[str]) -> None:
    world = "no reward"
    assert stress([world, world], ["cpp", "cpp"], n_timesteps=10, seed=0, out=None) == 0
    assert capsys.readouterr().out.count(world) == 1
