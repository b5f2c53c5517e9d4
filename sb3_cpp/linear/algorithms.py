"""Linear Cautious Policy Programming (CPP Algorithm 1), all trials in one array program.

Iteration K: act with the deployed mixture, fit Q_K to one (or m) Bellman backups of Q_{K-1} by
ridge regression, take the regularised greedy step from pi_K to pi_{K+1}, and mix it into the
deployed policy with coefficient zeta. The steps, the rules for zeta and the schemes are those of
:mod:`sb3_cpp.tabular.algorithms`, with the states of the buffer as the states.

Because every policy is Boltzmann, log pi_K is linear in the features up to a constant per state:
``log pi_K = preferences_K . phi / temperature + const`` with
``preferences_{K+1} = theta_K + alpha preferences_K`` (CPP Eq. boltzmann_greedy unrolled: beta times
the sum of alpha^j Q_{K-j}).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch as th

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.coefficients import AdvantageTracker
from sb3_cpp.linear.features import LinearQ, solve_ridge
from sb3_cpp.linear.policy import Mixture, StatewiseMixture
from sb3_cpp.linear.rollout import BatchEnv, Buffer, Rollout, collect
from sb3_cpp.regularization import greedy_advantage, log_boltzmann, regularized_value
from sb3_cpp.tabular import algorithms as tabular


@dataclass(frozen=True)
class Settings(tabular.Settings):
    """What one algorithm is: that of the tabular level, and how values are fitted.

    :param gamma: discount
    :param ridge: penalty of the regression
    :param ridge_centre: where the penalty pulls the weights: "previous" ones, or "zero" as printed
    :param tracker_start: m_0 and M_0 from the "first" buffer, or "zero"
    :param printed_delta: E-SPI with the paper's ``max_s |sum_a (new - old)|``
    :param error_scale: the state-wise rule assumes an error of Q of so many root mean squares of
        the regression's residual, in addition to ``error_bound``
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
    error_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        # an arithmetic mixture of Boltzmann policies is no Boltzmann policy: it has no preferences
        if self.scheme == "2" and self.mixture != "geometric":
            raise InvalidArgument(
                "scheme must be '1' or '1b' with linear features and an arithmetic mixture, got '2'"
            )
        # mixed with itself again and again, a state-wise mixture would need all its ancestors
        if self.rule == "statewise" and self.scheme != "1":
            raise InvalidArgument(f"scheme must be '1' for rule 'statewise', got {self.scheme!r}")
        check_number("error_scale", self.error_scale, 0.0)
        check_number("temperature", self.temperature, 0.0, low_open=True)
        check_number("gamma", self.gamma, 0.0, 1.0, high_open=True)
        check_number("ridge", self.ridge, 0.0)
        check_choice("ridge_centre", self.ridge_centre, ("previous", "zero"))
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
        # of pi_{K+1}, the newest policy of the chain, shape (trials, groups, F)
        self.next_preferences = q.zeros(n_trials, dtype)
        self.deployed: Mixture | StatewiseMixture = Mixture(
            q.per_action(self.preferences), settings.temperature
        )

    def update(self, buffer: Buffer) -> Update:
        """From Q_{K-1} and pi_{K-1} to Q_K, pi_K and the next deployed policy."""
        s, q = self.settings, self.q
        # pi_{K-1}: the KL penalty of the target is against the policy before pi_K
        log_baseline_next = self._log_policy(buffer.next_phi, self.preferences)
        old = self.next_preferences  # pi_K
        log_policy_next = self._log_policy(buffer.next_phi, old)
        self.theta, targets = self._evaluate(buffer, log_policy_next, log_baseline_next)
        self.K, self.preferences = self.K + 1, old
        new = self.theta + s.alpha * old  # pi_{K+1} = G Q_K

        # scheme 1 mixes with pi_K, 1b with the policy that acts; in scheme 2 they are the same
        chain = Mixture(q.per_action(old), s.temperature)
        mixed_with = self.deployed if s.scheme == "1b" else chain
        evidence = self._gather_evidence(buffer, targets, new, mixed_with)
        zeta = tabular.RULES[s.rule](evidence, s, s.gamma)
        self.next_preferences = new
        self._deploy(mixed_with, new, zeta, evidence)
        return Update(self.K, zeta.mean(-1) if s.rule == "statewise" else zeta, evidence)

    def _deploy(
        self,
        old: Mixture | StatewiseMixture,
        new: th.Tensor,
        zeta: th.Tensor,
        evidence: tabular.Evidence,
    ) -> None:
        """Mix the new policy with the old one."""
        s, q = self.settings, self.q
        assert isinstance(old, Mixture)  # the state-wise rule has scheme 1: it mixes with the chain
        if s.rule == "statewise":
            error: Any = evidence.error_bound
            parts = old.members[0], q.per_action(new), q.per_action(self.theta), error.squeeze(-1)
            self.deployed = StatewiseMixture(*parts, s.temperature)
        elif s.mixture == "geometric":
            step = zeta[:, None, None]
            # new^zeta old^(1-zeta) is linear in the preferences: Boltzmann again
            mixed = step * q.per_action(new) + (1.0 - step) * old.members[0]
            self.deployed = Mixture(mixed, s.temperature)
            if s.scheme == "2":
                self.next_preferences = step * new + (1.0 - step) * self.preferences
        else:
            self.deployed = old.mixed_with(q.per_action(new), zeta)

    def _log_policy(self, phi: th.Tensor, preferences: th.Tensor) -> th.Tensor:
        return log_boltzmann(self.q.values(phi, preferences), self.settings.temperature)

    def _evaluate(
        self, buffer: Buffer, log_policy_next: th.Tensor, log_baseline_next: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor]:
        """Weights of (T_{pi_K})^m Q_{K-1}, each backup fitted to the buffer; the last targets."""
        s, q, theta = self.settings, self.q, self.theta
        temperature = s.temperature if s.regularized else 0.0
        # of the last iteration, also in the second and later backups of this one
        centre = theta if s.ridge_centre == "previous" else None
        # a truncated episode would have gone on, so its last state keeps its value
        discount = s.gamma * (1.0 - buffer.terminated.to(buffer.rewards.dtype))
        for _ in range(s.backups or 1):
            q_next = q.values(buffer.next_phi, theta)
            value = regularized_value(
                log_policy_next, q_next, log_baseline_next, s.alpha, temperature
            )
            targets = buffer.rewards + discount * value.squeeze(-1)
            equations = q.normal_equations(buffer.phi, buffer.actions, targets)
            theta = solve_ridge(*equations, s.ridge, centre)
        return theta, targets

    def _gather_evidence(
        self, buffer: Buffer, targets: th.Tensor, new: th.Tensor, old: Mixture | StatewiseMixture
    ) -> tabular.Evidence:
        """Advantage of pi_{K+1} over the policy it is mixed with, over the states of the buffer."""
        s, phi = self.settings, buffer.phi
        log_old, log_new = old.log_policy(phi), self._log_policy(phi, new)
        # the buffer is a sample of the visitation, so every state in it weighs the same
        weights = phi.new_full(phi.shape[:-1], 1.0 / phi.shape[-2])
        q = self.q.values(phi, self.theta)
        greedy = greedy_advantage(q, log_old)
        self.tracker.update(greedy.mean(-1), greedy.amax(-1))
        log_c = tabular.log_change_bound(self.K, s.gamma, s)
        # what the regression leaves is the only estimate there is of the error of Q
        residual = targets - q.gather(-1, buffer.actions.unsqueeze(-1)).squeeze(-1)
        error = s.error_bound + s.error_scale * residual.square().mean(-1, keepdim=True).sqrt()
        ratio = self.tracker.ratio
        evidence = tabular.gather_evidence(q, weights, log_new, log_old, ratio, log_c, error)
        if s.printed_delta:  # |sum_a (new - old)|, which is 0 but for rounding
            printed = (log_new.exp() - log_old.exp()).sum(-1).abs()
            evidence = evidence._replace(state_l1=printed)
        return evidence


class Iteration(NamedTuple):
    """One iteration: the policy that acted, its rollout, and the update that followed."""

    acted: Mixture | StatewiseMixture
    rollout: Rollout
    update: Update


def iterate(
    learner: LinearLearner, env: BatchEnv, iterations: int, steps: int, seed: int
) -> Iterator[Iteration]:
    """Run Algorithm 1, one iteration per item: after an error the caller still has those before it.

    The same seed and number of trials give the same numbers on the same machine.
    """
    # the environment gets the seed only once, so that later rollouts start elsewhere
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
        # no gradients here: spares autograd's bookkeeping of many small operations
        with th.inference_mode():
            rollout = collect(env, learner.q, acted, steps, generator, seed if k == 0 else None)
            update = learner.update(rollout.buffer)
        yield Iteration(acted, rollout, update)
