"""Quantile critics: contrib's QR-DQN with DQN's hooks, and each target against its formula."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import QRDQN
from scipy.special import log_softmax, logsumexp, softmax
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPI, DeepCPP, MoDQN, RegularizedDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.masks import pack
from sb3_cpp.deep.policies import MlpPolicy

TOLERANCE = {"abs": 2e-6, "rel": 0}
N = 4  # quantiles in the targets' tests
SMALL = {"buffer_size": 500, "learning_starts": 50, "target_update_interval": 50, "device": "cpu"}


# --- parity ---------------------------------------------------------------------------------------


def qr_dqn(**kwargs):
    """Both of them, with QR-DQN's optimiser and without clipping, if not said otherwise."""
    settings = {
        "seed": 1,
        "learning_starts": 100,
        "target_update_interval": 120,
        "buffer_size": 5000,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
        "learning_rate": 5e-4,
        "max_grad_norm": None,
        "device": "cpu",
        **kwargs,
    }
    n_quantiles, policy = settings.pop("n_quantiles", 11), settings.pop("policy", "MlpPolicy")
    env, steps = settings.pop("env"), settings.pop("steps", 600)
    own = {"n_quantiles": n_quantiles, "policy_kwargs": {"optimizer_kwargs": {"eps": 0.01 / 32}}}
    # One after the other: the generators are global
    ours = RegularizedDQN(policy, env(), **settings, **own).learn(steps)
    theirs = QRDQN(policy, env(), policy_kwargs={"n_quantiles": n_quantiles}, **settings)
    return ours, theirs.learn(steps)


def same_weights(ours, theirs) -> bool:
    pairs = zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True)
    return all(th.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    "kwargs", [{}, {"n_quantiles": 1}, {"max_grad_norm": 0.5}, {"n_steps": 3}, {"n_envs": 3}]
)
def test_dqns_hooks_with_quantiles_are_contribs_qr_dqn_to_the_bit(kwargs):
    n_envs = kwargs.pop("n_envs", 1)
    ours, theirs = qr_dqn(env=lambda: make_vec_env("CartPole-v1", n_envs, seed=3), **kwargs)
    assert ours._n_updates == theirs._n_updates > 30
    assert same_weights(ours, theirs)
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    first, second = (m.predict(observations, deterministic=True)[0] for m in (ours, theirs))
    assert np.array_equal(first, second)


def test_parity_holds_for_images():
    def env():
        images = FakeImageEnv(screen_height=36, screen_width=36, n_channels=1, discrete=True)
        images.observation_space.seed(0)  # where its images come from
        return images

    kwargs = {"policy": "CnnPolicy", "buffer_size": 100, "learning_starts": 20, "steps": 60}
    ours, theirs = qr_dqn(env=env, **kwargs)
    assert ours._n_updates == theirs._n_updates >= 9
    assert same_weights(ours, theirs)


def test_parity_can_fail():
    env = lambda: make_vec_env("CartPole-v1", seed=3)  # noqa: E731
    assert not same_weights(qr_dqn(env=env)[0], qr_dqn(env=env, gamma=0.98)[1])


# --- targets --------------------------------------------------------------------------------------


class Tables:
    """Quantiles of the online and the target network, shape (states, N, actions)."""

    def __init__(self, mdp) -> None:
        rng = np.random.default_rng(5)
        self.mdp = mdp
        deviations = rng.normal(size=(2, 3, N, 2))
        deviations -= deviations.mean(axis=2, keepdims=True)
        # Their means are the MDP's Q-values
        self.online = mdp.online[:, None] + deviations[0]
        self.target = mdp.target[:, None] + deviations[1]

    def make(self, cls, env, iteration=0, **kwargs):
        model = cls(
            "MlpPolicy",
            env,
            policy_kwargs={"net_arch": []},
            buffer_size=10,
            gamma=self.mdp.gamma,
            device="cpu",
            n_quantiles=N,
            **kwargs,
        )
        values = {"q_net": self.online, "q_net_target": self.target}
        if hasattr(model, "acting_net"):
            values |= {"acting_net": self.mdp.acting, "acting_net_target": self.mdp.acting_target}
        for name, table in values.items():
            with th.no_grad():
                layer = getattr(model, name).q_net[0]
                layer.weight.copy_(th.as_tensor(table.reshape(3, -1).T))
                layer.bias.zero_()
        model.iteration = iteration
        return model, self.batch(model, self.mdp.samples)

    def batch(self, model, samples):
        networks = (model.q_net, model.q_net_target)
        coefficients = model._coefficients()
        return Batch(samples, self.mdp.gamma, *networks, n_actions=2, coefficients=coefficients)

    def target_of(self, cls, env, **kwargs) -> np.ndarray:
        """Shape (states, actions, N)."""
        model, batch = self.make(cls, env, **kwargs)
        with th.no_grad():
            return model._target(batch).numpy().reshape(3, 2, N)

    def backup(self, next_quantiles: np.ndarray) -> np.ndarray:
        """``r + gamma (1-d) v_j(s')`` for v of shape (states, N), by hand."""
        mdp = self.mdp
        discount = (mdp.gamma * (1 - mdp.done))[:, :, None]
        return mdp.reward[:, :, None] + discount * next_quantiles[mdp.next_state]


