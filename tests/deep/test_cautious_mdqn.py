"""CautiousMDQN: the target network moves by zeta and is deployed; values have a measured unit."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv

from sb3_cpp import MDQN, CautiousMDQN
from sb3_cpp.deep.caution import RewardScale
from sb3_cpp.deep.policies import MlpPolicy

SMALL = {
    "buffer_size": 2000,
    "learning_starts": 40,
    "target_update_interval": 40,
    "learning_rate": 1e-3,
    "policy_kwargs": {"net_arch": [16]},
    "seed": 0,
    "device": "cpu",
}


def make(cls=CautiousMDQN, env="CartPole-v1", **kwargs):
    return cls("MlpPolicy", env, **{**SMALL, **kwargs})


def weights(network):
    return th.cat([p.detach().flatten() for p in network.parameters()]).clone()


# --- the target network ---------------------------------------------------------------------------


def test_a_target_update_moves_the_target_by_zeta():
    model = make(zeta=0.75).learn(296)
    assert model.iteration == 8  # a step every 0.75 * 40 steps, the first after learning_starts
    online, before = weights(model.q_net), weights(model.q_net_target)
    for _ in range(4):
        model._on_step()  # step 300 is a target update
    assert model.iteration == 9
    assert model.iteration_record["zeta"] == 0.75
    assert th.allclose(weights(model.q_net_target), before + 0.75 * (online - before), atol=1e-6)


def test_the_loss_is_squared_up_to_its_threshold_and_linear_from_there():
    errors = th.tensor([[-30.0], [4.0], [6.0]])
    model = make(huber_threshold=5.0)
    expected = (5 * (30 - 2.5) + 4**2 / 2 + 5 * (6 - 2.5)) / 3
    assert model._value_loss(errors, th.zeros(3, 1)).item() == pytest.approx(expected)
    squared = make(loss="mse")._value_loss(errors, th.zeros(3, 1))
    assert squared.item() == pytest.approx((30**2 + 4**2 + 6**2) / 3)


@pytest.mark.parametrize(
    ("zeta", "n_envs", "steps"),
    [(1.0, 1, 40), (0.3, 1, 12), (0.3, 4, 12), (0.01, 1, 1), (0.0, 1, 40), ("typical", 1, 40)],
)
def test_smaller_steps_come_more_often(zeta, n_envs, steps):
    """Every zeta * 40 environment steps; a rule's zeta is not known beforehand."""
    model = make(env=make_vec_env("CartPole-v1", n_envs), zeta=zeta).learn(0)
    model._n_updates, seen = 1, []
    for _ in range(120 // n_envs):
        model._on_step()
        seen.append(model.iteration)
    assert seen[-1] == 120 // steps
    assert seen.index(1) + 1 == seen.index(2) - seen.index(1) == max(steps // n_envs, 1)


def test_first_updates_average_so_that_the_random_network_has_no_weight():
    model, seen = make(zeta=0.0), []
    for K in (1, 2, 3):
        model.learn(80 if K == 1 else 40, reset_num_timesteps=False)
        # A rollout ends with a gradient step, after the target update of its last step
        model.learn(0, reset_num_timesteps=False)
        assert model.iteration == K
        seen.append(model.iteration_record["zeta"])
    assert seen == pytest.approx([1.0, 1 / 2, 1 / 3])


def test_alpha_grows_to_its_final_value_as_the_memory_does():
    """The memory 1 / (1 - alpha) is 1 at first and grows by one every ten intervals."""
    model, seen = make(alpha=0.75, zeta=0.5), []
    for model.iteration in (0, 20, 40, 60, 80):
        seen.append(model._coefficients()["alpha"])
    assert seen == pytest.approx([1 - 1 / 1, 1 - 1 / 2, 1 - 1 / 3, 1 - 1 / 4, 0.75])


def test_zeta_one_in_units_of_one_learns_as_mdqn_does():
    """To the bit: the same target network, a unit of 1, and an alpha that need not grow."""
    theirs = make(MDQN, alpha=0.0).learn(400)
    ours = make(zeta=1.0, alpha=0.0, loss=theirs.loss)
    ours.reward_scale.observe = lambda *_: None
    assert th.equal(weights(ours.learn(400).q_net), weights(theirs.q_net))


def test_deterministic_actions_are_those_of_the_target_network(tmp_path):
    model = make(learning_rate=1e-2).learn(300)
    observations = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)
    with th.no_grad():
        target, online = (
            network(th.from_numpy(observations)).argmax(1).numpy()
            for network in (model.q_net_target, model.q_net)
        )
    assert (target != online).any(), "the test must tell the networks apart"
    model.save(tmp_path / "model")
    model.policy.save(tmp_path / "policy")
    for predictor in (
        model,
        model.policy,
        CautiousMDQN.load(tmp_path / "model"),
        type(model.policy).load(tmp_path / "policy"),
    ):
        assert (predictor.predict(observations, deterministic=True)[0] == target).all()
    model.exploration_rate = 0.0
    assert (model.predict(observations, deterministic=False)[0] == online).all()


def test_before_the_first_target_update_the_online_network_is_deployed():
    model = make(target_update_interval=10_000).learn(300)
    assert model.policy.deployed_network is model.q_net
    assert make().learn(100).policy.deployed_network is not model.q_net


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tau": 0.5}, r"tau must be 1\.0 for CautiousMDQN, .*, got 0\.5"),
        ({"zeta": "dcpp"}, "zeta must be a number in .*, got 'dcpp'"),
    ],
)
def test_arguments_that_would_contradict_zeta_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        make(**arguments)


