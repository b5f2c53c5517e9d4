"""A replay buffer as its arrays, which go to segments, and a small rest, which is pickled."""

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np
from stable_baselines3.common.buffers import ReplayBuffer

from sb3_cpp.checkpointing.segments import arrays_of
from sb3_cpp.checks import InvalidArgument

_ITSELF = "itself"


class _Pickler(cloudpickle.Pickler):
    """Writes arrays as their names; a part that knows its buffer (a frame buffer's stacks) refers to it."""

    def __init__(self, file: io.BytesIO, buffer: ReplayBuffer) -> None:
        super().__init__(file)
        self._names: dict[int, Any] = {
            id(array): ("array", name) for name, array in arrays_of(buffer).items()
        }
        self._names[id(buffer)] = _ITSELF

    def persistent_id(self, value: Any) -> Any:
        return self._names.get(id(value))


class _Unpickler(pickle.Unpickler):
    def __init__(
        self, file: io.BytesIO, buffer: ReplayBuffer, arrays: dict[str, np.ndarray]
    ) -> None:
        super().__init__(file)
        self._buffer, self._arrays = buffer, arrays

    def persistent_load(self, name: Any) -> Any:
        return self._buffer if name == _ITSELF else self._arrays[name[1]]


def capture(buffer: ReplayBuffer) -> bytes:
    """Everything but the arrays (and but the environment that a hindsight buffer knows)."""
    file = io.BytesIO()
    _Pickler(file, buffer).dump(
        (type(buffer).__qualname__, {k: v for k, v in vars(buffer).items() if k != "env"})
    )
    return file.getvalue()


def restore(buffer: ReplayBuffer, saved: bytes, arrays: dict[str, np.ndarray]) -> None:
    """Put a saved state, whose arrays are read already, into a buffer of the same class."""
    name, state = _Unpickler(io.BytesIO(saved), buffer, arrays).load()
    if name != type(buffer).__qualname__:
        raise InvalidArgument(
            f"replay_buffer_class must be {name}, got {type(buffer).__qualname__}"
        )
    vars(buffer).update({**state, "device": buffer.device})
