"""The same arithmetic, faster: what may be rearranged without changing results beyond float rounding."""

from itertools import pairwise

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
from torch import nn

from sb3_cpp.deep.policies import ActingNetwork
from sb3_cpp.deep.quick_forward import fast_layers, hooks_everywhere, is_known, is_special, run

# Layers, and classes of SB3 made of them, that compute the same whether a network learns or acts
MODELESS = (
    *(
        f"torch.nn.modules.{kind}"
        for kind in ("linear", "conv", "activation", "container", "flatten")
    ),
    *("stable_baselines3.dqn.policies", "stable_baselines3.common.torch_layers"),
    "sb3_cpp.deep.policies",
)
WITH_MODES = (nn.RReLU, nn.MultiheadAttention)  # in those files, but random when they learn

# The ways of acting that are "the largest value of one network"
PLAIN_ACTING = (DQNPolicy._predict, ActingNetwork._predict)


def has_modes(network: nn.Module) -> bool:
    """Whether the network may behave differently when it learns; every layer that is not known counts as such."""
    return any(
        (type(module).__module__ not in MODELESS and fast_layers(type(module)) is None)
        or isinstance(module, WITH_MODES)
        for module in network.modules()
    )


def keep_mode(mode: bool) -> None:
    """For a network without modes, in place of walking through its layers before every action to tell them."""


def run_preprocessed(network: nn.Module, observations: th.Tensor) -> th.Tensor:
    """A Q-network on observations that are preprocessed already, which stay as they are."""
    assert isinstance(network, QNetwork)
    values, features = network._modules["q_net"], network._modules["features_extractor"]
    assert values is not None
    assert features is not None
    if not is_known(features):  # it might work on its input in place, and others need that input
        observations = observations.clone()
    return run(values, run(features, observations))


def must_be_called(*networks: nn.Module) -> bool:
    """Whether a hook, or something else around a network itself, waits for the network to be called in the usual way."""
    return hooks_everywhere() or any(is_special(network) for network in networks)


def acts_plainly(policy: BasePolicy, network: nn.Module) -> bool:
    """Whether the policy's actions are the largest values of the network and nobody has changed how they are asked for."""
    own = (
        type(policy).predict is BasePolicy.predict
        and type(policy).obs_to_tensor is BasePolicy.obs_to_tensor
    )
    return (
        own
        and type(policy)._predict in PLAIN_ACTING
        and getattr(type(network), "_predict", None) is QNetwork._predict
    )


class Preprocessor:
    """Stacks s and s' of a batch and preprocesses them once for all networks; images go into a buffer that is kept.

    A fresh 14 MB tensor per forward costs page faults, and each of the three or four forwards of a gradient step would
    normalise the same images again.
    """

    def __init__(self, network: QNetwork) -> None:
        self._space = network.observation_space
        self._normalize = network.normalize_images
        self._images = self._normalize and is_image_space(self._space)
        self._numbers = isinstance(self._space, spaces.Box) and not self._images
        self._buffer: th.Tensor | None = None
        self._acting_buffer: th.Tensor | None = None

    @staticmethod
    def supports(network: nn.Module) -> bool:
        """Whether preprocessing and network can be told apart: SB3's own Q-network, on one observation tensor."""
        return (
            isinstance(network, QNetwork)
            and type(network).forward is QNetwork.forward
            and type(network).extract_features is QNetwork.extract_features
            and not isinstance(network.observation_space, spaces.Dict)
        )

    def __call__(self, samples: ReplayBufferSamples) -> th.Tensor:
        now, later = samples.observations, samples.next_observations
        assert isinstance(now, th.Tensor)
        assert isinstance(later, th.Tensor)
        if not self._images:
            return self._plainly(th.cat((now, later)))
        self._buffer = self._kept(self._buffer, (2 * len(now), *now.shape[1:]), now.device)
        th.div(now, 255.0, out=self._buffer[: len(now)])
        th.div(later, 255.0, out=self._buffer[len(now) :])
        return self._buffer

    def alone(self, observations: th.Tensor) -> th.Tensor:
        """Observations to act on, preprocessed."""
        if not self._images:
            return self._plainly(observations)
        self._acting_buffer = self._kept(
            self._acting_buffer, observations.shape, observations.device
        )
        return th.div(observations, 255.0, out=self._acting_buffer)

    def _plainly(self, observations: th.Tensor) -> th.Tensor:
        if self._numbers:  # what SB3 does with them, without asking each time what they are
            return observations.float()
        ready = preprocess_obs(observations, self._space, normalize_images=self._normalize)
        assert isinstance(ready, th.Tensor)
        return ready

    @staticmethod
    def _kept(buffer: th.Tensor | None, shape: tuple[int, ...], device: th.device) -> th.Tensor:
        """The buffer of before, or a new one where it does not fit."""
        if buffer is None or buffer.shape != shape or buffer.device != device:
            return th.empty(shape, device=device).to(memory_format=th.channels_last)
        return buffer

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_buffer": None, "_acting_buffer": None}


def speed_up(policy: BasePolicy) -> None:
    """Lay out image networks channels-last, let ReLU overwrite the layer before it, and Adam update all weights in one kernel;
    a policy of which no layer cares whether it learns or acts is no longer told.

    A layer before a ReLU needs its input and its weights for its gradient, not its output, so overwriting that spares memory.
    Small boards that are not images (MinAtar) stay as they are: their convolutions are too small to repay the reordering.
    """
    if is_image_space(policy.observation_space) and any(
        isinstance(module, nn.Conv2d) for module in policy.modules()
    ):
        policy.to(memory_format=th.channels_last)  # type: ignore[call-overload]
    for sequence in policy.modules():
        if type(sequence) is nn.Sequential:
            for before, layer in pairwise(sequence):
                if type(layer) is nn.ReLU and type(before) in (nn.Linear, nn.Conv2d):
                    layer.inplace = True
    if not has_modes(policy):
        policy.set_training_mode(False)
        policy.set_training_mode = keep_mode  # type: ignore[method-assign]
    if type(policy.optimizer) is th.optim.Adam:
        for group in policy.optimizer.param_groups:
            if (
                group["fused"] is None
                and not group["foreach"]
                and not group["capturable"]
                and not group["differentiable"]
            ):
                group["fused"] = True
