"""An Optuna study many workers can share: its storage, its sampler, and how the number of trials is kept exact."""

import json
import os
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import (
    BaseStorage,
    JournalStorage,
    RDBStorage,
    RetryHeartbeatStaleTrialCallback,
)
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

from sb3_cpp.checks import InvalidArgument

_MAX_RETRY = 3
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


class Superfluous(Exception):
    """Raised in a trial that another worker's trial made unnecessary."""


class GivenUp(Exception):
    """Somebody else ended the trial in the meantime: this machine slept, or was too busy for a heartbeat."""


class SeededTPE(BaseSampler):
    """TPE whose suggestions for a trial depend on the seed, the trial's number and the history only: the same in a study that
    was interrupted, and different for every worker of a shared one.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._sampler = TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        state = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._sampler = TPESampler(seed=int(state), constant_liar=True)
        self._sampler.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, name: str, distribution: BaseDistribution
    ) -> Any:
        return self._sampler.sample_independent(study, trial, name, distribution)

    def after_trial(
        self, study: optuna.Study, trial: FrozenTrial, state: TrialState, values: Any
    ) -> None:
        self._sampler.after_trial(study, trial, state, values)


def open_storage(url: str | None, folder: Path, heartbeat: int) -> BaseStorage:
    """A database by its URL (with heartbeat and retry of dead trials), or a journal file, by default in ``folder``."""
    if url is None or "://" not in url:
        path = folder / "journal.log" if url is None else Path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path)))
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    engine = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    for attempt in range(10):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                return RDBStorage(
                    url,
                    engine,
                    heartbeat_interval=heartbeat,
                    grace_period=2 * heartbeat,
                    heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(
                        max_retry=_MAX_RETRY
                    ),
                )
        except (
            OperationalError
        ) as error:  # several workers make the tables at once; the others find them a moment later
            if attempt == 9 or "already exists" not in str(error):
                raise InvalidArgument(
                    f"--storage cannot be opened: {' '.join(str(error.orig).split())}"
                ) from None
            time.sleep(0.3 * (attempt + 1))
        except (ArgumentError, NoSuchModuleError, ImportError, ValueError, DatabaseError) as error:
            raise InvalidArgument(
                f"--storage must be a file or a database URL, got {url!r} ({str(error).splitlines()[0]})"
            ) from None
    raise AssertionError("unreachable")


def _check_journal(path: Path) -> None:
    """Optuna would write into a file of something else."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    try:
        with path.open(encoding="utf-8") as file:
            is_journal = "op_code" in json.loads(file.readline())
    except (ValueError, TypeError):
        is_journal = False
    if not is_journal:
        raise InvalidArgument(f"--storage must be a journal of Optuna, got {str(path)!r}")


def open_study(
    name: str,
    storage: BaseStorage,
    seed: int,
    settings: dict[str, Any],
    pruner: optuna.pruners.BasePruner,
) -> optuna.Study:
    """Create the study or go on with it; one made with other settings is refused."""
    directions = ["maximize", "minimize"] if settings["objective"] == "pareto" else ["maximize"]
    study = None
    for attempt in range(10):
        try:
            study = optuna.create_study(
                storage=storage,
                study_name=name,
                sampler=SeededTPE(seed),
                pruner=pruner,
                directions=directions,
                load_if_exists=True,
            )
            break
        except optuna.exceptions.StorageInternalError:  # another worker is creating it
            if attempt == 9:
                raise
            time.sleep(0.3 * (attempt + 1))
    assert study is not None
    there = study.user_attrs.get("settings")
    if there is None:
        study.set_user_attr("settings", settings)
    elif there != settings:
        different = [
            f"{key}: {there.get(key)} there, {value} here"
            for key, value in settings.items()
            if there.get(key) != value
        ]
        raise InvalidArgument(
            f"study {name!r} has other settings ({'; '.join(different)}); choose another --study"
        )
    return study


def run_trials(
    study: optuna.Study,
    objective: Callable[[optuna.Trial], Any],
    total: int,
    report: Callable[[str], None],
) -> None:
    """Take part until the study has ``total`` ended trials (complete or pruned), no more: many workers may do this at once."""

    def guarded(trial: optuna.Trial) -> Any:
        trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        if len([t for t in before if t.state in (*_ENDED, TrialState.RUNNING)]) >= total:
            trial.set_user_attr("superfluous", True)
            raise Superfluous
        result = objective(trial)
        if study._storage.get_trial(trial._trial_id).state != TrialState.RUNNING:
            raise GivenUp  # Optuna would stumble over the result
        return result

    told = False
    while True:
        retry_dead_trials(study)
        trials = study.get_trials(deepcopy=False)
        running = [t for t in trials if t.state == TrialState.RUNNING]
        ended = len([t for t in trials if t.state in _ENDED])
        if ended >= total:
            return
        if ended + len(running) < total:
            told = False
            try:
                study.optimize(guarded, n_trials=1, catch=(Superfluous,))
            except ValueError as error:
                if not str(error).startswith("Cannot tell a FAIL trial"):
                    raise
                report(
                    "a trial of this worker was taken for dead (no sign of life for too long); it is tried again"
                )
            continue
        if not _can_be_judged(study) and any(_host(t) != socket.gethostname() for t in running):
            report(
                "the last trials are running on other machines; should one of them die, run the same command again"
            )
            return
        if not told:
            report(f"waiting for the last {len(running)} running trials of other workers")
            told = True
        time.sleep(1.0)


def _can_be_judged(study: optuna.Study) -> bool:
    """Whether the storage itself knows which trials are alive."""
    return isinstance(study._storage, RDBStorage) or not isinstance(study._storage, JournalStorage)


def _host(trial: FrozenTrial) -> str:
    return trial.user_attrs.get("worker", ":").rpartition(":")[0]


def retry_dead_trials(study: optuna.Study) -> None:
    """Queue again the trials of workers that died: by the database's heartbeat, or on this machine by their process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
        if _can_be_judged(study):
            return
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            host, _, process = trial.user_attrs.get("worker", ":").rpartition(":")
            if host == socket.gethostname() and process.isdigit() and not _alive(int(process)):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRY)(
                    study, study.trials[trial.number]
                )


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
