"""The figures of the paper's didactic studies: return with its spread, oscillation bars with stars, zeta over K.

Every function draws into given axes from arrays of shape (trials, iterations) or (trials,), keyed by algorithm, so that the
gridworld and the pendulum share them. Colours are told apart by colour-blind readers, and every line has its own dashes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sb3_cpp.metrics import Oscillation, significance_stars, welch_p_value

Samples = Mapping[str, NDArray[np.float64]]


class Style(NamedTuple):
    """How an algorithm looks, in every figure."""

    label: str
    colour: str
    dashes: str | tuple[float, tuple[float, ...]]


STYLES = {  # the paper's black, blue and red, from the palette of Okabe and Ito
    "cpp": Style("CPP", "#0072B2", "-"),
    "cvi": Style("CVI", "#D55E00", "--"),
    "espi": Style("E-SPI", "#000000", "-."),
    "aspi": Style("A-SPI", "#009E73", ":"),
    "cpi": Style("CPI", "#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "cpp_1": Style("CPP, scheme 1", "#56B4E9", (0, (6, 2))),
    "linear_cpp": Style("linear CPP", "#004C7A", (0, (3, 1, 1, 1))),
    "espi_printed": Style("E-SPI, printed δ", "#999999", (0, (1, 2))),
}
_FONT = 9
_ERROR_BAR = {"linewidth": 1.0, "ecolor": "0.55"}  # grey shows on the black bar too


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


def plot_returns(ax: Axes, returns: Samples, ylabel: str = "return") -> None:
    """Mean over trials with a band of one standard deviation."""
    for algo, curves in returns.items():
        style, K = STYLES[algo], np.arange(1, curves.shape[1] + 1)
        mean, sd = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        ax.plot(
            K, mean, color=style.colour, linestyle=style.dashes, label=style.label, linewidth=1.6
        )
        ax.fill_between(K, mean - sd, mean + sd, color=style.colour, alpha=0.13, linewidth=0)
    dress(ax, "Return, mean ± 1 sd over trials", "iteration K", ylabel)


def plot_oscillation(
    ax: Axes, oscillations: Mapping[str, Oscillation], reference: str = "cvi"
) -> None:
    """Bars of both norms with standard errors; stars say how sure the difference from the reference is (Welch's test)."""
    width, norms = 0.8 / len(oscillations), ("inf", "l2")
    for i, (algo, values) in enumerate(oscillations.items()):
        style = STYLES[algo]
        samples = [getattr(values, norm) for norm in norms]
        means = [sample.mean() for sample in samples]
        errors = [sample.std(ddof=1) / np.sqrt(sample.size) for sample in samples]
        x = np.arange(len(norms)) + (i - (len(oscillations) - 1) / 2) * width
        ax.bar(
            x,
            means,
            0.9 * width,
            yerr=errors,
            color=style.colour,
            label=style.label,
            error_kw=_ERROR_BAR,
        )
        if algo == reference or reference not in oscillations:
            continue
        for j, norm in enumerate(norms):
            stars = significance_stars(
                welch_p_value(samples[j], getattr(oscillations[reference], norm))
            )
            ax.annotate(
                stars,
                (x[j], means[j] + errors[j]),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=_FONT - 2,
            )
    dress(ax, f"Oscillation (stars: against {STYLES[reference].label})", "", "mean over trials")
    ax.set_xticks(range(len(norms)), [r"$\|OJ\|_\infty$", r"$\|OJ\|_2$"], fontsize=_FONT)
    ax.margins(y=0.12)
    ax.grid(axis="x", visible=False)


def plot_zeta(ax: Axes, zetas: Samples, floor: float = 1e-6) -> None:
    """Mean coefficient over K on a logarithmic axis; values below ``floor`` lie on it."""
    for algo, curves in zetas.items():
        style, K = STYLES[algo], np.arange(1, curves.shape[1] + 1)
        mean = np.maximum(curves.mean(axis=0), floor)
        ax.plot(
            K, mean, color=style.colour, linestyle=style.dashes, label=style.label, linewidth=1.6
        )
    ax.set_yscale("log")
    ax.set_ylim(0.7 * floor, 1.6)
    dress(ax, "Coefficient, mean over trials", "iteration K", r"$\zeta$")


def plot_bars(ax: Axes, samples: Samples, title: str, ylabel: str) -> None:
    """One bar per algorithm with its standard error."""
    for i, (algo, values) in enumerate(samples.items()):
        error = values.std(ddof=1) / np.sqrt(values.size)
        ax.bar(i, values.mean(), 0.7, yerr=error, color=STYLES[algo].colour, error_kw=_ERROR_BAR)
    dress(ax, title, "", ylabel)
    ax.set_xticks(range(len(samples)), [STYLES[algo].label for algo in samples], fontsize=_FONT - 1)
    ax.grid(axis="x", visible=False)


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


def save_comparison(
    path: Path, returns: Samples, oscillations: Mapping[str, Oscillation], ylabel: str
) -> Path:
    """The paper's figure: return on the left, oscillation on the right."""
    figure, (left, right) = new_figure()
    plot_returns(left, returns, ylabel)
    plot_oscillation(right, oscillations)
    return save_figure(figure, path, legend_from=left)
