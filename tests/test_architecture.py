"""Who may know whom in the package, how large a file may be, and how deep the classes are."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stable_baselines3 import DQN

import sb3_cpp

PACKAGE = Path(sb3_cpp.__file__).parent
LARGEST_FILE = 28_000  # bytes
LARGER = {"deep/base.py"}  # to be split

# Room (top-level module or folder of the package) -> the rooms it may import. Every import counts:
# one inside a function or under TYPE_CHECKING makes a file depend on the other just as well.
MAY_IMPORT: dict[str, set[str]] = {
    # The formulas and the tools know nobody above them
    "version": set(),
    "checks": set(),
    "threads": set(),
    "quick_replay": set(),
    "regularization": {"checks"},
    "coefficients": {"checks"},
    "metrics": {"checks"},
    "files": {"checks"},
    "run_folder": {"checks", "files", "version"},
    # Both know SB3, and no learner of ours
    "atari": {"checks", "quick_replay"},
    "checkpointing": {"checks", "files"},
    # The learners
    "tabular": {"checks", "coefficients", "regularization"},
    "linear": {"checks", "coefficients", "regularization", "tabular"},
    # atari: the default replay buffer of stacked frames
    "deep": {"atari", "checks", "checkpointing", "coefficients", "regularization", "threads"},
    "callbacks": {"checks", "deep", "files"},
    "__init__": {"callbacks", "checkpointing", "deep", "linear", "tabular", "version"},
    # Analysis reads run folders and never a learner
    "analysis": {"checks", "files", "metrics", "run_folder", "version"},
}
# In these no string may name a module either: a move would break it without a word
CORE = set(MAY_IMPORT)
# Programs over the library
MAY_IMPORT |= {
    "studies": CORE - {"atari", "callbacks", "checkpointing", "deep", "__init__"},
    "training": CORE,
    "zoo": {"__init__", "checks", "training"},
    "cli": CORE | {"studies", "training"},
}


def room_of(file: Path, package: Path) -> str:
    return file.relative_to(package).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, file: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name, without ``sb3_cpp.``, of everything imported from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # A relative import starts from the file's folder, one folder up for each further dot
            parent = file.parents[node.level - 1] if node.level else package.parent
            start = parent.relative_to(package.parent).parts if node.level else ()
            module = ".".join((*start, *(node.module or "").split("."))).strip(".")
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            if top == package.name:
                yield node.lineno, rest


def named_modules(tree: ast.AST, name: str) -> Iterator[tuple[int, str]]:
    """Line and text of the strings that name a module of the package.

    Docstrings and the messages of errors are prose for readers and do not count.
    """
    prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            prose |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in prose or not isinstance(node, ast.Constant):
            continue
        if isinstance(node.value, str) and re.search(rf"\b{name}\.[a-z_]", node.value):
            yield node.lineno, node.value


def violations(package: Path) -> list[str]:
    """What breaks the direction of imports in a package, one line each."""
    found = []
    for file in sorted(package.rglob("*.py")):
        room, where = room_of(file, package), file.relative_to(package)
        tree = ast.parse(file.read_text())
        if room not in MAY_IMPORT:
            found.append(f"{where}: the room {room} has no entry in MAY_IMPORT")
            continue
        for line, module in imported_modules(tree, file, package):
            other = module.partition(".")[0]
            # `from sb3_cpp import ALGORITHMS` and `import sb3_cpp` import __init__
            if other not in MAY_IMPORT:
                is_module = (package / other).is_dir() or (package / f"{other}.py").exists()
                other = other if other and is_module else "__init__"
            if other != room and other not in MAY_IMPORT[room]:
                found.append(f"{where}:{line}: {room} may not import {other}")
        if room in CORE:
            for line, text in named_modules(tree, package.name):
                found.append(f"{where}:{line}: names a module as a string, {text!r}")
    return found


def test_imports_go_in_one_direction():
    assert violations(PACKAGE) == []


def test_no_two_rooms_import_each_other():
    """Whatever the table allows: following it never leads back to where one started."""

    def reachable(room: str) -> set[str]:
        seen: set[str] = set()
        ahead = [*MAY_IMPORT[room]]
        while ahead:
            other = ahead.pop()
            if other not in seen:
                seen.add(other)
                ahead += MAY_IMPORT[other]
        return seen

    assert [room for room in MAY_IMPORT if room in reachable(room)] == []


FORGED = {
    "an import": ("deep/a.py", "import sb3_cpp.training.grid", "deep may not import training"),
    "a from-import": (
        "metrics/a.py",
        "from sb3_cpp.deep.base import RegularizedDQN",
        "metrics may not import deep",
    ),
    "a module of the package": (
        "checks.py",
        "from sb3_cpp import files",
        "checks may not import files",
    ),
    "a name of __init__": (
        "deep/a.py",
        "from sb3_cpp import ALGORITHMS",
        "deep may not import __init__",
    ),
    "the package": ("analysis/a.py", "import sb3_cpp", "analysis may not import __init__"),
    "inside a function": (
        "analysis/a.py",
        "def f():\n    from sb3_cpp.training import run",
        "analysis may not import training",
    ),
    "for type checkers": (
        "checkpointing/a.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sb3_cpp.deep import x",
        "checkpointing may not import deep",
    ),
    "relative": ("deep/a.py", "from ..training import run", "deep may not import training"),
    "relative, deeper": (
        "analysis/plots/a.py",
        "from ...deep.base import x",
        "analysis may not import deep",
    ),
    "a string": (
        "deep/a.py",
        "QUICK = {'sb3_cpp.training.minatar:Encoder'}",
        "names a module as a string",
    ),
    "a string with values": (
        "coefficients.py",
        "name = 'x'\nmodule = f'sb3_cpp.deep.{name}'",
        "names a module as a string",
    ),
    "a new room": ("utils.py", "", "the room utils has no entry"),
}


def forge(folder: Path, name: str, code: str) -> Path:
    package = folder / "sb3_cpp"
    for file in (package / "files.py", package / "deep" / "base.py", package / name):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    (package / name).write_text(code)
    return package


@pytest.mark.parametrize("kind", FORGED)
def test_a_wrong_direction_is_found(tmp_path, kind):
    name, code, message = FORGED[kind]
    found = violations(forge(tmp_path, name, code))
    assert len(found) == 1
    assert found[0].startswith(name)
    assert message in found[0]


@pytest.mark.parametrize(
    "code",
    [
        '"""See :mod:`sb3_cpp.training.run`."""',
        "from sb3_cpp.regularization import entropy",
        "from . import base",
        "import sb3_cpp_other.training",
        "raise ValueError('policy must be a subclass of sb3_cpp.deep.base.Policy')",
        "ours = 'x'.startswith('sb3_cpp.')",
    ],
)
def test_what_is_allowed_is_not_reported(tmp_path, code):
    assert violations(forge(tmp_path, "deep/a.py", code)) == []


def test_no_file_is_too_large():
    sizes = {str(f.relative_to(PACKAGE)): f.stat().st_size for f in PACKAGE.rglob("*.py")}
    assert {name for name, size in sizes.items() if size > LARGEST_FILE} <= LARGER


@pytest.mark.parametrize("name", ["cpp", "cmdqn", "mdqn", "cvi", "modqn", "cpi"])
def test_few_classes_stand_between_an_algorithm_and_dqn(name):
    """DeepCPP -> RegularizedDQN -> DQN; one more for a variant of another algorithm."""
    algorithm = sb3_cpp.ALGORITHMS[name]
    between = algorithm.__mro__[1 : algorithm.__mro__.index(DQN)]
    assert len(between) <= (2 if name in ("cmdqn", "modqn", "cpi") else 1)


def test_import_loads_no_library_that_only_some_commands_need():
    """scipy, matplotlib, pandas and Pillow take longer to load than the rest of the package."""
    code = (
        "import sys, sb3_cpp\n"
        "print(*{'scipy', 'matplotlib', 'pandas', 'PIL'} & set(sys.modules), sep=' ')"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
