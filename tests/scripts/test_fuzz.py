"""Hundreds of malformed command lines and YAML files: one line, exit code 2, no file changed."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sb3_cpp.training import run
from tests.scripts.malformed import commands
from tests.scripts.processes import ROOT, Script


class Accepted(Exception):
    """Training would begin: the input is not malformed."""


def mutations(folder: Path, n: int) -> Iterator[list[str]]:
    """A suite of this package with some characters changed, cut out or repeated."""
    rng = np.random.default_rng(0)
    original = (ROOT / "configs" / "classic.yml").read_text(encoding="utf-8")
    for number in range(n):
        text = original
        for _ in range(rng.integers(1, 6)):
            at = int(rng.integers(0, len(text)))
            text = (
                text[:at]
                + str(rng.choice(list("{}[]:,#-&*!|>'\"%@` \n\tx0")))
                + text[at + int(rng.integers(0, 4)) :]
            )
        (folder / f"mutation{number}.yml").write_text(text, encoding="utf-8")
        yield ["train", "--env", "CartPole-v1", "-n", "10", "--suite", f"mutation{number}.yml"]


def garbage(folder: Path) -> None:
    """Files and folders that are not what they seem."""
    (folder / "text.txt").write_text("text")
    (folder / "text.zip").write_text("text")
    (folder / "empty.zip").write_bytes(b"")
    for name, config in {
        "garbage": "text",
        "damaged": "config: {suite: a, algo: cpp, env: CartPole-v1}",
    }.items():
        (folder / name).mkdir()
        (folder / name / "config.yml").write_text(config)
        (folder / name / "model.zip").write_bytes(b"PK\x03\x04 nonsense")


def snapshot(folder: Path) -> dict[str, Any]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def run_here(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    folders = (ROOT / "scripts", ROOT / "benchmarks")
    path = next(
        str(f / f"{arguments[0]}.py") for f in folders if (f / f"{arguments[0]}.py").exists()
    )
    monkeypatch.setattr(sys, "argv", [path, *arguments[1:]])
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        return end.code
    except Accepted:
        return "accepted"
    return "no exit"


@pytest.mark.slow
def test_malformed_input_is_answered_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("optuna", "gymnasium"):
        pytest.importorskip(module)

    def accept(*args: Any, **kwargs: Any) -> None:
        raise Accepted

    monkeypatch.setattr(run, "_Run", accept)
    monkeypatch.chdir(tmp_path)
    garbage(tmp_path)
    certain, mutated = list(commands(tmp_path)), list(mutations(tmp_path, 120))
    before, refused, wrong = snapshot(tmp_path), 0, []
    for number, arguments in enumerate([*certain, *mutated]):
        try:
            code = run_here(arguments, monkeypatch)
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
        err = capsys.readouterr().err
        after = snapshot(tmp_path)
        if code == "accepted" and number >= len(certain):
            before = after
            continue
        refused += 1
        if code != 2 or len(err.strip().splitlines()) != 1 or "Traceback" in err or after != before:
            changed = sorted(set(after.items()) ^ set(before.items()))[:2]
            wrong.append((arguments, code, err[-300:], changed))
            before = after
    assert not wrong, f"{len(wrong)} of {refused}:\n" + "\n".join(map(str, wrong))
    assert refused >= 500, refused


SAMPLE = [
    ["train", "--env", "CartPole-v1", "-n", "10", "-params", "batch_size:many"],
    ["train", "--suite", "bad.yml"],
    ["enjoy", "--run", "garbage"],
    ["tune", "--trials", "1", "-params", "gamma:2"],
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", SAMPLE, ids=" ".join)
def test_malformed_input_of_a_real_process_is_answered_with_one_line(
    script: Script, tmp_path: Path, arguments: list[str]
) -> None:
    garbage(tmp_path)
    (tmp_path / "bad.yml").write_text("shared: &a [*a]")
    before = snapshot(tmp_path)
    done = script.run(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert snapshot(tmp_path) == before
