"""DQN's policies, with optional quantiles, a weight average, or a second, acting network."""

import warnings
from itertools import chain
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.dqn import policies as dqn
from stable_baselines3.dqn.policies import QNetwork

from sb3_cpp.deep.averaging import WeightAverage


class QuantileQNetwork(QNetwork):
    """DQN's network with ``n_quantiles`` outputs per action, the quantiles of the return.

    Layers and initial weights are those of contrib's ``QuantileNetwork`` for QR-DQN.

    :param observation_space: as of DQN's network
    :param action_space: as of DQN's network
    :param args: further arguments of DQN's network
    :param n_quantiles: number of quantiles, at least 1
    :param kwargs: keyword arguments of DQN's network
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        *args: Any,
        n_quantiles: int,
        **kwargs: Any,
    ) -> None:
        # DQN's network has one output per action of its space
        outputs = spaces.Discrete(int(action_space.n) * n_quantiles)
        super().__init__(observation_space, outputs, *args, **kwargs)
        self.action_space, self.n_quantiles = action_space, n_quantiles

    def forward(self, obs: PyTorchObs) -> th.Tensor:
        """Quantiles of each action, shape (batch, n_quantiles, actions)."""
        return self.split_quantiles(super().forward(obs))

    def split_quantiles(self, outputs: th.Tensor) -> th.Tensor:
        """Outputs of the last layer in the shape (batch, n_quantiles, actions)."""
        return outputs.view(-1, self.n_quantiles, int(self.action_space.n))

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        return q_values(self(observation)).argmax(dim=1)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "n_quantiles": self.n_quantiles}


def q_values(outputs: th.Tensor) -> th.Tensor:
    """Q-values, shape (batch, actions), of a network's outputs: themselves, or the mean over
    quantiles, shape (batch, n_quantiles, actions)."""
    return outputs.mean(dim=1) if outputs.dim() == 3 else outputs


class MlpPolicy(dqn.DQNPolicy):
    """
    DQN's policy. With ``n_quantiles``, its networks have that many quantiles per action, and it
    acts on their mean. With ``averaging``, deterministic actions come from an EMA of the weights.

    The average is a part of the policy, so ``model.predict``, ``model.policy.predict`` and a policy
    saved without the model choose the same actions.

    :param args: arguments of DQN's policy
    :param averaging: EMA horizon (gradient steps) of the weights used by deterministic
        predictions; 0 = off
    :param n_quantiles: quantiles per action; 0 = plain Q-values
    :param kwargs: keyword arguments of DQN's policy
    """

    average: WeightAverage | None

    def __init__(self, *args: Any, averaging: int = 0, n_quantiles: int = 0, **kwargs: Any) -> None:
        self.n_quantiles = n_quantiles  # first: super().__init__() builds the networks
        super().__init__(*args, **kwargs)
        # After the networks are built: the average is a copy
        self.start_average(averaging)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.optimizer.register_load_state_dict_pre_hook(self._keep_online_parameters)

    def make_q_net(self) -> QNetwork:
        if not self.n_quantiles:
            return super().make_q_net()
        net_args = self._update_features_extractor(self.net_args, features_extractor=None)
        return QuantileQNetwork(**net_args, n_quantiles=self.n_quantiles).to(self.device)

    def _keep_online_parameters(
        self, optimizer: th.optim.Optimizer, state: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Fit the state of an optimiser over *all* parameters of the policy, target networks too.

        Models of SB3 before 2.4 had such optimisers. SB3 itself repairs them when it loads, but
        only for one online and one target network.
        """
        # torch numbers the parameters of an optimiser through all its groups
        saved = [index for group in state["param_groups"] for index in group["params"]]
        index_of = {id(parameter): index for index, parameter in enumerate(self.parameters())}
        ours = [[index_of[id(p)] for p in group["params"]] for group in optimizer.param_groups]
        if len(saved) != len(index_of) or len(saved) == sum(map(len, ours)):
            return None
        warnings.warn(
            "The saved optimizer has the parameters of the target networks too, as in SB3 < 2.4.0: "
            "only those of the online networks are loaded.",
            stacklevel=2,
        )
        first = state["param_groups"][0]
        moments = state["state"]
        return {
            "state": {i: moments[saved[i]] for i in chain(*ours) if saved[i] in moments},
            "param_groups": [{**first, "params": indices} for indices in ours],
        }

    @property
    def acting_network(self) -> QNetwork:
        """The online network whose largest output is the action."""
        return self.q_net

    @property
    def deployed_network(self) -> QNetwork:
        """The network behind deterministic actions: the average, or else the acting network."""
        if self.average is None:
            return self.acting_network
        assert isinstance(self.average.network, QNetwork)
        return self.average.network

    def start_average(self, averaging: int) -> None:
        """Start an average of the weights as they are now; 0 removes it."""
        self.average = WeightAverage(self.acting_network, averaging) if averaging else None

    def _predict(self, obs: PyTorchObs, deterministic: bool = True) -> th.Tensor:
        network = self.deployed_network if deterministic else self.acting_network
        return network._predict(obs, deterministic=deterministic)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        # A policy that is saved by itself is built again from these
        averaging = 0 if self.average is None else self.average.horizon
        ours = {"averaging": averaging, "n_quantiles": self.n_quantiles}
        return {**super()._get_constructor_parameters(), **ours}


class CnnPolicy(MlpPolicy, dqn.CnnPolicy):
    """The same for images: the Nature CNN."""


class MultiInputPolicy(MlpPolicy, dqn.MultiInputPolicy):
    """The same for dictionaries of observations."""


class TargetMlpPolicy(MlpPolicy):
    """A policy whose deterministic actions are those of its target network.

    Before the first target update that is a random network: the online network acts.
    """

    target_has_learned: th.Tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # A buffer, so that it is saved with the networks; a float like all of DQN's entries, which
        # users average, perturb and randomise
        self.register_buffer("target_has_learned", th.tensor(0.0))

    @property
    def deployed_network(self) -> QNetwork:
        return self.q_net_target if self.target_has_learned else self.q_net


class TargetCnnPolicy(TargetMlpPolicy, dqn.CnnPolicy):
    """The same for images: the Nature CNN."""


class TargetMultiInputPolicy(TargetMlpPolicy, dqn.MultiInputPolicy):
    """The same for dictionaries of observations."""


class ActingMlpPolicy(MlpPolicy):
    """A policy with a second network of the Q-network's shape, whose largest output is the action.

    It is the momentum H for MoDQN and the logits of the policy for DeepCPI, and has no quantiles.
    It has its own target network. Its parameters are a second group of the policy's optimiser, so
    saving, loading and learning-rate schedules include it.
    """

    acting_net: QNetwork
    acting_net_target: QNetwork

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        # After DQN's own networks, which so get the same initial weights as in DQN
        self.acting_net = dqn.DQNPolicy.make_q_net(self)
        self.acting_net_target = dqn.DQNPolicy.make_q_net(self)
        self.acting_net_target.load_state_dict(self.acting_net.state_dict())
        self.acting_net_target.set_training_mode(False)
        self.optimizer.add_param_group({"params": list(self.acting_net.parameters())})

    @property
    def acting_network(self) -> QNetwork:
        return self.acting_net

    def set_training_mode(self, mode: bool) -> None:
        super().set_training_mode(mode)
        self.acting_net.set_training_mode(mode)


class ActingCnnPolicy(ActingMlpPolicy, dqn.CnnPolicy):
    """The same for images: the Nature CNN."""


class ActingMultiInputPolicy(ActingMlpPolicy, dqn.MultiInputPolicy):
    """The same for dictionaries of observations."""
