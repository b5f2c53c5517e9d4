"""Figures over training: learning curves (the paper's Fig. 4), ablation (Fig. 5), zeta, one run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sb3_cpp.analysis.comparison import ordered, tasks_of
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.runs import read_episodes
from sb3_cpp.analysis.style import (
    BAND,
    COLUMN,
    FONT,
    MOST_BANDS,
    PAGE,
    STYLES,
    Picture,
    label_axes,
    legend_below,
    line_handles,
    new_figure,
    panels,
    save_figure,
    short_name,
    spread_handle,
    step_axis,
    styles_for,
)
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.metrics import Interval, iqm_interval
from sb3_cpp.run_folder import (
    CONFIG,
    ITERATIONS,
    MONITOR,
    folder_name,
    read_config,
    read_evaluations,
)

ENOUGH_SEEDS = 5
ABLATION = "cpi_"  # prefix of the ablation's algorithms
OURS = ("cpp", "cmdqn")  # shown beside the ablation
_QUANTITIES = {"zeta": r"$\zeta$", "m_K": r"$m_K$", "M_K": r"$M_K$", "C_K": r"$C_K$"}


class CurveSet(NamedTuple):
    """The curves of some seeds on common steps: steps (points,), returns (seeds, points)."""

    steps: NDArray[np.float64]
    returns: NDArray[np.float64]


def curve_set(results: Results, task: str, algo: str, series: str) -> CurveSet | None:
    """The compared runs of one algorithm on one task; None if there are none.

    Seeds with different steps are interpolated linearly at the steps of the seed with the fewest,
    within the range that all of them cover.
    """
    used = results.used()
    seeds = used[(used.task == task) & (used.algo == algo)].seed
    here = results.curves
    here = here[(here.task == task) & (here.algo == algo) & (here.series == series)]
    curves = [
        (run["step"].to_numpy(float), run["return"].to_numpy(float))
        for _, run in here[here.seed.isin(seeds)].groupby("seed")
    ]
    if not curves:
        return None
    steps = min((x for x, _ in curves), key=len)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    steps = steps[(steps >= first) & (steps <= last)]
    if not len(steps):
        return None
    return CurveSet(steps, np.stack([np.interp(steps, x, y) for x, y in curves]))


def shows_intervals(results: Results, algos: Sequence[str], tasks: Sequence[str]) -> bool:
    """Whether the bands of a figure are intervals, or the range of seeds.

    Intervals of fewer than 5 seeds would cover the figure. All bands of a figure are of one kind,
    so that an algorithm with fewer seeds does not look more certain.
    """
    runs = results.used()
    runs = runs[runs.algo.isin(algos) & runs.task.isin(tasks)]
    return bool((runs.groupby(["algo", "task"]).seed.nunique() >= ENOUGH_SEEDS).all())


def plot_curves(
    ax: Axes,
    results: Results,
    task: str,
    algos: Sequence[str],
    series: str = "evaluation",
    intervals: bool = True,
) -> None:
    """One line per algorithm, the IQM over seeds, with a band; all algorithms are drawn alike.

    Bands of many algorithms would hide the lines: instead, each has a bar right of its last point.

    :param intervals: bands are pointwise 95 % intervals; else the range of seeds
    """
    styles = styles_for(algos)
    lowest, highest, ends = np.inf, -np.inf, {}
    for algo, style in styles.items():
        curves = curve_set(results, task, algo, series)
        if curves is None:
            continue
        steps, returns = curves
        middle = iqm_interval({task: returns})
        if not intervals:
            middle = Interval(middle.estimate, returns.min(axis=0), returns.max(axis=0))
        look: dict[str, Any] = {"color": style.colour, "linestyle": style.dashes}
        ax.plot(steps, middle.estimate, linewidth=1.4, **look)
        if shows_bands(algos):
            band: dict[str, Any] = {"color": style.colour, "alpha": BAND, "linewidth": 0}
            ax.fill_between(steps, middle.low, middle.high, **band)
        ends[algo] = (steps[-1], *(float(part[-1]) for part in middle))
        lowest, highest = min(lowest, returns.min()), max(highest, returns.max())
    if np.isfinite(lowest):  # the frame shows the runs; wide intervals are cut
        margin = 0.05 * (highest - lowest) or 1.0
        ax.set_ylim(lowest - margin, highest + margin)
    ylabel = "return" if series == "evaluation" else "training return"
    label_axes(ax, short_name(task), "environment steps", ylabel)
    last = max((end[0] for end in ends.values()), default=None)
    step_axis(ax, last)
    if last is not None and not shows_bands(algos):
        for place, (algo, (_, middle_end, low, high)) in enumerate(ends.items()):
            x, colour = last * (1.04 + 0.03 * place), styles[algo].colour
            ax.plot([x, x], [low, high], color=colour, linewidth=1.6, solid_capstyle="butt")
            ax.plot(x, middle_end, color=colour, marker=styles[algo].marker, markersize=3.5)
        ax.set_xlim(0.0, last * (1.05 + 0.03 * len(ends)))


def shows_bands(algos: Sequence[str]) -> bool:
    """Whether curves have bands, or because they are many a bar at the end."""
    return len(set(algos)) <= MOST_BANDS


def _spread(intervals: bool, bands: bool) -> str:
    """The sentence on lines and their bands or bars."""
    lines = "Lines are interquartile means over seeds"
    if not bands:
        bars = "95 % bootstrap interval (cut at the frame)" if intervals else "range of seeds"
        return f"{lines}, bars on the right the {bars} at the last step."
    if intervals:
        return f"{lines}, bands their pointwise 95 % bootstrap intervals, cut at the frame."
    return f"{lines}, bands reach from the lowest to the highest seed."


def curves_of_all_tasks(results: Results, series: str = "evaluation") -> Picture:
    """The paper's Fig. 4: a panel per task."""
    tasks, algos = tasks_of(results), ordered(list(results.used().algo))
    figure, lines = _curves(results, tasks, algos, series)
    if series == "evaluation":
        title = "Learning curves (layout of the paper's Fig. 4)"
        return Picture("fig4", title, f"Return of the evaluations. {lines}", figure)
    caption = f"Mean return of the last 100 training episodes, exploration included. {lines}"
    return Picture("training_curves", "Training curves", caption, figure)


