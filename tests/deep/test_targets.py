"""Each deep target against its tabular formula in numpy, on an MDP with one-hot observations."""

import numpy as np
import pytest
import torch as th
from scipy.special import log_softmax, logsumexp, softmax

from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPI, DeepCPP, MoDQN, RegularizedDQN

TOLERANCE = {"abs": 1e-6, "rel": 0}


def deep_target(cls, mdp, env, iteration=0, **kwargs):
    model = cls(
        "MlpPolicy",
        env,
        policy_kwargs={"net_arch": []},
        buffer_size=10,
        gamma=mdp.gamma,
        device="cpu",
        **kwargs,
    )
    model.iteration = iteration
    batch = mdp.load_into(model)
    with th.no_grad():
        return model._target(batch).numpy().reshape(3, 2)


def test_dqn_target(mdp, one_hot_env):
    assert deep_target(RegularizedDQN, mdp, one_hot_env) == pytest.approx(
        mdp.backup(mdp.target.max(1)), **TOLERANCE
    )


@pytest.mark.parametrize("clip", [-1.0, -0.05, -np.inf])
def test_munchausen_target(mdp, one_hot_env, clip):
    T, alpha = 0.3, 0.9
    bonus = alpha * np.clip(T * log_softmax(mdp.target / T, axis=1), clip, 0)
    expected = mdp.backup(T * logsumexp(mdp.target / T, axis=1)) + bonus
    target = deep_target(MDQN, mdp, one_hot_env, alpha=alpha, temperature=T, munchausen_clip=clip)
    assert target == pytest.approx(expected, **TOLERANCE)


@pytest.mark.parametrize("backup", ["mellowmax", "logsumexp"])
def test_cvi_target(mdp, one_hot_env, backup):
    T, alpha = 0.3, 0.8
    m = T * (logsumexp(mdp.target / T, axis=1) - (np.log(2) if backup == "mellowmax" else 0))
    expected = mdp.backup(m) + alpha * (mdp.target - m[:, None])
    target = deep_target(CVI, mdp, one_hot_env, alpha=alpha, temperature=T, backup=backup)
    assert target == pytest.approx(expected, **TOLERANCE)


def test_cpp_target(mdp, one_hot_env):
    tau, sigma = 0.2, 0.1
    alpha, T = sigma / (tau + sigma), tau + sigma
    log_old = log_softmax(mdp.target / tau, axis=1)
    log_new = log_softmax(alpha * log_old + mdp.online / T, axis=1)
    value = (np.exp(log_new) * (mdp.target - tau * log_new - sigma * (log_new - log_old))).sum(1)
    target = deep_target(DeepCPP, mdp, one_hot_env, alpha=alpha, temperature=T)
    assert target == pytest.approx(mdp.backup(value), **TOLERANCE)


@pytest.mark.parametrize("clip", [-1.0, -0.05, -np.inf])
def test_cautious_mdqn_has_the_target_of_mdqn(mdp, one_hot_env, clip):
    kwargs = {"alpha": 0.8, "temperature": 0.3, "munchausen_clip": clip}
    ours = deep_target(CautiousMDQN, mdp, one_hot_env, iteration=1000, **kwargs)
    assert ours == pytest.approx(deep_target(MDQN, mdp, one_hot_env, **kwargs), abs=0, rel=0)


def test_momentum_target(mdp, one_hot_env):
    greedy = mdp.acting_target.argmax(1)
    expected = mdp.backup(mdp.target[np.arange(3), greedy])
    assert (greedy != mdp.target.argmax(1)).any(), "the test must tell H from Q"
    assert deep_target(MoDQN, mdp, one_hot_env) == pytest.approx(expected, **TOLERANCE)


def test_cpi_target(mdp, one_hot_env):
    expected = mdp.backup((softmax(mdp.acting_target, axis=1) * mdp.target).sum(1))
    assert deep_target(DeepCPI, mdp, one_hot_env) == pytest.approx(expected, **TOLERANCE)


# --- identities and limits ------------------------------------------------------------------------


