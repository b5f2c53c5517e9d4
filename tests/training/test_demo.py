"""The demo: two short runs, its display and pictures."""

from io import StringIO
from pathlib import Path

import pytest
from matplotlib.image import imread
from rich.console import Console

from sb3_cpp.analysis.figures_learning import plot_run
from sb3_cpp.training import demo as demo_module
from sb3_cpp.training.demo import NAMES, DemoDisplay, demo, describe
from sb3_cpp.training.grid import make_cells
from sb3_cpp.training.pools import Cell
from sb3_cpp.training.run import train_run
from sb3_cpp.training.suites import load_suite


@pytest.mark.slow
def test_demo_trains_both_and_ends_with_picture_and_report(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert demo(seed=1, root=tmp_path, n_timesteps=1500) == 0
    out = capfd.readouterr().out
    for name in NAMES.values():
        assert f"{name}: last model " in out
        assert f"{name}: 1,500 steps, return " in out
    picture, page = tmp_path / "demo" / "falls.png", tmp_path / "demo" / "report.html"
    assert f"picture (falls in red): {picture}" in out
    assert f"report: {page}" in out
    assert imread(picture).std() > 0.05
    assert "CautiousMDQN" in page.read_text(encoding="utf-8")
    # Again: nothing is trained, both are drawn again
    picture.unlink()
    assert demo(seed=1, root=tmp_path, n_timesteps=1500) == 0
    assert capfd.readouterr().out.count("trained before; remove it to train again") == 2
    assert picture.is_file()


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    return make_cells(load_suite("classic"), list(NAMES), ["CartPole-v1"], [0], {}, tmp_path)


def test_display_has_a_bar_per_run_on_a_terminal(
    cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    console = Console(force_terminal=True, width=120, record=True, file=StringIO())
    monkeypatch.setattr(demo_module, "Console", lambda: console)
    with DemoDisplay(cells) as display:
        for cell, zeta in zip(cells, (None, 0.125), strict=True):
            cell.status = {"timesteps": 25_000, "zeta": zeta}
        display.update()
    dqn, cmdqn = console.export_text().splitlines()[-2:]  # after what they overwrite
    assert "DQN " in dqn
    assert "25000/50000" in dqn
    assert "zeta" not in dqn
    assert cmdqn.startswith("CautiousMDQN ")
    assert "zeta 0.125" in cmdqn


def test_display_prints_a_line_per_quarter_elsewhere(
    cells: list[Cell], capsys: pytest.CaptureFixture[str]
) -> None:
    with DemoDisplay(cells) as display:
        for steps in (0, 12_499, 12_500, 12_600, 50_000):
            cells[0].status = {"timesteps": steps}
            display.update()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        f"DQN: 12,500 steps, {describe(cells[0])}",
        f"DQN: 50,000 steps, {describe(cells[0])}",
    ]


@pytest.mark.parametrize(("algo", "panels"), [("cpp", 5), ("cpi", 4), ("cvi", 1), ("ppo", 1)])
def test_picture_shows_what_the_algorithm_has(
    algo, panels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from matplotlib.figure import Figure

    drawn = []
    original = Figure.savefig
    monkeypatch.setattr(
        Figure, "savefig", lambda self, *a, **k: (drawn.append(self), original(self, *a, **k))[1]
    )
    config = load_suite("classic").run_config(
        algo, "CartPole-v1", 0, {"n_timesteps": 1500, "eval_freq": 500}
    )
    folder = train_run(config, tmp_path, show="nothing").folder
    picture = plot_run(folder, title="a short run")
    assert picture == folder / "picture.png"
    assert imread(picture).std() > 0.05  # not a blank page
    axes = drawn[-1].axes
    assert len(axes) == panels
    assert all(ax.lines and any(len(line.get_xdata()) > 1 for line in ax.lines) for ax in axes)


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"folder must hold a run \(monitor.csv is missing\), got"):
        plot_run(tmp_path)


def test_the_model_of_the_best_evaluation_is_kept(tmp_path: Path):
    import numpy as np
    from stable_baselines3.common.evaluation import evaluate_policy

    from sb3_cpp.training.enjoy import load_run
    from sb3_cpp.training.run import make_run_environment

    config = load_suite("classic").run_config(
        "cpp", "CartPole-v1", 0, {"n_timesteps": 3000, "eval_freq": 500}
    )
    folder = train_run(config, tmp_path, show="nothing").folder
    with np.load(folder / "evaluations.npz") as evaluations:
        results = evaluations["results"]
    means = results.mean(axis=1)
    best = len(means) - 1 - int(np.argmax(means[::-1]))
    env = make_run_environment(config, training=False)
    env.seed(1_000_003 * (config.seed + 1) + best)  # the seed of that evaluation
    returns, _ = evaluate_policy(
        load_run(folder, best=True)[1], env, results.shape[1], return_episode_rewards=True
    )
    assert returns == results[best].tolist()
