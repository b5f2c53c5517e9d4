"""CautiousSAC: SB3's SAC in the limit, the mixture in closed form, and what SB3 demands of SAC."""

import inspect
import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import FakeImageEnv, SimpleMultiObsEnv
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn
from torch.distributions import Normal, TransformedDistribution, kl_divergence
from torch.distributions.transforms import TanhTransform

from sb3_cpp import CautiousSAC, CheckpointCallback, DeepCPP, IterationCallback
from sb3_cpp.deep.cautious_sac import MlpPolicy, gaussian
from sb3_cpp.deep.health import NonFiniteLoss
from sb3_cpp.regularization import gaussian_kl, gaussian_mixture, l1_bound

SMALL = {
    "learning_starts": 40,
    "buffer_size": 500,
    "batch_size": 16,
    "policy_kwargs": {"net_arch": [16, 16]},
    "seed": 0,
    "device": "cpu",
}
OBSERVATIONS = np.random.default_rng(0).uniform(-1, 1, (8, 3)).astype(np.float32)


def make(env="Pendulum-v1", policy="MlpPolicy", **kwargs) -> CautiousSAC:
    return CautiousSAC(policy, env, **{**SMALL, "iteration_interval": 30, **kwargs})


def state(model) -> dict[str, th.Tensor]:
    """Networks, optimisers, entropy coefficient and measurements."""
    parts = model.get_parameters()
    flat = {f"policy.{name}": value for name, value in parts["policy"].items()}
    for optimizer in ("actor.optimizer", "critic.optimizer", "ent_coef_optimizer"):
        for index, moments in parts.get(optimizer, {"state": {}})["state"].items():
            flat |= {f"{optimizer}.{index}.{k}": th.as_tensor(v) for k, v in moments.items()}
    if model.log_ent_coef is not None:
        flat["log_ent_coef"] = model.log_ent_coef.detach()
    flat |= {f"caution.{name}": value for name, value in parts.get("caution", {}).items()}
    return flat


def assert_equal(ours: dict[str, th.Tensor], theirs: dict[str, th.Tensor]) -> None:
    assert [name for name in theirs if not ours[name].equal(theirs[name])] == []


class DropoutAndBatchNorm(FlattenExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space)
        self.layers = nn.Sequential(nn.BatchNorm1d(self.features_dim), nn.Dropout(0.5))

    def forward(self, observations):
        return self.layers(super().forward(observations))


# --- SB3's SAC in the limit -----------------------------------------------------------------------

