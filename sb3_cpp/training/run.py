"""Train one run into its folder; an interrupted run resumes from its checkpoint."""

import contextlib
import os
import shutil
import sys
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import filelock
import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv

from sb3_cpp.callbacks import IteratedAlgorithm, IterationCallback
from sb3_cpp.checkpointing import (
    CheckpointCallback,
    DamagedCheckpoint,
    Interruption,
    TrainingInterrupted,
    store,
)
from sb3_cpp.checkpointing.state import start_anew
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.deep import CautiousSAC, RegularizedDQN
from sb3_cpp.files import is_part, naming_path
from sb3_cpp.run_folder import (
    BAD_BATCH,
    CHECKPOINT,
    CONFIG,
    FAILURE,
    HISTORY,
    ITERATIONS,
    LOCK,
    MODEL,
    MONITOR,
    OUTPUT,
    PROGRESS,
    is_finished,
    read_config,
    read_record,
    settings_differences,
    write_config,
    write_status,
)
from sb3_cpp.threads import flush_denormals, torch_threads
from sb3_cpp.training import logs
from sb3_cpp.training.algorithms import (
    check_values,
    get_algorithm,
    hyperparameter_defaults,
    resolve_classes,
)
from sb3_cpp.training.environments import (
    has_time_limit,
    is_atari,
    load_normalization,
    make_environment,
)
from sb3_cpp.training.suites import DEFAULTS, RunConfig


class StopRun(Exception):
    """Raise it in ``on_evaluation`` to abort a run (pruning)."""


class RunFailed(RuntimeError):
    """Training raised an error; the run's folder holds the traceback."""


class RunLocked(InvalidArgument):
    """Another process trains this run."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "finished", "interrupted" or "kept" (it was finished before)."""

    state: str
    folder: Path
    timesteps: int
    final_returns: tuple[float, ...] = ()
    exit_code: int = 0


# The folder of a run


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; the lock ends with the process, even if it is killed."""
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise RunLocked(f"{folder} is being trained by another process") from None
    try:
        yield
    finally:
        lock.release()


def check_folder(folder: Path, config: RunConfig, ignore: Sequence[str] = ()) -> None:
    """Refuse a folder that holds something else than this run, naming what differs."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    if not existing.is_dir():
        raise InvalidArgument(f"-f must be a folder, got the file {str(existing)!r}")
    names = [path for path in folder.iterdir() if not is_part(path)] if folder.exists() else []
    if not any(path.name not in (LOCK, OUTPUT) for path in names):
        return
    try:
        record = read_record(folder)
    except InvalidArgument as error:
        raise InvalidArgument(
            f"{folder} holds files but no readable {CONFIG}; remove it or choose another -f "
            f"({error})"
        ) from None
    # An earlier version did not have some settings: they were as their defaults are
    stored = {**record, "config": {**DEFAULTS, **record["config"]}}
    differences = settings_differences(stored, settings_of(config), ignore)
    if differences:
        raise InvalidArgument(
            f"{folder} holds a run with another config ({'; '.join(differences[:3])}); "
            "remove it or choose another -f"
        )


def settings_of(config: RunConfig) -> dict[str, Any]:
    """What config.yml holds of a run, without its provenance."""
    return {"config": config.plain(), "class_defaults": class_defaults(config)}


def class_defaults(config: RunConfig) -> dict[str, Any]:
    """Defaults of the class for what the config does not set, as far as they are plain values."""
    defaults = hyperparameter_defaults(get_algorithm(config.algorithm))
    return {
        name: value
        for name, value in defaults.items()
        if name not in config.hyperparameters
        and isinstance(value, (int, float, str, bool, type(None)))
    }


