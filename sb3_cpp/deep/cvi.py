"""Conservative value iteration (CVI) with a deep network."""

from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_choice, check_number
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.regularization import boltzmann, mellow_value, soft_value

BACKUPS = ("mellowmax", "logsumexp")


class CVI(RegularizedDQN):
    """
    Conservative value iteration: DQN on preferences whose policy ``softmax(Psi / temperature)`` is
    regularised by entropy and KL at once, with the KL term implicit in the target (Kozuno, Uchibe,
    Doya 2019, "Theoretical analysis of efficiency and robustness of softmax and gap-increasing
    operators in reinforcement learning").

    ``y = r + gamma (1-d) m(s') + alpha (Psi-(s,a) - m(s))`` with ``m`` the mellowmax of the target
    network. With the log-sum-exp as ``m``, which differs by a constant per step and so matters
    where an episode ends, this is unclipped Munchausen DQN.

    With ``n_steps > 1`` the entropy and KL terms of the skipped steps are left out.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param alpha: share of the KL weight, in [0, 1); 0 is soft DQN
    :param temperature: sum of the entropy and the KL weight, > 0, in units of the reward
    :param backup: value of a state: "mellowmax" (CVI) or "logsumexp"
    """

    has_regularized_target = True

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
        max_grad_norm: float | None = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        alpha: float = 0.9,
        temperature: float = 0.03,
        backup: str = "mellowmax",
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.alpha, self.temperature, self.backup = alpha, temperature, backup
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
        self.backup = check_choice("backup", self.backup, BACKUPS)

    @property
    def behaviour_temperature(self) -> float:
        return self.temperature

    def _joint_networks(self) -> list[nn.Module]:
        # At s' for the backup, at s for the gap
        return [self.q_net_target]

    def _value(self, values: th.Tensor, mask: th.Tensor | None) -> th.Tensor:
        # A mean over actions must leave invalid ones out; a sum does so by itself
        if self.backup == "logsumexp":
            return soft_value(values, self.temperature)
        return mellow_value(values, self.temperature, mask)

    def _target(self, batch: Batch) -> th.Tensor:
        # The gap holds the KL term, alpha (Psi - m) = sigma log pi- up to a constant. It is about s
        # and so stays on terminal transitions
        gap = batch.gather_actions(batch.target_q) - self._value(batch.target_q, batch.mask)
        next_value = self._value(batch.next_target_q, batch.next_mask)
        target = batch.bootstrap(
            next_value, lambda: boltzmann(batch.next_target_q, self.temperature)
        )
        return target + self.alpha * gap
