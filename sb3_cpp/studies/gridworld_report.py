"""What the gridworld study found: tables, figures, and which claims of the paper came out."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from rich.console import Console
from rich.progress import track

from sb3_cpp.analysis.didactic_plots import (
    STYLES,
    new_figure,
    plot_bars,
    plot_zeta,
    save_comparison,
    save_figure,
)
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.metrics import oscillation, welch_p_value
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.studies.gridworld_study import ALGORITHMS, SERIES, Curves, GridworldSettings, learn
from sb3_cpp.threads import torch_threads

Results = Mapping[str, Curves]
SIGNIFICANT = 0.05


class Claim(NamedTuple):
    """A sentence of the paper's Section 5.1 against the numbers; p-values are Welch's, two-sided."""

    claim: str
    series: str
    first: float
    second: float
    p_value: float
    verdict: str


def curve_table(results: Results) -> pd.DataFrame:
    """One row per algorithm, series, trial and iteration K."""
    frames = []
    for algo, curves in results.items():
        for series in SERIES:
            trials, iterations = curves.zeta.shape
            index = pd.MultiIndex.from_product(
                [range(trials), range(1, iterations + 1)], names=["trial", "K"]
            )
            columns = {
                "return": curves.returns[series].ravel(),
                "danger_visits": curves.danger_visits[series].ravel(),
                "zeta": curves.zeta.ravel(),
            }
            frame = pd.DataFrame(columns, index=index).reset_index()
            frame.insert(0, "algo", algo)
            frame.insert(1, "series", series)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def trial_table(results: Results) -> pd.DataFrame:
    """One row per algorithm, series and trial: what the tests of significance compare."""
    frames = []
    for algo, curves in results.items():
        for series in SERIES:
            norms = oscillation(curves.returns[series])
            columns = {
                "oscillation_inf": norms.inf,
                "oscillation_l2": norms.l2,
                "final_return": curves.returns[series][:, -1],
                "danger_visits": curves.danger_visits[series].sum(axis=1),
            }
            frames.append(pd.DataFrame({"algo": algo, "series": series, **columns}))
    return pd.concat(frames, ignore_index=True)


def summary_table(trials: pd.DataFrame) -> pd.DataFrame:
    """One row per algorithm and series: means and standard deviations over trials, p of both oscillations against CVI."""
    measures = ["oscillation_inf", "oscillation_l2", "final_return", "danger_visits"]
    rows = []
    for (algo, series), group in trials.groupby(["algo", "series"], sort=False):
        cvi = trials[(trials.algo == "cvi") & (trials.series == series)]
        row: dict[str, object] = {"algo": algo, "series": series}
        for measure in measures:
            row |= {measure: group[measure].mean(), f"{measure}_sd": group[measure].std()}
        for norm in ("inf", "l2"):
            row[f"p_{norm}"] = welch_p_value(
                group[f"oscillation_{norm}"], cvi[f"oscillation_{norm}"]
            )
        rows.append(row)
    return pd.DataFrame(rows)


def check_claims(trials: pd.DataFrame) -> list[Claim]:
    """Each claim compares one measure of two algorithms, in the direction the paper states.

    Section 5.1: "CVI learned policies that visited danger regions more often and result in delayed convergence compared to
    CPP"; "the slightly worse oscillation value of CPP than SPI"; "SPI performance should upper bound that of CPP".
    """
    statements = (
        ("l2 oscillation: CPP < CVI", "cpp", "cvi", "oscillation_l2"),
        ("inf oscillation: CPP < CVI", "cpp", "cvi", "oscillation_inf"),
        ("l2 oscillation: E-SPI < CPP", "espi", "cpp", "oscillation_l2"),
        ("danger visits: CPP < CVI", "cpp", "cvi", "danger_visits"),
        ("final return: CPP >= CVI", "cpp", "cvi", "final_return"),
        ("final return: E-SPI >= CPP", "espi", "cpp", "final_return"),
    )
    claims = []
    for statement, first, second, measure in statements:
        for series in SERIES:
            a, b = (
                trials[(trials.algo == algo) & (trials.series == series)][measure]
                for algo in (first, second)
            )
            p = welch_p_value(a, b)
            claims.append(
                Claim(
                    statement,
                    series,
                    a.mean(),
                    b.mean(),
                    p,
                    _verdict(a.mean() - b.mean(), p, measure),
                )
            )
    return claims


def _verdict(difference: float, p_value: float, measure: str) -> str:
    """Less needs significance; "no lower", said of the return, only the mean."""
    if measure == "final_return" and difference >= 0.0:
        return "reproduces"
    if p_value >= SIGNIFICANT:
        return "no difference found"
    return "reproduces" if difference < 0.0 and measure != "final_return" else "reversed"


def save_figures(results: Results, folder: Path) -> None:
    """Return and oscillation for each series, and the coefficient beside the danger visits."""
    labels = {"rollout": "return of one rollout", "expected": "expected return"}
    for series, label in labels.items():
        returns = {algo: curves.returns[series] for algo, curves in results.items()}
        oscillations = {algo: oscillation(curve) for algo, curve in returns.items()}
        save_comparison(folder / f"{series}.png", returns, oscillations, label)
    figure, (left, right) = new_figure()
    plot_zeta(left, {algo: curves.zeta for algo, curves in results.items()})
    visits = {algo: curves.danger_visits["rollout"].sum(axis=1) for algo, curves in results.items()}
    plot_bars(right, visits, "Steps into danger, all iterations", "mean over trials")
    save_figure(figure, folder / "zeta_danger.png", legend_from=left)


def print_results(summary: pd.DataFrame, claims: list[Claim]) -> None:
    rows = []
    for row in summary.to_dict("records"):
        norms = [
            f"{row[f'oscillation_{norm}']:.3f} ({_p(row[f'p_{norm}'])})" for norm in ("inf", "l2")
        ]
        final, danger = (
            f"{row['final_return']:.2f} ± {row['final_return_sd']:.2f}",
            f"{row['danger_visits']:.1f}",
        )
        rows.append([STYLES[row["algo"]].label, row["series"], *norms, final, danger])
    columns = (
        "algo",
        "series",
        "osc. inf (p)",
        "osc. l2 (p)",
        "final return ± sd",
        "danger visits",
    )
    print_table(
        "Danger gridworld, means over trials (in brackets: p against CVI)", columns, rows, text=2
    )
    rows = [
        [c.claim, c.series, c.verdict, f"{c.first:.3f} : {c.second:.3f}", _p(c.p_value)]
        for c in claims
    ]
    print_table(
        "The paper's claims on these numbers",
        ("claim", "series", "verdict", "means", "p"),
        rows,
        text=3,
    )


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else f"{value:.0e}"


def run_gridworld(settings: GridworldSettings, out: str | Path, force: bool = False) -> Path:
    """The whole study: learn, write summary.csv, curves.csv, claims.csv and figures, print the tables; returns the folder."""
    folder = open_run_folder(out, asdict(settings), force)
    bar = track(ALGORITHMS, "learning", console=Console(stderr=True), transient=True)
    with torch_threads(1):
        results = {algo: learn(settings, algo) for algo in bar}
    trials = trial_table(results)
    summary, claims = summary_table(trials), check_claims(trials)
    summary.to_csv(folder / "summary.csv", index=False)
    curve_table(results).to_csv(folder / "curves.csv", index=False)
    pd.DataFrame(claims).to_csv(folder / "claims.csv", index=False)
    save_figures(results, folder)
    print_results(summary, claims)
    print(f"written: {folder}")
    return folder
