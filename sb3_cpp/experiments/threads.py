"""How many threads torch may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch as th


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses this many threads; None leaves it as it is."""
    before = th.get_num_threads()
    th.set_num_threads(count or before)
    try:
        yield
    finally:
        th.set_num_threads(before)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Inside, torch uses one thread: with small tables, more of them only wait for each other (7 times longer if busy)."""
    with torch_threads(1):
        yield
