"""Ctrl-C and SIGTERM end learning at its next clean boundary, so that what is saved is whole."""

import os
import signal
import threading
import time
from types import CodeType, FrameType, TracebackType
from typing import Any


class TrainingInterrupted(Exception):
    """Raised because a signal asked for it, between two rollouts after a checkpoint, or where that is too long to wait for."""


class Interruption:
    """While it is entered, the first SIGINT or SIGTERM is only noted; a second SIGINT interrupts at once.

    Outside the main thread (a Dask worker) signals belong to others, and nothing is installed.

    :param within: the code of the function that is waited for; a signal that comes when it is no longer running (it ended
        with an error, and nobody took this down) goes to the former handler
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
                left = getattr(
                    former, "__self__", None
                )  # by an earlier learn() that ended with an error
                self._former[number] = (
                    left._former.get(number, former) if isinstance(left, Interruption) else former
                )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        self._former.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._within is not None and not _is_running(self._within, frame):
            self.__exit__()
            os.kill(os.getpid(), number)
        elif self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            self.signal, self._since = number, time.monotonic()

    def check(self, patience: float) -> None:
        """Where learning stands still: stop if a signal has waited for longer than ``patience`` seconds."""
        if self.signal is not None and time.monotonic() - self._since > patience:
            raise TrainingInterrupted

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.signal or signal.SIGINT)


def _is_running(code: CodeType, frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False
