"""Section 5.1 of the paper: five algorithms learn the danger gridworld from rollouts, all trials at once."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.tabular.algorithms import Settings, View, iterate
from sb3_cpp.tabular.gridworld import (
    ACTIONS,
    DangerGrid,
    expected_rollout,
    model_from_counts,
    rollout,
)

ALGORITHMS = ("cpp", "cvi", "espi", "aspi", "cpi")
SERIES = ("rollout", "expected")
CPP_RULES = ("adaptive_cpp", "linear_cpp", "cpp")


@dataclass(frozen=True)
class GridworldSettings(DangerGrid):
    """Everything that decides the numbers: the world and how it is learned; ``configs/gridworld.yml`` gives the sources.

    The entropy weight is the paper's tau, the KL weight its sigma. ``cpp_rule`` is the coefficient that the algorithm "cpp"
    uses: the adaptive one of Algorithm 1, Eq. linear_cpp, or Theorem 4 with both branches ("cpp").
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

    def __post_init__(self) -> None:
        if not isinstance(self.danger, (list, tuple)) or not all(
            isinstance(cell, (list, tuple)) for cell in self.danger
        ):
            raise InvalidArgument(
                f"danger must be a list of cells [row, column], got {self.danger!r}"
            )
        object.__setattr__(
            self, "danger", tuple(tuple(cell) for cell in self.danger)
        )  # YAML has lists
        super().__post_init__()
        check_whole_number("trials", self.trials, 2)
        check_whole_number("seed", self.seed, 0)
        check_whole_number("iterations", self.iterations, 2)
        check_whole_number("horizon", self.horizon, 1)
        check_number("gamma", self.gamma, 0.0, 1.0, low_open=True, high_open=True)
        check_number("ent_coef", self.ent_coef, 0.0)
        check_number("kl_coef", self.kl_coef, 0.0, low_open=self.ent_coef == 0.0)
        check_choice("cpp_rule", self.cpp_rule, CPP_RULES)
        for name in ("regularized", "exact_constants"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name} must be true or false, got {getattr(self, name)!r}")
        self.algorithm("cpp")  # checks the rest

    def algorithm(self, algo: str) -> Settings:
        """The algorithms differ in nothing but the coefficient."""
        temperature = self.ent_coef + self.kl_coef
        return Settings(
            rule=self.cpp_rule if algo == "cpp" else algo,
            temperature=temperature,
            alpha=self.kl_coef / temperature,
            scheme=self.scheme,
            exact_constants=self.exact_constants,
            backups=self.backups,
            regularized=self.regularized,
            rho1=self.rho1,
            rho2=self.rho2,
        )


class Curves(NamedTuple):
    """What one algorithm did, arrays of shape (trials, iterations); ``returns`` and ``danger_visits`` by series."""

    returns: dict[str, NDArray[np.float64]]
    danger_visits: dict[str, NDArray[np.float64]]
    zeta: NDArray[np.float64]


class _Learner:
    """Acts with the deployed policy, keeps the counts, and shows the model they give."""

    def __init__(self, settings: GridworldSettings, generator: th.Generator) -> None:
        self.settings, self.generator = settings, generator
        shape = (settings.trials, settings.n_states, len(ACTIONS))
        self.uniform = th.full(shape, 1.0 / len(ACTIONS), dtype=th.float64).log()
        self.counts = th.zeros(*shape, settings.n_states, dtype=th.float64)
        self.rows: dict[str, list[th.Tensor]] = {
            f"{series} {kind}": [] for series in SERIES for kind in ("return", "danger")
        }

    def __call__(self, log_deployed: th.Tensor, log_old: th.Tensor) -> View:
        """One iteration: R_K is the return of one rollout, or of all the rollouts there could be."""
        episode = rollout(self.settings, log_deployed, self.settings.horizon, self.generator)
        expected = expected_rollout(self.settings, log_deployed, self.settings.horizon)
        self.rows["rollout return"].append(episode.returns)
        self.rows["rollout danger"].append(episode.danger_visits)
        self.rows["expected return"].append(expected.returns)
        self.rows["expected danger"].append(expected.danger_visits)
        self.counts += episode.counts
        visits = episode.counts.sum((-1, -2))
        model = model_from_counts(self.settings, self.counts, self.settings.gamma)
        return View(model, visits / visits.sum(-1, keepdim=True), None)


def learn(settings: GridworldSettings, algo: str) -> Curves:
    """Run one algorithm for all trials; the result depends on the settings and the algorithm alone."""
    check_choice("algo", algo, ALGORITHMS)
    entropy = np.random.SeedSequence([settings.seed, ALGORITHMS.index(algo)]).generate_state(
        1, np.uint64
    )[0]
    learner = _Learner(settings, th.Generator().manual_seed(int(entropy >> 1)))
    updates = iterate(settings.algorithm(algo), learner.uniform, learner, settings.iterations)
    zeta = _stack([update.zeta for update in updates])
    curves = {name: _stack(rows) for name, rows in learner.rows.items()}
    return Curves(
        returns={series: curves[f"{series} return"] for series in SERIES},
        danger_visits={series: curves[f"{series} danger"] for series in SERIES},
        zeta=zeta,
    )


def _stack(rows: list[th.Tensor]) -> NDArray[np.float64]:
    return th.stack(rows, dim=-1).numpy()
