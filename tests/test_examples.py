"""Every example runs to its end, shortened; the single file computes what the library computes."""

import ast
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch as th

from sb3_cpp import DeepCPP

EXAMPLES = Path(__file__).parents[1] / "examples"
SHORT = {
    "cartpole.py": ["--timesteps", "1200", "--out", "model.zip"],
    "deepcpp_single_file.py": ["--timesteps", "1200", "--alpha", "0.0746"],
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


SINGLE_FILE = EXAMPLES / "deepcpp_single_file.py"


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"buffer_size": 300, "exploration_fraction": 0.5, "max_grad_norm": 0.5}),
        ("CartPole-v1", {"alpha": 0.0}),
        ("CartPole-v1", {"alpha": 0.99, "gamma": 0.99}),
        ("MountainCar-v0", {"alpha": 0.0746, "r_max": 2.0, "rho1": 0.9, "rho2": 0.99}),
    ],
    ids=[
        "defaults",
        "full buffer and clipped gradients",
        "no KL weight",
        "alpha equal to gamma",
        "time limits and other coefficients",
    ],
)
def test_the_single_file_has_the_weights_of_the_library(env: str, changes: dict[str, Any]) -> None:
    names = runpy.run_path(str(SINGLE_FILE))
    settings = names["Settings"](env=env, timesteps=1000, seed=3, **changes)
    trained = names["train"](settings)

    arguments = dict(vars(settings))
    model = DeepCPP(
        "MlpPolicy",
        arguments.pop("env"),
        device="cpu",
        fast=False,
        **{name: value for name, value in arguments.items() if name != "timesteps"},
    )
    initial = [parameter.clone() for parameter in model.q_net.parameters()]
    model.learn(settings.timesteps)
    assert 0.0 < trained.zeta < 1.0
    assert trained.zeta == model.caution.zeta
    for ours, library in ((trained.q_net, model.q_net), (trained.target_net, model.q_net_target)):
        pairs = list(zip(ours.parameters(), library.parameters(), strict=True))
        assert all(th.equal(a, b) for a, b in pairs)
    assert not any(th.equal(a, b) for a, b in zip(initial, model.q_net.parameters(), strict=True))


def test_the_single_file_is_short_and_needs_neither_sb3_nor_this_package() -> None:
    text = SINGLE_FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").split(".")[0])
    assert modules - set(sys.stdlib_module_names) == {"torch", "gymnasium", "numpy"}