def _curves(
    results: Results,
    tasks: list[str],
    algos: list[str],
    series: str = "evaluation",
    height: float = 2.1,
) -> tuple[Figure, str]:
    """A panel per task, and a sentence on lines and bands."""
    intervals, bands = shows_intervals(results, algos, tasks), shows_bands(algos)
    handles = [*line_handles(styles_for(algos)), spread_handle(intervals, bands)]
    figure, axes = panels(len(tasks), height, handles)
    for ax, task in zip(axes, tasks):
        plot_curves(ax, results, task, algos, series, intervals)
    return figure, _spread(intervals, bands)


def curves_of_task(results: Results, task: str) -> Picture:
    """One task at column width."""
    used = results.used()
    algos = ordered(list(used[used.task == task].algo))
    intervals, bands = shows_intervals(results, algos, [task]), shows_bands(algos)
    figure = new_figure(COLUMN, 2.4)
    plot_curves(figure.subplots(), results, task, algos, intervals=intervals)
    legend_below(figure, [*line_handles(styles_for(algos)), spread_handle(intervals, bands)])
    name = f"curve_{folder_name(task)}"
    caption = f"Return of the evaluations. {_spread(intervals, bands)}"
    return Picture(name, f"Learning curves: {task}", caption, figure)


def ablation_curves(results: Results) -> Picture:
    """The paper's Fig. 5: four designs of DeepCPI's coefficient, and our algorithms beside them."""
    name, title = "fig5", "Ablation of the coefficient (layout of the paper's Fig. 5)"
    used = results.used()
    designs = ordered([algo for algo in used.algo if algo.startswith(ABLATION)])
    if not designs:
        return Picture(name, title, f"there are no runs of the ablation ({ABLATION}…)", None)
    # Beside the designs of the ablation, as the paper shows CPP in its Fig. 5
    ours = [algo for algo in OURS if (used.algo == algo).any()]
    with_designs = set(used[used.algo.isin(designs)].task)
    tasks = [task for task in tasks_of(results) if task in with_designs]
    figure, lines = _curves(results, tasks, [*designs, *ours], height=2.4)
    words = f"DeepCPI with {len(designs)} design{'s' if len(designs) > 1 else ''} of zeta"
    beside = "".join(f", and {STYLES[algo].label}" for algo in ours)
    return Picture(name, title, f"{words}{beside}. {lines}", figure)


def _traces(results: Results) -> pd.DataFrame:
    """Rows of iterations.csv of the compared runs."""
    cell = ["task", "algo", "seed"]
    return results.iterations.merge(results.used()[cell], on=cell)


def plot_trace(ax: Axes, results: Results, task: str, quantity: str, algos: Sequence[str]) -> None:
    """Median over seeds, with their range if lines are few; logarithmic, without zeros."""
    table = _traces(results)
    for algo, style in styles_for(algos).items():
        values = table[(table.task == task) & (table.algo == algo)].dropna(subset=[quantity])
        positive = values[values[quantity] > 0]
        if positive.empty:
            continue
        by_step = values.groupby("timesteps")[quantity]
        middle, low, high = (
            part.where(part > 0) for part in (by_step.median(), by_step.min(), by_step.max())
        )
        steps = high.index.to_numpy(float)
        look: dict[str, Any] = {"color": style.colour, "linestyle": style.dashes}
        ax.plot(steps, middle.to_numpy(), linewidth=1.3, **look)
        if shows_bands(algos):
            # A zero is below any logarithmic axis: the band then reaches down to its smallest value
            low = low.fillna(positive[quantity].min())
            ax.fill_between(steps, low, high, color=style.colour, alpha=BAND, linewidth=0)
        ax.set_yscale("log")
    label_axes(ax, short_name(task), "environment steps", _QUANTITIES[quantity])
    step_axis(ax)


