"""What SB3 demands of its DQN holds for every algorithm here."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.envs import (
    BitFlippingEnv,
    FakeImageEnv,
    IdentityEnv,
    SimpleMultiObsEnv,
)
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from sb3_cpp import CautiousMDQN, DeepCPI, DeepCPP


def equal_parameters(a, b) -> bool:
    """Weights of every network and the optimiser's state, to the bit."""
    weights = all(
        th.equal(x, b.policy.state_dict()[key]) for key, x in a.policy.state_dict().items()
    )
    first, second = a.policy.optimizer.state_dict(), b.policy.optimizer.state_dict()
    moments = all(
        th.equal(th.as_tensor(first["state"][i][k]), th.as_tensor(second["state"][i][k]))
        for i in first["state"]
        for k in first["state"][i]
    )
    return weights and moments and first["param_groups"] == second["param_groups"]


class RandomEnv(gym.Env):
    """Random observations of any space, two actions, episodes of 20 steps."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation_space):
        self.observation_space = observation_space
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        return self.observation_space.sample(), float(action), False, self.count >= 20, {}


SPACES = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "matrix": spaces.Box(-1, 1, (3, 2), np.float32),
    "discrete": spaces.Discrete(5),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(4),
}


@pytest.mark.parametrize("space", SPACES)
def test_every_observation_space_of_dqn(algorithm, space):
    env = RandomEnv(SPACES[space])
    model = algorithm.make(env=env).learn(100)
    assert model._n_updates > 0
    action, _ = model.predict(env.reset(seed=0)[0])
    assert env.action_space.contains(int(action))


def test_images_with_memory_optimisation(algorithm):
    env = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=True)
    kwargs = {
        "optimize_memory_usage": True,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    policy_kwargs = {"features_extractor_kwargs": {"features_dim": 16}}
    model = algorithm.make(
        "CnnPolicy", env, buffer_size=100, policy_kwargs=policy_kwargs, **kwargs
    ).learn(80)
    assert model._n_updates > 0
    assert model.predict(env.reset()[0])[0].shape == ()


def test_dictionaries_of_images_and_vectors(algorithm):
    env = DummyVecEnv([lambda: SimpleMultiObsEnv(random_start=False, discrete_actions=True)])
    policy_kwargs = {"features_extractor_kwargs": {"cnn_output_dim": 16}, "net_arch": [16]}
    model = algorithm.make(
        "MultiInputPolicy", env, buffer_size=100, policy_kwargs=policy_kwargs
    ).learn(80)
    assert model._n_updates > 0
    evaluate_policy(model, env, n_eval_episodes=1, warn=False)


def test_several_environments_and_normalisation(algorithm):
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 3))
    model = algorithm.make(env=env, target_update_interval=60).learn(300)
    assert model._n_updates > 0
    assert model.iteration == (300 - 50) // 60
    assert model.get_vec_normalize_env() is env


def test_hindsight_experience_replay(algorithm):
    env = BitFlippingEnv(n_bits=3, continuous=False)
    kwargs = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 2}}
    assert (
        algorithm.make("MultiInputPolicy", env, learning_starts=20, **kwargs).learn(120)._n_updates
        > 0
    )


class NormExtractor(BaseFeaturesExtractor):
    def __init__(self, observation_space):
        super().__init__(observation_space, features_dim=16)
        self.layers = th.nn.Sequential(
            th.nn.Linear(4, 16), th.nn.BatchNorm1d(16), th.nn.Dropout(0.5), th.nn.ReLU()
        )

    def forward(self, observations):
        return self.layers(observations)


def test_batch_norm_statistics_reach_the_targets_and_dropout_is_off_when_acting(case):
    kwargs = {
        "policy_kwargs": {"features_extractor_class": NormExtractor},
        "batch_size": 16,
        **case.frozen,
    }
    model = case.make(**kwargs).learn(200)
    norms = [
        [network.features_extractor.layers[1] for network in pair]
        for pair in model._network_pairs()
    ]
    assert all(online.num_batches_tracked == model._n_updates for online, _ in norms), (
        "each batch is counted once"
    )
    assert not any(th.equal(online.running_mean, target.running_mean) for online, target in norms)
    model._n_calls = model.target_update_interval - 1
    model._on_step()  # a target update
    assert all(th.equal(online.running_mean, target.running_mean) for online, target in norms), (
        "copied although the weights hardly move"
    )
    assert not any(th.equal(online.bias, target.bias) for online, target in norms)
    observation = np.full((1, 4), 0.1, dtype=np.float32)
    model.predict(observation)
    assert th.equal(*(model.q_net(th.as_tensor(observation)) for _ in range(2)))


@pytest.mark.parametrize("behaviour", ["epsilon_greedy", "boltzmann"])
def test_same_seed_same_weights_other_seed_other_weights(case, behaviour):
    first, second, other = (
        case.make(seed=seed, behaviour=behaviour).learn(200) for seed in (4, 4, 5)
    )
    assert equal_parameters(first, second)
    assert not equal_parameters(first, other)


def test_learning_rate_schedules_reach_every_network(algorithm):
    model = algorithm.make(learning_rate=lambda left: 1e-3 * left).learn(200)
    rates = {group["lr"] for group in model.policy.optimizer.param_groups}
    assert len(rates) == 1
    assert rates.pop() < 1e-4


# --- acting ---------------------------------------------------------------------------------------


def test_predict_is_epsilon_greedy_unless_told_otherwise(algorithm):
    model = algorithm.make()
    observation = np.zeros((400, 4), dtype=np.float32)
    greedy, _ = model.predict(observation, deterministic=True)
    assert len(set(greedy)) == 1
    model.exploration_rate = 0.0
    assert (model.predict(observation)[0] == greedy).all()
    model.exploration_rate = 1.0
    assert 0.3 < (model.predict(observation)[0] == greedy).mean() < 0.7


def test_boltzmann_behaviour_samples_the_policy(case):
    model = case.make(behaviour="boltzmann")
    model.exploration_rate = 1.0  # unused
    observation = np.zeros((20_000, 4), dtype=np.float32)
    model.policy.average = None  # learning is not averaged
    probability = float(model.action_probabilities(observation[0])[1])
    share = model.predict(observation)[0].mean()
    assert share == pytest.approx(
        probability, abs=4 * np.sqrt(probability * (1 - probability) / 20_000) + 1e-4
    )
    assert len(set(model.predict(observation, deterministic=True)[0])) == 1
    assert model.predict(observation[0])[0].shape == ()


def test_boltzmann_policy_of_cpp_is_its_own_greedy_step():
    """softmax(Q / entropy weight) is the fixed point of the greedy step with itself as baseline."""
    from sb3_cpp.regularization import log_greedy

    model = DeepCPP(
        "MlpPolicy",
        "CartPole-v1",
        alpha=0.4,
        temperature=0.5,
        buffer_size=10,
        device="cpu",
    )
    obs = th.randn(10, 4)
    with th.no_grad():
        log_policy = th.as_tensor(model.action_probabilities(obs.numpy())).log()
        assert th.allclose(
            log_greedy(model.q_net(obs), log_policy, 0.4, 0.5), log_policy, atol=1e-6
        )


# --- iterations -----------------------------------------------------------------------------------


def test_iterations_count_target_updates_since_learning_began(algorithm):
    model = algorithm.make(learning_starts=120).learn(280)
    # Updates at 150, 200, 250; those at 50 and 100 came before the first gradient step
    assert model.iteration == 3
    assert model.iteration_record["timesteps"] == 250


def test_logger_keys_and_folder(algorithm, tmp_path):
    model = algorithm.make(tensorboard_log=str(tmp_path)).learn(200, log_interval=1)
    assert (tmp_path / f"{algorithm.cls.__name__}_1").is_dir()
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(200, log_interval=1, reset_num_timesteps=False)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {
        "train/loss",
        "train/n_updates",
        *(f"cpp/{k}" for k in model.iteration_record if k != "timesteps" and model.caution),
    } <= set(header)
    # K is the paper's only beside zeta
    assert ("cpp/K" in header) == (model.caution is not None) != ("train/iteration" in header)


def test_cpp_logs_both_gradient_norms(tmp_path):
    model = DeepCPP(
        "MlpPolicy",
        "CartPole-v1",
        buffer_size=500,
        target_update_interval=20,
        device="cpu",
    )
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(200, log_interval=1)
    header = (tmp_path / "progress.csv").read_text().splitlines()[0].split(",")
    assert {
        "train/value_grad_norm",
        "train/projection_grad_norm",
        "train/value_loss",
        "train/projection_loss",
    } <= set(header)


# --- save and load --------------------------------------------------------------------------------


def test_a_loaded_model_is_the_saved_one(case, tmp_path):
    model = case.make().learn(230)
    model.save(tmp_path / "model")
    loaded = case.cls.load(tmp_path / "model", env=model.get_env(), device="cpu")
    assert equal_parameters(model, loaded)
    assert loaded.iteration == model.iteration == 3
    assert loaded.iteration_record == model.iteration_record
    for name in (
        "alpha",
        "temperature",
        "zeta",
        "loss",
        "behaviour",
        "projection_coef",
        "momentum",
        "backup",
    ):
        assert getattr(loaded, name, None) == getattr(model, name, None)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert (
        loaded.predict(observations, deterministic=True)[0]
        == model.predict(observations, deterministic=True)[0]
    ).all()


def test_a_loaded_model_continues_to_learn(case, tmp_path):
    model = case.make().learn(230)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    copies = []
    for _ in range(2):
        loaded = case.cls.load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
        loaded.load_replay_buffer(tmp_path / "buffer")
        loaded.set_random_seed(9)
        copies.append(loaded.learn(120, reset_num_timesteps=False))
    # Target updates at 100, 150, ..., 350; the one at 50 came before learning
    assert copies[0].iteration == 6
    assert copies[0].num_timesteps == 352
    assert equal_parameters(*copies)
    assert not equal_parameters(copies[0], model)


def test_tracker_and_zeta_survive_saving(tmp_path):
    for cls in (DeepCPP, CautiousMDQN, DeepCPI):
        model = cls(
            "MlpPolicy", "CartPole-v1", buffer_size=500, target_update_interval=50, device="cpu"
        ).learn(230)
        model.save(tmp_path / "model")
        loaded = cls.load(tmp_path / "model", device="cpu")
        assert 0 < loaded.caution.zeta == model.caution.zeta
        assert loaded.zeta == model.zeta
        assert th.equal(loaded.caution.tracker.mean, model.caution.tracker.mean)
        assert th.equal(loaded.caution.tracker.maximum, model.caution.tracker.maximum)


def test_set_parameters_demands_every_network(algorithm):
    model, other = algorithm.make(), algorithm.make(seed=1)
    other.set_parameters(model.get_parameters(), exact_match=True)
    assert all(
        th.equal(x, other.policy.state_dict()[k]) for k, x in model.policy.state_dict().items()
    )
    broken = model.get_parameters()
    broken["policy"].popitem()
    with pytest.raises(RuntimeError, match="Missing key"):
        other.set_parameters(broken, exact_match=True)


def _half(estimate):
    return 0.5


@pytest.mark.parametrize("cls", [DeepCPP, CautiousMDQN, DeepCPI])
def test_set_parameters_demands_the_whole_state_of_zeta_only_for_an_exact_match(cls):
    """As SB3's test_save_load demands of every object that is saved."""
    model = cls("MlpPolicy", "CartPole-v1", buffer_size=500, device="cpu", zeta=_half).learn(130)
    before = {key: value.clone() for key, value in model.caution.state_dict().items()}
    for missing in before:
        part = {key: value + 0.25 for key, value in before.items() if key != missing}
        with pytest.raises(RuntimeError, match="the state of zeta must have the keys zeta, mean"):
            model.set_parameters({**model.get_parameters(), "caution": part}, exact_match=True)
        model.caution.load_state_dict(before)
        model.set_parameters({"caution": part}, exact_match=False)
        after = model.caution.state_dict()
        assert th.equal(after[missing], before[missing])
        assert all(th.equal(after[key], value) for key, value in part.items())


