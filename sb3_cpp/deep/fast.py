"""The same arithmetic, faster: what may be rearranged without changing results beyond float rounding."""

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

# Layers, and classes of SB3 made of them, that compute the same whether a network learns or acts
MODELESS = (
    *(f"torch.nn.modules.{kind}" for kind in ("linear", "conv", "activation", "container", "flatten")),
    *("stable_baselines3.dqn.policies", "stable_baselines3.common.torch_layers"),
)


def has_modes(network: nn.Module) -> bool:
    """Whether the network may behave differently when it learns; every layer that is not known counts as such."""
    return any(type(module).__module__ not in MODELESS for module in network.modules())


def run_preprocessed(network: nn.Module, observations: th.Tensor) -> th.Tensor:
    """A Q-network on observations that are preprocessed already."""
    assert isinstance(network, QNetwork)
    return network.q_net(network.features_extractor(observations))


class Preprocessor:
    """Stacks s and s' of a batch and preprocesses them once for all networks; images go into a buffer that is kept.

    A fresh 14 MB tensor per forward costs page faults, and each of the three or four forwards of a gradient step would
    normalise the same images again.
    """

    def __init__(self, network: QNetwork) -> None:
        self._space = network.observation_space
        self._normalize = network.normalize_images
        self._images = self._normalize and is_image_space(self._space)
        self._buffer: th.Tensor | None = None

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
            stacked = preprocess_obs(th.cat((now, later)), self._space, normalize_images=self._normalize)
            assert isinstance(stacked, th.Tensor)
            return stacked
        n, shape = len(now), (2 * len(now), *now.shape[1:])
        if self._buffer is None or self._buffer.shape != shape or self._buffer.device != now.device:
            self._buffer = th.empty(shape, device=now.device).to(memory_format=th.channels_last)
        th.div(now, 255.0, out=self._buffer[:n])
        th.div(later, 255.0, out=self._buffer[n:])
        return self._buffer

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_buffer": None}


def speed_up(policy: BasePolicy) -> None:
    """Lay out image networks channels-last and let Adam update all weights in one fused kernel."""
    if any(isinstance(module, nn.Conv2d) for module in policy.modules()):
        policy.to(memory_format=th.channels_last)  # type: ignore[call-overload]
    if type(policy.optimizer) is th.optim.Adam:
        for group in policy.optimizer.param_groups:
            if group["fused"] is None and not group["foreach"] and not group["capturable"] and not group["differentiable"]:
                group["fused"] = True
