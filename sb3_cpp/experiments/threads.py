"""How many threads torch may use."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch as th


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Inside, torch uses one thread: with small tables, more of them only wait for each other (7 times longer if busy)."""
    before = th.get_num_threads()
    th.set_num_threads(1)
    try:
        yield
    finally:
        th.set_num_threads(before)
