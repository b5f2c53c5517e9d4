"""Every notebook runs from its first cell to its last, shortened, and is stored without outputs."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs.test_blocks import ROOT, read_marker

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
# At the end of the Markdown cell above a code cell, as above the blocks of a page
MARKER = re.compile(r"<!-- test: (.*) -->\Z")
# What a reader may rely on: the packages of the API reference, and those of the guide's examples
PUBLIC = {"sb3_cpp", "sb3_cpp.metrics", "sb3_cpp.analysis.comparison", "sb3_cpp.analysis.results"}


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def shortened(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Each code cell with the replacements of the marker above it."""
    for above, cell in zip(notebook.cells, notebook.cells[1:]):
        if above.cell_type == "markdown" and (found := MARKER.search(above.source)):
            assert cell.cell_type == "code"
            cell.source = read_marker(found[1], cell.source).text
    return notebook


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "first_steps",
        "own_environment_and_sweep",
        "reading_zeta_and_falls",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    python_path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), python_path])))
    work = tmp_path / "work"
    work.mkdir()
    notebook = shortened(read(path))
    NotebookClient(
        notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": str(work)}}
    ).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs) or "sweep" in path.stem
    assert [output for output in outputs if output.get("name") == "stderr"] == []
    assert [entry.name for entry in work.iterdir()] == ["runs"]  # which git ignores


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_only_the_public_interface(path: Path) -> None:
    code = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "code")
    imported = set(re.findall(r"(?m)^(?:from|import) (sb3_cpp[\w.]*)", code))
    assert imported
    assert imported <= PUBLIC


def test_the_guide_links_every_notebook() -> None:
    page = (ROOT / "docs" / "guide" / "notebooks.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(\.\./\.\./examples/notebooks/(\w+)\.ipynb\)", page))
    assert linked == {path.stem for path in NOTEBOOKS}
