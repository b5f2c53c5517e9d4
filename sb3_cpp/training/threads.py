"""How torch computes: with how many threads, and with how small numbers."""

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


@contextmanager
def tiny_numbers_as_zero() -> Iterator[None]:
    """Inside, this thread computes with 0 instead of numbers below 1e-38, with which processors take ten times as long: an
    optimiser that remembers the gradients of dead units has many of them."""
    before = bool((th.full((1,), 1e-20) * 1e-20 == 0).item())
    th.set_flush_denormal(True)
    try:
        yield
    finally:
        th.set_flush_denormal(before)
