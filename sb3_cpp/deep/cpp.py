"""Deep cautious policy programming (CPP)."""

from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_number
from sb3_cpp.coefficients import log_policy_change_bound, policy_change_bound
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution, Rule
from sb3_cpp.regularization import (
    greedy_advantage,
    log_boltzmann,
    log_greedy,
    log_mixture,
    projection_loss,
    regularized_value,
)


class DeepCPP(RegularizedDQN):
    """
    Deep cautious policy programming, the paper's Algorithm 2: entropy- and KL-regularised DQN whose
    policy is pulled back to the previous one, the less so the larger the coefficient zeta
    (Zhu, Kitamura, Matsubara 2022, "Cautious Policy Programming").

    With ``pi- = softmax(Q- / entropy weight)`` of the target network and ``G Q ~ pi-^alpha
    exp(Q / temperature)`` of the online network, the loss is
    ``E (Q(s,a) - y)^2 + E KL( G Q || stopgrad[zeta G Q + (1-zeta) pi-] )``.

    What zeta does: both arguments of the KL contain the same policy G Q, so the loss is 0 only at
    ``G Q = pi-`` (or zeta = 1). It pulls towards the *old* policy, and zeta weakens the pull, by
    1 - zeta for small steps. It does not project onto the mixture.

    The defaults are the paper's numbers. Two readings of it are open. The printed alpha is not the
    share of the KL weight: either its two names are swapped (KL weight .0124, entropy weight .001,
    ``alpha=0.9254``, the default), or its formula is wrong (``alpha=0.0746``). M_K is printed as a
    minimum, which sends zeta to 1 for ever (``zeta=1.0``); here it is a maximum.

    With ``n_steps > 1`` the entropy and KL terms of the skipped steps are left out.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param alpha: share of the KL weight in the temperature, in [0, 1)
    :param temperature: sum of the entropy and the KL weight, > 0, in units of the reward
    :param zeta: mixing coefficient of the new policy, set at every target update by a rule: "dcpp"
        (the paper's ``1/C_K m_K/M_K``), "dcpi", "cpi", "spi", or a function of
        :class:`~sb3_cpp.deep.caution.Estimate`; or a fixed number in [0, 1]
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of its running maximum M_K, in [0, 1)
    :param r_max: bound of the absolute reward, > 0, for C_K
    :param error_bound: bound of the error of one backup, >= 0; adds B_K to C_K
    :param projection_coef: None for the paper's plain sum of the two losses, or a number c >= 0 for
        the weight ``c temperature^2``, which puts the KL into the units of the value loss
    """

    has_regularized_target = True
    zeta_rules = ("dcpp", "dcpi", "cpi", "spi")
    caution: Caution

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 64,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 8000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float | None = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        alpha: float = 0.9254,
        temperature: float = 0.0134,
        zeta: str | float | Rule = "dcpp",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        r_max: float = 1.0,
        error_bound: float = 0.0,
        projection_coef: float | None = None,
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.alpha, self.temperature, self.zeta = alpha, temperature, zeta
        self.rho1, self.rho2, self.r_max = rho1, rho2, r_max
        self.error_bound, self.projection_coef = error_bound, projection_coef
        super().__init__(
            policy, env, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma,
            train_freq, gradient_steps, replay_buffer_class, replay_buffer_kwargs,
            optimize_memory_usage, n_steps, target_update_interval, exploration_fraction,
            exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size,
            tensorboard_log, policy_kwargs, verbose, seed, device, loss=loss, behaviour=behaviour,
            averaging=averaging, n_quantiles=n_quantiles, fast=fast, compile=compile,
            precision=precision, _init_setup_model=_init_setup_model,
        )  # fmt: skip

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.alpha = check_number("alpha", self.alpha, 0.0, 1.0, high_open=True)
        self.temperature = check_number("temperature", self.temperature, 0.0, low_open=True)
        self.error_bound = check_number("error_bound", self.error_bound, 0.0)
        if self.projection_coef is not None:
            self.projection_coef = check_number("projection_coef", self.projection_coef, 0.0)
        # From here on self.zeta is the argument and self.caution.zeta its present value
        self._make_caution(self.zeta, self.rho1, self.rho2, self.r_max)

    @property
    def behaviour_temperature(self) -> float:
        """The entropy weight: at a fixed point ``log pi = Q/T + alpha log pi``."""
        return (1.0 - self.alpha) * self.temperature

    def _joint_networks(self) -> list[nn.Module]:
        # At s' for the target, at s for pi- in the projection loss
        return [self.q_net_target]

    def _target(self, batch: Batch) -> th.Tensor:
        """``y = r + gamma (1-d) sum_a p [Q- - tau log p - sigma log(p / pi-)]``, ``p = G Q`` at s'
        (Eq. value_loss, with the signs of a bonus for entropy and a penalty for distance)."""
        log_previous = log_boltzmann(batch.next_target_q, self.behaviour_temperature)
        # The policy is the online network's, the values are the target network's, as in double DQN
        log_policy = log_greedy(batch.next_q, log_previous, self.alpha, self.temperature)
        value = regularized_value(
            log_policy, batch.next_target_q, log_previous, self.alpha, self.temperature
        )
        return batch.bootstrap(value, log_policy.exp)

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        """Eq. value_loss and Eq. policy_loss."""
        log_policy, log_previous = self._policies(batch)
        # Only the first argument of the KL carries a gradient
        log_mix = log_mixture(log_policy.detach(), log_previous, batch.coefficients["zeta"])
        projection = projection_loss(log_policy, log_mix)
        # The value loss is in units of Q^2; the KL is a pure number whose curvature in Q is 1/T^2
        if self.projection_coef is not None:
            projection = self.projection_coef * self.temperature**2 * projection
        return {**super()._losses(batch, target), "projection": projection}

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """G Q and pi- at s. pi- is the closure of ``log pi_K = sum_j alpha^j Q_{K-j} / T``
        for a slowly moving Q."""
        log_previous = batch.cached(
            "log_previous", lambda: log_boltzmann(batch.target_q, self.behaviour_temperature)
        )
        # Cached by the first caller, which may run without gradient; the projection loss needs one
        with th.enable_grad():
            log_policy = batch.cached(
                "log_policy",
                lambda: log_greedy(batch.q, log_previous, self.alpha, self.temperature),
            )
        return log_policy, log_previous

    def _coefficients(self) -> dict[str, float]:
        return {"zeta": self.caution.zeta}

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """m_K and M_K of ``A(s) = max_a Q(s,a) - sum_a pi-(a|s) Q(s,a)`` (Eq. adaptive_zeta)."""
        advantages = greedy_advantage(batch.q.detach(), self._policies(batch)[1])
        return advantages.mean(), advantages.max()

    def _on_iteration_end(self) -> dict[str, float]:
        """zeta for the next iteration (Eq. cpp_zeta)."""
        weights = (self.alpha, self.gamma, self.temperature)
        bound = (self.iteration, *weights, self.caution.r_max, self.error_bound)
        # The rule takes the log, because C_K itself underflows for large K
        log_c = log_policy_change_bound(*bound)
        measured = self.caution.update_zeta(self.iteration, self.gamma, log_c)
        return {**measured, "C_K": policy_change_bound(*bound)}
