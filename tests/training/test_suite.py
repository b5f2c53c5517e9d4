"""Suites: merged in order, checked against the constructors, plain YAML."""

from pathlib import Path
from typing import Any

import pytest
from sb3_contrib import QRDQN
from stable_baselines3 import SAC

from sb3_cpp import DeepCPP
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.algorithms import (
    algorithm_names,
    check_hyperparameters,
    check_values,
    get_algorithm,
    register,
    resolve_classes,
)
from sb3_cpp.training.suites import (
    RunConfig,
    Suite,
    load_suite,
    parse_overrides,
    suite_names,
    suite_of,
)

SUITE = """
shared: {gamma: 0.9, learning_rate: 0.1, buffer_size: 500, policy_kwargs: {net_arch: [8]}}
envs:
  CartPole-v1:
    n_timesteps: 100
    learning_rate: 0.2
    algos:
      mdqn: {batch_size: 16, temperature: 0.4}
algos:
  mdqn: {learning_rate: 0.3, temperature: 0.2, policy_kwargs: {activation_fn: tanh}}
  careful: {algorithm: cpi, zeta: 0.01}
  ppo: {n_steps: 64}
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    (tmp_path / "mine.yml").write_text(SUITE)
    return load_suite(tmp_path / "mine.yml")


def test_later_blocks_win_and_mappings_are_merged(suite: Suite) -> None:
    config = suite.run_config("mdqn", "CartPole-v1", 0, {"batch_size": 32})
    assert config.hyperparameters == {
        "gamma": 0.9,  # shared
        "learning_rate": 0.3,  # algos, over envs' 0.2 and shared's 0.1
        "buffer_size": 500,
        "policy_kwargs": {"net_arch": [8], "activation_fn": "tanh"},
        "temperature": 0.4,  # envs' algos, over algos' 0.2
        "batch_size": 32,  # command line, over envs' algos' 16
    }
    assert (config.n_timesteps, config.suite) == (100, "mine")


def test_what_an_algorithm_does_not_have_is_left_out_of_shared(suite: Suite) -> None:
    assert "buffer_size" not in suite.run_config("ppo", "CartPole-v1", 0).hyperparameters


def test_a_name_of_the_suite_can_stand_for_a_registered_algorithm(suite: Suite) -> None:
    config = suite.run_config("careful", "CartPole-v1", 0)
    assert (config.algo, config.algorithm, config.hyperparameters["zeta"]) == (
        "careful",
        "cpi",
        0.01,
    )


def test_an_environment_can_borrow_from_its_own_suite() -> None:
    borrowed = load_suite("ablation").run_config("cpi_0.5", "MinAtar/Seaquest-v1", 0)
    own = load_suite("minatar").run_config("cpi", "MinAtar/Seaquest-v1", 0)
    of_the_ablation = {"zeta": 0.5, "target_update_interval": 480}
    assert borrowed.hyperparameters == {**own.hyperparameters, **of_the_ablation}
    assert borrowed.n_timesteps == own.n_timesteps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("envs: [", "must be YAML"),
        ("- a list", "must be a mapping"),
        (
            "envs: {CartPole-v1: {n_timesteps: 10, learning_rate: 1e-3}}",
            "1.0e-3, got the text '1e-3'",
        ),
        ("sharde: {gamma: 0.9}", "unknown section 'sharde'; did you mean 'shared'"),
        ("envs: 3", "envs must be a mapping"),
        ("shared: {n_timesteps: 10, lerning_rate: 0.1}", "did you mean 'learning_rate'"),
        (
            "shared: {n_timesteps: 10}\nalgos: {cpp: {kappa: 3}}",
            "DeepCPP has no hyperparameter 'kappa'",
        ),
        ("shared: {n_timesteps: 10.5}", "n_timesteps must be a whole number"),
        ("shared: {n_timesteps: many}", "n_timesteps must be a number"),
        ("shared: {n_timesteps: 10, env_kwargs: 3}", "env_kwargs must be a mapping"),
        ("algos: {cpp: {}}", "-n STEPS"),
        ("algos: {0.1: {algorithm: cpp}}", "algos: a name must be text, in quotes if need be, got"),
        ("envs: {5: {n_timesteps: 10}}", "got 5"),
        ("envs: {CartPole-v1: {n_timesteps: 10, algos: {no: {}}}}", "got False"),
        ("shared: {n_timesteps: 10, 3: 4}", "got 3"),
    ],
)
def test_mistakes_in_a_suite_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.yml").write_text(text)
    with pytest.raises(InvalidArgument) as error:
        load_suite(tmp_path / "bad.yml").run_config("cpp", "CartPole-v1", 0)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_parameters_of_the_command_line_are_yaml_and_reach_inside() -> None:
    pairs = [
        "learning_rate:0.01",
        "policy_kwargs.net_arch:[64, 32]",
        "policy_kwargs.activation_fn:tanh",
        "zeta:dcpi",
    ]
    assert parse_overrides(pairs) == {
        "learning_rate": 0.01,
        "policy_kwargs": {"net_arch": [64, 32], "activation_fn": "tanh"},
        "zeta": "dcpi",
    }


@pytest.mark.parametrize(
    "pair",
    ["learning_rate", ":3", "learning_rate:1e-3", "net_arch:[1", "x:!!python/object:os.system"],
)
def test_parameters_of_the_command_line_are_refused(pair: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_overrides([pair])


def test_the_suite_of_an_environment_is_found() -> None:
    assert suite_of("CartPole-v1").name == "classic"
    assert suite_of("MinAtar/Breakout-v1").name == "minatar"
    assert suite_of("SomethingElse-v0").name == "custom"
    assert {"classic", "minatar", "atari", "ablation"} <= set(suite_names())
    with pytest.raises(InvalidArgument, match="did you mean 'classic'"):
        load_suite("clasic")


def test_the_default_suite_is_the_one_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the first in the alphabet: "ablation" and "a_copy" have CartPole or MinAtar, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    text = "envs: {CartPole-v1: {n_timesteps: 10}, MinAtar/Breakout-v1: {n_timesteps: 10}}"
    (tmp_path / "configs" / "a_copy.yml").write_text(text)
    assert suite_of("CartPole-v1").name == "classic"
    (tmp_path / "configs" / "mine.yml").write_text(f"default: true\n{text}")
    assert suite_of("CartPole-v1").name == "mine"
    assert suite_of("Acrobot-v1").name == "classic"
    (tmp_path / "configs" / "a_copy.yml").write_text(f"default: true\n{text}")
    with pytest.raises(InvalidArgument, match="a_copy and mine: choose with --suite"):
        suite_of("CartPole-v1")
    (tmp_path / "configs" / "a_copy.yml").write_text(f"default: 1\n{text}")
    with pytest.raises(InvalidArgument, match="default must be true or false, got 1"):
        suite_of("CartPole-v1")


@pytest.mark.parametrize(
    "content", [b"envs:\n  \xff: 1", b"envs: [CartPole-v1]\nservices: {}", b"envs: ["]
)
def test_other_files_of_a_users_folder_are_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "other.yml").write_bytes(content)
    assert suite_of("CartPole-v1").name == "classic"
    assert suite_of("SomethingElse-v0").name == "custom"
    with pytest.raises(InvalidArgument, match="unknown suite 'clasic'"):
        load_suite("clasic")
    with pytest.raises(InvalidArgument, match=r"other.yml"):  # it is named where it is asked for
        load_suite("other")


def test_the_folder_of_a_run_has_no_further_levels_for_a_namespace() -> None:
    config = RunConfig("minatar", "cpp", "MinAtar/Breakout-v1", 2, 100, "cpp")
    assert config.folder("runs") == Path("runs/minatar/cpp/MinAtar-Breakout-v1/seed_2")


def test_registered_names_are_known_and_kept() -> None:
    assert {
        "cpp",
        "cvi",
        "mdqn",
        "modqn",
        "cpi",
        "dqn",
        "qrdqn",
        "ppo",
        "a2c",
        "csac",
        "sac",
        "td3",
    } <= set(algorithm_names())
    assert get_algorithm("qrdqn") is QRDQN
    register("cpp", DeepCPP)
    with pytest.raises(InvalidArgument, match="must not be taken"):
        register("cpp", QRDQN)
    with pytest.raises(InvalidArgument, match="did you mean 'cpp'"):
        get_algorithm("ccp")
    with pytest.raises(InvalidArgument, match="did you mean 'temperature'"):
        check_hyperparameters(DeepCPP, ["temprature"], "here")


@pytest.mark.parametrize(
    ("values", "name", "message"),
    [
        ({"ent_coef": "auto"}, "ppo", "ent_coef must be a number for PPO, got 'auto'"),
        ({"ent_coef": "auto_x"}, "sac", "ent_coef must be .* got 'auto_x'"),
        ({"action_noise": "normal_0"}, "td3", "action_noise must be normal_<standard deviation>"),
        ({"action_noise": "pink_0.1"}, "td3", "action_noise must be .* got 'pink_0.1'"),
        ({"action_noise": 0.1}, "td3", "action_noise must be .* got 0.1"),
        ({"iteration_interval": 0}, "csac", "iteration_interval must be a whole number"),
    ],
)
def test_bad_values_of_continuous_algorithms(
    values: dict[str, Any], name: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_values(values, get_algorithm(name))


@pytest.mark.parametrize("name", ["mdqn", "regularized_dqn"])
def test_quantiles_and_no_clipping_can_be_said_in_a_suite(name: str) -> None:
    algorithm = get_algorithm(name)
    check_values({"n_quantiles": 50, "max_grad_norm": None}, algorithm)
    with pytest.raises(InvalidArgument, match="n_quantiles must be a whole number of at least 0"):
        check_values({"n_quantiles": 0.5}, algorithm)
    with pytest.raises(InvalidArgument, match=r"max_grad_norm must be a number .* got None"):
        check_values({"max_grad_norm": None}, get_algorithm("ppo"))


def test_action_noise_is_independent_in_every_dimension() -> None:
    check_values({"action_noise": "normal_0.1", "ent_coef": "auto_0.1"}, SAC)
    noise = resolve_classes({"action_noise": "normal_0.1"}, 3)["action_noise"]
    assert noise._sigma.tolist() == [0.1, 0.1, 0.1]
    assert len(set(noise())) == 3


def test_names_become_classes_and_schedules() -> None:
    resolved = resolve_classes(
        {"learning_rate": "lin_0.5", "policy_kwargs": {"activation_fn": "relu"}, "zeta": "dcpi"}
    )
    assert resolved["learning_rate"](0.25) == 0.125
    assert resolved["policy_kwargs"]["activation_fn"].__name__ == "ReLU"
    assert resolved["zeta"] == "dcpi"
    for bad in ({"learning_rate": "lin_fast"}, {"policy_kwargs": {"activation_fn": "rleu"}}):
        with pytest.raises(InvalidArgument):
            resolve_classes(bad)
