"""Optuna studies: search spaces, storages, a sampler, and workers that share a study."""

import json
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError

from sb3_cpp.checks import InvalidArgument, check_number, suggestion
from sb3_cpp.training.algorithms import get_algorithm, hyperparameter_defaults
from sb3_cpp.training.suites import Suite

JOURNAL = "journal.log"
_MAX_RETRY = 3
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Dimension:
    """One hyperparameter to search: a range, or choices."""

    name: str
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As it stands in a suite, in plain values."""
        if self.choices:
            return {"choices": list(self.choices)}
        return {"low": self.low, "high": self.high, "log": self.log}

    def suggest(self, trial: optuna.Trial) -> Any:
        if self.choices:
            # Optuna stores only plain values; lists (net_arch) are stored as text
            plain = [
                json.dumps(choice) if isinstance(choice, (list, dict)) else choice
                for choice in self.choices
            ]
            return trial.suggest_categorical(self.name, plain)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.name, self.low, self.high, log=self.log)
        assert self.low is not None
        assert self.high is not None
        return trial.suggest_float(self.name, float(self.low), float(self.high), log=self.log)


def search_space(suite: Suite, algo: str) -> list[Dimension]:
    """A suite's search space for an algorithm: the algorithm's keys, and the ``shared`` keys that
    its class has. ``{low, high, log}`` is a range, of whole numbers if both ends are; ``{choices}``
    is a list."""
    name = (suite.algos.get(algo) or {}).get("algorithm", algo)
    known = hyperparameter_defaults(get_algorithm(name))
    own = suite.search.get(algo) or suite.search.get(name) or {}
    if not own:
        raise InvalidArgument(
            f"suite {suite.name} has no search space for {algo!r}; "
            f"it has {', '.join(suite.search) or 'none'}"
        )
    for key in own:
        if key.split(".")[0] not in known:
            raise InvalidArgument(
                f"suite {suite.name}, search, {algo}: no hyperparameter {key!r}"
                f"{suggestion(key, known)}"
            )
    shared = suite.search.get("shared") or {}
    return [
        _dimension(key, entry, f"suite {suite.name}, search, {key}")
        for key, entry in {**shared, **own}.items()
        if key.split(".")[0] in known
    ]


def _dimension(name: str, entry: Any, place: str) -> Dimension:
    if not isinstance(entry, Mapping) or not (
        set(entry) == {"choices"} or {"low", "high"} <= set(entry) <= {"low", "high", "log"}
    ):
        raise InvalidArgument(f"{place} must be {{low, high, log}} or {{choices}}, got {entry!r}")
    if "choices" in entry:
        if not isinstance(entry["choices"], list) or not entry["choices"]:
            raise InvalidArgument(f"{place}: choices must be a list, got {entry['choices']!r}")
        return Dimension(name, choices=tuple(entry["choices"]))
    low, high, log = entry["low"], entry["high"], bool(entry.get("log", False))
    check_number(f"{place}: low", low, 0.0 if log else -float("inf"), low_open=log)
    check_number(f"{place}: high", high, low)
    return Dimension(name, low, high, log)


def is_fixed(name: str, overrides: Mapping[str, Any]) -> bool:
    """Whether ``-params`` sets the hyperparameter ``a.b``, or all of ``a``."""
    inside: Any = overrides
    for part in name.split("."):
        if not isinstance(inside, Mapping):
            return True
        if part not in inside:
            return False
        inside = inside[part]
    return True


def sample(dimensions: list[Dimension], trial: optuna.Trial) -> dict[str, Any]:
    """A trial's hyperparameters."""
    return hyperparameters({dimension.name: dimension.suggest(trial) for dimension in dimensions})


def hyperparameters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Optuna's parameters as hyperparameters: text as lists, ``a.b: 1`` as ``a: {b: 1}``."""
    tree: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, str) and value[:1] in ("[", "{"):
            value = json.loads(value)
        *path, last = name.split(".")
        branch = tree
        for part in path:
            branch = branch.setdefault(part, {})
        branch[last] = value
    return tree


