"""Every suite x environment x algorithm builds its model."""

import pytest

from sb3_cpp.training.environments import is_atari
from sb3_cpp.training.grid import check_buildable
from sb3_cpp.training.study import search_space
from sb3_cpp.training.suites import load_suite, suite_names

NEEDS = {"MinAtar/": "minatar", "LunarLander": "Box2D", "NoFrameskip": "ale_py"}
CELLS = [
    (name, env)
    for name in ("ablation", "atari", "classic", "minatar")
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


def test_every_search_space_can_be_read() -> None:
    for name in suite_names():
        suite = load_suite(name)
        for algo in suite.search:
            if algo != "shared":
                assert search_space(suite, algo)
