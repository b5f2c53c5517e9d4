"""A network's layers without what ``nn.Module`` does around each of them, which takes as long as a small layer itself."""

from collections.abc import Callable
from functools import cache

import torch as th
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as module_hooks


def _linear(layer: nn.Linear, x: th.Tensor) -> th.Tensor:
    weight = layer._parameters.get("weight")
    return layer.forward(x) if weight is None else F.linear(x, weight, layer._parameters["bias"])


def _convolve(layer: nn.Conv2d, x: th.Tensor) -> th.Tensor:
    weight = layer._parameters.get("weight")
    if weight is None or layer.padding_mode != "zeros":
        return layer.forward(x)
    bias = layer._parameters["bias"]
    return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def _rectify(layer: nn.ReLU, x: th.Tensor) -> th.Tensor:
    return th.relu_(x) if layer.inplace else th.relu(x)


def _flatten(layer: nn.Flatten, x: th.Tensor) -> th.Tensor:
    return x.flatten(layer.start_dim, layer.end_dim)


def _in_turn(sequence: nn.Sequential, x: th.Tensor) -> th.Tensor:
    for layer in sequence._modules.values():
        x = run(layer, x)
    return x


def _parts_in_turn(*names: str) -> Callable[[nn.Module, th.Tensor], th.Tensor]:
    def run_parts(network: nn.Module, x: th.Tensor) -> th.Tensor:
        for name in names:
            x = run(network._modules[name], x)  # type: ignore[arg-type]
        return x

    return run_parts


_LAYERS: dict[type[nn.Module], Callable[..., th.Tensor]] = {
    nn.Linear: _linear,
    nn.Conv2d: _convolve,
    nn.ReLU: _rectify,
    nn.Flatten: _flatten,
    nn.Sequential: _in_turn,
}
# SB3's networks whose forward pass is these parts of them, one after the other
_CHAINS: dict[type[nn.Module], tuple[str, ...]] = {
    NatureCNN: ("cnn", "linear"),
    FlattenExtractor: ("flatten",),
}


def fast_layers(kind: type[nn.Module]) -> tuple[str, ...] | None:
    """The parts of a network whose forward pass is nothing but these, one after the other.

    A class outside this package says so with an attribute ``fast_layers = ("layers",)``; a subclass
    may have another forward pass, so that it does not inherit the attribute.
    """
    return _CHAINS.get(kind) or vars(kind).get("fast_layers")


@cache
def _way_to_run(kind: type[nn.Module]) -> Callable[..., th.Tensor] | None:
    parts = fast_layers(kind)
    return _LAYERS.get(kind) or (_parts_in_turn(*parts) if parts else None)


def run(module: nn.Module, x: th.Tensor) -> th.Tensor:
    """``module(x)``, and the same to the bit; one of a kind that is not known here, or :func:`is_special`, is simply called.

    Hooks for all modules at once are the caller's to look for, with :func:`hooks_everywhere`.
    """
    compute = _way_to_run(type(module))  # type: ignore[arg-type]
    return module(x) if compute is None or is_special(module) else compute(module, x)


def is_known(module: nn.Module) -> bool:
    """Whether :func:`run` knows what this module computes and nobody has changed it."""
    return _way_to_run(type(module)) is not None and not is_special(module)  # type: ignore[arg-type]


def is_special(module: nn.Module) -> bool:
    """Whether somebody has put something around this very module: a hook, a forward of its own, a compiled call."""
    hooks = (
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
    )
    return bool(hooks) or "forward" in module.__dict__ or module._compiled_call_impl is not None


def hooks_everywhere() -> bool:
    """Whether torch was asked to call something at every module (``torch.nn.modules.module.register_module_...``)."""
    return bool(module_hooks._has_any_global_hook())