@pytest.fixture
def tables(mdp) -> Tables:
    return Tables(mdp)


def test_dqns_target_takes_the_quantiles_of_the_action_with_the_best_mean(tables, one_hot_env):
    greedy = tables.target.mean(1).argmax(1)
    chosen = tables.target[np.arange(3), :, greedy]
    target = tables.target_of(RegularizedDQN, one_hot_env)
    assert target == pytest.approx(tables.backup(chosen), **TOLERANCE)


@pytest.mark.parametrize("cls", [MDQN, CautiousMDQN])
def test_munchausen_target(tables, one_hot_env, cls):
    T, alpha, clip = 0.3, 0.9, -0.5
    log_pi = log_softmax(tables.mdp.target / T, axis=1)
    value = (np.exp(log_pi)[:, None] * (tables.target - T * log_pi[:, None])).sum(2)
    bonus = alpha * np.clip(T * log_pi, clip, 0)
    assert (T * log_pi < clip).any(), "the test must tell clipped from unclipped"
    kwargs = {"alpha": alpha, "temperature": T, "munchausen_clip": clip}
    # Past the iterations in which CautiousMDQN's alpha grows
    target = tables.target_of(cls, one_hot_env, iteration=1000, **kwargs)
    assert target == pytest.approx(tables.backup(value) + bonus[:, :, None], **TOLERANCE)


@pytest.mark.parametrize("backup", ["mellowmax", "logsumexp"])
def test_cvi_target(tables, one_hot_env, backup):
    T, alpha = 0.3, 0.8
    psi = tables.mdp.target
    constant = T * np.log(2) if backup == "mellowmax" else 0.0
    log_pi = log_softmax(psi / T, axis=1)
    value = (np.exp(log_pi)[:, None] * (tables.target - T * log_pi[:, None])).sum(2) - constant
    gap = psi - (T * logsumexp(psi / T, axis=1) - constant)[:, None]
    target = tables.target_of(CVI, one_hot_env, alpha=alpha, temperature=T, backup=backup)
    assert target == pytest.approx(tables.backup(value) + alpha * gap[:, :, None], **TOLERANCE)


def test_cpp_target(tables, one_hot_env):
    tau, sigma = 0.2, 0.1
    alpha, T = sigma / (tau + sigma), tau + sigma
    log_old = log_softmax(tables.mdp.target / tau, axis=1)
    log_new = log_softmax(alpha * log_old + tables.mdp.online / T, axis=1)
    terms = (tau * log_new + sigma * (log_new - log_old))[:, None]
    value = (np.exp(log_new)[:, None] * (tables.target - terms)).sum(2)
    target = tables.target_of(DeepCPP, one_hot_env, alpha=alpha, temperature=T)
    assert target == pytest.approx(tables.backup(value), **TOLERANCE)


def test_momentum_target_and_its_average_of_means(tables, one_hot_env):
    mdp = tables.mdp
    greedy = mdp.acting_target.argmax(1)
    expected = tables.backup(tables.target[np.arange(3), :, greedy])
    model, batch = tables.make(MoDQN, one_hot_env, momentum=0.25)
    with th.no_grad():
        target = model._target(batch)
    assert target.numpy().reshape(3, 2, N) == pytest.approx(expected, **TOLERANCE)
    average = 0.75 * mdp.acting_target + 0.25 * expected.mean(2)
    assert model._losses(batch, target)["momentum"].item() == pytest.approx(
        ((mdp.acting - average) ** 2).mean(), abs=1e-6
    )


def test_cpi_target(tables, one_hot_env):
    pi = softmax(tables.mdp.acting_target, axis=1)
    expected = tables.backup((pi[:, None] * tables.target).sum(2))
    assert tables.target_of(DeepCPI, one_hot_env) == pytest.approx(expected, **TOLERANCE)


ALL = [
    (RegularizedDQN, {}),
    (MDQN, {"temperature": 0.3}),
    (CautiousMDQN, {"temperature": 0.3}),
    (CVI, {"temperature": 0.3}),
    (CVI, {"temperature": 0.3, "backup": "logsumexp"}),
    (DeepCPP, {"alpha": 0.4, "temperature": 0.3}),
    (MoDQN, {}),
    (DeepCPI, {}),
]


