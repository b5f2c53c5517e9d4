"""What a checkpoint consists of: one line of JSON with the checksum of every part, and the checksum of that line."""

import getpass
import json
import platform
from pathlib import Path
from typing import Any

from sb3_cpp.checkpointing.files import DamagedCheckpoint, checksum

NAME = "manifest.json"
FORMAT = 1


def dump(manifest: dict[str, Any]) -> bytes:
    line = json.dumps({"format": FORMAT, "origin": origin(), **manifest}).encode()
    return line + b"\n" + checksum(line).encode() + b"\n"


def read(entry: Path) -> dict[str, Any]:
    """The manifest of a checkpoint."""
    try:
        line, expected = (entry / NAME).read_bytes().split(b"\n")[:2]
    except (OSError, ValueError):
        raise DamagedCheckpoint(f"{entry}: no readable {NAME}") from None
    if checksum(line).encode() != expected:
        raise DamagedCheckpoint(f"{entry}: {NAME} has another checksum than when it was written")
    manifest = json.loads(line)
    if manifest["format"] != FORMAT:
        raise DamagedCheckpoint(
            f"{entry}: format {manifest['format']}, this version reads {FORMAT}"
        )
    return manifest


def origin() -> str:
    """Tells this user on this machine from others without naming them; a hint for a warning, no proof."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such name, as in some containers
        user = ""
    return checksum(f"{user}@{platform.node()}".encode())
