"""A saved model, loaded with other settings than it was saved with."""

from pathlib import Path

import gymnasium as gym
import pytest
import torch as th
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.logger import configure

from sb3_cpp import MDQN, DeepCPI, DeepCPP

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


@pytest.mark.parametrize("cls", [DeepCPP, DeepCPI])
def test_zeta_and_its_decays_can_be_changed(
    tmp_path: Path, cls: type[DeepCPP] | type[DeepCPI]
) -> None:
    model = cls("MlpPolicy", "CartPole-v1", **SMALL).learn(230)
    model.save(tmp_path / "model")
    env = gym.make("CartPole-v1")
    fixed = cls.load(tmp_path / "model", env=env, device="cpu", zeta=0.5).learn(
        120, reset_num_timesteps=False
    )
    assert fixed.zeta == fixed.iteration_record["zeta"] == 0.5
    slower = cls.load(tmp_path / "model", device="cpu", rho1=0.5, r_max=2.0)
    assert (slower.caution.tracker.rho1, slower.caution.tracker.rho2, slower.caution.r_max) == (
        0.5,
        0.9999,
        2.0,
    )
    assert th.equal(slower.caution.tracker.mean, model.caution.tracker.mean)
    assert (slower.zeta, slower.caution.rule) == (model.zeta, model.caution.rule)
    with pytest.raises(ValueError, match=r"zeta must be a number in .* got 'none'"):
        cls.load(tmp_path / "model", device="cpu", zeta="none")
    with pytest.raises(ValueError, match=r"rho2 must be .* got 1.5"):
        cls.load(tmp_path / "model", device="cpu", rho2=1.5)


def test_what_is_not_allowed_is_refused_when_loading_too(tmp_path: Path) -> None:
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).save(tmp_path / "model")
    for name, value in {
        "form": "typo",
        "averaging": -3,
        "behaviour": "x",
        "alpha": 3.0,
        "munchausen_clip": 5.0,
        "loss": "l1",
        "temperature": 0.0,
        "projection_coef": -1.0,
    }.items():
        with pytest.raises(ValueError, match=f"{name} must be .* got {value!r}"):
            DeepCPP.load(tmp_path / "model", device="cpu", **{name: value})
    assert DeepCPP.load(tmp_path / "model", device="cpu", fast=None).fast is True


def test_another_zeta_rule_does_not_inherit_measurements_of_something_else(tmp_path: Path) -> None:
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(230).save(tmp_path / "model")
    env = gym.make("CartPole-v1")
    loaded = DeepCPP.load(tmp_path / "model", env=env, device="cpu", zeta="measured")
    zeta = loaded.zeta
    assert loaded.caution.tracker.mean is None
    loaded.learn(
        51
    )  # a target update before the first gradient step: nothing is known, nothing changes
    assert (loaded.zeta, loaded.iteration_record) == (
        zeta,
        {**loaded.iteration_record, "zeta": zeta},
    )
    assert "m_K" not in loaded.iteration_record
    loaded.learn(200, reset_num_timesteps=False)
    assert loaded.iteration_record["m_K"] == pytest.approx(
        float(loaded.caution.tracker.mean), rel=0.5
    )


def test_averaging_can_be_switched_off_and_on(tmp_path: Path) -> None:
    model = DeepCPP("MlpPolicy", "CartPole-v1", averaging=100, **SMALL).learn(230)
    model.save(tmp_path / "model")
    newest = DeepCPP.load(tmp_path / "model", device="cpu", averaging=0)
    assert newest.average_net is None
    newest.save(tmp_path / "newest")
    again = DeepCPP.load(
        tmp_path / "newest", env=gym.make("CartPole-v1"), device="cpu", averaging=50
    )
    for mine, learned in zip(again.average_net.parameters(), model.q_net.parameters(), strict=True):
        assert th.equal(mine, learned)
    again.learn(60, reset_num_timesteps=False)
    assert not th.equal(next(again.average_net.parameters()), next(again.q_net.parameters()))
    kept = DeepCPP.load(tmp_path / "model", device="cpu", averaging=70)
    assert th.equal(next(kept.average_net.parameters()), next(model.average_net.parameters()))
    other = DeepCPP("MlpPolicy", "CartPole-v1", averaging=0, **SMALL)
    other.set_parameters(str(tmp_path / "model.zip"), device="cpu")
    assert th.equal(next(other.q_net.parameters()), next(model.q_net.parameters()))
