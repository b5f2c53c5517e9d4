"""Run folders: what they record, and that nothing is overwritten unasked."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import EVALUATIONS, open_run_folder, read_config, read_evaluations

CONFIG = {"seed": 3, "gamma": 0.9, "danger": ((2, 2), (2, 3))}


def test_folder_records_settings_command_commit_and_versions(tmp_path: Path) -> None:
    folder = open_run_folder(tmp_path / "deep" / "run", CONFIG)
    record = yaml.safe_load((folder / "config.yml").read_text(encoding="utf-8"))
    assert record["config"] == {"seed": 3, "gamma": 0.9, "danger": [[2, 2], [2, 3]]}
    assert set(record["provenance"]) == {"command", "commit", "versions", "machine"}
    assert {"python", "sb3_cpp", "torch", "numpy"} <= set(record["provenance"]["versions"])


def test_same_settings_may_run_again(tmp_path: Path) -> None:
    open_run_folder(tmp_path, CONFIG)
    (tmp_path / "summary.csv").write_text("old", encoding="utf-8")
    assert open_run_folder(tmp_path, CONFIG) == tmp_path


def test_other_settings_are_refused_and_nothing_is_touched(tmp_path: Path) -> None:
    open_run_folder(tmp_path, CONFIG)
    before = (tmp_path / "config.yml").read_text(encoding="utf-8")
    with pytest.raises(
        ValueError, match="out must be new, empty or of a run with the same settings"
    ):
        open_run_folder(tmp_path, {**CONFIG, "seed": 4})
    assert (tmp_path / "config.yml").read_text(encoding="utf-8") == before


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(ValueError, match="out must be new"):
        open_run_folder(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_force_writes_and_leaves_other_files_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("keep", encoding="utf-8")
    open_run_folder(tmp_path, CONFIG, force=True)
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "keep"
    assert (tmp_path / "config.yml").exists()


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="out must be a folder, got the file"):
        open_run_folder(tmp_path / "file", CONFIG)


def test_a_folder_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="out must be a folder that can be written"):
        open_run_folder(tmp_path / "file" / "run", CONFIG, force=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00\x80", "is not YAML"),
        (b"config: [", "is not YAML"),
        (b"", "has no settings"),
        (b"config: {}", "has no settings"),
        (b"config: 5", "has no settings"),
        (b"[1, 2]", "has no settings"),
        (None, "cannot be read"),
    ],
)
def test_an_unreadable_config_is_named_in_one_line(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    if content is not None:
        (tmp_path / "config.yml").write_bytes(content)
    with pytest.raises(InvalidArgument, match=words) as error:
        read_config(tmp_path)
    assert str(tmp_path / "config.yml") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_with_an_unreadable_config_is_not_reused(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidArgument, match="out must be new"):
        open_run_folder(tmp_path, CONFIG)


def test_evaluations_are_read_whole_or_named_as_unreadable(tmp_path: Path) -> None:
    assert read_evaluations(tmp_path) == {}
    path = tmp_path / EVALUATIONS
    np.savez(path, timesteps=[5, 10], results=[[1.0], [2.0]], ep_lengths=[[1], [2]])
    assert read_evaluations(tmp_path)["results"].tolist() == [[1.0], [2.0]]
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-30]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidArgument, match="cannot be read") as error:
            read_evaluations(tmp_path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
