"""Linear Cautious Policy Programming (CPP Algorithm 1), all trials in one array program.

Iteration K: act with the deployed mixture, fit Q_K to one (or m) Bellman backups of Q_{K-1} by ridge regression, take the
regularised greedy step from pi_K to pi_{K+1}, and let it into the deployed mixture as far as zeta says.

Because every policy is Boltzmann, log pi_K is linear in the features up to a constant per state:
``log pi_K = preferences_K . phi / temperature + const`` with ``preferences_{K+1} = theta_K + alpha preferences_K``
(CPP Eq. boltzmann_greedy unrolled: beta times the sum of alpha^j Q_{K-j}).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch as th

from sb3_cpp.checks import check_choice, check_number
from sb3_cpp.linear.batch import BatchEnv
from sb3_cpp.linear.features import LinearQ
from sb3_cpp.linear.mixture import Mixture
from sb3_cpp.linear.ridge import solve_ridge
from sb3_cpp.linear.rollout import Buffer, Rollout, collect
from sb3_cpp.linear.rules import RULES, Evidence
from sb3_cpp.regularization import greedy_advantage, l1_distance, log_boltzmann, regularized_value
from sb3_cpp.zeta import AdvantageTracker, log_policy_change_bound


@dataclass(frozen=True)
class Settings:
    """What all algorithms of a comparison share.

    ``temperature = tau + sigma`` and ``alpha = sigma / (tau + sigma)`` as everywhere in this package.
    """

    gamma: float = 0.9
    temperature: float = 0.05
    alpha: float = 0.5
    ridge: float = 1.0
    ridge_centre: str = "previous"  # "zero": as printed
    backups: int = 1  # m of the paper's (T_pi)^m
    regularized_backup: bool = True  # False: the target without entropy and KL, as the linear section prints it
    scheme: str = "1b"  # "1" mixes with pi_K, "1b" with the deployed policy
    rho1: float = 0.9
    rho2: float = 0.999
    tracker_start: str = "zero"
    r_max: float = 1.0

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, 0.0, 1.0, high_open=True)
        check_number("temperature", self.temperature, 0.0, low_open=True)
        check_number("alpha", self.alpha, 0.0, 1.0, high_open=True)
        check_number("ridge", self.ridge, 0.0)
        check_number("backups", self.backups, 1)
        check_number("rho1", self.rho1, 0.0, 1.0, high_open=True)
        check_number("rho2", self.rho2, 0.0, 1.0)
        check_number("r_max", self.r_max, 0.0, low_open=True)
        check_choice("ridge_centre", self.ridge_centre, ("previous", "zero"))
        check_choice("scheme", self.scheme, ("1", "1b"))
        check_choice("tracker_start", self.tracker_start, ("first", "zero"))


class Update(NamedTuple):
    """What one update found; tensors have shape (trials,)."""

    K: int
    zeta: th.Tensor
    evidence: Evidence


class LinearLearner:
    """The weights of all trials, and how one buffer changes them.

    :param algo: one of ``RULES``: cvi, cpp, cpp_linear, espi, espi_printed, aspi, cpi
    """

    def __init__(self, q: LinearQ, algo: str, settings: Settings, n_trials: int, dtype: th.dtype = th.float32) -> None:
        self.q, self.settings = q, settings
        self.rule = RULES[check_choice("algo", algo, RULES)]
        self.tracker = AdvantageTracker(settings.rho1, settings.rho2, settings.tracker_start)
        self.K = 0
        self.theta = q.zeros(n_trials, dtype)  # Q_0 = 0
        self.preferences = q.zeros(n_trials, dtype)  # pi_0 uniform
        self.deployed = Mixture(q.per_action(self.preferences), settings.temperature)

    def update(self, buffer: Buffer) -> Update:
        """From Q_{K-1} and pi_{K-1} to Q_K, pi_K and the next deployed policy."""
        s, q = self.settings, self.q
        self.K += 1
        log_old_next = self._log_policy(buffer.next_phi, self.preferences)
        self.preferences = self.theta + s.alpha * self.preferences  # pi_K = G Q_{K-1}
        log_policy_next = self._log_policy(buffer.next_phi, self.preferences)

        centre = self.theta if s.ridge_centre == "previous" else None
        discount = s.gamma * (1.0 - buffer.terminated.to(buffer.rewards.dtype))
        bonus_temperature = s.temperature if s.regularized_backup else 0.0
        for _ in range(s.backups):
            q_next = q.values(buffer.next_phi, self.theta)
            value = regularized_value(log_policy_next, q_next, log_old_next, s.alpha, bonus_temperature)
            targets = buffer.rewards + discount * value.squeeze(-1)
            self.theta = solve_ridge(*q.normal_equations(buffer.phi, buffer.actions, targets), s.ridge, centre)

        partner = self.deployed if s.scheme == "1b" else Mixture(q.per_action(self.preferences), s.temperature)
        evidence = self._evidence(buffer.phi, partner)
        zeta = self.rule(evidence)
        self.deployed = partner.mixed_with(q.per_action(self.next_preferences), zeta)
        return Update(self.K, zeta, evidence)

    @property
    def next_preferences(self) -> th.Tensor:
        """Weights of pi_{K+1} = G Q_K, the newest policy of the chain, shape (trials, groups, F)."""
        return self.theta + self.settings.alpha * self.preferences

    def _log_policy(self, phi: th.Tensor, preferences: th.Tensor) -> th.Tensor:
        return log_boltzmann(self.q.values(phi, preferences), self.settings.temperature)

    def _evidence(self, phi: th.Tensor, partner: Mixture) -> Evidence:
        """The advantage of Q_K over pi_K, and how far pi_{K+1} is from pi_K, over the states of the buffer."""
        s = self.settings
        log_old, log_new = partner.log_policy(phi), self._log_policy(phi, self.next_preferences)
        advantage = greedy_advantage(self.q.values(phi, self.theta), log_old)
        self.tracker.update(advantage.mean(-1), advantage.amax(-1))
        return Evidence(
            advantage=advantage.mean(-1),
            advantage_range=advantage.amax(-1) - advantage.amin(-1),
            distance=l1_distance(log_new, log_old).amax(-1),
            printed_distance=(log_new.exp() - log_old.exp()).sum(-1).abs().amax(-1),
            ratio=self.tracker.ratio,
            log_c=log_policy_change_bound(self.K, s.alpha, s.gamma, s.temperature, s.r_max),
            gamma=s.gamma,
            r_max=s.r_max,
        )


class Iteration(NamedTuple):
    """Everything of one iteration: the policy that acted, what it met, and the update that followed."""

    acted: Mixture
    rollout: Rollout
    update: Update


def iterate(learner: LinearLearner, env: BatchEnv, iterations: int, steps: int, seed: int) -> Iterator[Iteration]:
    """Run Algorithm 1, one iteration per item, so that what was seen before an error is the caller's to keep.

    The same seed and number of trials give the same numbers on the same machine.
    """
    check_number("iterations", iterations, 1)
    check_number("steps", steps, 1)
    generator = th.Generator().manual_seed(seed)
    for k in range(iterations):
        acted = learner.deployed
        with th.inference_mode():
            rollout = collect(env, learner.q, acted, steps, generator, seed if k == 0 else None)
            update = learner.update(rollout.buffer)
        yield Iteration(acted, rollout, update)