def find_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint of a run."""
    return store.newest(folder / CHECKPOINT)


def locate_checkpoint(path: str | Path) -> Path:
    """What -i may name: a run's folder, its checkpoint, or a saved model."""
    path = Path(path)
    if path.is_file() and path.suffix == ".zip":
        return path
    for folder in (path, path / CHECKPOINT):
        if (folder / store.MANIFEST).is_file() or store.newest(folder) is not None:
            return store.locate(folder)
    raise InvalidArgument(
        f"no checkpoint at {path} (a run's folder, its {CHECKPOINT}/ or a model.zip)"
    )


def read_counters(checkpoint: Path) -> dict[str, Any]:
    """Steps, seconds and lines of the logs at a checkpoint."""
    content = store.read_manifest(checkpoint)
    return {"timesteps": content["timesteps"], **content["counters"]}


def _is_inside(path: Path | None, folder: Path) -> bool:
    return path is not None and folder.resolve() in path.resolve().parents


# Environments and models


def make_run_environment(config: RunConfig, training: bool = True, **kwargs: Any) -> VecEnv:
    """The environments that a run trains on, or those it is evaluated on."""
    n_envs, seed = (config.n_envs, config.seed) if training else (config.eval_envs, None)
    normalize = config.normalize
    if normalize:  # as rl_zoo3: returns are discounted as the algorithm discounts them
        gamma = config.hyperparameters.get("gamma", 0.99)
        normalize = {"gamma": gamma, **(normalize if isinstance(normalize, dict) else {})}
    return make_environment(
        config.env,
        n_envs,
        seed,
        config.max_episode_steps,
        training,
        gym_packages=config.gym_packages,
        env_wrapper=config.env_wrapper,
        normalize=normalize,
        frame_stack=config.frame_stack,
        vec_env=config.vec_env if training else "dummy",
        **{**config.env_kwargs, **kwargs},
    )


