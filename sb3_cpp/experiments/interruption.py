"""Ctrl-C and SIGTERM end a run at its next clean boundary, so that what is saved is whole; and one run has one process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp.checks import InvalidArgument

try:
    import fcntl
except ImportError:  # Windows has no such locks; there two processes on one run are not told apart
    fcntl = None  # type: ignore[assignment]


class TrainingInterrupted(Exception):
    """Raised between two rollouts after a signal asked for it."""


class Interruption:
    """While it is entered, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once.

    Outside the main thread (a Dask worker) signals belong to others, and nothing is installed.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._former: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._former[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)


class BoundaryCallback(BaseCallback):
    """Between two rollouts (all transitions stored, all gradient steps done): stops if asked to, saves when due.

    :param interruption: who knows whether to stop
    :param save: writes a checkpoint
    :param every: steps between checkpoints, 0 for none
    """

    def __init__(self, interruption: Interruption, save: Any, every: int) -> None:
        super().__init__()
        self.interruption, self.save, self.every = interruption, save, every

    def _on_training_start(self) -> None:
        self._due = self.num_timesteps + self.every

    def _on_rollout_start(self) -> None:
        if self.interruption.signal is not None:
            raise TrainingInterrupted
        if self.every and self.model.num_timesteps >= self._due:
            self._due = self.model.num_timesteps + self.every
            self.save()

    def _on_step(self) -> bool:
        return True


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; the lock goes with the process, even if it is killed."""
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InvalidArgument(f"{folder} is being trained by another process") from None
        yield
    finally:
        os.close(descriptor)
