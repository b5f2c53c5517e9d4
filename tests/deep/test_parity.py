"""With its own hooks the training loop is SB3's DQN, to the bit."""

import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_vec_env

from sb3_cpp import MoDQN, RegularizedDQN


def train(cls, n_envs: int = 1, steps: int = 1000, **kwargs):
    env = make_vec_env("CartPole-v1", n_envs=n_envs, seed=3)
    settings = {
        "seed": 1,
        "learning_starts": 100,
        "target_update_interval": 120,
        "gradient_steps": 2,
        "buffer_size": 5000,
    }
    return cls("MlpPolicy", env, device="cpu", **{**settings, **kwargs}).learn(steps)


def same_weights(a, b) -> bool:
    first, second = a.policy.state_dict(), b.policy.state_dict()
    return first.keys() == second.keys() and all(th.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("n_envs", [1, 4])
def test_default_hooks_equal_sb3_dqn_to_the_bit(n_envs, n_steps):
    ours, theirs = (train(cls, n_envs, n_steps=n_steps) for cls in (RegularizedDQN, DQN))
    assert ours._n_updates == theirs._n_updates > 100
    assert same_weights(ours, theirs)


def test_parity_can_fail():
    assert not same_weights(train(RegularizedDQN), train(DQN, gamma=0.98))


def test_parity_holds_with_batch_norm_dropout_and_a_learning_rate_schedule():
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

    class Extractor(BaseFeaturesExtractor):
        def __init__(self, observation_space):
            super().__init__(observation_space, 8)
            layers = (th.nn.Linear(4, 8), th.nn.BatchNorm1d(8), th.nn.Dropout(0.3), th.nn.ReLU())
            self.net = th.nn.Sequential(*layers)

        def forward(self, x):
            return self.net(x)

    kwargs = {
        "policy_kwargs": {"features_extractor_class": Extractor},
        "learning_rate": lambda left: 1e-3 * left,
    }
    assert same_weights(train(RegularizedDQN, **kwargs), train(DQN, **kwargs))


def test_parity_holds_for_continued_learning():
    ours, theirs = (
        train(cls).learn(300, reset_num_timesteps=False) for cls in (RegularizedDQN, DQN)
    )
    assert same_weights(ours, theirs)


def test_modqn_with_full_weight_regresses_both_networks_on_the_same_target(mdp, one_hot_env):
    """w = 1: Hhat = Qhat, so H learns what Q learns; and with H = Q the target is DQN's."""
    kwargs = {
        "policy_kwargs": {"net_arch": []},
        "buffer_size": 10,
        "device": "cpu",
        "gamma": mdp.gamma,
    }
    model = MoDQN("MlpPolicy", one_hot_env, momentum=1.0, **kwargs)
    mdp.acting, mdp.acting_target = mdp.online, mdp.target
    batch = mdp.load_into(model)
    target = model._target(batch)
    dqn = RegularizedDQN("MlpPolicy", one_hot_env, **kwargs)
    assert th.equal(target, dqn._target(mdp.load_into(dqn)))
    losses = model._losses(batch, target)
    assert losses["momentum"].item() == losses["value"].item()


def test_modqn_with_full_weight_equals_dqn_that_acts_on_its_second_network():
    """Given equal initial weights, w = 1 keeps H and Q equal to the bit, and both equal to DQN."""
    kwargs = {
        "seed": 1,
        "learning_starts": 100,
        "target_update_interval": 120,
        "buffer_size": 5000,
        "device": "cpu",
    }
    models = []
    for cls, own in ((MoDQN, {"momentum": 1.0, "fast": False}), (RegularizedDQN, {"loss": "mse"})):
        model = cls("MlpPolicy", make_vec_env("CartPole-v1", seed=3), **kwargs, **own)
        models.append(model)
    momentum, dqn = models
    start = {k: v.clone() for k, v in dqn.q_net.state_dict().items()}
    for network in (
        momentum.q_net,
        momentum.q_net_target,
        momentum.acting_net,
        momentum.acting_net_target,
    ):
        network.load_state_dict(start)
    for model in models:  # MoDQN drew more initial weights: put the generators at one place
        model.set_random_seed(5)
        model.learn(800)
    for key, value in dqn.q_net.state_dict().items():
        assert th.equal(value, momentum.q_net.state_dict()[key])
        assert th.equal(value, momentum.acting_net.state_dict()[key])
