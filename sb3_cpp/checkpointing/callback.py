"""Checkpoints while learning, at regular steps and when a signal asks to stop."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp.checkpointing import state
from sb3_cpp.checkpointing.store import CheckpointStore, entries, owns
from sb3_cpp.checks import InvalidArgument, check_whole_number


class TrainingInterrupted(Exception):
    """A signal asked to stop: raised between two rollouts after a checkpoint, or by ``check``."""


class Interruption:
    """Notes the first SIGINT or SIGTERM while it is entered; a second SIGINT interrupts at once.

    Outside the main thread (a Dask worker) signals belong to others, and nothing is installed.

    :param within: code of the function that reacts to the note. If a signal comes when it no longer
        runs (it ended with an error, without ``__exit__``), the former handler gets it.
    """

    def __init__(self, within: CodeType | None = None) -> None:
        self.signal: int | None = None
        self._since = 0.0
        self._within = within
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                former = signal.signal(number, self._note)
                # SB3 calls no callback when learn() ends with an error: that one is still there
                stale = getattr(former, "__self__", None)
                if isinstance(stale, Interruption):
                    former = stale._former.get(number, former)
                self._former[number] = former
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._within is not None and not _is_running(self._within, frame):
            # the learn() that listened is over: send it again, to the handler from before
            self.__exit__()
            os.kill(os.getpid(), number)
        elif self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            self.signal, self._since = number, time.monotonic()

    def check(self, patience: float) -> None:
        """During an evaluation: stop if a signal has waited for more than ``patience`` seconds."""
        if self.signal is not None and time.monotonic() - self._since > patience:
            raise TrainingInterrupted

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)


def _is_running(code: CodeType, frame: FrameType | None) -> bool:
    # up the stack of the interrupted code
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


class CheckpointCallback(BaseCallback):
    """Saves everything the future of a run depends on, every ``save_freq`` steps and when a signal
    asks to stop. A run resumed from there ends with the same numbers as one that was never
    interrupted.

    A checkpoint is made between two rollouts: all transitions are stored, all gradient steps done.
    Ctrl-C and SIGTERM wait for that moment, save, and end the program as usual; a second Ctrl-C
    ends it at once, unsaved. With ``train_freq=(1, "episode")`` the moment is the end of an
    episode. Other callbacks start afresh in a resumed run, unless they keep their state in
    ``model.callback_states`` as :class:`IterationCallback` does.

    :param path: folder of the checkpoints; the last two are kept
    :param save_freq: steps between checkpoints; 0 for none but at a signal
    :param counters: returns further values for the resumed run, plain ones
    :param interruption: of a caller who handles signals, and to whom
        :class:`TrainingInterrupted` is raised; without it, this callback handles them
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
        self._listens = interruption is None
        self.interruption = interruption or Interruption()

    def _init_callback(self) -> None:
        self._pending = state.pending(self.model)

    def _on_training_start(self) -> None:
        # the store keeps two checkpoints, so a new run would remove those of the old one
        new = self.model.num_timesteps == 0 or not owns(self.model, self.store.folder)
        if new and entries(self.store.folder):
            raise InvalidArgument(
                f"path must not hold the checkpoints of another run, got {self.store.folder} "
                "(resume() continues that run)"
            )
        # before the first rollout, and after learn() has reset what it resets
        state.restore_pending(self.model)
        self._due = self._next()
        # only our algorithms have the attribute, None unless the user chose a path
        if getattr(self.model, "bad_batch_path", "") is None:
            vars(self.model)["bad_batch_path"] = self.store.folder / "bad_batch.npz"
        if self._listens:
            self.interruption = Interruption(type(self.model).learn.__code__).__enter__()

    def _next(self) -> int:
        """A multiple of ``save_freq``: a resumed run saves at the same steps as any other."""
        every = self.save_freq
        return (self.model.num_timesteps // every + 1) * every if every else 0

    # SB3 calls this between two rollouts, the only moment when no transition is half stored.
    def _on_rollout_start(self) -> None:
        if self._pending is not None:  # again: callbacks that started since may have drawn numbers
            state.restore_randomness(self.model, self._pending)
            self._pending = None
        stop = self.interruption.signal is not None
        if stop or (self.save_freq and self.model.num_timesteps >= self._due):
            self._due = self._next()
            self.save()
        if stop:
            self._stop()

    def save(self) -> Path:
        """Write a checkpoint now; it is exact only between two rollouts."""
        entry = self.store.save(self.model, self.counters() if self.counters is not None else None)
        if self.verbose:
            print(f"checkpoint of step {self.model.num_timesteps:,}: {entry}", flush=True)
        return entry

    def _stop(self) -> None:
        if not self._listens:
            raise TrainingInterrupted
        self.interruption.__exit__()
        step = self.model.num_timesteps
        print(f"stopped and saved at step {step:,}: {self.store.folder}", flush=True)
        # as without a handler: SIGTERM ends the program quietly, Ctrl-C with its exception
        if self.interruption.signal == signal.SIGTERM:
            raise SystemExit(self.interruption.exit_code)
        raise KeyboardInterrupt

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self._listens:
            self.interruption.__exit__()