def traces(results: Results) -> Picture:
    """zeta, m_K, M_K and C_K, as far as recorded: a row each, a column per task."""
    name, title = "traces", "The coefficient and its terms"
    table = _traces(results)
    if table.empty:
        return Picture(name, title, "no run recorded zeta, m_K, M_K or C_K", None)
    algos = ordered(list(table.algo))
    tasks = [task for task in tasks_of(results) if (table.task == task).any()]
    quantities = [name for name in _QUANTITIES if (table[name] > 0).any()]
    if not quantities:
        return Picture(name, title, "no recorded zeta, m_K, M_K or C_K is positive", None)
    rows = len(quantities)
    figure = new_figure(PAGE, 1.3 * rows + 0.3)
    axes = figure.subplots(rows, len(tasks), squeeze=False, sharex="col", sharey="row")
    for row, quantity in enumerate(quantities):
        for ax, task in zip(axes[row], tasks):
            plot_trace(ax, results, task, quantity, algos)
            if row > 0:
                ax.set_title("")
            ax.label_outer()
    legend_below(figure, line_handles(styles_for(algos)))
    caption = (
        "zeta: mixing coefficient of the new policy; m_K, M_K: mean and scale of the advantage; "
        "C_K: bound on one policy step. Lines are medians over seeds; logarithmic axes show no "
        "zeros."
    )
    if shows_bands(algos):
        caption += " Bands reach from the smallest to the largest seed."
    return Picture(name, title, caption, figure)


_RUN_TRACES = {  # column of iterations.csv: title, logarithmic
    "zeta": ("zeta: mixing coefficient", True),
    "m_K": ("m_K: mean advantage", False),
    "M_K": ("M_K: scale of the advantage", False),
    "C_K": ("C_K: bound on one policy step", True),
}


def plot_run(folder: str | Path, path: str | Path | None = None, title: str = "") -> Path:
    """Draw one run: its learning curve, and below zeta, m_K, M_K and C_K over K if it has them.

    :param folder: the run's folder
    :param path: of the figure; ``picture.png`` in the folder by default
    :return: the path of the figure
    """
    folder = Path(folder)
    path = Path(path) if path is not None else folder / "picture.png"
    for name in (MONITOR, CONFIG):
        if not (folder / name).is_file():
            raise InvalidArgument(f"folder must hold a run ({name} is missing), got {folder}")
    iterations = _read_iterations(folder / ITERATIONS)
    recorded = set(iterations.columns[iterations.notna().any()])
    columns = [name for name in _RUN_TRACES if name in recorded]
    rows = (len(columns) + 1) // 2
    figure = new_figure(PAGE, 2.4 + 1.9 * rows)
    grid = figure.add_gridspec(rows + 1, 2, height_ratios=[1.4] + [1] * rows)
    algo = str(read_config(folder).get("algo"))
    colour = styles_for([algo])[algo].colour
    _plot_run_curve(figure.add_subplot(grid[0, :]), folder, title, colour)
    for index, name in enumerate(columns):
        ax = figure.add_subplot(grid[1 + index // 2, index % 2])
        words, logarithmic = _RUN_TRACES[name]
        values = iterations[name]
        if logarithmic and (values > 0).any():
            ax.set_yscale("log")
            values = values.where(values > 0)
        ax.plot(iterations["K"], values, color=colour, linewidth=1.5)
        label_axes(ax, words, "K (target updates)", name)
    return save_figure(figure, path)


def _read_iterations(path: Path) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame()
    try:
        return pd.read_csv(path).astype({"K": int})
    except (ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(f"{path} cannot be read ({reason})") from None


def _plot_run_curve(ax: Axes, folder: Path, title: str, colour: str) -> None:
    """Training episodes as dots, evaluations as a line with their standard deviation."""
    settings = read_config(folder)
    try:
        env, n_envs = str(settings["env"]), int(settings["n_envs"])
    except (KeyError, TypeError, ValueError):
        raise InvalidArgument(f"{folder / CONFIG} is not of a training run") from None
    episodes = read_episodes(folder / MONITOR, env, n_envs)
    dots: dict[str, Any] = {"color": "0.75", "markersize": 2.5, "label": "training episodes"}
    ax.plot(episodes["end"], episodes["r"], ".", **dots)
    if arrays := read_evaluations(folder):
        steps, results = arrays["timesteps"], arrays["results"]
        mean, sd = results.mean(axis=1), results.std(axis=1)
        line: dict[str, Any] = {"color": colour, "markersize": 3, "linewidth": 1.5}
        ax.plot(steps, mean, "o-", label="evaluations, ± 1 sd", **line)
        ax.fill_between(steps, mean - sd, mean + sd, color=colour, alpha=BAND, linewidth=0)
    label_axes(ax, title, "environment steps", "return")
    # Above the axes: inside it would lie on the curve
    ax.legend(fontsize=FONT, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
