"""The compiled gradient step: the same hooks, the same numbers up to rounding, the same resume."""

import copy
from pathlib import Path

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

from sb3_cpp import MDQN, CautiousMDQN, CheckpointCallback, DeepCPP
from sb3_cpp.deep import base, compiled
from sb3_cpp.deep.compiled import has_compiler
from sb3_cpp.training.environments import MinAtarCNN

from .conftest import CASES

# Compiling takes seconds, so these tests share one graph as far as they can (same algorithm, same
# shapes), in one process, which keeps it in torch's cache
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("compiled"),
    pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler"),
]
SMALL = {
    "buffer_size": 1000,
    "learning_starts": 40,
    "target_update_interval": 40,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [16]},
    "seed": 0,
    "device": "cpu",
}


def make(cls=CautiousMDQN, env="CartPole-v1", compile=True, **kwargs):
    env = gym.make(env) if isinstance(env, str) else env
    return cls("MlpPolicy", env, compile=compile, **{**SMALL, **kwargs})


def weights(model):
    return th.cat([p.detach().flatten() for p in model.policy.parameters()])


# Two losses; a unit; two networks; quantiles
@pytest.mark.parametrize("name", ["cpp_weighted", "cmdqn", "cpi", "cpp_quantiles"])
def test_compiled_and_eager_updates_agree(name, tmp_path: Path):
    models, headers = [], []
    for choice in (False, True):
        model = make(CASES[name].cls, compile=choice, **CASES[name].kwargs)
        model.set_logger(configure(str(tmp_path / str(choice)), ["csv"]))
        models.append(model.learn(200, log_interval=1))
        headers.append((tmp_path / str(choice) / "progress.csv").read_text().splitlines()[0])
    eager, traced = models
    assert traced._compiled is not None
    assert eager._compiled is None
    assert th.allclose(weights(traced), weights(eager), atol=2e-3)
    first, second = (m.policy.optimizer.state_dict()["state"] for m in models)
    assert [s["step"].item() for s in first.values()] == [s["step"].item() for s in second.values()]
    for quantity, value in eager.iteration_record.items():
        assert traced.iteration_record[quantity] == pytest.approx(value, rel=0.05, abs=1e-9)
    assert "train/loss" in headers[0]
    assert set(headers[0].split(",")) == set(headers[1].split(","))


class Board(gym.Env):
    """Random boards, as MinAtar's; the action is right if it is the first cell of the board."""

    observation_space = gym.spaces.Box(0, 1, (2, 6, 6), bool)
    action_space = gym.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.board = self.np_random.random((2, 6, 6)) < 0.3
        return self.board, {}

    def step(self, action):
        reward = float(action == self.board[0, 0, 0])
        self.board = self.np_random.random((2, 6, 6)) < 0.3
        return self.board, reward, bool(self.np_random.random() < 0.1), False, {}


def make_board_model(cls=DeepCPP, **kwargs):
    features = {"features_extractor_class": MinAtarCNN, "net_arch": []}
    return cls("CnnPolicy", Board(), **{**SMALL, "policy_kwargs": features, **kwargs})


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 0.001), ("bf16", 0.1)])
def test_a_convolution_of_boards_is_compiled_as_a_product(precision, tolerance):
    start = weights(make_board_model())
    eager, traced = (
        make_board_model(compile=choice, precision=precision).learn(120) for choice in (False, True)
    )
    assert traced._compiled is not None
    # Adam turns the rounding of small gradients into steps, the more so in bfloat16
    difference = (weights(traced) - weights(eager)).norm()
    assert difference < tolerance * (weights(eager) - start).norm()


def test_many_steps_per_call_draw_the_batches_that_eager_steps_draw():
    eager, traced = (
        make(compile=choice, train_freq=8, gradient_steps=8).learn(160) for choice in (False, True)
    )
    assert traced._n_updates == eager._n_updates > 100
    assert th.allclose(weights(traced), weights(eager), atol=2e-3)


def test_a_compiled_run_is_resumed_to_the_bit(tmp_path: Path):
    whole = make(seed=1).learn(240, callback=CheckpointCallback(tmp_path / "a", save_freq=80))
    make(seed=1).learn(120, callback=CheckpointCallback(tmp_path / "b", save_freq=80))
    resumed = CautiousMDQN.resume(tmp_path / "b")
    resumed.learn(240 - resumed.num_timesteps, reset_num_timesteps=False)
    assert resumed._compiled is not None
    assert th.equal(weights(resumed), weights(whole))
    assert resumed.iteration_record == whole.iteration_record


class BrokenReward(gym.Wrapper):
    def __init__(self, env, after):
        super().__init__(env)
        self.left = after

    def step(self, action):
        observation, reward, *rest = super().step(action)
        self.left -= 1
        return (observation, reward if self.left > 0 else np.nan, *rest)


def q_weights(model):
    return th.cat([p.detach().flatten() for p in model.q_net.parameters()])


