"""One run has one process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import LOCK

try:
    import fcntl
except ImportError:  # Windows has no such locks; there two processes on one run are not told apart
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder for this process; the lock goes with the process, even if it is killed."""
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InvalidArgument(f"{folder} is being trained by another process") from None
        yield
    finally:
        os.close(descriptor)
