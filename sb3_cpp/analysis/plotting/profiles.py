"""Performance profiles, and the probability that one algorithm beats another."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sb3_cpp.analysis.plotting.canvas import BAND, FAINT_BAND, FONT, dress
from sb3_cpp.analysis.plotting.styles import STYLES, styles_for
from sb3_cpp.metrics import Scores, performance_profile


def plot_profiles(
    ax: Axes,
    scores: Mapping[str, Scores],
    reference: str,
    title: str,
    xlabel: str,
    below: bool = False,
) -> None:
    """The share of runs above each value (of those that are at most that, with ``below``); higher is better in both."""
    values = np.concatenate(
        [np.ravel(runs) for tasks in scores.values() for runs in tasks.values()]
    )
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 0.1
    thresholds = np.linspace(low - margin, high + margin, 101)
    for algo, style in styles_for(scores).items():
        share = performance_profile(scores[algo], thresholds).share
        middle, bottom, top = (1.0 - part if below else part for part in share)
        ax.plot(
            thresholds,
            middle,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.4,
            drawstyle="steps-mid",
        )
        opacity = BAND if algo == reference or len(scores) < 4 else FAINT_BAND
        ax.fill_between(
            thresholds, bottom, top, color=style.colour, alpha=opacity, linewidth=0, step="mid"
        )
    dress(ax, title, xlabel, "share of runs")
    ax.set_ylim(-0.02, 1.02)


def plot_improvement(ax: Axes, table: pd.DataFrame, reference: str, title: str) -> None:
    """Probability that the reference has the better value than each other algorithm, with its interval.

    :param table: rows of ``comparison.suite_table`` for one measure
    """
    rows = table[table.better.notna()]
    styles = styles_for(rows.algo)
    for place, row in enumerate(rows.to_dict("records")):
        style = styles[row["algo"]]
        if np.isfinite(row["better_low"]):
            ax.plot(
                [row["better_low"], row["better_high"]],
                [place, place],
                color=style.colour,
                linewidth=4,
                alpha=0.35,
            )
        ax.plot(row["better"], place, marker=style.marker, color=style.colour, markersize=6)
    ax.axvline(0.5, color="0.4", linewidth=0.8, linestyle="--")
    name = STYLES[reference].label if reference in STYLES else reference
    dress(ax, title, f"P({name} better)", "")
    ax.set_yticks(range(len(rows)), [styles[algo].label for algo in rows.algo], fontsize=FONT - 1)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlim(-0.05, 1.05)
    ax.grid(axis="y", visible=False)
