"""Munchausen DQN."""

import math
from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_number
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.regularization import boltzmann, munchausen_bonus, soft_value


class MDQN(RegularizedDQN):
    """
    Munchausen DQN: soft DQN that adds its own clipped log-policy to the reward
    (Vieillard, Pietquin, Geist 2020, "Munchausen Reinforcement Learning").

    ``y = r + alpha clip(T log pi-(a|s), l0, 0) + gamma (1-d) T logsumexp(Q-(s') / T)`` with
    ``pi- = softmax(Q- / T)``. The bonus stays on terminal transitions.

    With ``n_steps > 1`` the entropy and KL terms of the skipped steps are left out.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param alpha: weight of the log-policy, the share of the KL weight, in [0, 1); 0 is soft DQN
    :param temperature: T, sum of the entropy and the KL weight, > 0, in units of the reward
    :param munchausen_clip: l0 <= 0, lower bound of ``T log pi-``; ``-inf`` does not clip
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
        munchausen_clip: float = -1.0,
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.alpha, self.temperature = alpha, temperature
        self.munchausen_clip = munchausen_clip
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
        self.munchausen_clip = check_number("munchausen_clip", self.munchausen_clip, -math.inf, 0.0)

    @property
    def behaviour_temperature(self) -> float:
        return self.temperature

    def _joint_networks(self) -> list[nn.Module]:
        # At s' for the soft value, at s for the bonus
        return [self.q_net_target]

    def _alpha(self, batch: Batch) -> float | th.Tensor:
        return self.alpha

    def _target(self, batch: Batch) -> th.Tensor:
        alpha, temperature, clip = self._alpha(batch), self.temperature, self.munchausen_clip
        # Of the action at s: it is added outside the bootstrap, on terminal transitions too
        bonus = munchausen_bonus(batch.target_q, batch.actions, alpha, temperature, clip)
        value = soft_value(batch.next_target_q, temperature)
        return batch.bootstrap(value, lambda: boltzmann(batch.next_target_q, temperature)) + bonus
