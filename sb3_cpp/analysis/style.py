"""Style of all figures: names and colours of algorithms, panels, legends and files.

Colours are from the palettes of Okabe and Ito and of Tol (muted), which colour-blind readers can
tell apart; dashes and markers differ too, for prints in grey.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sb3_cpp.files import write_with

Dashes = str | tuple[float, tuple[float, ...]]


class Style(NamedTuple):
    """How an algorithm looks in every figure."""

    label: str
    colour: str
    dashes: Dashes
    marker: str = "o"


class Picture(NamedTuple):
    """A figure with its words; without a figure, the caption says why there is none."""

    name: str
    title: str
    caption: str
    figure: Figure | None


STYLES = {
    "cpp": Style("CPP", "#0072B2", "-", "o"),
    "cmdqn": Style("CMDQN", "#9966FF", (0, (4, 1, 4, 1, 1, 1)), "H"),
    "cvi": Style("CVI", "#D55E00", "--", "s"),
    "mdqn": Style("MDQN", "#009E73", "-.", "^"),
    "modqn": Style("MoDQN", "#E69F00", (0, (1, 1)), "D"),
    "cpi": Style("DCPI", "#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    "dqn": Style("DQN", "#000000", (0, (4, 1.5)), "P"),
    "qrdqn": Style("QR-DQN", "#5E5E5E", (0, (2, 1)), "X"),
    "ppo": Style("PPO", "#56B4E9", (0, (6, 2)), "<"),
    "a2c": Style("A2C", "#661100", (0, (3, 1, 1, 1)), ">"),
    "cpi_0.01": Style("DCPI, ζ = 0.01", "#332288", (0, (8, 2)), "p"),
    "cpi_0.5": Style("DCPI, ζ = 0.5", "#44AA99", (0, (1, 2)), "*"),
    "cpi_cpi": Style("DCPI, ζ of CPI", "#AA4499", (0, (4, 1, 1, 1)), "h"),
    "cpi_spi": Style("DCPI, ζ of A-SPI", "#999933", (0, (7, 1, 2, 1)), "d"),
}
_SPARE_COLOURS = [
    "#4422DD",
    "#880077",
    "#117733",
    "#88BB66",
    "#BB55FF",
    "#000055",
    "#DDCC77",
    "#CC6677",
]
_SPARE_DASHES: tuple[Dashes, ...] = (
    (0, (9, 1)),
    (0, (2, 2)),
    (0, (6, 1, 1, 1)),
    (0, (3, 2)),
    (0, (5, 1, 1, 1, 1, 1, 1, 1)),
)
_SPARE_MARKERS = ("8", "$+$", "$x$", "$o$", "$s$")

FORMATS = ("png", "pdf", "svg")
COLUMN, PAGE = 3.5, 7.2  # inches: width of a column, and of a page, of a two-column paper
BAND, FAINT_BAND = 0.2, 0.06  # opacity: of the reference, and of the others if they are many
FONT = 8
_LEGEND: dict[str, Any] = {"fontsize": FONT, "frameon": False, "handlelength": 3.0}
_LEGEND_ROW = 1.5 * FONT / 72.0  # inches
# Without a date the same figure gives the same bytes
_METADATA = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}

_all_algos: ContextVar[tuple[str, ...]] = ContextVar("_all_algos", default=())


@contextmanager
def fixed_styles(algos: Iterable[str]) -> Iterator[None]:
    """Inside, these algorithms have the same styles in figures that show only some of them."""
    token = _all_algos.set(tuple(algos))
    try:
        yield
    finally:
        _all_algos.reset(token)


def styles_for(algos: Iterable[str]) -> Mapping[str, Style]:
    """The styles of some algorithms; unknown names (variants) get spare ones, alphabetically."""
    names = list(dict.fromkeys(algos))
    # By the alphabet, not by order of appearance: a variant keeps its colour if the order changes
    others = sorted({*names, *_all_algos.get()} - STYLES.keys())
    spare = {
        name: Style(
            name,
            _SPARE_COLOURS[i % len(_SPARE_COLOURS)],
            _SPARE_DASHES[i % len(_SPARE_DASHES)],
            _SPARE_MARKERS[i % len(_SPARE_MARKERS)],
        )
        for i, name in enumerate(others)
    }
    return {name: STYLES.get(name) or spare[name] for name in names}


def label_of(algo: str) -> str:
    """The algorithm's name in figures and tables."""
    return STYLES[algo].label if algo in STYLES else algo