def test_unclipped_munchausen_is_cvi_with_log_sum_exp(mdp, one_hot_env):
    kwargs = {"alpha": 0.9, "temperature": 0.3}
    munchausen = deep_target(MDQN, mdp, one_hot_env, munchausen_clip=-np.inf, **kwargs)
    cvi = deep_target(CVI, mdp, one_hot_env, backup="logsumexp", **kwargs)
    assert munchausen == pytest.approx(cvi, **TOLERANCE)


def test_mellowmax_differs_by_a_constant_and_more_where_episodes_end(mdp, one_hot_env):
    kwargs = {"alpha": 0.9, "temperature": 0.3}
    shift = deep_target(CVI, mdp, one_hot_env, backup="logsumexp", **kwargs) - deep_target(
        CVI, mdp, one_hot_env, **kwargs
    )
    constant = 0.3 * np.log(2)
    assert shift[:2] == pytest.approx(np.full((2, 2), (mdp.gamma - 0.9) * constant), **TOLERANCE)
    assert shift[2:] == pytest.approx(np.full((1, 2), -0.9 * constant), **TOLERANCE)


@pytest.mark.parametrize(("cls", "kwargs"), [(MDQN, {}), (CVI, {"backup": "logsumexp"})])
def test_without_kl_every_target_is_soft_dqn(mdp, one_hot_env, cls, kwargs):
    soft = mdp.backup(0.3 * logsumexp(mdp.target / 0.3, axis=1))
    assert deep_target(
        cls, mdp, one_hot_env, alpha=0.0, temperature=0.3, **kwargs
    ) == pytest.approx(soft, **TOLERANCE)


def test_without_kl_cpp_is_soft_dqn_once_the_networks_agree(mdp, one_hot_env):
    mdp.online = mdp.target
    soft = mdp.backup(0.3 * logsumexp(mdp.target / 0.3, axis=1))
    assert deep_target(DeepCPP, mdp, one_hot_env, alpha=0.0, temperature=0.3) == pytest.approx(
        soft, **TOLERANCE
    )


@pytest.mark.parametrize(
    ("cls", "kwargs"),
    [
        (MDQN, {}),
        (CVI, {}),
        (CVI, {"backup": "logsumexp"}),
        (CautiousMDQN, {}),
        (DeepCPP, {}),
    ],
)
def test_zero_temperature_without_kl_gives_dqn_target(mdp, one_hot_env, cls, kwargs):
    mdp.online = mdp.target  # CPP takes its policy from the online network, as double DQN does
    target = deep_target(cls, mdp, one_hot_env, alpha=0.0, temperature=1e-8, **kwargs)
    assert target == pytest.approx(mdp.backup(mdp.target.max(1)), **TOLERANCE)


def test_zero_temperature_cpp_is_double_dqn(mdp, one_hot_env):
    greedy = mdp.online.argmax(1)
    assert (greedy != mdp.target.argmax(1)).any(), "the test must tell the networks apart"
    target = deep_target(DeepCPP, mdp, one_hot_env, alpha=0.0, temperature=1e-4)
    # on the online network's greedy action the entropy term vanishes too
    assert target == pytest.approx(mdp.backup(mdp.target[np.arange(3), greedy]), abs=1e-3, rel=0)


# --- losses and statistics ------------------------------------------------------------------------


def make(cls, mdp, env, **kwargs):
    model = cls(
        "MlpPolicy",
        env,
        policy_kwargs={"net_arch": []},
        buffer_size=10,
        gamma=mdp.gamma,
        device="cpu",
        **kwargs,
    )
    return model, mdp.load_into(model)


def test_projection_at_zeta_one_is_exactly_nothing(mdp, one_hot_env):
    model, batch = make(DeepCPP, mdp, one_hot_env, zeta=1.0, alpha=0.3, temperature=0.3)
    projection = model._losses(batch, th.zeros(6, 1))["projection"]
    gradients = th.autograd.grad(projection, list(model.q_net.parameters()))
    assert projection.item() == 0.0
    assert all((g == 0.0).all() for g in gradients)


