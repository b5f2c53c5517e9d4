"""Our algorithms inside the real rl_zoo3: train, enjoy, optimise."""

import importlib
import sys
from pathlib import Path

import pytest

from sb3_cpp import ALGORITHMS

pytest.importorskip("rl_zoo3", reason="needs the extra zoo")
pytest.importorskip("requests", reason="rl_zoo3's enjoy needs it")

from sb3_cpp import zoo

CONFIG = str(Path(__file__).parents[1] / "configs" / "zoo.yml")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", *arguments])
    zoo.main()


@pytest.mark.slow
@pytest.mark.parametrize("algo", list(ALGORITHMS))
def test_the_zoo_trains_enjoys_and_optimises(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "Pendulum-v1" if algo == "csac" else "CartPole-v1"
    # SAC's networks in the zoo are large, and it learns at every step
    length, trial_length = ("300", "120") if algo == "csac" else ("2000", "500")
    common = ["--algo", algo, "--env", env, "-f", str(tmp_path)]
    command(
        monkeypatch,
        "train",
        *common,
        "-conf",
        CONFIG,
        "-n",
        length,
        "--seed",
        "1",
        "--eval-freq",
        "-1",
        "--verbose",
        "0",
    )
    assert (tmp_path / algo / f"{env}_1" / f"{env}.zip").is_file()
    capsys.readouterr()

    command(monkeypatch, "enjoy", *common, "-n", "200", "--no-render")
    assert "Mean reward:" in capsys.readouterr().out

    storage = f"sqlite:///{tmp_path}/zoo.db"
    search = [
        "-optimize",
        "--n-trials",
        "3",
        "--n-evaluations",
        "1",
        "--eval-episodes",
        "2",
        "--no-optim-plots",
    ]
    study = [
        "--storage",
        storage,
        "--study-name",
        "s",
        "-n",
        trial_length,
        "--seed",
        "1",
        "--verbose",
        "0",
    ]
    command(monkeypatch, "train", *common, "-conf", CONFIG, *search, *study)
    optuna = importlib.import_module("optuna")
    trials = optuna.load_study(study_name="s", storage=storage).trials
    assert [trial.state.name for trial in trials if trial.state.is_finished()] == [
        trial.state.name for trial in trials
    ]
    assert len(trials) == 3

    # The converter: train with the values of a trial (the zoo takes trial 0 for "none given")
    chosen = [
        "--storage",
        storage,
        "--study-name",
        "s",
        "--trial-id",
        "1",
        "-n",
        trial_length,
        "--eval-freq",
        "-1",
        "--verbose",
        "0",
    ]
    command(monkeypatch, "train", *common, "-conf", CONFIG, *chosen)


def test_registering_twice_is_harmless() -> None:
    zoo.register()
    zoo.register()
    rl_zoo3 = importlib.import_module("rl_zoo3")
    assert all(rl_zoo3.ALGOS[name] is algorithm for name, algorithm in ALGORITHMS.items())


def test_an_unknown_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        command(monkeypatch, "trian")
    assert end.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1