@pytest.mark.parametrize(("cls", "kwargs"), ALL)
def test_the_mean_of_the_target_is_the_target_of_the_mean(tables, one_hot_env, cls, kwargs):
    target = tables.target_of(cls, one_hot_env, **kwargs)
    settings = {"policy_kwargs": {"net_arch": []}, "buffer_size": 10, "gamma": tables.mdp.gamma}
    plain = cls("MlpPolicy", one_hot_env, device="cpu", **settings, **kwargs)
    with th.no_grad():
        expected = plain._target(tables.mdp.load_into(plain)).numpy().reshape(3, 2)
    assert target.mean(2) == pytest.approx(expected, **TOLERANCE)
    assert target[:2].std(axis=2).min() > 0.1, "but each quantile has its own"


@pytest.mark.parametrize("cls", [MDQN, CVI, CautiousMDQN, DeepCPP])
def test_zero_temperature_without_kl_is_qr_dqn(tables, one_hot_env, cls):
    tables.online, tables.mdp.online = tables.target, tables.mdp.target
    target = tables.target_of(cls, one_hot_env, alpha=0.0, temperature=1e-8)
    assert target == pytest.approx(tables.target_of(RegularizedDQN, one_hot_env), **TOLERANCE)


def test_invalid_actions_contribute_nothing(tables, one_hot_env):
    """Action 1 is invalid everywhere: every quantile is that of action 0."""
    mask = th.as_tensor(pack(np.tile([True, False], (6, 1))))
    samples = tables.mdp.samples
    actions = th.cat([th.zeros(6, 1).long(), mask, mask], dim=1)
    expected = tables.backup(tables.target[:, :, 0])
    for cls, kwargs in ALL[:6]:
        model, _ = tables.make(cls, one_hot_env, **kwargs)
        batch = tables.batch(model, samples._replace(actions=actions))
        with th.no_grad():
            target = model._target(batch).numpy().reshape(3, 2, N)
        assert target == pytest.approx(expected, abs=1e-5)
        assert th.isfinite(model._losses(batch, th.as_tensor(target).reshape(6, N))["value"])


# --- losses, and what sees the mean ---------------------------------------------------------------


def test_the_value_loss_is_the_quantile_huber_loss(tables, one_hot_env):
    """``sum_i mean_j |f_i - [y_j < z_i]| huber(y_j - z_i)``, f_i = (2 i + 1) / (2 N)."""
    model, batch = tables.make(RegularizedDQN, one_hot_env)
    target = np.random.default_rng(1).normal(size=(6, N), scale=2.0).astype(np.float32)
    # Rows of the batch are (state, action)
    z = tables.online.transpose(0, 2, 1).reshape(6, N)
    error = target[:, None, :] - z[:, :, None]
    huber = np.where(np.abs(error) > 1, np.abs(error) - 0.5, 0.5 * error**2)
    fraction = ((2 * np.arange(N) + 1) / (2 * N))[None, :, None]
    expected = (np.abs(fraction - (error < 0)) * huber).mean(2).sum(1).mean()
    loss = model._losses(batch, th.as_tensor(target))["value"]
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_one_quantile_is_half_the_huber_loss(mdp, one_hot_env):
    gradients = []
    for n_quantiles in (0, 1):
        model = RegularizedDQN(
            "MlpPolicy",
            one_hot_env,
            n_quantiles=n_quantiles,
            policy_kwargs={"net_arch": []},
            buffer_size=10,
            gamma=mdp.gamma,
        )
        batch = mdp.load_into(model)
        loss = model._losses(batch, model._target(batch).detach())["value"]
        gradients.append(th.autograd.grad(loss, model.q_net.q_net[0].weight)[0])
    assert th.allclose(gradients[0], 2 * gradients[1], atol=1e-7)


@pytest.mark.parametrize("cls", [DeepCPP, CautiousMDQN, DeepCPI])
def test_statistics_and_policies_see_the_mean(tables, one_hot_env, cls):
    model, batch = tables.make(cls, one_hot_env)
    settings = {"policy_kwargs": {"net_arch": []}, "buffer_size": 10, "gamma": tables.mdp.gamma}
    plain = cls("MlpPolicy", one_hot_env, device="cpu", **settings)
    scalar = tables.mdp.load_into(plain)
    with th.no_grad():
        pairs = [
            *zip(model._statistics(batch), plain._statistics(scalar)),
            *zip(model._policies(batch), plain._policies(scalar)),
        ]
    for quantiles, values in pairs:
        assert th.allclose(quantiles, values, atol=1e-4)


