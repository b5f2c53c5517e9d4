"""The fast path computes the same, up to float rounding."""

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from sb3_cpp import MDQN, RegularizedDQN
from sb3_cpp.deep.policies import q_values
from sb3_cpp.threads import numpy_threads
from sb3_cpp.training.environments import MinAtarCNN

from .test_compiled import Board


def image_batch(n_actions: int = 4, n: int = 8) -> ReplayBufferSamples:
    rng = np.random.default_rng(0)
    images = [th.as_tensor(rng.integers(0, 256, (n, 2, 40, 40), dtype=np.uint8)) for _ in range(2)]
    column = lambda x: th.as_tensor(np.asarray(x, dtype=np.float32).reshape(-1, 1))  # noqa: E731
    actions = th.as_tensor(rng.integers(n_actions, size=(n, 1)))
    return ReplayBufferSamples(
        images[0], actions, images[1], column(rng.integers(2, size=n)), column(rng.normal(size=n))
    )


def make(case, fast, **kwargs):
    env = FakeImageEnv(
        screen_height=40, screen_width=40, n_channels=2, discrete=True, channel_first=True
    )
    return case.make("CnnPolicy", env, fast=fast, **kwargs)


def test_fast_and_plain_agree_on_targets_losses_and_gradients_of_images(case):
    models = [make(case, fast) for fast in (True, False)]
    results = []
    for model in models:
        samples = image_batch(model.action_space.n)
        for _ in range(2):  # twice: the kept buffer must not leak from one batch to the next
            batch = model._make_batch(samples)
            with th.no_grad():
                model._statistics(batch)
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


def test_a_users_own_optimiser_is_not_replaced(algorithm):
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
        model._statistics(batch)
        target = model._target(batch)
    model._losses(batch, target)
    assert len(calls) == len(model._network_pairs()) + (0 if fast else len(model._joint_networks()))


def test_fast_and_plain_choose_the_same_actions_with_the_same_random_numbers(case):
    actions = []
    for fast in (True, False):
        model = case.make(
            fast=fast, learning_starts=0, exploration_initial_eps=0.5, exploration_final_eps=0.5
        )
        model.learn(1)
        model.set_random_seed(0)
        rng = np.random.default_rng(0)
        chosen = []
        for _ in range(50):
            model._last_obs = rng.normal(size=(1, 4)).astype(np.float32)
            chosen.append(model._sample_action(0, None, 1)[0])
        actions.append(np.array(chosen))
        assert model._acts_fast is fast
    assert np.array_equal(*actions)
    assert len(np.unique(actions[0])) == 2


def test_fast_acts_on_images_as_predict_does(case):
    model = make(
        case, True, learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0
    ).learn(1)
    rng = np.random.default_rng(0)
    for _ in range(10):
        model._last_obs = rng.integers(0, 256, (1, 2, 40, 40), dtype=np.uint8)
        assert np.array_equal(
            model._sample_action(0, None, 1)[0],
            model.predict(model._last_obs, deterministic=True)[0],
        )


def test_a_users_predict_is_asked_for_actions(algorithm):
    class Stubborn(algorithm.cls):
        def predict(self, *args, **kwargs):
            return np.array([1]), None

    model = Stubborn("MlpPolicy", "CartPole-v1", buffer_size=100, learning_starts=0, device="cpu")
    model.learn(30)
    assert (model.replay_buffer.actions[:30] == 1).all()


def test_gradients_are_clipped_as_torch_clips_them(algorithm):
    bound = 1e-3
    loose, tight = (
        algorithm.make(max_grad_norm=norm, learning_starts=1000).learn(40) for norm in (1e9, bound)
    )
    for model in (loose, tight):
        model.set_random_seed(0)
        model.train(1, 32)
    longest = 0.0
    for free, clipped in zip(loose._online_parameters, tight._online_parameters):
        longest = max(longest, nn.utils.clip_grad_norm_(free, bound).item())
        assert all(th.equal(p.grad, q.grad) for p, q in zip(free, clipped))
    assert longest > bound


def test_boards_that_are_no_images_keep_their_layout():
    from sb3_cpp.training.environments import MinAtarCNN

    env = FakeImageEnv(
        screen_height=10, screen_width=10, n_channels=3, discrete=True, channel_first=True
    )
    env.observation_space = spaces.Box(0, 1, (3, 10, 10), np.bool_)
    kwargs = {"features_extractor_class": MinAtarCNN, "net_arch": []}
    model = RegularizedDQN(
        "CnnPolicy", env, fast=True, buffer_size=100, policy_kwargs=kwargs, device="cpu"
    )
    assert model.q_net.features_extractor.layers[0].weight.is_contiguous()
    assert not model._has_modes


