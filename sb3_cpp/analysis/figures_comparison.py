"""Figures that compare algorithms: return against oscillation, bars, profiles, improvement."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from sb3_cpp.analysis.comparison import (
    averaged_algorithms,
    ordered,
    scores,
    shared_tasks,
    significance_table,
    suite_table,
    tasks_of,
    why_no_average,
)
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.style import (
    BAND,
    COLUMN,
    FAINT_BAND,
    FONT,
    Picture,
    label_axes,
    label_of,
    legend_below,
    line_handles,
    new_figure,
    new_row,
    panels,
    short_name,
    styles_for,
)
from sb3_cpp.metrics import (
    Interval,
    Scores,
    iqm_interval,
    pareto_front,
    performance_profile,
    significance_stars,
)

NORMS = {
    "l2": (r"$\|OJ\|_2$", "root of the sum of squared falls"),
    "inf": (r"$\|OJ\|_\infty$", "largest fall"),
}


def pareto_of_all_tasks(results: Results) -> Picture:
    """Return against oscillation over all tasks, both in units of the task's range."""
    name, title = "pareto", "Return against oscillation, all tasks"
    tasks, algos = shared_tasks(results), averaged_algorithms(results)
    if not (tasks and algos):
        return Picture(name, title, why_no_average(results), None)
    points = {
        algo: (
            iqm_interval(scores(results, algo, "normalised_return", tasks)),
            _oscillation(scores(results, algo, "normalised_oscillation_l2", tasks)),
        )
        for algo in algos
    }
    figure = new_figure(COLUMN + 0.7, 3.2)
    label = r"normalised oscillation $\|OJ\|_2$ (less is better)"
    plot_pareto(figure.subplots(), points, (0.0, 1.0), "", label, "normalised final return")
    caption = (
        "Left and up is better; the dashed line is the Pareto front. Points are interquartile "
        "means over all runs of all tasks, crosses their 95 % bootstrap intervals, cut at the "
        "frame. Both axes are in units of each task's range of returns."
    )
    return Picture(name, title, caption, figure)


def pareto_by_task(results: Results) -> Picture:
    """The same for each task, in the units of its return."""
    tasks, algos = tasks_of(results), ordered(list(results.used().algo))
    figure, axes = panels(len(tasks), handles=line_handles(styles_for(algos), markers=True))
    for ax, task in zip(axes, tasks):
        points = {}
        for algo in algos:
            if returns := scores(results, algo, "final_return", [task]):
                falls = scores(results, algo, "oscillation_l2", [task])
                points[algo] = (iqm_interval(returns), _oscillation(falls))
        runs = results.used()
        low, high = runs.loc[runs.task == task, ["return_low", "return_high"]].iloc[0]
        labels = (short_name(task), NORMS["l2"][0], "final return")
        plot_pareto(ax, points, (float(low), float(high)), *labels, names=False)
    caption = (
        "As for all tasks, in the units of the return: interquartile means over seeds with their "
        "95 % intervals."
    )
    return Picture("pareto_tasks", "Return against oscillation, by task", caption, figure)


def plot_pareto(
    ax: Axes,
    points: Mapping[str, tuple[Interval, Interval]],
    bounds: tuple[float, float],
    title: str,
    xlabel: str,
    ylabel: str,
    names: bool = True,
) -> None:
    """Return upwards, oscillation to the right, with intervals and the Pareto front.

    :param points: by algorithm, return and oscillation
    :param bounds: range of returns that is shown; intervals are cut at the frame
    :param names: write each algorithm's name beside its point
    """
    styles = styles_for(points)
    values = {
        algo: (float(gain.estimate), float(fall.estimate)) for algo, (gain, fall) in points.items()
    }
    front = sorted((values[algo][1], values[algo][0]) for algo in pareto_front(values))
    dashed: dict[str, Any] = {"color": "0.6", "linewidth": 1.2, "linestyle": "--", "zorder": 1}
    # Steps: between two points of the front no mixture of algorithms is claimed
    ax.plot(*zip(*front), drawstyle="steps-post", **dashed)
    for algo, (gain, fall) in points.items():
        y, x = values[algo]
        colour, marker = styles[algo].colour, styles[algo].marker
        thin: dict[str, Any] = {"color": colour, "linewidth": 1.0, "alpha": 0.55, "zorder": 2}
        if np.isfinite(fall.low):
            ax.plot([float(fall.low), float(fall.high)], [y, y], **thin)
        if np.isfinite(gain.low):
            ax.plot([x, x], [float(gain.low), float(gain.high)], **thin)
        ax.plot(x, y, marker=marker, linestyle="none", color=colour, markersize=6, zorder=3)
    margin = 0.06 * (bounds[1] - bounds[0]) or 1.0
    ax.set_ylim(bounds[0] - margin, bounds[1] + margin)
    ax.set_xlim(0.0, 1.3 * max(x for _, x in values.values()) or 1.0)
    label_axes(ax, title, xlabel, ylabel)
    if names:
        _name_points(ax, values)


