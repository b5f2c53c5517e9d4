"""CVI, CPP, E-SPI, A-SPI and CPI in a table: pure steps on one loop that differ only in ``zeta``.

One update K: a view of the world (exact, or a rollout), evaluate, improve (regularised greedy step), choose ``zeta``, mix.
Three *schemes* say what the mixture is for (CPP Section "Leveraging Policy Interpolation"):

==  =========================================  ============================  ========================
    deployed policy                            baseline of the greedy step   evaluated policy
==  =========================================  ============================  ========================
1   zeta pi_K + (1-zeta) pi_{K-1}              pi_{K-1}                      pi_{K-1}
1b  zeta pi_K + (1-zeta) deployed_{K-1}        pi_{K-1}                      pi_{K-1}
2   zeta pi_K + (1-zeta) deployed_{K-1}        deployed_{K-1}                deployed_{K-1}
==  =========================================  ============================  ========================

Everything is batched: leading dimensions of the MDP are trials or random MDPs, ``zeta`` has one entry for each.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch as th

from sb3_cpp.coefficients import AdvantageTracker, log_policy_change_bound
from sb3_cpp.regularization import (
    greedy_advantage,
    l1_distance,
    log_greedy,
    log_mixture,
    log_one_hot,
    regularized_value,
)
from sb3_cpp.tabular.mdp import MDP, Evaluation, policy_advantage
from sb3_cpp.tabular.rules import RULES, Evidence, Settings

__all__ = ["ExactView", "Update", "View", "evaluate", "gather_evidence", "improve", "iterate"]


class View(NamedTuple):
    """What an update may know of the world."""

    model: MDP
    """The MDP itself, or one estimated from samples."""
    weights: th.Tensor
    """Weights over states that sum to 1, to average advantages: the exact visitation, or the states met. Shape (..., S)."""
    q: th.Tensor | None
    """Exact Q of the policy mixed with; None if it has to be taken from the evaluation."""


Observe = Callable[[th.Tensor, th.Tensor], View]


class Update(NamedTuple):
    """One update, with everything a bound on it mentions."""

    K: int
    log_old: th.Tensor
    """The policy the new one is mixed with."""
    log_new: th.Tensor
    """The regularised greedy policy, not yet deployed."""
    log_deployed: th.Tensor
    """The mixture."""
    evidence: Evidence
    zeta: th.Tensor


class ExactView:
    """The MDP is known; advantages are those of the policy mixed with, over its own visitation.

    Remembers its last evaluation, so that who follows an update and the next update share one.
    """

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp
        self._last: tuple[th.Tensor, Evaluation] | None = None

    def evaluate(self, log_policy: th.Tensor) -> Evaluation:
        if self._last is None or self._last[0] is not log_policy:
            self._last = (log_policy, self.mdp.evaluate(log_policy))
        return self._last[1]

    def __call__(self, log_deployed: th.Tensor, log_old: th.Tensor) -> View:
        evaluation = self.evaluate(log_old)
        return View(self.mdp, evaluation.visitation, evaluation.q)


def evaluate(
    model: MDP, q: th.Tensor, log_policy: th.Tensor, log_baseline: th.Tensor, settings: Settings
) -> th.Tensor:
    """Q of a policy: exactly, or by backups from the last Q (CPP Eq. policy_evaluation)."""
    temperature = settings.temperature if settings.regularized else 0.0
    if settings.backups is None:
        return model.backup(
            model.regularized_v(log_policy, log_baseline, settings.alpha, temperature)
        )
    v = regularized_value(log_policy, q, log_baseline, settings.alpha, temperature).squeeze(-1)
    return model.backup(
        model.regularized_backups(
            v, log_policy, log_baseline, settings.alpha, temperature, settings.backups - 1
        )
    )


def improve(q: th.Tensor, log_baseline: th.Tensor, settings: Settings) -> th.Tensor:
    """The (regularised) greedy policy."""
    if settings.temperature == 0.0:
        return log_one_hot(q)
    return log_greedy(q, log_baseline, settings.alpha, settings.temperature)


def gather_evidence(
    q: th.Tensor,
    weights: th.Tensor,
    log_new: th.Tensor,
    log_old: th.Tensor,
    ratio: th.Tensor,
    log_c: float,
) -> Evidence:
    """Mean and range of the advantage and the distance of the policies, from Q of the old policy and weights over states."""
    advantage = policy_advantage(q, log_new, log_old)
    return Evidence(
        advantage=(weights * advantage).sum(-1),
        delta=l1_distance(log_new, log_old).amax(-1),
        advantage_range=advantage.amax(-1) - advantage.amin(-1),
        ratio=ratio,
        log_c=log_c,
    )


def iterate(
    settings: Settings,
    log_policy: th.Tensor,
    observe: Observe,
    iterations: int,
    generator: th.Generator | None = None,
) -> Iterator[Update]:
    """The loop shared by every algorithm and scheme; yields one :class:`Update` for K = 1, 2, ...

    :param log_policy: first policy, shape (..., S, A)
    :param observe: from (deployed policy, policy mixed with) to a :class:`View`
    :param generator: source of the noise on Q, if there is any
    """
    chain = previous = deployed = log_policy
    q = th.zeros_like(log_policy)
    tracker = AdvantageTracker(settings.rho1, settings.rho2)
    for K in range(1, iterations + 1):
        old = chain if settings.scheme == "1" else deployed
        view = observe(deployed, old)
        gamma = view.model.gamma

        if view.q is not None and old is chain and settings.plain_exact:  # the view has it already
            q = view.q
        else:
            q = evaluate(view.model, q, chain, previous, settings)
        noise = (
            settings.noise * th.randn(q.shape, dtype=q.dtype, generator=generator)
            if settings.noise
            else 0.0
        )
        new = improve(q + noise, chain, settings)

        q_old = q if view.q is None else view.q
        greedy = greedy_advantage(q_old, old)
        tracker.update(
            (view.weights * greedy).sum(-1), greedy.where(view.weights > 0.0, 0.0).amax(-1)
        )
        evidence = gather_evidence(
            q_old, view.weights, new, old, tracker.ratio, log_change_bound(K, gamma, settings)
        )
        zeta = RULES[settings.rule](evidence, settings, gamma)
        deployed = log_mixture(new, old, zeta[..., None, None])
        yield Update(K, old, new, deployed, evidence, zeta)
        previous, chain = chain, deployed if settings.scheme == "2" else new


def log_change_bound(K: int, gamma: float, settings: Settings) -> float:
    """``log C_K`` of Lemma 3; infinite for the hard greedy step, which nothing bounds."""
    if settings.temperature == 0.0:
        return float("inf")
    return log_policy_change_bound(K, settings.alpha, gamma, settings.temperature, settings.r_max)
