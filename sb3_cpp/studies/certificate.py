"""The certificate: every coefficient rule on random MDPs, each update against its guarantee.

The quadratic bound of :mod:`sb3_cpp.tabular.bounds` is a theorem for every new policy, so it is
checked on every update. Beyond it, a rule *promises* that J does not fall and rises by its own
bound; the promise is a theorem where its premise holds:

=========== ============================== =========================================================
premise     meaning                        rules
=========== ============================== =========================================================
always      no premise                     E-SPI; CPP in scheme 1 (Lemma 3 is checked too); the span
                                           bound (checked too); geometric mixture; state-wise
lemma 3     KL(new || old) <= 2 C_K        CPP in scheme 2
advantage   A(s) >= 0 in every state       A-SPI, CPI (without it J still cannot fall)
never       no promise                     adaptive CPP, CVI, unbounded errors
=========== ============================== =========================================================
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

from sb3_cpp import coefficients
from sb3_cpp.analysis.style import label_axes, new_row, save_figure
from sb3_cpp.analysis.tables import Table, print_and_save
from sb3_cpp.checks import InvalidArgument, check_number, check_seed, check_whole_number
from sb3_cpp.regularization import kl_divergence, l1_distance, log_ratio_span
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.studies.figures import STYLES
from sb3_cpp.tabular import bounds
from sb3_cpp.tabular.algorithms import ExactView, Settings, Update, iterate
from sb3_cpp.tabular.mdp import MDP, garnet, policy_advantage, uniform_log_policy
from sb3_cpp.threads import torch_threads

# rounding of values up to 1/(1-gamma) = 100 in double precision stays far below this
TOLERANCE = 1e-10
MAX_POINTS = 100_000  # updates per rule that are kept for the picture


@dataclass(frozen=True)
class CertificateSettings:
    """Which MDPs: every discount with every pair (entropy weight, KL weight).

    ``shapes`` (states, actions, successors) alternate over these pairs.
    """

    updates: int = 100_000
    seed: int = 0
    iterations: int = 50
    # no discount of 0 or 1: Theorem 4 divides by gamma, J needs 1-gamma
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
    """MDPs with one discount and one pair of weights (``temperature``: their sum)."""

    mdp: MDP
    temperature: float
    alpha: float  # share of the KL weight
    optimum: th.Tensor


Promise = Callable[[Update, Group], th.Tensor]


@dataclass(frozen=True)
class Case:
    """One row of the certificate.

    :param premise: when the rule promises something
    :param settings: of the tabular loop
    :param promise: lower bound on the gain of J
    :param lemma: a bound on KL and L1 distance that has to hold too: "lemma 3" or "span"
    :param hard: whether the greedy step is the hard arg max
    :param must_fall: whether J has to fall: the cases that show that the check can fail
    """

    name: str
    premise: str
    settings: dict[str, Any]
    promise: Promise = lambda update, group: th.zeros_like(update.zeta)
    lemma: str = ""
    hard: bool = False
    must_fall: bool = False


def quadratic(product: Callable[[Update, Group], th.Tensor | float]) -> Promise:
    """The quadratic bound with what a rule assumes ``delta DeltaA`` to be at most."""

    def promise(update: Update, group: Group) -> th.Tensor:
        bound = product(update, group)
        return bounds.quadratic_bound(
            update.zeta, update.evidence.advantage, bound, group.mdp.gamma
        )

    return promise


# What each rule assumes delta DeltaA to be at most. The sharper it is, the larger the promise.
def _actual(update: Update, group: Group) -> th.Tensor:
    return update.evidence.delta * update.evidence.advantage_range


def _printed(update: Update, group: Group) -> th.Tensor:
    # the printed bound has one power of 1-gamma more
    return _actual(update, group) / (1.0 - group.mdp.gamma)


def _theorem4(update: Update, group: Group) -> float:
    return bounds.theorem4_product(update.K, group.alpha, group.mdp.gamma, group.temperature)


def _span(update: Update, group: Group) -> th.Tensor:
    return bounds.span_product(update.evidence.span, update.evidence.q_span)


def _geometric(update: Update, group: Group) -> th.Tensor:
    e = update.evidence
    return bounds.geometric_bound(update.zeta, e.covariance, e.span, e.q_span, group.mdp.gamma)


def _statewise(update: Update, group: Group) -> th.Tensor:
    e, start = update.evidence, group.mdp.start
    assert start is not None
    # per state; the update's own zeta is the mean over states
    zeta = coefficients.statewise(e.state_advantage, e.state_l1, e.error_bound)
    return bounds.statewise_bound(
        zeta, e.state_advantage, e.state_l1, start, group.mdp.gamma, e.error_bound
    )


# uniform, because only a bounded error can be known to the state-wise rule
ERROR = {"noise": 0.2, "noise_law": "uniform"}
CASES = (
    Case("E-SPI, sharp", "always", {"rule": "espi"}, quadratic(_actual)),
    Case(
        "E-SPI, printed", "always", {"rule": "espi", "exact_constants": False}, quadratic(_printed)
    ),
    Case(
        "A-SPI",
        "advantage",
        {"rule": "aspi"},
        quadratic(lambda u, g: bounds.approximate_spi_product(g.mdp.gamma)),
    ),
    Case(
        "CPI", "advantage", {"rule": "cpi"}, quadratic(lambda u, g: bounds.cpi_product(g.mdp.gamma))
    ),
    Case("CPP, Theorem 4", "lemma 3", {"rule": "cpp"}, quadratic(_theorem4)),
    Case(
        "linear CPP, printed",
        "lemma 3",
        {"rule": "linear_cpp", "exact_constants": False},
        quadratic(_theorem4),
    ),
    Case(
        "Theorem 4, scheme 1",
        "always",
        {"rule": "cpp", "scheme": "1", "backups": 1, "regularized": True},
        quadratic(_theorem4),
        lemma="lemma 3",
    ),
    Case("CPP, span bound", "always", {"rule": "span_cpp"}, quadratic(_span), lemma="span"),
    Case(
        "geometric mixture",
        "always",
        {"rule": "geometric_spi", "mixture": "geometric"},
        _geometric,
        lemma="span",
    ),
    Case("state-wise", "always", {"rule": "statewise"}, _statewise),
    Case(
        "state-wise, error 0.2 known",
        "always",
        {"rule": "statewise", "error_bound": 0.2, **ERROR},
        _statewise,
    ),
    # Without a promise. Those that must fall show that the check can fail.
    Case("CPP, adaptive", "never", {"rule": "adaptive_cpp"}),
    Case("CVI, zeta = 1", "never", {"rule": "cvi"}),
    Case("CVI, error 0.2", "never", {"rule": "cvi", **ERROR}, must_fall=True),
    Case("state-wise, error 0.2 unknown", "never", {"rule": "statewise", **ERROR}, must_fall=True),
    Case(
        "greedy with noise 0.5", "never", {"rule": "cvi", "noise": 0.5}, hard=True, must_fall=True
    ),
)


@dataclass
class Tally:
    """What happened to one case; the arrays at the end are for the picture."""

    case: Case
    n_groups: int = 1
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
        """Share of the way from the first policy to the optimum, mean over MDPs, from K = 0."""
        return (th.stack(self.progress).sum(0) / th.cat(self.reached).numel()).numpy()


def groups(settings: CertificateSettings) -> Iterator[Group]:
    """The random MDPs, the same for every case."""
    generator = th.Generator().manual_seed(settings.seed)
    pairs = [(gamma, weights) for gamma in settings.gammas for weights in settings.weights]
    for i, (gamma, (tau, sigma)) in enumerate(pairs):
        n_states, n_actions, branching = settings.shapes[i % len(settings.shapes)]
        # one generator for all groups, so that no two hold the same MDPs
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


def lemma_broken(lemma: str, update: Update, group: Group) -> th.Tensor:
    """For each MDP, whether new and old policy are further apart than the lemma allows."""
    new, old = update.log_new, update.log_old
    # for every update, not only where the rule relies on it: the lemma is what is to be checked
    if lemma == "lemma 3":
        allowed = bounds.lemma3(update.K, group.alpha, group.mdp.gamma, group.temperature)
    else:
        allowed = bounds.span_change(log_ratio_span(new, old))
    kl, l1 = kl_divergence(new, old), l1_distance(new, old)
    return ((kl > allowed.kl + TOLERANCE) | (l1 > allowed.l1 + TOLERANCE)).any(-1)


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
    # the same number from each group, or the picture would show the last group only
    kept = math.ceil(MAX_POINTS / (iterations * tally.n_groups))
    for update in iterate(settings, first, view, iterations, generator):
        old = view.evaluate(update.log_old)
        # The theorem, at zeta = 1 from the old policy to the one deployed: exact Q, whatever error
        # the rule's own evidence has.
        advantage = policy_advantage(old.q, update.log_deployed, update.log_old)
        mean = (old.visitation * advantage).sum(-1)
        delta = l1_distance(update.log_deployed, update.log_old).amax(-1)
        product = delta * (advantage.amax(-1) - advantage.amin(-1))
        bound = bounds.quadratic_bound(th.ones_like(mean), mean, product, gamma)

        # the next update asks for the same evaluation, which the view keeps
        J_new = view.evaluate(update.log_deployed).J
        gain = J_new - old.J
        # A negative slack breaks a theorem that holds for every policy: the code would be wrong. A
        # fall of J breaks only what the rule promises.
        slack, falls = gain - bound, gain < -TOLERANCE
        promised = premise_holds(case, update, group, old.q)
        # A-SPI and CPI cannot fall even where their own bound is not promised
        safe = th.ones_like(promised) if case.premise == "advantage" else promised
        promise = case.promise(update, group)
        broken = (slack < -TOLERANCE) | (safe & falls) | (promised & (gain < promise - TOLERANCE))
        if case.lemma:
            broken |= lemma_broken(case.lemma, update, group)

        tally.updates += gain.numel()
        tally.guaranteed += int(promised.sum())
        tally.falls += int(falls.sum())
        tally.violations += int(broken.sum())
        tally.tightest_slack = min(tally.tightest_slack, slack.min().item())
        tally.zeta_sum += update.zeta.sum().item()
        tally.zeta.append(update.zeta[:kept].clone())  # a view would keep all of it
        tally.slack.append(slack[:kept].clone())
        # where the first policy is the best one, there is no way to go: 0 / tiny, not 0 / 0
        curve.append((J_new - start) / (group.optimum - start).clamp(min=TOLERANCE))
    tally.reached.append(J_new)
    tally.optimum.append(group.optimum)
    tally.progress.append(th.stack(curve, dim=-1).sum(0))


# --- run it, write table and picture, say whether it holds ----------------------------------------

_LOOKS: dict[str, tuple[str, str]] = {  # the rule in the other studies' figures, and dashes
    "E-SPI, sharp": ("espi", "-"),
    "E-SPI, printed": ("espi_printed", "-"),
    "A-SPI": ("aspi", "-"),
    "CPI": ("cpi", "-"),
    "CPP, Theorem 4": ("cpp", "--"),
    "linear CPP, printed": ("linear_cpp", "-"),
    "Theorem 4, scheme 1": ("cpp_1", "-"),
    "CPP, span bound": ("span_cpp", "-"),
    "geometric mixture": ("cpp_geometric", "-"),
    "state-wise": ("statewise", "-"),
    "state-wise, error 0.2 known": ("statewise", "--"),
    "state-wise, error 0.2 unknown": ("statewise", ":"),
    "CPP, adaptive": ("cpp", "-"),
    "CVI, zeta = 1": ("cvi", "-"),
    "CVI, error 0.2": ("cvi", "--"),
}
_GREEDY = "#8A7F00"  # greedy with noise is in no other figure
_POINTS = 600  # per rule in the picture; more only hide each other


def run_cases(settings: CertificateSettings) -> list[Tally]:
    """Every case on every group of MDPs."""
    n_groups = len(settings.gammas) * len(settings.weights)
    tallies = [Tally(case, n_groups) for case in CASES]
    steps = n_groups * len(CASES)
    # the matrices are so small that more threads would only wait for each other
    with Progress(console=Console(stderr=True), transient=True) as bar, torch_threads(1):
        task = bar.add_task("updates", total=steps)
        for number, group in enumerate(groups(settings)):
            for tally in tallies:
                # the same errors for every case, so that rows can be compared
                noise = th.Generator().manual_seed(settings.seed + number)
                certify(tally.case, group, settings.iterations, noise, tally)
                bar.advance(task)
    return tallies


def save_picture(tallies: list[Tally], path: Path, seed: int) -> None:
    """Left: how much more than the bound every update gained. Right: the way to the optimum."""
    figure, (left, right) = new_row(height=4.4)
    # a random choice of points, or the picture would show early updates only
    generator = np.random.default_rng(seed)
    for tally in tallies:
        rule, dashes = _LOOKS.get(tally.case.name, ("", "-"))
        colour = STYLES[rule].colour if rule else _GREEDY
        zeta, slack = th.cat(tally.zeta).numpy(), th.cat(tally.slack).numpy()
        shown = generator.permutation(zeta.size)[:_POINTS]
        x, y = np.maximum(zeta[shown], 1e-9), np.maximum(slack[shown], 1e-12)
        left.scatter(x, y, s=3, color=colour, alpha=0.35, linewidths=0, rasterized=True)
        curve, K = tally.progress_curve(), np.arange(tally.progress_curve().size)
        style: dict[str, Any] = {"color": colour, "linestyle": dashes, "linewidth": 1.5}
        right.plot(K, curve, label=tally.case.name, **style)
    left.set_xscale("log")
    left.set_yscale("log")
    slack_label = r"slack (at least $10^{-12}$)"
    label_axes(
        left, "Gain beyond the quadratic bound", r"$\zeta$ (at least $10^{-9}$)", slack_label
    )
    way = "(J - first) / (optimum - first)"
    label_axes(right, "Way to the optimum, mean over MDPs", "update K", way)
    save_figure(figure, path, legend_from=right)


def table(summary: pd.DataFrame) -> Table:
    """A line per case."""
    rows = []
    for row in summary.to_dict("records"):
        counts = [f"{row[name]:,}" for name in ("updates", "guaranteed", "falls", "violations")]
        measures = f"{row['tightest_slack']:.0e}", f"{row['mean_zeta']:.1e}"
        J = f"{row['J_reached']:.4f}", f"{row['J_optimum']:.4f}"
        rows.append([row["rule"], *counts, *measures, *J])
    columns = [
        "rule",
        "updates",
        "guaranteed",
        "falls",
        "violations",
        "slack",
        "zeta",
        "J",
        "best J",
    ]
    return Table("Updates checked against their guarantees (J normalised, exact)", columns, rows)


def run_certificate(settings: CertificateSettings, out: str | Path, force: bool = False) -> int:
    """The whole certificate; 0 if every guarantee held and what must fall fell, else 1."""
    folder = open_run_folder(out, asdict(settings), force)
    tallies = run_cases(settings)
    summary = pd.DataFrame([tally.row() for tally in tallies])
    summary.to_csv(folder / "certificate.csv", index=False)
    curves = pd.DataFrame({tally.case.name: tally.progress_curve() for tally in tallies})
    curves.rename_axis("K").to_csv(folder / "progress.csv")
    save_picture(tallies, folder / "certificate.png", settings.seed)
    print_and_save([table(summary)], folder)
    # written before it is judged: a broken certificate is to be looked at
    failed = [tally.case.name for tally in tallies if tally.failed]
    verdict = "holds: no violation of any guarantee, and the cases with unbounded errors fall"
    print("certificate " + (f"BROKEN by: {'; '.join(failed)}" if failed else verdict))
    print(f"written: {folder}")
    return 1 if failed else 0
