"""The fast path: the same arithmetic rearranged. Results change by float rounding only."""

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common import torch_layers
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn import policies as dqn_policies
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.nn import functional as F
from torch.nn.modules import module as module_hooks

from sb3_cpp.deep import averaging, policies

# --- layers without the overhead of nn.Module.__call__, which costs as much as a small layer ------


def _linear(layer: nn.Linear, x: th.Tensor) -> th.Tensor:
    weight = layer._parameters.get("weight")
    if weight is None:  # a parametrised layer (weight norm, pruning) has none of that name
        return layer.forward(x)
    bias = layer._parameters["bias"]
    large = x.dim() == 2 and x.shape[0] * weight.numel() >= OneDnnLinear.LEAST_PRODUCTS
    fp32 = x.dtype is th.float32 and not th.is_autocast_enabled("cpu")
    if large and fp32 and x.device.type == "cpu" and mkl_is_slow():
        return OneDnnLinear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


@cache
def mkl_is_slow() -> bool:
    """Whether MKL, torch's library for matrix products, runs at half width.

    It has AVX2 kernels only for AMD. Those are the full width of the processors up to Zen 4 (family
    25), where MKL is faster than oneDNN by a fifth, and half of it from Zen 5 on.
    """
    try:
        info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    family = re.search(r"^cpu family\s*: (\d+)$", info, re.MULTILINE)
    zen5 = "AuthenticAMD" in info and family is not None and int(family[1]) >= 26
    return zen5 and th.backends.mkldnn.is_available()


