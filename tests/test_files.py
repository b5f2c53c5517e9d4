"""Files are written whole or not at all, and errors of the system name the path."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from sb3_cpp import files


def test_bytes_text_and_other_writers(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "a.bin", b"\x00\r\n")
    files.write_text(tmp_path / "b.txt", "é\n", durable=False)
    files.write_with(tmp_path / "c.npz", lambda part: np.savez(part, x=[1.0]))
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\r\n"
    assert (tmp_path / "b.txt").read_bytes() == "é\n".encode()
    assert np.load(tmp_path / "c.npz")["x"].tolist() == [1.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "b.txt", "c.npz"]


def test_an_interrupted_write_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    files.write_text(path, "old")

    def interrupted(part: Path) -> None:
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_with(path, interrupted)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_leftover_part_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "config.yml"
    files.part_of(path).write_text("half")
    assert files.is_part(files.part_of(path))
    assert not files.is_part(path)
    files.write_text(path, "whole")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES])
def test_errors_of_the_system_name_the_path(tmp_path: Path, reason: int) -> None:
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def fail(part: Path) -> None:
        part.write_text("half")
        raise OSError(reason, os.strerror(reason))

    with pytest.raises(OSError, match=f"could not write .*a.txt: {os.strerror(reason)}") as caught:
        files.write_with(path, fail)
    assert caught.value.errno == reason
    assert path.read_text() == "old"
    with pytest.raises(OSError, match=r"could not write .*missing.*b.txt: No such file"):
        files.write_text(tmp_path / "missing" / "b.txt", "")
