"""Linear Cautious Policy Programming (CPP Algorithm 1), all trials in one array program.

Iteration K: act with the deployed mixture, fit Q_K to one (or m) Bellman backups of Q_{K-1} by
ridge regression, take the regularised greedy step from pi_K to pi_{K+1}, and mix it into the
deployed policy with coefficient zeta. The steps, the rules for zeta and schemes 1 and 1b are those
of :mod:`sb3_cpp.tabular.algorithms`, with the states of the buffer as the states.

Because every policy is Boltzmann, log pi_K is linear in the features up to a constant per state:
``log pi_K = preferences_K . phi / temperature + const`` with
``preferences_{K+1} = theta_K + alpha preferences_K`` (CPP Eq. boltzmann_greedy unrolled: beta times
the sum of alpha^j Q_{K-j}).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch as th

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.coefficients import AdvantageTracker
from sb3_cpp.linear.features import LinearQ, solve_ridge
from sb3_cpp.linear.policy import Mixture
from sb3_cpp.linear.rollout import BatchEnv, Buffer, Rollout, collect
from sb3_cpp.regularization import greedy_advantage, log_boltzmann, regularized_value
from sb3_cpp.tabular import algorithms as tabular

SCHEMES = ("1", "1b")
RIDGE_CENTRES = ("previous", "zero")


@dataclass(frozen=True)
class Settings(tabular.Settings):
    """What one algorithm is: that of the tabular level, and how values are fitted.

    :param gamma: discount
    :param ridge: penalty of the regression
    :param ridge_centre: where the penalty pulls the weights: "previous" ones, or "zero" as printed
    :param tracker_start: m_0 and M_0 from the "first" buffer, or "zero"
    :param printed_delta: E-SPI with the paper's ``max_s |sum_a (new - old)|``, 0 but for rounding
    """

    scheme: str = "1b"
    exact_constants: bool = False
    backups: int | None = 1
    regularized: bool = True
    rho2: float = 0.999
    gamma: float = 0.9
    ridge: float = 1.0
    ridge_centre: str = "previous"
    tracker_start: str = "zero"
    printed_delta: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("temperature", self.temperature, 0.0, low_open=True)
        check_number("gamma", self.gamma, 0.0, 1.0, high_open=True)
        check_number("ridge", self.ridge, 0.0)
        check_choice("ridge_centre", self.ridge_centre, RIDGE_CENTRES)
        check_choice("tracker_start", self.tracker_start, ("first", "zero"))
        check_whole_number("backups", self.backups, 1)
        if self.noise != 0.0:
            raise InvalidArgument(f"noise must be 0 with linear features, got {self.noise!r}")


class Update(NamedTuple):
    """What one update found; tensors have shape (trials,)."""

    K: int
    zeta: th.Tensor
    evidence: tabular.Evidence


class LinearLearner:
    """The weights of all trials, and how one buffer changes them."""

    def __init__(
        self, q: LinearQ, settings: Settings, n_trials: int, dtype: th.dtype = th.float32
    ) -> None:
        self.q, self.settings = q, settings
        self.tracker = AdvantageTracker(settings.rho1, settings.rho2, settings.tracker_start)
        self.K = 0
        self.theta = q.zeros(n_trials, dtype)  # Q_0 = 0
        self.preferences = q.zeros(n_trials, dtype)  # pi_0 uniform
        self.deployed = Mixture(q.per_action(self.preferences), settings.temperature)

    def update(self, buffer: Buffer) -> Update:
        """From Q_{K-1} and pi_{K-1} to Q_K, pi_K and the next deployed policy."""
        s, q = self.settings, self.q
        log_baseline_next = self._log_policy(buffer.next_phi, self.preferences)
        preferences = self.next_preferences  # pi_K = G Q_{K-1}
        theta = self._evaluate(
            buffer, self._log_policy(buffer.next_phi, preferences), log_baseline_next
        )
        self.K, self.theta, self.preferences = self.K + 1, theta, preferences

        chain = Mixture(q.per_action(preferences), s.temperature)
        old = self.deployed if s.scheme == "1b" else chain
        evidence = self._gather_evidence(buffer.phi, old)
        zeta = tabular.RULES[s.rule](evidence, s, s.gamma)
        self.deployed = old.mixed_with(q.per_action(self.next_preferences), zeta)
        return Update(self.K, zeta, evidence)

    @property
    def next_preferences(self) -> th.Tensor:
        """Weights of pi_{K+1} = G Q_K, the newest of the chain, shape (trials, groups, F)."""
        return self.theta + self.settings.alpha * self.preferences

    def _log_policy(self, phi: th.Tensor, preferences: th.Tensor) -> th.Tensor:
        return log_boltzmann(self.q.values(phi, preferences), self.settings.temperature)

    def _evaluate(
        self, buffer: Buffer, log_policy_next: th.Tensor, log_baseline_next: th.Tensor
    ) -> th.Tensor:
        """Weights of (T_{pi_K})^m Q_{K-1}, each backup fitted to the buffer."""
        s, q, theta = self.settings, self.q, self.theta
        temperature = s.temperature if s.regularized else 0.0
        centre = theta if s.ridge_centre == "previous" else None
        discount = s.gamma * (1.0 - buffer.terminated.to(buffer.rewards.dtype))
        for _ in range(s.backups or 1):
            q_next = q.values(buffer.next_phi, theta)
            value = regularized_value(
                log_policy_next, q_next, log_baseline_next, s.alpha, temperature
            )
            targets = buffer.rewards + discount * value.squeeze(-1)
            equations = q.normal_equations(buffer.phi, buffer.actions, targets)
            theta = solve_ridge(*equations, s.ridge, centre)
        return theta

    def _gather_evidence(self, phi: th.Tensor, old: Mixture) -> tabular.Evidence:
        """Advantage of pi_{K+1} over the policy it is mixed with, over the states of the buffer."""
        s = self.settings
        log_old, log_new = old.log_policy(phi), self._log_policy(phi, self.next_preferences)
        weights = phi.new_full(phi.shape[:-1], 1.0 / phi.shape[-2])
        q = self.q.values(phi, self.theta)
        greedy = greedy_advantage(q, log_old)
        self.tracker.update(greedy.mean(-1), greedy.amax(-1))
        log_c = tabular.log_change_bound(self.K, s.gamma, s)
        ratio = self.tracker.ratio
        evidence = tabular.gather_evidence(q, weights, log_new, log_old, ratio, log_c)
        if s.printed_delta:
            printed = (log_new.exp() - log_old.exp()).sum(-1).abs().amax(-1)
            evidence = evidence._replace(delta=printed)
        return evidence


class Iteration(NamedTuple):
    """One iteration: the policy that acted, its rollout, and the update that followed."""

    acted: Mixture
    rollout: Rollout
    update: Update


def iterate(
    learner: LinearLearner, env: BatchEnv, iterations: int, steps: int, seed: int
) -> Iterator[Iteration]:
    """Run Algorithm 1, one iteration per item: after an error the caller still has those before it.

    The same seed and number of trials give the same numbers on the same machine.
    """
    check_whole_number("iterations", iterations, 1)
    check_whole_number("steps", steps, 1)
    if learner.q.n_actions != env.n_actions:
        raise InvalidArgument(
            f"features must be for the environment's {env.n_actions} actions, "
            f"got {learner.q.n_actions}"
        )
    generator = th.Generator().manual_seed(seed)
    for k in range(iterations):
        acted = learner.deployed
        with th.inference_mode():
            rollout = collect(env, learner.q, acted, steps, generator, seed if k == 0 else None)
            update = learner.update(rollout.buffer)
        yield Iteration(acted, rollout, update)
