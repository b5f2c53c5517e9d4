"""What pip installs: a wheel that has everything, and an editable install that tools can see."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("setuptools", minversion="75")

ROOT = Path(__file__).parents[1]
# A folder above the clone, as `git clone` makes it: the clone has the name of the package
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE", "sb3_cpp", "configs")


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("above") / "sb3_cpp"
    folder.mkdir()
    for name in FILES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)  # type: ignore[operator]
    return folder


def build(clone: Path, kind: str) -> Path:
    """A wheel, without the isolated environment for which pip needs the internet."""
    out = clone.parent / kind
    out.mkdir()
    code = f"from setuptools import build_meta as b; b.build_{kind}({str(out)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=clone, check=True, capture_output=True)
    (file,) = out.iterdir()
    return file


def run(code: str, folder: Path, **variables: str) -> str:
    """Python in a folder, without this checkout on its path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_wheel_has_the_suites_and_the_command(clone: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(build(clone, "wheel")) as wheel:
        names = wheel.namelist()
        wheel.extractall(tmp_path / "site")
    shipped = {Path(name).name for name in names if name.startswith("sb3_cpp/configs/")}
    assert shipped == {path.name for path in (ROOT / "configs").glob("*.yml")}
    assert {"sb3_cpp/py.typed", "sb3_cpp/analysis/report.html"} <= set(names)
    source = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sb3_cpp").rglob("*.py")}
    assert source <= set(names)
    assert not [name for name in names if name.startswith(("tests", "configs", "benchmarks"))]
    (entry,) = (tmp_path / "site").glob("*.dist-info/entry_points.txt")
    assert "sb3-cpp = sb3_cpp.cli:main" in entry.read_text(encoding="utf-8")
    code = (
        "import sb3_cpp; from sb3_cpp.training.suites import suite_names, suite_of; "
        "print(sb3_cpp.__file__, *suite_names(), suite_of('CartPole-v1').name)"
    )
    (tmp_path / "empty").mkdir()
    printed = run(code, tmp_path / "empty", PYTHONPATH=str(tmp_path / "site")).split()
    assert Path(printed[0]).is_relative_to(tmp_path / "site")
    assert {"classic", "minatar", "atari"} <= set(printed[1:-1])
    assert printed[-1] == "classic"


def test_an_editable_install_is_found_from_the_folder_above_the_clone(clone: Path) -> None:
    """Type checkers, too, follow a path in a .pth file, but no import hook."""
    site = clone.parent / "site"
    with zipfile.ZipFile(build(clone, "editable")) as wheel:
        wheel.extractall(site)
    (pth,) = site.glob("*.pth")
    assert pth.read_text(encoding="utf-8").strip() == str(clone)
    code = (
        "import site, sys\n"
        # The tests' own environment may hold an editable install of another clone
        f"sys.path[:] = [path for path in sys.path if path != {str(ROOT)!r}]\n"
        f"site.addsitedir({str(site)!r})\n"
        "import sb3_cpp; print(sb3_cpp.__file__)"
    )
    assert run(code, clone.parent) == str(clone / "sb3_cpp" / "__init__.py")


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a clone")
@pytest.mark.parametrize(
    "path",
    ["runs/a", "figures/a.png", "report.html", "cartpole.gif", "a.zip"],
)
def test_what_the_commands_of_the_readme_write_is_ignored_by_git(path: str) -> None:
    command = ["git", "-C", str(ROOT), "check-ignore", "-q", path]
    assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("has_torch", [True, False])
def test_make_demo_keeps_an_installed_torch(tmp_path: Path, has_torch: bool) -> None:
    """With a python that only notes how it is called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    installed = 0 if has_torch else 1
    python.write_text(
        f'#!/bin/sh\necho "$@" >> calls\ncase "$2" in "import torch") exit {installed};; esac\n'
    )
    python.chmod(0o755)
    subprocess.run(["make", "demo"], cwd=tmp_path, check=True, capture_output=True)
    calls = (tmp_path / "calls").read_text(encoding="utf-8")
    assert "pip install --quiet -c .venv/constraints.txt -e .[analysis]" in calls
    assert "torch.__version__" in calls
    pinned = "torch==" in (tmp_path / ".venv" / "constraints.txt").read_text(encoding="utf-8")
    assert pinned is not has_torch
