"""The weight average changes nothing about learning, and is saved wherever the network is."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_cpp import MDQN, CheckpointCallback, DeepCPI, DeepCPP, MoDQN, RegularizedDQN
from sb3_cpp.deep.averaging import WeightAverage

ALGORITHMS = [DeepCPP, MDQN, MoDQN, DeepCPI, RegularizedDQN]


def make(algorithm=DeepCPP, averaging=20, **kwargs):
    return algorithm(
        "MlpPolicy",
        gym.make("CartPole-v1"),
        learning_starts=20,
        batch_size=8,
        target_update_interval=40,
        averaging=averaging,
        policy_kwargs={"net_arch": [8]},
        seed=0,
        **kwargs,
    )


def weights(network) -> th.Tensor:
    return th.cat([p.detach().flatten() for p in network.parameters()])


def test_at_first_it_is_the_mean_and_then_it_forgets() -> None:
    network = th.nn.Linear(1, 1, bias=False)
    average, values = WeightAverage(network, horizon=4), []
    for step in range(1, 9):
        network.weight.data.fill_(float(step))
        average.update(step)
        values.append(average.network.weight.item())
    assert values[:4] == pytest.approx([1.0, 1.5, 2.0, 2.5])
    expected = 2.5
    for step in range(5, 9):
        expected += (step - expected) / 4
        assert values[step - 1] == pytest.approx(expected)


def test_over_long_horizons_it_looks_a_hundred_times() -> None:
    network = th.nn.Linear(1, 1, bias=False)
    average, looked = WeightAverage(network, horizon=1000), []
    for step in range(1, 1001):
        network.weight.data.fill_(float(step))
        before = average.network.weight.item()
        average.update(step)
        looked.append(average.network.weight.item() != before)
    assert sum(looked) == 100
    # The mean of the weights at its updates
    assert average.network.weight.item() == pytest.approx(np.mean(range(10, 1001, 10)))


def test_running_statistics_are_those_of_the_newest() -> None:
    network = th.nn.BatchNorm1d(2)
    average = WeightAverage(network, horizon=10)
    network(th.rand(8, 2))
    average.update(5)
    assert th.equal(average.network.running_mean, network.running_mean)
    assert not average.network.training
    assert network.training


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_learned_does_not_depend_on_it(algorithm) -> None:
    with_average, without = (make(algorithm, averaging).learn(300) for averaging in (20, 0))
    assert not hasattr(without.policy.average, "network")
    for name, value in without.policy.state_dict().items():
        assert th.equal(with_average.policy.state_dict()[name], value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_deterministic_actions_are_those_of_the_averaged_acting_network(algorithm) -> None:
    model = make(algorithm).learn(300)
    online, average = model._acting_network(), model.policy.deployed_network
    assert not th.equal(weights(online), weights(average))
    with th.no_grad():
        average.q_net[-1].bias.copy_(th.tensor([0.0, 1e6]))
        online.q_net[-1].bias.copy_(th.tensor([1e6, 0.0]))
    model.exploration_rate = 0.0
    observations = np.zeros((3, 4), dtype=np.float32)
    assert model.predict(observations, deterministic=True)[0].tolist() == [1, 1, 1]
    assert model.predict(observations[0], deterministic=True)[0] == 1
    assert model.predict(observations)[0].tolist() == [0, 0, 0]  # how it acts while it learns
    assert evaluate_policy(model, gym.make("CartPole-v1"), 1, deterministic=True)[0] < 15.0


@pytest.mark.parametrize("averaging", [0, 20])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_model_policy_saved_policy_and_weights_choose_the_same_actions(
    algorithm, averaging, tmp_path: Path
) -> None:
    model = make(algorithm, averaging).learn(300)
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    expected = model.predict(observations, deterministic=True)[0]
    assert 0 < expected.mean() < 1, "the test must see both actions"
    model.policy.save(tmp_path / "policy")
    model.save_weights(tmp_path / "weights")
    model.save(tmp_path / "model")
    for other in (
        model.policy,
        type(model.policy).load(tmp_path / "policy"),
        make(algorithm, averaging, learning_rate=1e-3).load_weights(tmp_path / "weights"),
        algorithm.load(tmp_path / "model"),
    ):
        assert np.array_equal(other.predict(observations, deterministic=True)[0], expected)


def test_a_horizon_of_one_is_the_newest_network() -> None:
    model = make(averaging=1).learn(100)
    assert th.equal(weights(model.policy.deployed_network), weights(model.q_net))


def test_images_are_averaged_in_the_layout_they_are_learned_in() -> None:
    space = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)

    class Pictures(gym.Env):
        observation_space, action_space = space, gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.integers(0, 256, space.shape, dtype=np.uint8), {}

        def step(self, action):
            return self.reset()[0], float(action), False, False, {}

    model = DeepCPP(
        "CnnPolicy",
        Pictures(),
        buffer_size=100,
        learning_starts=20,
        batch_size=4,
        averaging=1,
        seed=0,
    ).learn(40)
    assert th.equal(weights(model.policy.deployed_network), weights(model.q_net))


def test_it_is_saved_and_loaded_with_the_model(tmp_path: Path) -> None:
    model = make().learn(200)
    model.save(tmp_path / "model")
    loaded = DeepCPP.load(tmp_path / "model", env=gym.make("CartPole-v1"))
    assert th.equal(weights(loaded.policy.deployed_network), weights(model.policy.deployed_network))
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    expected = model.predict(observations, deterministic=True)[0]
    assert np.array_equal(loaded.predict(observations, deterministic=True)[0], expected)
    model.save_weights(tmp_path / "weights.pt")
    other = make().load_weights(tmp_path / "weights.pt")
    assert np.array_equal(other.predict(observations, deterministic=True)[0], expected)


def test_a_resumed_run_has_the_same_average(tmp_path: Path) -> None:
    whole = make().learn(300, callback=CheckpointCallback(tmp_path / "a", save_freq=100))
    make().learn(150, callback=CheckpointCallback(tmp_path / "b", save_freq=100))
    resumed = DeepCPP.resume(tmp_path / "b")
    assert resumed.averaging == 20
    resumed.learn(300 - resumed.num_timesteps, reset_num_timesteps=False)
    assert th.equal(
        weights(resumed.policy.deployed_network), weights(whole.policy.deployed_network)
    )


@pytest.mark.parametrize("averaging", [-1, 0.5, "many"])
def test_a_horizon_that_is_no_whole_number_is_refused(averaging) -> None:
    with pytest.raises(ValueError, match="averaging must be"):
        make(averaging=averaging)
