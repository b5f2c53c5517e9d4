"""A batch of transitions together with the network outputs that the losses need."""

import copy
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import PyTorchObs, ReplayBufferSamples
from torch import nn

from sb3_cpp.deep import masks
from sb3_cpp.deep.policies import q_values

Forward = Callable[[nn.Module, Any], th.Tensor]


def plain_forward(network: nn.Module, observations: PyTorchObs) -> th.Tensor:
    return network(observations)


class Batch:
    """Transitions (s, a, r, s', d) and the values of the online and target networks at s and s'.

    Each network output is computed lazily and once, so an algorithm pays only for what it uses.
    Columns (actions, rewards, dones, discounts) have shape (batch, 1), values (batch, actions).
    The values of a network with quantiles are their means; targets and predictions then have one
    column per quantile.
    Where the environment masks actions, all values of invalid actions are ``masks.INVALID``.

    :param samples: what the replay buffer returned
    :param gamma: discount, unless the samples bring their own (n-step replay does)
    :param online: the online Q-network
    :param target: its target network
    :param forward: how a network is run on observations
    :param stacked: s and s' concatenated, if the observations are one tensor
    :param joint: target networks needed at s and at s': one forward pass serves both
    :param has_modes: whether the online network has dropout, batch norm or the like
    :param n_actions: number of actions, to unpack action masks
    :param coefficients: scalars that change between gradient steps, by name
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
        n_actions: int = 0,
        coefficients: Mapping[str, float | th.Tensor] = MappingProxyType({}),
    ) -> None:
        self.coefficients = coefficients
        actions = samples.actions.long()
        self.mask: th.Tensor | None = None
        self.next_mask: th.Tensor | None = None
        if actions.shape[1] > 1:
            words = masks.n_words(n_actions)
            self.mask = masks.unpack(actions[:, 1 : 1 + words], n_actions)
            self.next_mask = masks.unpack(actions[:, 1 + words :], n_actions)
            actions = actions[:, :1]
        self.actions = actions
        self.rewards = samples.rewards
        self.dones = samples.dones
        # n-step replay discounts each transition by gamma**n, less where an episode ended early
        self.discounts = samples.discounts if samples.discounts is not None else gamma
        self._observations: PyTorchObs = samples.observations
        self._next_observations: PyTorchObs = samples.next_observations
        if stacked is not None:
            self._observations, self._next_observations = stacked.chunk(2)
        self._online, self._target = online, target
        self._forward, self._stacked = forward, stacked
        self._joint, self._has_modes = joint, has_modes
        self._cache: dict[Any, th.Tensor] = {}
        self._outputs: dict[tuple[nn.Module, str], th.Tensor] = {}  # values or quantiles

    @cached_property
    def _online_outputs(self) -> th.Tensor:
        with th.enable_grad():
            return self._forward(self._online, self._observations)

    @cached_property
    def q(self) -> th.Tensor:
        """Online values at s, with gradient."""
        with th.enable_grad():
            return _values(self._online_outputs, self.mask)

    @property
    def prediction(self) -> th.Tensor:
        """Online value of the action at s, or its quantiles, with gradient."""
        return _gather(self._online_outputs, self.actions)

    @cached_property
    def next_q(self) -> th.Tensor:
        """Online values at s', in evaluation mode: no dropout, batch-norm statistics untouched."""
        switch = self._has_modes and self._online.training
        if switch:
            self._online.train(False)
        with th.no_grad():
            outputs = self._forward(self._online, self._next_observations)
        if switch:
            self._online.train(True)
        return _values(outputs, self.next_mask)

    @property
    def target_q(self) -> th.Tensor:
        """Target values at s."""
        return self.target_values(self._target)

    @property
    def next_target_q(self) -> th.Tensor:
        """Target values at s'."""
        return self.next_target_values(self._target)

    def online_values(self, network: nn.Module) -> th.Tensor:
        """Values of an online network at s, with gradient."""
        with th.enable_grad():
            return _values(self._forward(network, self._observations), self.mask)

    def target_values(self, network: nn.Module) -> th.Tensor:
        """Values of a target network at s."""
        return self._evaluate(network, "s", self._observations)

    def next_target_values(self, network: nn.Module) -> th.Tensor:
        """Values of a target network at s'."""
        return self._evaluate(network, "s'", self._next_observations)

    def _evaluate(self, network: nn.Module, state: str, observations: PyTorchObs) -> th.Tensor:
        if (network, state) not in self._cache:
            with th.no_grad():
                if self._stacked is not None and network in self._joint:
                    now, later = self._forward(network, self._stacked).chunk(2)
                    found = {(network, "s"): now, (network, "s'"): later}
                else:
                    found = {(network, state): self._forward(network, observations)}
                mask = {"s": self.mask, "s'": self.next_mask}
                for key, outputs in found.items():
                    self._cache[key] = _values(outputs, mask[key[1]])
            self._outputs.update(found)
        return self._cache[network, state]

    def cached(self, name: str, compute: Callable[[], th.Tensor]) -> th.Tensor:
        """A quantity that several hooks need, computed by the first one that asks."""
        if name not in self._cache:
            self._cache[name] = compute()
        return self._cache[name]

    def gather_actions(self, values: th.Tensor) -> th.Tensor:
        """``values(s, a)`` of the actions in the batch, shape (batch, 1)."""
        return values.gather(1, self.actions)

    def in_units_of(self, unit: float | th.Tensor) -> "Batch":
        """The same batch, with rewards divided by a unit of value. Computed values are shared."""
        scaled = copy.copy(self)
        scaled.rewards = self.rewards / unit
        return scaled

    def next_target_of(self, actions: th.Tensor) -> th.Tensor:
        """Target values of actions at s', shape (batch, 1), or their quantiles."""
        return _gather(self._next_target_outputs(), actions)

    def bootstrap(
        self, next_values: th.Tensor, policy: Callable[[], th.Tensor] | None = None
    ) -> th.Tensor:
        """``r + gamma (1-d) v(s')``, with SB3's n-step discounts.

        :param next_values: v, shape (batch, 1), or its quantiles
        :param policy: computes the probabilities at s' of the policy that v is the value of. With
            quantiles Z_j of the target network, v becomes
            ``v_j = v + sum_a pi(a|s') [Z_j(s',a) - mean_i Z_i(s',a)]``; else it is not called
        """
        if policy is not None:
            quantiles = self._next_target_outputs()
            if quantiles.dim() == 3:
                deviations = quantiles - quantiles.mean(dim=1, keepdim=True)
                next_values = next_values + (policy().unsqueeze(1) * deviations).sum(dim=2)
        return self.rewards + (1 - self.dones) * self.discounts * next_values

    def _next_target_outputs(self) -> th.Tensor:
        self._evaluate(self._target, "s'", self._next_observations)
        return self._outputs[self._target, "s'"]


def _values(outputs: th.Tensor, mask: th.Tensor | None) -> th.Tensor:
    values = q_values(outputs)
    return values if mask is None else masks.apply(values, mask)


def _gather(outputs: th.Tensor, actions: th.Tensor) -> th.Tensor:
    if outputs.dim() == 2:
        return outputs.gather(1, actions)
    return outputs.gather(2, actions.unsqueeze(1).expand(-1, outputs.shape[1], 1)).squeeze(2)
