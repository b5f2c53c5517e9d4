"""Figures of the paper's didactic studies: return with its spread, oscillation bars, zeta over K;
and the long table of their curves.

Every function draws into given axes from arrays of shape (trials, iterations) or (trials,), keyed
by algorithm: the gridworld and the pendulum share them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sb3_cpp.analysis.style import BAND, FONT, Style, label_axes, new_row, save_figure
from sb3_cpp.analysis.style import STYLES as DEEP_STYLES
from sb3_cpp.metrics import Oscillation, significance_stars, welch_p_value

Samples = Mapping[str, NDArray[np.float64]]

STYLES = {  # no colour of another algorithm in the figures of deep runs
    "cpp": DEEP_STYLES["cpp"]._replace(label="CPP"),
    "cvi": DEEP_STYLES["cvi"],
    "espi": Style("E-SPI", "#882255", "-."),
    "aspi": DEEP_STYLES["cpi_spi"]._replace(label="A-SPI", dashes=":"),
    "cpi": DEEP_STYLES["cpi"]._replace(label="CPI"),
    "cpp_1": Style("CPP, scheme 1", "#7FA8D8", (0, (6, 2))),
    "linear_cpp": Style("linear CPP", "#004C7A", (0, (3, 1, 1, 1))),
    "espi_printed": Style("E-SPI, printed δ", "#B5B5B5", (0, (1, 2))),
    "cpp_geometric": Style("CPP, geometric", "#2A1FB8", (0, (4, 1, 2, 1))),
    "span_cpp": Style("CPP, span bound", "#7A4A10", (0, (2, 1))),
    "statewise": Style("state-wise", "#117733", (0, (8, 1, 1, 1))),
}
_ERROR_BAR = {"linewidth": 1.0, "ecolor": "0.55"}  # grey shows on dark bars too


def long_table(curves: Samples, first_trial: int = 0, **labels: str) -> pd.DataFrame:
    """One row per trial and iteration K of curves (trials, iterations), labels in front."""
    trials, iterations = next(iter(curves.values())).shape
    numbers = [range(first_trial, first_trial + trials), range(1, iterations + 1)]
    index = pd.MultiIndex.from_product(numbers, names=["trial", "K"])
    columns = {name: curve.ravel() for name, curve in curves.items()}
    frame = pd.DataFrame(columns, index=index).reset_index()
    for position, (name, label) in enumerate(labels.items()):
        frame.insert(position, name, label)
    return frame


def _line(ax: Axes, algo: str, y: NDArray[np.float64]) -> None:
    """One algorithm's line over K = 1, 2, ..."""
    label, colour, dashes, _ = STYLES[algo]
    K = np.arange(1, y.size + 1)
    ax.plot(K, y, color=colour, linestyle=dashes, label=label, linewidth=1.6)


def plot_returns(ax: Axes, returns: Samples, ylabel: str = "return") -> None:
    """Mean over trials with a band of one standard deviation."""
    for algo, curves in returns.items():
        # the standard deviation, as in the paper: the band shows trials, not doubt of the mean
        mean, sd = curves.mean(axis=0), curves.std(axis=0, ddof=1)
        _line(ax, algo, mean)
        K, colour = np.arange(1, mean.size + 1), STYLES[algo].colour
        ax.fill_between(K, mean - sd, mean + sd, color=colour, alpha=BAND, linewidth=0)
    label_axes(ax, "Return, mean ± 1 sd over trials", "iteration K", ylabel)
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def plot_oscillation(
    ax: Axes, oscillations: Mapping[str, Oscillation], reference: str = "cvi"
) -> None:
    """Bars of both norms with standard errors; stars: Welch's test against the reference.

    Without a star no difference was found.
    """
    width, norms = 0.8 / len(oscillations), ("inf", "l2")
    for i, (algo, values) in enumerate(oscillations.items()):
        samples = [getattr(values, norm) for norm in norms]
        means = [sample.mean() for sample in samples]
        errors = [sample.std(ddof=1) / np.sqrt(sample.size) for sample in samples]
        x = np.arange(len(norms)) + (i - (len(oscillations) - 1) / 2) * width
        style: dict[str, Any] = {"color": STYLES[algo].colour, "label": STYLES[algo].label}
        ax.bar(x, means, 0.9 * width, yerr=errors, error_kw=_ERROR_BAR, **style)
        # the user may have left the reference out
        if algo == reference or reference not in oscillations:
            continue
        for j, norm in enumerate(norms):
            p_value = welch_p_value(samples[j], getattr(oscillations[reference], norm))
            tip, text = (x[j], means[j] + errors[j]), significance_stars(p_value)
            if text == "n.s.":
                continue
            place: dict[str, Any] = {"xytext": (0, 2), "textcoords": "offset points"}
            ax.annotate(text, tip, ha="center", va="bottom", fontsize=FONT - 1, **place)
    label_axes(
        ax, f"Oscillation (stars: against {STYLES[reference].label})", "", "mean over trials"
    )
    ax.set_xticks(range(len(norms)), [r"$\|OJ\|_\infty$", r"$\|OJ\|_2$"], fontsize=FONT)
    ax.margins(y=0.12)
    ax.grid(axis="x", visible=False)


def plot_zeta(ax: Axes, zetas: Samples, floor: float = 1e-6) -> None:
    """Mean coefficient over K on a logarithmic axis; values below ``floor`` lie on it."""
    # a coefficient of exactly 0 has no place on a logarithmic axis
    for algo, curves in zetas.items():
        _line(ax, algo, np.maximum(curves.mean(axis=0), floor))
    ax.set_yscale("log")
    ax.set_ylim(0.7 * floor, 1.6)
    label_axes(ax, "Coefficient, mean over trials", "iteration K", r"$\zeta$")
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def plot_bars(ax: Axes, samples: Samples, title: str, ylabel: str) -> None:
    """One bar per algorithm with its standard error."""
    for i, (algo, values) in enumerate(samples.items()):
        error = values.std(ddof=1) / np.sqrt(values.size)
        ax.bar(i, values.mean(), 0.7, yerr=error, color=STYLES[algo].colour, error_kw=_ERROR_BAR)
    label_axes(ax, title, "", ylabel)
    ax.set_xticks(range(len(samples)), [STYLES[algo].label for algo in samples], fontsize=FONT)
    ax.grid(axis="x", visible=False)


def save_comparison(
    path: Path, returns: Samples, oscillations: Mapping[str, Oscillation], ylabel: str
) -> Path:
    """The paper's figure: return on the left, oscillation on the right."""
    figure, (left, right) = new_row()
    plot_returns(left, returns, ylabel)
    plot_oscillation(right, oscillations)
    return save_figure(figure, path, legend_from=left)
