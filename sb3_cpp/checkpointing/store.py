"""A folder of checkpoints, each written whole or not at all; the last two are kept.

``<folder>/000007/`` holds ``model.zip`` (SB3's own format), ``state.pkl`` and ``manifest.json``; the replay buffer lies in
``<folder>/segments/``. A checkpoint is written under another name, brought to the disk and then renamed: a folder that is
called ``000007`` is complete, whatever happened to the process or the machine.
"""

import contextlib
import io
import os
import shutil
from pathlib import Path
from typing import Any

import cloudpickle
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_cpp.checkpointing import buffer_state, manifest, segments, training_state
from sb3_cpp.checkpointing.files import checksum, discard, read_checked, sync_file, sync_folder
from sb3_cpp.checks import InvalidArgument

MODEL, STATE = "model.zip", "state.pkl"
KEEP = 2
SAVED = "saved"  # said of an environment whose state is in a checkpoint; otherwise the reason is
RESUMED = "_resumed"  # attribute of a resumed model, until its next checkpoint builds upon the one it came from
TRANSIENT = (training_state.PENDING, RESUMED)  # attributes that no saved model may have


def entries(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    return sorted(
        path
        for path in folder.glob("[0-9]*")
        if path.name.isdigit() and (path / manifest.NAME).is_file()
    )


def newest(folder: Path) -> Path | None:
    return entries(folder)[-1] if entries(folder) else None


def locate(path: str | Path) -> Path:
    """What a user may point at: a folder of checkpoints, or one of them."""
    path = Path(path)
    found = path if (path / manifest.NAME).is_file() else newest(path)
    if found is None:
        raise InvalidArgument(f"no checkpoint at {path}")
    return found


def verify(entry: Path) -> dict[str, Any]:
    """The manifest of a checkpoint all of whose parts are what was written; raises DamagedCheckpoint."""
    content = manifest.read(entry)
    for name, (size, expected) in content["files"].items():
        read_checked(entry / name, size, expected)
    segments.check(entry.parent, content["arrays"])
    return content


class CheckpointStore:
    """Writes the checkpoints of one run.

    :param folder: where they are kept
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.segments = segments.SegmentWriter(self.folder)
        self.bytes_written = 0

    def save(self, model: BaseAlgorithm, counters: dict[str, Any] | None = None) -> Path:
        """Write a checkpoint of a model that is between two rollouts; when this returns, it is on the disk.

        :param counters: what else whoever resumes must know, plain values
        """
        self._clear_away()
        last = newest(self.folder)
        serial = f"{int(last.name) + 1 if last else 1:06d}"
        entry, part = self.folder / serial, self.folder / f"{serial}.part"
        part.mkdir(parents=True)
        arrays: dict[str, Any] = {}
        try:
            state, reason = training_state.capture(model)
            buffer = model.replay_buffer if isinstance(model, OffPolicyAlgorithm) else None
            steps = model.num_timesteps // model.n_envs
            self.bytes_written = 0
            if buffer is not None:
                state["buffer"] = buffer_state.capture(buffer)
                arrays, self.bytes_written = self.segments.write(buffer, steps, f"{serial}.bin")
            zipped = io.BytesIO()
            model.save(zipped, exclude=TRANSIENT)
            files = {MODEL: zipped.getvalue(), STATE: cloudpickle.dumps(state)}
            content = {
                "algorithm": type(model).__name__,
                "timesteps": model.num_timesteps,
                "total": model._total_timesteps,
                "counters": counters or {},
                "environment": reason or SAVED,
                "files": {name: [len(data), checksum(data)] for name, data in files.items()},
                "arrays": arrays,
            }
            files[manifest.NAME] = manifest.dump(content)
            self._write(
                part,
                files,
                [self.folder / segments.FOLDER / f"{serial}.bin"] if buffer is not None else [],
            )
            os.replace(part, entry)
            sync_folder(self.folder)
        except BaseException:
            if not entry.exists():  # once it has its name, it stays
                shutil.rmtree(part, ignore_errors=True)
                for name in (f"{serial}.bin", f"{serial}.bin.part"):
                    with contextlib.suppress(OSError):
                        (self.folder / segments.FOLDER / name).unlink(missing_ok=True)
            raise
        self.bytes_written += sum(map(len, files.values()))
        if buffer is not None:
            self.segments.remember(buffer, arrays, steps)
        for old in entries(self.folder)[:-KEEP]:
            discard(old)
        self._collect()
        return entry

    @staticmethod
    def _write(part: Path, files: dict[str, bytes], segment: list[Path]) -> None:
        """Write first and wait afterwards: the disk then takes all of it at once."""
        for name, data in files.items():
            (part / name).write_bytes(data)
        for path in [*segment, *(part / name for name in files)]:
            sync_file(path)
        for folder in {path.parent for path in [*segment, part / MODEL]}:
            sync_folder(folder)

    def _clear_away(self) -> None:
        """What a process left that died while it wrote."""
        for pattern in ("*.part", "*.trash"):
            for path in self.folder.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
        self._collect()

    def _collect(self) -> None:
        """Remove segments that no checkpoint needs. One that cannot be read may need any of them."""
        kept: set[str] = set()
        for entry in entries(self.folder):
            try:
                kept |= segments.segments_of(manifest.read(entry)["arrays"])
            except InvalidArgument:
                return
        for path in (self.folder / segments.FOLDER).glob("*"):
            if path.name not in kept:
                path.unlink(missing_ok=True)