def test_a_non_finite_loss_stops_before_the_weights_change():
    env = BrokenReward(gym.make("CartPole-v1"), after=100)
    model = make(env=env)
    seen = []
    original = model.train

    def train(*args, **kwargs):
        seen.append(q_weights(model))
        return original(*args, **kwargs)

    model.train = train
    with pytest.raises(
        ValueError, match=r"CautiousMDQN at update \d+: non-finite loss \(value = nan"
    ):
        model.learn(400)
    assert th.equal(q_weights(model), seen[-1])
    assert len(seen) > 5


class Undecided(nn.Module):
    """Cannot be traced: what it computes depends on its values."""

    def forward(self, x):
        return x if x.sum().item() > 0 else 2 * x


def test_a_network_that_cannot_be_compiled_is_trained_eagerly_and_says_so(capsys, monkeypatch):
    monkeypatch.setattr(base, "has_modes", lambda network: False)
    kwargs = {**SMALL, "policy_kwargs": {"net_arch": [8], "activation_fn": Undecided}}
    eager, tried = (
        MDQN("MlpPolicy", "CartPole-v1", compile=choice, **kwargs).learn(120)
        for choice in (False, True)
    )
    assert "MDQN is not compiled: " in capsys.readouterr().err
    assert th.equal(weights(tried), weights(eager))


def test_without_a_compiler_or_the_fast_path_it_says_so(capsys, monkeypatch):
    MDQN("MlpPolicy", "CartPole-v1", compile=True, fast=False, **SMALL).learn(60)
    assert "not compiled: it needs the fast path" in capsys.readouterr().err
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    MDQN("MlpPolicy", env, compile=True, **SMALL).learn(60)
    assert "an environment without VecNormalize" in capsys.readouterr().err
    monkeypatch.setattr(compiled, "has_compiler", lambda: False)
    MDQN("MlpPolicy", "CartPole-v1", compile=True, **SMALL).learn(60)
    assert "not compiled: it needs a C++ compiler" in capsys.readouterr().err


def on(model, learn):
    """Continue a model as it is, eagerly or compiled."""
    learn(model)
    return model.learn(60, reset_num_timesteps=False)


def test_a_copy_of_a_compiled_model_learns_on():
    model = make(seed=1).learn(120)
    pickled, before = cloudpickle.loads(cloudpickle.dumps(model)), weights(model)
    assert th.equal(weights(pickled), before)
    other = on(copy.deepcopy(model), lambda _: None)
    assert not th.equal(weights(other), before)
    assert th.equal(weights(model), before)
    steps = [s["step"].item() for s in other.policy.optimizer.state_dict()["state"].values()]
    assert set(steps) == {other._n_updates}


def test_frozen_weights_stay_as_they_are(capsys):
    model = make(seed=1).learn(120)
    layer = model.q_net.q_net[0].requires_grad_(False)
    frozen = layer.weight.clone()
    on(model, lambda _: None)
    assert th.equal(layer.weight, frozen)
    assert "not compiled: some of its weights are frozen" in capsys.readouterr().err


def test_arguments_that_change_between_two_learns_are_in_the_new_graph():
    def change(model):
        model.gamma, model.max_grad_norm = 0.0, 0.01

    eager, traced, unchanged = (
        on(make(compile=choice, seed=1).learn(120), action)
        for choice, action in ((False, change), (True, change), (False, lambda _: None))
    )
    assert traced._compiled is not None
    assert th.allclose(weights(traced), weights(eager), atol=2e-3)
    assert not th.allclose(weights(traced), weights(unchanged), atol=2e-3)


class Anneal(BaseCallback):
    def _on_step(self):
        if self.num_timesteps == 150:
            self.model.gamma = 0.0
        return True


def test_an_argument_that_a_callback_changes_has_its_effect(capsys):
    eager, traced = (
        make(compile=choice, seed=1).learn(240, callback=Anneal()) for choice in (False, True)
    )
    assert th.allclose(weights(traced), weights(eager), atol=2e-3)
    assert "goes on without its compiled gradient step" in capsys.readouterr().err


def test_parameters_without_a_state_of_adam_are_compiled_again():
    model = make(seed=1)
    start = copy.deepcopy(model.get_parameters())
    model.learn(120)
    model.set_parameters(start)
    on(model, lambda _: None)
    assert model._compiled is not None
    steps = [s["step"].item() for s in model.policy.optimizer.state_dict()["state"].values()]
    assert len(set(steps)) == 1
    assert 0 < steps[0] <= 60


class Masked(gym.Wrapper):
    def action_masks(self):
        return np.array([True, True])


def test_masks_that_come_later_are_compiled_in():
    model = make(seed=1).learn(120)
    model.set_env(Masked(gym.make("CartPole-v1")))
    on(model, lambda _: None)
    assert model._compiled is not None


@pytest.mark.parametrize(("steps", "expected"), [(1000, False), (2_000_000, True)])
def test_long_runs_are_compiled_by_default(steps, expected):
    model = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    model._setup_learn(steps)
    assert model._compile_now is expected


@pytest.mark.parametrize(("padding", "expected"), [(0, True), (1, False)])
def test_networks_with_other_convolutions_are_not_compiled_by_default(padding, expected):
    model = make_board_model()
    for network in (model.q_net, model.q_net_target):
        network.features_extractor.layers[0].padding = (padding, padding)
    model._setup_learn(2_000_000)
    assert model._compile_now is expected