def make_model(config: RunConfig, env: VecEnv) -> BaseAlgorithm:
    """The untrained model of a run."""
    algorithm = get_algorithm(config.algorithm)
    check_values(config.hyperparameters, algorithm)
    n_dimensions = int(np.prod(env.action_space.shape or ()))
    values = resolve_classes({"policy": "MlpPolicy", **config.hyperparameters}, n_dimensions)
    try:
        return algorithm(env=env, seed=config.seed, **values)
    except (
        TypeError,
        ValueError,
        AssertionError,
        AttributeError,
        RuntimeError,
        KeyError,
        MemoryError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidArgument(f"{config.algo} on {config.env} cannot be built: {reason}") from None


def _load_model(config: RunConfig, env: VecEnv, source: Path) -> tuple[BaseAlgorithm, Path]:
    """Load a model, or a checkpoint and all that belongs to it; returns the checkpoint that was
    loaded (not the one asked for, if that is damaged)."""
    algorithm = get_algorithm(config.algorithm)
    try:
        if source.is_file():
            model = algorithm.load(source, env=env)
            model.num_timesteps = 0  # a new run with a trained model
            if (statistics := source.with_suffix(".npz")).is_file():
                load_normalization(env, statistics)
            return model, source
        return _load_checkpoint(algorithm, source, env)
    except DamagedCheckpoint:
        raise
    except (
        TypeError,
        ValueError,
        KeyError,
        RuntimeError,
        AssertionError,
        AttributeError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        reason = " ".join(str(error).split())
        raise InvalidArgument(
            f"{source} is no {config.algorithm} for {config.env}: {reason}"
        ) from None


def _load_checkpoint(
    algorithm: type[BaseAlgorithm], checkpoint: Path, env: VecEnv
) -> tuple[BaseAlgorithm, Path]:
    """Load a checkpoint. If it is damaged, load the one before: the results will be the same. The
    damaged one is removed with the next checkpoint, when this process holds the run's lock."""
    try:
        return store.load(algorithm, checkpoint, env), checkpoint
    except DamagedCheckpoint as error:
        previous = store.previous_intact(checkpoint)
        if previous is None:
            raise DamagedCheckpoint(
                f"{checkpoint} is damaged ({error}); no earlier one is intact"
            ) from None
        step = store.read_manifest(previous)["timesteps"]
        print(
            f"{checkpoint} is damaged ({error}); going on from the one before, at step {step:,}",
            file=sys.stderr,
        )
        return store.load(algorithm, previous, env), previous


def _stored_hyperparameters(config: RunConfig, source: Path) -> dict[str, Any]:
    """Hyperparameters that a loaded model was saved with, if its run's folder is known. A run of
    another algorithm is refused: SB3 loads a model of A2C as one of PPO without a word."""
    for folder in list(source.parents)[:2]:
        if (folder / CONFIG).is_file():
            record = read_record(folder)
            stored = record["config"].get("algorithm", config.algorithm)
            if stored != config.algorithm:
                raise InvalidArgument(
                    f"{source} is no {config.algorithm} for {config.env}: its run trained {stored}"
                )
            values = record["config"].get("hyperparameters") or {}
            return {**(record.get("class_defaults") or {}), **values}
    return {}


def start_of(folder: Path) -> dict[str, Any]:
    """What a run has from the model that it was started from: where that was, and its
    hyperparameters; empty for a run that was started from none."""
    stored: dict[str, Any] = {}
    with contextlib.suppress(InvalidArgument):  # check_folder says what is wrong with it
        stored = read_config(folder)
    names = ("start_from", "hyperparameters") if stored.get("start_from") is not None else ()
    return {name: stored[name] for name in names}


# Training


def train_run(
    config: RunConfig,
    root: str | Path = "runs",
    *,
    start_from: str | Path | None = None,
    show: str = "lines",
    make_writers: Callable[[Path], Sequence[KVWriter]] | None = None,
    callbacks: Sequence[BaseCallback] = (),
    on_evaluation: Callable[[list[float]], None] | None = None,
    folder: Path | None = None,
    n_threads: int | None = None,
) -> Outcome:
    """Train a run, or resume it from its checkpoint; a finished run is kept as it is.

    :param config: what to train
    :param root: the folder of all runs
    :param start_from: a checkpoint, run folder or model.zip to start from; a run that starts from
        its own folder is extended to ``config.n_timesteps``
    :param show: "bar", "lines" or "nothing" on the console
    :param make_writers: makes further outputs of SB3's logger for a run's folder
    :param callbacks: further callbacks
    :param on_evaluation: called after each evaluation with the mean returns of all so far; may
        raise :class:`StopRun`
    :param folder: the run's folder, if not the usual one under ``root``
    :param n_threads: of torch; None is one, and torch's default for Atari, whose network is large
        enough to gain from several
    """
    folder = folder or config.folder(root)
    source = locate_checkpoint(start_from) if start_from is not None else None
    extends = _is_inside(source, folder)
    if source is not None and extends and source.is_file():
        raise InvalidArgument(
            f"-i must not name a model inside the run's own folder, got {source}: -i {folder} "
            "prolongs the run, another --seed or -f starts a new one from this model"
        )
    if source is not None and not extends:
        if not _is_inside(source, Path(root)):  # a user's own runs need no warning
            print(store.FOREIGN.format(source), flush=True)
        values = _stored_hyperparameters(config, source)
        config = replace(config, start_from=str(source), hyperparameters=values)
    if extends:
        config = replace(config, **start_of(folder))
    # Only the length of a run may change when it is extended
    ignore = ("n_timesteps", "eval_freq", "save_freq", "start_from") if extends else ()
    check_folder(folder, config, ignore)
    if is_finished(folder) and not extends:
        if not config.keep_checkpoint and (folder / CHECKPOINT).exists():
            # Its process died while it removed the checkpoint
            with contextlib.suppress(RunLocked), locked(folder):
                shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        return Outcome("kept", folder, config.n_timesteps)
    env = make_run_environment(config)
    try:
        # A new run whose model cannot be built leaves no folder
        start = None if folder.is_dir() else _start_model(config, folder, env, source)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            # Checkpoints are read under the lock only; another process may have finished meanwhile
            check_folder(folder, config, ignore)
            if is_finished(folder) and not extends:
                return Outcome("kept", folder, config.n_timesteps)
            own = find_checkpoint(folder)
            if extends and start_from is not None:
                own = locate_checkpoint(start_from)
            if start is None or own is not None:
                start = _start_model(config, folder, env, own or source)
            model, checkpoint = start
            if n_threads is None and not is_atari(config.env):
                n_threads = 1
            with torch_threads(n_threads), flush_denormals():
                run = _Run(config, folder, env, model, show, make_writers, callbacks, on_evaluation)
                return run.train(checkpoint)
    finally:
        env.close()


def _start_model(
    config: RunConfig, folder: Path, env: VecEnv, source: Path | None
) -> tuple[BaseAlgorithm, Path | None]:
    """A new model, or that of a checkpoint or file, and where it came from. A model without steps
    left is refused, unless the run died between its last checkpoint and its end."""
    if source is None:
        return make_model(config, env), None
    model, checkpoint = _load_model(config, env, source)
    if not _is_inside(checkpoint, folder):  # another run's: its seed came with it
        start_anew(model, config.seed)
    if model.num_timesteps < config.n_timesteps:
        return model, checkpoint
    own = checkpoint.is_dir() and _is_inside(checkpoint, folder) and not is_finished(folder)
    if not own or read_config(folder).get("n_timesteps") != config.n_timesteps:
        raise InvalidArgument(
            f"{checkpoint} is at step {model.num_timesteps}: -n is the length of the whole run and "
            f"must be larger, got {config.n_timesteps}"
        )
    return model, checkpoint


@dataclass
class _Run:
    """One process's part of a run."""

    config: RunConfig
    folder: Path
    env: VecEnv
    model: BaseAlgorithm
    show: str
    make_writers: Callable[[Path], Sequence[KVWriter]] | None
    callbacks: Sequence[BaseCallback]
    on_evaluation: Callable[[list[float]], None] | None

    def __post_init__(self) -> None:
        self.progress = logs.ProgressCallback(self.folder, self.config.n_timesteps, self.show)
        self.interruption = Interruption()
        self.checkpoints = CheckpointCallback(
            self.folder / CHECKPOINT, self.config.save_every, self._counters, self.interruption
        )
        self.start, self.elapsed = time.monotonic(), 0.0

    def train(self, checkpoint: Path | None) -> Outcome:
        counters: dict[str, Any] = {"logs": {}, "timesteps": 0, "elapsed": 0.0}
        if checkpoint is not None and checkpoint.is_dir() and _is_inside(checkpoint, self.folder):
            counters = read_counters(checkpoint)
        self.elapsed = counters["elapsed"]
        warnings = logs.truncate_logs(self.folder, counters["logs"], counters["timesteps"])
        # Left by a failed attempt, or by the shorter run that is being extended. Before the new
        # config: beside it they would pass for a finished run of the new length
        for name in (FAILURE, BAD_BATCH, MODEL):
            (self.folder / name).unlink(missing_ok=True)
        config = self.config.plain()
        if not (self.folder / CONFIG).is_file() or read_config(self.folder) != config:
            # A resumed run keeps its config.yml, with the command that started it
            write_config(self.folder, config, class_defaults=class_defaults(self.config))
        if isinstance(self.model, (RegularizedDQN, CautiousSAC)):
            self.model.bad_batch_path = self.folder / BAD_BATCH
        self._note("started" if checkpoint is None else "resumed")
        for warning in warnings:
            print(f"warning: {warning}", file=sys.stderr)
            self._note("warned", f": {warning}")
        return self._learn()

    def _learn(self) -> Outcome:
        config, model, folder = self.config, self.model, self.folder
        outputs: list[KVWriter] = [logs.ContinuedCSV(folder / PROGRESS)]
        if self.make_writers is not None:
            outputs += self.make_writers(folder)
        model.set_logger(Logger(str(folder), outputs))
        evaluation, callbacks = self._make_callbacks()
        self.progress.init_callback(model)  # learn() does so after the first reset only
        try:
            with self.interruption:
                remaining = config.n_timesteps - model.num_timesteps
                if remaining > 0:
                    model.learn(remaining, CallbackList(callbacks), reset_num_timesteps=False)
                else:  # it died just before its end
                    self.checkpoints.init_callback(model)
                    self.progress.on_training_start({}, {})
                # Before the last evaluation: a run that dies in it need not train again
                if config.keep_checkpoint:
                    self.checkpoints.save()
                if evaluation is not None:
                    evaluation.model = model
                    evaluation.num_timesteps = model.num_timesteps
                    evaluation.finish()
        except (TrainingInterrupted, KeyboardInterrupt):  # after a checkpoint, or in mid-step
            saved = find_checkpoint(folder)
            timesteps = read_counters(saved)["timesteps"] if saved is not None else 0
            write_status(folder, **{**self.progress.status("interrupted"), "timesteps": timesteps})
            self._note("interrupted", f", saved at step {timesteps}")
            return Outcome("interrupted", folder, timesteps, exit_code=self.interruption.exit_code)
        except (OSError, StopRun):  # a full disk is no failure of the run, which can go on
            raise
        except Exception as error:
            log = folder / FAILURE
            log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
            write_status(folder, **{**self.progress.status("failed"), "error": str(error)})
            self._note("failed", f": {error}")
            raise RunFailed(
                f"{config.name()} failed at step {model.num_timesteps}: {error} (see {log})"
            ) from error
        finally:
            self.progress.close()
            model.logger.close()
            if evaluation is not None:
                evaluation.env.close()
        return self._finish(evaluation)

    def _make_callbacks(self) -> tuple[logs.EvaluationCallback | None, list[BaseCallback]]:
        config, folder = self.config, self.folder
        callbacks: list[BaseCallback] = [
            logs.MonitorCallback(folder / MONITOR, config.env, self.elapsed)
        ]
        if isinstance(self.model, IteratedAlgorithm):
            callbacks.append(IterationCallback(folder / ITERATIONS))
        evaluation = None
        if config.evaluate_every:
            ends = has_time_limit(config.env, config.max_episode_steps, config.gym_packages)
            evaluation = logs.EvaluationCallback(
                make_run_environment(config, training=False),
                folder,
                config.evaluate_every,
                config.eval_episodes,
                config.seed,
                config.n_timesteps,
                self.on_evaluation,
                None if ends else self.interruption,
            )
            callbacks.append(evaluation)
        return evaluation, [*callbacks, self.progress, *self.callbacks, self.checkpoints]

    def _finish(self, evaluation: logs.EvaluationCallback | None) -> Outcome:
        logs.save_model(self.model, self.folder / MODEL)
        if not self.config.keep_checkpoint:
            shutil.rmtree(self.folder / CHECKPOINT, ignore_errors=True)
        returns = tuple(evaluation.results[-1]) if evaluation is not None else ()
        status = self.progress.status("finished")
        if returns:
            status["return"] = float(np.mean(returns))
        write_status(self.folder, **status)
        self._note("finished")
        return Outcome("finished", self.folder, self.model.num_timesteps, returns)

    def _counters(self) -> dict[str, Any]:
        """For a checkpoint; the logs are on the disk before it is."""
        elapsed = self.elapsed + time.monotonic() - self.start
        return {"logs": logs.log_sizes(self.folder), "elapsed": elapsed}

    def _note(self, event: str, more: str = "") -> None:
        event = f"process {os.getpid()} {event} at step {self.model.num_timesteps}{more}"
        path = self.folder / HISTORY
        with naming_path(path), path.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {event}\n")
