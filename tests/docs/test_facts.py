"""Names in the documentation are those of the code: algorithms, extras, commands, metrics."""

import re
from pathlib import Path

import pytest
import yaml
from stable_baselines3.common.logger import configure

from sb3_cpp import ALGORITHMS, __version__, cli

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def first_cells(page: str) -> set[str]:
    """Names in backticks in the first column of the tables of a page."""
    return {
        name
        for cell in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", cell)
    }


@pytest.mark.parametrize("page", ["README.md", "docs/algorithms/index.md"])
def test_the_table_of_algorithms_has_every_class_and_its_name(page: str) -> None:
    rows = re.findall(r"^\| \[`(\w+)`\]\([^)]+\) \| `(\w+)` \|", read(page), re.MULTILINE)
    assert {name: cls for cls, name in rows} == {n: c.__name__ for n, c in ALGORITHMS.items()}


def test_the_install_page_names_every_extra() -> None:
    block = read("pyproject.toml").split("[project.optional-dependencies]")[1].split("\n[")[0]
    assert first_cells(read("docs/guide/install.md")) == set(re.findall(r"(?m)^(\w+) = ", block))


def test_the_readme_names_every_command() -> None:
    readme = read("README.md")
    assert [
        name for name in cli.COMMANDS if not re.search(rf"(sb3-cpp |`|make ){name}\b", readme)
    ] == []


def test_ci_runs_on_every_supported_python() -> None:
    workflow = yaml.safe_load(read(".github/workflows/test.yml"))
    versions = re.findall(r"Python :: (3\.\d+)", read("pyproject.toml"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == versions


def test_versions_agree() -> None:
    assert yaml.safe_load(read("CITATION.cff"))["version"] == __version__
    assert re.search(r"^## ([\d.]+)", read("CHANGELOG.md"), re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_every_logged_metric_is_explained(tmp_path: Path) -> None:
    explained = first_cells(read("docs/guide/logging.md"))
    logged = set()
    for name, cls in ALGORITHMS.items():
        folder = tmp_path / name
        env, period = ("CartPole-v1", "target_update_interval")
        if name == "csac":
            env, period = ("Pendulum-v1", "iteration_interval")
        model = cls("MlpPolicy", env, learning_starts=20, **{period: 50})
        model.set_logger(configure(str(folder), ["csv"]))
        model.learn(300, log_interval=1)
        logged |= set((folder / "progress.csv").read_text().splitlines()[0].split(","))
    own = {key for key in logged if not key.startswith(("rollout/", "time/"))}
    assert {"cpp/zeta", "cpp/C_K", "train/iteration", "train/projection_loss"} <= own
    assert sorted(own - explained) == []
