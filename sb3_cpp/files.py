"""The one atomic writer: a file is complete under its name, or it is not there.

The content goes to ``name.part.ext`` first (the suffix stays, because numpy and matplotlib read the
format from it), is flushed to the disk, and is renamed. A process that dies in between leaves at
most the part, which the next write replaces.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def write_bytes(path: Path, data: bytes, durable: bool = True) -> None:
    """Write a file atomically.

    :param path: the file; its folder must exist
    :param durable: wait until the disk has it; False for what is rewritten every second
    """
    write_with(path, lambda part: part.write_bytes(data), durable)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """As :func:`write_bytes`, for text in UTF-8; line ends are written as they are."""
    write_bytes(path, text.encode("utf-8"), durable)


def write_with(path: Path, write: Callable[[Path], object], durable: bool = True) -> None:
    """Write a file atomically through a function of another library.

    :param write: writes the content to the path it is given, e.g. ``figure.savefig``
    """
    part = part_of(path)
    try:
        with naming_path(path):
            write(part)
            # the order matters: renamed before its content is on the disk, a file may be empty
            # after a power cut
            if durable:
                sync_file(part)
            os.replace(part, path)
    except BaseException:  # also KeyboardInterrupt
        # an error here would hide the one that matters
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def part_of(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f"{path.stem}.part{path.suffix}")


def is_part(path: Path) -> bool:
    """Whether a file is what a process left that died while it wrote."""
    return path.suffix == ".part" or path.stem.endswith(".part")


@contextlib.contextmanager
def naming_path(path: Path) -> Iterator[None]:
    """Re-raise errors of the system (disk full, no permission) with the path in their text."""
    try:
        yield
    except OSError as error:
        # libraries raise OSError with a text and no number
        reason = error.strerror or str(error)
        raise OSError(error.errno or errno.EIO, f"could not write {path}: {reason}") from error


def sync_file(path: Path, mode: int = os.O_RDWR) -> None:
    """Wait until the disk has a file's content."""
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder; a no-op where the system cannot do that."""
    # Windows cannot open a folder
    with contextlib.suppress(OSError):
        sync_file(folder, os.O_RDONLY)
