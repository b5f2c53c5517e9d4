"""scripts/tune.py: many workers on one study."""

import signal
import time

import pytest

from tests.scripts.processes import SMALL, Script

optuna = pytest.importorskip("optuna", reason="needs the extra tune")


@pytest.mark.slow
def test_a_killed_worker_costs_only_time_and_the_study_goes_on(script: Script) -> None:
    url = f"sqlite:///{script.folder}/study.db"
    arguments = [
        "--algo",
        "mdqn",
        "-n",
        "600",
        "--storage",
        url,
        "--pruner",
        "none",
        "--heartbeat",
        "1",
        "--top",
        "0",
        *SMALL,
    ]
    workers = [script.start("tune", *arguments, "--trials", "6") for _ in range(3)]
    victim = workers[1]
    end = time.monotonic() + 90
    while not (running := _trials_of(url, victim.pid)) and time.monotonic() < end:
        time.sleep(0.1)
    assert running, "the second worker got no trial in time"
    victim.send_signal(signal.SIGKILL)
    for worker in workers:
        _, err = worker.communicate(timeout=240)
        assert worker is victim or worker.returncode == 0, err

    study = optuna.load_study(study_name="mdqn_CartPole-v1", storage=url)
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    assert len(complete) == 6
    assert [trial.number for trial in study.trials] == list(range(len(study.trials)))
    retried = [
        trial.system_attrs["failed_trial"]
        for trial in complete
        if "failed_trial" in trial.system_attrs
    ]
    assert retried == [running[0].number]

    again = script.run("tune", *arguments, "--trials", "7")
    assert again.returncode == 0, again.stderr
    study = optuna.load_study(study_name="mdqn_CartPole-v1", storage=url)
    assert len([trial for trial in study.trials if trial.state.name == "COMPLETE"]) == 7


def _trials_of(url: str, process: int) -> list["optuna.trial.FrozenTrial"]:
    """Running trials of a worker, with all their parameters."""
    try:
        study = optuna.load_study(study_name="mdqn_CartPole-v1", storage=url)
        trials = study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
    except Exception:  # the database is not there yet, or being made
        return []
    return [
        t
        for t in trials
        if t.user_attrs.get("worker", "").endswith(f":{process}") and "alpha" in t.params
    ]
