"""The fast path computes the same, up to float rounding."""

import numpy as np
import pytest
import torch as th
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_cpp import RegularizedDQN


def image_batch(n_actions: int = 4, n: int = 8) -> ReplayBufferSamples:
    rng = np.random.default_rng(0)
    images = [th.as_tensor(rng.integers(0, 256, (n, 2, 40, 40), dtype=np.uint8)) for _ in range(2)]
    column = lambda x: th.as_tensor(np.asarray(x, dtype=np.float32).reshape(-1, 1))  # noqa: E731
    actions = th.as_tensor(rng.integers(n_actions, size=(n, 1)))
    return ReplayBufferSamples(images[0], actions, images[1], column(rng.integers(2, size=n)), column(rng.normal(size=n)))


def make(case, fast, **kwargs):
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=2, discrete=True, channel_first=True)
    return case.make("CnnPolicy", env, fast=fast, **kwargs)


def test_fast_and_plain_agree_on_targets_losses_and_gradients_of_images(case):
    models = [make(case, fast) for fast in (True, False)]
    results = []
    for model in models:
        samples = image_batch(model.action_space.n)
        for _ in range(2):  # twice: the kept buffer must not leak from one batch to the next
            batch = model._make_batch(samples)
            with th.no_grad():
                model._update_statistics(batch)
                target = model._target(batch)
            losses = model._losses(batch, target)
        model.policy.optimizer.zero_grad()
        sum(losses.values()).backward()
        gradients = [p.grad for online, _ in model._network_pairs() for p in online.parameters()]
        results.append([target, *losses.values(), *gradients])
    for fast, plain in zip(*results):
        assert th.allclose(fast, plain, rtol=1e-3, atol=1e-5)


def test_fast_and_plain_agree_after_training_on_vectors(case):
    fast, plain = (case.make(fast=fast, learning_rate=1e-4).learn(120) for fast in (True, False))
    assert fast._n_updates == plain._n_updates > 10
    for key, value in plain.policy.state_dict().items():
        assert th.allclose(fast.policy.state_dict()[key], value, atol=1e-5)


def test_fast_is_the_default_of_the_algorithms_but_not_of_the_parity_base(case):
    assert case.make().fast
    assert not RegularizedDQN("MlpPolicy", "CartPole-v1", buffer_size=10).fast


def test_fast_path_uses_fused_adam_and_channels_last(case):
    fast, plain = make(case, True), make(case, False)
    assert all(group["fused"] for group in fast.policy.optimizer.param_groups)
    assert not any(group["fused"] for group in plain.policy.optimizer.param_groups)
    weight = fast.q_net.features_extractor.cnn[0].weight
    assert weight.is_contiguous(memory_format=th.channels_last)


def test_a_users_optimiser_is_left_alone(algorithm):
    model = algorithm.make(policy_kwargs={"optimizer_class": th.optim.RMSprop})
    assert "fused" not in model.policy.optimizer.param_groups[0]
    model = algorithm.make(policy_kwargs={"optimizer_kwargs": {"foreach": True}})
    assert not model.policy.optimizer.param_groups[0]["fused"]


def test_dictionaries_take_the_plain_way(algorithm):
    env = DummyVecEnv([lambda: SimpleMultiObsEnv(random_start=False, discrete_actions=True)])
    model = algorithm.make("MultiInputPolicy", env, buffer_size=50)
    assert model._preprocessor is None


@pytest.mark.parametrize("fast", [True, False])
def test_target_networks_are_run_once_per_batch(case, fast):
    model = make(case, fast)
    calls = []
    for pair in model._network_pairs():
        pair[1].features_extractor.register_forward_hook(lambda module, *_: calls.append(module))
    batch = model._make_batch(image_batch(model.action_space.n))
    with th.no_grad():
        model._update_statistics(batch)
        target = model._target(batch)
    model._losses(batch, target)
    assert len(calls) == len(model._network_pairs()) + (0 if fast else len(model._joint_networks()))