@pytest.mark.parametrize("coef", [None, 7.0])
@pytest.mark.parametrize("zeta", [0.0, 0.25])
def test_projection_loss_is_the_kl_to_the_mixture_by_itself_or_weighted(
    mdp, one_hot_env, zeta, coef
):
    tau, sigma = 0.2, 0.1
    alpha, T = sigma / (tau + sigma), tau + sigma
    model, batch = make(
        DeepCPP,
        mdp,
        one_hot_env,
        zeta=zeta,
        alpha=alpha,
        temperature=T,
        projection_coef=coef,
    )
    old = softmax(mdp.target / tau, axis=1)
    new = softmax(alpha * np.log(old) + mdp.online / T, axis=1)
    # The mean over states is that over the batch, which holds every state two times
    kl = (new * np.log(new / (zeta * new + (1 - zeta) * old))).sum(1).mean()
    weight = 1.0 if coef is None else coef * T**2
    assert model._losses(batch, th.zeros(6, 1))["projection"].item() == pytest.approx(
        weight * kl, abs=1e-6
    )


def test_policy_loss_of_cpi_is_the_kl_to_the_mixture_with_greedy(mdp, one_hot_env):
    model, batch = make(DeepCPI, mdp, one_hot_env, zeta=0.5)
    old, new = softmax(mdp.acting_target, axis=1), softmax(mdp.acting, axis=1)
    greedy = np.eye(2)[mdp.online.argmax(1)]
    kl = (new * np.log(new / (0.5 * greedy + 0.5 * old))).sum(1).mean()
    assert model._losses(batch, th.zeros(6, 1))["policy"].item() == pytest.approx(kl, abs=1e-5)


def test_momentum_loss_regresses_on_the_running_average(mdp, one_hot_env):
    model, batch = make(MoDQN, mdp, one_hot_env, momentum=0.25)
    target = th.linspace(-1, 1, 6).reshape(-1, 1)
    average = 0.75 * mdp.acting_target + 0.25 * target.numpy().reshape(3, 2)
    assert model._losses(batch, target)["momentum"].item() == pytest.approx(
        ((mdp.acting - average) ** 2).mean(), abs=1e-6
    )


def test_momentum_weight_falls_with_the_iterations_to_its_floor(one_hot_env, mdp):
    model, _ = make(MoDQN, mdp, one_hot_env, kappa=10.0, momentum_floor=0.2)
    weights = []
    for model.iteration in (0, 10, 30, 1000):
        weights.append(model.momentum_weight)
    assert weights == pytest.approx([1.0, 0.5, 0.25, 0.2])


def test_tracker_sees_the_advantage_of_q_over_the_previous_policy(mdp, one_hot_env):
    tau, sigma = 0.2, 0.1
    alpha, T = sigma / (tau + sigma), tau + sigma
    model, batch = make(DeepCPP, mdp, one_hot_env, alpha=alpha, temperature=T)
    with th.no_grad():
        model.caution.observe(*model._statistics(batch))
    old = softmax(mdp.target / tau, axis=1)
    advantage = mdp.online.max(1) - (old * mdp.online).sum(1)
    assert model.caution.tracker.mean.item() == pytest.approx(advantage.mean(), abs=1e-6)
    assert model.caution.tracker.maximum.item() == pytest.approx(advantage.max(), abs=1e-6)


def test_zeta_of_the_first_iteration_is_the_papers_formula(mdp, one_hot_env):
    model, batch = make(DeepCPP, mdp, one_hot_env, alpha=0.5, temperature=2.0)
    with th.no_grad():
        model.caution.observe(*model._statistics(batch))
    model.iteration = 2
    record = model._on_iteration_end()
    C_2 = (mdp.gamma + 0.5) / 2.0  # beta r_max (gamma + alpha)
    assert record["C_K"] == pytest.approx(C_2)
    expected = min(record["m_K"] / record["M_K"] / C_2, 1.0)
    assert record["zeta"] == model.caution.zeta == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("clip", [-0.1, -np.inf])
