"""Bad input gets one line that names the argument, the value and what is allowed."""

import inspect
import math
import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import NStepReplayBuffer
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.dqn.policies import DQNPolicy

import sb3_cpp
from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPI, DeepCPP, MoDQN
from sb3_cpp.deep.base import _say_what_n_steps_leave_out

BAD = [
    *[
        (cls, "alpha", value)
        for cls in (DeepCPP, CVI, MDQN)
        for value in (1.0, 1.3, -0.1, math.nan, "0.5", None, True)
    ],
    *[
        (cls, "temperature", value)
        for cls in (DeepCPP, CVI, MDQN, MoDQN)
        for value in (0.0, -1.0, math.inf, math.nan)
    ],
    *[
        (cls, "zeta", value)
        for cls in (DeepCPP, DeepCPI)
        for value in (-0.1, 1.1, "unknown", math.nan, None)
    ],
    (DeepCPI, "zeta", "dcpp"),
    *[
        (cls, rho, value)
        for cls in (DeepCPP, DeepCPI)
        for rho in ("rho1", "rho2")
        for value in (-0.1, 1.0, 2.0)
    ],
    *[(cls, "r_max", value) for cls in (DeepCPP, DeepCPI) for value in (0.0, -1.0, math.inf)],
    (DeepCPP, "error_bound", -0.1),
    (DeepCPP, "projection_coef", -1.0),
    (CautiousMDQN, "munchausen_clip", 0.5),
    (CautiousMDQN, "tau", 0.5),
    *[(CautiousMDQN, "huber_threshold", value) for value in (0.0, -1.0, math.inf, None)],
    *[(CautiousMDQN, "zeta", value) for value in (-0.1, 1.1, "dcpp", math.nan, None)],
    *[(DeepCPP, "zeta", value) for value in ("measured", "linear_cpp", "typical")],
    (CVI, "backup", "max"),
    (MDQN, "munchausen_clip", 0.5),
    (MoDQN, "momentum", 0.0),
    (MoDQN, "momentum", 1.5),
    (MoDQN, "kappa", 0.0),
    (MoDQN, "momentum_floor", -0.5),
    *[
        (cls, "n_quantiles", value)
        for cls in (DeepCPP, CautiousMDQN, CVI, MDQN, MoDQN, DeepCPI)
        for value in (-1, 2.0, "5", None, True)
    ],
    *[(cls, "loss", "l3") for cls in (DeepCPP, CVI, MDQN, MoDQN, DeepCPI)],
    *[(cls, "behaviour", "random") for cls in (DeepCPP, CVI, MDQN, MoDQN, DeepCPI)],
]


