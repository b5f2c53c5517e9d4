"""Run the certificate, write its table and picture, and say whether it holds."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import torch as th
from rich.console import Console
from rich.progress import Progress

from sb3_cpp.analysis.didactic_plots import dress, new_figure, save_figure
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.studies.certificate import CASES, CertificateSettings, Tally, certify, groups
from sb3_cpp.threads import torch_threads

_COLOURS = (
    "#000000",
    "#999999",
    "#009E73",
    "#CC79A7",
    "#0072B2",
    "#56B4E9",
    "#004C7A",
    "#E69F00",
    "#D55E00",
    "#8C510A",
)
_DASHES = ("-", "--", ":", "-.", "-", "--", ":", "-", "--", ":")
_POINTS = 1500
"""Points per rule in the picture; more only hide each other."""


def run_cases(settings: CertificateSettings) -> list[Tally]:
    """Every case on every group of MDPs."""
    tallies = [Tally(case) for case in CASES]
    steps = len(settings.gammas) * len(settings.weights) * len(CASES)
    with Progress(console=Console(stderr=True), transient=True) as bar, torch_threads(1):
        task = bar.add_task("updates", total=steps)
        for number, group in enumerate(groups(settings)):
            for tally in tallies:
                noise = th.Generator().manual_seed(settings.seed + number)
                certify(tally.case, group, settings.iterations, noise, tally)
                bar.advance(task)
    return tallies


def save_picture(tallies: list[Tally], path: Path, seed: int) -> None:
    """Left: how much more than the bound every update gained. Right: the way to the optimum."""
    figure, (left, right) = new_figure(height=4.0)
    generator = np.random.default_rng(seed)
    for tally, colour, dashes in zip(tallies, _COLOURS, _DASHES, strict=True):
        zeta, slack = th.cat(tally.zeta).numpy(), th.cat(tally.slack).numpy()
        shown = generator.permutation(zeta.size)[:_POINTS]
        x, y = np.maximum(zeta[shown], 1e-9), np.maximum(slack[shown], 1e-12)
        left.scatter(x, y, s=3, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        curve = tally.progress_curve()
        right.plot(
            np.arange(curve.size),
            curve,
            color=colour,
            linestyle=dashes,
            linewidth=1.5,
            label=tally.case.name,
        )
    left.set_xscale("log")
    left.set_yscale("log")
    dress(
        left,
        "Gain beyond the quadratic bound",
        r"$\zeta$ (at least $10^{-9}$)",
        r"slack (at least $10^{-12}$)",
    )
    dress(
        right, "Way to the optimum, mean over MDPs", "update K", "(J - first) / (optimum - first)"
    )
    save_figure(figure, path, legend_from=right, columns=3)


def print_tally(tallies: list[Tally]) -> None:
    rows = []
    for row in (tally.row() for tally in tallies):
        counts = [f"{row[name]:,}" for name in ("updates", "guaranteed", "falls", "violations")]
        slack, zeta = f"{row['tightest_slack']:.0e}", f"{row['mean_zeta']:.1e}"
        rows.append(
            [
                row["rule"],
                *counts,
                slack,
                zeta,
                f"{row['J_reached']:.3f}",
                f"{row['J_optimum']:.3f}",
            ]
        )
    columns = (
        "rule",
        "updates",
        "guaranteed",
        "falls",
        "violations",
        "slack",
        "zeta",
        "J",
        "best J",
    )
    print_table("Updates held against their guarantees (J normalised, exact values)", columns, rows)


def run_certificate(settings: CertificateSettings, out: str | Path, force: bool = False) -> int:
    """The whole certificate; returns 0 if everything guaranteed held and the noisy case fell, else 1."""
    folder = open_run_folder(out, asdict(settings), force)
    tallies = run_cases(settings)
    pd.DataFrame([tally.row() for tally in tallies]).to_csv(folder / "certificate.csv", index=False)
    curves = pd.DataFrame({tally.case.name: tally.progress_curve() for tally in tallies})
    curves.rename_axis("K").to_csv(folder / "progress.csv")
    save_picture(tallies, folder / "certificate.png", settings.seed)
    print_tally(tallies)
    failed = [tally.case.name for tally in tallies if tally.failed]
    verdict = "holds: no violation of anything guaranteed, and the noisy case falls"
    print("certificate " + (f"BROKEN by: {'; '.join(failed)}" if failed else verdict))
    print(f"written: {folder}")
    return 1 if failed else 0
