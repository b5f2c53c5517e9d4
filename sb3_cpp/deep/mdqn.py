"""Munchausen DQN."""

import math
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_number
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.regularization import munchausen_bonus, soft_value


def munchausen_target(batch: Batch, alpha: float, temperature: float, clip: float) -> th.Tensor:
    """``y = r + alpha clip(T log pi-(a|s), l0, 0) + gamma (1-d) T logsumexp(Q-(s') / T)``."""
    bonus = munchausen_bonus(batch.target_q, batch.actions, alpha, temperature, clip)
    return batch.bootstrap(soft_value(batch.next_target_q, temperature)) + bonus


class MDQN(RegularizedDQN):
    """
    Munchausen DQN: soft DQN that adds its own clipped log-policy to the reward
    (Vieillard, Pietquin, Geist 2020, "Munchausen Reinforcement Learning").

    ``y = r + alpha clip(T log pi-(a|s), l0, 0) + gamma (1-d) T logsumexp(Q-(s') / T)`` with ``pi- = softmax(Q- / T)``.
    The bonus stays on terminal transitions.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param alpha: weight of the log-policy, the share of the KL weight, in [0, 1); 0 is soft DQN
    :param temperature: T, sum of the entropy and the KL weight, > 0, in units of the reward
    :param munchausen_clip: l0 <= 0, lower bound of ``T log pi-``; ``-inf`` does not clip
    :param loss: of the Q-values: "mse" or "huber"
    :param kwargs: ``behaviour`` (see :class:`RegularizedDQN`) and further arguments of ``stable_baselines3.DQN``
    """

    supports_n_steps = False

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *dqn_args: Any,
        alpha: float = 0.9,
        temperature: float = 0.03,
        munchausen_clip: float = -1.0,
        loss: str = "mse",
        **kwargs: Any,
    ) -> None:
        self.alpha, self.temperature, self.munchausen_clip = alpha, temperature, munchausen_clip
        super().__init__(policy, env, *dqn_args, loss=loss, **kwargs)

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.alpha = check_number("alpha", self.alpha, 0.0, 1.0, high_open=True)
        self.temperature = check_number("temperature", self.temperature, 0.0, low_open=True)
        self.munchausen_clip = check_number("munchausen_clip", self.munchausen_clip, -math.inf, 0.0)

    @property
    def behaviour_temperature(self) -> float:
        return self.temperature

    def _joint_networks(self) -> list[nn.Module]:
        return [self.q_net_target]

    def _target(self, batch: Batch) -> th.Tensor:
        return munchausen_target(batch, self.alpha, self.temperature, self.munchausen_clip)
