"""What the speed benchmark found: its tables and its picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from sb3_cpp.analysis.didactic_plots import dress
from sb3_cpp.benchmarks.speed_memory import EPISODE, Footprint
from sb3_cpp.benchmarks.speed_tasks import LABELS, SB3
from sb3_cpp.benchmarks.speed_timing import PARTS

Tables = tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]  # rounds, summary, parts of one task

_BLUE, _GREY = "#0072B2", "0.6"
# Palette of Okabe and Ito, and three greys; hatches for the three greatest tell them apart without colour
_PART_COLOURS = (
    "#009E73",
    "#56B4E9",
    "0.35",
    "#F0E442",
    "#E69F00",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
    "0.8",
)
_PART_HATCHES = ("", "", "", "", "//", "", "\\\\", "", "")


def print_report(console: Console, tables: Sequence[Tables], memory: Sequence[Footprint]) -> None:
    """Per task the speeds and the parts of a step; for Atari also the buffers."""
    for rounds, summary, parts in tables:
        console.print(_speed_table(summary))
        console.print(_rounds_table(rounds))
        console.print(_parts_table(parts))
    if memory:
        console.print(_memory_table(memory))


def _speed_table(summary: pd.DataFrame) -> Table:
    task, peak = summary.task.iloc[0], summary.peak_gflops.iloc[0]
    table = Table(
        title=f"{task}, threads {summary.threads.iloc[0]}, matrix product {peak:.0f} GFLOP/s"
    )
    table.caption = "ratio: to SB3's DQN of the same round, median, above 1 is faster"
    for column in ("", "steps/s", "ratio", "CPU ratio", "MFLOP/step", "of limit", "h for 5e6"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for row in summary.to_dict("records"):
        table.add_row(
            LABELS[row["algo"]],
            _significant(row["steps_per_s"]),
            f"{row['ratio']:.2f}",
            f"{row['cpu_ratio']:.2f}",
            _significant(row["mflop_per_step"]),
            f"{row['share_of_limit']:.1%}",
            f"{row['hours_5e6']:.1f}",
        )
    return table


def _significant(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _rounds_table(rounds: pd.DataFrame) -> Table:
    table = Table(title=f"{rounds.task.iloc[0]}: ratio by round")
    table.add_column("round", no_wrap=True)
    numbers = sorted(rounds["round"].unique())
    for number in numbers:
        table.add_column(str(number), justify="right", no_wrap=True)
    wide = rounds.pivot(index="algo", columns="round", values="ratio")
    for algo in dict.fromkeys(rounds.algo):
        if algo != SB3:
            table.add_row(LABELS[algo], *[f"{wide.loc[algo, number]:.2f}" for number in numbers])
    load = rounds.groupby("round").load.mean()
    table.add_row("load", *[f"{load[number]:.1f}" for number in numbers], style="dim")
    return table


def _parts_table(parts: pd.DataFrame) -> Table:
    table = Table(title=f"{parts.task.iloc[0]}: where the time of a step goes")
    table.add_column("", no_wrap=True)
    wide = parts.pivot(index="algo", columns="part", values="ms")
    algos = list(dict.fromkeys(parts.algo))
    for algo in algos:
        table.add_column(LABELS[algo], justify="right", no_wrap=True)
    for part in PARTS:
        table.add_row(
            part, *[f"{wide.loc[algo, part] / wide.loc[algo].sum():.0%}" for algo in algos]
        )
    table.add_row("ms per step", *[f"{wide.loc[algo].sum():.3g}" for algo in algos])
    return table


def _memory_table(memory: Sequence[Footprint]) -> Table:
    table = Table(
        title=f"Replay buffer, 1,000,000 transitions of 4 x 84 x 84, episodes of {EPISODE} steps"
    )
    for column in (
        "buffer",
        "computed",
        "filled, resident",
        "sample(64), CPU",
        "one stream, CPU",
        "sampled from",
    ):
        table.add_column(column, justify="left" if column == "buffer" else "right")
    for row in memory:
        measured = "" if row.measured_gb is None else f"{row.measured_gb:.2f} GB"
        times = [f"{row.sample_ms:.3f} ms", f"{row.stream_ms:.3f} ms"]
        table.add_row(
            row.buffer,
            f"{row.computed_gb:.2f} GB",
            measured,
            *times,
            f"{row.sampled_from:,} transitions",
        )
    table.caption = (
        "one stream: copying the bytes of a sample in one piece, which is what the memory allows"
    )
    return table


def save_picture(tables: Sequence[Tables], path: Path) -> Path:
    """Per task, above: the median ratio as a bar and every round as a dot; below: where the time of a step goes."""
    figure = Figure(figsize=(3.4 * len(tables) + 0.6, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, len(tables), squeeze=False)
    for column, (rounds, summary, parts) in enumerate(tables):
        _plot_ratios(axes[0, column], rounds, summary)
        _plot_parts(axes[1, column], parts)
    handles, labels = axes[1, 0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=5 if len(tables) > 1 else 3,
        fontsize=8,
        frameon=False,
    )
    figure.savefig(path, dpi=150)
    return path


def _plot_ratios(ax: Axes, rounds: pd.DataFrame, summary: pd.DataFrame) -> None:
    for i, row in enumerate(summary.to_dict("records")):
        ax.bar(i, row["ratio"], 0.7, color=_GREY if row["algo"] == SB3 else _BLUE, alpha=0.55)
        ratios = rounds[rounds.algo == row["algo"]].ratio.to_numpy()
        spread = np.linspace(-0.2, 0.2, len(ratios)) if len(ratios) > 1 else np.zeros(1)
        if row["algo"] != SB3:
            ax.plot(i + spread, ratios, "o", color="black", markersize=3)
        ax.annotate(
            f"{row['ratio']:.2f}", (i, 0.02), ha="center", va="bottom", fontsize=8, color="black"
        )
    ax.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    threads = summary.threads.iloc[0]
    dress(
        ax,
        f"{summary.task.iloc[0]}, {threads} thread{'s' if threads > 1 else ''}",
        "",
        "speed, times SB3's DQN",
    )
    _name_columns(ax, list(summary.algo))


def _plot_parts(ax: Axes, parts: pd.DataFrame) -> None:
    wide = parts.pivot(index="algo", columns="part", values="ms")
    algos = list(dict.fromkeys(parts.algo))
    bottom = np.zeros(len(algos))
    for part, colour, hatch in zip(PARTS, _PART_COLOURS, _PART_HATCHES):
        heights = wide.loc[algos, part].to_numpy()
        ax.bar(
            range(len(algos)),
            heights,
            0.7,
            bottom=bottom,
            color=colour,
            hatch=hatch,
            label=part,
            edgecolor="white",
            lw=0.3,
        )
        bottom += heights
    dress(ax, "where a step's time goes", "", "ms per environment step")
    _name_columns(ax, algos)


def _name_columns(ax: Axes, algos: Sequence[str]) -> None:
    ax.set_xticks(
        range(len(algos)), [LABELS[algo] for algo in algos], fontsize=8, rotation=30, ha="right"
    )
    ax.grid(axis="x", visible=False)
