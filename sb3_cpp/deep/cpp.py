"""Deep cautious policy programming (CPP)."""

import math
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_choice, check_number
from sb3_cpp.coefficients import log_policy_change_bound, policy_change_bound
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import RULES, Caution
from sb3_cpp.deep.cautious import CautiousDQN
from sb3_cpp.deep.cvi import preference_target
from sb3_cpp.deep.mdqn import munchausen_target
from sb3_cpp.regularization import (
    greedy_advantage,
    log_boltzmann,
    log_greedy,
    log_mixture,
    projection_loss,
    regularized_value,
)


class DeepCPP(CautiousDQN):
    """
    Deep cautious policy programming: entropy- and KL-regularised DQN whose policy moves towards its greedy step only as
    far as zeta allows (Zhu, Kitamura, Matsubara 2022, "Cautious Policy Programming", Algorithm 2).

    With ``pi-`` the policy of the target network and ``pi`` that of the online network, the loss is
    ``E (Q(s,a) - y)^2 + projection_coef * temperature^2 * E KL( pi || stopgrad[zeta G Q + (1-zeta) pi-] )``.
    The weight is in these units because the KL is a pure number whose curvature in Q is 1/temperature^2: the paper's plain
    sum is ``projection_coef = 1/temperature^2``.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param alpha: share of the KL weight, in [0, 1); the rest of the temperature is entropy weight, which adds up to
        ``(1-alpha) temperature log(actions) / (1-gamma)`` to a value: 0.5 with the defaults, gamma 0.99 and 5 actions, and 2
        with the paper's 0.001 / 0.0134
    :param temperature: sum of the entropy and the KL weight, > 0, in units of the reward; the paper's is 0.0134
    :param zeta: how far a new policy is let in, recomputed at every target update by a rule: "typical" and "measured" measure
        the step on the batches, as E-SPI's ``A / (delta * range)``, "typical" with the mean distance for the largest one and
        the standard deviation for the range; "dcpp" is the paper's, "linear_cpp", "dcpi", "cpi" and "spi" are others it
        names; or a fixed number in [0, 1]; 1 is plain regularised DQN
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of its running maximum M_K, in [0, 1)
    :param r_max: bound of the absolute reward, > 0, for C_K
    :param error_bound: bound of the error of one backup, >= 0; adds B_K to C_K
    :param projection_coef: weight of the projection, >= 0, a pure number of order 1 to 100: smoother against faster
    :param form: "explicit" learns Q with the regularisation in the target; "implicit" learns the preferences
        ``Psi = Q + sigma log pi-`` with CVI's target, where ``pi = softmax(Psi / temperature)`` is exact; "munchausen" learns
        them with Munchausen DQN's target, where ``temperature log pi-`` has a lower bound: with zeta = 1 it is that algorithm
    :param munchausen_clip: that bound, <= 0, of the form "munchausen"
    :param loss: of the Q-values: "mse" (paper) or "huber"
    :param averaging: gradient steps over which the weights are averaged of the network that ``predict(deterministic=True)``
        asks, so that the policy that is deployed moves slowly too; 0 (paper) asks the newest. Learning does not depend on it
    :param kwargs: ``behaviour`` (see :class:`RegularizedDQN`) and further arguments of ``stable_baselines3.DQN``
    """

    supports_n_steps = False
    rules = tuple(RULES)

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *dqn_args: Any,
        alpha: float = 0.9,
        temperature: float = 0.03,
        zeta: str | float = "typical",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        r_max: float = 1.0,
        error_bound: float = 0.0,
        projection_coef: float = 10.0,
        form: str = "munchausen",
        munchausen_clip: float = -1.0,
        loss: str = "mse",
        averaging: int = 2000,
        **kwargs: Any,
    ) -> None:
        self.alpha, self.temperature, self.error_bound = alpha, temperature, error_bound
        self.projection_coef, self.form, self.munchausen_clip = (
            projection_coef,
            form,
            munchausen_clip,
        )
        self.caution = Caution(zeta, self.rules, rho1, rho2, r_max)
        super().__init__(policy, env, *dqn_args, loss=loss, averaging=averaging, **kwargs)

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.alpha = check_number("alpha", self.alpha, 0.0, 1.0, high_open=True)
        self.temperature = check_number("temperature", self.temperature, 0.0, low_open=True)
        self.error_bound = check_number("error_bound", self.error_bound, 0.0)
        self.projection_coef = check_number("projection_coef", self.projection_coef, 0.0)
        self.form = check_choice("form", self.form, ("explicit", "implicit", "munchausen"))
        self.munchausen_clip = check_number("munchausen_clip", self.munchausen_clip, -math.inf, 0.0)

    @property
    def behaviour_temperature(self) -> float:
        """Explicit form: at a fixed point ``log pi = Q/T + alpha log pi``, so pi = softmax(Q / ((1-alpha) T))."""
        return (
            (1.0 - self.alpha) * self.temperature if self.form == "explicit" else self.temperature
        )

    def _log_previous(self, target_values: th.Tensor) -> th.Tensor:
        """The policy pi- of the target network.

        Explicit form: the closure of ``log pi_K = sum_j alpha^j Q_{K-j} / T`` for a slowly moving Q.
        """
        return log_boltzmann(target_values, self.behaviour_temperature)

    def _log_policy(self, values: th.Tensor, log_previous: th.Tensor) -> th.Tensor:
        """The policy of the online network, which is also the regularised greedy step G Q."""
        if self.form != "explicit":
            return log_boltzmann(values, self.temperature)
        return log_greedy(values, log_previous, self.alpha, self.temperature)

    def _joint_networks(self) -> list[nn.Module]:
        return [self.q_net_target]

    def _target(self, batch: Batch) -> th.Tensor:
        if self.form == "implicit":
            return preference_target(batch, self.alpha, self.temperature)
        if self.form == "munchausen":
            return munchausen_target(batch, self.alpha, self.temperature, self.munchausen_clip)
        log_previous = self._log_previous(batch.next_target_q)
        log_policy = self._log_policy(batch.next_q, log_previous)
        value = regularized_value(
            log_policy, batch.next_target_q, log_previous, self.alpha, self.temperature
        )
        return batch.bootstrap(value)

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        log_policy, log_previous = self._policies(batch)
        log_mix = log_mixture(log_policy.detach(), log_previous, self.zeta)
        weight = self.projection_coef * self.temperature**2
        return {
            **super()._losses(batch, target),
            "projection": weight * projection_loss(log_policy, log_mix),
        }

    def _log_previous_now(self, batch: Batch) -> th.Tensor:
        """pi- at s, for the statistics and for the projection."""
        return batch.once("log_previous", lambda: self._log_previous(batch.target_q))

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        log_previous = self._log_previous_now(batch)
        with th.enable_grad():  # whoever asks first, the projection needs it
            return batch.once(
                "log_policy", lambda: self._log_policy(batch.q, log_previous)
            ), log_previous

    def _update_statistics(self, batch: Batch) -> None:
        log_policy, log_previous = self._policies(batch)
        q = batch.q.detach()
        if self.form != "explicit":  # Psi = Q + sigma log pi-
            lowest = self.munchausen_clip if self.form == "munchausen" else -math.inf
            q = q - self.alpha * (self.temperature * log_previous).clamp_min(lowest)
        if not self.caution.measures_the_step:
            self.caution.observe(greedy_advantage(q, log_previous))
            return
        change = log_policy.detach().exp() - log_previous.exp()
        self.caution.observe((change * q).sum(-1), change.abs().sum(-1))

    def _on_iteration_end(self) -> dict[str, float]:
        bound = (
            self.iteration,
            self.alpha,
            self.gamma,
            self.temperature,
            self.caution.r_max,
            self.error_bound,
        )
        return {
            **self.caution.refresh(self.gamma, log_policy_change_bound(*bound)),
            "C_K": policy_change_bound(*bound),
        }
