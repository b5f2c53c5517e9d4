"""Deep conservative policy iteration (CPI)."""

from typing import Any

import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp.deep.acting import ActingDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution, Rule
from sb3_cpp.regularization import greedy_advantage, log_mixture, log_one_hot, projection_loss


class DeepCPI(ActingDQN):
    """
    Deep conservative policy iteration: a Q-network, and a policy network that moves towards the
    greedy policy with the mixing coefficient zeta (Vieillard, Pietquin, Geist 2020, "Deep
    Conservative Policy Iteration").

    ``y = r + gamma (1-d) sum_a pi-(a|s') Q-(s',a)``, and the policy network minimises
    ``KL( pi || stopgrad[(1-zeta) pi- + zeta greedy(Q)] )``. Acts epsilon-greedily on the most
    probable action of the policy network.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`.

    :param zeta: mixing coefficient of the greedy policy, set at every target update by a rule
        ("dcpi", "cpi", "spi" = approximate SPI) or a function of
        :class:`~sb3_cpp.deep.caution.Estimate`; or a fixed number in [0, 1] (the paper's ablation:
        0.01 and 0.5)
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of its running maximum M_K, in [0, 1)
    :param r_max: bound of the absolute reward, > 0, for the rules "cpi" and "spi"
    """

    zeta_rules = ("dcpi", "cpi", "spi")
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
        max_grad_norm: float | None = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        zeta: str | float | Rule = "dcpi",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        r_max: float = 1.0,
        loss: str = "mse",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.zeta, self.rho1, self.rho2, self.r_max = zeta, rho1, rho2, r_max
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
        self._make_caution(self.zeta, self.rho1, self.rho2, self.r_max)

    @property
    def behaviour_temperature(self) -> float:
        """The acting network gives logits."""
        return 1.0

    def _target(self, batch: Batch) -> th.Tensor:
        # Q evaluates the target policy pi-, which changes at target updates only
        previous = th.softmax(batch.next_target_values(self.acting_net_target), dim=1)
        value = (previous * batch.next_target_q).sum(dim=1, keepdim=True)
        return batch.bootstrap(value, lambda: previous)

    def _log_previous(self, batch: Batch) -> th.Tensor:
        """The target policy pi- at s."""
        return batch.cached(
            "log_previous",
            lambda: th.log_softmax(batch.target_values(self.acting_net_target), dim=1),
        )

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        log_policy = th.log_softmax(self._acting_values(batch), dim=1)
        # Unlike in CPP the mixture does not contain the policy that is trained, so this projects
        # onto the mixture. The Q-network learns from its own loss only
        log_greedy = log_one_hot(batch.q.detach())
        log_mix = log_mixture(log_greedy, self._log_previous(batch), batch.coefficients["zeta"])
        return {**super()._losses(batch, target), "policy": projection_loss(log_policy, log_mix)}

    def _coefficients(self) -> dict[str, float]:
        return {"zeta": self.caution.zeta}

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        advantages = greedy_advantage(batch.q.detach(), self._log_previous(batch))
        return advantages.mean(), advantages.max()

    def _on_iteration_end(self) -> dict[str, float]:
        return self.caution.update_zeta(self.iteration, self.gamma)