def test_all_that_is_saved_can_be_randomised(case):
    """As SB3's test_save_load does with ``rand_like``, which takes floats only."""
    model = case.make()
    drawn = {
        name: {key: th.rand_like(value) for key, value in part.items()}
        for name, part in model.get_parameters().items()
        if "optimizer" not in name
    }
    model.set_parameters(drawn, exact_match=False)
    after = model.policy.state_dict()
    assert [key for key, value in drawn["policy"].items() if not after[key].equal(value)] == []


def test_an_optimiser_with_the_target_networks_is_fitted_when_loading(case, tmp_path):
    """Such are the files of SB3 before 2.4; SB3's own repair knows one online network only."""
    model = case.make()
    parameters = list(model.policy.parameters())
    model.policy.optimizer = th.optim.Adam(parameters, lr=1e-3)
    for index, parameter in enumerate(parameters):
        parameter.grad = th.full_like(parameter, float(index + 1))
    model.policy.optimizer.step()
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="only those of the online networks are loaded"):
        loaded = case.cls.load(tmp_path / "model", env=model.get_env(), device="cpu")
    for online in loaded._online_parameters:
        for parameter in online:
            index = [id(p) for p in loaded.policy.parameters()].index(id(parameter))
            moment = loaded.policy.optimizer.state[parameter]["exp_avg"]
            assert th.allclose(moment, th.full_like(moment, 0.1 * (index + 1)))
    loaded.learn(100)


