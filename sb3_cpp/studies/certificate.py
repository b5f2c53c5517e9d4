"""The certificate: every coefficient rule on random MDPs, each update held against what is guaranteed for it.

The quadratic bound of :mod:`sb3_cpp.tabular.bounds` is a theorem for every mixture, so it is checked on every update. Beyond
it, a rule *promises* that J does not fall and rises by its own bound; the promise is a theorem where its premise holds:

=========== ============================================================ =======================================
premise     meaning                                                      rules
=========== ============================================================ =======================================
always      no premise                                                   E-SPI; CPP in scheme 1 (Lemma 3 is checked too)
lemma 3     KL(new || old) <= 2 C_K                                      CPP in scheme 2
advantage   A(s) >= 0 in every state                                     A-SPI, CPI (without it J still cannot fall)
never       no promise: a heuristic                                      adaptive CPP, CVI, noise
=========== ============================================================ =======================================
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch as th
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from sb3_cpp.analysis.didactic_plots import dress, new_figure, save_figure
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.checks import InvalidArgument, check_number, check_seed, check_whole_number
from sb3_cpp.regularization import kl_divergence, l1_distance
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.tabular import bounds
from sb3_cpp.tabular.algorithms import ExactView, Settings, Update, iterate
from sb3_cpp.tabular.mdp import MDP, garnet, policy_advantage, uniform_log_policy
from sb3_cpp.threads import torch_threads

TOLERANCE = 1e-10
"""Rounding of values up to 1/(1-gamma) = 100 in double precision stays far below this."""


@dataclass(frozen=True)
class CertificateSettings:
    """Which MDPs: every discount with every pair (entropy weight, KL weight), ``shapes`` (S, A, successors) taking turns."""

    updates: int = 100_000
    seed: int = 0
    iterations: int = 50
    gammas: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.99)
    weights: tuple[tuple[float, float], ...] = (
        (0.0, 1.0),
        (0.0, 0.05),
        (0.01, 0.1),
        (0.05, 0.05),
        (0.3, 0.1),
    )
    shapes: tuple[tuple[int, int, int], ...] = ((4, 2, 2), (8, 3, 3), (12, 4, 2))

    def __post_init__(self) -> None:
        check_whole_number("updates", self.updates, 1)
        check_seed("seed", self.seed)
        check_whole_number("iterations", self.iterations, 1)
        for gamma in self.gammas:
            check_number("gammas", gamma, 0.0, 1.0, low_open=True, high_open=True)
        for tau, sigma in self.weights:
            if min(tau, sigma) < 0.0 or tau + sigma <= 0.0:
                raise InvalidArgument(
                    f"weights must be pairs of numbers >= 0, not both 0, got {(tau, sigma)!r}"
                )

    @property
    def mdps_per_group(self) -> int:
        """So many that at least ``updates`` are made in all groups together."""
        return math.ceil(self.updates / (self.iterations * len(self.gammas) * len(self.weights)))


class Group(NamedTuple):
    """MDPs with one discount and one pair of weights; ``temperature`` and ``alpha`` say the weights another way."""

    mdp: MDP
    temperature: float
    alpha: float
    optimum: th.Tensor


@dataclass(frozen=True)
class Case:
    """One row of the certificate; ``product`` is what the rule takes ``delta DeltaA`` to be at most."""

    name: str
    premise: str
    settings: dict[str, Any]
    product: Callable[[Update, Group], th.Tensor | float] = lambda update, group: 0.0
    hard: bool = False
    must_fall: bool = False


def _actual(update: Update, group: Group) -> th.Tensor:
    return update.evidence.delta * update.evidence.advantage_range


def _printed_actual(update: Update, group: Group) -> th.Tensor:
    return _actual(update, group) / (
        1.0 - group.mdp.gamma
    )  # the printed bound has one power of 1-gamma more


def _theorem4(update: Update, group: Group) -> float:
    return bounds.theorem4_product(update.K, group.alpha, group.mdp.gamma, group.temperature)


CASES = (
    Case("E-SPI, sharp", "always", {"rule": "espi"}, _actual),
    Case("E-SPI, printed", "always", {"rule": "espi", "exact_constants": False}, _printed_actual),
    Case(
        "A-SPI",
        "advantage",
        {"rule": "aspi"},
        lambda u, g: bounds.approximate_spi_product(g.mdp.gamma),
    ),
    Case("CPI", "advantage", {"rule": "cpi"}, lambda u, g: bounds.cpi_product(g.mdp.gamma)),
    Case("CPP, Theorem 4", "lemma 3", {"rule": "cpp"}, _theorem4),
    Case(
        "linear CPP, printed",
        "lemma 3",
        {"rule": "linear_cpp", "exact_constants": False},
        _theorem4,
    ),
    Case(
        "Theorem 4, scheme 1",
        "always",
        {"rule": "cpp", "scheme": "1", "backups": 1, "regularized": True},
        _theorem4,
    ),
    Case("CPP, adaptive", "never", {"rule": "adaptive_cpp"}),
    Case("CVI, zeta = 1", "never", {"rule": "cvi"}),
    Case(
        "greedy with noise 0.5", "never", {"rule": "cvi", "noise": 0.5}, hard=True, must_fall=True
    ),
)


@dataclass
class Tally:
    """What happened to one case; the arrays at the end are for the picture."""

    case: Case
    updates: int = 0
    guaranteed: int = 0
    falls: int = 0
    violations: int = 0
    tightest_slack: float = math.inf
    zeta_sum: float = 0.0
    reached: list[th.Tensor] = field(default_factory=list)
    optimum: list[th.Tensor] = field(default_factory=list)
    progress: list[th.Tensor] = field(default_factory=list)
    zeta: list[th.Tensor] = field(default_factory=list)
    slack: list[th.Tensor] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """A guarantee was broken, or the case that shows that the check can fail did not fall."""
        return self.violations > 0 or (self.case.must_fall and self.falls == 0)

    def row(self) -> dict[str, Any]:
        return {
            "rule": self.case.name,
            "premise": self.case.premise,
            "updates": self.updates,
            "guaranteed": self.guaranteed,
            "falls": self.falls,
            "violations": self.violations,
            "tightest_slack": self.tightest_slack,
            "mean_zeta": self.zeta_sum / self.updates,
            "J_reached": th.cat(self.reached).mean().item(),
            "J_optimum": th.cat(self.optimum).mean().item(),
        }

    def progress_curve(self) -> NDArray[np.float64]:
        """Share of the way from the first policy to the optimum, mean over MDPs, one entry per K (0 before the first)."""
        return th.cat(self.progress).mean(0).numpy()


def groups(settings: CertificateSettings) -> Iterator[Group]:
    """The random MDPs, the same for every case."""
    generator = th.Generator().manual_seed(settings.seed)
    pairs = [(gamma, weights) for gamma in settings.gammas for weights in settings.weights]
    for i, (gamma, (tau, sigma)) in enumerate(pairs):
        n_states, n_actions, branching = settings.shapes[i % len(settings.shapes)]
        mdp = garnet(generator, settings.mdps_per_group, n_states, n_actions, branching, gamma)
        yield Group(mdp, tau + sigma, sigma / (tau + sigma), mdp.optimum().J)


def premise_holds(case: Case, update: Update, group: Group, q_old: th.Tensor) -> th.Tensor:
    """For each MDP, whether the rule's promise is a theorem for this update."""
    if case.premise == "lemma 3":
        kl = kl_divergence(update.log_new, update.log_old).amax(-1)
        return kl <= bounds.lemma3(update.K, group.alpha, group.mdp.gamma, group.temperature).kl
    if case.premise == "advantage":
        return policy_advantage(q_old, update.log_new, update.log_old).amin(-1) >= 0.0
    return th.full(update.zeta.shape, case.premise == "always")


