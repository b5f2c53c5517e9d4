"""The documentation site builds without a warning, and no link inside it is broken."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]


def broken_links(site: Path) -> list[str]:
    """Links of all pages to files or anchors that the site does not have."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        for link in map(
            unescape, re.findall(r'<(?:a|img|link)\b[^>]*\b(?:href|src)="([^"]+)"', text)
        ):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name.partition("?")[0])).resolve() if name else path
            if not target.exists() or (
                anchor and target in anchors and anchor not in anchors[target]
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    return broken


@pytest.mark.slow
def test_site_builds_without_warnings_and_broken_links(tmp_path: Path) -> None:
    site = tmp_path / "site"
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run(
        [*build, "-d", str(tmp_path / "doctrees"), str(ROOT / "docs"), str(site)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "DeepCPP" in (site / "algorithms" / "deepcpp.html").read_text("utf-8")
    assert broken_links(site) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x">b</a><a href="c.html">c</a>', "utf-8")
    (tmp_path / "b.html").write_text(
        '<p id="y"><a href="a.html">a</a><a href="#y">y</a></p>', "utf-8"
    )
    assert broken_links(tmp_path) == ["a.html: b.html#x", "a.html: c.html"]
