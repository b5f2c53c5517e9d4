"""Every example runs to its end, shortened."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "cartpole.py": ["--timesteps", "1200", "--out", "model.zip"],
    "frame_buffer_with_dqn.py": ["--timesteps", "240", "--buffer-size", "200"],
    "own_algorithm.py": ["--timesteps", "1200"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHORT))
def test_an_example_runs_to_its_end(name: str, tmp_path: Path) -> None:
    if name == "frame_buffer_with_dqn.py":
        pytest.importorskip("ale_py")
    command = [sys.executable, str(EXAMPLES / name), *SHORT[name]]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
