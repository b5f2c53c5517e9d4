"""Conservative value iteration (CVI) with a deep network."""

from collections.abc import Callable
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sb3_cpp.checks import check_choice, check_number
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.regularization import mellow_value, soft_value

BACKUPS = {"mellowmax": mellow_value, "logsumexp": soft_value}


def preference_target(
    batch: Batch,
    alpha: float,
    temperature: float,
    value: Callable[[th.Tensor, float], th.Tensor] = mellow_value,
) -> th.Tensor:
    """Target of the preferences ``Psi = Q + sigma log pi-`` (Kozuno et al. 2019).

    ``y = r + gamma (1-d) m(s') + alpha (Psi-(s,a) - m(s))`` with ``m`` the mellowmax of the target network. The log-sum-exp
    as ``m`` differs by a constant per step, which matters where an episode ends; with it this is unclipped Munchausen DQN.
    """
    gap = batch.taken(batch.target_q) - value(batch.target_q, temperature)
    return batch.bootstrap(value(batch.next_target_q, temperature)) + alpha * gap


class CVI(RegularizedDQN):
    """
    Conservative value iteration: DQN on preferences whose policy ``softmax(Psi / temperature)`` is regularised by entropy
    and KL at once, with the KL term implicit in the target (Kozuno, Uchibe, Doya 2019, "Theoretical analysis of efficiency
    and robustness of softmax and gap-increasing operators in reinforcement learning").

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param alpha: share of the KL weight, in [0, 1); 0 is soft DQN
    :param temperature: sum of the entropy and the KL weight, > 0, in units of the reward
    :param backup: value of a state: "mellowmax" (CVI) or "logsumexp"
    :param loss: of the preferences: "mse" or "huber"
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
        backup: str = "mellowmax",
        loss: str = "mse",
        **kwargs: Any,
    ) -> None:
        self.alpha, self.temperature, self.backup = alpha, temperature, backup
        super().__init__(policy, env, *dqn_args, loss=loss, **kwargs)

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.alpha = check_number("alpha", self.alpha, 0.0, 1.0, high_open=True)
        self.temperature = check_number("temperature", self.temperature, 0.0, low_open=True)
        self.backup = check_choice("backup", self.backup, BACKUPS)

    @property
    def behaviour_temperature(self) -> float:
        return self.temperature

    def _joint_networks(self) -> list[nn.Module]:
        return [self.q_net_target]

    def _target(self, batch: Batch) -> th.Tensor:
        return preference_target(batch, self.alpha, self.temperature, BACKUPS[self.backup])
