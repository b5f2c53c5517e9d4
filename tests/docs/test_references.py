"""Every relative link, anchor and file name in the documentation exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# A path from the root of the repository, in backticks or as the program of a command
FILE = re.compile(
    r"(?:`|python )"
    r"((?:configs|docs|examples|results|scripts|sb3_cpp|tests|benchmarks)/[\w./*{},-]+)"
)
# A method of a class that a page shows
CODE = re.compile(r"\{literalinclude\} (\S+)\n:pyobject: \w+\.(\w+)")
ENVIRONMENT = re.compile(r"-v\d+$")  # sb3_cpp/DangerGridworld-v0 is no file


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def broken_references(root: Path, name: str) -> list[str]:
    """What the page names and is not there, in the order of the page."""
    page = root / name
    text = page.read_text(encoding="utf-8")
    broken = []
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(link)
    for reference in FILE.findall(text):
        if not (ENVIRONMENT.search(reference) or any(root.glob(reference.rstrip(".,")))):
            broken.append(reference)
    for file, method in CODE.findall(text):
        source = page.parent / file
        if not (source.exists() and f"    def {method}(" in source.read_text("utf-8")):
            broken.append(f"{file}: {method}")
    return broken


@pytest.mark.parametrize("name", PAGES)
def test_every_reference_of_a_page_exists(name: str) -> None:
    assert broken_references(ROOT, name) == []


def test_missing_files_anchors_and_programs_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A heading: one\n", encoding="utf-8")
    (tmp_path / "code.py").write_text("class A:\n    def here(self): ...\n", encoding="utf-8")
    (tmp_path / "page.md").write_text(
        "[a](other.md) [b](other.md#a-heading-one) [c](missing.md) [d](other.md#two)\n"
        "`configs/missing.yml` `sb3_cpp/DangerGridworld-v0`\n"
        "```bash\npython scripts/missing.py\n```\n"
        "```{literalinclude} code.py\n:pyobject: A.gone\n```\n",
        encoding="utf-8",
    )
    assert broken_references(tmp_path, "page.md") == [
        "missing.md",
        "other.md#two",
        "configs/missing.yml",
        "scripts/missing.py",
        "code.py: gone",
    ]


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 250


def test_the_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme
