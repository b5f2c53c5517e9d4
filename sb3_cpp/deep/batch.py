"""A batch of transitions together with what the networks say about it."""

from collections.abc import Callable, Collection
from functools import cached_property
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples
from torch import nn

Forward = Callable[[nn.Module, Any], th.Tensor]


def plain_forward(network: nn.Module, observations: PyTorchObs) -> th.Tensor:
    return network(observations)


class Batch:
    """Transitions (s, a, r, s', d) and the values of the online and the target networks at s and s'.

    Each network output is computed once, when it is first asked for: an algorithm pays only for what its target uses.
    Columns (actions, rewards, dones, discounts) have shape (batch, 1), values have shape (batch, actions).

    :param samples: what the replay buffer gave
    :param gamma: discount, where the samples bring none of their own (those of n-step replay do)
    :param online: the learning Q-network
    :param target: its target copy
    :param forward: how a network is run on observations
    :param stacked: s and s' one below the other, if the observations are one tensor
    :param joint: target networks that will be asked for their values at s and at s': both then come from one forward
    :param has_modes: whether the online network behaves differently when it learns (batch norm, dropout)
    """

    def __init__(
        self,
        samples: ReplayBufferSamples,
        gamma: float,
        online: nn.Module,
        target: nn.Module,
        forward: Forward = plain_forward,
        stacked: th.Tensor | None = None,
        joint: Collection[nn.Module] = (),
        has_modes: bool = True,
    ) -> None:
        self.actions = samples.actions.long()
        self.rewards = samples.rewards
        self.dones = samples.dones
        # For n-step replay the discount of each transition is gamma**n (less where an episode ended early)
        self.discounts = samples.discounts if samples.discounts is not None else gamma
        self._observations: PyTorchObs = samples.observations
        self._next_observations: PyTorchObs = samples.next_observations
        if stacked is not None:
            self._observations, self._next_observations = stacked.chunk(2)
        self._online, self._target = online, target
        self._forward, self._stacked, self._joint, self._has_modes = (
            forward,
            stacked,
            joint,
            has_modes,
        )
        self._memory: dict[Any, th.Tensor] = {}

    @cached_property
    def q(self) -> th.Tensor:
        """Online values at s, with gradient."""
        return self.learning(self._online)

    @cached_property
    def next_q(self) -> th.Tensor:
        """Online values at s', as the network acts: without dropout and without touching batch-norm statistics."""
        switch = self._has_modes and self._online.training
        if switch:
            self._online.train(False)
        with th.no_grad():
            values = self._forward(self._online, self._next_observations)
        if switch:
            self._online.train(True)
        return values

    @property
    def target_q(self) -> th.Tensor:
        """Target values at s."""
        return self.frozen(self._target)

    @property
    def next_target_q(self) -> th.Tensor:
        """Target values at s'."""
        return self.frozen_next(self._target)

    def learning(self, network: nn.Module) -> th.Tensor:
        """Values of a learning network at s, with gradient."""
        with th.enable_grad():
            return self._forward(network, self._observations)

    def frozen(self, network: nn.Module) -> th.Tensor:
        """Values of a target network at s, computed once."""
        return self._evaluate(network, "s", self._observations)

    def frozen_next(self, network: nn.Module) -> th.Tensor:
        """Values of a target network at s', computed once."""
        return self._evaluate(network, "s'", self._next_observations)

    def _evaluate(self, network: nn.Module, state: str, observations: PyTorchObs) -> th.Tensor:
        if (network, state) not in self._memory:
            with th.no_grad():
                if self._stacked is not None and network in self._joint:
                    now, later = self._forward(network, self._stacked).chunk(2)
                    self._memory.update({(network, "s"): now, (network, "s'"): later})
                else:
                    self._memory[network, state] = self._forward(network, observations)
        return self._memory[network, state]

    def once(self, name: str, compute: Callable[[], th.Tensor]) -> th.Tensor:
        """A quantity that several hooks need, computed for the first of them."""
        if name not in self._memory:
            self._memory[name] = compute()
        return self._memory[name]

    def taken(self, values: th.Tensor) -> th.Tensor:
        """The value of the action taken, shape (batch, 1)."""
        return values.gather(1, self.actions)

    def bootstrap(self, next_values: th.Tensor) -> th.Tensor:
        """``r + gamma (1-d) v(s')`` for values of shape (batch, 1), with SB3's n-step discounts."""
        return self.rewards + (1 - self.dones) * self.discounts * next_values
