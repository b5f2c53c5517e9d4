"""Figure helpers that every picture shares: size, labels, legend.

Colours are told apart by colour-blind readers, and every line has its own dashes.
"""

from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class Style(NamedTuple):
    """How an algorithm looks, in every figure."""

    label: str
    colour: str
    dashes: str | tuple[float, tuple[float, ...]]


_FONT = 9


def new_figure(
    columns: int = 2, width: float = 7.2, height: float = 2.9
) -> tuple[Figure, list[Axes]]:
    """A figure that needs no display, with its axes from left to right."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(axes)


def dress(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Labels in a size that stays readable at column width."""
    ax.set_title(title, fontsize=_FONT + 1)
    ax.set_xlabel(xlabel, fontsize=_FONT)
    ax.set_ylabel(ylabel, fontsize=_FONT)
    ax.tick_params(labelsize=_FONT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)


def save_figure(
    figure: Figure, path: Path, legend_from: Axes | None = None, columns: int | None = None
) -> Path:
    """Write the picture, with one legend below all panels."""
    if legend_from is not None:
        handles, labels = legend_from.get_legend_handles_labels()
        columns = columns or len(labels)
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=columns,
            fontsize=_FONT - 1,
            frameon=False,
        )
    figure.savefig(path, dpi=200)
    return path
