"""A replay buffer in a checkpoint: large arrays in segment files, of which each checkpoint adds one
with what changed; the small rest pickled.

Arrays are cut into blocks of about a megabyte. A manifest lists for every block the segment that
holds it, so unchanged blocks are not written again. Of SB3's buffers, and of those that implement
:class:`IncrementalBuffer`, it is known which rows changed; of others, every block's checksum is
compared. A buffer of a few megabytes is written whole, so that no two checkpoints share a file.
"""

import hashlib
import io
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import cloudpickle
import numpy as np
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_cpp.checks import InvalidArgument

BLOCK_BYTES = 2**20
SMALL = 16 * 2**20  # bytes up to which a buffer is always written whole
FOLDER = "segments"
_ITSELF = "itself"

# dtype, shape, rows (in use), block_rows, blocks: [segment, offset, bytes, checksum]
Array = dict[str, Any]


class DamagedCheckpoint(InvalidArgument):
    """A checkpoint whose content is not what was written."""


def checksum(data: Any) -> str:
    """Of bytes, or of a contiguous array."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@runtime_checkable
class IncrementalBuffer(Protocol):
    """A replay buffer with its own storage that says which rows of its arrays are new."""

    def rows_in_use(self, name: str) -> int:
        """Rows of an array that were ever written."""

    def rows_changed(self, name: str, transitions: np.ndarray) -> np.ndarray | None:
        """Rows of an array that adding these transitions changed; None if that is not known."""


@dataclass(frozen=True)
class SavedBuffer:
    """What of a buffer is on the disk."""

    arrays: dict[str, Array]  # descriptions by name
    buffer_id: int  # id() of the buffer
    position: int  # its pos when it was written
    steps: int  # of the vector environment until then

    def transitions_until(self, buffer: ReplayBuffer, steps: int) -> np.ndarray | None:
        """Ring positions written since then; None if that is not known."""
        added, size = steps - self.steps, buffer.buffer_size
        # Another buffer, a lap or more since then, or a buffer that was filled by other means than
        # steps: checksums have to tell what changed.
        if self.buffer_id != id(buffer) or not 0 <= added < size:
            return None
        if (self.position + added) % size != buffer.pos:
            return None
        # One more on either side: the last done flag may be set later, and optimize_memory_usage
        # stores the next observation one row further.
        return np.arange(self.position - 1, self.position + added + 1) % size


def arrays_of(buffer: ReplayBuffer) -> dict[str, np.ndarray]:
    """The arrays of numbers of a buffer by name; those of dictionaries as ``name/key``."""
    values: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        if isinstance(value, dict):
            values.update({f"{name}/{key}": entry for key, entry in value.items()})
        else:
            values[name] = value
    arrays = {k: v for k, v in values.items() if isinstance(v, np.ndarray) and v.ndim > 0}
    # arrays of Python objects have no bytes of their own to write; they are pickled with the rest
    return {k: v for k, v in arrays.items() if not v.dtype.hasobject}


def rows_in_use(buffer: ReplayBuffer, name: str, array: np.ndarray) -> int:
    """Rows of an array that were ever written."""
    if isinstance(buffer, IncrementalBuffer):
        return buffer.rows_in_use(name)
    if buffer.full or not _is_ring(buffer, name):
        return len(array)
    return min(buffer.pos + 1, len(array))  # + 1: see transitions_until


def _is_ring(buffer: ReplayBuffer, name: str) -> bool:
    """Whether row i of an array is transition i: SB3's own arrays, filled by SB3's own ``add``."""
    rows = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
    # a subclass with its own add() may write anywhere
    known = type(buffer).add in (ReplayBuffer.add, DictReplayBuffer.add)
    return known and name.partition("/")[0] in rows


def _rows_changed(
    buffer: ReplayBuffer, name: str, transitions: np.ndarray | None
) -> np.ndarray | None:
    if transitions is None:
        return None
    if isinstance(buffer, IncrementalBuffer):
        return buffer.rows_changed(name, transitions)
    return transitions if _is_ring(buffer, name) else None


# --- writing --------------------------------------------------------------------------------------


def write(
    folder: Path, segment: str, buffer: ReplayBuffer, steps: int, before: SavedBuffer | None = None
) -> tuple[SavedBuffer, int]:
    """Add a segment with what changed since ``before`` was written.

    It is not flushed to the disk: it is needed only when a manifest names it.

    :param steps: steps of the vector environment so far
    :return: what is on the disk now, and the bytes written
    """
    live = arrays_of(buffer)
    used = {name: rows_in_use(buffer, name, array) for name, array in live.items()}
    total = sum(array[: used[name]].nbytes for name, array in live.items())
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    held = sum(path.stat().st_size for path in (folder / FOLDER).glob("*.bin"))
    # Written whole if small, or if most of what the segments hold was overwritten since: that
    # bounds the disk space, as compaction does in a log-structured store.
    if total <= SMALL or held > 3 * total:
        before = None
    transitions = None if before is None else before.transitions_until(buffer, steps)
    arrays: dict[str, Array] = {}
    with (folder / FOLDER / segment).open("wb") as file:
        for name, array in live.items():
            changed = _rows_changed(buffer, name, transitions)
            known = None if before is None else before.arrays.get(name)
            arrays[name] = _write_array(file, segment, array[: used[name]], changed, known)
            arrays[name]["shape"] = list(array.shape)
        written = file.tell()
    return SavedBuffer(arrays, id(buffer), buffer.pos, steps), written


def _write_array(
    file: Any, segment: str, array: np.ndarray, changed: np.ndarray | None, known: Array | None
) -> Array:
    block_rows = max(BLOCK_BYTES // max(array[:1].nbytes, 1), 1)
    described = {"dtype": array.dtype.str, "rows": len(array), "block_rows": block_rows}
    # a block of other rows (a buffer of another size) has nothing to do with the one on the disk
    fits = known is not None and all(known[k] == described[k] for k in ("dtype", "block_rows"))
    old = known["blocks"] if known is not None and fits else []
    dirty = None if changed is None else set((changed // block_rows).tolist())
    blocks = []
    for number, start in enumerate(range(0, len(array), block_rows)):
        block = np.ascontiguousarray(array[start : start + block_rows])
        before = old[number] if number < len(old) and old[number][2] == block.nbytes else None
        if before is not None and dirty is not None and number not in dirty:
            blocks.append(before)
            continue
        digest = checksum(block.data)
        # of equal content, the block on the disk does; so a row written twice costs nothing
        if before is None or before[3] != digest:
            before = [segment, file.tell(), block.nbytes, digest]
            file.write(block.data)
        blocks.append(before)
    return {**described, "blocks": blocks}


# --- reading --------------------------------------------------------------------------------------


def segments_of(arrays: dict[str, Array]) -> set[str]:
    """The segments a checkpoint needs."""
    return {block[0] for array in arrays.values() for block in array["blocks"]}


def check(folder: Path, arrays: dict[str, Array]) -> None:
    """Raise :class:`DamagedCheckpoint` if a block is not what was written."""
    for array in arrays.values():
        for _ in _read_blocks(folder, array):  # which raises
            pass


def read(
    folder: Path, arrays: dict[str, Array], live: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Read arrays, checking every block; into those of ``live`` where shape and dtype agree."""
    # in place: a buffer of 7 GB would not fit the memory twice
    result = {}
    for name, array in arrays.items():
        shape, out = tuple(array["shape"]), live.get(name)
        if out is None or out.shape != shape or out.dtype.str != array["dtype"]:
            out = np.zeros(shape, dtype=np.dtype(array["dtype"]))
        for start, data in _read_blocks(folder, array):
            rows = min(array["block_rows"], array["rows"] - start)
            block = np.frombuffer(data, dtype=out.dtype)
            out[start : start + rows] = block.reshape(rows, *shape[1:])
        result[name] = out
    return result


