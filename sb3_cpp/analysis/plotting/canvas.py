"""Panels, legends and files, shared by all figures."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sb3_cpp.analysis.plotting.styles import AlgorithmStyle

FORMATS = ("png", "pdf", "svg")
COLUMN, PAGE = 3.5, 7.2  # inches: one column, and the whole width, of a two-column page
BAND, FAINT_BAND = 0.2, 0.06  # opacity: of the algorithm one looks for, and of the others
FONT = 8
_LEGEND: dict[str, Any] = {"fontsize": FONT, "frameon": False, "handlelength": 3.0}
_LEGEND_ROW = 1.5 * FONT / 72.0  # inches
_WITHOUT_DATE = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def panels(
    count: int, height: float = 2.1, handles: Sequence[Line2D] = ()
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for ``count`` panels, at most three in a row.

    :param handles: of the legend: in the cell after the last panel, or, where it is too small or there is none, lines below
    """
    in_cell = (
        bool(handles) and count % 3 != 0 and _legend_rows(handles, PAGE / 3) * _LEGEND_ROW < height
    )
    cells = count + in_cell
    columns = min(3, cells)
    rows = math.ceil(cells / columns)
    figure = new_figure(PAGE if columns == 3 else COLUMN * columns, height * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.axis("off")
    if in_cell:
        axes[-1].legend(
            handles=handles, loc="center", ncols=_legend_columns(handles, PAGE / 3), **_LEGEND
        )
    elif handles:
        legend_below(figure, handles)
    return figure, axes[:count]


def legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """A legend under the whole figure, which gets as much higher; as many columns as the names leave room for."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _legend_rows(handles, width) * _LEGEND_ROW)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=_legend_columns(handles, width),
        **_LEGEND,
    )


def _legend_columns(handles: Sequence[Line2D], width: float) -> int:
    letters = max(len(str(handle.get_label())) for handle in handles)
    column = (
        (_LEGEND["handlelength"] + 2.8 + 0.62 * letters) * FONT / 72.0
    )  # inches, with the spaces around
    return min(max(int(width / column), 1), len(handles))


def _legend_rows(handles: Sequence[Line2D], width: float) -> int:
    return math.ceil(len(handles) / _legend_columns(handles, width))


def new_figure(width: float, height: float) -> Figure:
    """A figure that needs no display."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def dress(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Labels in a size that stays readable at column width, light lines behind the data."""
    ax.set_title(title, fontsize=FONT + 1)
    ax.set_xlabel(xlabel, fontsize=FONT)
    ax.set_ylabel(ylabel, fontsize=FONT)
    ax.tick_params(which="both", labelsize=FONT - 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)


def step_axis(ax: Axes) -> None:
    """Environment steps as 50k or 1.5M."""
    ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: step_text(value)))
    ax.set_xlim(left=0)


def step_text(value: float) -> str:
    scale, unit = (
        (1e6, "M") if abs(value) >= 1e6 else (1e3, "k") if abs(value) >= 1e3 else (1.0, "")
    )
    return f"{value / scale:.4g}{unit}"


def short_name(task: str) -> str:
    """``MinAtar/Breakout-v1`` as ``MinAtar Breakout``, ``SeaquestNoFrameskip-v4`` and ``ALE/Seaquest-v5`` as ``Seaquest``."""
    family, _, name = task.rpartition("/")
    name = name.rpartition("-v")[0].removesuffix("NoFrameskip")
    return f"MinAtar {name}" if name and family == "MinAtar" else name or task


def line_handles(styles: Mapping[str, AlgorithmStyle], markers: bool = False) -> list[Line2D]:
    """What the legend shows: lines with their dashes, or markers."""
    return [
        Line2D(
            [],
            [],
            color=style.colour,
            linestyle="none" if markers else style.dashes,  # type: ignore[arg-type]
            marker=style.marker if markers else "none",
            linewidth=1.6,
            label=style.label,
        )
        for style in styles.values()
    ]


def band_handle(intervals: bool) -> Line2D:
    """What the legend says of the bands around curves."""
    label = "95 % interval" if intervals else "range of seeds"
    return Line2D(
        [], [], color="black", alpha=BAND, linewidth=7, solid_capstyle="butt", label=label
    )


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a picture in the format of its name; the same figure gives the same bytes."""
    kind = path.suffix.removeprefix(".")
    with matplotlib.rc_context({"svg.hashsalt": "sb3_cpp", "pdf.fonttype": 42}):
        figure.savefig(path, dpi=200, metadata=_WITHOUT_DATE[kind])
    return path
