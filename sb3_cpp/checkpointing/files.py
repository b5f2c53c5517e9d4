"""Files that are on the disk when a function returns, and checksums that tell whether they still are what was written."""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

from sb3_cpp.checks import InvalidArgument


class DamagedCheckpoint(InvalidArgument):
    """A checkpoint whose content is not what was written."""


def checksum(data: Any) -> str:
    """Of bytes or of an array that lies in one piece in memory."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def write_durably(path: Path, data: bytes) -> None:
    """Write and wait until the disk has it: a rename must never arrive there before the content."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Wait until the disk has a file's content."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder; systems that cannot do that are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_checked(path: Path, size: int, expected: str) -> bytes:
    """The content of a file, if it is what was written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from None
    if len(data) != size:
        raise DamagedCheckpoint(f"{path.name} has {len(data)} bytes instead of {size}")
    if checksum(data) != expected:
        raise DamagedCheckpoint(f"{path.name} has another checksum than when it was written")
    return data


def discard(folder: Path) -> None:
    """Remove a folder; should the process die meanwhile, what is left no longer carries its name."""
    trash = folder.with_name(f"{folder.name}.trash")
    shutil.rmtree(trash, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)
