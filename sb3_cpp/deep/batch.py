"""A batch of transitions together with what the networks say about it."""

from functools import cached_property

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples
from torch import nn


class Batch:
    """Transitions (s, a, r, s', d) and the values of the online and the target network at s and s'.

    Each network output is computed once, when it is first asked for: an algorithm pays only for what its target uses.
    Columns (actions, rewards, dones, discounts) have shape (batch, 1), values have shape (batch, actions).
    """

    def __init__(self, samples: ReplayBufferSamples, gamma: float, online: nn.Module, target: nn.Module) -> None:
        self.observations: PyTorchObs = samples.observations
        self.next_observations: PyTorchObs = samples.next_observations
        self.actions = samples.actions.long()
        self.rewards = samples.rewards
        self.dones = samples.dones
        # For n-step replay the discount of each transition is gamma**n (less where an episode ended early)
        self.discounts = samples.discounts if samples.discounts is not None else gamma
        self._online, self._target = online, target

    @cached_property
    def q(self) -> th.Tensor:
        """Online values at s; the only ones that carry a gradient."""
        with th.enable_grad():
            return self._online(self.observations)

    @cached_property
    def next_q(self) -> th.Tensor:
        """Online values at s', as the network acts: without dropout and without touching batch-norm statistics."""
        training = self._online.training
        self._online.train(False)
        with th.no_grad():
            values = self._online(self.next_observations)
        self._online.train(training)
        return values

    @cached_property
    def target_q(self) -> th.Tensor:
        """Target-network values at s."""
        with th.no_grad():
            return self._target(self.observations)

    @cached_property
    def next_target_q(self) -> th.Tensor:
        """Target-network values at s'."""
        with th.no_grad():
            return self._target(self.next_observations)

    def taken(self, values: th.Tensor) -> th.Tensor:
        """The value of the action taken, shape (batch, 1)."""
        return values.gather(1, self.actions)

    def bootstrap(self, next_values: th.Tensor) -> th.Tensor:
        """``r + gamma (1-d) v(s')`` for values of shape (batch, 1), with SB3's n-step discounts."""
        return self.rewards + (1 - self.dones) * self.discounts * next_values
