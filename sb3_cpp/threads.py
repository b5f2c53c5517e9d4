"""Settings for small networks: number of threads of torch and numpy, and denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch as th
from threadpoolctl import threadpool_limits


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set torch's and numpy's number of threads; None changes nothing. One is best for small tables
    and networks: several wait for each other (7 times slower on a busy machine)."""
    before = th.get_num_threads()
    th.set_num_threads(count or before)
    try:
        with numpy_threads(count):
            yield
    finally:
        th.set_num_threads(before)


def numpy_threads(count: int | None) -> threadpool_limits:
    """A context in which numpy's matrix products have at most as many threads."""
    return threadpool_limits(limits=count, user_api="blas")


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Flush denormal numbers (below 1e-38) to zero in this thread: processors need ten times as
    long for them, and Adam's moments of dead units are full of them."""
    before = bool((th.full((1,), 1e-20) * 1e-20 == 0).item())
    th.set_flush_denormal(True)
    try:
        yield
    finally:
        th.set_flush_denormal(before)