def test_a_policy_saved_without_its_model_chooses_the_same_actions(algorithm, tmp_path):
    model = algorithm.make()
    model.policy.save(tmp_path / "policy")
    loaded = type(model.policy).load(tmp_path / "policy")
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert (
        loaded.predict(observations, deterministic=True)[0]
        == model.predict(observations, deterministic=True)[0]
    ).all()


def test_saving_with_exclude_and_include(algorithm, tmp_path):
    model = algorithm.make()
    model.save(tmp_path / "model", exclude=["iteration_record"], include=["q_net"])
    loaded = algorithm.cls.load(tmp_path / "model", device="cpu")
    assert loaded.iteration_record == {}


# --- learning -------------------------------------------------------------------------------------


def test_every_algorithm_solves_identity_before_its_first_target_update(algorithm):
    """SB3's own test of DQN with its settings: 1200 steps, fewer than target_update_interval."""
    env = DummyVecEnv([lambda: IdentityEnv(4)])
    model = algorithm.cls(
        "MlpPolicy",
        env,
        gamma=0.4,
        learning_rate=0.002,
        seed=3,
        learning_starts=0,
        target_update_interval=10_000,
    ).learn(1200)
    assert model.iteration == 0
    assert evaluate_policy(model, env, n_eval_episodes=20, warn=False)[0] > 90