def _read_blocks(folder: Path, array: Array) -> Iterator[tuple[int, bytes]]:
    """First row and content of each block."""
    # neighbouring blocks are mostly of one segment, so a file stays open until another is needed
    name, file = None, None
    try:
        for number, (segment, offset, size, expected) in enumerate(array["blocks"]):
            if segment != name:
                if file is not None:
                    file.close()
                name, file = segment, (folder / FOLDER / segment).open("rb")
            assert file is not None
            file.seek(offset)
            data = file.read(size)
            if len(data) != size or checksum(data) != expected:
                raise DamagedCheckpoint(f"{segment} holds other bytes than were written")
            yield number * array["block_rows"], data
    except OSError as error:
        raise DamagedCheckpoint(f"{name} cannot be read ({error.strerror})") from None
    finally:
        if file is not None:
            file.close()


# --- everything but the arrays --------------------------------------------------------------------


def capture(buffer: ReplayBuffer) -> bytes:
    """The buffer without its arrays, and without the environment that a hindsight buffer knows."""
    state = {name: value for name, value in vars(buffer).items() if name != "env"}
    names: dict[int, Any] = {id(array): ("array", n) for n, array in arrays_of(buffer).items()}
    names[id(buffer)] = _ITSELF  # a frame buffer's stacks refer to it
    return pickle_with_references((type(buffer).__qualname__, state), names)


def restore(buffer: ReplayBuffer, saved: bytes, arrays: dict[str, np.ndarray]) -> None:
    """Put a saved state and its arrays into a buffer of the same class."""
    known: dict[Any, Any] = {("array", n): array for n, array in arrays.items()}
    name, state = unpickle_with_references(saved, {**known, _ITSELF: buffer})
    if name != type(buffer).__qualname__:
        given = type(buffer).__qualname__
        raise InvalidArgument(f"replay_buffer_class must be {name}, got {given}")
    # the run may be resumed on another device than it was saved on
    vars(buffer).update({**state, "device": buffer.device})


# --- pickles that refer to objects outside themselves ---------------------------------------------


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, keys: dict[int, Any]) -> None:
        super().__init__(file)
        self._keys = keys

    def persistent_id(self, value: Any) -> Any:
        return self._keys.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, objects: Mapping[Any, Any]) -> None:
        super().__init__(file)
        self._objects = objects

    def persistent_load(self, key: Any) -> Any:
        return self._objects[key]


def pickle_with_references(value: Any, keys: dict[int, Any]) -> bytes:
    """Pickle a value, but write the objects whose ``id`` is in ``keys`` as their keys."""
    file = io.BytesIO()
    _Pickler(file, keys).dump(value)
    return file.getvalue()


def unpickle_with_references(data: bytes, objects: Mapping[Any, Any]) -> Any:
    """The value, with the given objects in the places of their keys."""
    return _Unpickler(io.BytesIO(data), objects).load()
