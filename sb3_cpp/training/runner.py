"""Train one run into its folder; a run that was interrupted goes on from its checkpoint."""

import os
import shutil
import time
import traceback
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecEnv

from sb3_cpp.callbacks import IterationCallback
from sb3_cpp.checkpointing import CheckpointCallback, DamagedCheckpoint
from sb3_cpp.checkpointing.interruption import Interruption, TrainingInterrupted
from sb3_cpp.checkpointing.resuming import FOREIGN
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.deep import RegularizedDQN
from sb3_cpp.run_folder import (
    BAD_BATCH,
    CHECKPOINT,
    CONFIG,
    EVALUATIONS,
    FAILURE,
    HISTORY,
    ITERATIONS,
    MODEL,
    MONITOR,
    PROGRESS,
    is_finished,
    read_config,
    write_config,
    write_status,
)
from sb3_cpp.threads import flush_denormals, torch_threads
from sb3_cpp.training import logs
from sb3_cpp.training.algorithms import check_values, get_algorithm, resolve_classes
from sb3_cpp.training.checkpoint import (
    find_checkpoint,
    load_checkpoint,
    load_model,
    locate_checkpoint,
    read_counters,
    save_model,
)
from sb3_cpp.training.environments import has_time_limit, is_atari, make_environment
from sb3_cpp.training.existing_run import (
    check_folder,
    class_defaults,
    stored_hyperparameters,
)
from sb3_cpp.training.lock import locked
from sb3_cpp.training.progress import ProgressCallback
from sb3_cpp.training.suites import RunConfig


class StopRun(Exception):
    """Raised by who watches a run, to end it without a result."""


class RunFailed(RuntimeError):
    """Training itself ended with an error; the run's folder holds the traceback."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended: "finished", "interrupted" or "kept" (it was finished before)."""

    state: str
    folder: Path
    timesteps: int
    final_returns: tuple[float, ...] = ()
    exit_code: int = 0


def make_model(config: RunConfig, env: VecEnv) -> BaseAlgorithm:
    """The untrained model of a run."""
    algorithm = get_algorithm(config.algorithm)
    check_values(config.hyperparameters)
    values = resolve_classes({"policy": "MlpPolicy", **config.hyperparameters})
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


def make_run_environment(config: RunConfig, training: bool = True, **kwargs: Any) -> VecEnv:
    """The environments a run trains on (or those it is evaluated on)."""
    n_envs, seed = (config.n_envs, config.seed) if training else (config.eval_envs, None)
    return make_environment(
        config.env,
        n_envs,
        seed,
        config.max_episode_steps,
        training,
        **{**config.env_kwargs, **kwargs},
    )


