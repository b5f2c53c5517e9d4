"""Every Python block and every command of the README and the pages runs as it is written.

Blocks of one page run in order in one folder, as a reader would type them; a command that ends in
``&`` runs beside those after it. A comment above a block shortens or excuses it:
``<!-- test: 50_000 => 300 | -n 20000 => -n 300 -->`` replaces text that must be there,
``<!-- test: skip, reason -->`` leaves the block out, ``slow`` moves the page to the slow tier,
``file name`` writes the block to a file. Commands that are left out are still parsed.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from sb3_cpp import cli

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(
    r"(?:^<!-- test: (?P<marker>[^\n]*) -->\n)?"
    r"^```(?P<language>python|bash|yaml)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    language: str
    text: str
    skip: str
    slow: bool
    file: str = ""


def read_marker(marker: str, text: str, language: str = "python") -> Block:
    """The block as it is run: shortened, left out, in the slow tier, or written to a file."""
    skip, slow, file = "", False, ""
    for word in filter(None, (word.strip() for word in marker.split("|"))):
        if word.startswith("skip,"):
            skip = word.removeprefix("skip,").strip()
        elif word == "slow":
            slow = True
        elif word.startswith("file "):
            file = word.removeprefix("file ")
        else:
            old, new = word.split(" => ")
            assert old in text, f"{old!r} of the marker is not in the block"
            text = text.replace(old, new)
    if language == "yaml" and not file:
        skip = "an example of a format"
    return Block(language, text, skip, slow, file)


def blocks_of(page: str) -> list[Block]:
    return [
        read_marker(match["marker"] or "", match["text"], match["language"])
        for match in BLOCK.finditer(page)
    ]


def commands_of(text: str) -> list[list[str]]:
    lines = text.replace("\\\n", " ").splitlines()
    return [command for line in lines if (command := shlex.split(line, comments=True))]


def start_in_background(command: list[str]) -> subprocess.Popen[bytes]:
    """For ``dask scheduler &``; the caller ends it."""
    program, *arguments = command
    assert program == "dask", f"{program}: run it, or say in a marker why not"
    return subprocess.Popen([sys.executable, "-m", "dask", *arguments[:-1]])


def run_command(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program, *arguments = command
    if program == "python":
        subprocess.run([sys.executable, *arguments], check=True, timeout=120)
        return
    assert program == "sb3-cpp", f"{program}: run it, or say in a marker why not"
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code, shlex.join(command)


PAGES = {
    path.relative_to(ROOT).as_posix(): blocks_of(path.read_text(encoding="utf-8"))
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
}


@pytest.fixture
def background() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test, the last one first."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in reversed(started):
        process.terminate()
        process.wait(timeout=30)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if any(b.slow for b in blocks) else [])
        for name, blocks in PAGES.items()
        if any(not block.skip for block in blocks)
    ],
)
def test_blocks_of_a_page_run(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    background: list[subprocess.Popen[bytes]],
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("benchmarks", "configs", "examples"):  # as in a clone
        (tmp_path / folder).symlink_to(ROOT / folder)
    for block in PAGES[name]:
        if block.skip:
            continue
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, name, "exec"), {"__name__": "__main__"})
        else:
            for command in commands_of(block.text):
                if command[-1] == "&":
                    background.append(start_in_background(command))
                else:
                    run_command(command, monkeypatch)
    # What a command leaves in a reader's clone must be something that git ignores
    left = {path.name for path in tmp_path.iterdir() if not path.is_symlink()}
    files = {block.file for block in PAGES[name]}
    ignored = {"runs", "__pycache__"} | {path for path in left if path.endswith(".pt")}
    assert left - files <= ignored


def test_markers_shorten_and_excuse_blocks() -> None:
    page = (
        "<!-- test: 50_000 => 300 | slow -->\n```python\nlearn(50_000)\n```\n\n"
        "<!-- test: skip, needs a cluster -->\n```bash\ndask worker\n```\n"
        "```bash\nsb3-cpp train \\\n  -n 5  # short\n```\n"
        "<!-- test: file a.yml -->\n```yaml\nenvs: {}\n```\n"
    )
    python, dask, train, suite = blocks_of(page)
    assert (suite.file, suite.text) == ("a.yml", "envs: {}\n")
    assert (python.text, python.slow) == ("learn(300)\n", True)
    assert dask.skip == "needs a cluster"
    assert commands_of(train.text) == [["sb3-cpp", "train", "-n", "5"]]


def test_a_marker_that_fits_nothing_is_an_error() -> None:
    with pytest.raises(AssertionError, match="is not in the block"):
        blocks_of("<!-- test: 60_000 => 300 -->\n```python\nlearn(50_000)\n```\n")


def test_a_command_that_fails_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="no-such-command"):
        run_command(["sb3-cpp", "no-such-command"], monkeypatch)


def test_an_unknown_program_needs_an_excuse(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="say in a marker"):
        run_command(["dask", "worker"], monkeypatch)


class Parsed(Exception):
    """The arguments were accepted; nothing is run."""


def parse_command(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise if the present command line does not know a command or one of its arguments."""

    def parse(parser: cli.CommandLine) -> None:
        parser.parse_args(parser.arguments)
        raise Parsed

    monkeypatch.setattr(cli.CommandLine, "parse", parse)
    name, *rest = arguments
    with pytest.raises(Parsed):
        cli.COMMANDS[name](cli.CommandLine(rest))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(command[1:], id=f"{name}: {shlex.join(command[1:])}")
        for name, blocks in PAGES.items()
        for block in blocks
        if block.skip and block.language == "bash"
        for command in commands_of(block.text)
        if command[0] == "sb3-cpp"
    ],
)
def test_commands_that_are_not_run_are_at_least_understood(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_command(command, monkeypatch)


def test_a_command_with_an_unknown_argument_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        parse_command(["results", "runs", "--no-such-flag"], monkeypatch)


@pytest.mark.parametrize("name", PAGES)
def test_commands_within_sentences_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"`sb3-cpp ([a-z]+)", text))
    assert named <= set(cli.COMMANDS)


def test_only_installing_and_what_has_its_own_test_is_left_out_of_readme_and_guide() -> None:
    left_out = {
        (name, block.skip)
        for name, blocks in PAGES.items()
        if name == "README.md" or name.startswith("docs/guide/")
        for block in blocks
        if block.skip and block.language != "yaml"
    }
    assert left_out == {
        ("README.md", "both have tests of their own"),
        ("README.md", "changes the environment"),
        ("docs/guide/install.md", "changes the environment"),
    }


@pytest.mark.parametrize("name", PAGES)
def test_no_block_escapes_because_of_the_name_of_its_language(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    fences = re.findall(r"^\s*(?:```|~~~)(.*)$", text, re.MULTILINE)[::2]
    others = {"text"} | {fence for fence in fences if fence.startswith("{")}
    assert set(fences) <= {"python", "bash", "yaml"} | others
    # An indented block would not be found
    assert len(BLOCK.findall(text)) == sum(fence in ("python", "bash", "yaml") for fence in fences)