SETTINGS = {
    "default": {},
    "fixed entropy": {"ent_coef": 0.1, "gradient_steps": 3, "target_update_interval": 2},
    "gSDE": {"use_sde": True},
    "n-step": {"n_steps": 3},
    "noise": {"action_noise": NormalActionNoise(np.zeros(1), 0.1 * np.ones(1)), "train_freq": 4},
    "shared features": {"policy_kwargs": {"net_arch": [16], "share_features_extractor": True}},
    "modes": {"policy_kwargs": {"features_extractor_class": DropoutAndBatchNorm}},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_without_caution_it_is_sac_to_the_bit(settings):
    theirs = SAC("MlpPolicy", "Pendulum-v1", **{**SMALL, **settings}).learn(120)
    ours = make(**{**settings, "zeta": 1.0, "kl_coef": 0.0}).learn(120)
    assert ours.iteration == 3
    assert_equal(state(ours), state(theirs))


def test_each_of_the_two_cautions_changes_what_is_learned():
    plain = make(zeta=1.0, kl_coef=0.0).learn(120).actor.state_dict()
    penalised = make(zeta=1.0, kl_coef=1.0).learn(120).actor.state_dict()
    slow = make(zeta=0.3, kl_coef=1.0).learn(120).actor.state_dict()
    assert not plain["mu.weight"].equal(penalised["mu.weight"])
    assert not slow["mu.weight"].equal(penalised["mu.weight"])


def test_a_large_weight_of_the_kl_keeps_the_policy_near_the_previous_one():
    distances = []
    for kl_coef in (0.0, 100.0):
        model = make(kl_coef=kl_coef, learning_rate=1e-3, zeta=0.1, ent_coef=0.1).learn(300)
        obs = th.as_tensor(OBSERVATIONS)
        with th.no_grad():
            pair = (gaussian(a, obs) for a in (model.actor, model.policy.previous_actor))
            distances.append(gaussian_kl(*pair).mean().item())
    assert distances[1] < 0.2 * distances[0]


def test_the_target_has_the_entropy_and_the_kl():
    """``r + gamma (1-d) [Q- - ent_coef log pi - kl_coef ent_coef KL]``, from SB3's own parts."""
    model = make(kl_coef=2.0, ent_coef=0.3).learn(80)
    with th.no_grad():
        model.policy.previous_actor.mu.bias += 0.5
        samples = model.replay_buffer.sample(16)
        th.manual_seed(1)
        target = model._target(samples, th.tensor(0.3))
        th.manual_seed(1)
        actions, log_prob = model.actor.action_log_prob(samples.next_observations)
        policy = model.actor.action_dist.distribution
        previous = gaussian(model.policy.previous_actor, samples.next_observations)
        q = th.min(*model.critic_target(samples.next_observations, actions))[:, 0]
        bonus = -0.3 * log_prob - 0.6 * kl_divergence(policy, previous)[:, 0]
        expected = samples.rewards[:, 0] + 0.99 * (1 - samples.dones[:, 0]) * (q + bonus)
    assert kl_divergence(policy, previous).min() > 0.01
    th.testing.assert_close(target[:, 0], expected)


# --- the geometric mixture ------------------------------------------------------------------------


def normal(mean, std) -> Normal:
    return Normal(th.tensor([mean], dtype=th.float64), th.tensor([std], dtype=th.float64))


@pytest.mark.parametrize("zeta", [0.1, 0.5, 0.9])
def test_the_mixture_of_gaussians_is_the_normalised_product_of_powers(zeta):
    new, old = normal(0.7, 0.4), normal(-0.5, 0.9)
    grid = th.linspace(-8, 8, 20_001, dtype=th.float64)
    density = (zeta * new.log_prob(grid) + (1 - zeta) * old.log_prob(grid)).exp()
    density /= th.trapezoid(density, grid)
    mixture = gaussian_mixture(new, old, zeta)
    th.testing.assert_close(mixture.log_prob(grid).exp(), density, atol=1e-9, rtol=1e-9)


def test_behind_a_tanh_the_jacobian_cancels():
    zeta, new, old = 0.3, normal(0.7, 0.4), normal(-0.5, 0.9)
    pre_tanh = th.linspace(-7, 7, 20_001, dtype=th.float64)
    actions = th.tanh(pre_tanh)

    def squashed(gauss: Normal) -> th.Tensor:
        return TransformedDistribution(gauss, [TanhTransform(cache_size=1)]).log_prob(actions)

    log_density = zeta * squashed(new) + (1 - zeta) * squashed(old)
    density = log_density.exp() / th.trapezoid(log_density.exp(), actions)
    exact = squashed(gaussian_mixture(new, old, zeta)).exp()
    inside = actions.abs() < 0.99
    th.testing.assert_close(exact[inside], density[inside], atol=1e-4, rtol=1e-4)


def test_the_ends_of_the_mixture_are_its_two_policies():
    new, old = normal(0.7, 0.4), normal(-0.5, 0.9)
    assert gaussian_mixture(new, old, 1.0) is new
    assert gaussian_mixture(new, old, 0.0) is old
    near = gaussian_mixture(new, old, 1 - 1e-12)
    th.testing.assert_close(near.mean, new.mean)
    th.testing.assert_close(near.stddev, new.stddev)


@pytest.mark.parametrize("shift", [0.01, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_the_bound_by_the_kl_is_above_the_l1_distance_and_at_most_2(shift, scale):
    p, q = normal(shift, scale), normal(0.0, 1.0)
    grid = th.linspace(-10, 30, 400_001, dtype=th.float64)
    distance = th.trapezoid((p.log_prob(grid).exp() - q.log_prob(grid).exp()).abs(), grid)
    bound = l1_bound(gaussian_kl(p, q)).item()
    assert distance.item() - 1e-6 <= bound <= 2.0
    if scale == 1.0 and shift < 0.1:  # sharp up to a constant for small steps
        assert bound < 1.3 * distance.item()


def test_in_weights_the_mixture_is_exact_for_linear_actors_with_one_deviation():
    model = make(policy_kwargs={"net_arch": []})
    actors, obs = (model.actor, model.policy.previous_actor), th.as_tensor(OBSERVATIONS)
    with th.no_grad():
        for actor, bias in zip(actors, (0.4, -0.3)):
            actor.log_std.weight.zero_()
            actor.log_std.bias.fill_(-0.5)
            actor.mu.bias.fill_(bias)
        exact = gaussian_mixture(*(gaussian(actor, obs) for actor in actors), 0.3)
        model.policy.move_previous_actor(0.3)
        moved = gaussian(model.policy.previous_actor, obs)
    th.testing.assert_close(moved.mean, exact.mean)
    th.testing.assert_close(moved.stddev, exact.stddev)


# --- iterations -----------------------------------------------------------------------------------


def test_the_previous_actor_moves_by_zeta_at_every_iteration():
    model = make(zeta=0.25, iteration_interval=20)
    seen: list = []

    class Watch(BaseCallback):
        def _on_step(self):  # before the gradient step of this environment step
            actors = (model.actor, model.policy.previous_actor)
            weights = [{k: v.clone() for k, v in a.state_dict().items()} for a in actors]
            seen.append((model.iteration, *weights))
            return True

    model.learn(101, callback=Watch())
    # K = 1 after 60 steps (learning starts after 40), then every 20
    assert [k for k, _, _ in seen] == [0] * 60 + [1] * 20 + [2] * 20 + [3]
    (_, _, before), (_, actor, after) = seen[-2:]
    for name, value in after.items():
        assert not value.equal(before[name])
        th.testing.assert_close(value, 0.75 * before[name] + 0.25 * actor[name])
    assert all(value.equal(seen[-3][2][name]) for name, value in before.items())


def test_the_first_iteration_copies_the_actor():
    model = make(zeta=0.1, iteration_interval=100).learn(100)
    assert model.iteration == 1
    assert model.iteration_record["zeta"] == 1.0
    actor = model.actor.state_dict()
    assert all(v.equal(actor[k]) for k, v in model.policy.previous_actor.state_dict().items())


def test_rows_of_iterations_and_logged_keys(tmp_path):
    model = make(zeta="typical")
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(210, callback=IterationCallback(tmp_path), log_interval=1)
    rows = pd.read_csv(tmp_path / "iterations.csv")
    assert list(rows.columns)[:7] == ["K", "timesteps", "zeta", "m_K", "M_K", "C_K", "return_mean"]
    assert rows["K"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows["timesteps"].tolist() == [60, 90, 120, 150, 180, 210]
    assert rows[["zeta", "m_K", "M_K"]].notna().all(axis=None)
    assert rows["C_K"].isna().all()
    assert rows["return_mean"].notna().sum() == 1  # episodes of 200 steps
    ratio = (rows["m_K"] / rows["M_K"]).clip(0, 1)
    np.testing.assert_allclose(rows["zeta"][1:], ratio[1:], rtol=1e-5)
    logged = pd.read_csv(tmp_path / "progress.csv").iloc[-1]
    assert {"cpp/zeta", "cpp/m_K", "cpp/M_K", "cpp/K", "cpp/mixture_gap"} <= set(logged.index)
    assert logged["cpp/K"] == 5  # written at the end of the episode, after 200 steps


def test_a_function_chooses_zeta(tmp_path):
    model = make(zeta=one_over_k).learn(160, callback=IterationCallback(tmp_path))
    rows = pd.read_csv(tmp_path / "iterations.csv")
    assert rows["zeta"].tolist() == [1 / k for k in rows["K"]]
    model.save(tmp_path / "model")
    assert CautiousSAC.load(tmp_path / "model").zeta.endswith(":one_over_k")


def one_over_k(estimate) -> float:
    return 1.0 / estimate.K


def test_the_advantage_is_that_of_the_same_noise():
    """Where both policies are one, it is 0 for every sample, up to the inverse of the tanh."""
    model = make(zeta=0.0, iteration_interval=10_000)
    model.actor.optimizer.step = lambda: None  # the actor stays the previous policy
    model.learn(60)
    assert model.critic.state_dict()["qf0.0.weight"].abs().sum() > 0
    assert abs(float(model.caution.tracker.mean)) < 1e-5


# --- deployment, saving, loading ------------------------------------------------------------------


def test_deterministic_actions_are_the_previous_actors_wherever_one_asks(tmp_path):
    model = make(learning_rate=1e-2, zeta=0.1).learn(200)
    with th.no_grad():
        mean = gaussian(model.policy.previous_actor, th.as_tensor(OBSERVATIONS)).mean
    expected = 2.0 * th.tanh(mean).numpy()
    assert not np.allclose(expected, 2.0 * model.actor(th.as_tensor(OBSERVATIONS), True).detach())
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy")
    model.save_weights(tmp_path / "weights")
    askers = [model, model.policy, CautiousSAC.load(tmp_path / "model", device="cpu")]
    askers += [MlpPolicy.load(tmp_path / "policy"), make(seed=5).load_weights(tmp_path / "weights")]
    for asker in askers:
        actions, _ = asker.predict(OBSERVATIONS, deterministic=True)
        np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-6)


def test_a_loaded_model_is_the_saved_one_and_learns_on(tmp_path):
    model = make(zeta="typical").learn(130)
    model.save(tmp_path / "model")
    loaded = CautiousSAC.load(tmp_path / "model", env=gym.make("Pendulum-v1"), device="cpu")
    assert_equal(state(loaded), state(model))
    assert (loaded.iteration, loaded.kl_coef, loaded.zeta) == (model.iteration, 1.0, "typical")
    assert loaded.caution.zeta == model.caution.zeta
    loaded.learn(120, reset_num_timesteps=False)
    assert loaded.iteration > model.iteration
    assert CautiousSAC.load(tmp_path / "model", zeta=0.5, kl_coef=0.2).caution.zeta == 0.5
    for bad, match in (({"kl_coef": -1}, "kl_coef must be"), ({"zeta": "dcpp"}, "zeta must be")):
        with pytest.raises(ValueError, match=match):
            CautiousSAC.load(tmp_path / "model", **bad)


def test_files_of_other_algorithms_are_refused_in_one_line(tmp_path):
    sac = SAC("MlpPolicy", "Pendulum-v1", **{**SMALL, "seed": 3})
    sac.save(tmp_path / "sac")
    with pytest.raises(ValueError, match=r"path must be a model that CautiousSAC .* SB3's SAC"):
        CautiousSAC.load(tmp_path / "sac")
    DeepCPP("MlpPolicy", "CartPole-v1", buffer_size=10).save(tmp_path / "cpp")
    with pytest.raises(ValueError, match=r"path must .* got one saved by DeepCPP"):
        CautiousSAC.load(tmp_path / "cpp")
    # As that line says; what is deployed is then SAC's actor
    model = make()
    model.set_parameters(str(tmp_path / "sac.zip"), exact_match=False)
    ours, theirs = (m.predict(OBSERVATIONS, deterministic=True)[0] for m in (model, sac))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    "settings",
    [{}, {"use_sde": True}, {"zeta": "typical", "train_freq": 7, "gradient_steps": 3}],
    ids=["default", "gSDE", "typical"],
)
def test_an_interrupted_run_resumes_to_the_bit(tmp_path, settings):
    whole = make(**settings).learn(230, callback=IterationCallback(tmp_path / "whole"))
    make(**settings).learn(
        230, [CheckpointCallback(tmp_path / "saved", 110), IterationCallback(tmp_path / "part")]
    )
    resumed = CautiousSAC.resume(tmp_path / "saved")
    assert resumed.num_timesteps < 230
    resumed.learn(
        callback=[CheckpointCallback(tmp_path / "saved", 110), IterationCallback(tmp_path / "part")]
    )
    assert resumed.num_timesteps == whole.num_timesteps
    assert_equal(state(resumed), state(whole))
    a, b = ((tmp_path / name / "iterations.csv").read_bytes() for name in ("whole", "part"))
    assert a == b


# --- what SB3 demands of SAC ----------------------------------------------------------------------


def test_the_constructor_spells_out_sacs_arguments():
    theirs = list(inspect.signature(SAC).parameters.values())[:-1]
    ours = list(inspect.signature(CautiousSAC).parameters.values())
    assert [(p.name, p.default) for p in ours[: len(theirs)]] == [
        (p.name, p.default) for p in theirs
    ]
    assert ours[-1].name == "_init_setup_model"


@pytest.mark.parametrize("ent_coef", ["auto", "auto_0.1", 0.01])
def test_run(ent_coef):
    model = make(ent_coef=ent_coef, learning_rate=lambda left: 1e-3 * left).learn(100)
    action, _ = model.predict(OBSERVATIONS[0])
    assert model.action_space.contains(action)
    assert math.isfinite(model.iteration_record["mixture_gap"])


def test_a_seed_decides_the_run():
    first, second, other = (make(seed=seed).learn(120) for seed in (0, 0, 1))
    assert_equal(state(first), state(second))
    assert not state(first)["policy.actor.mu.weight"].equal(state(other)["policy.actor.mu.weight"])


def test_several_environments():
    model = make(make_vec_env("Pendulum-v1", n_envs=4), iteration_interval=40).learn(200)
    assert model.iteration == 4
    assert model.iteration_record["timesteps"] == 200


def test_normalised_observations():
    model = make(VecNormalize(make_vec_env("Pendulum-v1"))).learn(100)
    assert model.iteration == 2


def test_dictionaries_of_observations(tmp_path):
    env = SimpleMultiObsEnv(discrete_actions=False, channel_last=False)
    model = make(env, "MultiInputPolicy", iteration_interval=20).learn(62)
    model.save(tmp_path / "model")
    obs = env.reset(seed=0)[0]
    loaded = CautiousSAC.load(tmp_path / "model")
    actions = [m.predict(obs, deterministic=True)[0] for m in (model, loaded)]
    np.testing.assert_array_equal(*actions)


def test_images():
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=False)
    model = make(env, "CnnPolicy", iteration_interval=2, buffer_size=50).learn(43)
    assert model.iteration == 1


def test_training_mode_changes_the_online_networks_only():
    kwargs = {"net_arch": [16], "features_extractor_class": DropoutAndBatchNorm}
    model = make(policy_kwargs=kwargs, zeta=0.5)
    statistic = "features_extractor.layers.0.running_mean"
    start = model.policy.previous_actor.state_dict()[statistic].clone()
    model.learn(55)
    assert not model.policy.previous_actor.training
    # No iteration yet: neither the weights nor the running statistics have moved
    assert model.policy.previous_actor.state_dict()[statistic].equal(start)
    model.learn(60, reset_num_timesteps=False)
    assert not model.policy.previous_actor.state_dict()[statistic].equal(start)
    assert not model.policy.previous_actor.training
    a, b = (model.predict(OBSERVATIONS, deterministic=True)[0] for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_tensorboard_logs_go_under_the_name_of_the_class(tmp_path):
    pytest.importorskip("tensorboard")
    make(tensorboard_log=str(tmp_path)).learn(60)
    assert [path.name for path in tmp_path.iterdir()] == ["CautiousSAC_1"]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"kl_coef": -0.1}, r"kl_coef must be a number in \[0, inf\), got -0.1"),
        ({"kl_coef": math.nan}, "kl_coef must be a number"),
        ({"iteration_interval": 0}, "iteration_interval must be a whole number of at least 1"),
        ({"zeta": 1.5}, r"zeta must be a number in \[0, 1\], got 1.5"),
        ({"zeta": "dcpp"}, "zeta must be .* one of typical, got 'dcpp'"),
        ({"rho1": 1.0}, "rho1 must be"),
        ({"rho2": -1.0}, "rho2 must be"),
        ({"ent_coef": "automatic"}, "ent_coef must be .* got 'automatic'"),
        ({"ent_coef": "auto_-1"}, "ent_coef must be .* got 'auto_-1'"),
        ({"ent_coef": "0.1"}, "ent_coef must be .* got '0.1'"),
        ({"ent_coef": -1.0}, "ent_coef must be .* got -1.0"),
        ({"target_entropy": "low"}, "target_entropy must be .* got 'low'"),
        ({"env": "CartPole-v1"}, r"env must have a Box action space, got Discrete\(2\)"),
        ({"policy": SAC.policy_aliases["MlpPolicy"]}, "policy must be one of .* got SACPolicy"),
    ],
    ids=str,
)
def test_bad_input_is_refused_in_one_line(kwargs, message):
    with pytest.raises(ValueError, match=message) as error:
        make(**kwargs)
    assert len(str(error.value).splitlines()) == 1


