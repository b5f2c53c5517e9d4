"""Every suite x environment x algorithm builds its model."""

from pathlib import Path

import pytest
import yaml

from sb3_cpp import DeepCPP
from sb3_cpp.training.algorithms import hyperparameter_defaults
from sb3_cpp.training.environments import is_atari
from sb3_cpp.training.grid import check_buildable
from sb3_cpp.training.study import search_space
from sb3_cpp.training.suites import load_suite, suite_names

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
NEEDS = {
    "MinAtar/": "minatar",
    "LunarLander": "Box2D",
    "Hopper": "mujoco",
    "HalfCheetah": "mujoco",
    "NoFrameskip": "ale_py",
}
CELLS = [
    (name, env)
    for name in ("ablation", "atari", "classic", "continuous", "minatar", "study")
    for env in load_suite(name).envs
]


@pytest.mark.parametrize(("name", "env"), CELLS)
def test_every_algorithm_builds(name: str, env: str) -> None:
    for key, package in NEEDS.items():
        if key in env:
            pytest.importorskip(package, reason=f"{env} needs {package}")
    suite = load_suite(name)
    # Emulators take a while to start, and one is enough to build a model
    overrides = {"n_envs": 1} if is_atari(env) else {}
    check_buildable([suite.run_config(algo, env, 0, overrides) for algo in suite.algos])


def test_backbones_of_a_suite_match() -> None:
    for name, env in CELLS:
        suite = load_suite(name)
        kwargs = [
            suite.run_config(algo, env, 0).hyperparameters["policy_kwargs"] for algo in suite.algos
        ]
        shared = ("net_arch", "features_extractor_class", "activation_fn")
        assert len({str([k.get(key) for key in shared]) for k in kwargs}) == 1, (name, env)


def test_cpp_is_the_class_in_every_suite() -> None:
    """Its numbers are the paper's; a suite states at most the target period for its scale."""
    for name, env in CELLS:
        suite = load_suite(name)
        stated = [suite.algos.get("cpp") or {}]
        stated.append((suite.envs[env].get("algos") or {}).get("cpp") or {})
        assert all(set(entry) <= {"target_update_interval"} for entry in stated), (name, env)


@pytest.mark.parametrize("name", ["atari", "classic", "minatar"])
def test_caution_ends_when_it_does_in_the_paper(name: str) -> None:
    """1/C_K after the last target update is 0.46 after the paper's 5,000,000 steps."""
    for env in load_suite(name).envs:
        config = load_suite(name).run_config("cpp", env, 0)
        values = {**hyperparameter_defaults(DeepCPP), **config.hyperparameters}
        learning = config.n_timesteps - values["learning_starts"]
        k = learning // values["target_update_interval"]
        c = sum_ratio(k, values["alpha"], values["gamma"]) / values["temperature"]
        assert 1.0 / c == pytest.approx(0.46, abs=0.06), (env, k)


def sum_ratio(k: int, alpha: float, gamma: float) -> float:
    return sum(alpha**j * gamma ** (k - j - 1) for j in range(k))


def test_a_variant_starts_from_its_algorithm_in_the_environments_own_suite() -> None:
    cpp = load_suite("classic").run_config("cpp", "CartPole-v1", 0).hyperparameters
    warm = load_suite("study").run_config("cpp_warm", "CartPole-v1", 0)
    assert warm.hyperparameters == {**cpp, "temperature": 0.03}
    assert warm.algorithm == "cpp"
    assert cpp["target_update_interval"] == 80


def test_averaged_dqn_is_dqn() -> None:
    env = "MinAtar/Breakout-v1"
    averaged = load_suite("minatar").run_config("dqn_average", env, 0)
    dqn = load_suite("minatar").run_config("dqn", env, 0)
    assert averaged.algorithm == "regularized_dqn"
    assert averaged.hyperparameters == {**dqn.hyperparameters, "averaging": 2000}


@pytest.mark.parametrize(("row", "algo"), [("mdqn_qr", "mdqn"), ("cmdqn_qr", "cmdqn")])
def test_quantile_rows_differ_by_their_quantiles_only(row: str, algo: str) -> None:
    suite, env = load_suite("minatar"), "MinAtar/Breakout-v1"
    quantiles, plain = (suite.run_config(name, env, 0) for name in (row, algo))
    assert quantiles.algorithm == algo
    assert quantiles.hyperparameters == {**plain.hyperparameters, "n_quantiles": 50}
    contrib = suite.run_config("qrdqn", env, 0).hyperparameters["policy_kwargs"]["n_quantiles"]
    assert contrib == 50


def test_the_zoo_trains_cartpole_with_the_settings_of_classic() -> None:
    """In particular not with 128 updates in a row, which leave K no meaning."""
    zoo = yaml.safe_load((CONFIGS / "zoo.yml").read_text(encoding="utf-8"))["CartPole-v1"]
    ours = load_suite("classic").run_config("mdqn", "CartPole-v1", 0)
    assert zoo.pop("n_timesteps") == ours.n_timesteps
    assert float(zoo.pop("learning_rate").removeprefix("lin_")) == 0.0023
    assert zoo.pop("policy_kwargs") == "dict(net_arch=[128, 128])"
    expected = ours.hyperparameters
    assert expected["learning_rate"] == "lin_0.0023"
    assert expected["policy_kwargs"]["net_arch"] == [128, 128]
    assert zoo == {key: expected[key] for key in zoo}


def test_every_search_space_can_be_read() -> None:
    for name in suite_names():
        suite = load_suite(name)
        for algo in suite.search:
            if algo != "shared":
                assert search_space(suite, algo)
