"""A replay buffer on disk, incrementally: blocks of rows in segment files, of which a checkpoint adds one with what changed.

Large arrays are cut into blocks of about a megabyte. A manifest lists for every block the segment that holds it, so blocks
that did not change since the last checkpoint are not written again. What changed is known from the ring: the rows between the
two positions; where the class is not one whose rules are known, every block's checksum is compared instead. A buffer of a few
megabytes is written whole, so that no two checkpoints share a file.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer

from sb3_cpp.atari.frame_buffer import FrameReplayBuffer, NStepFrameReplayBuffer
from sb3_cpp.checkpointing.files import DamagedCheckpoint, checksum
from sb3_cpp.quick_replay import QuickReplayBuffer

BLOCK_BYTES = 2**20
SMALL = 16 * 2**20  # bytes up to which a buffer is always written whole
FOLDER = "segments"
_RINGS = (
    ReplayBuffer,
    QuickReplayBuffer,
    NStepReplayBuffer,
    DictReplayBuffer,
    FrameReplayBuffer,
    NStepFrameReplayBuffer,
)

Array = dict[
    str, Any
]  # dtype, shape, rows (in use), block_rows, blocks: [segment, offset, bytes, checksum]


def arrays_of(buffer: ReplayBuffer) -> dict[str, np.ndarray]:
    """The arrays of a buffer by name; those of dictionaries as ``name/key``."""
    found: dict[str, np.ndarray] = {}
    for name, value in vars(buffer).items():
        entries = (
            {f"{name}/{key}": entry for key, entry in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        found.update(
            {
                key: entry
                for key, entry in entries.items()
                if isinstance(entry, np.ndarray) and entry.ndim > 0
            }
        )
    return found


def _is_ring(buffer: ReplayBuffer, name: str, array: np.ndarray) -> bool:
    """Whether row i of an array belongs to transition i."""
    return type(buffer) in _RINGS and name != "frames" and len(array) == buffer.buffer_size


def rows_in_use(buffer: ReplayBuffer, name: str, array: np.ndarray) -> int:
    """Rows of an array that were ever written."""
    if name == "frames" and isinstance(buffer, FrameReplayBuffer):
        return buffer._n_used
    if buffer.full or not _is_ring(buffer, name, array):
        return len(array)
    return min(
        buffer.pos + 1, len(array)
    )  # with optimize_memory_usage the next observation lies one row further


def _rows_of(
    buffer: ReplayBuffer, name: str, array: np.ndarray, rows: np.ndarray | None
) -> np.ndarray | None:
    """Rows of one array that changed with these transitions; None if that is not known."""
    if rows is None or _is_ring(buffer, name, array):
        return rows
    return (
        np.unique(buffer.places[rows])
        if name == "frames" and isinstance(buffer, FrameReplayBuffer)
        else None
    )


class SegmentWriter:
    """Writes a buffer again and again, each time only what is new.

    :param folder: the folder of the checkpoints
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self._known: dict[str, Array] = {}
        self._ring: tuple[int, int, int] | None = None

    def remember(self, buffer: ReplayBuffer, arrays: dict[str, Array], steps: int) -> None:
        """These arrays are on the disk, as of a number of vector steps."""
        self._known, self._ring = arrays, (id(buffer), buffer.pos, steps)

    def write(self, buffer: ReplayBuffer, steps: int, name: str) -> tuple[dict[str, Array], int]:
        """Add a segment with what changed; gives the description of all arrays and the number of bytes written.

        Nobody needs the segment before a manifest names it, so it is the caller who brings it to the disk.
        """
        live = arrays_of(buffer)
        total = sum(array[: rows_in_use(buffer, key, array)].nbytes for key, array in live.items())
        whole = total <= SMALL or self._wasteful(total)
        rows = None if whole else self._changed_rows(buffer, steps)
        part = self.folder / f"{name}.part"
        self.folder.mkdir(parents=True, exist_ok=True)
        described: dict[str, Array] = {}
        with part.open("wb") as file:
            for key, array in live.items():
                used = rows_in_use(buffer, key, array)
                changed = _rows_of(buffer, key, array, rows)
                known = None if whole else self._known.get(key)
                described[key] = self._write_array(file, name, array, used, changed, known)
            written = file.tell()
        os.replace(part, self.folder / name)
        return described, written

    def _changed_rows(self, buffer: ReplayBuffer, steps: int) -> np.ndarray | None:
        """Rows written since the last checkpoint; None if that is not known."""
        if self._ring is None or type(buffer) not in _RINGS:
            return None
        identity, position, then = self._ring
        added = steps - then
        if (
            identity != id(buffer)
            or added < 0
            or (position + added) % buffer.buffer_size != buffer.pos
        ):
            return None
        if added >= buffer.buffer_size:
            return None
        # One row on either side: the last done flag may be set later, and the next observation lies one row further
        return np.arange(position - 1, position + added + 1) % buffer.buffer_size

    @staticmethod
    def _write_array(
        file: Any,
        segment: str,
        array: np.ndarray,
        used: int,
        rows: np.ndarray | None,
        known: Array | None,
    ) -> Array:
        row_bytes = max(array[:1].nbytes, 1)
        block_rows = max(BLOCK_BYTES // row_bytes, 1)
        old = (
            known["blocks"]
            if known and known["block_rows"] == block_rows and known["dtype"] == array.dtype.str
            else []
        )
        dirty = None if rows is None else set((rows // block_rows).tolist())
        blocks = []
        for number, start in enumerate(range(0, used, block_rows)):
            block = np.ascontiguousarray(array[start : min(start + block_rows, used)])
            before = old[number] if number < len(old) and old[number][2] == block.nbytes else None
            if before is not None and dirty is not None and number not in dirty:
                blocks.append(before)
                continue
            digest = checksum(block.data)
            if before is not None and before[3] == digest:
                blocks.append(before)
            else:
                blocks.append([segment, file.tell(), block.nbytes, digest])
                file.write(block.data)
        return {
            "dtype": array.dtype.str,
            "shape": list(array.shape),
            "rows": used,
            "block_rows": block_rows,
            "blocks": blocks,
        }

    def _wasteful(self, total: int) -> bool:
        """Whether most of what the segments hold is overwritten by now."""
        held = (
            sum(path.stat().st_size for path in self.folder.glob("*.bin"))
            if self.folder.is_dir()
            else 0
        )
        return held > 3 * total


def segments_of(arrays: dict[str, Array]) -> set[str]:
    """The segments a checkpoint needs."""
    return {block[0] for array in arrays.values() for block in array["blocks"]}


def check(folder: Path, arrays: dict[str, Array]) -> None:
    """Raise if a block is not what was written."""
    for array in arrays.values():
        for _ in _blocks(folder, array):
            pass


def read_into(folder: Path, array: Array, out: np.ndarray | None) -> np.ndarray:
    """An array from the disk, into a live one if that has its size and type; every block is checked."""
    shape = tuple(array["shape"])
    if out is None or out.shape != shape or out.dtype.str != array["dtype"]:
        out = np.zeros(shape, dtype=np.dtype(array["dtype"]))
    for start, data in _blocks(folder, array):
        rows = min(array["block_rows"], array["rows"] - start)
        out[start : start + rows] = np.frombuffer(data, dtype=out.dtype).reshape(rows, *shape[1:])
    return out


def _blocks(folder: Path, array: Array) -> Iterator[tuple[int, bytes]]:
    """First row and content of each block."""
    open_file: tuple[str, Any] | None = None
    try:
        for number, (segment, offset, size, expected) in enumerate(array["blocks"]):
            if open_file is None or open_file[0] != segment:
                if open_file is not None:
                    open_file[1].close()
                open_file = (segment, _open(folder / FOLDER / segment))
            open_file[1].seek(offset)
            data = open_file[1].read(size)
            if len(data) != size or checksum(data) != expected:
                raise DamagedCheckpoint(f"{segment} holds other bytes than were written")
            yield number * array["block_rows"], data
    finally:
        if open_file is not None:
            open_file[1].close()


def _open(path: Path) -> Any:
    try:
        return path.open("rb")
    except OSError as error:
        raise DamagedCheckpoint(f"{path.name} cannot be read ({error.strerror})") from None
