"""Adam's step without its bookkeeping, which costs more than the arithmetic of small networks."""

from typing import Any, NamedTuple

import torch as th

# In 100 steps a mean above TINY shrinks by 0.9^100 = 3e-5 at most, and stays a normal number
CLEAR_EVERY = 100
TINY = {"exp_avg": 1e-30, "exp_avg_sq": 1e-36}


class _Group(NamedTuple):
    """A parameter group of the optimiser, with what Adam remembers of its parameters."""

    settings: dict[str, Any]
    means: list[th.Tensor]
    squares: list[th.Tensor]
    steps: list[th.Tensor]
    counter: th.Tensor  # all of steps, in one tensor


class FusedAdam:
    """Steps of an optimiser; if it is a plain fused Adam, by torch's kernel for its arithmetic.

    Weights and optimiser state are equal to the bit to ``optimizer.step()``. What that checks at
    every step (defaults, hooks, profiling, new parameters) is checked once here, and again when
    the state was loaded.
    """

    def __init__(self, optimizer: th.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._state: Any = None
        self._groups: list[_Group] = []

    def plain_groups(self) -> list[_Group] | None:
        """The parameter groups with their state, if a step is nothing but Adam's update."""
        plain = self._is_plain() and self._has_gathered()
        settings = self.optimizer.param_groups
        usual = not any(group["weight_decay"] or group["maximize"] for group in settings)
        return self._groups if plain and usual else None

    def zero_grad(self) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        gradients = [
            [parameter.grad for parameter in group["params"]]
            for group in self.optimizer.param_groups
        ]
        complete = self._is_plain() and not any(
            gradient is None for group in gradients for gradient in group
        )
        if not complete or not self._has_gathered():
            self.optimizer.step()
            return
        with th.no_grad():
            for (settings, means, squares, steps, counter), given in zip(
                self._groups, gradients, strict=True
            ):
                counter.add_(1)
                th._fused_adam_(
                    settings["params"],
                    given,
                    means,
                    squares,
                    [],
                    steps,
                    lr=settings["lr"],
                    beta1=settings["betas"][0],
                    beta2=settings["betas"][1],
                    weight_decay=settings["weight_decay"],
                    eps=settings["eps"],
                    amsgrad=False,
                    maximize=settings["maximize"],
                )

    def _is_plain(self) -> bool:
        """Whether a step is nothing but Adam's fused update."""
        optimizer = self.optimizer
        return (
            type(optimizer) is th.optim.Adam
            and "step" not in vars(optimizer)  # as a scheduler of torch leaves it
            and not optimizer._optimizer_step_pre_hooks
            and not optimizer._optimizer_step_post_hooks
            and all(
                group["fused"] and not group["amsgrad"] and not group["decoupled_weight_decay"]
                for group in optimizer.param_groups
            )
        )

    def _has_gathered(self) -> bool:
        """Gather the state if it is new; False before Adam's first step, which creates it."""
        groups, state = self.optimizer.param_groups, self.optimizer.state
        if self._state is state and len(self._groups) == len(groups):
            return True
        if not all(parameter in state for group in groups for parameter in group["params"]):
            return False
        if len({(parameter.device, parameter.dtype) for parameter in state}) != 1:
            return False
        self._state, self._groups = state, [self._gather(group, state) for group in groups]
        return True

    @staticmethod
    def _gather(group: dict[str, Any], state_of: Any) -> _Group:
        states = [state_of[parameter] for parameter in group["params"]]
        counter = th.stack([state["step"] for state in states])
        for state, step in zip(states, counter.unbind(), strict=True):
            state["step"] = (
                step  # a view: one addition then counts for all, here or in Adam's own step
            )
        means, squares, steps = (
            [state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")
        )
        return _Group(group, means, squares, steps, counter)


def lay_out_like_parameters(optimizer: th.optim.Optimizer) -> None:
    """Give what the optimiser remembers of a parameter the order in memory that the parameter has.

    A fused kernel reads both as they lie in memory, so a state saved channels-last would be
    misread otherwise.
    """
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if (
                isinstance(value, th.Tensor)
                and value.shape == parameter.shape
                and value.stride() != parameter.stride()
            ):
                state[name] = th.empty_like(parameter, dtype=value.dtype).copy_(value)


def clear_tiny_moments(optimizer: th.optim.Optimizer) -> None:
    """Set vanishing moments to 0, before they become denormal: those take ten times as long.

    The moment of a weight behind a dead unit halves every seven steps and then stays at the
    smallest denormal number for ever. Below TINY it moves no weight; with an unusual ``eps`` it
    could, and then it is kept.
    """
    for group in optimizer.param_groups:
        if type(optimizer) is not th.optim.Adam or group["eps"] < 1e-10:
            continue
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, least in TINY.items():
                if name in state:
                    state[name].masked_fill_(state[name].abs() < least, 0.0)