def _name_points(ax: Axes, values: Mapping[str, tuple[float, float]]) -> None:
    """Each name beside its point, inside the frame, where it covers least of points and names."""
    styles, figure = styles_for(values), ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the layout decides where the axes are
    points = 72.0 / figure.dpi * ax.transData.transform([(x, y) for y, x in values.values()])
    places = dict(zip(values, points.tolist()))
    # In points, the unit of font sizes and annotation offsets
    covered = [(x - 4, y - 4, x + 4, y + 4) for x, y in places.values()]
    frame = tuple(72.0 / figure.dpi * float(edge) for edge in ax.bbox.extents)
    for algo, (x, y) in places.items():
        long = 0.65 * FONT * len(styles[algo].label)
        lines = [3 + 1.3 * FONT * step for step in range(4)]  # above the point; as far below
        offsets = [
            (dx, dy)
            for line in lines
            for dx in (6, -6 - long, -long / 2)
            for dy in (line, -line - FONT)
        ]
        boxes = [(x + dx, y + dy, x + dx + long, y + dy + FONT) for dx, dy in offsets]
        cost = [
            sum(_overlap(box, other) for other in covered) + long * FONT - _overlap(box, frame)
            for box in boxes
        ]
        best = int(np.argmin(np.round(cost, 6)))  # rounded: the nearest of equally good places
        covered.append(boxes[best])
        ax.annotate(
            styles[algo].label,
            values[algo][::-1],
            xytext=offsets[best],
            textcoords="offset points",
            fontsize=FONT,
            color=styles[algo].colour,
        )


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)


def oscillation_bars(results: Results, norm: str, reference: str) -> Picture:
    """A panel per task, and one for all of them."""
    symbol, words = NORMS[norm]
    measure, tasks = f"oscillation_{norm}", tasks_of(results)
    algos = ordered(list(results.used().algo))
    tests = significance_table(results, reference).set_index(["measure", "task", "algo"])
    averaged = averaged_algorithms(results) if shared_tasks(results) and len(tasks) > 1 else []
    figure, axes = panels(len(tasks) + bool(averaged), 0.75 + 0.19 * len(algos))
    for ax, task in zip(axes, tasks):
        by_algo = {algo: scores(results, algo, measure, [task]) for algo in algos}
        by_algo = {algo: values for algo, values in by_algo.items() if values}
        p_values = {algo: tests.welch_holm.get((measure, task, algo), np.nan) for algo in by_algo}
        plot_bars(ax, by_algo, p_values, short_name(task), symbol)
    if averaged:
        name, shared = f"normalised_{measure}", shared_tasks(results)
        by_algo = {algo: scores(results, algo, name, shared) for algo in averaged}
        overall = suite_table(results, reference).set_index(["measure", "algo"])
        p_values = {algo: overall.p_holm[name, algo] for algo in averaged}
        plot_bars(axes[-1], by_algo, p_values, "all tasks", f"normalised {symbol}")
    caption = (
        f"{words.capitalize()} of the evaluation curve. Bars are interquartile means, lines 95 % "
        "bootstrap intervals (cut at the frame), dots the runs. Stars: differs from "
        f"{label_of(reference)} by Welch's test with Holm's correction over all tasks and bars, "
        "over all tasks by a permutation test (* 0.05, ** 0.01, *** 0.001, n.s. not significant)."
    )
    return Picture(f"oscillation_{norm}", f"Oscillation: {words}", caption, figure)


def plot_bars(
    ax: Axes,
    by_algo: Mapping[str, Mapping[str, NDArray[np.float64]]],
    p_values: Mapping[str, float],
    title: str,
    xlabel: str,
) -> None:
    """Horizontal bars of the IQM, the first algorithm on top, a dot per run, stars on the right.

    :param by_algo: oscillations of the runs, by algorithm and task
    :param p_values: against the reference; NaN for none
    """
    styles = styles_for(by_algo)
    largest = 0.0
    for row, (algo, by_task) in enumerate(by_algo.items()):
        values, middle = np.concatenate(list(by_task.values())), _oscillation(by_task)
        largest = max(largest, float(values.max()))
        # Pale bars, so that dots and intervals show on dark colours too
        ax.barh(row, float(middle.estimate), 0.72, color=styles[algo].colour, alpha=0.75)
        if np.isfinite(middle.low):
            outline = [withStroke(linewidth=2.4, foreground="white")]
            ends = [float(middle.low), float(middle.high)]
            ax.plot(ends, [row, row], color="0.3", linewidth=1.1, path_effects=outline)
        jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        dots: dict[str, Any] = {"color": "white", "markeredgecolor": "0.15", "markersize": 2.8}
        ax.plot(values, row + jitter, "o", markeredgewidth=0.6, **dots)
        if np.isfinite(p_values.get(algo, np.nan)):
            stars = significance_stars(p_values[algo])
            colour = "0.5" if stars == "n.s." else "black"
            place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
            ax.text(1.02, row, stars, fontsize=FONT - 1, color=colour, **place)
    ax.set_xlim(0.0, 1.25 * (largest or 1.0))
    label_axes(ax, title, xlabel, "")
    ax.set_yticks(range(len(by_algo)), [styles[a].label for a in by_algo], fontsize=FONT - 1)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def profiles(results: Results, reference: str) -> Picture:
    """Performance profiles: return on the left, oscillation on the right."""
    name, title = "profiles", "Performance profiles"
    tasks, algos = shared_tasks(results), averaged_algorithms(results)
    if not (tasks and algos):
        return Picture(name, title, why_no_average(results), None)
    figure, (left, right) = new_row(height=2.4)
    returns, falls = (
        {algo: scores(results, algo, measure, tasks) for algo in algos}
        for measure in ("normalised_return", "normalised_oscillation_l2")
    )
    plot_profiles(left, returns, reference, "runs with a higher return", "normalised final return")
    words = ("runs with no more oscillation", r"normalised oscillation $\|OJ\|_2$")
    plot_profiles(right, falls, reference, *words, below=True)
    legend_below(figure, line_handles(styles_for(algos)))
    caption = (
        "Share of runs, tasks counting equally, whose normalised return lies above the value on "
        "the axis (left), and whose normalised oscillation does not (right); higher is better in "
        "both. Bands are pointwise 95 % bootstrap intervals."
    )
    return Picture(name, title, caption, figure)


