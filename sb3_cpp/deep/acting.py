"""Base class of the two algorithms with an acting network, MoDQN and DeepCPI."""

from typing import ClassVar

import torch as th
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.utils import get_parameters_by_name
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.policies import ActingCnnPolicy, ActingMlpPolicy, ActingMultiInputPolicy
from sb3_cpp.regularization import log_boltzmann


class ActingDQN(RegularizedDQN):
    """DQN with a second network, from which actions come.

    It has its own target network, loss and gradient clipping. See
    :class:`~sb3_cpp.deep.policies.ActingMlpPolicy`.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": ActingMlpPolicy,
        "CnnPolicy": ActingCnnPolicy,
        "MultiInputPolicy": ActingMultiInputPolicy,
    }
    policy: ActingMlpPolicy
    acting_net: QNetwork
    acting_net_target: QNetwork

    def _check_arguments(self) -> None:
        super()._check_arguments()
        if not issubclass(self.policy_class, ActingMlpPolicy):
            raise InvalidArgument(
                f"policy must be one of {', '.join(self.policy_aliases)} or a subclass of "
                f"ActingMlpPolicy for {type(self).__name__}, got {self.policy_class.__name__}"
            )

    def _setup_model(self) -> None:
        super()._setup_model()
        # DQN copies these to its target at every target update, whatever tau is
        self.batch_norm_stats += get_parameters_by_name(self.acting_net, ["running_"])
        self.batch_norm_stats_target += get_parameters_by_name(self.acting_net_target, ["running_"])

    def _create_aliases(self) -> None:
        super()._create_aliases()
        self.acting_net = self.policy.acting_net
        self.acting_net_target = self.policy.acting_net_target

    def _network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        return [*super()._network_pairs(), (self.acting_net, self.acting_net_target)]

    def _acting_network(self) -> nn.Module:
        return self.acting_net

    def _acting_values(self, batch: Batch) -> th.Tensor:
        """Outputs of the acting network at s, with gradient, cached."""
        return batch.cached("acting", lambda: batch.online_values(self.acting_net))

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        online, target = self._acting_values(batch), batch.target_values(self.acting_net_target)
        temperature = self.behaviour_temperature
        return log_boltzmann(online, temperature), log_boltzmann(target, temperature)

    def _q_network(self) -> nn.Module:
        # The average, if there is one, is of the acting network: its outputs are no Q-values
        return self.q_net

    def _joint_networks(self) -> list[nn.Module]:
        return [self.acting_net_target]

    def _excluded_save_params(self) -> list[str]:
        # Aliases of the policy's networks, which are saved with the policy
        return [*super()._excluded_save_params(), "acting_net", "acting_net_target"]