@pytest.mark.parametrize(("cls", "name", "value"), BAD)
def test_bad_arguments_are_named_with_their_value_and_the_allowed_range(cls, name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got {value!r}$"):
        cls("MlpPolicy", "CartPole-v1", **{name: value})


def test_numpy_numbers_and_integers_are_numbers():
    model = DeepCPP(
        "MlpPolicy", "CartPole-v1", alpha=np.float32(0.5), temperature=1, zeta=1, buffer_size=10
    )
    assert (model.alpha, model.temperature, model.zeta) == (0.5, 1.0, 1.0)


def test_continuous_actions_are_refused(case):
    with pytest.raises(ValueError, match=r"env must have a Discrete action space, got Box\("):
        case.make(env="Pendulum-v1")


@pytest.mark.parametrize("cls", [DeepCPP, CVI, MDQN, CautiousMDQN])
def test_n_step_returns_say_once_what_they_leave_out(cls, capsys):
    _say_what_n_steps_leave_out.cache_clear()
    kwargs = {"replay_buffer_class": NStepReplayBuffer, "buffer_size": 100}
    for arguments in ({"n_steps": 3}, {"n_steps": 3}, kwargs):  # the buffer's own default is 3
        cls("MlpPolicy", "CartPole-v1", **arguments)
    words = f"{cls.__name__} with n_steps=3 leaves out the entropy and KL terms of the skipped"
    said = capsys.readouterr().err
    assert said.count(words) == 1
    assert said.count("\n") == 1


@pytest.mark.parametrize("cls", [MoDQN, DeepCPI])
def test_n_step_returns_leave_nothing_out_without_regularisation(cls, capsys):
    model = cls("MlpPolicy", "CartPole-v1", n_steps=3, buffer_size=500).learn(200)
    assert model._n_updates > 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("cls", [MoDQN, DeepCPI])
def test_n_step_returns_are_discounted_as_the_model_says(cls):
    with pytest.raises(
        ValueError, match=r"gamma of replay_buffer_kwargs must be the model's, 0\.9, .* got 0\.99"
    ):
        cls(
            "MlpPolicy",
            "CartPole-v1",
            gamma=0.9,
            replay_buffer_class=NStepReplayBuffer,
            buffer_size=100,
        )
    kwargs = {"n_steps": 3, "gamma": 0.9}
    model = cls(
        "MlpPolicy",
        "CartPole-v1",
        gamma=0.9,
        replay_buffer_class=NStepReplayBuffer,
        replay_buffer_kwargs=kwargs,
        buffer_size=100,
    )
    assert model.replay_buffer.n_steps == 3


class Choosy(FlattenExtractor):
    def __init__(self, observation_space):
        assert observation_space.shape == (5,)
        super().__init__(observation_space)


def test_an_assertion_without_words_stays_what_it_is(case):
    with pytest.raises(AssertionError):
        case.make(policy_kwargs={"features_extractor_class": Choosy})


@pytest.mark.parametrize("cls", [MoDQN, DeepCPI])
def test_a_policy_without_acting_network_is_refused(cls):
    with pytest.raises(ValueError, match=f"policy must be .* for {cls.__name__}, got DQNPolicy"):
        cls(DQNPolicy, "CartPole-v1")


@pytest.mark.parametrize("cls", [DeepCPP, CVI, MDQN])
def test_sb3s_own_policy_class_is_welcome(cls):
    assert cls(DQNPolicy, "CartPole-v1", buffer_size=200).learn(150)._n_updates > 0


def test_unknown_arguments_are_refused(algorithm):
    with pytest.raises(TypeError, match="lerning_rate"):
        algorithm.make(lerning_rate=1e-3)


def test_signature_shows_dqns_arguments_in_dqns_order_then_our_own(algorithm):
    ours = list(inspect.signature(algorithm.cls).parameters)
    theirs = [name for name in inspect.signature(DQN).parameters if name != "_init_setup_model"]
    assert ours[: len(theirs)] == theirs
    assert ours[-1] == "_init_setup_model"
    assert {"loss", "behaviour"} < set(ours[len(theirs) :])


SCRIPT = """\
import numpy as np
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_cpp import CVI, MDQN, CautiousMDQN, CautiousSAC, DeepCPI, DeepCPP, MoDQN, RegularizedDQN

model: DeepCPP = DeepCPP("MlpPolicy", "CartPole-v1", learning_rate=1e-3, zeta=0.5).learn(500)
action, _ = model.predict(np.zeros(4, dtype=np.float32), deterministic=True)
env = model.get_env()
assert env is not None
print(action, evaluate_policy(model, env), model.q_values(np.zeros(4, dtype=np.float32)))
"""


@pytest.mark.slow
def test_type_checkers_report_a_misspelt_argument(tmp_path):
    """mypy --strict on a user's script: one error for each algorithm, and none beside them."""
    names = [*(cls.__name__ for cls in sb3_cpp.ALGORITHMS.values()), "RegularizedDQN"]
    lines = [f'{name}("MlpPolicy", "CartPole-v1", learnig_rate=1e-3)' for name in names]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\n".join(lines) + "\n")
    root = Path(sb3_cpp.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", script.name],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(root)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    first = len(SCRIPT.splitlines()) + 1
    assert len(errors) == len(names), done.stdout + done.stderr
    for line, (name, error) in enumerate(zip(names, errors), start=first):
        assert error.startswith(f"script.py:{line}: error: Unexpected keyword argument")
        assert f'"learnig_rate" for "{name}"' in error


def test_positional_arguments_follow_dqn(algorithm):
    model = algorithm.cls("MlpPolicy", "CartPole-v1", 3e-4, 777)
    assert (model.learning_rate, model.buffer_size) == (3e-4, 777)


class BrokenReward(gym.Wrapper):
    """Not-a-number rewards from the given step on."""

    def __init__(self, env, after):
        super().__init__(env)
        self.left = after

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        self.left -= 1
        return observation, (reward if self.left > 0 else math.nan), terminated, truncated, info


def test_a_non_finite_loss_stops_before_the_weights_change(case):
    model = case.make(
        env=BrokenReward(gym.make("CartPole-v1"), after=60), learning_starts=200, batch_size=64
    )
    before = {key: value.clone() for key, value in model.policy.state_dict().items()}
    with pytest.raises(
        ValueError, match=rf"{case.cls.__name__} at update 1: non-finite loss \(.*value = nan"
    ):
        model.learn(400)
    after = model.policy.state_dict()
    assert all(th.equal(before[key], after[key]) for key in before)
