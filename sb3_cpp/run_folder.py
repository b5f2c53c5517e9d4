"""Run folders: names of their files; readers and writers of config.yml, status.json and
evaluations.npz."""

import contextlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from sb3_cpp import files
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.version import __version__

CONFIG, STATUS, LOCK = "config.yml", "status.json", ".lock"
MONITOR, PROGRESS, ITERATIONS = "monitor.csv", "progress.csv", "iterations.csv"
EVALUATIONS, BEST_MODEL, MODEL = "evaluations.npz", "best_model.zip", "model.zip"
CHECKPOINT = "checkpoint"  # a folder
FAILURE, HISTORY, BAD_BATCH = "failure.log", "run.log", "bad_batch.npz"
WANDB_ID = "wandb_id"
OUTPUT = "output.log"  # what a worker of a grid prints; may exist before the run itself
_PACKAGES = ("torch", "stable-baselines3", "gymnasium", "numpy", "scipy", "pandas")


def open_run_folder(path: str | Path, config: Mapping[str, Any], force: bool = False) -> Path:
    """Create a folder and write its config.yml.

    A folder with files in it is used again only if its config.yml has the same settings, or with
    ``force``; files that the run does not write are kept.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise InvalidArgument(f"out must be a folder, got the file {str(folder)!r}")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        # the same settings give the same files, so overwriting them loses nothing
        same = False
        with contextlib.suppress(InvalidArgument):  # no config.yml: a folder of something else
            same = read_config(folder) == _plain(config)
        if not same:
            raise InvalidArgument(
                f"out must be new, empty or of a run with the same settings, got {str(folder)!r}; "
                "choose another, or use --force"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_config(folder, config)
    except OSError as error:
        raise InvalidArgument(
            f"out must be a folder that can be written, got {str(folder)!r} ({error.strerror})"
        ) from error
    return folder


def write_config(folder: Path, config: Mapping[str, Any], **further: Any) -> None:
    """Write config.yml: the settings, anything further, and the provenance of the run."""
    # provenance last and apart, because settings are compared and it differs with every run
    record = {"config": _plain(config), **further, "provenance": provenance()}
    files.write_text(folder / CONFIG, yaml.safe_dump(record, sort_keys=False))


def read_record(folder: Path) -> dict[str, Any]:
    """All of config.yml: ``config``, ``provenance`` and, for training runs, ``class_defaults``."""
    path = folder / CONFIG
    try:
        record = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read ({error.strerror})") from None
    # a parser's message has several lines; ours is one
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidArgument(f"{path} is not YAML ({' '.join(str(error).split())})") from None
    config = record.get("config") if isinstance(record, dict) else None
    if not isinstance(config, dict) or not config:
        raise InvalidArgument(f"{path} has no settings under the key 'config'")
    return record


def read_config(folder: Path) -> dict[str, Any]:
    """The settings of a run."""
    return read_record(folder)["config"]


WITHOUT_EFFECT = ("save_freq", "keep_checkpoint")  # settings that no number depends on


def settings_differences(
    stored: Mapping[str, Any], new: Mapping[str, Any], ignore: Sequence[str] = ()
) -> list[str]:
    """How the settings of two runs differ, each a ``config`` and the ``class_defaults`` for what
    it does not set: a default that has changed since is noticed. Arguments that only one version
    of the class has are left out.

    :param stored: as :func:`read_record` gives them
    :param new: as those
    :param ignore: keys of the config that may differ
    """
    return _differences(_with_defaults(stored, new), _with_defaults(new, stored), ignore)


def _with_defaults(record: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    own, given = (part["config"].get("hyperparameters") or {} for part in (record, other))
    defaults, theirs = (part.get("class_defaults") or {} for part in (record, other))
    known = {*given, *theirs}
    values = {name: value for name, value in defaults.items() if name in known}
    return {**record["config"], "hyperparameters": values | own}


def _differences(
    stored: Mapping[str, Any], new: Mapping[str, Any], ignore: Sequence[str], prefix: str = ""
) -> list[str]:
    found: list[str] = []
    for key in dict.fromkeys([*stored, *new]):
        if key in ignore or (key in stored and key in new and stored[key] == new[key]):
            continue
        if isinstance(stored.get(key), dict) and isinstance(new.get(key), dict):
            found += _differences(stored[key], new[key], (), f"{prefix}{key}.")
        else:
            values = f"{stored.get(key, 'not set')} there, {new.get(key, 'not set')} here"
            found.append(f"{prefix}{key}: {values}")
    return found


def write_status(folder: Path, **status: Any) -> None:
    # rewritten every few seconds while a run learns: waiting for the disk would slow it down
    content = json.dumps({**status, "time": time.time()})
    files.write_text(folder / STATUS, content, durable=False)


def read_status(folder: Path) -> dict[str, Any]:
    """The last status of a run; empty if it has none."""
    # the status only informs, so a file that cannot be read is no reason to fail
    try:
        return json.loads((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # e.g. cut off by a full disk
        return {}


def folder_name(env: str) -> str:
    """An environment's id as the name of a folder, also on Windows."""
    return env.replace("/", "-").replace(":", "-")


def is_finished(folder: Path) -> bool:
    return (folder / MODEL).is_file()


def read_evaluations(folder: Path) -> dict[str, NDArray[Any]]:
    """The arrays of SB3's evaluations.npz: timesteps (n,), results and ep_lengths (n, episodes);
    empty without the file."""
    path = folder / EVALUATIONS
    if not path.is_file():
        return {}
    try:
        with np.load(path) as saved:
            arrays = {name: saved[name] for name in ("timesteps", "results", "ep_lengths")}
        if len({len(array) for array in arrays.values()}) != 1 or arrays["results"].ndim != 2:
            raise ValueError("its arrays do not fit together")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidArgument(f"{path} cannot be read ({reason})") from None
    return arrays


def provenance() -> dict[str, Any]:
    """The exact command, the commit of the code, versions of its dependencies, and the machine."""
    versions = {"python": platform.python_version(), "sb3_cpp": __version__}
    for name in _PACKAGES:  # some of them are extras
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return {
        "command": command_line(),
        "commit": _commit(),
        "versions": versions,
        "machine": machine(),
    }


def command_line() -> str:
    """The command of this process, as a user would type it again."""
    program, *arguments = sys.argv or [""]
    # an installed command is a file in some bin folder, which nobody types
    if Path(program).stem == "sb3-cpp":
        return shlex.join(["sb3-cpp", *arguments])
    return shlex.join([Path(sys.executable).name, program, *arguments])


def machine() -> dict[str, Any]:
    """Processor, cores, memory and graphics card; no host name."""
    import torch as th  # a second, which reading a folder should not cost

    found: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
    }
    # Windows has no sysconf
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        found["memory_gb"] = round(memory / 1e9, 1)
    found["gpu"] = th.cuda.get_device_name() if th.cuda.is_available() else "none"
    return found


def _processor() -> str:
    if (info := Path("/proc/cpuinfo")).is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    # empty on many Linux systems, hence the file above
    return platform.processor() or platform.machine()


def _commit() -> str:
    """Commit of this code's checkout, with ``-dirty`` if files differ; "unknown" without one."""
    # --exclude=*: a hash, never the name of a tag
    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    command = ["git", "-C", str(Path(__file__).parent), *describe]
    try:
        # a hanging file system must not hold up a run
        result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return result.stdout.strip()


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """What a file gives back: tuples as lists."""
    return json.loads(json.dumps(config))
