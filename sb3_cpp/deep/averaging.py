"""Exponential moving average (EMA) of a network's weights."""

import copy

import torch as th
from torch import nn


class WeightAverage(nn.Module):
    """EMA of the weights of an online network.

    ``average <- average + (online - average) / horizon`` per gradient step; during the first
    ``horizon`` steps it is the mean of all weights so far. Updated every ``horizon // 100`` steps.

    The greedy policy of an online network flips from one gradient step to the next wherever two
    actions are nearly equal. Its average follows only changes that last.

    :param network: the online network
    :param horizon: EMA horizon in gradient steps, at least 1
    """

    def __init__(self, network: nn.Module, horizon: int) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False).train(False)
        self.horizon, self.every = horizon, max(horizon // 100, 1)
        # Parameters, not their data: the data moves with the memory format and the device
        self._online: list[th.Tensor] = [*network.parameters()]
        self._average: list[th.Tensor] = [*self.network.parameters()]
        self._buffers_of_both = list(zip(self.network.buffers(), network.buffers()))

    @th.no_grad()
    def update(self, step: int) -> None:
        """Include the online network after gradient step number ``step`` (the first is 1)."""
        if step % self.every:
            return
        th._foreach_lerp_(self._average, self._online, self.every / min(step, self.horizon))
        # Running statistics of batch norm are averages already
        for average, online in self._buffers_of_both:
            average.copy_(online)
