"""Cautious Munchausen DQN, our own variant of CPP."""

from typing import Any, ClassVar

import numpy as np
import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn import functional as F

from sb3_cpp.checks import InvalidArgument, check_number
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution, RewardScale, Rule
from sb3_cpp.deep.mdqn import MDQN
from sb3_cpp.deep.policies import TargetCnnPolicy, TargetMlpPolicy, TargetMultiInputPolicy

MEMORY = 10.0  # target intervals by which the memory of the KL grows by one


def step_share(zeta: object) -> float:
    """Share of a target interval between two steps of the target network: a fixed zeta. 1 for a
    rule, whose zeta is not known beforehand, and for 0."""
    return float(zeta) if isinstance(zeta, (int, float)) and zeta > 0 else 1.0


class CautiousMDQN(MDQN):
    """
    Munchausen DQN whose target network moves cautiously and is deployed: our own variant of CPP.

    It learns preferences ``Psi`` with Munchausen DQN's target, so that ``pi = softmax(Psi / T)``
    is exact. A target update moves the target network only a part of the way,
    ``theta- <- theta- + zeta (theta - theta-)``. In preferences a mixture is geometric,
    ``pi~ ~ pi^zeta pi-^(1-zeta)``, which is again a Boltzmann policy: no projection, no weight
    to tune. The weights' mixture is its cheap version. The target network, which is the mixture, is
    what deterministic actions come from; exploration follows the online network.

    Smaller steps come more often, every ``zeta * target_update_interval`` environment steps: the
    target network keeps the speed at which DQN's follows, and the interval its meaning.

    Early policies are not worth staying close to. At iteration K the rate is at least ``1 / K``,
    and after I intervals alpha is at most ``I / (I + 10)``: the KL's memory ``1 / (1 - alpha)``
    grows by one every ten intervals.

    Values are learned in units of the measured size of a reward
    (:class:`~sb3_cpp.deep.caution.RewardScale`), and so are the temperature, the clip and the
    threshold of Huber's loss: rewards times 100 give the same learning curve.

    The parameters up to ``device`` are those of DQN, the last ones those of
    :class:`RegularizedDQN`. ``tau`` must be 1: ``zeta`` is the rate of the target network.

    :param target_update_interval: environment steps in which the target network moves by about as
        much as one copy: a step follows every ``zeta`` times as many. With a rule for ``zeta``,
        whose value is not known beforehand, the steps are this far apart
    :param alpha: final weight of the log-policy, the share of the KL weight, in [0, 1)
    :param temperature: sum of the entropy and the KL weight, > 0, in units of a reward
    :param munchausen_clip: lower bound of ``temperature log pi-``, <= 0, in units of a reward
    :param zeta: mixing coefficient of the new policy: a fixed number in [0, 1]; or "typical",
        E-SPI's ``A / (delta * range)`` measured on batches, with the mean L1 distance of the step
        for its maximum and the standard deviation of the advantages for their range; or a function
        of :class:`~sb3_cpp.deep.caution.Estimate`
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of the running maximum M_K of its scale, in [0, 1)
    :param huber_threshold: error from which Huber's loss is linear, > 0, in units of a reward; DQN
        has 1
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": TargetMlpPolicy,
        "CnnPolicy": TargetCnnPolicy,
        "MultiInputPolicy": TargetMultiInputPolicy,
    }
    zeta_rules = ("typical",)
    policy: TargetMlpPolicy
    caution: Caution

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
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
        target_update_interval: int = 1000,
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
        zeta: str | float | Rule = 0.3,
        rho1: float = 0.99,
        rho2: float = 0.9999,
        huber_threshold: float = 1.0,
        loss: str = "huber",
        behaviour: str = "epsilon_greedy",
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        self.zeta, self.rho1, self.rho2 = zeta, rho1, rho2
        self.huber_threshold = huber_threshold
        self.reward_scale = RewardScale()
        super().__init__(
            policy, env, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma,
            train_freq, gradient_steps, replay_buffer_class, replay_buffer_kwargs,
            optimize_memory_usage, n_steps, target_update_interval, exploration_fraction,
            exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size,
            tensorboard_log, policy_kwargs, verbose, seed, device, alpha=alpha,
            temperature=temperature, munchausen_clip=munchausen_clip, loss=loss,
            behaviour=behaviour, n_quantiles=n_quantiles, fast=fast, compile=compile,
            precision=precision, _init_setup_model=_init_setup_model,
        )  # fmt: skip

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if self.tau != 1.0:
            raise InvalidArgument(
                f"tau must be 1.0 for {type(self).__name__}, whose target network moves at the "
                f"rate zeta, got {self.tau!r}"
            )
        if not issubclass(self.policy_class, TargetMlpPolicy):
            raise InvalidArgument(
                f"policy must be one of {', '.join(self.policy_aliases)} or a subclass of "
                f"TargetMlpPolicy for {type(self).__name__}, got {self.policy_class.__name__}"
            )
        self._make_caution(self.zeta, self.rho1, self.rho2)
        threshold = check_number("huber_threshold", self.huber_threshold, 0.0, low_open=True)
        self.huber_threshold = threshold

    def _value_loss(self, prediction: th.Tensor, target: th.Tensor) -> th.Tensor:
        if self.loss == "huber":
            threshold = self.huber_threshold
            return threshold * F.smooth_l1_loss(prediction, target, beta=threshold)
        return super()._value_loss(prediction, target)

    def _target(self, batch: Batch) -> th.Tensor:
        return super()._target(batch.in_units_of(batch.coefficients["unit"]))

    def _coefficients(self) -> dict[str, float]:
        intervals = self.iteration * step_share(self.caution.argument)
        alpha = min(self.alpha, intervals / (intervals + MEMORY))
        return {"unit": self.reward_scale.unit, "alpha": alpha}

    def _alpha(self, batch: Batch) -> float | th.Tensor:
        return batch.coefficients["alpha"]

    def _target_interval(self) -> int:
        return round(step_share(self.caution.argument) * super()._target_interval())

    def _target_rate(self) -> float:
        # The first update copies: the random network before it has no weight
        return max(self.caution.zeta, 1.0 / max(self.iteration, 1))

    def _step(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """Per state, the advantage of pi over pi- and their L1 distance."""
        log_policy, log_previous = self._policies(batch)
        log_policy = log_policy.detach()
        # Advantages are those of Q; the network learns Psi = Q + sigma log pi-, clipped as in the
        # target
        bonus = (self.temperature * log_previous).clamp_min(self.munchausen_clip)
        q = batch.q.detach() - self._alpha(batch) * bonus
        change = log_policy.exp() - log_previous.exp()
        return (change * q).sum(-1), change.abs().sum(-1)

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """Mean advantage of the step from pi- to pi, and ``E L1 * std(A)`` as its scale."""
        advantages, distances = self._step(batch)
        # correction=0: a batch of one has no other standard deviation
        return advantages.mean(), distances.mean() * advantages.std(correction=0)

    def _on_iteration_end(self) -> dict[str, float]:
        self.policy.target_has_learned.fill_(1.0)
        quantities = self.caution.update_zeta(self.iteration, self.gamma)
        return {**quantities, "zeta": self._target_rate()}

    # --- the unit of the values -------------------------------------------------------------------

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        self.reward_scale.observe(reward)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    def q_values(self, observation: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
        """Preferences of the deployed network, in the units of the reward."""
        return super().q_values(observation) * self.reward_scale.unit

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, variables = super()._get_torch_save_params()
        return [*modules, "reward_scale"], variables
