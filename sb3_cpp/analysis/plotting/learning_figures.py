"""Figures over training: curves of all tasks (the paper's Fig. 4), of the ablation (Fig. 5), of one task, and the traces."""

from matplotlib.figure import Figure

from sb3_cpp.analysis.comparison import ordered, tasks_of
from sb3_cpp.analysis.plotting.canvas import (
    COLUMN,
    PAGE,
    band_handle,
    legend_below,
    line_handles,
    new_figure,
    panels,
)
from sb3_cpp.analysis.plotting.curves import plot_curves, shows_intervals
from sb3_cpp.analysis.plotting.picture import Picture
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.plotting.traces import QUANTITIES, plot_trace, traced
from sb3_cpp.analysis.results import Results

ABLATION = "cpi_"  # the designs of the ablation have names that begin with it
_BAND = {
    True: "Lines are interquartile means over seeds, bands their pointwise 95 % bootstrap intervals, cut at the frame.",
    False: "Lines are interquartile means over seeds, bands reach from the lowest to the highest seed.",
}


def curves_of_all_tasks(results: Results, reference: str, series: str = "evaluation") -> Picture:
    """The paper's Fig. 4: a panel per task, the names of the algorithms in the cell after them."""
    tasks, algos = tasks_of(results), ordered(list(results.used().algo))
    figure, band = _curves(results, tasks, algos, reference, series)
    if series == "evaluation":
        return Picture(
            "fig4",
            "Learning curves (layout of the paper's Fig. 4)",
            f"Return of the evaluations. {band}",
            figure,
        )
    caption = f"Mean return of the last 100 training episodes, exploration included. {band}"
    return Picture("training_curves", "Training curves", caption, figure)


def _curves(
    results: Results,
    tasks: list[str],
    algos: list[str],
    reference: str,
    series: str = "evaluation",
    height: float = 2.1,
) -> tuple[Figure, str]:
    """A panel per task, and what the bands are."""
    intervals = shows_intervals(results, algos, tasks)
    figure, axes = panels(
        len(tasks), height, [*line_handles(styles_for(algos)), band_handle(intervals)]
    )
    for ax, task in zip(axes, tasks):
        plot_curves(ax, results, task, algos, reference, series, intervals)
    return figure, _BAND[intervals]


def curves_of_task(results: Results, task: str, reference: str) -> Picture:
    """One task at column width."""
    used = results.used()
    algos = ordered(list(used[used.task == task].algo))
    intervals = shows_intervals(results, algos, [task])
    figure = new_figure(COLUMN, 2.4)
    plot_curves(figure.subplots(), results, task, algos, reference, intervals=intervals)
    legend_below(figure, [*line_handles(styles_for(algos)), band_handle(intervals)])
    name = f"curve_{task.replace('/', '-')}"
    return Picture(
        name, f"Learning curves: {task}", f"Return of the evaluations. {_BAND[intervals]}", figure
    )


def ablation_curves(results: Results) -> Picture:
    """The paper's Fig. 5: four designs of DeepCPI's coefficient, and CPP beside them."""
    name, title = "fig5", "Ablation of the coefficient (layout of the paper's Fig. 5)"
    used = results.used()
    designs = ordered([algo for algo in used.algo if algo.startswith(ABLATION)])
    if not designs:
        return Picture(name, title, f"there are no runs of the ablation ({ABLATION}…)", None)
    algos = [*designs, *(algo for algo in ("cpp",) if (used.algo == algo).any())]
    tasks = [
        task
        for task in tasks_of(results)
        if used.loc[used.task == task, "algo"].isin(designs).any()
    ]
    figure, band = _curves(results, tasks, algos, "cpp", height=2.4)
    words = f"DeepCPI with {len(designs)} design{'s' if len(designs) > 1 else ''} of zeta"
    return Picture(name, title, f"{words}{', and CPP' if 'cpp' in algos else ''}. {band}", figure)


def traces(results: Results) -> Picture:
    """zeta, m_K, M_K and C_K: a row each, a column per task."""
    name, title = "traces", "The coefficient and what it is made of"
    algos = ordered(traced(results))
    if not algos:
        return Picture(name, title, "no run recorded zeta, m_K, M_K or C_K", None)
    tasks = [task for task in tasks_of(results) if traced(results, task)]
    rows = list(QUANTITIES)
    figure = new_figure(min(max(COLUMN, 2.35 * len(tasks)), PAGE), 1.3 * len(rows) + 0.3)
    axes = figure.subplots(len(rows), len(tasks), squeeze=False, sharex="col", sharey="row")
    for row, quantity in enumerate(rows):
        for column, task in enumerate(tasks):
            ax = axes[row, column]
            plot_trace(ax, results, task, quantity, algos)
            if row > 0:
                ax.set_title("")
            ax.label_outer()
    legend_below(figure, line_handles(styles_for(algos)))
    caption = (
        "zeta: how far the new policy is let in; m_K, M_K: mean advantage and its scale; C_K: bound on one policy step. "
        "Lines are medians over seeds, bands reach from the smallest to the largest seed; logarithmic axes show no zeros."
    )
    return Picture(name, title, caption, figure)
