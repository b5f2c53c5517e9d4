"""Bars of one measure: the interquartile mean, its interval, every run as a dot, and stars for what differs."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from sb3_cpp.analysis.plotting.canvas import FONT, dress
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.metrics import Interval

Groups = Mapping[str, NDArray[np.float64]]


def plot_bars(
    ax: Axes,
    runs: Groups,
    middles: Mapping[str, Interval],
    title: str,
    xlabel: str,
    marks: Mapping[str, str] | None = None,
) -> None:
    """Horizontal, the first algorithm on top.

    :param runs: the values of the runs, by algorithm
    :param middles: IQM and interval, by algorithm; an interval that reaches far beyond the runs is cut at the frame
    :param marks: what is written to the right of a bar (stars)
    """
    styles = styles_for(runs)
    reach = (
        max((float(values.max()) for values in runs.values() if len(values)), default=1.0) or 1.0
    )
    for row, (algo, values) in enumerate(runs.items()):
        style, middle = styles[algo], middles[algo]
        ax.barh(row, float(middle.estimate), 0.72, color=style.colour, alpha=0.75)
        if np.isfinite(middle.low):
            ends = [max(float(middle.low), 0.0), float(middle.high)]
            ax.plot(
                ends,
                [row, row],
                color="0.3",
                linewidth=1.1,
                path_effects=[withStroke(linewidth=2.4, foreground="white")],
            )
        jitter = np.linspace(-0.18, 0.18, len(values)) if len(values) > 1 else np.zeros(1)
        ax.plot(
            values,
            row + jitter,
            "o",
            color="white",
            markeredgecolor="0.15",
            markeredgewidth=0.6,
            markersize=2.8,
        )
        if marks and marks.get(algo):
            colour = "0.5" if marks[algo] == "n.s." else "black"
            side = ax.get_yaxis_transform()
            ax.text(
                1.02, row, marks[algo], transform=side, va="center", fontsize=FONT - 1, color=colour
            )
    ax.set_xlim(0.0, 1.25 * reach)
    dress(ax, title, xlabel, "")
    ax.set_yticks(range(len(runs)), [styles[algo].label for algo in runs], fontsize=FONT - 1)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
