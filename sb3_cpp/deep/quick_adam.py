"""Adam's step without its bookkeeping, which takes longer than the arithmetic where networks are small."""

from typing import Any

import torch as th
from torch.optim.adam import adam


class QuickAdam:
    """Steps of an optimiser; if it is a fused Adam that nobody has changed, by torch's own function for its arithmetic.

    The weights and the optimiser's state are the same to the bit as after ``optimizer.step()``. Everything that is asked for
    each time there (defaults, hooks, profiling, new parameters) is asked for once here, and again when the state was loaded.
    """

    def __init__(self, optimizer: th.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._state: Any = None
        self._groups: list[tuple[dict[str, Any], list[th.Tensor], tuple[list[th.Tensor], ...]]] = []

    def zero_grad(self) -> None:
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self) -> None:
        gradients = [[parameter.grad for parameter in group["params"]] for group in self.optimizer.param_groups]
        if not self._is_plain() or any(gradient is None for group in gradients for gradient in group):
            self.optimizer.step()
            return
        if self._state is not self.optimizer.state or len(self._groups) != len(gradients):
            if len(self.optimizer.state) == 0:  # Adam makes it at its first step
                self.optimizer.step()
                return
            self._gather()
        with th.no_grad():
            for (group, parameters, (means, squares, steps)), given in zip(self._groups, gradients, strict=True):
                adam(
                    parameters,
                    given,
                    means,
                    squares,
                    [],
                    steps,
                    fused=True,
                    amsgrad=False,
                    beta1=group["betas"][0],
                    beta2=group["betas"][1],
                    lr=group["lr"],
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    maximize=group["maximize"],
                    decoupled_weight_decay=group["decoupled_weight_decay"],
                )

    def _is_plain(self) -> bool:
        """Whether a step is nothing but Adam's fused update."""
        optimizer = self.optimizer
        return (
            type(optimizer) is th.optim.Adam
            and "step" not in vars(optimizer)  # as a scheduler of torch leaves it
            and not optimizer._optimizer_step_pre_hooks
            and not optimizer._optimizer_step_post_hooks
            and all(group["fused"] and not group["amsgrad"] for group in optimizer.param_groups)
        )

    def _gather(self) -> None:
        self._state = self.optimizer.state
        self._groups = []
        for group in self.optimizer.param_groups:
            states = [self._state[parameter] for parameter in group["params"]]
            kept = tuple([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
            self._groups.append((group, group["params"], kept))
