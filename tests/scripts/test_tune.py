"""scripts/tune.py: many workers on one study."""

import signal
import time
from collections.abc import Callable

import pytest

from tests.scripts.processes import SMALL, Script

optuna = pytest.importorskip("optuna", reason="needs the extra tune")


@pytest.mark.slow
def test_a_killed_worker_costs_only_time_and_the_study_goes_on(
    script: Script, call: Callable[..., tuple[int, str, str]]
) -> None:
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
        "eval_episodes:1",
    ]
    workers = [script.start("tune", *arguments, "--trials", "6") for _ in range(2)]
    running = wait_for_trial(url)
    process = int(running.user_attrs["worker"].rpartition(":")[2])
    victim = next(worker for worker in workers if worker.pid == process)
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
    assert retried == [running.number]

    code, _, err = call("tune", *arguments, "--trials", "7")
    assert code == 0, err
    study = optuna.load_study(study_name="mdqn_CartPole-v1", storage=url)
    assert len([trial for trial in study.trials if trial.state.name == "COMPLETE"]) == 7


def wait_for_trial(url: str) -> "optuna.trial.FrozenTrial":
    """The first trial that has its parameters and its worker."""
    study, end = None, time.monotonic() + 90
    while time.monotonic() < end:
        time.sleep(0.1 if study is None else 0.02)
        try:
            study = study or optuna.load_study(study_name="mdqn_CartPole-v1", storage=url)
        except Exception:  # the database is not there yet, or being made
            continue
        for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
            if "worker" in trial.user_attrs and "alpha" in trial.params:
                return trial
    raise AssertionError("no worker got a trial in time")
