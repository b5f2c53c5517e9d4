"""Settings for small networks: number of threads of torch and numpy, and denormal numbers."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch as th
from threadpoolctl import ThreadpoolController


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Set torch's and numpy's number of threads; None keeps torch's. One is best for small tables
    and networks: several wait for each other (7 times slower on a busy machine)."""
    before = th.get_num_threads()
    th.set_num_threads(count or before)
    try:
        with numpy_threads(count or before):
            yield
    finally:
        th.set_num_threads(before)


@contextmanager
def numpy_threads(count: int) -> Iterator[None]:
    """Numpy's matrix products have at most as many threads, and no more than they had."""
    libraries = ThreadpoolController().select(user_api="blas")
    most = min([count, *(library.num_threads for library in libraries.lib_controllers)])
    with libraries.limit(limits=most):
        yield


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
