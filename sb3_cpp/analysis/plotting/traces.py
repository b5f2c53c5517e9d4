"""How zeta, m_K, M_K and C_K went."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from sb3_cpp.analysis.plotting.canvas import dress, short_name, step_axis
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.analysis.results import Results

QUANTITIES = {
    "zeta": r"$\zeta$",
    "m_K": r"$m_K$",
    "M_K": r"$M_K$",
    "C_K": r"$C_K$",
}  # columns of iterations.csv


def traced(results: Results, task: str | None = None) -> list[str]:
    """The algorithms whose compared runs recorded one of the quantities."""
    table = results.iterations.merge(
        results.used()[["task", "algo", "seed"]], on=["task", "algo", "seed"]
    )
    return list(dict.fromkeys(table.algo if task is None else table[table.task == task].algo))


def plot_trace(ax: Axes, results: Results, task: str, quantity: str, algos: Sequence[str]) -> None:
    """The median over seeds as a line, their range as a band, on a logarithmic axis, which has no zero."""
    table = results.iterations.merge(
        results.used()[["task", "algo", "seed"]], on=["task", "algo", "seed"]
    )
    drawn = False
    for algo, style in styles_for(algos).items():
        values = table[(table.task == task) & (table.algo == algo)]
        by_step = values.dropna(subset=[quantity]).groupby("timesteps")[quantity]
        middle, low, high = (
            part.where(part > 0) for part in (by_step.median(), by_step.min(), by_step.max())
        )
        if not high.notna().any():
            continue
        steps, lowest = (
            np.array(high.index, dtype=float),
            values.loc[values[quantity] > 0, quantity].min(),
        )
        ax.plot(steps, middle.to_numpy(), color=style.colour, linestyle=style.dashes, linewidth=1.3)
        ax.fill_between(
            steps, low.fillna(lowest), high, color=style.colour, alpha=0.15, linewidth=0
        )
        drawn = True
    if drawn:
        ax.set_yscale("log")
    dress(ax, short_name(task), "environment steps", QUANTITIES[quantity])
    step_axis(ax)