def test_typical_zeta_is_the_advantage_over_mean_distance_times_deviation(mdp, one_hot_env, clip):
    alpha, T = 0.8, 0.3
    kwargs = {"alpha": alpha, "temperature": T, "munchausen_clip": clip, "zeta": "typical"}
    model, _ = make(CautiousMDQN, mdp, one_hot_env, **kwargs)
    model.iteration = 1000
    batch = mdp.load_into(model)
    with th.no_grad():
        model.caution.observe(*model._statistics(batch))
    old, new = softmax(mdp.target / T, axis=1), softmax(mdp.online / T, axis=1)
    assert (T * np.log(old) < -0.1).any(), "the test must tell clipped from unclipped"
    q = mdp.online - alpha * np.maximum(T * np.log(old), clip)
    advantage = ((new - old) * q).sum(1)
    mean, scale = advantage.mean(), np.abs(new - old).sum(1).mean() * advantage.std()
    record = model._on_iteration_end()
    assert (record["m_K"], record["M_K"]) == pytest.approx((mean, scale), abs=1e-6)
    expected = min(max(mean / scale, 0.0), 1.0)
    assert record["zeta"] == model.caution.zeta == pytest.approx(expected, abs=1e-6)


def quarter(estimate):
    return 0.25 if estimate.K < 3 else 0.75


def test_zeta_may_be_a_function_of_the_estimate(mdp, one_hot_env):
    seen = []

    def rule(estimate):
        seen.append(estimate)
        return quarter(estimate)

    model, batch = make(DeepCPP, mdp, one_hot_env, zeta=rule)
    for model.iteration in (1, 3):
        with th.no_grad():
            model.caution.observe(*model._statistics(batch))
        zeta = model._on_iteration_end()["zeta"]
    assert zeta == model.caution.zeta == 0.75
    assert [estimate.K for estimate in seen] == [1, 3]
    assert seen[0].gamma == mdp.gamma
    assert seen[0].m_K == pytest.approx(model.caution.tracker.mean.item(), rel=1e-6)
    assert pytest.approx(1 / 0.0134) == seen[0].C_K


def test_bootstrap_uses_the_discount_of_each_transition(mdp, one_hot_env):
    model, _ = make(RegularizedDQN, mdp, one_hot_env)
    from sb3_cpp.deep.batch import Batch

    discounts = th.linspace(0, 1, 6).reshape(-1, 1)
    batch = Batch(
        mdp.samples._replace(discounts=discounts), mdp.gamma, model.q_net, model.q_net_target
    )
    expected = mdp.reward.ravel() + (1 - mdp.done.ravel()) * discounts.numpy().ravel() * 2.0
    assert batch.bootstrap(th.full((6, 1), 2.0)).numpy().ravel() == pytest.approx(
        expected, abs=1e-6
    )


def test_munchausen_target_of_n_steps_has_the_bonus_of_the_first_and_the_entropy_of_the_last(
    mdp, one_hot_env
):
    """y = sum_i gamma^i r_i + alpha clip(T log pi-(a|s)) + gamma^n T logsumexp(Q-(s_n) / T)."""
    T, alpha, n = 0.3, 0.9, 3
    model, _ = make(MDQN, mdp, one_hot_env, alpha=alpha, temperature=T)
    from sb3_cpp.deep.batch import Batch

    discounts = th.full((6, 1), mdp.gamma**n)
    samples = mdp.samples._replace(discounts=discounts)  # its rewards stand for n-step sums
    batch = Batch(samples, mdp.gamma, model.q_net, model.q_net_target)
    soft = T * logsumexp(mdp.target / T, axis=1)
    one_step = mdp.backup(soft) - mdp.reward
    bonus = alpha * np.clip(T * log_softmax(mdp.target / T, axis=1), -1.0, 0.0)
    expected = mdp.reward + mdp.gamma ** (n - 1) * one_step + bonus
    with th.no_grad():
        assert model._target(batch).numpy().reshape(3, 2) == pytest.approx(expected, **TOLERANCE)
