"""Figures over all tasks: performance profiles and the probability of improvement."""

from sb3_cpp.analysis.comparison import (
    averaged_algorithms,
    scores,
    shared_tasks,
    suite_table,
    why_no_average,
)
from sb3_cpp.analysis.plotting.canvas import PAGE, legend_below, line_handles, new_figure
from sb3_cpp.analysis.plotting.picture import Picture
from sb3_cpp.analysis.plotting.profiles import plot_improvement, plot_profiles
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.results import Results


def profiles(results: Results, reference: str) -> Picture:
    """Return on the left, oscillation on the right."""
    name, title = "profiles", "Performance profiles"
    tasks, algos = shared_tasks(results), averaged_algorithms(results)
    if not (tasks and algos):
        return Picture(name, title, why_no_average(results), None)
    figure = new_figure(PAGE, 2.4)
    left, right = figure.subplots(1, 2)
    returns, falls = (
        {algo: scores(results, algo, measure, tasks) for algo in algos}
        for measure in ("normalised_return", "normalised_oscillation_l2")
    )
    plot_profiles(left, returns, reference, "runs with a higher return", "normalised final return")
    plot_profiles(
        right,
        falls,
        reference,
        "runs with no more oscillation",
        r"normalised oscillation $\|OJ\|_2$",
        below=True,
    )
    legend_below(figure, line_handles(styles_for(algos)))
    caption = (
        "Share of runs, tasks counting equally, whose normalised return lies above the value on the axis (left), and whose "
        "normalised oscillation does not (right); higher is better in both. Bands are pointwise 95 % bootstrap intervals."
    )
    return Picture(name, title, caption, figure)


def improvement(results: Results, reference: str) -> Picture:
    """The reference against every other algorithm."""
    name, title = "improvement", "Probability of improvement"
    table = suite_table(results, reference)
    if not table.better.notna().any():
        return Picture(
            name, title, f"{reference} and another algorithm must have runs on all tasks", None
        )
    rows = table.algo.nunique() - 1
    figure = new_figure(PAGE, 0.9 + 0.24 * rows)
    left, right = figure.subplots(1, 2)
    plot_improvement(
        left, table[table.measure == "normalised_return"], reference, "higher final return"
    )
    plot_improvement(
        right, table[table.measure == "normalised_oscillation_l2"], reference, "less oscillation"
    )
    label = styles_for([reference])[reference].label
    caption = (
        f"Probability that a run of {label} has a higher final return (left), or less oscillation (right), than a run of the "
        "other algorithm on the same task, averaged over tasks, with 95 % bootstrap intervals; right of 0.5 is better."
    )
    return Picture(name, title, caption, figure)