class Dropping(FlattenExtractor):
    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space)
        self.flatten = nn.Sequential(nn.Flatten(), nn.Dropout(0.5))


def test_a_policy_without_modes_is_not_told_of_them_and_one_with_dropout_is(case):
    def modes(model, mode: bool) -> set[bool]:
        model.policy.set_training_mode(mode)
        return {module.training for module in model._acting_network().modules()}

    assert modes(case.make(fast=True), True) == {False}
    dropping = case.make(fast=True, policy_kwargs={"features_extractor_class": Dropping})
    for mode in (True, False):
        assert modes(dropping, mode) == {mode}


class InPlace(FlattenExtractor):
    """A user's own that works on its input."""

    def forward(self, observations: th.Tensor) -> th.Tensor:
        observations -= 0.5
        return super().forward(observations)


def test_a_network_that_works_in_place_leaves_the_batch_to_the_others(case):
    model = case.make(fast=True, policy_kwargs={"features_extractor_class": InPlace}).learn(60)
    samples = model.replay_buffer.sample(8)
    batch = model._make_batch(samples)
    given = [
        (values, network, getattr(samples, state))
        for values, network, state in (
            (batch.q, model.q_net, "observations"),
            (batch.next_q, model.q_net, "next_observations"),
            (batch.target_q, model.q_net_target, "observations"),
            (batch.next_target_q, model.q_net_target, "next_observations"),
        )
    ]
    for values, network, observations in given:
        assert th.allclose(values, q_values(network(observations.clone())), atol=1e-6)


def test_a_layer_that_is_random_while_it_learns_has_modes(case):
    model = case.make(fast=True, policy_kwargs={"activation_fn": nn.RReLU})
    assert model._has_modes
    model.policy.set_training_mode(True)
    assert model.q_net.training


@pytest.mark.parametrize("n_envs", [1, 3])
def test_small_boards_are_acted_on_in_numpy_as_torch_would(n_envs):
    env = DummyVecEnv([Board] * n_envs)
    features = {"features_extractor_class": MinAtarCNN, "net_arch": [16]}
    model = MDQN("CnnPolicy", env, policy_kwargs=features, buffer_size=100, seed=0)
    model.learn(n_envs)
    assert model._numpy_network is not None
    with th.no_grad():
        expected = model.q_net(th.as_tensor(model._last_obs)).numpy()
    assert np.allclose(model._numpy_network(model._last_obs), expected, atol=1e-5)
    assert model._numpy_network.is_current()
    model.q_net.features_extractor.layers[0].register_forward_hook(print)
    assert not model._numpy_network.is_current()


def test_numpy_has_as_many_threads_as_torch_while_learning():
    """On two cores, threads of numpy's own slowed two runs beside each other to a seventh."""

    def threads():
        return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

    seen, torch_threads = [], th.get_num_threads()
    before = threads()
    assert before, "numpy's library must be one that can be asked"
    with threadpool_limits(2, "blas"):
        model = MDQN("MlpPolicy", "CartPole-v1", learning_starts=10, buffer_size=100, device="cpu")
        model.learn(40, callback=lambda *_: seen.append(threads()) or True)
        assert threads() == {2}
    assert torch_threads == 1
    assert seen[-1] == {1}
    with threadpool_limits(1, "blas"), numpy_threads(2):
        assert threads() == {1}, "somebody wanted one"
    assert threads() == before


class TwoReaders(FlattenExtractor):
    """Reads a layer's output beside the ReLU that follows it."""

    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.layers = nn.Sequential(nn.Linear(self.features_dim, 8), nn.ReLU())
        self._features_dim = 16

    def forward(self, observations):
        linear, relu = self.layers
        before = linear(super().forward(observations))
        return th.cat([before, relu(before)], dim=1)


def test_what_a_relu_reads_is_not_overwritten_for_others():
    kwargs = {"policy_kwargs": {"features_extractor_class": TwoReaders}, "seed": 0, "device": "cpu"}
    fast, plain = (
        MDQN("MlpPolicy", "CartPole-v1", fast=choice, **kwargs) for choice in (True, False)
    )
    observations = np.array([[0.1, -2.0, 0.3, 1.0], [0.0, 0.5, -0.2, -1.0]], dtype=np.float32)
    assert np.allclose(fast.q_values(observations), plain.q_values(observations), atol=1e-6)


def test_a_hook_sees_what_its_layer_computes():
    model = MDQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", learning_starts=10)
    seen = []
    layer = model.q_net.q_net[0]
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    layer.register_full_backward_hook(lambda module, given, taken: None)
    model.learn(30)
    assert min(output.min().item() for output in seen) < 0.0