def lemma3_broken(update: Update, group: Group) -> th.Tensor:
    """For each MDP, whether consecutive policies of the pure CVI chain are further apart than Lemma 3 allows."""
    allowed = bounds.lemma3(update.K, group.alpha, group.mdp.gamma, group.temperature)
    kl = kl_divergence(update.log_new, update.log_old).amax(-1)
    return (kl > allowed.kl + TOLERANCE) | (
        l1_distance(update.log_new, update.log_old).amax(-1) > allowed.l1 + TOLERANCE
    )


def certify(
    case: Case, group: Group, iterations: int, generator: th.Generator, tally: Tally
) -> None:
    """Run one case on one group of MDPs and add what happened to the tally."""
    temperature = 0.0 if case.hard else group.temperature
    settings = Settings(temperature=temperature, alpha=group.alpha, **case.settings)
    view, gamma = ExactView(group.mdp), group.mdp.gamma
    first = uniform_log_policy(group.mdp)
    start = view.evaluate(first).J
    curve = [th.zeros_like(start)]
    for update in iterate(settings, first, view, iterations, generator):
        q_old, J_old = view.evaluate(update.log_old).q, view.evaluate(update.log_old).J
        J_new = view.evaluate(update.log_deployed).J
        gain, advantage = J_new - J_old, update.evidence.advantage

        slack = gain - bounds.quadratic_bound(update.zeta, advantage, _actual(update, group), gamma)
        promise = bounds.quadratic_bound(update.zeta, advantage, case.product(update, group), gamma)
        falls = gain < -TOLERANCE
        promised = premise_holds(case, update, group, q_old)
        safe = th.ones_like(promised) if case.premise == "advantage" else promised
        broken = (slack < -TOLERANCE) | (safe & falls) | (promised & (gain < promise - TOLERANCE))
        if settings.scheme == "1":
            broken |= lemma3_broken(update, group)

        tally.updates += gain.numel()
        tally.guaranteed += int(promised.sum())
        tally.falls += int(falls.sum())
        tally.violations += int(broken.sum())
        tally.tightest_slack = min(tally.tightest_slack, slack.min().item())
        tally.zeta_sum += update.zeta.sum().item()
        tally.zeta.append(update.zeta)
        tally.slack.append(slack)
        curve.append((J_new - start) / (group.optimum - start).clamp(min=TOLERANCE))
    tally.reached.append(J_new)
    tally.optimum.append(group.optimum)
    tally.progress.append(th.stack(curve, dim=-1))


# --- run it, write table and picture, say whether it holds -----------------------------------------

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
