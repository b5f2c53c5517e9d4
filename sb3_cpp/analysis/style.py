"""Style of all figures: names and colours of algorithms, panels, legends and files.

Names are those of the README's table. Colours begin with the palette of Okabe and Ito; those that
appear together can be told apart by colour-blind readers. Dashes and markers differ too, for
prints in grey.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.artist import Artist
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
    "cpp": Style("DeepCPP", "#0072B2", "-", "o"),
    "cmdqn": Style("CautiousMDQN", "#9966FF", (0, (4, 1, 4, 1, 1, 1)), "H"),
    "cvi": Style("CVI", "#D55E00", "--", "s"),
    "mdqn": Style("MDQN", "#009E73", "-.", "^"),
    "modqn": Style("MoDQN", "#E69F00", (0, (1, 1)), "D"),
    "cpi": Style("DeepCPI", "#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    "dqn": Style("DQN", "#000000", (0, (4, 1.5)), "P"),
    "qrdqn": Style("QR-DQN", "#5E5E5E", (0, (2, 1)), "X"),
    "ppo": Style("PPO", "#56B4E9", (0, (6, 2)), "<"),
    "a2c": Style("A2C", "#661100", (0, (3, 1, 1, 1)), ">"),
    "cpi_0.01": Style("DeepCPI (ζ = 0.01)", "#332288", (0, (8, 2)), "p"),
    "cpi_0.5": Style("DeepCPI (ζ = 0.5)", "#668000", (0, (1, 2)), "*"),
    "cpi_cpi": Style("DeepCPI (ζ of CPI)", "#805246", (0, (4, 1, 1, 1)), "h"),
    "cpi_spi": Style("DeepCPI (ζ of A-SPI)", "#E2A078", (0, (7, 1, 2, 1)), "d"),
    "dqn_average": Style("DQN (averaged)", "#880077", (0, (2, 1, 1, 1)), r"$\clubsuit$"),
    "cpp_munchausen_typical": Style("DeepCPP of 0.1.0", "#800033", (0, (7, 1)), r"$\bigstar$"),
    "mdqn_average": Style("MDQN (averaged)", "#4422DD", (0, (9, 2, 2, 2)), "8"),
    "csac": Style("CautiousSAC", "#E0507A", (0, (5, 2)), r"$\spadesuit$"),
    "sac": Style("SAC", "#003380", (0, (3, 3)), r"$\heartsuit$"),
    "td3": Style("TD3", "#B88A00", (0, (6, 1, 2, 1)), r"$\diamondsuit$"),
}
_SPARE_COLOURS = [
    "#70CC70",
    "#000080",
    "#A64932",
    "#590036",
    "#99CCAD",
    "#0042A6",
    "#F26B49",
]
_SPARE_DASHES: tuple[Dashes, ...] = (
    (0, (9, 1)),
    (0, (2, 2)),
    (0, (6, 1, 1, 1)),
    (0, (3, 2)),
    (0, (5, 1, 1, 1, 1, 1, 1, 1)),
)
_SPARE_MARKERS = (r"$\star$", "1", "2", "3", "4", "+", "x", r"$\oplus$")

FORMATS = ("png", "pdf", "svg")
COLUMN, PAGE = 3.5, 7.2  # inches: width of a column, and of a page, of a two-column paper
BAND = 0.2  # opacity
MOST_BANDS = 4  # bands of more algorithms hide each other and the lines
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
    """A figure as wide as a page with axes for ``count`` panels, at most three in a row.

    Four panels are two rows of two.

    :param handles: of the legend, in the cell after the last panel if it fits, else below all
    """
    columns = 2 if count == 4 else min(3, count)
    rows = math.ceil(count / columns)
    # Wider panels are a little higher
    figure = new_figure(PAGE, height * {1: 1.3, 2: 1.15, 3: 1.0}[columns] * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[count:]:
        ax.axis("off")
    cell = PAGE / columns
    if handles and axes[count:] and _legend_rows(handles, cell) * _LEGEND_ROW < height:
        place: dict[str, Any] = {"loc": "center", "ncols": _legend_columns(handles, cell)}
        axes[-1].legend(handles=handles, **place, **_LEGEND)
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


def step_axis(ax: Axes, last: float | None = None) -> None:
    """Environment steps as 50k or 1.5M; no ticks right of ``last``."""
    locator = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10])
    ax.xaxis.set_major_locator(locator)
    if last is not None:
        ax.set_xticks([tick for tick in locator.tick_values(0.0, last) if tick <= last])
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


def spread_handle(intervals: bool, bands: bool) -> Line2D:
    """Legend entry of the bands around curves, or of the bars at their end."""
    label = "95 % interval" if intervals else "range of seeds"
    if not bands:
        bar: dict[str, Any] = {"marker": "|", "markersize": 9, "linestyle": "none"}
        return Line2D([], [], color="0.4", label=label, **bar)
    look: dict[str, Any] = {"color": "black", "alpha": BAND, "linewidth": 7}
    return Line2D([], [], solid_capstyle="butt", label=label, **look)


def legend_below(figure: Figure, handles: Sequence[Artist]) -> None:
    """A legend under the whole figure, which grows by its height."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _legend_rows(handles, width) * _LEGEND_ROW)
    columns = _legend_columns(handles, width)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **_LEGEND)


def _legend_columns(handles: Sequence[Artist], width: float) -> int:
    """As many as fit, then as few as give no more rows: five are 3 and 2, not 4 and 1."""
    wide = [
        (_LEGEND["handlelength"] + 2.8 + 0.62 * len(str(handle.get_label()))) * FONT / 72.0
        for handle in handles
    ]  # inches; a legend is filled column by column

    def rows(columns: int) -> int:
        return math.ceil(len(wide) / columns)

    def fits(columns: int) -> bool:
        size = rows(columns)
        return sum(max(wide[i : i + size]) for i in range(0, len(wide), size)) <= width

    most = next((columns for columns in range(len(wide), 1, -1) if fits(columns)), 1)
    return math.ceil(len(wide) / rows(most))


def _legend_rows(handles: Sequence[Artist], width: float) -> int:
    return math.ceil(len(handles) / _legend_columns(handles, width))


def save_figure(figure: Figure, path: Path, legend_from: Axes | None = None) -> Path:
    """Write a figure in the format of its name; the same figure gives the same bytes.

    :param legend_from: axes whose labels make one legend below all panels
    """
    if legend_from is not None:
        legend_below(figure, legend_from.get_legend_handles_labels()[0])
    # svg.hashsalt makes ids of SVG elements reproducible; fonttype 42 embeds TrueType, which
    # journals ask for
    metadata = _METADATA[path.suffix.removeprefix(".")]
    with matplotlib.rc_context({"svg.hashsalt": "sb3_cpp", "pdf.fonttype": 42}):
        write_with(path, lambda part: figure.savefig(part, dpi=200, metadata=metadata))
    return path