def short_name(task: str) -> str:
    """``MinAtar/Breakout-v1`` as ``MinAtar Breakout``, ``ALE/Seaquest-v5`` as ``Seaquest``."""
    task = task.rpartition(":")[2]  # package:Env-v0 and package.module:EnvClass
    family, _, name = task.rpartition("/")
    name = name.rpartition("-v")[0].removesuffix("NoFrameskip")
    return f"MinAtar {name}" if name and family == "MinAtar" else name or task


def new_figure(width: float, height: float) -> Figure:
    """A figure that needs no display."""
    # Not pyplot's figure: no global state, no backend that looks for a display
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_row(
    columns: int = 2, width: float = PAGE, height: float = 2.9
) -> tuple[Figure, list[Axes]]:
    """A figure with axes from left to right."""
    figure = new_figure(width, height)
    return figure, list(figure.subplots(1, columns, squeeze=False)[0])


def panels(
    count: int, height: float = 2.1, handles: Sequence[Line2D] = ()
) -> tuple[Figure, list[Axes]]:
    """A figure with axes for ``count`` panels, at most three in a row.

    :param handles: of the legend, in the cell after the last panel if it fits, else below all
    """
    # The free cell of the last row, if there is one and the names fit
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
        columns = _legend_columns(handles, PAGE / 3)
        axes[-1].legend(handles=handles, loc="center", ncols=columns, **_LEGEND)
    elif handles:
        legend_below(figure, handles)
    return figure, axes[:count]


def label_axes(ax: Axes, title: str, xlabel: str, ylabel: str) -> None:
    """Title and labels that are readable at column width; light grid lines behind the data."""
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
    for scale, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}"


def line_handles(styles: Mapping[str, Style], markers: bool = False) -> list[Line2D]:
    """Legend entries: lines with their dashes, or markers."""
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
    """Legend entry of the bands around curves."""
    look: dict[str, Any] = {"color": "black", "alpha": BAND, "linewidth": 7}
    label = "95 % interval" if intervals else "range of seeds"
    return Line2D([], [], solid_capstyle="butt", label=label, **look)


def legend_below(figure: Figure, handles: Sequence[Line2D]) -> None:
    """A legend under the whole figure, which grows by its height."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _legend_rows(handles, width) * _LEGEND_ROW)
    columns = _legend_columns(handles, width)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **_LEGEND)


def _legend_columns(handles: Sequence[Line2D], width: float) -> int:
    """As many as the longest name leaves room for."""
    letters = max(len(str(handle.get_label())) for handle in handles)
    column = (_LEGEND["handlelength"] + 2.8 + 0.62 * letters) * FONT / 72.0  # inches
    return min(max(int(width / column), 1), len(handles))


def _legend_rows(handles: Sequence[Line2D], width: float) -> int:
    return math.ceil(len(handles) / _legend_columns(handles, width))


def save_figure(
    figure: Figure, path: Path, legend_from: Axes | None = None, columns: int | None = None
) -> Path:
    """Write a figure in the format of its name; the same figure gives the same bytes.

    :param legend_from: axes whose labels make one legend below all panels
    :param columns: of that legend; by default one row
    """
    if legend_from is not None:
        handles, labels = legend_from.get_legend_handles_labels()
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns or len(labels)}
        figure.legend(handles, labels, fontsize=FONT, frameon=False, **place)
    # svg.hashsalt makes ids of SVG elements reproducible; fonttype 42 embeds TrueType, which
    # journals ask for
    metadata = _METADATA[path.suffix.removeprefix(".")]
    with matplotlib.rc_context({"svg.hashsalt": "sb3_cpp", "pdf.fonttype": 42}):
        write_with(path, lambda part: figure.savefig(part, dpi=200, metadata=metadata))
    return path
