"""One torch thread for every test, and a temporary folder that is removed at the end."""

import shutil
import tempfile
from collections.abc import Iterator
from multiprocessing.util import Finalize

import pytest
import torch as th

th.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """SB3's logger (one folder per ``learn``), multiprocessing, torch and Dask, here and in child
    processes, write into a folder that is removed. Its name is short: sockets lie in it."""
    tmp_path_factory.getbasetemp()  # outside of it: folders of failed tests are kept
    folder = tempfile.mkdtemp(prefix="sb3_cpp_")
    # At exit, after multiprocessing has removed its own folder there (priority -100)
    Finalize(None, shutil.rmtree, (folder, True), exitpriority=-101)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
