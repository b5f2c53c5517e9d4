"""Stopwatches around SB3's real `learn()`: whole rounds, interleaved, and the parts of a step."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest.mock import patch

import torch as th
from stable_baselines3 import DQN
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

PARTS = (
    "environment",
    "acting",
    "storing",
    "sampling",
    "forward, no gradient",
    "forward, gradient",
    "backward",
    "optimiser",
    "rest",
)


class Round(NamedTuple):
    """One measurement: how long one model's ``learn`` took in one round."""

    algo: str
    round: int
    steps: int
    wall_s: float
    cpu_s: float
    load: float  # processes that wanted to run, on average over the last minute


def warm_up(model: DQN, gradient_steps: int) -> None:
    """Past the random start and the first gradient steps, in which memory is taken and kernels are chosen."""
    model.learn(model.learning_starts + 4 * gradient_steps)


def time_rounds(
    models: Mapping[str, DQN], steps: int, rounds: int, done: Callable[[Round], None]
) -> list[Round]:
    """Each model learns on for ``steps`` steps in each round; who begins changes, so that a drift favours nobody."""
    results = []
    names = list(models)
    for r in range(rounds):
        first = r % len(names)
        for name in names[first:] + names[:first]:
            results.append(_time_learning(models[name], name, r + 1, steps))
            done(results[-1])
    return results


def _time_learning(model: DQN, name: str, number: int, steps: int) -> Round:
    before = model.num_timesteps
    wall, cpu = time.perf_counter(), time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Round(name, number, model.num_timesteps - before, wall, cpu, os.getloadavg()[0])


class Stopwatch:
    """Adds up time by name; what is measured inside something else counts for the inner one only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    def start(self, name: str) -> None:
        self._turn()
        self._open.append(name)

    def stop(self) -> None:
        self._turn()
        self._open.pop()

    def inside(self, name: str) -> bool:
        return name in self._open

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.start(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.stop()

        return timed


def time_parts(model: DQN, steps: int) -> dict[str, float]:
    """Milliseconds of one environment step by part, from a run of its own (the stopwatches take a little themselves)."""
    watch = Stopwatch()
    assert model.env is not None
    assert model.replay_buffer is not None
    with ExitStack() as stack:
        for owner, method, part in (
            (model.env, "step", "environment"),
            (model, "_sample_action", "acting"),
            (model, "_store_transition", "storing"),
            (model.replay_buffer, "sample", "sampling"),
            (model.policy.optimizer, "step", "optimiser"),
            (model.policy.optimizer, "zero_grad", "optimiser"),
            (nn.utils, "clip_grad_norm_", "optimiser"),
            (nn.utils, "get_total_norm", "optimiser"),
            (nn.utils, "clip_grads_with_norm_", "optimiser"),
            (th.Tensor, "backward", "backward"),
        ):
            stack.enter_context(
                patch.object(owner, method, watch.around(part, getattr(owner, method)))
            )
        for network in (
            module for module in model.policy.modules() if isinstance(module, QNetwork)
        ):
            _watch_forward(watch, network, stack)
        before = model.num_timesteps
        watch.start("rest")
        model.learn(steps, reset_num_timesteps=False)
        watch.stop()
    taken = model.num_timesteps - before
    return {part: 1000.0 * watch.seconds[part] / taken for part in PARTS}


def _watch_forward(watch: Stopwatch, network: QNetwork, stack: ExitStack) -> None:
    """Time the layers of a network, except while acting, which has its own name."""

    def begin(module: nn.Module, inputs: Any) -> None:
        if not watch.inside("acting"):
            watch.start("forward, gradient" if th.is_grad_enabled() else "forward, no gradient")

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        if not watch.inside("acting"):
            watch.stop()

    for layers in (network.features_extractor, network.q_net):
        stack.callback(layers.register_forward_pre_hook(begin).remove)
        stack.callback(layers.register_forward_hook(end).remove)
