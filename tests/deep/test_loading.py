"""A saved model, loaded with other settings than it was saved with."""

import base64
import copy
import functools
import io
import json
import pickletools
import zipfile
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import pytest
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.logger import configure

from sb3_cpp import ALGORITHMS, MDQN, CautiousMDQN, DeepCPI, DeepCPP

SMALL = {
    "buffer_size": 500,
    "learning_starts": 50,
    "target_update_interval": 50,
    "seed": 0,
    "device": "cpu",
}


@pytest.mark.parametrize("saved_fast", [True, False])
def test_adams_memory_of_images_fits_whichever_way_they_are_laid_out(
    tmp_path: Path, saved_fast: bool
) -> None:
    def make_env() -> FakeImageEnv:
        return FakeImageEnv(
            screen_height=40, screen_width=40, n_channels=2, discrete=True, channel_first=True
        )

    model = MDQN("CnnPolicy", make_env(), fast=saved_fast, train_freq=1, **SMALL).learn(60)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    steps = []
    for fast in (True, False):
        loaded = MDQN.load(tmp_path / "model", env=make_env(), fast=fast, device="cpu")
        loaded.load_replay_buffer(tmp_path / "buffer")
        loaded.set_random_seed(1)
        loaded.set_logger(configure(None, []))
        before = loaded.q_net.features_extractor.cnn[0].weight.detach().clone()
        loaded.train(1, 32)
        steps.append(loaded.q_net.features_extractor.cnn[0].weight.detach() - before)
        assert bool(loaded.policy.optimizer.param_groups[0]["fused"]) is fast
    assert th.allclose(*steps, atol=0.02 * steps[0].abs().max().item())


@pytest.mark.parametrize("cls", [DeepCPP, CautiousMDQN, DeepCPI])
def test_zeta_and_its_decays_can_be_changed(
    tmp_path: Path, cls: type[DeepCPP] | type[CautiousMDQN] | type[DeepCPI]
) -> None:
    model = cls("MlpPolicy", "CartPole-v1", **SMALL).learn(230)
    model.save(tmp_path / "model")
    env = gym.make("CartPole-v1")
    fixed = cls.load(tmp_path / "model", env=env, device="cpu", zeta=0.75).learn(
        120, reset_num_timesteps=False
    )
    assert fixed.caution.zeta == fixed.iteration_record["zeta"] == 0.75
    slower = cls.load(tmp_path / "model", device="cpu", rho1=0.5)
    assert (slower.caution.tracker.rho1, slower.caution.tracker.rho2) == (0.5, 0.9999)
    assert th.equal(slower.caution.tracker.mean, model.caution.tracker.mean)
    assert (slower.zeta, slower.caution.zeta) == (model.zeta, model.caution.zeta)
    with pytest.raises(ValueError, match=r"zeta must be a number in .* got 'none'"):
        cls.load(tmp_path / "model", device="cpu", zeta="none")
    with pytest.raises(ValueError, match=r"rho2 must be .* got 1.5"):
        cls.load(tmp_path / "model", device="cpu", rho2=1.5)


def test_what_is_not_allowed_is_refused_when_loading_too(tmp_path: Path) -> None:
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).save(tmp_path / "model")
    for name, value in {
        "averaging": -3,
        "behaviour": "x",
        "alpha": 3.0,
        "error_bound": -5.0,
        "loss": "l1",
        "temperature": 0.0,
        "projection_coef": -1.0,
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be .* got {value!r}"):
            DeepCPP.load(tmp_path / "model", device="cpu", **{name: value})
    assert DeepCPP.load(tmp_path / "model", device="cpu", fast=None).fast is True


def test_averaging_can_be_switched_off_and_on(tmp_path: Path) -> None:
    model = DeepCPP("MlpPolicy", "CartPole-v1", averaging=100, **SMALL).learn(230)
    model.save(tmp_path / "model")
    newest = DeepCPP.load(tmp_path / "model", device="cpu", averaging=0)
    assert newest.policy.average is None
    newest.save(tmp_path / "newest")
    again = DeepCPP.load(
        tmp_path / "newest", env=gym.make("CartPole-v1"), device="cpu", averaging=50
    )
    for mine, learned in zip(
        again.policy.deployed_network.parameters(), model.q_net.parameters(), strict=True
    ):
        assert th.equal(mine, learned)
    again.learn(60, reset_num_timesteps=False)
    assert not th.equal(
        next(again.policy.deployed_network.parameters()), next(again.q_net.parameters())
    )
    kept = DeepCPP.load(tmp_path / "model", device="cpu", averaging=70)
    assert th.equal(
        next(kept.policy.deployed_network.parameters()),
        next(model.policy.deployed_network.parameters()),
    )


def test_set_parameters_refuses_a_missing_average(tmp_path: Path) -> None:
    model = DeepCPP("MlpPolicy", "CartPole-v1", averaging=100, **SMALL)
    other = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    with pytest.raises(RuntimeError, match="Missing key"):
        model.set_parameters(other.get_parameters(), exact_match=True)


def half(estimate) -> float:
    return 0.5


def test_a_function_as_zeta_is_saved_by_its_name(tmp_path: Path) -> None:
    model = DeepCPP("MlpPolicy", "CartPole-v1", zeta=half, **SMALL).learn(230)
    assert model.iteration_record["zeta"] == 0.5
    model.save(tmp_path / "model")
    assert model.zeta is half
    loaded = DeepCPP.load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
    assert loaded.zeta == f"{__name__}:half"
    assert loaded.learn(120, reset_num_timesteps=False).iteration_record["zeta"] == 0.5
    model.zeta = lambda estimate: 0.5
    model.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"zeta must be a function of an imported module, got .*lambda"
    ):
        DeepCPP.load(tmp_path / "model", device="cpu")
    assert DeepCPP.load(tmp_path / "model", device="cpu", zeta=half).caution.zeta == 0.5


