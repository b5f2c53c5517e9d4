"""Momentum DQN."""

from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp.checks import check_number
from sb3_cpp.deep.acting import ActingDQN
from sb3_cpp.deep.batch import Batch


class MoDQN(ActingDQN):
    """
    Momentum DQN: acts greedily on a running average H of all past Q-values
    (Vieillard, Scherrer, Pietquin, Geist 2020, "Momentum in Reinforcement Learning").

    ``Qhat = r + gamma (1-d) Q-(s', argmax_a H-(s',a))`` and ``Hhat = (1-w) H-(s,a) + w Qhat``,
    each regressed by its own network.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param momentum: weight w of the newest Q: None for ``max(kappa / (kappa + K), floor)``, or
        fixed in (0, 1]; 1 is DQN that acts on its second network
    :param kappa: time scale of w in iterations, > 0
    :param momentum_floor: smallest w, in [0, 1]
    :param temperature: of ``softmax(H / temperature)``, sampled only with
        ``behaviour="boltzmann"``, > 0
    """

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
        momentum: float | None = None,
        kappa: float = 10.0,
        momentum_floor: float = 0.1,
        temperature: float = 0.03,
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.momentum, self.kappa, self.momentum_floor = momentum, kappa, momentum_floor
        self.temperature = temperature
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
        if self.momentum is not None:
            self.momentum = check_number("momentum", self.momentum, 0.0, 1.0, low_open=True)
        self.kappa = check_number("kappa", self.kappa, 0.0, low_open=True)
        self.momentum_floor = check_number("momentum_floor", self.momentum_floor, 0.0, 1.0)
        self.temperature = check_number("temperature", self.temperature, 0.0, low_open=True)

    @property
    def momentum_weight(self) -> float:
        """w at the present iteration."""
        if self.momentum is not None:
            return self.momentum
        return max(self.kappa / (self.kappa + self.iteration), self.momentum_floor)

    @property
    def behaviour_temperature(self) -> float:
        return self.temperature

    def _coefficients(self) -> dict[str, float]:
        return {"momentum": self.momentum_weight}

    def _target(self, batch: Batch) -> th.Tensor:
        # Q evaluates the policy that is greedy in H, not its own
        greedy = batch.next_target_values(self.acting_net_target).argmax(dim=1, keepdim=True)
        return batch.bootstrap(batch.next_target_of(greedy))

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        # H regresses on the average of its own target network and the newest Q target
        old = batch.gather_actions(batch.target_values(self.acting_net_target))
        weight = batch.coefficients["momentum"]
        average = (1.0 - weight) * old + weight * target.mean(dim=1, keepdim=True)
        prediction = batch.gather_actions(self._acting_values(batch))
        return {**super()._losses(batch, target), "momentum": self._value_loss(prediction, average)}
