"""Figures that compare algorithms: return against oscillation, bars, profiles, improvement."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from sb3_cpp.analysis.comparison import (
    averaged_algorithms,
    learned,
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
    FONT,
    MOST_BANDS,
    PAGE,
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
    figure = new_figure(PAGE, 3.2)
    plane, gains, falls = figure.subplots(1, 3, width_ratios=[2.1, 1.0, 1.0])
    # The intervals have panels of their own: crosses on points of equal return hide each other
    plot_intervals(gains, {algo: gain for algo, (gain, _) in points.items()}, "Final return")
    plot_intervals(falls, {algo: fall for algo, (_, fall) in points.items()}, r"$\|OJ\|_2$")
    gains.set_xlim(-0.05, 1.05)
    falls.set_xlim(left=0.0)
    falls.tick_params(labelleft=False)
    words = ("All tasks", r"oscillation $\|OJ\|_2$ (left is better)", "final return (up is better)")
    plot_pareto(plane, points, (0.0, 1.0), *words, intervals=False)
    caption = (
        "Left and up is better; the dashed line is the Pareto front. Hollow: returns less than a "
        "quarter of the best, so its oscillation says nothing, and it is not on the front. Points "
        "are interquartile means over all runs of all tasks; right, with 95 % bootstrap intervals "
        "(cut at the frame). All axes are in units of each task's range of returns."
    )
    return Picture(name, title, caption, figure)


def pareto_by_task(results: Results) -> Picture:
    """The same for each task, in the units of its return."""
    tasks, algos = tasks_of(results), ordered(list(results.used().algo))
    crosses = len(algos) <= MOST_BANDS
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
        plot_pareto(ax, points, (float(low), float(high)), *labels, names=False, intervals=crosses)
    caption = "As for all tasks, in the units of the return: interquartile means over seeds"
    # Crosses of more algorithms would cover the points
    caption += " with their 95 % intervals." if crosses else "; the intervals are in the tables."
    return Picture("pareto_tasks", "Return against oscillation, by task", caption, figure)


def plot_pareto(
    ax: Axes,
    points: Mapping[str, tuple[Interval, Interval]],
    bounds: tuple[float, float],
    title: str,
    xlabel: str,
    ylabel: str,
    names: bool = True,
    intervals: bool = True,
) -> None:
    """Return upwards, oscillation to the right, with intervals and the Pareto front.

    The front is of the algorithms that learned: one that did not hardly oscillates.

    :param points: by algorithm, return and oscillation
    :param bounds: range of returns that is shown; intervals are cut at the frame
    :param names: write each algorithm's name beside its point
    :param intervals: draw them as crosses
    """
    styles = styles_for(points)
    values = {
        algo: (float(gain.estimate), float(fall.estimate)) for algo, (gain, fall) in points.items()
    }
    able = learned({algo: gain for algo, (gain, _) in values.items()}, bounds[0])
    rated = pareto_front({algo: values[algo] for algo in able})
    front = sorted((values[algo][1], values[algo][0]) for algo in rated)
    dashed: dict[str, Any] = {"color": "0.6", "linewidth": 1.2, "linestyle": "--", "zorder": 1}
    # Steps: between two points of the front no mixture of algorithms is claimed
    ax.plot(*zip(*front), drawstyle="steps-post", **dashed)
    for algo, (gain, fall) in points.items():
        y, x = values[algo]
        colour, marker = styles[algo].colour, styles[algo].marker
        thin: dict[str, Any] = {"color": colour, "linewidth": 1.0, "alpha": 0.55, "zorder": 2}
        if intervals and np.isfinite(fall.low):
            ax.plot([float(fall.low), float(fall.high)], [y, y], **thin)
        if intervals and np.isfinite(gain.low):
            ax.plot([x, x], [float(gain.low), float(gain.high)], **thin)
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 6, "zorder": 3}
        if algo not in able:
            look["markerfacecolor"] = "white"
        ax.plot(x, y, linestyle="none", **look)
    margin = 0.06 * (bounds[1] - bounds[0]) or 1.0
    ax.set_ylim(bounds[0] - margin, bounds[1] + margin)
    ax.set_xlim(0.0, 1.3 * max(x for _, x in values.values()) or 1.0)
    label_axes(ax, title, xlabel, ylabel)
    if names:
        _name_points(ax, values, front)


def plot_intervals(ax: Axes, by_algo: Mapping[str, Interval], title: str) -> None:
    """A row per algorithm, the first on top: the estimate and its interval."""
    styles = styles_for(by_algo)
    for row, (algo, found) in enumerate(by_algo.items()):
        colour, marker = styles[algo].colour, styles[algo].marker
        if np.isfinite(found.low):
            ends = [float(found.low), float(found.high)]
            ax.plot(ends, [row, row], color=colour, linewidth=1.6, solid_capstyle="butt")
        ax.plot(float(found.estimate), row, marker=marker, color=colour, markersize=5)
    label_axes(ax, title, "", "")
    ax.set_yticks(range(len(by_algo)), [styles[algo].label for algo in by_algo], fontsize=FONT - 1)
    ax.set_ylim(len(by_algo) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)


def _name_points(
    ax: Axes, values: Mapping[str, tuple[float, float]], front: Sequence[tuple[float, float]]
) -> None:
    """Each name inside the frame where it covers least; a thin line leads to a far point.

    :param values: return and oscillation by algorithm
    :param front: corners of the Pareto front, which names should not cover
    """
    styles, figure = styles_for(values), ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the layout decides where the axes are
    unit = 72.0 / figure.dpi  # in points, the unit of font sizes and annotation offsets
    points = unit * ax.transData.transform([(x, y) for y, x in values.values()])
    places = dict(zip(values, points.tolist()))
    covered = [(x - 5, y - 5, x + 5, y + 5) for x, y in places.values()]
    for (a, b), (c, d) in pairwise(unit * ax.transData.transform(front)):
        covered += [(a, b - 1, c, b + 1), (c - 1, b, c + 1, d)]
    frame = tuple(unit * float(edge) for edge in ax.bbox.extents)
    # Points with near neighbours have fewest places left: they choose first
    crowd = {
        algo: sum(abs(x - u) < 60 and abs(y - v) < 12 for u, v in places.values())
        for algo, (x, y) in places.items()
    }
    for algo in sorted(places, key=lambda name: -crowd[name]):
        x, y = places[algo]
        text = ax.annotate(
            styles[algo].label,
            values[algo][::-1],
            xytext=(0, 0),
            textcoords="offset points",
            fontsize=FONT,
            color=styles[algo].colour,
        )
        long = unit * text.get_window_extent().width
        offsets = [(7.0, -FONT / 2), (-7.0 - long, -FONT / 2)]  # beside it, then above and below
        offsets += [
            (dx, dy)
            for line in (4 + 1.3 * FONT * step for step in range(6))
            for dx in (-long / 2, 4.0, -4.0 - long)
            for dy in (line, -line - FONT)
        ]
        boxes = [(x + dx, y + dy, x + dx + long, y + dy + FONT) for dx, dy in offsets]
        cost = [
            sum(_overlap(box, other) for other in covered)
            + 4 * (long * FONT - _overlap(box, frame))
            + 0.5 * max(abs(dy) - FONT, 0.0)  # the nearest of equally good places
            for box, (_, dy) in zip(boxes, offsets)
        ]
        best = int(np.argmin(np.round(cost, 6)))
        covered.append(boxes[best])
        text.set_position(offsets[best])
        if abs(offsets[best][1]) > 2.2 * FONT:
            anchor = (x, y + (5 if offsets[best][1] > 0 else -5))
            end = (
                min(max(x, boxes[best][0]), boxes[best][2]),
                boxes[best][1] - 1 if offsets[best][1] > 0 else boxes[best][3] + 2,
            )
            ends = ax.transData.inverted().transform(np.array([anchor, end]) / unit)
            ax.plot(*ends.T, color=styles[algo].colour, linewidth=0.6, alpha=0.6)


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
        "over all tasks by a permutation test (* 0.05, ** 0.01, *** 0.001; none: no difference "
        "found)."
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
            place: dict[str, Any] = {"transform": ax.get_yaxis_transform(), "va": "center"}
            stars = significance_stars(p_values[algo])
            if stars != "n.s.":
                ax.text(1.02, row, stars, fontsize=FONT, **place)
    ax.set_xlim(0.0, 1.25 * (largest or 1.0))
    label_axes(ax, title, xlabel, "")
    ax.set_yticks(range(len(by_algo)), [styles[a].label for a in by_algo], fontsize=FONT - 1)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)


def profiles(results: Results) -> Picture:
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
    plot_profiles(left, returns, "runs with a higher return", "normalised final return")
    words = ("runs with no more oscillation", r"normalised oscillation $\|OJ\|_2$")
    plot_profiles(right, falls, *words, below=True)
    legend_below(figure, line_handles(styles_for(algos)))
    caption = (
        "Share of runs, tasks counting equally, whose normalised return lies above the value on "
        "the axis (left), and whose normalised oscillation does not (right); higher is better in "
        "both."
    )
    if len(algos) <= MOST_BANDS:
        caption += " Bands are pointwise 95 % bootstrap intervals."
    return Picture(name, title, caption, figure)


def plot_profiles(
    ax: Axes,
    by_algo: Mapping[str, Scores],
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
        if len(by_algo) <= MOST_BANDS:
            band: dict[str, Any] = {"color": style.colour, "alpha": BAND, "linewidth": 0}
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
