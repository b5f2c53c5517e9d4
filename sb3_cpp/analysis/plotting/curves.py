"""Learning curves: the interquartile mean over seeds, with its interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from sb3_cpp.analysis.plotting.canvas import BAND, FAINT_BAND, dress, short_name, step_axis
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.results import Results
from sb3_cpp.metrics import Interval, iqm_interval

ENOUGH_SEEDS = 5


class CurveSet(NamedTuple):
    """The curves of some seeds on common steps: steps (points,), returns (seeds, points)."""

    steps: NDArray[np.float64]
    returns: NDArray[np.float64]


def curve_set(results: Results, task: str, algo: str, series: str) -> CurveSet | None:
    """The compared runs of one algorithm on one task; None if there are none.

    Where the seeds have different steps, they are read off, by straight lines, at those of the seed with the fewest, as far
    as all of them reach.
    """
    used = results.used()
    seeds = used[(used.task == task) & (used.algo == algo)].seed
    here = results.curves
    here = here[
        (here.task == task) & (here.algo == algo) & (here.series == series) & here.seed.isin(seeds)
    ]
    curves = [
        (run["step"].to_numpy(float), run["return"].to_numpy(float))
        for _, run in here.groupby("seed")
    ]
    if not curves:
        return None
    steps = min((x for x, _ in curves), key=len)
    steps = steps[
        (steps >= max(x[0] for x, _ in curves)) & (steps <= min(x[-1] for x, _ in curves))
    ]
    if not len(steps):
        return None
    return CurveSet(steps, np.stack([np.interp(steps, x, y) for x, y in curves]))


def shows_intervals(results: Results, algos: Sequence[str], tasks: Sequence[str]) -> bool:
    """Whether the bands of a figure are intervals. The intervals of fewer than 5 seeds would cover the picture; if there are
    such runs, all bands reach from the lowest seed to the highest, so that they can be compared."""
    runs = results.used()
    runs = runs[runs.algo.isin(algos) & runs.task.isin(tasks)]
    return bool((runs.groupby(["algo", "task"]).seed.nunique() >= ENOUGH_SEEDS).all())


def plot_curves(
    ax: Axes,
    results: Results,
    task: str,
    algos: Sequence[str],
    reference: str,
    series: str = "evaluation",
    intervals: bool = True,
) -> None:
    """One line per algorithm with a band; the axis shows the range of the runs themselves.

    :param intervals: bands are pointwise 95 % intervals; else they reach from the lowest seed to the highest
    """
    styles = styles_for(algos)
    lowest, highest = np.inf, -np.inf
    for algo, style in styles.items():
        curves = curve_set(results, task, algo, series)
        if curves is None:
            continue
        middle = iqm_interval({task: curves.returns})
        opacity, above = (BAND, 3) if algo == reference or len(styles) < 4 else (FAINT_BAND, 2)
        ax.plot(
            curves.steps,
            middle.estimate,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.4,
            zorder=above,
        )
        if not intervals:
            middle = Interval(
                middle.estimate, curves.returns.min(axis=0), curves.returns.max(axis=0)
            )
        ax.fill_between(
            curves.steps, middle.low, middle.high, color=style.colour, alpha=opacity, linewidth=0
        )
        lowest, highest = min(lowest, curves.returns.min()), max(highest, curves.returns.max())
    if np.isfinite(lowest):
        margin = 0.05 * (highest - lowest) or 1.0
        ax.set_ylim(lowest - margin, highest + margin)
    dress(
        ax,
        short_name(task),
        "environment steps",
        "return" if series == "evaluation" else "training return",
    )
    step_axis(ax)