class OneDnnLinear(th.autograd.Function):
    """``F.linear`` by oneDNN, which runs at full width on Zen 5: 1.6 to 2.2 times as fast."""

    LEAST_PRODUCTS = 1_000_000  # below, oneDNN's overhead of 10 us outweighs it

    @staticmethod
    def forward(ctx: Any, x: th.Tensor, weight: th.Tensor, bias: th.Tensor | None) -> th.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias = bias is not None
        return _one_dnn(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: th.Tensor) -> tuple[th.Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x = _one_dnn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        of_weight = _one_dnn(gradient.t(), x.t()) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, gradient.sum(0) if ctx.has_bias else None


def _one_dnn(x: th.Tensor, weight: th.Tensor, bias: th.Tensor | None = None) -> th.Tensor:
    return th.ops.sb3_cpp.linear(x, weight, bias)


# An operator of our own around oneDNN's, because inductor replaces that one by a version for
# constant weights, which the weights of a network that learns are not
_library = th.library.Library("sb3_cpp", "DEF")
_library.define("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")


@th.library.impl(_library, "linear", "CPU")
def _linear_on_cpu(x: th.Tensor, weight: th.Tensor, bias: th.Tensor | None) -> th.Tensor:
    return th.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


@th.library.register_fake("sb3_cpp::linear", lib=_library)
def _linear_shape(x: th.Tensor, weight: th.Tensor, bias: th.Tensor | None) -> th.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def _conv2d(layer: nn.Conv2d, x: th.Tensor) -> th.Tensor:
    weight = layer._parameters.get("weight")
    if weight is None or layer.padding_mode != "zeros":
        return layer.forward(x)
    bias = layer._parameters["bias"]
    return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def _relu(layer: nn.ReLU, x: th.Tensor) -> th.Tensor:
    return th.relu_(x) if layer.inplace else th.relu(x)


def _flatten(layer: nn.Flatten, x: th.Tensor) -> th.Tensor:
    return x.flatten(layer.start_dim, layer.end_dim)


def _sequential(sequence: nn.Sequential, x: th.Tensor) -> th.Tensor:
    layers: list[Any] = list(sequence._modules.values())
    if is_traced() and not x.requires_grad and _starts_with_board(layers, x.shape[1:]):
        x, layers = _board_features(layers[0], x), layers[3:]
    before: Any = None
    for layer in layers:
        # Overwrites what only this ReLU reads. A layer before it needs its input and weights for
        # its gradient, not its output
        alone = type(layer) is nn.ReLU and type(before) in (nn.Linear, nn.Conv2d)
        alone = alone and is_known(layer) and is_known(before)
        x = th.relu_(x) if alone else run(layer, x)
        before = layer
    return x


def _chain(*names: str) -> Callable[[nn.Module, th.Tensor], th.Tensor]:
    def forward(network: nn.Module, x: th.Tensor) -> th.Tensor:
        for name in names:
            x = run(network._modules[name], x)  # type: ignore[arg-type]
        return x

    return forward


_FORWARD: dict[type[nn.Module], Callable[..., th.Tensor]] = {
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
    nn.ReLU: _relu,
    nn.Flatten: _flatten,
    nn.Sequential: _sequential,
    torch_layers.NatureCNN: _chain("cnn", "linear"),
    torch_layers.FlattenExtractor: _chain("flatten"),
}


@cache
def _forward_of(kind: type[nn.Module]) -> Callable[..., th.Tensor] | None:
    """How to run modules of this class. A features extractor of one's own may declare
    ``fast_layers = ("layers",)``: its forward pass is these submodules in sequence."""
    parts = vars(kind).get("fast_layers")
    return _chain(*parts) if parts else _FORWARD.get(kind)


def run(module: nn.Module, x: th.Tensor) -> th.Tensor:
    """``module(x)``; falls back to it for unknown or hooked modules.

    Equal to the bit, except for large linear layers on AMD, which oneDNN computes.

    The caller looks for hooks on all modules at once, with :func:`has_global_hooks`.
    """
    forward = _forward_of(type(module))  # type: ignore[arg-type]
    return module(x) if forward is None or is_hooked(module) else forward(module, x)


def is_known(module: nn.Module) -> bool:
    """Whether :func:`run` computes this module itself."""
    return _forward_of(type(module)) is not None and not is_hooked(module)  # type: ignore[arg-type]


def is_hooked(module: nn.Module) -> bool:
    """Whether this very module has a hook, a forward of its own, or a compiled call."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    hooks = hooks or module._backward_hooks or module._backward_pre_hooks
    overridden = "forward" in module.__dict__ or module._compiled_call_impl is not None
    return bool(hooks) or overridden


def has_global_hooks() -> bool:
    """Whether ``torch.nn.modules.module.register_module_..._hook`` was used."""
    return bool(module_hooks._has_any_global_hook())


def must_call(*networks: nn.Module) -> bool:
    """Whether hooks demand that these networks are called in the usual way."""
    return has_global_hooks() or any(is_hooked(network) for network in networks)


# --- small boards: convolution, ReLU and flattening as one matrix product -------------------------


def is_traced() -> bool:
    """Whether the operations are being recorded for the compiled gradient step."""
    return get_proxy_mode() is not None


def _starts_with_board(layers: Sequence[nn.Module], shape: Sequence[int]) -> bool:
    """Whether the first layers are the plain convolution of a small board, ReLU and flattening.

    :param layers: of a network
    :param shape: of one observation
    """
    if [type(layer) for layer in layers[:3]] != [nn.Conv2d, nn.ReLU, nn.Flatten]:
        return False
    first, flatten = layers[0], layers[2]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(flatten, nn.Flatten)
    settings = (first.stride, first.padding, first.dilation, first.groups)
    plain = settings == ((1, 1), (0, 0), (1, 1), 1) and "weight" in first._parameters
    plain = plain and (flatten.start_dim, flatten.end_dim) == (1, -1)
    small = len(shape) == 3 and shape[1] * shape[2] <= 256
    return plain and small and not any(is_hooked(layer) for layer in layers[:3])


def convolves_boards_only(network: nn.Module) -> bool:
    """Whether a Q-network has no convolution but one that is compiled as a matrix product."""
    assert isinstance(network, QNetwork)
    count = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    shape = network.observation_space.shape
    return count == 0 or (
        count == 1 and shape is not None and _starts_with_board(_layers(network), shape)
    )


def _board_features(layer: nn.Conv2d, x: th.Tensor) -> th.Tensor:
    """``flatten(relu(layer(x)))``, by one matrix product of the filters with all patches.

    The batch is the last dimension in memory: patches are copied in long runs, and the next layer
    takes the result as a transposed matrix, without a copy.
    """
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    assert weight is not None
    filters, channels, *kernel = weight.shape
    height, width = x.shape[2] - kernel[0] + 1, x.shape[3] - kernel[1] + 1
    boards = th.ops.sb3_cpp.batch_last(x)
    shifts = product(range(kernel[0]), range(kernel[1]))
    patches = th.stack([boards[:, i : i + height, j : j + width] for i, j in shifts], dim=1)
    values = weight.reshape(filters, -1) @ patches.reshape(channels * kernel[0] * kernel[1], -1)
    if bias is not None:
        values = values + bias[:, None]
    return th.relu(values).view(filters * height * width, len(x)).t()


# An operator of our own, because inductor would transpose again for every patch
_library.define("batch_last(Tensor x) -> Tensor")


@th.library.impl(_library, "batch_last", "CompositeExplicitAutograd")
def _batch_last(x: th.Tensor) -> th.Tensor:
    return x.flatten(1).t().contiguous().view(*x.shape[1:], len(x))


@th.library.register_fake("sb3_cpp::batch_last", lib=_library)
def _batch_last_shape(x: th.Tensor) -> th.Tensor:
    return x.new_empty(*x.shape[1:], len(x))


# --- networks -------------------------------------------------------------------------------------

# Modules whose classes compute the same in training and in evaluation mode
_WITHOUT_MODES = {
    *(f"torch.nn.modules.{kind}" for kind in ("linear", "conv", "activation", "container")),
    "torch.nn.modules.flatten",
    dqn_policies.__name__,
    torch_layers.__name__,
    policies.__name__,
    averaging.__name__,
}
_WITH_MODES = (nn.RReLU, nn.MultiheadAttention)  # exceptions inside those modules


def has_modes(network: nn.Module) -> bool:
    """Whether the network may behave differently in training mode; unknown layers count as such."""
    return any(
        isinstance(module, _WITH_MODES)
        or (
            type(module).__module__ not in _WITHOUT_MODES
            and "fast_layers" not in vars(type(module))
        )
        for module in network.modules()
    )


def run_preprocessed(network: nn.Module, observations: th.Tensor) -> th.Tensor:
    """A Q-network on observations that are preprocessed already."""
    assert isinstance(network, QNetwork)
    values, features = network._modules["q_net"], network._modules["features_extractor"]
    assert values is not None
    assert features is not None
    if not is_known(features):  # it may change its input in place, which other networks share
        observations = observations.clone()
    if not uses_bf16(network):
        outputs = run(values, run(features, observations))
    else:
        with th.autocast(observations.device.type, dtype=th.bfloat16):
            extracted = run(features, observations)
        outputs = run(values, extracted.float())
    if isinstance(network, policies.QuantileQNetwork):
        return network.split_quantiles(outputs)
    return outputs


class FunctionalNetwork(nn.Module):
    """A Q-network as a function of its weights, on observations as the replay buffer gives them."""

    def __init__(self, network: QNetwork) -> None:
        super().__init__()
        self.network = network
        self.names = [f"network.{name}" for name, _ in network.named_parameters()]

    def forward(self, observations: th.Tensor) -> th.Tensor:
        space, normalize = self.network.observation_space, self.network.normalize_images
        ready = preprocess_obs(observations, space, normalize_images=normalize)
        assert isinstance(ready, th.Tensor)
        return run_preprocessed(self.network, ready)

    def call(self, weights: Sequence[th.Tensor], observations: th.Tensor) -> th.Tensor:
        return functional_call(self, dict(zip(self.names, weights)), (observations,))


# --- bfloat16 -------------------------------------------------------------------------------------

PRECISIONS = ("fp32", "bf16", "auto")


def has_native_bf16(device: th.device) -> bool:
    """Whether the hardware multiplies in bfloat16; emulated, it was 8 times slower than float32."""
    if device.type == "cuda":
        return th.cuda.is_bf16_supported(including_emulation=False)
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return device.type == "cpu" and any(getattr(th.cpu, test, bool)() for test in tests)


def set_precision(policy: BasePolicy, precision: str) -> None:
    """Let features extractors with convolutions compute in bfloat16, or not.

    The Q head, the softmax, the losses and Adam stay in float32: at |Q| ~ 10 the spacing of
    bfloat16 numbers is above the temperature.
    """
    # Small boards (MinAtar) are faster in bfloat16 only where the gradient step is compiled
    pays = is_image_space(policy.observation_space) and has_native_bf16(policy.device)
    chosen = precision == "bf16" or (precision == "auto" and pays)
    for network in policy.modules():
        if isinstance(network, QNetwork):
            extractor = network.features_extractor.modules()
            has_convolutions = any(isinstance(module, nn.Conv2d) for module in extractor)
            network.__dict__["bf16_features"] = chosen and has_convolutions


def uses_bf16(network: nn.Module) -> bool:
    """Whether :func:`set_precision` chose bfloat16 for this network."""
    return bool(network.__dict__.get("bf16_features"))


def acts_greedily(policy: BasePolicy, network: nn.Module) -> bool:
    """Whether the policy's actions are the argmax of the network, and no subclass changed that."""
    policy_class = type(policy)
    return (
        policy_class.predict is BasePolicy.predict
        and policy_class.obs_to_tensor is BasePolicy.obs_to_tensor
        and policy_class._predict in (DQNPolicy._predict, policies.MlpPolicy._predict)
        and getattr(type(network), "_predict", None)
        in (QNetwork._predict, policies.QuantileQNetwork._predict)
    )


class NumpyNetwork:
    """A small Q-network, run in numpy on the very memory of its weights.

    To choose one action, torch's overhead per layer is several times the arithmetic. Known are
    linear layers and ReLUs, behind the convolution of a small board or none.
    """

    # Per call; beyond, torch's matrix products win, and numpy's would use several threads
    MOST_PRODUCTS = 600_000

    def __init__(self, network: nn.Module) -> None:
        assert isinstance(network, QNetwork)
        self._parameters = list(network.parameters())
        self._addresses = [p.data_ptr() for p in self._parameters]
        self._n_quantiles = getattr(network, "n_quantiles", 1)
        self._modules = layers = _layers(network)
        self._filters: tuple[np.ndarray, np.ndarray] | None = None
        if type(layers[0]) is nn.Conv2d:
            first: Any = layers[0]
            weight = first.weight.detach().numpy()
            self._filters = (
                weight.reshape(len(weight), -1),
                first.bias.detach().numpy()[:, None],
            )
            shape = network.observation_space.shape
            assert shape is not None
            self._patches = _patches(shape, layers[0].kernel_size)
            layers = layers[3:]
        self._layers: list[tuple[np.ndarray, np.ndarray | None, bool]] = []
        for layer, following in zip(layers, [*layers[1:], None]):
            if type(layer) is nn.Linear:
                bias = None if layer.bias is None else layer.bias.detach().numpy()
                weight = layer.weight.detach().numpy().T
                self._layers.append((weight, bias, type(following) is nn.ReLU))

    @staticmethod
    def supports(network: nn.Module, n_envs: int) -> bool:
        """Whether the network is small, on the CPU, and made of known layers."""
        if not isinstance(network, QNetwork) or type(network.q_net) is not nn.Sequential:
            return False
        space, parameters = network.observation_space, list(network.parameters())
        layers = _layers(network)
        if isinstance(space, spaces.Box) and _starts_with_board(layers, space.shape):
            layers = layers[3:] if layers[0].bias is not None else []
        return (
            isinstance(space, spaces.Box)
            and not is_image_space(space)
            and len(layers) > 0
            and all(type(layer) in (nn.Linear, nn.ReLU) for layer in layers)
            and type(layers[0]) is nn.Linear
            and all(p.device.type == "cpu" and p.dtype is th.float32 for p in parameters)
            and n_envs * sum(p.numel() for p in parameters) <= NumpyNetwork.MOST_PRODUCTS
        )

    def is_current(self) -> bool:
        """Whether the weights are still where they were (moving a policy moves them), and no layer
        has a hook."""
        in_place = all(p.data_ptr() == at for p, at in zip(self._parameters, self._addresses))
        return in_place and not any(map(is_hooked, self._modules))

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        n = len(observations)
        x = observations.reshape(n, -1).astype(np.float32, copy=False)
        if self._filters is not None:
            filters, offsets = self._filters
            x = filters @ x.take(self._patches, axis=1)
            x += offsets
            x = np.maximum(x, 0.0, out=x).reshape(n, -1)
        for weight, bias, rectified in self._layers:
            x = x @ weight
            if bias is not None:
                x += bias
            if rectified:
                np.maximum(x, 0.0, out=x)
        if self._n_quantiles > 1:
            return x.reshape(len(x), self._n_quantiles, -1).mean(axis=1)
        return x


def _layers(network: QNetwork) -> list[Any]:
    """The layers of a Q-network in sequence, or an unknown extractor in place of its layers."""
    extractor = network.features_extractor
    names = vars(type(extractor)).get("fast_layers")
    parts: list[Any] = [extractor._modules[name] for name in names] if names else [extractor]
    if type(extractor) is torch_layers.FlattenExtractor:
        parts = []
    parts.append(network.q_net)
    nested = [list(part) if type(part) is nn.Sequential else [part] for part in parts]
    return list(chain(*nested))


def _patches(shape: tuple[int, ...], kernel: tuple[int, ...]) -> np.ndarray:
    """Flat indices of all patches of a board, shape (channels * kernel size, positions)."""
    indices = np.arange(np.prod(shape)).reshape(shape)
    windows = np.lib.stride_tricks.sliding_window_view(indices, kernel, axis=(1, 2))
    return windows.transpose(0, 3, 4, 1, 2).reshape(shape[0] * kernel[0] * kernel[1], -1)


class Preprocessor:
    """Concatenates s and s' of a batch and preprocesses them once for all networks.

    Images go into a buffer that is kept: a fresh 14 MB tensor per forward pass costs page faults,
    and each of the three or four passes of a gradient step would normalise the same images again.
    """

    def __init__(self, network: QNetwork) -> None:
        self._space = network.observation_space
        self._normalize = network.normalize_images
        self._images = self._normalize and is_image_space(self._space)
        self._is_box = isinstance(self._space, spaces.Box) and not self._images
        # What the first layer would round to
        self._dtype = th.bfloat16 if uses_bf16(network) else th.float32
        self._bytes: th.Tensor | None = None
        self._buffer: th.Tensor | None = None
        self._acting_buffer: th.Tensor | None = None

    @staticmethod
    def supports(network: nn.Module) -> bool:
        """Whether preprocessing and network can be separated: SB3's Q-network on one tensor."""
        return (
            isinstance(network, QNetwork)
            and type(network).forward in (QNetwork.forward, policies.QuantileQNetwork.forward)
            and type(network).extract_features is QNetwork.extract_features
            and not isinstance(network.observation_space, spaces.Dict)
        )

    def __call__(self, samples: ReplayBufferSamples) -> th.Tensor:
        now, later = samples.observations, samples.next_observations
        assert isinstance(now, th.Tensor)
        assert isinstance(later, th.Tensor)
        if not self._images:
            return self._preprocess(th.cat((now, later)))
        shape = (2 * len(now), *now.shape[1:])
        self._bytes = self._reuse(self._bytes, shape, now.device, now.dtype)
        self._buffer = self._reuse(self._buffer, shape, now.device, self._dtype)
        # Reordered to channels-last as bytes, which are a quarter of the memory of floats
        self._bytes[: len(now)].copy_(now)
        self._bytes[len(now) :].copy_(later)
        return self._buffer.copy_(self._bytes).div_(255.0)

    def for_acting(self, observations: th.Tensor) -> th.Tensor:
        """Preprocessed observations to act on."""
        if not self._images:
            return self._preprocess(observations)
        shape, device = observations.shape, observations.device
        self._acting_buffer = self._reuse(self._acting_buffer, shape, device, self._dtype)
        return self._acting_buffer.copy_(observations).div_(255.0)

    def _preprocess(self, observations: th.Tensor) -> th.Tensor:
        if self._is_box:  # what preprocess_obs does with a Box, without its checks
            return observations.float()
        ready = preprocess_obs(observations, self._space, normalize_images=self._normalize)
        assert isinstance(ready, th.Tensor)
        return ready

    @staticmethod
    def _reuse(
        buffer: th.Tensor | None, shape: tuple[int, ...], device: th.device, dtype: th.dtype
    ) -> th.Tensor:
        if buffer is None or buffer.shape != shape or buffer.device != device:
            return th.empty(shape, dtype=dtype, device=device, memory_format=th.channels_last)
        return buffer

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_bytes": None, "_buffer": None, "_acting_buffer": None}


def _no_training_mode(mode: bool) -> None:
    """No-op ``set_training_mode`` for networks without dropout or batch norm."""


def speed_up(policy: BasePolicy) -> None:
    """Channels-last image networks, fused Adam, no ``set_training_mode`` walks.

    Small boards that are not images (MinAtar) keep their layout: their convolutions are too small
    to repay the reordering.
    """
    has_convolutions = any(isinstance(module, nn.Conv2d) for module in policy.modules())
    if is_image_space(policy.observation_space) and has_convolutions:
        policy.to(memory_format=th.channels_last)  # type: ignore[call-overload]
    if not has_modes(policy):
        policy.set_training_mode(False)
        policy.set_training_mode = _no_training_mode  # type: ignore[method-assign]
    if type(policy.optimizer) is th.optim.Adam:
        for group in policy.optimizer.param_groups:
            other = group["foreach"] or group["capturable"] or group["differentiable"]
            if group["fused"] is None and not other:
                group["fused"] = True