class Half:
    def __call__(self, estimate) -> float:
        return 0.5 * estimate.ratio


@pytest.mark.parametrize("rule", [functools.partial(half), Half(), Half().__call__])
def test_a_rule_that_no_name_leads_back_to_must_be_given_again(tmp_path: Path, rule: Any) -> None:
    model = DeepCPP("MlpPolicy", "CartPole-v1", zeta=rule, **SMALL).learn(120)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="give it again, as in load"):
        DeepCPP.load(tmp_path / "model", device="cpu")
    again = DeepCPP.load(tmp_path / "model", zeta=rule, env=gym.make("CartPole-v1"), device="cpu")
    assert again.learn(120, reset_num_timesteps=False).caution.zeta <= 0.5


@pytest.mark.parametrize("cls", [cls for cls in ALGORITHMS.values() if issubclass(cls, DQN)])
def test_parameters_of_dqn_are_taken_over_as_far_as_they_fit(tmp_path: Path, cls: Any) -> None:
    DQN("MlpPolicy", "CartPole-v1", **SMALL).learn(120).save(tmp_path / "dqn")
    dqn = DQN.load(tmp_path / "dqn", device="cpu")
    model = cls("MlpPolicy", "CartPole-v1", **SMALL)
    model.set_parameters(tmp_path / "dqn", exact_match=False)
    for ours, theirs in zip(model.q_net.parameters(), dqn.q_net.parameters(), strict=True):
        assert th.equal(ours, theirs)
    model.learn(60)


def test_an_average_starts_at_parameters_that_have_none(tmp_path: Path) -> None:
    DQN("MlpPolicy", "CartPole-v1", **SMALL).learn(120).save(tmp_path / "dqn")
    dqn = DQN.load(tmp_path / "dqn", device="cpu")
    model = MDQN("MlpPolicy", "CartPole-v1", averaging=1000, **SMALL)
    model.set_parameters(tmp_path / "dqn", exact_match=False)
    observations = th.randn(200, 4, generator=th.Generator().manual_seed(0)).numpy()
    ours, theirs = (m.predict(observations, deterministic=True)[0] for m in (model, dqn))
    assert (ours == theirs).all()


def test_what_was_not_measured_is_not_measured_after_loading() -> None:
    fresh, trained = (DeepCPP("MlpPolicy", "CartPole-v1", **SMALL) for _ in range(2))
    trained.learn(120)
    trained.set_parameters(fresh.get_parameters())
    assert trained.caution.tracker.mean is None
    assert trained.caution.tracker.maximum is None


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: cloudpickle.loads(cloudpickle.dumps(m))])
def test_a_copy_counts_adams_steps_on(how: Any) -> None:
    model = MDQN("MlpPolicy", "CartPole-v1", **SMALL).learn(120)
    other = how(model).learn(60, reset_num_timesteps=False)
    steps = [s["step"].item() for s in other.policy.optimizer.state_dict()["state"].values()]
    assert set(steps) == {other._n_updates}
    assert other._n_updates > model._n_updates


def test_a_file_of_another_algorithm_is_refused(tmp_path: Path) -> None:
    DQN("MlpPolicy", "CartPole-v1", buffer_size=10).save(tmp_path / "dqn")
    with pytest.raises(ValueError, match=r"path must be a model that DeepCPP saved .* SB3's DQN"):
        DeepCPP.load(tmp_path / "dqn")
    MDQN("MlpPolicy", "CartPole-v1", buffer_size=10).save(tmp_path / "mdqn")
    with pytest.raises(ValueError, match=r"path must be a model saved by DeepCPP .* by MDQN"):
        DeepCPP.load(tmp_path / "mdqn")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_class_of_ours_is_pickled_in_a_saved_model(tmp_path: Path, name: str) -> None:
    env = "Pendulum-v1" if name == "csac" else "CartPole-v1"
    model = ALGORITHMS[name]("MlpPolicy", env, **SMALL).learn(230)
    model.save(tmp_path / "model")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        data = json.loads(archive.read("data"))
        for member in archive.namelist():
            if member.endswith(".pth"):  # torch's loader that refuses everything but tensors
                th.load(io.BytesIO(archive.read(member)), weights_only=True)
    pickles = {key: value for key, value in data.items() if ":serialized:" in str(value)}
    assert "observation_space" in pickles, "SB3's own are pickled: the test must see pickles"
    for key, value in pickles.items():
        code = base64.b64decode(value[":serialized:"])
        named = [str(argument) for _, argument, _ in pickletools.genops(code) if argument]
        assert not any("sb3_cpp" in text for text in named), key


class OfVersion01:
    """Pickled as an object of a module that 0.1 had."""

    def __reduce__(self):
        return getattr, (ModuleNamed("sb3_cpp.zeta"), "AdvantageTracker")


class ModuleNamed:
    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self):
        return __import__, (self.name,)


def test_a_model_of_version_01_is_refused_in_one_line(tmp_path: Path) -> None:
    model = MDQN("MlpPolicy", "CartPole-v1", buffer_size=10)
    model.caution_of_01 = OfVersion01()
    model.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"path must be a model that MDQN saved with .* older version"
    ):
        MDQN.load(tmp_path / "model")
