"""What is published under results/ and said in the README comes from the committed CSV files."""

from pathlib import Path

import pytest

from sb3_cpp.experiments.result_tables import tables_as_markdown
from sb3_cpp.experiments.results import load_results

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted(path.parent for path in (ROOT / "results").glob("*/runs.csv"))


@pytest.mark.parametrize("folder", PUBLISHED, ids=lambda folder: folder.name)
def test_published_tables_are_those_of_the_csv_files(folder: Path) -> None:
    assert (folder / "tables.md").read_text(encoding="utf-8") == tables_as_markdown(load_results(folder))
