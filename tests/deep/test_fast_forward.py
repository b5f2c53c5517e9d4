"""Running a network layer by layer: the same numbers, and nobody's hooks are passed over."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from stable_baselines3.dqn.policies import QNetwork
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from sb3_cpp import DeepCPP
from sb3_cpp.deep import fast
from sb3_cpp.deep.fast import is_known, run, run_preprocessed
from sb3_cpp.training.environments import MinAtarCNN

IMAGE = spaces.Box(0, 255, (4, 84, 84), np.uint8)
BOARD = spaces.Box(0, 1, (4, 10, 10), np.bool_)
VECTOR = spaces.Box(-1.0, 1.0, (2, 3), np.float32)


class Doubled(FlattenExtractor):
    """A user's own: its forward pass is not that of its parts."""

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return 2.0 * super().forward(observations)


@pytest.mark.parametrize(
    ("extractor", "space", "activation"),
    [
        (NatureCNN, IMAGE, nn.ReLU),
        (MinAtarCNN, BOARD, nn.ReLU),
        (FlattenExtractor, VECTOR, nn.ReLU),
        (FlattenExtractor, VECTOR, nn.Tanh),
        (Doubled, VECTOR, nn.ReLU),
    ],
)
def test_a_network_gives_the_same_values_and_gradients(
    extractor, space, activation, monkeypatch
) -> None:
    monkeypatch.setattr(fast, "mkl_is_slow", lambda: False)  # oneDNN rounds differently
    features = extractor(space)
    network = QNetwork(space, spaces.Discrete(3), features, features.features_dim, [8], activation)
    observations = th.rand(5, *space.shape)

    def gradients(values: th.Tensor) -> list[th.Tensor]:
        return [values, *th.autograd.grad(values.square().sum(), list(network.parameters()))]

    plain = gradients(network.q_net(network.features_extractor(observations)))
    for ours, theirs in zip(gradients(run_preprocessed(network, observations)), plain, strict=True):
        assert th.equal(ours, theirs)


@pytest.mark.skipif(not th.backends.mkldnn.is_available(), reason="torch without oneDNN")
@pytest.mark.parametrize("bias", [True, False])
def test_large_linear_layers_by_one_dnn_agree_up_to_rounding(bias, monkeypatch) -> None:
    layer, x = nn.Linear(300, 128, bias=bias), th.randn(64, 300, requires_grad=True)
    results = []
    for slow in (False, True):
        monkeypatch.setattr(fast, "mkl_is_slow", lambda slow=slow: slow)
        values = run(layer, x)
        assert ("OneDnn" in values.grad_fn.name()) is slow
        gradients = th.autograd.grad(values.square().sum(), [x, *layer.parameters()])
        results.append([values, *gradients])
    for plain, ours in zip(*results, strict=True):
        assert th.allclose(plain, ours, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_a_convolution_keeps_its_settings(mode) -> None:
    layer = nn.Conv2d(
        4, 6, 3, stride=2, padding=1, dilation=2, groups=2, bias=False, padding_mode=mode
    )
    x = th.rand(2, 4, 9, 9)
    assert th.equal(run(layer, x), layer(x))


def make_model() -> DeepCPP:
    return DeepCPP("MlpPolicy", gym.make("CartPole-v1"), learning_starts=10, batch_size=4, seed=0)


@pytest.mark.parametrize(
    "part", ["", "q_net.0", "q_net", "features_extractor", "features_extractor.flatten"]
)
@pytest.mark.parametrize("network", ["q_net", "q_net_target"])
def test_a_hook_on_any_part_is_called_while_learning(network, part) -> None:
    model, calls = make_model(), []
    getattr(model, network).get_submodule(part).register_forward_hook(lambda *_: calls.append(part))
    model.learn(40)
    assert calls


def test_a_hook_on_all_modules_is_called_while_learning() -> None:
    model, kinds = make_model(), set()
    with register_module_forward_hook(lambda module, *_: kinds.add(type(module).__name__)):
        model.learn(40)
    assert {"Linear", "ReLU", "FlattenExtractor", "QNetwork"} <= kinds


def test_a_hook_changes_what_is_learned_by_rounding_only() -> None:
    def learned(hooked: bool) -> dict[str, th.Tensor]:
        model = make_model()
        if hooked:
            model.q_net.register_forward_hook(lambda *_: None)
        return model.learn(60).policy.state_dict()

    th.testing.assert_close(learned(True), learned(False), rtol=1e-4, atol=1e-6)


def test_a_forward_of_a_layers_own_and_a_weight_that_is_no_parameter_are_respected() -> None:
    x = th.rand(2, 4)
    layer = nn.Linear(4, 3)
    layer.forward = lambda x: x + 1.0  # type: ignore[method-assign]
    assert th.equal(run(layer, x), x + 1.0)
    layer = nn.Linear(4, 3)
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    assert th.equal(run(layer, x), layer(x))


def test_a_layer_that_is_replaced_is_used() -> None:
    network = make_model().q_net
    network.q_net[0] = nn.Linear(4, 64)
    observations = th.rand(5, 4)
    assert th.equal(run_preprocessed(network, observations), network(observations))


def test_a_class_names_its_layers_and_a_subclass_does_not_inherit_that() -> None:
    class Louder(MinAtarCNN):
        def forward(self, observations: th.Tensor) -> th.Tensor:
            return 2 * super().forward(observations)

    assert is_known(MinAtarCNN(BOARD))
    assert not is_known(Louder(BOARD))
