"""A folder of checkpoints, each complete or not there at all; the last two are kept. Resuming.

``<folder>/000007/`` holds ``model.zip`` (SB3's own format), ``state.pkl`` and ``manifest.json``;
the replay buffer lies in ``<folder>/segments/``. A checkpoint is written as ``000007.part``,
flushed to the disk and then renamed, so a folder called ``000007`` is complete whatever happens.
"""

import contextlib
import getpass
import io
import json
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import cloudpickle
import gymnasium as gym
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv

from sb3_cpp.checkpointing import buffer as buffers
from sb3_cpp.checkpointing import state as states
from sb3_cpp.checkpointing.buffer import DamagedCheckpoint, SavedBuffer, checksum
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.files import naming_path, sync_file, sync_folder

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)

MODEL, STATE, MANIFEST = "model.zip", "state.pkl", "manifest.json"
FORMAT = 1
FOREIGN = (
    "warning: {} comes from elsewhere, and the pickles in it can run any code "
    "(a file of weights only cannot)"
)
SAVED = "saved"  # manifest's "environment" if its state was saved; otherwise the reason why not

# The checkpoint a resumed model came from, and its buffer there: the next one builds upon both
_SOURCES: WeakKeyDictionary[BaseAlgorithm, tuple[Path, SavedBuffer | None]] = WeakKeyDictionary()
# The folders whose checkpoints a model came from or wrote: it may replace those
_OWN: WeakKeyDictionary[BaseAlgorithm, set[Path]] = WeakKeyDictionary()


def owns(model: BaseAlgorithm, folder: Path) -> bool:
    """Whether the model was resumed from this folder, or wrote a checkpoint there."""
    return folder.resolve() in _OWN.get(model, ())


