"""What the machine could do at best: the arithmetic of a step, counted, against the speed of a matrix product, measured."""

import time

import torch as th
from stable_baselines3 import DQN
from torch.utils.flop_counter import FlopCounterMode

from sb3_cpp.benchmarks.speed_tasks import BATCH_SIZE, STEPS_PER_GRADIENT


def gradient_flops(model: DQN, batch_size: int = BATCH_SIZE) -> int:
    """Floating-point operations of the matrix products and convolutions of one gradient step, forwards and backwards.

    Counted by torch while the step is made, so an algorithm's extra forwards are in it; the model must have learnt before, for
    the first step of an iteration also measures gradients.
    """
    with FlopCounterMode(display=False) as counter:
        model.train(1, batch_size)
    return counter.get_total_flops()


def acting_flops(model: DQN) -> int:
    """Of choosing the greedy actions for all environments once."""
    with FlopCounterMode(display=False) as counter:
        model.policy.predict(model._last_obs, deterministic=True)  # type: ignore[arg-type]
    return counter.get_total_flops()


def flops_per_step(model: DQN) -> float:
    """Of one environment step: its share of a gradient step and of choosing an action."""
    return gradient_flops(model) / STEPS_PER_GRADIENT + acting_flops(model) / model.n_envs


def matrix_product_speed(size: int = 1024, seconds: float = 0.5) -> float:
    """Best speed of a float32 matrix product, in floating-point operations a second, at the present number of threads."""
    a, b = th.randn(size, size), th.randn(size, size)
    out = th.empty(size, size)
    th.mm(a, b, out=out)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        th.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best
