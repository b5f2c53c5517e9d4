"""DQN's policies with a second network."""

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn.policies import (
    CnnPolicy,
    DQNPolicy,
    MlpPolicy,
    MultiInputPolicy,
    QNetwork,
)


class ActingNetwork(DQNPolicy):
    """A second network of the Q-network's shape, with its own target copy, whose largest output is the action.

    For MoDQN it holds the momentum H, for DeepCPI the logits of the policy. It is a second parameter group of the policy's
    one optimiser, so saving, loading and learning-rate schedules need nothing further.
    """

    acting_net: QNetwork
    acting_net_target: QNetwork

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.acting_net = self.make_q_net()
        self.acting_net_target = self.make_q_net()
        self.acting_net_target.load_state_dict(self.acting_net.state_dict())
        self.acting_net_target.set_training_mode(False)
        self.optimizer.add_param_group({"params": list(self.acting_net.parameters())})

    def _predict(self, obs: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        return self.acting_net._predict(obs, deterministic=deterministic)

    def set_training_mode(self, mode: bool) -> None:
        super().set_training_mode(mode)
        self.acting_net.set_training_mode(mode)


class ActingMlpPolicy(ActingNetwork, MlpPolicy):
    """For vectors: two hidden layers of 64 unless ``net_arch`` says otherwise."""


class ActingCnnPolicy(ActingNetwork, CnnPolicy):
    """For images: the Nature CNN."""


class ActingMultiInputPolicy(ActingNetwork, MultiInputPolicy):
    """For dictionaries of observations."""
