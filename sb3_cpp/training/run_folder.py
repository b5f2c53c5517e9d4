"""A folder per run: the resolved settings and where they came from, beside the results, so that a number can be traced."""

import importlib.metadata
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.machine import machine
from sb3_cpp.version import __version__

CONFIG_FILE = "config.yml"
_PACKAGES = ("torch", "stable-baselines3", "gymnasium", "numpy", "scipy", "pandas")


def open_run_folder(path: str | Path, config: Mapping[str, Any], force: bool = False) -> Path:
    """Create the folder and write ``config.yml``: the settings, and the command, commit and versions behind the run.

    A folder that already holds something is used again only if its ``config.yml`` has the same settings (the results will be
    the same) or with ``force``; files that the run does not write are left alone.
    """
    folder = Path(path)
    plain = yaml.safe_load(yaml.safe_dump(_plain(config)))
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"out must be a folder, got the file {str(folder)!r}")
    if folder.is_dir() and any(folder.iterdir()) and not force and _settings_of(folder) != plain:
        raise InvalidArgument(
            f"out must be new, empty or of a run with the same settings, got {str(folder)!r}; choose another, or use --force"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        record = {"config": plain, "provenance": provenance()}
        (folder / CONFIG_FILE).write_text(yaml.safe_dump(record, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(
            f"out must be a folder that can be written, got {str(folder)!r} ({error.strerror})"
        ) from error
    return folder


def provenance() -> dict[str, Any]:
    """The exact command, the commit of the code, the versions of what it stands on, and the machine."""
    versions = {"python": platform.python_version(), "sb3_cpp": __version__}
    versions |= {name: importlib.metadata.version(name) for name in _PACKAGES}
    command = shlex.join([Path(sys.executable).name, *sys.argv])
    return {"command": command, "commit": _commit(), "versions": versions, "machine": machine()}


def _commit() -> str:
    """Commit of the checkout this code lies in, with ``-dirty`` if files differ from it; "unknown" outside of one."""
    command = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--abbrev=40",
        "--dirty",
        "--exclude=*",
    ]
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _settings_of(folder: Path) -> Any:
    """Settings of an earlier run, or None."""
    try:
        return yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8"))["config"]
    except (OSError, yaml.YAMLError, TypeError, KeyError):
        return None


def _plain(value: Any) -> Any:
    """Tuples as lists, so that the file is plain YAML."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