@pytest.mark.slow
def test_every_algorithm_solves_identity(case):
    env = DummyVecEnv([lambda: IdentityEnv(4)])
    kwargs = {
        "learning_rate": 1e-3,
        "gamma": 0.4,
        "target_update_interval": 100,
        "exploration_fraction": 0.3,
    }
    model = case.make(env=env, buffer_size=5000, learning_starts=200, **kwargs).learn(4000)
    mean, _ = evaluate_policy(model, env, n_eval_episodes=20, warn=False)
    assert mean > 90


# --- what the policy knows ------------------------------------------------------------------------


def test_q_values_and_probabilities_are_arrays_that_agree_with_predict(case):
    model = case.make().learn(150)
    observations = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    q, probabilities = model.q_values(observations), model.action_probabilities(observations)
    assert q.shape == probabilities.shape == (40, 2)
    assert probabilities.sum(1) == pytest.approx(np.ones(40), abs=1e-5)
    best = model.predict(observations, deterministic=True)[0]
    assert np.array_equal(probabilities.argmax(1), best)
    if not hasattr(model, "acting_net"):
        assert np.array_equal(q.argmax(1), best)
    assert model.q_values(observations[0]) == pytest.approx(q[0], abs=1e-5)
    assert model.action_probabilities(observations[0]).shape == (2,)
    masked = model.action_probabilities(observations, action_masks=np.tile([True, False], (40, 1)))
    assert np.array_equal(masked, np.tile([1.0, 0.0], (40, 1)))


def test_learn_without_a_number_of_steps_is_the_papers(algorithm):
    class Enough(BaseCallback):
        def _on_step(self):
            return self.num_timesteps < 60

    model = algorithm.make(compile=False).learn(callback=Enough())
    assert model._total_timesteps == 5_000_000
