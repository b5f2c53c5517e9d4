"""Which network a user's actions come from, and how it is saved and loaded."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import PyTorchObs, TensorDict
from torch import nn

from sb3_cpp.checks import check_choice, check_whole_number
from sb3_cpp.deep.averaging import WeightAverage
from sb3_cpp.deep.quick_adam import lay_out_like_parameters
from sb3_cpp.deep.resumable import Resumable
from sb3_cpp.regularization import log_boltzmann


class DeployedDQN(Resumable):
    """DQN whose greedy actions may come from an average of its weights, and whose others may be sampled from its policy."""

    def __init__(
        self, *args: Any, behaviour: str = "epsilon_greedy", averaging: int = 0, **kwargs: Any
    ) -> None:
        self.behaviour, self.averaging = behaviour, averaging
        self._average: WeightAverage | None = None
        super().__init__(*args, **kwargs)

    def _check_arguments(self) -> None:
        """Refuse what is not allowed, whether it was given to the constructor or to ``load``."""
        self.behaviour = check_choice("behaviour", self.behaviour, ("epsilon_greedy", "boltzmann"))
        self.averaging = check_whole_number("averaging", self.averaging, 0)

    def _start_average(self) -> None:
        """Once the networks are made, and laid out in memory."""
        self._average = (
            WeightAverage(self._acting_network(), self.averaging) if self.averaging else None
        )

    # --- the networks and their policy ------------------------------------------------------------------------------------

    def _acting_network(self) -> nn.Module:
        """The network whose largest value is the action."""
        return self.q_net

    @property
    def average_net(self) -> nn.Module | None:
        """The running average of the acting network; None without ``averaging``."""
        return None if self._average is None else self._average.network

    def _deployed_network(self) -> nn.Module:
        """The network whose largest value is the action of ``predict(deterministic=True)``."""
        return self.average_net or self._acting_network()

    def _log_behaviour(self, obs: PyTorchObs, deployed: bool = False) -> th.Tensor:
        """Log-probabilities, shape (batch, actions), of the policy that ``behaviour="boltzmann"`` samples, or of the same
        policy of the deployed network."""
        network = self._deployed_network() if deployed else self._acting_network()
        return log_boltzmann(network(obs), self.behaviour_temperature)

    @property
    def behaviour_temperature(self) -> float:
        """Temperature of the Boltzmann policy over the values of ``_log_behaviour``."""
        return 1.0

    # --- SB3's interface --------------------------------------------------------------------------------------------------

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """As DQN's ``predict``; with ``averaging``, deterministic actions are those of the averaged network, and with
        ``behaviour="boltzmann"``, non-deterministic ones are sampled from the policy."""
        if deterministic and self._average is not None:
            return self._answer(
                observation, lambda obs: self._deployed_network()(obs).argmax(dim=1)
            ), state
        if deterministic or self.behaviour == "epsilon_greedy":
            return super().predict(observation, state, episode_start, deterministic)
        return self._answer(
            observation, lambda obs: th.multinomial(self._log_behaviour(obs).exp(), 1).flatten()
        ), state

    def _answer(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        choose: Callable[[PyTorchObs], th.Tensor],
    ) -> np.ndarray:
        """The actions that ``choose`` gives for a batch of observations, or for a single one."""
        self.policy.set_training_mode(False)
        obs, is_vectorized = self.policy.obs_to_tensor(observation)
        with th.no_grad():
            actions = choose(obs).cpu().numpy()
        return actions if is_vectorized else actions.squeeze(axis=0)

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: th.device | str = "auto",
    ) -> None:
        """As SB3's; what was saved with another setting of ``averaging`` or ``fast`` fits too."""
        parts: Any = load_path_or_dict
        if not isinstance(parts, dict):
            parts = load_from_zip_file(parts, device=device, load_data=False)[1]
        average = self.average_net
        given = {
            name: part
            for name, part in parts.items()
            if name != "average_net" or average is not None
        }
        starts_anew = average is not None and "average_net" not in given
        if average is not None and starts_anew:
            given["average_net"] = average.state_dict()
        kernels = [
            {name: group[name] for name in ("fused",) if name in group}
            for group in self.policy.optimizer.param_groups
        ]
        super().set_parameters(given, exact_match, device)
        for group, kernel in zip(self.policy.optimizer.param_groups, kernels):
            group.update(kernel)
        lay_out_like_parameters(self.policy.optimizer)
        if average is not None and starts_anew:
            average.load_state_dict(self._acting_network().state_dict())

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, variables = super()._get_torch_save_params()
        return [*modules, *(["average_net"] if self.averaging else [])], variables

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_average"]
