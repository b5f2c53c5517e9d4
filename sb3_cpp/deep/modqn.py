"""Momentum DQN."""

from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp.checks import check_number
from sb3_cpp.deep.acting import ActingDQN
from sb3_cpp.deep.batch import Batch


class MoDQN(ActingDQN):
    """
    Momentum DQN: acts greedily on a running average H of all past Q-values
    (Vieillard, Scherrer, Pietquin, Geist 2020, "Momentum in Reinforcement Learning").

    ``Qhat = r + gamma (1-d) Q-(s', argmax_a H-(s',a))`` and ``Hhat = (1-w) H-(s,a) + w Qhat``, each regressed by its network.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param momentum: weight w of the newest Q: None for ``max(kappa / (kappa + K), momentum_floor)``, or fixed in (0, 1];
        1 is DQN that acts on its second network
    :param kappa: how many iterations count as recent, > 0
    :param momentum_floor: smallest weight, in [0, 1]
    :param temperature: of ``softmax(H / temperature)``, sampled only with ``behaviour="boltzmann"``, > 0
    :param loss: of both networks: "mse" or "huber"
    :param kwargs: ``behaviour`` (see :class:`RegularizedDQN`) and further arguments of ``stable_baselines3.DQN``
    """

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *dqn_args: Any,
        momentum: float | None = None,
        kappa: float = 10.0,
        momentum_floor: float = 0.1,
        temperature: float = 0.03,
        loss: str = "mse",
        **kwargs: Any,
    ) -> None:
        self.momentum, self.kappa, self.momentum_floor, self.temperature = (
            momentum,
            kappa,
            momentum_floor,
            temperature,
        )
        super().__init__(policy, env, *dqn_args, loss=loss, **kwargs)

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

    def _target(self, batch: Batch) -> th.Tensor:
        greedy = batch.frozen_next(self.acting_net_target).argmax(dim=1, keepdim=True)
        return batch.bootstrap(batch.next_target_q.gather(1, greedy))

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        old = batch.taken(batch.frozen(self.acting_net_target))
        average = (1.0 - self.momentum_weight) * old + self.momentum_weight * target
        prediction = batch.taken(self._acting_values(batch))
        return {**super()._losses(batch, target), "momentum": self._value_loss(prediction, average)}