def test_a_new_model_needs_a_number_of_steps():
    with pytest.raises(ValueError, match="total_timesteps must be a number"):
        make().learn()


class BadReward(gym.Env):
    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), math.nan, False, False, {}


def test_a_loss_that_is_not_finite_ends_the_run_before_the_weights_change(tmp_path: Path):
    model = make(BadReward())
    model.bad_batch_path = tmp_path / "bad_batch.npz"
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    with pytest.raises(NonFiniteLoss, match=r"critic = nan.*rewards hold NaN"):
        model.learn(50)
    assert_equal(model.policy.state_dict(), before)
    assert np.isnan(np.load(tmp_path / "bad_batch.npz")["rewards"]).all()


class BadObservation(BadReward):
    """From the sixth step on."""

    steps = 0

    def step(self, action):
        observation, _, *rest = super().step(action)
        self.steps += 1
        return np.full_like(observation, np.nan if self.steps > 5 else 0.0), 0.0, *rest


class OneBadObservation(BadObservation):
    """The fifth one only, so that the batch has it and the actor does not."""

    def step(self, action):
        observation, *rest = super().step(action)
        return np.full_like(observation, np.nan if self.steps == 5 else 0.0), *rest


@pytest.mark.parametrize("env", [BadReward, BadObservation, OneBadObservation])
def test_what_is_not_finite_is_one_line_and_moves_nothing(env):
    model = make(env(), ent_coef="auto", learning_starts=20, batch_size=64)
    before = model.log_ent_coef.item()
    with pytest.raises(NonFiniteLoss, match="hold NaN or infinity: repair") as error:
        model.learn(200)
    assert "\n" not in str(error.value)
    assert model.log_ent_coef.item() == before
    assert model._n_updates == 0
