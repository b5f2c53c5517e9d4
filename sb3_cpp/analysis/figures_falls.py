"""Two algorithms beside each other: every run's return over steps, its falls in red."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sb3_cpp.analysis.comparison import ordered, scores, tasks_of
from sb3_cpp.analysis.figures_learning import plot_trace
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.style import (
    FONT,
    PAGE,
    Picture,
    label_axes,
    legend_below,
    new_figure,
    short_name,
    step_axis,
    styles_for,
)
from sb3_cpp.metrics import iqm

FALL = "#E00000"  # no algorithm's colour
BASELINE, OURS = "dqn", ("cmdqn", "cpp")


def falls(results: Results, zeta: bool = False) -> Picture:
    """DQN on the left and ours on the right, a row per task.

    Of exactly two compared algorithms both are shown, whatever they are.

    :param zeta: a further row per task, the mixing coefficient of those that recorded it
    """
    name, title = "falls", "Falls while learning"
    algos = _pair(ordered(list(results.used().algo)))
    if algos is None:
        reason = "it needs runs of dqn and of cmdqn or cpp, or of exactly two algorithms"
        return Picture(name, title, reason, None)
    used = results.used()
    tasks = [task for task in tasks_of(results) if set(algos) <= set(used[used.task == task].algo)]
    if not tasks:
        return Picture(name, title, f"{' and '.join(algos)} have no task in common", None)
    heights = [2.3, 1.2] if zeta else [2.3]
    figure = new_figure(PAGE, sum(heights) * len(tasks))
    ratios = heights * len(tasks)
    axes = figure.subplots(len(ratios), 2, squeeze=False, height_ratios=ratios)
    for task, row in zip(tasks, axes[:: len(heights)]):
        row[1].sharey(row[0])
        row[1].tick_params(labelleft=False)
        for ax, algo in zip(row, algos):
            _plot_task(ax, results, task, algo)
        row[1].set_ylabel("")
    for task, row in zip(tasks, axes[1::2] if zeta else []):
        for ax, algo in zip(row, algos):
            _plot_zeta(ax, results, task, algo)
    look: dict[str, Any] = {"color": FALL, "linewidth": 2.4, "solid_capstyle": "round"}
    legend_below(figure, [Line2D([], [], label="the return falls", **look)])
    caption = (
        "Return of the evaluations, a line per run. Red: it fell from one evaluation to the next. "
        "‖OJ‖₂ is the root of the sum of a run's squared falls; both numbers are interquartile "
        "means over runs."
    )
    return Picture(name, title, caption, figure)


def _pair(algos: list[str]) -> tuple[str, str] | None:
    """The algorithm on the left, usually the baseline, and the one on the right."""
    if len(algos) == 2:
        return algos[1], algos[0]
    ours = [algo for algo in OURS if algo in algos]
    return (BASELINE, ours[0]) if ours and BASELINE in algos else None


def _plot_task(ax: Axes, results: Results, task: str, algo: str) -> None:
    """All runs of one algorithm on one task, and how much they fall."""
    used = results.used()
    seeds = used[(used.task == task) & (used.algo == algo)].seed
    curves = results.curves
    curves = curves[(curves.task == task) & (curves.algo == algo)]
    curves = curves[(curves.series == "evaluation") & curves.seed.isin(seeds)]
    style = styles_for([algo])[algo]
    for _, run in curves.groupby("seed"):
        plot_falls(ax, run["step"].to_numpy(float), run["return"].to_numpy(float), style.colour)
    label_axes(ax, "", "environment steps", f"return on {short_name(task)}")
    ax.set_title(style.label, fontsize=FONT + 1, loc="left", color=style.colour, weight="bold")
    l2, largest = (
        float(iqm(scores(results, algo, measure, [task])))
        for measure in ("oscillation_l2", "oscillation_inf")
    )
    words = rf"largest fall {largest:.3g}, $\|OJ\|_2$ {l2:.3g}"
    place: dict[str, Any] = {"transform": ax.transAxes, "ha": "right", "va": "bottom"}
    ax.text(1.0, 1.02, words, fontsize=FONT - 1, color="0.3", **place)
    step_axis(ax)


def plot_falls(
    ax: Axes, steps: NDArray[np.float64], returns: NDArray[np.float64], colour: str
) -> None:
    """One learning curve; the parts on which it falls are red."""
    ax.plot(steps, returns, color=colour, linewidth=1.2)
    points = np.column_stack([steps, returns])
    segments = np.stack([points[:-1], points[1:]], axis=1)[np.diff(returns) < 0]
    look: dict[str, Any] = {"colors": FALL, "linewidths": 2.2, "capstyle": "round", "zorder": 3}
    ax.add_collection(LineCollection(list(segments), **look))


def _plot_zeta(ax: Axes, results: Results, task: str, algo: str) -> None:
    """The mixing coefficient, or a word that there is none."""
    plot_trace(ax, results, task, "zeta", [algo])
    ax.set_title("")
    if not ax.lines:
        ax.axis("off")
        place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "center"}
        label = styles_for([algo])[algo].label
        ax.text(0.5, 0.5, f"{label} has no mixing coefficient", fontsize=FONT, color="0.4", **place)
