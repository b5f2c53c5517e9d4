"""YAML settings: what is refused, and how it is said."""

from dataclasses import asdict
from pathlib import Path

import pytest

from sb3_cpp.studies.gridworld import GridworldSettings
from sb3_cpp.training.suites import load_yaml, settings_from

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_numbers_and_lists_arrive_as_written(tmp_path: Path) -> None:
    assert load_yaml(write(tmp_path, "a: 1.0e-3\nb: [1, 2]\nc: '2'\nd: effort")) == {
        "a": 1e-3,
        "b": [1, 2],
        "c": "2",
        "d": "effort",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gamma: 1e-3",
            "gamma must be a number written with a point, as in 1.0e-3, got the text '1e-3'",
        ),
        ("a: {b: [1, 2e5]}", "a: b must be a number written with a point"),
        ("- 1", "config must be a mapping of names to values"),
        ("", "config must be a mapping of names to values"),
        ("a: [1", "config must be YAML"),
        ("a: !!python/object:os.system {}", "config must be YAML"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        load_yaml(write(tmp_path, text))
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config must be a readable file, got .*nowhere\.yml"):
        load_yaml(tmp_path / "nowhere.yml")


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"my\.yml: unknown name 'gama', must be one of .*gamma"):
        settings_from(GridworldSettings, {"gama": 0.9}, "my.yml")


def test_the_committed_gridworld_file_spells_out_the_defaults() -> None:
    """Readers see the file, and code without it gets the defaults: they must agree."""
    values = load_yaml(CONFIGS / "gridworld.yml")
    assert settings_from(GridworldSettings, values, "gridworld.yml") == GridworldSettings()
    assert set(values) == set(asdict(GridworldSettings()))
