"""Invalid actions: never chosen, never bootstrapped from, and no cost without masks."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.evaluation import evaluate_policy as evaluate_without_masks
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from sb3_cpp import CVI, MDQN, CautiousMDQN, CheckpointCallback, IterationCallback, RegularizedDQN
from sb3_cpp.deep import masks
from sb3_cpp.deep.batch import Batch
from sb3_cpp.training.enjoy import _play
from sb3_cpp.training.logs import EvaluationCallback


class Corridor(gym.Env):
    """Six cells. Right leads to the goal, left back; action 2 is never valid and ends the game with
    a reward that would tempt any learner."""

    observation_space = gym.spaces.Box(0, 1, (6,), np.float32)
    action_space = gym.spaces.Discrete(3)
    invalid_taken = 0

    def __init__(self, protocol="method", limit=30):
        self.protocol, self.limit = protocol, limit
        if protocol == "method":
            self.action_masks = self._mask

    def _mask(self):
        return np.array([self.cell > 0, True, False])

    def _observe(self):
        info = {"action_mask": self._mask()} if self.protocol == "info" else {}
        return np.eye(6, dtype=np.float32)[self.cell], info

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return self._observe()

    def step(self, action):
        self.steps += 1
        if not self._mask()[action]:
            type(self).invalid_taken += 1
        self.cell = max(self.cell + (1 if action == 1 else -1), 0)
        done = self.cell == 5
        reward = 1.0 if done else 100.0 if action == 2 else -0.01
        observation, info = self._observe()
        return observation, reward, done, self.steps >= self.limit, info


SMALL = {
    "buffer_size": 2000,
    "learning_starts": 100,
    "target_update_interval": 100,
    "learning_rate": 2e-3,
    "exploration_fraction": 0.5,
    "gamma": 0.9,
    "seed": 0,
    "device": "cpu",
    "policy_kwargs": {"net_arch": [32]},
}


@pytest.fixture(autouse=True)
def count_from_zero():
    Corridor.invalid_taken = 0


@pytest.mark.parametrize("protocol", ["method", "info"])
def test_no_invalid_action_is_taken_and_the_optimum_is_found(algorithm, protocol):
    env = DummyVecEnv([lambda: Corridor(protocol)] * 2)
    model = algorithm.cls("MlpPolicy", env, **{**algorithm.kwargs, **SMALL}).learn(1500)
    assert Corridor.invalid_taken == 0
    assert model._n_updates > 0
    values = [model.q_values(np.eye(6, dtype=np.float32)[cell]) for cell in range(5)]
    assert max(value[:2].max() for value in values) < 2.0, "100 would leak through a target"
    if protocol == "method":
        evaluate_policy(model, env, n_eval_episodes=2, warn=False)
        assert Corridor.invalid_taken == 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["method", "info"])
def test_masked_dqn_reaches_the_optimum(protocol):
    model = RegularizedDQN("MlpPolicy", Corridor(protocol), **SMALL).learn(6000)
    assert Corridor.invalid_taken == 0
    greedy = [
        model.predict(np.eye(6, dtype=np.float32)[cell], deterministic=True, action_masks=mask)[0]
        for cell in range(5)
        for mask in [np.array([cell > 0, True, False])]
    ]
    assert greedy == [1] * 5


@pytest.mark.parametrize("behaviour", ["epsilon_greedy", "boltzmann"])
def test_both_behaviours_respect_masks(behaviour):
    MDQN("MlpPolicy", Corridor(), behaviour=behaviour, **SMALL).learn(400)
    assert Corridor.invalid_taken == 0


def test_subprocesses_and_normalisation():
    env = VecNormalize(SubprocVecEnv([Corridor, Corridor]))
    model = RegularizedDQN("MlpPolicy", env, **SMALL).learn(300)
    assert model.replay_buffer.actions.shape[2] == 3
    stored = model.replay_buffer.actions[: model.replay_buffer.pos, :, 0]
    assert set(np.unique(stored)) <= {0, 1}
    env.close()


class MaskedBits(BitFlippingEnv):
    def action_masks(self):
        return np.array([True, True, False])


def test_dictionaries_and_hindsight_replay_carry_masks():
    model = MDQN(
        "MultiInputPolicy",
        MaskedBits(n_bits=3, continuous=False),
        replay_buffer_class=HerReplayBuffer,
        **SMALL,
    ).learn(300)
    assert set(np.unique(model.replay_buffer.actions[: model.replay_buffer.pos, :, 0])) <= {0, 1}


@pytest.mark.parametrize("n_actions", [2, 62, 63, 200])
def test_packing_is_invertible(n_actions):
    rows = np.random.default_rng(0).random((7, n_actions)) < 0.5
    words = masks.pack(rows)
    assert words.shape == (7, masks.n_words(n_actions))
    assert np.array_equal(masks.unpack(th.as_tensor(words), n_actions).numpy(), rows)


def with_masks(samples, mask, next_mask):
    columns = [samples.actions, *(th.as_tensor(masks.pack(m)) for m in (mask, next_mask))]
    return samples._replace(actions=th.cat(columns, dim=1))


def test_targets_and_policies_leave_invalid_actions_out(mdp, one_hot_env):
    """Action 1 is invalid everywhere: every value is that of action 0, without a constant."""
    mask = np.tile([True, False], (6, 1))
    samples = with_masks(mdp.samples._replace(actions=th.zeros(6, 1).long()), mask, mask)
    only = mdp.reward.repeat(1).reshape(3, 2)
    only = only + mdp.gamma * (1 - mdp.done) * mdp.target[mdp.next_state, 0]
    for cls, kwargs in [(RegularizedDQN, {}), (CVI, {"alpha": 0.8}), (MDQN, {"alpha": 0.8})]:
        model = cls(
            "MlpPolicy",
            one_hot_env,
            policy_kwargs={"net_arch": []},
            buffer_size=10,
            gamma=mdp.gamma,
            device="cpu",
            **kwargs,
        )
        mdp.load_into(model)
        batch = Batch(samples, mdp.gamma, model.q_net, model.q_net_target, n_actions=2)
        with th.no_grad():
            target = model._target(batch).numpy().reshape(3, 2)
        assert target == pytest.approx(only, abs=1e-5)


def test_a_truncated_episode_bootstraps_with_the_last_mask():
    env = DummyVecEnv([lambda: Corridor("info", limit=3)])
    source = masks.MaskSource(env, 3)
    env.reset()
    before = source.at_reset()
    assert before.tolist() == [[False, True, False]]
    for step in range(3):
        _, _, dones, infos = env.step([1])
        following, current = source.after_step(dones, infos, before)
        before = current
        assert following.tolist() == [[True, True, False]]
        assert bool(dones[0]) == (step == 2)
    assert current.tolist() == [[False, True, False]]  # of the new episode


class NoMovesAtTheEnd(Corridor):
    """As in board games: no action is valid in a final state."""

    def _mask(self):
        return super()._mask() & (self.cell < 5)


def test_a_final_state_may_have_no_valid_action():
    env = DummyVecEnv([lambda: NoMovesAtTheEnd("info")] * 2)
    model = MDQN("MlpPolicy", env, **SMALL).learn(600)
    assert Corridor.invalid_taken == 0
    stored = model.replay_buffer
    ended = stored.dones[: stored.pos] == 1
    assert ended.any()
    # All actions count as valid there: nothing is bootstrapped from it
    assert (stored.actions[: stored.pos, :, 2][ended] == 7).any()
    assert max(model.q_values(np.eye(6, dtype=np.float32)[:5])[:, :2].max(axis=1)) < 2.0


def test_a_mask_without_a_valid_action_is_refused():
    class Stuck(Corridor):
        def _mask(self):
            return np.zeros(3, dtype=bool)

    with pytest.raises(ValueError, match="action masks must allow at least one action"):
        RegularizedDQN("MlpPolicy", Stuck(), **SMALL).learn(10)


def test_n_step_returns_are_refused_with_masks():
    with pytest.raises(ValueError, match="n_steps must be 1 for an environment that masks"):
        RegularizedDQN("MlpPolicy", Corridor(), n_steps=3, **SMALL).learn(10)


def test_a_loaded_model_continues_with_masks(tmp_path):
    model = RegularizedDQN("MlpPolicy", Corridor(), **SMALL).learn(300)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    loaded = RegularizedDQN.load(tmp_path / "model", env=Corridor())
    loaded.load_replay_buffer(tmp_path / "buffer")
    loaded.learn(300, reset_num_timesteps=False)
    assert Corridor.invalid_taken == 0


def test_a_masked_model_learns_on_without_masks():
    model = RegularizedDQN("MlpPolicy", Corridor(), **SMALL).learn(300)
    model.set_env(Corridor("none"))
    model.learn(300, reset_num_timesteps=False)
    assert Corridor.invalid_taken > 0, "all actions are valid now"
    masks_of_next = model.replay_buffer.actions[:600, 0, 2]
    assert set(masks_of_next[:300]) == {2, 3}
    assert set(masks_of_next[300:]) == {7}


class Stop(BaseCallback):
    def _on_step(self):
        return self.num_timesteps < 400


@pytest.mark.parametrize("protocol", ["method", "info"])
@pytest.mark.parametrize("cls", [RegularizedDQN, CautiousMDQN])
def test_a_resumed_masked_run_ends_with_the_same_weights(protocol, cls, tmp_path):
    def make_env():
        return VecNormalize(DummyVecEnv([lambda: Corridor(protocol)] * 2))

    def make_checkpoints():
        return CheckpointCallback(tmp_path, save_freq=310)  # in the middle of episodes

    whole = cls("MlpPolicy", make_env(), **SMALL).learn(700)
    cls("MlpPolicy", make_env(), **SMALL).learn(700, callback=[make_checkpoints(), Stop()])
    resumed = cls.resume(tmp_path, make_env())
    assert 300 < resumed.num_timesteps < 400
    resumed.learn()
    pairs = zip(whole.policy.state_dict().values(), resumed.policy.state_dict().values())
    assert all(th.equal(a, b) for a, b in pairs)
    stored = [model.replay_buffer.actions[:350] for model in (whole, resumed)]
    assert np.array_equal(*stored)
    assert Corridor.invalid_taken == 0


def tempted(env, **kwargs):
    """A model that would choose the invalid action everywhere."""
    model = MDQN("MlpPolicy", env, **{**SMALL, **kwargs})
    with th.no_grad():
        model.q_net.q_net[-1].bias[2] = 1e3
    return model


@pytest.mark.parametrize("protocol", ["method", "info"])
def test_evaluations_respect_masks(protocol, tmp_path):
    env = DummyVecEnv([lambda: Monitor(Corridor(protocol, limit=6))] * 2)
    model = tempted(env, learning_starts=10_000)
    evaluate_without_masks(model, env, 2)
    assert Corridor.invalid_taken > 0, "what would happen without masks"
    Corridor.invalid_taken = 0
    returns, lengths = masks.evaluate_policy(model, env, 4, return_episode_rewards=True)
    assert len(returns) == len(lengths) == 4
    masks.evaluate_policy(model, VecNormalize(env), 2)
    masks.evaluate_policy(model, Monitor(Corridor(protocol, limit=6)), 2)
    evaluation = EvaluationCallback(env, tmp_path, every=50, episodes=2, seed=0, total=100)
    iterations = IterationCallback(tmp_path, eval_env=Monitor(Corridor(protocol, limit=6)))
    iterations.init_callback(model)
    assert len(iterations._evaluate()) == 5
    model.learn(100, callback=evaluation)
    assert evaluation.timesteps == [50, 100]
    single = DummyVecEnv([lambda: Monitor(Corridor(protocol, limit=6))])
    _play(model, single, 1, deterministic=True, record=False, show_policy=True)
    assert Corridor.invalid_taken == 0


def test_evaluation_of_a_model_without_masks_is_sb3s():
    env = DummyVecEnv([lambda: Monitor(gym.make("CartPole-v1"))])
    model = RegularizedDQN("MlpPolicy", env, **SMALL)
    env.seed(0)
    ours = masks.evaluate_policy(model, env, 3)
    env.seed(0)
    assert ours == evaluate_without_masks(model, env, 3)


def test_contribs_evaluation_callback_respects_masks():
    eval_env = DummyVecEnv([lambda: Monitor(Corridor(limit=6))])
    model = tempted(Corridor(limit=6), learning_starts=10_000)
    model.learn(100, callback=MaskableEvalCallback(eval_env, eval_freq=50, n_eval_episodes=2))
    assert Corridor.invalid_taken == 0


def test_without_masks_nothing_is_stored(algorithm):
    model = algorithm.make().learn(100)
    assert model.replay_buffer.actions.shape[2] == 1
    assert model._mask_source is None


@pytest.mark.parametrize("explore", [0.0, 1.0])
@pytest.mark.parametrize(
    ("n_observations", "mask", "shape"),
    [
        (None, [True, False], ()),
        (None, [[True, False]], ()),
        (1, [True, False], (1,)),
        (3, [True, False], (3,)),
        (3, [[True, False]] * 3, (3,)),
    ],
)
def test_one_action_for_each_observation_whatever_the_shape_of_the_masks(
    explore, n_observations, mask, shape
):
    model = MDQN("MlpPolicy", "CartPole-v1", **SMALL)
    model.exploration_rate = explore
    observations = np.zeros((4,) if n_observations is None else (n_observations, 4), np.float32)
    actions, _ = model.predict(observations, action_masks=np.array(mask))
    assert np.shape(actions) == shape
    assert not np.any(actions)
    chances = model.action_probabilities(observations, action_masks=np.array(mask))
    assert np.all(chances[..., 1] == 0.0)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([True] * 3, r"action_masks must have the shape \(2,\) or \(3, 2\), got \(3,\)"),
        ([[True, True]] * 2, r"got \(2, 2\)"),
        ([[True, True], [False, False], [True, True]], "must allow at least one action"),
    ],
)
def test_masks_that_do_not_fit_are_refused(mask, message):
    model = MDQN("MlpPolicy", "CartPole-v1", **SMALL)
    observations = np.zeros((3, 4), np.float32)
    with pytest.raises(ValueError, match=message):
        model.predict(observations, action_masks=np.array(mask))
    with pytest.raises(ValueError, match=message):
        model.action_probabilities(observations, action_masks=np.array(mask))