def train_run(
    config: RunConfig,
    root: str | Path = "runs",
    *,
    start_from: str | Path | None = None,
    show: str = "lines",
    writers: Sequence[KVWriter] = (),
    callbacks: Sequence[BaseCallback] = (),
    on_evaluation: Callable[[list[float]], None] | None = None,
    folder: Path | None = None,
    n_threads: int | None = None,
) -> Outcome:
    """Train one run, or go on with it; a finished run is left as it is.

    :param config: what to train
    :param root: the folder of all runs
    :param start_from: a checkpoint, run folder or model.zip to go on from; without it the run's own checkpoint, if it has one
    :param show: "bar", "lines" or "nothing" on the console
    :param writers: further outputs of SB3's logger
    :param callbacks: further callbacks
    :param on_evaluation: called after each evaluation with the mean returns of all so far; may raise :class:`StopRun`
    :param folder: the run's folder, if not the usual place under ``root``
    :param n_threads: of torch; None is one, and as many as torch likes for Atari, whose network is large enough to gain by it
    """
    folder = folder or config.folder(root)
    source = locate_checkpoint(start_from) if start_from is not None else None
    prolonged = source is not None and folder.resolve() in source.resolve().parents
    if source is not None and prolonged and source.is_file():
        raise InvalidArgument(
            f"-i must not name a model inside the run's own folder, got {source}: "
            f"-i {folder} prolongs the run, another --seed or -f starts a new one from this model"
        )
    if source is not None and not prolonged:
        print(FOREIGN.format(source), flush=True)
        config = replace(
            config, start_from=str(source), hyperparameters=stored_hyperparameters(source)
        )
    # A run may be prolonged when its checkpoint is named; everything else must be as it was
    check_folder(
        folder,
        config,
        ignore=("n_timesteps", "eval_freq", "save_freq", "start_from") if prolonged else (),
    )
    if is_finished(folder) and not prolonged:
        return Outcome("kept", folder, config.n_timesteps)
    env = make_run_environment(config)
    try:
        # The model is made before anything is written: what cannot be built leaves no trace
        checkpoint = source if prolonged else find_checkpoint(folder) or source
        model, checkpoint = (
            (make_model(config, env), None)
            if checkpoint is None
            else _load_model(config, env, checkpoint)
        )
        if (
            checkpoint is not None
            and model.num_timesteps >= config.n_timesteps
            and not _may_end(folder, config, checkpoint)
        ):
            raise InvalidArgument(
                f"{checkpoint} is at step {model.num_timesteps}: -n is the length of the whole run and must be larger, "
                f"got {config.n_timesteps}"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if n_threads is None and not is_atari(config.env):
            n_threads = 1
        with locked(folder), torch_threads(n_threads), flush_denormals():
            run = _Run(config, folder, env, model, show, writers, callbacks, on_evaluation)
            return run.train(checkpoint)
    finally:
        env.close()


def _load_model(config: RunConfig, env: VecEnv, checkpoint: Path) -> tuple[BaseAlgorithm, Path]:
    """The model to go on with, and the checkpoint it came from (not the one asked for, if that is damaged)."""
    algorithm = get_algorithm(config.algorithm)
    try:
        if checkpoint.is_file():
            model = load_model(algorithm, checkpoint, env)
        else:
            model, checkpoint = load_checkpoint(algorithm, checkpoint, env)
    except DamagedCheckpoint:
        raise
    except (
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
            f"{checkpoint} is no {config.algorithm} for {config.env}: {reason}"
        ) from None
    return model, checkpoint


def _may_end(folder: Path, config: RunConfig, checkpoint: Path) -> bool:
    """Whether a run without steps left is this very run, interrupted between its last checkpoint and its end."""
    own = (
        checkpoint.is_dir()
        and folder.resolve() in checkpoint.resolve().parents
        and not is_finished(folder)
    )
    return own and read_config(folder).get("n_timesteps") == config.n_timesteps


class _Run:
    """One process's part of a run."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        env: VecEnv,
        model: BaseAlgorithm,
        show: str,
        writers: Sequence[KVWriter],
        callbacks: Sequence[BaseCallback],
        on_evaluation: Callable[[list[float]], None] | None,
    ) -> None:
        self.config, self.folder, self.env, self.model = config, folder, env, model
        self.writers, self.callbacks, self.on_evaluation = writers, callbacks, on_evaluation
        self.progress = ProgressCallback(folder, config.n_timesteps, show)
        self.interruption = Interruption()
        self.checkpoints = CheckpointCallback(
            folder / CHECKPOINT, config.save_every, self._counters, self.interruption
        )
        self.began, self.elapsed = time.monotonic(), 0.0

    def train(self, checkpoint: Path | None) -> Outcome:
        own = (
            checkpoint is not None
            and checkpoint.is_dir()
            and self.folder.resolve() in checkpoint.resolve().parents
        )
        counters: dict[str, Any] = {"logs": {}, "timesteps": 0, "elapsed": 0.0}
        if checkpoint is not None and own:
            counters = read_counters(checkpoint)
        self.elapsed = counters["elapsed"]
        logs.cut_back_logs(self.folder, counters["logs"], counters["timesteps"])
        self._write_config()
        if isinstance(self.model, RegularizedDQN):
            self.model.bad_batch_path = self.folder / BAD_BATCH
        self._note(
            f"{'started' if checkpoint is None else 'resumed'} at step {self.model.num_timesteps}"
        )
        for name in (
            FAILURE,
            BAD_BATCH,
            MODEL,
        ):  # of an earlier attempt, or of a run that is being prolonged
            (self.folder / name).unlink(missing_ok=True)
        return self._learn()

    def _learn(self) -> Outcome:
        config, model, folder = self.config, self.model, self.folder
        outputs: list[KVWriter] = [logs.ContinuedCSV(folder / PROGRESS), *self.writers]
        model.set_logger(Logger(str(folder), outputs))
        evaluation, callbacks = self._make_callbacks()
        try:
            with self.interruption:
                remaining = config.n_timesteps - model.num_timesteps
                if remaining > 0:
                    model.learn(remaining, CallbackList(callbacks), reset_num_timesteps=False)
                else:  # it was interrupted just before its end
                    for callback in (self.progress, self.checkpoints):
                        callback.init_callback(model)
                    self.progress.on_training_start({}, {})
                if config.keep_checkpoint:
                    self.checkpoints.save()
                if evaluation is not None:
                    evaluation.model = model
                    evaluation.num_timesteps = model.num_timesteps
                    evaluation.finish()
        except (
            TrainingInterrupted,
            KeyboardInterrupt,
        ):  # the first comes with a checkpoint, the second in mid-step
            saved = find_checkpoint(folder)
            timesteps = read_counters(saved)["timesteps"] if saved is not None else 0
            write_status(folder, **{**self.progress.status("interrupted"), "timesteps": timesteps})
            self._note(f"interrupted at step {model.num_timesteps}, saved at step {timesteps}")
            return Outcome("interrupted", folder, timesteps, exit_code=self.interruption.exit_code)
        except (OSError, StopRun):
            raise
        except Exception as error:
            self._fail(error)
            raise RunFailed(
                f"{config.name()} failed at step {model.num_timesteps}: {error} (see {folder / FAILURE})"
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
        if isinstance(self.model, RegularizedDQN):
            callbacks.append(IterationCallback(folder / ITERATIONS))
        evaluation = None
        if config.evaluate_every:
            evaluation = logs.EvaluationCallback(
                make_run_environment(config, training=False),
                folder / EVALUATIONS,
                config.evaluate_every,
                config.eval_episodes,
                config.seed,
                config.n_timesteps,
                self.on_evaluation,
                None if has_time_limit(config.env, config.max_episode_steps) else self.interruption,
            )
            callbacks.append(evaluation)
        return evaluation, [*callbacks, self.progress, *self.callbacks, self.checkpoints]

    def _finish(self, evaluation: logs.EvaluationCallback | None) -> Outcome:
        config, model, folder = self.config, self.model, self.folder
        save_model(model, folder / MODEL)
        if not config.keep_checkpoint:
            shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
        returns = tuple(evaluation.results[-1]) if evaluation is not None else ()
        status = self.progress.status("finished")
        if returns:
            status["return"] = float(np.mean(returns))
        write_status(folder, **status)
        self._note(f"finished at step {model.num_timesteps}")
        return Outcome("finished", folder, model.num_timesteps, returns)

    def _counters(self) -> dict[str, Any]:
        """How far the logs are, which are on the disk before the checkpoint is."""
        return {
            "logs": logs.log_lines(self.folder),
            "elapsed": self.elapsed + time.monotonic() - self.began,
        }

    def _fail(self, error: Exception) -> None:
        (self.folder / FAILURE).write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8"
        )
        write_status(self.folder, **{**self.progress.status("failed"), "error": str(error)})
        self._note(f"failed at step {self.model.num_timesteps}: {error}")

    def _write_config(self) -> None:
        config = self.config.plain()
        if (self.folder / CONFIG).is_file() and read_config(self.folder) == config:
            return  # a resumed run keeps the command it was started with
        write_config(self.folder, config, class_defaults=class_defaults(self.config))

    def _note(self, event: str) -> None:
        with (self.folder / HISTORY).open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} process {os.getpid()} {event}\n")