def entries(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first, damaged ones included."""
    # six digits at least, so that names sort as numbers do; not 000007.part or .trash
    named = [path for path in folder.glob("[0-9]" * 6 + "*") if path.name.isdigit()]
    return sorted(path for path in named if path.is_dir())


def newest(folder: Path) -> Path | None:
    """The last checkpoint of a folder."""
    found = entries(folder)
    return found[-1] if found else None


def locate(path: str | Path) -> Path:
    """What a user may point at: a folder of checkpoints, or one of them."""
    path = Path(path)
    found = path if (path / MANIFEST).is_file() else newest(path)
    if found is None:
        raise InvalidArgument(f"no checkpoint at {path}")
    return found


# --- reading and checking, without changing anything ----------------------------------------------


def read_manifest(entry: Path) -> dict[str, Any]:
    """What a checkpoint consists of; raises :class:`DamagedCheckpoint`."""
    try:
        # its own checksum follows in the second line, since no other file could hold it
        line, expected = (entry / MANIFEST).read_bytes().split(b"\n")[:2]
    except (OSError, ValueError):
        raise DamagedCheckpoint(f"{entry}: no readable {MANIFEST}") from None
    if checksum(line).encode() != expected:
        raise DamagedCheckpoint(f"{entry}: {MANIFEST} has another checksum than when written")
    manifest = json.loads(line)
    if manifest["format"] != FORMAT:
        found = manifest["format"]
        raise DamagedCheckpoint(f"{entry}: format {found}, this version reads {FORMAT}")
    return manifest


def read_files(entry: Path, manifest: dict[str, Any]) -> dict[str, bytes]:
    """The files of a checkpoint, if they are what was written."""
    contents = {}
    for name, (size, expected) in manifest["files"].items():
        try:
            data = (entry / name).read_bytes()
        except OSError as error:
            raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
        if len(data) != size:
            raise DamagedCheckpoint(f"{name} has {len(data)} bytes instead of {size}")
        if checksum(data) != expected:
            raise DamagedCheckpoint(f"{name} has another checksum than when it was written")
        contents[name] = data
    return contents


def verify(entry: Path) -> dict[str, Any]:
    """The manifest of a checkpoint, all of it checked; raises :class:`DamagedCheckpoint`."""
    manifest = read_manifest(entry)
    read_files(entry, manifest)
    buffers.check(entry.parent, manifest["arrays"])
    return manifest


def origin() -> str:
    """Tells this user on this machine from others without naming them; a hint, no proof."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such name, as in some containers
        user = ""
    return checksum(f"{user}@{platform.node()}".encode())


# --- writing --------------------------------------------------------------------------------------


class CheckpointStore:
    """Writes the checkpoints of one run into a folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.bytes_written = 0  # by the last save
        self._last: Path | None = None
        self._buffer: SavedBuffer | None = None

    def save(self, model: BaseAlgorithm, counters: dict[str, Any] | None = None) -> Path:
        """Write a checkpoint; when this returns, it is on the disk.

        :param model: between two rollouts
        :param counters: further values for the resumed run, plain ones
        """
        # Newer checkpoints than the source are damaged ones: numbers go on from the highest.
        self._continue_source(model)
        last = newest(self.folder)
        entry = self.folder / f"{int(last.name) + 1 if last else 1:06d}"
        part = entry.with_name(f"{entry.name}.part")
        segment = self.folder / buffers.FOLDER / f"{entry.name}.bin"
        with naming_path(entry):
            try:
                self._clear_leftovers()  # first: the disk may be full of them
                part.mkdir(parents=True)
                saved = self._write(model, part, segment, counters or {})
                os.replace(part, entry)
                sync_folder(self.folder)
            except BaseException:
                if not entry.exists():  # under its name it is complete, and stays
                    shutil.rmtree(part, ignore_errors=True)
                    with contextlib.suppress(OSError):
                        segment.unlink(missing_ok=True)
                raise
        # two, in case the disk damages the newest
        kept = (self._last or last, entry)
        self._last, self._buffer = entry, saved
        _OWN.setdefault(model, set()).add(self.folder.resolve())
        for old in entries(self.folder):
            if old not in kept:  # also damaged ones, newer than the one the run was resumed from
                discard(old)
        self._remove_unused_segments()
        return entry

    def _write(
        self, model: BaseAlgorithm, part: Path, segment: Path, counters: dict[str, Any]
    ) -> SavedBuffer | None:
        state, reason = states.capture(model)
        buffer = model.replay_buffer if isinstance(model, OffPolicyAlgorithm) else None
        saved, self.bytes_written = None, 0
        if buffer is not None:
            state["buffer"] = buffers.capture(buffer)
            steps = model.num_timesteps // model.n_envs
            saved, self.bytes_written = buffers.write(
                self.folder, segment.name, buffer, steps, self._buffer
            )
        # in memory first: a checksum of what should be there finds what the disk made of it
        zipped = io.BytesIO()
        model.save(zipped)
        files = {MODEL: zipped.getvalue(), STATE: cloudpickle.dumps(state)}
        manifest = {
            "format": FORMAT,
            "origin": origin(),
            "algorithm": type(model).__name__,
            "timesteps": model.num_timesteps,
            "total": model._total_timesteps,
            "counters": counters,
            "environment": reason or SAVED,
            "files": {name: [len(data), checksum(data)] for name, data in files.items()},
            "arrays": saved.arrays if saved is not None else {},
        }
        line = json.dumps(manifest).encode()
        files[MANIFEST] = line + b"\n" + checksum(line).encode() + b"\n"
        self.bytes_written += sum(map(len, files.values()))
        # Write first and flush afterwards: the disk then gets all of it at once
        for name, data in files.items():
            (part / name).write_bytes(data)
        written = [part / name for name in files] + ([segment] if saved is not None else [])
        for path in written:
            sync_file(path)
        for folder in {path.parent for path in written}:
            sync_folder(folder)
        return saved

    def _continue_source(self, model: BaseAlgorithm) -> None:
        """Build upon the checkpoint that the model was resumed from, if it is in this folder."""
        source, saved = _SOURCES.pop(model, (None, None))
        if source is not None and source.parent == self.folder.resolve():
            self._last, self._buffer = self.folder / source.name, saved

    def _clear_leftovers(self) -> None:
        """Remove what a process left that died while it wrote."""
        for pattern in ("*.part", "*.trash"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        self._remove_unused_segments()

    def _remove_unused_segments(self) -> None:
        needed: set[str] = set()
        for entry in entries(self.folder):
            try:
                needed |= buffers.segments_of(read_manifest(entry)["arrays"])
            except DamagedCheckpoint:
                return  # it may need any of them
        for path in (self.folder / buffers.FOLDER).glob("*"):
            if path.name not in needed:
                path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Remove a folder; if the process dies meanwhile, what is left no longer has its name."""
    # renaming is atomic, removing a folder is not
    trash = folder.with_name(f"{folder.name}.trash")
    shutil.rmtree(trash, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


# --- from a checkpoint back to a model ------------------------------------------------------------


def resume(algorithm: type[Algorithm], path: str | Path, env: GymEnv | None = None) -> Algorithm:
    """The model of a checkpoint, its environment and all random generators as they were.

    :param algorithm: the class that was saved
    :param path: a folder of checkpoints (the newest is used) or one checkpoint
    :param env: an environment built as in the saved run; without it, one is made from the
        specification in the checkpoint
    """
    entry = locate(path)
    try:
        if read_manifest(entry)["origin"] != origin():
            print(FOREIGN.format(entry), file=sys.stderr)
        return load(algorithm, entry, env)
    except DamagedCheckpoint as error:
        # not resumed from by itself: the user decides whether to lose those steps
        other = previous_intact(entry)
        hint = "no earlier one is intact"
        if other is not None:
            hint = f"the one before is intact: resume from {other}"
        raise DamagedCheckpoint(f"{entry} is damaged ({error}); {hint}") from None


def remaining_timesteps(model: BaseAlgorithm) -> int:
    """Steps until the end of the ``learn()`` that was interrupted."""
    return max(model._total_timesteps - model.num_timesteps, 0)


def previous_intact(entry: Path) -> Path | None:
    """The newest intact checkpoint before this one; nothing is changed."""
    earlier = [other for other in entries(entry.parent) if other.name < entry.name]
    for other in reversed(earlier):
        try:
            verify(other)
        except DamagedCheckpoint:
            continue
        return other
    return None


def load(algorithm: type[Algorithm], entry: Path, env: GymEnv | None = None) -> Algorithm:
    """The model of one checkpoint, every part of it checked before it is unpickled."""
    manifest = read_manifest(entry)
    if manifest["algorithm"] != algorithm.__name__:
        raise InvalidArgument(
            f"{entry} is a checkpoint of {manifest['algorithm']}, not of {algorithm.__name__}"
        )
    # Unpickling runs whatever the file says, so it comes after the checksums.
    files = read_files(entry, manifest)
    state: dict[str, Any] = cloudpickle.loads(files[STATE])
    env = _make_env(entry, state) if env is None else env
    model = algorithm.load(io.BytesIO(files[MODEL]), env=env)
    saved = None
    if isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is not None:
        buffer, steps = model.replay_buffer, model.num_timesteps // model.n_envs
        arrays = buffers.read(entry.parent, manifest["arrays"], buffers.arrays_of(buffer))
        buffers.restore(buffer, state["buffer"], arrays)
        saved = SavedBuffer(manifest["arrays"], id(buffer), buffer.pos, steps)
    _OWN[model] = {entry.resolve().parent}
    _SOURCES[model] = (entry.resolve(), saved)  # the next checkpoint builds upon this one
    if manifest["environment"] != SAVED:
        reason = manifest["environment"]
        print(f"not exact: the environment starts a new episode, because {reason}", file=sys.stderr)
    # last, because building the model and its environment drew random numbers
    states.restore(model, state)
    return model


def read_normalization(entry: Path) -> list[tuple[Any, Any]]:
    """The statistics ``(obs_rms, ret_rms)`` of each VecNormalize around a checkpoint's env."""
    state = cloudpickle.loads(read_files(entry, read_manifest(entry))[STATE])
    return state.get("normalization", [])


def _make_env(entry: Path, state: dict[str, Any]) -> gym.Env[Any, Any]:
    try:
        return gym.make(state["spec"])
    except Exception as error:  # no specification, or a package that is not imported
        raise InvalidArgument(
            f"env must be given: that of {entry} cannot be made again ({error})"
        ) from None
