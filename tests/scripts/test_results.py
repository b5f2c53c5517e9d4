"""scripts/results.py, plot.py and report.py, as a user runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.synthetic_runs import write_grid, write_run
from tests.analysis.test_sb3_folders import train
from tests.scripts.processes import ROOT

Call = Callable[..., tuple[int, str, str]]


def test_results_are_written_printed_and_gaps_named(call: Call, tmp_path: Path) -> None:
    write_grid(tmp_path / "runs", algos=("cpp", "dqn"), envs=("CartPole-v1",))
    write_run(tmp_path / "runs", "mdqn", seed=1, state="failed", error="non-finite loss")
    code, out, err = call("results", "runs", "-o", "tidy")
    assert code == 0
    assert "cpp against dqn: return" in out
    assert "written: tidy/runs.csv" in out
    assert (
        "not compared: classic: mdqn on CartPole-v1, seed 1: failed at step 400: non-finite loss"
        in err
    )
    assert "not compared: classic: mdqn on CartPole-v1, seeds 0, 2: missing" in err
    again = call("results", "tidy")
    assert again[0] == 0
    assert again[1] == out[: out.index("written:")]


@pytest.mark.slow
def test_figures_from_folders_and_from_csv_files_are_the_same(call: Call, tmp_path: Path) -> None:
    write_grid(tmp_path / "runs", algos=("cpp", "dqn"), seeds=2)
    assert call("results", "runs", "-o", "tidy")[0] == 0
    chosen = ("--formats", "png", "--figures", "fig4", "traces", "oscillation_l2", "table1")
    for source in ("runs", "tidy"):
        code, out, _ = call("plot", source, "-o", f"figures_{source}", *chosen)
        assert code == 0
        assert f"written: figures_{source}/fig4.png" in out
    names = sorted(path.name for path in (tmp_path / "figures_runs").iterdir())
    assert names == [
        "fig4.png",
        "oscillation_l2.png",
        "table1.csv",
        "table1.md",
        "table1.tex",
        "traces.png",
    ]
    for name in names:
        assert (tmp_path / "figures_runs" / name).read_bytes() == (
            tmp_path / "figures_tidy" / name
        ).read_bytes(), name


def test_each_suite_has_its_folder_and_nothing_is_overwritten(call: Call, tmp_path: Path) -> None:
    for suite in ("classic", "ablation"):
        write_run(tmp_path / "runs", suite=suite)
    arguments = ("plot", "runs", "-o", "f", "--figures", "pareto_tasks", "--formats", "svg", "pdf")
    assert call(*arguments)[0] == 0
    made = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "f").rglob("*.*"))
    assert made == [
        f"f/{suite}/pareto_tasks.{kind}"
        for suite in ("ablation", "classic")
        for kind in ("pdf", "svg")
    ]
    code, _, err = call(*arguments)
    assert code == 2
    assert (
        "f/ablation already holds pareto_tasks.svg and 1 more; choose another folder, "
        "or use --force" in err
    )
    assert call(*arguments, "--force")[0] == 0


def test_runs_without_a_finished_training_episode_are_compared_all_the_same(
    call: Call, tmp_path: Path
) -> None:
    write_grid(tmp_path / "runs", algos=("cpp", "dqn"), seeds=2)
    for algo in ("ppo", "a2c"):
        for env in ("CartPole-v1", "Acrobot-v1"):
            for seed in (0, 1):
                episodes = () if env == "CartPole-v1" else (1.0,) * 40
                write_run(
                    tmp_path / "runs",
                    algo,
                    env,
                    seed,
                    episodes=episodes,
                    evaluations=(1.0,) * 9 + (2.0,),
                )
    for reference in ("cpp", "ppo"):
        code, out, _ = call("results", "runs", "--reference", reference)
        assert code == 0
        assert f"{reference} against a2c: " in out
        assert call("report", "runs", "--reference", reference, "-o", f"{reference}.html")[0] == 0
        arguments = ("--formats", "png", "--figures", "oscillation_l2", "improvement", "pareto")
        assert call("plot", "runs", "--reference", reference, "-o", reference, *arguments)[0] == 0


def test_numbers_are_never_cut_off(call: Call, tmp_path: Path) -> None:
    name = "cpp_with_a_name_that_is_longer_than_most_names_of_algorithms_are"
    for seed in range(3):
        write_run(
            tmp_path / "runs", name, seed=seed, evaluations=(1e5 + seed, 2e5, 1e5, 3e5 + seed)
        )
        write_run(tmp_path / "runs", seed=seed, evaluations=(1e5 + seed, 2e5, 1e5, 3e5 + seed))
    _, out, _ = call("results", "runs")
    assert "…" not in out
    assert name in out


def test_only_the_chosen_are_compared(call: Call, tmp_path: Path) -> None:
    write_grid(tmp_path / "runs")
    write_run(tmp_path / "runs", "mdqn", "LunarLander-v3")
    code, out, err = call(
        "results", "runs", "--algos", "cpp", "ppo", "--envs", "CartPole-v1", "-o", "tidy"
    )
    assert code == 0
    assert "cpp against ppo" in out
    assert not err
    assert "dqn" not in (tmp_path / "tidy" / "runs.csv").read_text()


def test_the_reference_is_stated_against_every_other_on_the_chosen_tasks(
    call: Call, tmp_path: Path
) -> None:
    write_grid(tmp_path / "runs")
    write_grid(tmp_path / "more", envs=("LunarLander-v3",))
    chosen = ("--envs", "CartPole-v1", "LunarLander-v3", "--reference", "dqn")
    code, out, _ = call("results", "runs", "more", *chosen)
    assert code == 0
    lines = [line for line in out.splitlines() if " against " in line]
    assert [line.split(":")[0] for line in lines] == ["dqn against cpp", "dqn against ppo"]
    part = r"\([^()]*[-+][\d.]+ \[[-+][\d.]+, [-+][\d.]+\], p = [\d.]+\)"
    words = ("return", "oscillation without noise", "drawdown")
    for line in lines:
        assert re.fullmatch(", ".join(rf".*{word}[a-z ]* {part}" for word in words), line)
    assert "2 task(s)" in out
    for head in ("l2 oscillation", "l2 without noise (rms)", "inf oscillation", "largest drawdown"):
        assert out.count(head) == 3  # of two tasks and of both


MISTAKES = [
    (("results",), "required: runs"),
    (("results", "nowhere"), "runs must be a folder of runs or of their CSV files, got 'nowhere'"),
    (("results", "empty"), "empty holds no runs"),
    (
        ("results", "runs", "--reference", "sac"),
        "the reference must be one of the compared algorithms cpp",
    ),
    (("results", "runs", "-o", "file"), "file"),
    (
        ("results", "runs", "--algos", "sac"),
        "--algos must be among those of the runs, cpp, got 'sac'",
    ),
    (
        ("report", "runs", "--envs", "Pong"),
        "--envs must be among those of the runs, CartPole-v1, got 'Pong'",
    ),
    (("plot", "nowhere"), "runs must be a folder"),
    (
        ("plot", "runs", "--formats", "gif"),
        "--formats must be one of 'png', 'pdf', 'svg', got 'gif'",
    ),
    (("plot", "runs", "--figures", "fig3"), "--figures must be one of"),
    (("plot", "runs", "--reference", "sac"), "the reference must be one of"),
    (("plot", "runs", "-o", "file"), "file"),
    (("report", "nowhere"), "runs must be a folder"),
    (("report", "runs", "-o", "report.pdf"), "must be a file ending in .html, got 'report.pdf'"),
    (("report", "runs", "-o", "old.html"), "old.html already exists"),
    (("report", "runs", "--reference", "sac"), "the reference must be one of"),
    (("plot", "unfinished"), "no run can be compared, so there is nothing to draw"),
    (("results", "sb3"), "of sb3/mine cannot be told from its path; describe its last parts, e.g."),
    (("results", "sb3", "--layout", "{env}"), "--layout must contain {algo}"),
    (("plot", "sb3", "--layout", "{algo}_{seed}"), "of sb3/mine cannot be told from its path"),
    (("report", "runs", "--timesteps", "0"), "--timesteps must be a whole number of at least 1"),
    (("results", "runs", "--suite", " "), "--suite must be a name, got ' '"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    MISTAKES,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line_and_nothing_is_written(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    write_run(tmp_path / "runs")
    write_run(tmp_path / "unfinished", state="interrupted")
    (tmp_path / "empty").mkdir()
    run = write_run(tmp_path / "other")
    (tmp_path / "sb3" / "mine").mkdir(parents=True)
    (run / "evaluations.npz").rename(tmp_path / "sb3" / "mine" / "evaluations.npz")
    for name in ("file", "old.html"):
        (tmp_path / name).write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, _, err = call(*arguments)
    assert code == 2
    assert message in err
    assert (
        len([line for line in err.strip().splitlines() if not line.startswith("not compared:")])
        == 1
    )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_folders_of_sb3_are_compared(call: Call, tmp_path: Path) -> None:
    for algo in ("dqn", "a2c"):
        train(tmp_path / "logs" / algo / "CartPole-v1_1", algo, seed=1)
        (tmp_path / "mine" / f"{algo}-s3").parent.mkdir(exist_ok=True)
        (tmp_path / "mine" / f"{algo}-s3").symlink_to(tmp_path / "logs" / algo / "CartPole-v1_1")
    code, out, err = call("results", "logs", "-o", "tidy")
    assert (code, err) == (0, "")
    assert "logs, CartPole-v1: IQM over seeds" in out
    assert "dqn against a2c: " in out
    options = ("--layout", "{algo}-s{seed}", "--suite", "own", "--reference", "a2c")
    code, out, err = call("results", "mine", *options)
    assert (code, err) == (0, "")
    assert "own, CartPole-v1: IQM over seeds" in out
    assert "a2c against dqn: " in out
    write_run(tmp_path / "runs", evaluations=(9.0, 10.0, 11.0), n_timesteps=300, seed=1)
    code, out, err = call("results", "logs", "runs", "--suite", "all")
    assert (code, err) == (0, "")
    assert "cpp against dqn: " in out


BLOCKED = """
import contextlib, io, sys
sys.modules[sys.argv[1]] = None  # as if it were not installed
from sb3_cpp.cli import main
for line in sys.argv[2:]:
    sys.argv = ["sb3-cpp", *line.split()]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        print(repr((end.code, out.getvalue(), err.getvalue())))