class SeededTPE(BaseSampler):
    """TPE whose suggestions for a trial depend on the seed, the trial's number and the history
    only: the same in a study that was interrupted, and different for every worker of a shared one.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._sampler = TPESampler(seed=seed)

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        state = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # A constant liar takes running trials for bad ones: workers spread out
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
    """Open a database (with heartbeat and retry of dead trials), or a journal file.

    :param url: a database URL or a file; None for ``journal.log`` in ``folder``
    :param folder: the study's folder
    :param heartbeat: seconds between heartbeats
    """
    if url is None or "://" not in url:
        path = folder / JOURNAL if url is None else Path(url)
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_journal(path)
        return JournalStorage(JournalFileBackend(str(path)))
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    # Seconds to wait while another worker writes
    engine = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}

    def connect() -> BaseStorage:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            retry = RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRY)
            return RDBStorage(
                url,
                engine,
                heartbeat_interval=heartbeat,
                grace_period=2 * heartbeat,
                heartbeat_stale_trial_callback=retry,
            )

    try:
        # Workers that start together all create the tables; the slower ones find them later
        return _retry(connect, lambda error: "already exists" in str(error), OperationalError)
    except OperationalError as error:
        reason = " ".join(str(error.orig).split())
        raise InvalidArgument(f"--storage cannot be opened: {reason}") from None
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError, DatabaseError) as error:
        raise InvalidArgument(
            f"--storage must be a file or a database URL, got {url!r} "
            f"({str(error).splitlines()[0]})"
        ) from None


def storage_address(url: str | None, folder: Path) -> str:
    """The storage as optuna-dashboard takes it, without the password."""
    if url is None or "://" not in url:
        return str(folder / JOURNAL if url is None else url)
    return make_url(url).render_as_string(hide_password=True)


def _retry(
    action: Callable[[], Any],
    is_temporary: Callable[[Exception], bool],
    kind: type[Exception],
    attempts: int = 10,
) -> Any:
    """Call a function again while it raises a temporary error."""
    for attempt in range(1, attempts + 1):
        try:
            return action()
        except kind as error:
            if attempt == attempts or not is_temporary(error):
                raise
            time.sleep(0.3 * attempt)


def _check_journal(path: Path) -> None:
    """Refuse a file that is no journal; Optuna would append to it."""
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
    """Create or load a study; one with other settings is refused.

    :param name: its name in the storage
    :param storage: from :func:`open_storage`
    :param seed: seed of the sampler
    :param settings: what all trials share, plain values with the key ``objective``
    :param pruner: Optuna's
    """
    directions = ["maximize", "minimize"] if settings["objective"] == "pareto" else ["maximize"]

    def create() -> optuna.Study:
        return optuna.create_study(
            storage=storage,
            study_name=name,
            sampler=SeededTPE(seed),
            pruner=pruner,
            directions=directions,
            load_if_exists=True,
        )

    # Temporary: another worker is creating it
    study = _retry(create, lambda _: True, optuna.exceptions.StorageInternalError)
    stored = study.user_attrs.get("settings")
    if stored is None:
        study.set_user_attr("settings", settings)
    elif different := [
        f"{key}: {stored[key]} there, {value} here"
        for key, value in settings.items()
        if stored.get(key, value) != value  # an earlier version did not store some
    ]:
        raise InvalidArgument(
            f"study {name!r} has other settings ({'; '.join(different)}); choose another --study"
        )
    return study


class Superfluous(Exception):
    """Raised in a trial that is not needed: another worker's trial was the last."""


class TakenForDead(Exception):
    """Raised in a trial that another worker ended: this machine slept, or missed its heartbeats."""


def run_trials(
    study: optuna.Study,
    objective: Callable[[optuna.Trial], Any],
    total: int,
    report: Callable[[str], None],
) -> None:
    """Run trials until the study has exactly ``total`` ended ones (complete or pruned), together
    with any number of other workers.

    :param study: from :func:`open_study`
    :param objective: as in Optuna
    :param total: trials of the whole study
    :param report: takes messages for the user
    """

    def guarded(trial: optuna.Trial) -> Any:
        trial.set_user_attr("worker", f"{socket.gethostname()}:{os.getpid()}")
        # Numbers are unique, so that workers agree without a lock on which trials are too many
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        if sum(t.state in (*_ENDED, TrialState.RUNNING) for t in before) >= total:
            trial.set_user_attr("superfluous", True)
            raise Superfluous
        result = objective(trial)
        if study._storage.get_trial(trial._trial_id).state != TrialState.RUNNING:
            raise TakenForDead  # Optuna would fail to store the result
        return result

    reported = False
    while True:
        retry_dead_trials(study)
        trials = study.get_trials(deepcopy=False)
        running = [t for t in trials if t.state == TrialState.RUNNING]
        ended = sum(t.state in _ENDED for t in trials)
        if ended >= total:
            return
        if ended + len(running) < total:
            reported = False
            try:
                # One at a time: others may have ended the study meanwhile
                study.optimize(guarded, n_trials=1, catch=(Superfluous,))
            except ValueError as error:
                if not str(error).startswith("Cannot tell a FAIL trial"):
                    raise
                report(
                    "a trial of this worker was taken for dead (no sign of life for too long); "
                    "it is tried again"
                )
            continue
        if not _has_heartbeat(study) and any(_host(t) != socket.gethostname() for t in running):
            report(
                "the last trials are running on other machines; should one of them die, "
                "run the same command again"
            )
            return
        if not reported:
            report(f"waiting for the last {len(running)} running trials of other workers")
            reported = True
        time.sleep(1.0)


def _has_heartbeat(study: optuna.Study) -> bool:
    """Whether the storage itself knows which trials are alive."""
    return not isinstance(study._storage, JournalStorage)


def _host(trial: FrozenTrial) -> str:
    return trial.user_attrs.get("worker", ":").rpartition(":")[0]


def retry_dead_trials(study: optuna.Study) -> None:
    """Enqueue the trials of dead workers again; a journal has no heartbeat, so there only workers
    of this machine are known to be dead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.storages.fail_stale_trials(study)
        if _has_heartbeat(study):
            return
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            process = trial.user_attrs.get("worker", "").rpartition(":")[2]
            here = _host(trial) == socket.gethostname()
            if here and process.isdigit() and not _is_alive(int(process)):
                study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
                retry = RetryHeartbeatStaleTrialCallback(max_retry=_MAX_RETRY)
                retry(study, study.trials[trial.number])


def _is_alive(process: int) -> bool:
    if sys.platform == "win32":  # where signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True
