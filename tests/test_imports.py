"""What `import sb3_cpp` loads, and what a command says whose extra is not installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = ("scipy", "matplotlib", "PIL", "pandas", "optuna", "distributed", "wandb")

# Runs commands one after the other with some modules missing; prints [code, out, err] of each
WITHOUT = """
import contextlib, io, json, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in MISSING:
            return self.finder.find_spec(name, path, target)

MISSING, commands = json.loads(sys.argv[1])
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from sb3_cpp import cli

results = []
for command in commands:
    sys.argv = ["sb3-cpp", *command]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as end:
            results.append([end.code, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


def python(code: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without(missing: list[str], commands: list[list[str]], folder: Path) -> list[list[object]]:
    return json.loads(python(WITHOUT, folder, json.dumps([missing, commands])).splitlines()[-1])


def test_the_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = f"import sys, sb3_cpp, sb3_cpp.cli; print([m for m in {HEAVY} if m in sys.modules])"
    assert python(code, tmp_path).strip() == "[]"


def test_a_missing_extra_is_one_line_before_anything_is_written(tmp_path: Path) -> None:
    cases = [
        (["demo"], "analysis"),
        (["results", "runs"], "analysis"),
        (["plot", "runs"], "analysis"),
        (["report", "runs"], "analysis"),
        (["theory"], "analysis"),
        (["gridworld"], "analysis"),
        (["pendulum"], "analysis"),
        (["tune"], "tune"),
        (["train", "--tensorboard", "tb"], "tensorboard"),
        (["train", "--track"], "wandb"),
        (["train", "--env", "PongNoFrameskip-v4"], "atari"),
        (["train", "--env", "MinAtar/Breakout-v1"], "minatar"),
        (["train", "--env", "LunarLander-v3"], "box2d"),
        (["train", "--algo", "csac", "--env", "Hopper-v5"], "mujoco"),
        (["enjoy", "--video", "a.gif"], "video"),
        (["enjoy", "--video", "a.mp4"], "video"),
        (["benchmark", "classic", "--dask", "tcp://127.0.0.1:1"], "cluster"),
    ]
    missing = [
        *HEAVY,
        "tensorboard",
        "ale_py",
        "cv2",
        "minatar",
        "Box2D",
        "mujoco",
        "imageio_ffmpeg",
    ]
    results = without(missing, [command for command, _ in cases], tmp_path)
    for (command, extra), (code, out, err) in zip(cases, results, strict=True):
        assert (code, out) == (2, ""), command
        assert f"pip install 'sb3_cpp[{extra}]'" in str(err), command
        assert len(str(err).strip().splitlines()) == 1, command
    assert not list(tmp_path.iterdir())


def test_train_enjoy_and_benchmark_need_no_extra(tmp_path: Path) -> None:
    run = ["--algo", "cmdqn", "--env", "CartPole-v1"]
    grid = ["classic", "--algos", "cmdqn", "--envs", "CartPole-v1", "--seeds", "1", "-n", "200"]
    commands = [
        ["train", *run, "-n", "200"],
        ["enjoy", *run, "--episodes", "1", "--no-render", "--show-policy"],
        ["benchmark", *grid],
    ]
    results = without([*HEAVY, "tensorboard", "tqdm", "pygame", "cv2"], commands, tmp_path)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    assert "1 cells: 1 finished before" in str(results[2][1])
