"""The network that is deployed: a running average of the weights of the one that learns."""

import copy

import torch as th
from torch import nn


class WeightAverage:
    """``average <- average + (newest - average) / horizon`` for every gradient step; at first the mean of all so far.

    A hundred times per horizon is often enough to look: networks one step apart are nearly the same.

    A learning network's greedy policy flips wherever two actions are nearly equal, back and forth from one gradient step to
    the next; its average moves only with what lasts.

    :param network: the network that learns
    :param horizon: gradient steps over which it is averaged, at least 1
    """

    def __init__(self, network: nn.Module, horizon: int) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).train(False)
        self.horizon, self.every = horizon, max(horizon // 100, 1)
        # parameters and not their data, which moves when a network is laid out anew or sent to a device
        self._newest: list[th.Tensor] = [*network.parameters()]
        self._average: list[th.Tensor] = [*self.network.parameters()]
        self._buffers = list(zip(self.network.buffers(), network.buffers()))

    @th.no_grad()
    def update(self, step: int) -> None:
        """Take in the network after its ``step``-th gradient step (the first is 1)."""
        if step % self.every:
            return
        th._foreach_lerp_(self._average, self._newest, self.every / min(step, self.horizon))
        for mine, newest in self._buffers:
            mine.copy_(newest)
