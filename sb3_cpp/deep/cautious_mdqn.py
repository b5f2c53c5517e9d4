"""Cautious Munchausen DQN, our own variant of CPP."""

from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp.checks import check_number
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution, Rule
from sb3_cpp.deep.mdqn import MDQN
from sb3_cpp.regularization import log_boltzmann, log_mixture, projection_loss


class CautiousMDQN(MDQN):
    """
    Munchausen DQN with a mixing coefficient: our own variant of CPP, not the paper's algorithm.

    It learns preferences ``Psi = Q + sigma log pi-`` with Munchausen DQN's target, so that
    ``pi = softmax(Psi / temperature)`` is exact. To the value loss it adds the projection
    ``projection_coef temperature^2 E KL( pi || stopgrad[zeta pi + (1-zeta) pi-] )``. Deterministic
    actions come from an average of the weights. With ``zeta=1`` it learns as :class:`MDQN` does.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param alpha: weight of the log-policy, the share of the KL weight, in [0, 1)
    :param temperature: sum of the entropy and the KL weight, > 0, in units of the reward
    :param munchausen_clip: lower bound of ``temperature log pi-``, <= 0
    :param zeta: mixing coefficient of the new policy: "typical" is E-SPI's
        ``A / (delta * range)`` measured on batches, with the mean L1 distance of the step for its
        maximum and the standard deviation of the advantages for their range; or a function of
        :class:`~sb3_cpp.deep.caution.Estimate`; or a fixed number in [0, 1]
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of the running maximum M_K of its scale, in [0, 1)
    :param projection_coef: weight of the projection, >= 0, of order 1 to 100: smoother or faster
    """

    zeta_rules = ("typical",)
    caution: Caution

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10_000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        alpha: float = 0.9,
        temperature: float = 0.03,
        munchausen_clip: float = -1.0,
        zeta: str | float | Rule = "typical",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        projection_coef: float = 10.0,
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 2000,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.zeta, self.rho1, self.rho2, self.projection_coef = zeta, rho1, rho2, projection_coef
        super().__init__(
            policy, env, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma,
            train_freq, gradient_steps, replay_buffer_class, replay_buffer_kwargs,
            optimize_memory_usage, n_steps, target_update_interval, exploration_fraction,
            exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size,
            tensorboard_log, policy_kwargs, verbose, seed, device, alpha=alpha,
            temperature=temperature, munchausen_clip=munchausen_clip, loss=loss,
            behaviour=behaviour, averaging=averaging, fast=fast, compile=compile,
            precision=precision, _init_setup_model=_init_setup_model,
        )  # fmt: skip

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.projection_coef = check_number("projection_coef", self.projection_coef, 0.0)
        self._make_caution(self.zeta, self.rho1, self.rho2)

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        log_policy, log_previous = self._policies(batch)
        # Only the first argument of the KL carries a gradient
        log_mix = log_mixture(log_policy.detach(), log_previous, batch.coefficients["zeta"])
        # T^2 puts the KL, whose curvature in Q is 1/T^2, into the units of the value loss
        weight = self.projection_coef * self.temperature**2
        projection = weight * projection_loss(log_policy, log_mix)
        return {**super()._losses(batch, target), "projection": projection}

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        log_previous = batch.cached(
            "log_previous", lambda: log_boltzmann(batch.target_q, self.temperature)
        )
        # Cached by the first caller, which may run without gradient; the projection loss needs one
        with th.enable_grad():
            log_policy = batch.cached(
                "log_policy", lambda: log_boltzmann(batch.q, self.temperature)
            )
        return log_policy, log_previous

    def _coefficients(self) -> dict[str, float]:
        return {"zeta": self.caution.zeta}

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """Mean advantage of the step from pi- to pi, and ``E L1 * std(A)`` as its scale."""
        log_policy, log_previous = self._policies(batch)
        # Advantages are those of Q; the network learns Psi = Q + sigma log pi-, clipped as in the
        # target
        bonus = (self.temperature * log_previous).clamp_min(self.munchausen_clip)
        q = batch.q.detach() - self.alpha * bonus
        change = log_policy.detach().exp() - log_previous.exp()
        advantages, distances = (change * q).sum(-1), change.abs().sum(-1)
        # correction=0: a batch of one has no other standard deviation
        return advantages.mean(), distances.mean() * advantages.std(correction=0)

    def _on_iteration_end(self) -> dict[str, float]:
        return self.caution.update_zeta(self.iteration, self.gamma)
