"""The search: spaces from YAML, seeded suggestions, number of trials, retries of dead trials."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from sb3_cpp.analysis.tables import as_markdown
from tests.training.small_runs import FLAGS, PARAMS

optuna = pytest.importorskip("optuna", reason="needs the extra tune")

from optuna.trial import TrialState  # noqa: E402

from sb3_cpp.checks import InvalidArgument  # noqa: E402
from sb3_cpp.training import tune as tune_module  # noqa: E402
from sb3_cpp.training import tuning_report  # noqa: E402
from sb3_cpp.training.run import Outcome, RunFailed  # noqa: E402
from sb3_cpp.training.study import (  # noqa: E402
    hyperparameters,
    is_fixed,
    open_storage,
    open_study,
    run_trials,
    sample,
    search_space,
    storage_address,
)
from sb3_cpp.training.suites import Suite, load_suite, suite_of  # noqa: E402
from sb3_cpp.training.tune import score, tune  # noqa: E402

SETTINGS: dict[str, Any] = {"objective": "return"}


def make_study(folder: Path, seed: int = 0, name: str = "s", url: str | None = None) -> Any:
    return open_study(
        name, open_storage(url, folder, 1), seed, SETTINGS, optuna.pruners.NopPruner()
    )


def quadratic(trial: Any) -> float:
    x = trial.suggest_float("x", -1.0, 1.0)
    kind = trial.suggest_categorical("kind", ["a", "b"])
    trial.set_user_attr("return", -(x**2))
    return -(x**2) + (kind == "a")


def test_a_search_space_has_the_shared_keys_and_its_own() -> None:
    names = {dimension.name for dimension in search_space(load_suite("classic"), "cpp")}
    assert {"learning_rate", "temperature", "alpha", "zeta", "rho1", "rho2"} <= names
    assert "kappa" not in names


def test_an_environment_of_no_suite_and_a_variant_have_their_algorithms_space() -> None:
    own = search_space(suite_of("SomethingElse-v0"), "cpp")
    assert own == search_space(load_suite("classic"), "cpp")
    assert search_space(load_suite("study"), "cpp_warm") == own
    assert {d.name for d in search_space(load_suite("atari"), "mdqn")} == {
        "temperature",
        "alpha",
        "munchausen_clip",
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"low": 1.0}, "must be {low, high, log} or {choices}"),
        ({"low": 2.0, "high": 1.0}, "must be a number in [2, inf)"),
        ({"low": 0.0, "high": 1.0, "log": True}, "must be a number in (0, inf)"),
        ({"choices": []}, "choices must be a list"),
    ],
)
def test_a_bad_search_space_is_named(entry: dict[str, Any], message: str) -> None:
    suite = Suite("mine", {}, {}, {}, {"cpp": {"temperature": entry}})
    with pytest.raises(InvalidArgument) as error:
        search_space(suite, "cpp")
    assert message in str(error.value)
    with pytest.raises(InvalidArgument, match="did you mean 'temperature'"):
        search_space(Suite("mine", {}, {}, {}, {"cpp": {"temprature": {"choices": [1]}}}), "cpp")
    with pytest.raises(InvalidArgument, match="no search space for 'mdqn'"):
        search_space(suite, "mdqn")


def test_what_the_command_line_fixes_is_not_searched() -> None:
    overrides = {"alpha": 0.5, "policy_kwargs": {"net_arch": [8]}, "replay_buffer_kwargs": None}
    names = (
        "alpha",
        "temperature",
        "policy_kwargs.net_arch",
        "policy_kwargs.activation_fn",
        "replay_buffer_kwargs.n_steps",
    )
    assert [is_fixed(name, overrides) for name in names] == [True, False, True, False, True]


def test_samples_keep_their_kind_and_reach_inside() -> None:
    spec = {
        "batch_size": {"low": 8, "high": 64, "log": True},
        "policy_kwargs.net_arch": {"choices": [[8], [16, 16]]},
    }
    dimensions = search_space(Suite("mine", {}, {}, {}, {"cpp": spec}), "cpp")
    trial = optuna.create_study().ask()
    values = sample(dimensions, trial)
    assert isinstance(values["batch_size"], int)
    assert values["policy_kwargs"]["net_arch"] in ([8], [16, 16])
    assert hyperparameters(trial.params) == values


def test_same_seed_same_suggestions_also_after_an_interruption(tmp_path: Path) -> None:
    straight = make_study(tmp_path / "a")
    run_trials(straight, quadratic, 14, print)
    for total in (5, 14):  # the second time a new process would open it
        halved = make_study(tmp_path / "b")
        run_trials(halved, quadratic, total, print)
    other = make_study(tmp_path / "c", seed=1)
    run_trials(other, quadratic, 14, print)
    params = [[trial.params for trial in study.trials] for study in (straight, halved, other)]
    assert params[0] == params[1]
    assert params[0] != params[2]
    assert len({str(p) for p in params[0]}) == 14


def test_a_study_with_other_settings_is_refused(tmp_path: Path) -> None:
    make_study(tmp_path)
    with pytest.raises(InvalidArgument, match="objective: return there, pareto here"):
        open_study(
            "s",
            open_storage(None, tmp_path, 1),
            0,
            {"objective": "pareto"},
            optuna.pruners.NopPruner(),
        )


@pytest.mark.parametrize(
    "url", ["nosuch://x", "sqlite:////proc/nowhere/x.db", "postgresql://127.0.0.1:1/x"]
)
def test_a_bad_storage_is_named_in_one_line(tmp_path: Path, url: str) -> None:
    with pytest.raises((InvalidArgument, OSError)) as error:
        open_storage(url, tmp_path, 1)
    assert "\n" not in str(error.value)


def test_a_trial_of_a_dead_process_is_tried_again_without_a_database(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    dead = study.ask()
    dead.suggest_float("x", -1.0, 1.0)
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    dead.set_user_attr("worker", f"{os.uname().nodename}:{process.pid}")
    run_trials(study, quadratic, 3, print)
    states = [trial.state for trial in study.trials]
    assert states == [TrialState.FAIL, *[TrialState.COMPLETE] * 3]
    assert study.trials[1].params["x"] == dead.params["x"]
    assert study.trials[1].system_attrs["failed_trial"] == 0


@pytest.mark.parametrize("notices", ["at its end", "on the way"])
def test_a_worker_that_was_taken_for_dead_goes_on(notices: str) -> None:
    study = optuna.create_study()
    said: list[str] = []

    def objective(trial: optuna.Trial) -> float:
        if trial.number == 0:  # as another worker does when there was no heartbeat
            study.tell(0, state=TrialState.FAIL)
            if notices == "on the way":
                trial.report(1.0, 0)
        return 1.0

    run_trials(study, objective, 2, said.append)
    assert [trial.state.name for trial in study.trials] == ["FAIL", "COMPLETE", "COMPLETE"]
    assert len(said) == 1
    assert "was taken for dead" in said[0]


def test_an_error_of_the_objective_is_not_hidden() -> None:
    def objective(trial: optuna.Trial) -> float:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        run_trials(optuna.create_study(), objective, 2, print)


def test_an_interrupted_trial_goes_on_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def train(config: Any, folder: Path, on_evaluation: Any, **kwargs: Any) -> Outcome:
        folders.append(folder)
        if len(folders) == 1:
            return Outcome("interrupted", folder, 50)
        on_evaluation([1.0])
        write_evaluations(folder, [[1.0]])
        return Outcome("finished", folder, 100)

    monkeypatch.setattr(tune_module, "train_run", train)
    suite = load_suite("classic")
    search = tune_module.Search(suite, "cpp", "CartPole-v1", 100, (0,), {}, tmp_path)
    objective = lambda trial: search.objective(trial, search_space(suite, "cpp"), pareto=False)  # noqa: E731
    study = make_study(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_trials(study, objective, 2, print)
    run_trials(study, objective, 2, print)
    assert [folder.parent.name for folder in folders] == ["trial_0", "trial_0", "trial_2"]


def write_evaluations(folder: Path, results: list[list[float]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    steps = np.arange(1, len(results) + 1)
    lengths = np.ones_like(results)
    np.savez(folder / "evaluations.npz", timesteps=steps, results=results, ep_lengths=lengths)


def small_search(folder: Path) -> Any:
    overrides = dict(PARAMS, eval_episodes=1)
    return tune_module.Search(
        load_suite("classic"), "cpp", "CartPole-v1", 200, (0,), overrides, folder
    )


def test_a_run_that_was_finished_before_has_its_score(tmp_path: Path) -> None:
    """Killed between the end of its training and the removal of its model."""
    search = small_search(tmp_path)
    trained = search.run({}, 0, tmp_path / "seed_0")
    (tmp_path / "seed_0" / "model.zip").write_bytes(b"")
    assert search.run({}, 0, tmp_path / "seed_0") == trained
    assert np.isfinite(trained.value)


def test_a_trial_that_fails_with_a_fresh_seed_is_not_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = make_study(tmp_path)
    for value in (1.0, 2.0):
        trial = study.ask({"alpha": optuna.distributions.FloatDistribution(0.0, 1.0)})
        trial.set_user_attr("return", value)
        trial.set_user_attr("oscillation", 0.0)
        study.tell(trial, value)

    def run(search: Any, values: dict[str, Any], seed: int, folder: Path) -> Any:
        if "trial_1" in str(folder):
            raise RunFailed("diverged")
        return score([3.0])

    monkeypatch.setattr(tune_module.Search, "run", run)
    tune_module._reevaluate_best(study, small_search(tmp_path), top=2, seeds=2)
    assert "trial 1 with 2 fresh seeds: 2 failed" in capsys.readouterr().out
    best = (tmp_path / "best.yml").read_text()
    assert best.startswith("# study s, trial 0 of 2, found with return 1.0")
    assert "2 fresh seeds: return 3.0 ± 0.0" in best


def test_a_study_is_not_continued_with_another_search_space(tmp_path: Path) -> None:
    def search(choices: list[int]) -> int:
        path = tmp_path / "mine.yml"
        spec = {"algos": {"cpp": {}}, "envs": {"CartPole-v1": {}}}
        spec["search"] = {"cpp": {"alpha": {"choices": choices}}}
        path.write_text(yaml.safe_dump(spec))
        sizes = {"trials": 1, "n_timesteps": 200, "suite": str(path), "top": 0}
        params = [*FLAGS, "eval_episodes:1"]
        return tune("cpp", "CartPole-v1", **sizes, params=params, root=str(tmp_path))

    assert search([0.1, 0.2]) == 0
    with pytest.raises(InvalidArgument, match=r"other settings .*space: .*0\.3"):
        search([0.1, 0.2, 0.3])


def test_the_score_is_the_end_of_the_curve_and_its_falls() -> None:
    result = score([0.0, 4.0, 1.0, 5.0, 5.0, 3.0, 6.0, 8.0])
    assert result.value == 7.0  # the last quarter: 6 and 8
    assert result.oscillation == pytest.approx(np.sqrt(3.0**2 + 2.0**2))


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (None, "runs/tune/s/journal.log"),
        ("/shared/journal.log", "/shared/journal.log"),
        ("sqlite:///runs/s.db", "sqlite:///runs/s.db"),
        ("postgresql://user:secret@host/db", "postgresql://user:***@host/db"),
    ],
)
def test_the_dashboard_gets_the_address_of_the_storage(url: str | None, address: str) -> None:
    assert storage_address(url, Path("runs/tune/s")) == address


@pytest.mark.parametrize(("starts", "noted"), [(50, True), (40, False)])
def test_runs_that_hardly_learn_are_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], starts: int, noted: bool
) -> None:
    params = [*FLAGS[1:], f"learning_starts:{starts}", "eval_episodes:1"]
    tune("cpp", "CartPole-v1", trials=1, n_timesteps=200, top=0, params=params, root=str(tmp_path))
    assert (f"learn from step {starts}" in capsys.readouterr().out) is noted


@pytest.mark.slow
@pytest.mark.parametrize(("objective", "seeds"), [("return", 2), ("pareto", 1)])
def test_a_search_ends_with_a_block_to_paste_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objective: str, seeds: int
) -> None:
    def search(trials: int) -> str:
        code = tune(
            "cpp",
            "CartPole-v1",
            trials=trials,
            n_timesteps=200,
            seeds_per_trial=seeds,
            objective=objective,
            top=1,
            top_seeds=1,
            params=[*FLAGS[:3], "eval_episodes:1"],
            root=str(tmp_path),
        )
        assert code == 0
        return capsys.readouterr().out

    assert f"optuna-dashboard {tmp_path}/tune/" in search(8)
    out = search(9)
    assert (
        next(line.split(":")[0] for line in out.splitlines() if line.startswith("trial "))
        == "trial 8"
    )
    folder = tmp_path / "tune" / "cpp_CartPole-v1"
    assert {"best.yml", "trials.csv", "history.png", "importance.png", "pareto.png"} <= {
        p.name for p in folder.iterdir()
    }
    settings = yaml.safe_load((folder / "config.yml").read_text())
    assert settings["config"]["n_timesteps"] == 200
    assert "command" in settings["provenance"]
    trials, fresh = (pd.read_csv(folder / name) for name in ("trials.csv", "fresh.csv"))
    assert len(trials) == 9
    assert fresh.seed.tolist() == [10_000] * len(fresh)
    shown = as_markdown(tuning_report.tables(trials, fresh))
    assert (folder / "tables.md").read_text() == shown
    block = yaml.safe_load((folder / "best.yml").read_text())["envs"]["CartPole-v1"]["algos"]["cpp"]
    load_suite("classic").run_config("cpp", "CartPole-v1", 0, block)
    assert {
        "learning_starts": 50,
        "train_freq": 8,
        "gradient_steps": 1,
    }.items() <= block.items()  # fixed by -params
    assert all(isinstance(value, (int, float, str)) for value in block.values())
