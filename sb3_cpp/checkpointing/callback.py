"""Checkpoints while learning, from plain Python and in the scripts alike."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_cpp.checkpointing import random_state
from sb3_cpp.checkpointing.interruption import Interruption, TrainingInterrupted
from sb3_cpp.checkpointing.store import RESUMED, CheckpointStore, entries
from sb3_cpp.checkpointing.training_state import go_on, waiting_generators
from sb3_cpp.checks import InvalidArgument, check_whole_number


class CheckpointCallback(BaseCallback):
    """
    Saves everything the future depends on, every ``save_freq`` steps and when a signal asks to stop, so that
    ``DeepCPP.resume(path).learn()`` ends with the same numbers as a run that was never interrupted.

    A checkpoint is taken between two rollouts: all transitions are stored and all gradient steps are done. Ctrl-C and SIGTERM
    wait for that moment, save, and then end the program as usual; a second Ctrl-C ends it at once, unsaved. With
    ``train_freq=(1, "episode")`` the moment is the end of an episode. Other callbacks do not see a resumed run's past, unless
    they keep it in ``model.callback_states`` as :class:`IterationCallback` does.

    :param path: folder of the checkpoints; the last two are kept
    :param save_freq: steps between checkpoints; 0 for none but at a signal
    :param counters: gives what else whoever resumes must know, plain values
    :param interruption: who listens to signals, if not this callback; :class:`TrainingInterrupted` is then raised to them
    :param verbose: 1 prints a line per checkpoint
    """

    def __init__(
        self,
        path: str | Path,
        save_freq: int = 10_000,
        counters: Callable[[], dict[str, Any]] | None = None,
        interruption: Interruption | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.store = CheckpointStore(path)
        self.save_freq = check_whole_number("save_freq", save_freq, 0)
        self.counters = counters
        self._given = interruption
        self.interruption = interruption or Interruption()

    def _init_callback(self) -> None:
        self._generators = waiting_generators(self.model)

    def _on_training_start(self) -> None:
        if self.model.num_timesteps == 0 and entries(self.store.folder):
            raise InvalidArgument(
                f"path must not hold the checkpoints of another run, got {self.store.folder}"
            )
        go_on(self.model)
        folder, arrays = self.model.__dict__.pop(RESUMED, (None, {}))
        if folder == self.store.folder.resolve():
            assert isinstance(self.model, OffPolicyAlgorithm)
            assert self.model.replay_buffer is not None
            steps = self.model.num_timesteps // self.model.n_envs
            self.store.segments.remember(self.model.replay_buffer, arrays, steps)
        self._due = self._next()
        if getattr(self.model, "bad_batch_path", "") is None:
            self.model.bad_batch_path = self.store.folder / "bad_batch.npz"  # type: ignore[attr-defined]
        if self._given is None:
            self.interruption = Interruption(type(self.model).learn.__code__).__enter__()

    def _next(self) -> int:
        """Multiples of ``save_freq``, so that a resumed run saves when it would have saved anyway."""
        return (
            (self.model.num_timesteps // self.save_freq + 1) * self.save_freq
            if self.save_freq
            else 0
        )

    def _on_rollout_start(self) -> None:
        if (
            self._generators is not None
        ):  # exactly where they were saved: starting callbacks may have drawn from them
            random_state.restore(self._generators)
            self._generators = None
        stop = self.interruption.signal is not None
        if stop or (self.save_freq and self.model.num_timesteps >= self._due):
            self._due = self._next()
            self.save()
        if stop:
            self._stop()

    def save(self) -> Path:
        """Write a checkpoint now; only between two rollouts is it exact."""
        entry = self.store.save(self.model, self.counters() if self.counters is not None else None)
        if self.verbose:
            print(f"checkpoint of step {self.model.num_timesteps:,}: {entry}", flush=True)
        return entry

    def _stop(self) -> None:
        if self._given is not None:
            raise TrainingInterrupted
        self.interruption.__exit__()
        print(
            f"stopped and saved at step {self.model.num_timesteps:,}: {self.store.folder}",
            flush=True,
        )
        if self.interruption.signal == signal.SIGTERM:
            raise SystemExit(self.interruption.exit_code)
        raise KeyboardInterrupt

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._given is None:
            self.interruption.__exit__()
