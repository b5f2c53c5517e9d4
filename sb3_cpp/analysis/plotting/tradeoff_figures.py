"""Figures of return and oscillation: the Pareto plane, and bars with significance."""

import numpy as np

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
from sb3_cpp.analysis.plotting.bars import plot_bars
from sb3_cpp.analysis.plotting.canvas import COLUMN, line_handles, new_figure, panels, short_name
from sb3_cpp.analysis.plotting.pareto import plot_pareto
from sb3_cpp.analysis.plotting.picture import Picture
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.results import Results
from sb3_cpp.metrics import Interval, Scores, iqm_interval, significance_stars

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
            _falls(scores(results, algo, "normalised_oscillation_l2", tasks)),
        )
        for algo in algos
    }
    figure = new_figure(COLUMN + 0.7, 3.2)
    label = r"normalised oscillation $\|OJ\|_2$ (less is better)"
    plot_pareto(figure.subplots(), points, (0.0, 1.0), "", label, "normalised final return")
    caption = (
        "Left and up is better; the dashed line joins the algorithms that no other one beats on both. Points are "
        "interquartile means over all runs of all tasks, crosses their 95 % bootstrap intervals, cut at the frame. Both axes "
        "are in units of each task's range of returns."
    )
    return Picture(name, title, caption, figure)


def pareto_by_task(results: Results) -> Picture:
    """The same for each task, in the units of its return."""
    tasks, algos = tasks_of(results), ordered(list(results.used().algo))
    figure, axes = panels(len(tasks), handles=line_handles(styles_for(algos), markers=True))
    for ax, task in zip(axes, tasks):
        here = {algo: scores(results, algo, "final_return", [task]) for algo in algos}
        points = {
            algo: (iqm_interval(gain), _falls(scores(results, algo, "oscillation_l2", [task])))
            for algo, gain in here.items()
            if gain
        }
        plot_pareto(
            ax,
            points,
            _range(results, task),
            short_name(task),
            NORMS["l2"][0],
            "final return",
            names=False,
        )
    caption = "As for all tasks, in the units of the return: interquartile means over seeds with their 95 % intervals."
    return Picture("pareto_tasks", "Return against oscillation, by task", caption, figure)


def oscillation_bars(results: Results, norm: str, reference: str) -> Picture:
    """A panel per task, and one for all of them."""
    symbol, words = NORMS[norm]
    measure, tasks, algos = (
        f"oscillation_{norm}",
        tasks_of(results),
        ordered(list(results.used().algo)),
    )
    p_values = (
        significance_table(results, reference)
        .set_index(["measure", "task", "algo"])
        .welch_holm.to_dict()
    )
    together = averaged_algorithms(results) if shared_tasks(results) and len(tasks) > 1 else []
    figure, axes = panels(len(tasks) + bool(together), 0.75 + 0.19 * len(algos))
    for ax, task in zip(axes, tasks):
        runs = {
            algo: values[task]
            for algo in algos
            if (values := scores(results, algo, measure, [task]))
        }
        known = {algo: p_values.get((measure, task, algo), np.nan) for algo in runs}
        marks = {algo: significance_stars(p) for algo, p in known.items() if np.isfinite(p)}
        plot_bars(
            ax,
            runs,
            {algo: _falls({task: values}) for algo, values in runs.items()},
            short_name(task),
            symbol,
            marks,
        )
    if together:
        pooled = {
            algo: scores(results, algo, f"normalised_{measure}", shared_tasks(results))
            for algo in together
        }
        middles = {algo: _falls(values) for algo, values in pooled.items()}
        every_run = {algo: np.concatenate(list(values.values())) for algo, values in pooled.items()}
        overall = suite_table(results, reference).set_index(["measure", "algo"]).p_holm.to_dict()
        known = {algo: overall[f"normalised_{measure}", algo] for algo in together}
        marks = {algo: significance_stars(p) for algo, p in known.items() if np.isfinite(p)}
        plot_bars(axes[-1], every_run, middles, "all tasks", f"normalised {symbol}", marks)
    label = styles_for([reference])[reference].label
    caption = (
        f"{words.capitalize()} of the evaluation curve. Bars are interquartile means, lines 95 % bootstrap intervals (cut at "
        f"the frame), dots the runs. Stars: differs from {label} by Welch's test with Holm's correction over all tasks and "
        "bars, over all tasks by a permutation test (* 0.05, ** 0.01, *** 0.001, n.s. not significant)."
    )
    return Picture(f"oscillation_{norm}", f"Oscillation: {words}", caption, figure)


def _range(results: Results, task: str) -> tuple[float, float]:
    runs = results.used()
    row = runs[runs.task == task].iloc[0]
    return float(row.return_low), float(row.return_high)


def _falls(values: Scores) -> Interval:
    """An oscillation is never negative."""
    return iqm_interval(values).clip(0.0, np.inf)