def plot_profiles(
    ax: Axes,
    by_algo: Mapping[str, Scores],
    reference: str,
    title: str,
    xlabel: str,
    below: bool = False,
) -> None:
    """Share of runs above each value, or with ``below`` of those at most that; higher is better."""
    values = np.concatenate(
        [np.ravel(runs) for tasks in by_algo.values() for runs in tasks.values()]
    )
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 0.1
    # A little beyond all runs, so that every profile starts at 1 and ends at 0
    thresholds = np.linspace(low - margin, high + margin, 101)
    for algo, style in styles_for(by_algo).items():
        share = performance_profile(by_algo[algo], thresholds)
        middle, bottom, top = (1.0 - part if below else part for part in share)
        look: dict[str, Any] = {"color": style.colour, "linestyle": style.dashes}
        ax.plot(thresholds, middle, linewidth=1.4, drawstyle="steps-mid", **look)
        opacity = BAND if algo == reference or len(by_algo) < 4 else FAINT_BAND
        band: dict[str, Any] = {"color": style.colour, "alpha": opacity, "linewidth": 0}
        ax.fill_between(thresholds, bottom, top, step="mid", **band)
    label_axes(ax, title, xlabel, "share of runs")
    ax.set_ylim(-0.02, 1.02)


def improvement(results: Results, reference: str) -> Picture:
    """Probability that the reference beats each other algorithm."""
    name, title = "improvement", "Probability of improvement"
    table = suite_table(results, reference)
    if not table.better.notna().any():
        reason = f"{reference} and another algorithm must have runs on all tasks"
        return Picture(name, title, reason, None)
    figure, axes = new_row(height=0.9 + 0.24 * (table.algo.nunique() - 1))
    heads = {
        "normalised_return": "higher final return",
        "normalised_oscillation_l2": "less oscillation",
    }
    for ax, (measure, head) in zip(axes, heads.items()):
        plot_improvement(ax, table[table.measure == measure], reference, head)
    caption = (
        f"Probability that a run of {label_of(reference)} has a higher final return (left), or "
        "less oscillation (right), than a run of the other algorithm on the same task, averaged "
        "over tasks, with 95 % bootstrap intervals; right of 0.5 is better."
    )
    return Picture(name, title, caption, figure)


def plot_improvement(ax: Axes, table: pd.DataFrame, reference: str, title: str) -> None:
    """Probability that the reference has the better value, with its interval, by algorithm.

    :param table: rows of ``comparison.suite_table`` for one measure
    """
    rows = table[table.better.notna()]
    styles = styles_for(rows.algo)
    for place, row in enumerate(rows.to_dict("records")):
        colour, marker = styles[row["algo"]].colour, styles[row["algo"]].marker
        if np.isfinite(row["better_low"]):
            ends = [row["better_low"], row["better_high"]]
            ax.plot(ends, [place, place], color=colour, linewidth=4, alpha=0.35)
        ax.plot(row["better"], place, marker=marker, color=colour, markersize=6)
    ax.axvline(0.5, color="0.4", linewidth=0.8, linestyle="--")
    label_axes(ax, title, f"P({label_of(reference)} better)", "")
    ax.set_yticks(range(len(rows)), [styles[algo].label for algo in rows.algo], fontsize=FONT - 1)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(-0.05, 1.05)
    ax.grid(axis="y", visible=False)


def _oscillation(values: Scores) -> Interval:
    """IQM of oscillations, which are never negative."""
    return iqm_interval(values).clip(0.0, np.inf)