def test_a_policy_that_deploys_another_network_is_refused():
    with pytest.raises(ValueError, match=r"policy must be .* TargetMlpPolicy .*, got MlpPolicy"):
        CautiousMDQN(MlpPolicy, "CartPole-v1", **SMALL)


@pytest.mark.slow
def test_bit_flipping_is_learned_within_the_steps_that_sb3_gives_dqn():
    """SB3's test_performance_her; with alpha 0.9 from the first iteration it takes 3,000 steps."""
    env = make_vec_env(lambda: BitFlippingEnv(n_bits=10, continuous=False), n_envs=2)
    model = CautiousMDQN(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 5, "goal_selection_strategy": "future"},
        learning_rate=2e-3,
        train_freq=1,
        gradient_steps=2,
        learning_starts=20,
        exploration_final_eps=0.02,
        target_update_interval=100,
        batch_size=32,
        buffer_size=100_000,
        stats_window_size=50,
        seed=0,
        device="cpu",
    )
    model.learn(1500)
    assert np.mean(model.ep_success_buffer) > 0.9


# --- the unit of the values -----------------------------------------------------------------------


def test_unit_is_the_geometric_mean_of_the_rewards_without_the_zeros():
    scale = RewardScale()
    assert scale.unit == 1.0
    for rewards in ([0.0, 2.0], [-0.3, 100.0]):
        scale.observe(np.array(rewards, dtype=np.float32))
    assert scale.unit == pytest.approx((2.0 * 0.3 * 100.0) ** (1 / 3), rel=1e-6)


def test_rare_rewards_are_not_small():
    scale = RewardScale()
    for step in range(1000):
        scale.observe(np.array([float(step % 100 == 99)]))
    assert scale.unit == 1.0


def test_a_broken_reward_stays_out_of_the_unit():
    scale = RewardScale()
    for reward in (3.0, np.nan, np.inf):
        scale.observe(np.array([reward]))
    assert scale.unit == pytest.approx(3.0)


@pytest.mark.parametrize("power", [-7, 7])
def test_unit_of_rewards_times_a_power_of_two_is_scaled_without_rounding(power):
    one, other = RewardScale(), RewardScale()
    for row in np.random.default_rng(0).normal(size=(200, 3)):
        one.observe(row)
        other.observe(2.0**power * row)
        assert other.unit == 2.0**power * one.unit


class RewardOfPosition(gym.Wrapper):
    """CartPole with rewards of many sizes and both signs, times a factor."""

    def __init__(self, factor):
        super().__init__(gym.make("CartPole-v1"))
        self.factor = factor

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, self.factor * float(1.0 - 20.0 * abs(observation[2])), *rest


def learn_with_rewards_times(factor, cls=CautiousMDQN):
    return make(cls, RewardOfPosition(factor)).learn(500)


@pytest.mark.parametrize("power", [-7, 7])
def test_rewards_times_a_constant_change_nothing(power):
    """To the bit for powers of two, which scale floating-point numbers without rounding."""
    one, other = (learn_with_rewards_times(factor) for factor in (1.0, 2.0**power))
    assert th.equal(weights(one.q_net), weights(other.q_net))
    assert th.equal(weights(one.q_net_target), weights(other.q_net_target))
    observation = one.get_env().reset()
    assert other.q_values(observation) == pytest.approx(2.0**power * one.q_values(observation))


def test_rewards_times_a_constant_change_what_mdqn_learns():
    """The test above can fail."""
    one, other = (learn_with_rewards_times(factor, MDQN) for factor in (1.0, 128.0))
    assert not th.equal(weights(one.q_net), weights(other.q_net))


def test_unit_is_saved_and_loaded(tmp_path):
    model = make(env=RewardOfPosition(10.0)).learn(300)
    model.save(tmp_path / "model")
    loaded = CautiousMDQN.load(tmp_path / "model")
    assert loaded.reward_scale.unit == model.reward_scale.unit != 1.0
    states = (m.reward_scale.state_dict() for m in (model, loaded))
    assert all(th.equal(a, b) for a, b in zip(*(state.values() for state in states)))


def test_set_parameters_demands_the_whole_state_of_the_unit_only_for_an_exact_match():
    """As SB3's test_save_load demands of every object that is saved."""
    model = make().learn(300)
    before = model.reward_scale.state_dict()
    for missing in before:
        part = {key: value + 1.0 for key, value in before.items() if key != missing}
        with pytest.raises(RuntimeError, match="of the unit must have the keys exponents"):
            model.set_parameters({**model.get_parameters(), "reward_scale": part})
        model.reward_scale.load_state_dict(before)
        model.set_parameters({"reward_scale": part}, exact_match=False)
        after = model.reward_scale.state_dict()
        assert th.equal(after[missing], before[missing])
        assert all(th.equal(after[key], value) for key, value in part.items())
