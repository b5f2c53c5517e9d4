"""Section 5.1 of the paper: learn the danger gridworld from rollouts, all trials at once."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch as th
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from sb3_cpp.analysis.style import new_row, save_figure
from sb3_cpp.analysis.tables import Table, print_and_save
from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.metrics import oscillation, welch_p_value
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.studies.figures import STYLES, long_table, plot_bars, plot_zeta, save_comparison
from sb3_cpp.tabular import gridworld
from sb3_cpp.tabular.algorithms import Settings, View, iterate
from sb3_cpp.threads import torch_threads

# The seeds follow this order: append, never insert
ALGORITHMS: dict[str, dict[str, Any]] = {
    "cpp": {},  # with the setting cpp_rule
    "cvi": {"rule": "cvi"},
    "espi": {"rule": "espi"},
    "aspi": {"rule": "aspi"},
    "cpi": {"rule": "cpi"},
    "cpp_geometric": {"mixture": "geometric"},
    "span_cpp": {"rule": "span_cpp"},
    "statewise": {"rule": "statewise"},
}
# The figures of the paper, and one of what is beyond it
PAPER = ("cpp", "cvi", "espi", "aspi", "cpi")
BEYOND = ("cpp", "cvi", "cpp_geometric", "span_cpp", "statewise")
# R_K of the one rollout, as the paper has it, and without its noise: the exact expectation
SERIES = ("rollout", "expected")
CPP_RULES = ("adaptive_cpp", "linear_cpp", "cpp")


@dataclass(frozen=True)
class GridworldSettings(gridworld.DangerGrid):
    """Everything that decides the numbers; ``configs/gridworld.yml`` gives the sources.

    ``ent_coef`` and ``kl_coef`` are the weights of entropy and KL. ``cpp_rule`` is the coefficient
    of the algorithm "cpp": the adaptive one of Algorithm 1, Eq. linear_cpp, or Theorem 4 with both
    branches ("cpp"). ``error_bound`` is the error of Q that the state-wise rule assumes.
    """

    trials: int = 100
    seed: int = 0
    iterations: int = 30
    horizon: int = 20
    gamma: float = 0.8
    ent_coef: float = 0.03
    kl_coef: float = 0.0125
    scheme: str = "2"
    cpp_rule: str = "adaptive_cpp"
    backups: int = 20
    regularized: bool = False
    exact_constants: bool = False
    rho1: float = 0.9
    rho2: float = 1.0
    error_bound: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.danger, (list, tuple)) or not all(
            isinstance(cell, (list, tuple)) for cell in self.danger
        ):
            raise InvalidArgument(
                f"danger must be a list of cells [row, column], got {self.danger!r}"
            )
        cells = tuple(tuple(cell) for cell in self.danger)  # YAML has lists
        object.__setattr__(self, "danger", cells)
        super().__post_init__()
        # two trials for a standard deviation, two iterations for an oscillation
        for name, low in (("trials", 2), ("seed", 0), ("iterations", 2), ("horizon", 1)):
            check_whole_number(name, getattr(self, name), low)
        check_number("gamma", self.gamma, 0.0, 1.0, low_open=True, high_open=True)
        check_number("ent_coef", self.ent_coef, 0.0)
        # one of the two may be 0, not both: their sum is the temperature
        check_number("kl_coef", self.kl_coef, 0.0, low_open=self.ent_coef == 0.0)
        check_choice("cpp_rule", self.cpp_rule, CPP_RULES)
        for name in ("regularized", "exact_constants"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name} must be true or false, got {getattr(self, name)!r}")
        self.algorithm("cpp")  # its own constructor checks the rest

    def algorithm(self, algo: str) -> Settings:
        """The algorithms differ in nothing but the coefficient and the kind of mixture."""
        # the weights of the paper, tau and sigma, as temperature and share of the KL weight
        temperature = self.ent_coef + self.kl_coef
        shared = "scheme exact_constants backups regularized rho1 rho2 error_bound"
        values: dict[str, Any] = {name: getattr(self, name) for name in shared.split()}
        values |= {"rule": self.cpp_rule, **ALGORITHMS[algo]}
        return Settings(temperature=temperature, alpha=self.kl_coef / temperature, **values)


class Curves(NamedTuple):
    """What one algorithm did: arrays of shape (trials, iterations), two of them by series."""

    returns: dict[str, NDArray[np.float64]]
    danger_visits: dict[str, NDArray[np.float64]]
    zeta: NDArray[np.float64]


class _Learner:
    """Acts with the deployed policy, keeps the counts, and shows the model they give."""

    def __init__(self, settings: GridworldSettings, generator: th.Generator) -> None:
        self.settings, self.generator = settings, generator
        shape = (settings.trials, settings.n_states, len(gridworld.ACTIONS))
        self.uniform = th.full(shape, 1.0 / len(gridworld.ACTIONS), dtype=th.float64).log()
        # (trials, S, A, S): every trial learns its own model
        self.counts = th.zeros(*shape, settings.n_states, dtype=th.float64)
        self.returns: dict[str, list[th.Tensor]] = {series: [] for series in SERIES}
        self.danger_visits: dict[str, list[th.Tensor]] = {series: [] for series in SERIES}

    def __call__(self, log_deployed: th.Tensor, log_old: th.Tensor) -> View:
        """One iteration; R_K is the return of the rollout, or its exact expectation."""
        grid, horizon = self.settings, self.settings.horizon
        episode = gridworld.rollout(grid, log_deployed, horizon, self.generator)
        expected = gridworld.expected_rollout(grid, log_deployed, horizon)
        for series, (returns, danger) in zip(SERIES, (episode[1:], expected)):
            self.returns[series].append(returns)
            self.danger_visits[series].append(danger)
        # The model is of all rollouts; the weights are of the last, since d(s) of the bounds is the
        # visitation of the present policy.
        self.counts += episode.counts
        visits = episode.counts.sum((-1, -2))
        model = gridworld.model_from_counts(grid, self.counts, grid.gamma)
        return View(model, visits / visits.sum(-1, keepdim=True), None)


def learn(settings: GridworldSettings, algo: str) -> Curves:
    """Run one algorithm for all trials; the result depends only on settings and algorithm."""
    check_choice("algo", algo, ALGORITHMS)
    seeds = np.random.SeedSequence([settings.seed, list(ALGORITHMS).index(algo)])
    # torch's generators take signed 64 bits, so the highest bit is dropped
    entropy = seeds.generate_state(1, np.uint64)[0]
    learner = _Learner(settings, th.Generator().manual_seed(int(entropy >> 1)))
    updates = iterate(settings.algorithm(algo), learner.uniform, learner, settings.iterations)
    zeta = _stack([update.zeta for update in updates])  # first: it runs the updates
    returns = {series: _stack(rows) for series, rows in learner.returns.items()}
    danger_visits = {series: _stack(rows) for series, rows in learner.danger_visits.items()}
    return Curves(returns, danger_visits, zeta)


def _stack(rows: list[th.Tensor]) -> NDArray[np.float64]:
    return th.stack(rows, dim=-1).numpy()


# --- tables, figures and the paper's claims -------------------------------------------------------

Results = Mapping[str, Curves]
SIGNIFICANT = 0.05  # the paper's level


class Claim(NamedTuple):
    """A sentence of the paper's Section 5.1 and the numbers; p-values: Welch's, two-sided."""

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
            columns = {"return": curves.returns[series]}
            columns |= {"danger_visits": curves.danger_visits[series], "zeta": curves.zeta}
            frames.append(long_table(columns, algo=algo, series=series))
    return pd.concat(frames, ignore_index=True)


def trial_table(results: Results) -> pd.DataFrame:
    """One row per algorithm, series and trial: what the tests of significance compare."""
    # the oscillation of one trial is one sample; that of the mean curve would hide it
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
    """One row per algorithm and series: mean and sd over trials, p of oscillation against CVI."""
    measures = ["oscillation_inf", "oscillation_l2", "final_return", "danger_visits"]
    rows = []
    for (algo, series), group in trials.groupby(["algo", "series"], sort=False):
        cvi = trials[(trials.algo == "cvi") & (trials.series == series)]
        row: dict[str, object] = {"algo": algo, "series": series}
        for measure in measures:
            row |= {measure: group[measure].mean(), f"{measure}_sd": group[measure].std()}
        for norm in ("inf", "l2"):
            name = f"oscillation_{norm}"
            row[f"p_{norm}"] = welch_p_value(group[name], cvi[name])
        rows.append(row)
    return pd.DataFrame(rows)


def check_claims(trials: pd.DataFrame) -> list[Claim]:
    """Each claim compares one measure of two algorithms, in the direction the paper states.

    Section 5.1: "CVI learned policies that visited danger regions more often and result in delayed
    convergence compared to CPP"; "the slightly worse oscillation value of CPP than SPI"; "SPI
    performance should upper bound that of CPP".
    """
    statements = (
        ("l2 oscillation: CPP < CVI", "cpp", "cvi", "oscillation_l2"),
        ("inf oscillation: CPP < CVI", "cpp", "cvi", "oscillation_inf"),
        ("l2 oscillation: E-SPI < CPP", "espi", "cpp", "oscillation_l2"),
        ("danger visits: CPP < CVI", "cpp", "cvi", "danger_visits"),
        ("final return: CPP >= CVI", "cpp", "cvi", "final_return"),
        ("final return: E-SPI >= CPP", "espi", "cpp", "final_return"),
    )
    # per series: a claim may hold in expectation and drown in the noise of one rollout
    claims = []
    for statement, first, second, measure in statements:
        for series in SERIES:
            a, b = (
                trials[(trials.algo == algo) & (trials.series == series)][measure]
                for algo in (first, second)
            )
            p = welch_p_value(a, b)
            verdict = _verdict(a.mean() - b.mean(), p, measure)
            claims.append(Claim(statement, series, a.mean(), b.mean(), p, verdict))
    return claims


def _verdict(difference: float, p_value: float, measure: str) -> str:
    # "less" needs significance; "no lower", said of the return, only the mean
    if measure == "final_return" and difference >= 0.0:
        return "reproduces"
    if p_value >= SIGNIFICANT:
        return "no difference found"
    return "reproduces" if difference < 0.0 and measure != "final_return" else "reversed"


def save_figures(results: Results, folder: Path) -> None:
    """Return and oscillation per series; the cautions beyond the paper; zeta and danger visits."""
    pictures = {
        "rollout": ("rollout", "return of one rollout", PAPER),
        "expected": ("expected", "expected return", PAPER),
        "caution": ("expected", "expected return", BEYOND),
    }
    for name, (series, label, algos) in pictures.items():
        returns = {algo: results[algo].returns[series] for algo in algos}
        oscillations = {algo: oscillation(curve) for algo, curve in returns.items()}
        save_comparison(folder / f"{name}.png", returns, oscillations, label)
    # visits of the rollouts, not the expected ones: that is what an agent pays while it learns
    figure, (left, right) = new_row()
    plot_zeta(left, {algo: results[algo].zeta for algo in PAPER})
    visits = {algo: results[algo].danger_visits["rollout"].sum(axis=1) for algo in PAPER}
    plot_bars(right, visits, "Steps into danger, all iterations", "mean over trials")
    save_figure(figure, folder / "zeta_danger.png", legend_from=left)


def tables(summary: pd.DataFrame, claims: pd.DataFrame) -> list[Table]:
    """The measures of every algorithm, and the paper's claims on them."""
    rows = []
    for row in summary.to_dict("records"):
        norms = [
            f"{row[f'oscillation_{norm}']:.3f} ({_p(row[f'p_{norm}'])})" for norm in ("inf", "l2")
        ]
        final = f"{row['final_return']:.2f} ± {row['final_return_sd']:.2f}"
        danger = f"{row['danger_visits']:.1f}"
        rows.append([STYLES[row["algo"]].label, row["series"], *norms, final, danger])
    title = "Danger gridworld, means over trials (in brackets: p against CVI)"
    measures = ("osc. inf (p)", "osc. l2 (p)", "final return ± sd", "danger visits")
    results = Table(title, ("algo", "series", *measures), rows, text=2)
    rows = [
        [c.claim, c.series, c.verdict, f"{c.first:.3f} : {c.second:.3f}", _p(c.p_value)]
        for c in map(Claim._make, claims.itertuples(index=False))
    ]
    columns = ("claim", "series", "verdict", "means", "p")
    return [results, Table("The paper's claims on these numbers", columns, rows, text=3)]


def _p(value: float) -> str:
    return f"{value:.2g}" if value >= 0.001 else f"{value:.0e}"


def run_gridworld(settings: GridworldSettings, out: str | Path, force: bool = False) -> Path:
    """The whole study: learn, write tables and figures, print the tables; returns the folder."""
    folder = open_run_folder(out, asdict(settings), force)
    bar = track(ALGORITHMS, "learning", console=Console(stderr=True), transient=True)
    with torch_threads(1):  # small tables: more threads wait for each other
        results = {algo: learn(settings, algo) for algo in bar}
    trials = trial_table(results)
    summary, claims = summary_table(trials), pd.DataFrame(check_claims(trials))
    summary.to_csv(folder / "summary.csv", index=False)
    curve_table(results).to_csv(folder / "curves.csv", index=False)
    claims.to_csv(folder / "claims.csv", index=False)
    save_figures(results, folder)
    print_and_save(tables(summary, claims), folder)
    print(f"written: {folder}")
    return folder
