"""The demo's picture, from a short run."""

from pathlib import Path

import pytest
from matplotlib.image import imread

from sb3_cpp.analysis.figures_learning import plot_run
from sb3_cpp.training.run import train_run
from sb3_cpp.training.suites import load_suite


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