"""


@pytest.mark.parametrize("module", ["matplotlib", "pandas", "scipy"])
def test_a_missing_package_is_one_line_with_the_pip_command(tmp_path: Path, module: str) -> None:
    write_run(tmp_path / "runs")
    commands = ("results runs -o new", "plot runs", "report runs", "demo", "gridworld", "theory")
    command = [sys.executable, "-c", BLOCKED, module, *commands]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    line = f"error: this needs {module}: pip install 'sb3_cpp[analysis]'\n"
    assert done.stdout.splitlines() == [repr((2, "", line))] * len(commands)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert len(list((tmp_path / "runs").rglob("seed_*"))) == 1


def test_a_report_is_one_file(call: Call, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "cpp")
    code, out, _ = call("report", "runs", "-o", "pages/report.html", "--title", "Mine")
    assert code == 0
    assert out.startswith("written: pages/report.html (")
    text = (tmp_path / "pages" / "report.html").read_text()
    assert "<title>Mine</title>" in text
    assert "report.py runs -o pages/report.html" in text
    assert [path.name for path in (tmp_path / "pages").iterdir()] == ["report.html"]
    assert call("report", "runs", "-o", "pages/report.html")[0] == 2
    assert call("report", "runs", "-o", "pages/report.html", "--force")[0] == 0