def test_q_values_and_actions_are_those_of_the_mean(tables, one_hot_env):
    model, _ = tables.make(MDQN, one_hot_env, temperature=0.3)
    states = np.eye(3, dtype=np.float32)
    assert model.q_values(states) == pytest.approx(tables.mdp.online, abs=1e-6)
    expected = softmax(tables.mdp.online / 0.3, axis=1)
    assert model.action_probabilities(states) == pytest.approx(expected, abs=1e-6)
    best = tables.mdp.online.argmax(1)
    assert np.array_equal(model.predict(states, deterministic=True)[0], best)
    assert np.array_equal(model._numpy_network(states).argmax(1), best)
    with th.no_grad():
        assert model.q_net(th.as_tensor(states)).numpy() == pytest.approx(tables.online, abs=1e-6)


def test_hooks_of_a_network_with_quantiles_are_called():
    model, calls = MDQN("MlpPolicy", "CartPole-v1", n_quantiles=3, **SMALL), []
    model.q_net_target.register_forward_hook(lambda *_: calls.append(1))
    model.learn(120)
    assert len(calls) == 2 * model._n_updates  # at s and at s'


# --- arguments, saving and loading ----------------------------------------------------------------


class Own(RegularizedDQN):
    """Knows nothing of quantiles."""

    def _target(self, batch):
        return batch.bootstrap(batch.next_target_q.max(dim=1, keepdim=True).values)


def test_an_algorithm_that_does_not_know_quantiles_refuses_them():
    assert Own("MlpPolicy", "CartPole-v1", **SMALL).learn(80)._n_updates > 0
    model = Own("MlpPolicy", "CartPole-v1", n_quantiles=5, **SMALL)
    with pytest.raises(ValueError, match=r"^n_quantiles must be 0 for Own, got 5$"):
        model.learn(80)


def test_quantiles_need_a_policy_of_ours_and_are_no_policy_argument():
    with pytest.raises(ValueError, match=r"policy must be .* for n_quantiles, got DQNPolicy"):
        MDQN(DQNPolicy, "CartPole-v1", n_quantiles=5)
    given = {"n_quantiles": 5}
    with pytest.raises(
        ValueError,
        match=r"^n_quantiles must be an argument of MDQN itself, got policy_kwargs=\{.*: 5\}$",
    ):
        MDQN("MlpPolicy", "CartPole-v1", policy_kwargs=given)
    assert MDQN(MlpPolicy, "CartPole-v1", n_quantiles=5, buffer_size=10).policy_kwargs == {}


def test_another_number_of_quantiles_is_refused_when_loading(tmp_path: Path):
    for saved, words in ((5, "5"), (0, "0 or 1")):
        model = MDQN("MlpPolicy", "CartPole-v1", n_quantiles=saved, averaging=20, **SMALL)
        model.save(tmp_path / "model")
        assert MDQN.load(tmp_path / "model", device="cpu").n_quantiles == saved
        with pytest.raises(
            ValueError, match=rf"^n_quantiles must be {words} as in the saved model, got 7$"
        ):
            MDQN.load(tmp_path / "model", device="cpu", n_quantiles=7)
        with pytest.raises(ValueError, match=r"^n_quantiles must be a whole number .*, got -1$"):
            MDQN.load(tmp_path / "model", device="cpu", n_quantiles=-1)


def test_a_file_from_before_there_were_quantiles_has_none(tmp_path: Path):
    model = MDQN("MlpPolicy", "CartPole-v1", **SMALL)
    model.save(tmp_path / "model", exclude=["n_quantiles"])
    loaded = MDQN.load(tmp_path / "model", env=gym.make("CartPole-v1"), device="cpu")
    assert loaded.n_quantiles == 0
    assert loaded.learn(80)._n_updates > 0


def test_weights_are_shared_between_models_of_the_same_quantiles(tmp_path: Path):
    one, two, other = (
        MDQN("MlpPolicy", "CartPole-v1", seed=n, n_quantiles=n, **SMALL) for n in (5, 5, 4)
    )
    one.save_weights(tmp_path / "w.pt")
    two.load_weights(tmp_path / "w.pt")
    assert same_weights(one, two)
    with pytest.raises(ValueError, match=r"has size \(8, 64\) in the model, \(10, 64\) in the"):
        other.load_weights(tmp_path / "w.pt")


def test_without_clipping_gradients_keep_their_norm(tmp_path: Path):
    model = MDQN("MlpPolicy", "CartPole-v1", max_grad_norm=None, seed=0, **SMALL).learn(80)
    huge = MDQN("MlpPolicy", "CartPole-v1", max_grad_norm=1e9, seed=0, **SMALL).learn(80)
    assert same_weights(model, huge)
    model.save(tmp_path / "model")
    assert MDQN.load(tmp_path / "model").max_grad_norm == float("inf")
