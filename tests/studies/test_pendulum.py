import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch as th

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.linear import BadObservation, load_policy
from sb3_cpp.studies import pendulum
from sb3_cpp.studies.pendulum import (
    ALGORITHMS,
    PendulumSettings,
    Record,
    drive,
    is_upright,
    learn,
    run_pendulum,
)
from sb3_cpp.training.suites import load_yaml, settings_from
from tests.training.test_scripts import Run, run

__all__ = ["run"]  # the fixture
CONFIG = Path(__file__).resolve().parents[2] / "configs" / "pendulum.yml"
SMALL = ["--trials", "2", "--iterations", "2", "--steps", "200"]


def test_the_file_holds_the_defaults() -> None:
    assert settings_from(PendulumSettings, load_yaml(CONFIG), "pendulum.yml") == PendulumSettings()


def test_only_what_an_algorithm_is_differs_between_them() -> None:
    settings = PendulumSettings()
    assert settings.algorithm("cpp").scheme == "1b"
    assert settings.algorithm("cpp_geometric").scheme == "1b"
    others = set(ALGORITHMS) - {"cpp", "cpp_geometric"}
    assert {settings.algorithm(algo).scheme for algo in others} == {"1"}
    assert {settings.algorithm(algo).temperature for algo in ALGORITHMS} == {0.0175 + 0.025}


def test_guaranteed_improvement_is_the_formula_of_the_paper() -> None:
    gamma, advantage = 0.9, 0.02
    record = Record("aspi")
    record.advantage, record.zeta = (
        [np.array([advantage])],
        [np.array([(1 - gamma) ** 3 * advantage / (4 * gamma)])],
    )
    assert record.guaranteed_improvement() == pytest.approx(
        (1 - gamma) ** 3 * advantage**2 / (8 * gamma)
    )


def test_upright_is_judged_by_the_last_200_steps() -> None:
    angles = th.full((3, 500), 0.29)
    angles[1, :300] = 3.0
    angles[2, 300:] = -0.31
    assert is_upright(angles).tolist() == [True, True, False]


@pytest.mark.parametrize("steps", [501, 600, 700, 999, 1200])
def test_the_beginning_of_another_episode_does_not_count_as_falling(steps: int) -> None:
    """An episode has 500 steps, in the batch as in gymnasium, and the next one begins hanging."""
    angles = th.zeros(2, steps)
    for start in range(0, steps, 500):
        angles[:, start : start + 150] = -math.pi
    last_end = steps // 500 * 500
    angles[1, last_end - 50 : last_end] = math.pi  # falls in the end: a mean of pi / 4 > 0.3
    assert is_upright(angles).tolist() == [True, False]


def test_script_writes_everything_and_names_the_folder_last(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p"
    assert (
        run("pendulum.py", *SMALL, "--algos", "cpp", "cvi", "aspi", "espi", "--out", str(out)) == 0
    )
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == f"written: {out}"
    assert "| mean zeta |" in (out / "tables.md").read_text()
    assert "1.69e-06" in printed
    summary, curves = pd.read_csv(out / "summary.csv"), pd.read_csv(out / "curves_cpp.csv")
    assert summary.algo.tolist() == ["cpp", "cvi", "aspi", "espi"]
    assert len(curves) == 2 * 2
    assert load_policy(out / "weights_cvi.npz", 1).preferences.shape == (3, 100)
    for name in (
        "config.yml",
        "trials.csv",
        "tables.md",
        "comparison.png",
        "zeta.png",
        "probability_right.png",
    ):
        assert (out / name).exists()


def test_results_do_not_depend_on_which_algorithms_run(run: Run, tmp_path: Path) -> None:
    assert run("pendulum.py", *SMALL, "--algos", "aspi", "--out", str(tmp_path / "a")) == 0
    assert run("pendulum.py", *SMALL, "--algos", "cvi", "aspi", "--out", str(tmp_path / "b")) == 0
    a, b = ((tmp_path / folder / "curves_aspi.csv").read_bytes() for folder in ("a", "b"))
    assert a == b


def test_joint_features_as_printed_run_too(run: Run, tmp_path: Path) -> None:
    arguments = [
        *SMALL,
        "--algos",
        "cvi",
        "--bins",
        "5",
        "--action-centres",
        "4",
        "--out",
        str(tmp_path / "j"),
    ]
    assert run("pendulum.py", *arguments) == 0


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--algos", "sarsa"], ("algos", "sarsa", "'cvi'")),
        (["--trials", "1"], ("trials", "1", "at least 2")),
        (["--steps", "100"], ("steps", "100", "at least 200")),
        (["--gamma", "1"], ("gamma", "1.0", "[0, 1)")),
        (["--cpp-scheme", "2"], ("scheme", "2", "'1b'")),
        (["--action-centres", "1"], ("action_centres", "1", "0 or at least 2")),
        (["--action-centres", "10001"], ("action_centres", "10001", "[2, 10000]")),
        (["--bins", "200"], ("bins", "40000", "at most 10000")),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Run,
    arguments: list[str],
    names: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("pendulum.py", *arguments, "--out", str(tmp_path / "out")) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert all(name in said for name in names)
    assert not (tmp_path / "out").exists()


def test_an_error_while_learning_is_one_line_and_keeps_what_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(
        settings: PendulumSettings, algo: str, record: Record, part: int
    ) -> Iterator[int]:
        for K in learn(settings, algo, record, part):
            yield K
            if algo == "cvi":
                raise BadObservation("observation must be finite, got nan")

    monkeypatch.setattr(pendulum, "learn", breaks_off)
    settings = PendulumSettings(trials=2, iterations=3, steps=200, algos=("cpp", "cvi"))
    assert run_pendulum(settings, tmp_path / "p", jobs=1) == 1
    said = capsys.readouterr().err
    assert "error: cvi, iteration 2: observation must be finite" in said
    assert "Traceback" not in said
    assert len(pd.read_csv(tmp_path / "p" / "curves_cpp.csv")) == 2 * 3
    assert len(pd.read_csv(tmp_path / "p" / "curves_cvi.csv")) == 2 * 1


def test_algos_must_be_known() -> None:
    with pytest.raises(InvalidArgument, match="algos"):
        PendulumSettings(algos=())


@pytest.mark.slow
def test_learned_weights_hold_the_gymnasium_pendulum_upright() -> None:
    settings = PendulumSettings(trials=20, seed=5)
    record = Record("cpp")
    for _ in learn(settings, "cpp", record):
        pass
    # about 97 % of trials do; fewer than 16 of 20 would be a chance of less than one in a thousand
    assert int(is_upright(drive(settings, record.preferences)).sum()) >= 16
    zeta = record.curves("zeta").mean(axis=0)
    assert zeta[0] < 0.01
    assert zeta[-1] == pytest.approx(1.0, abs=0.01)
    returns = record.curves("returns")
    assert returns[:, -10:].mean() > 0.25 * returns[:, :3].mean()  # both negative
