"""Pictures of training runs, from what their folders hold."""

from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sb3_cpp.analysis.didactic_plots import dress
from sb3_cpp.analysis.run_records import read_episodes
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import CONFIG, EVALUATIONS, ITERATIONS, MONITOR

TRACES = {  # column of iterations.csv: title, colour (Okabe and Ito), logarithmic
    "zeta": ("zeta: how far the new policy is let in", "#0072B2", True),
    "m_K": ("m_K: mean advantage", "#009E73", False),
    "M_K": ("M_K: its scale", "#CC79A7", False),
    "C_K": ("C_K: bound on one policy step", "#D55E00", True),
}


def plot_run(folder: str | Path, path: str | Path | None = None, title: str = "") -> Path:
    """Draw one run: its learning curve above, zeta, m_K, M_K and C_K over K below (those the algorithm has).

    :param folder: the run's folder
    :param path: the picture's file; ``picture.png`` in the folder by default
    :return: where the picture is
    """
    folder = Path(folder)
    path = Path(path) if path is not None else folder / "picture.png"
    for name in (MONITOR, CONFIG):
        if not (folder / name).is_file():
            raise InvalidArgument(f"folder must hold a run ({name} is missing), got {folder}")
    iterations = (
        pd.read_csv(folder / ITERATIONS) if (folder / ITERATIONS).is_file() else pd.DataFrame()
    )
    traces = [name for name in TRACES if name in iterations and iterations[name].notna().any()]
    rows = 1 + (len(traces) + 1) // 2
    figure = Figure(figsize=(7.2, 2.4 + 1.9 * (rows - 1)), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, 2, height_ratios=[1.4] + [1] * (rows - 1))
    plot_learning_curve(figure.add_subplot(grid[0, :]), folder, title)
    for index, name in enumerate(traces):
        _plot_trace(figure.add_subplot(grid[1 + index // 2, index % 2]), iterations, name)
    figure.savefig(path, dpi=150)
    return path


def plot_learning_curve(ax: Axes, folder: Path, title: str) -> None:
    """Training episodes as dots, evaluations as a line with their spread."""
    settings = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))["config"]
    episodes = read_episodes(folder / MONITOR, settings["env"], settings["n_envs"])
    ax.plot(
        episodes["end"], episodes["r"], ".", color="0.75", markersize=2.5, label="training episodes"
    )
    if (folder / EVALUATIONS).is_file():
        with np.load(folder / EVALUATIONS) as evaluations:
            steps, results = evaluations["timesteps"], evaluations["results"]
        mean, spread = results.mean(axis=1), results.std(axis=1)
        ax.plot(
            steps,
            mean,
            "o-",
            color="#0072B2",
            markersize=3,
            linewidth=1.5,
            label="evaluations, ± 1 sd",
        )
        ax.fill_between(
            steps, mean - spread, mean + spread, color="#0072B2", alpha=0.2, linewidth=0
        )
    dress(ax, title, "environment steps", "return")
    ax.legend(fontsize=8, frameon=False)


def _plot_trace(ax: Axes, iterations: pd.DataFrame, name: str) -> None:
    title, colour, logarithmic = TRACES[name]
    values = iterations[name]
    if logarithmic and (values > 0).any():
        ax.set_yscale("log")
        values = values.where(values > 0)
    ax.plot(iterations["K"], values, color=colour, linewidth=1.5)
    dress(ax, title, "K (target updates)", name)
