"""Environments of a user's own package: found, wrapped, normalised, trained and played."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    SubprocVecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
    unwrap_vec_normalize,
)

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import read_status
from sb3_cpp.training.enjoy import load_run, load_run_normalization
from sb3_cpp.training.environments import (
    find_environment,
    has_time_limit,
    load_normalization,
    make_environment,
)
from sb3_cpp.training.run import RunFailed, make_run_environment, train_run
from sb3_cpp.training.suites import RunConfig, Suite, load_suite
from sb3_cpp.training.train import target_period_advice, train
from tests.training.small_runs import PARAMS, rows, small_config

PACKAGE = '''
import gymnasium as gym
import numpy as np


class Line(gym.Env):
    """Observations far from 0, so that normalising them shows."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, length=5, images=False):
        self.length, self.images = length, images
        shape, dtype, high = ((36, 36, 3), np.uint8, 255) if images else ((1,), np.float32, 1e4)
        self.observation_space = gym.spaces.Box(0, high, shape, dtype)

    def _observe(self):
        if self.images:
            return np.full((36, 36, 3), self.position, np.uint8)
        return np.array([500.0 + 100 * self.position], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(self.length))
        return self._observe(), {}

    def step(self, action):
        self.position = max(self.position + (1 if action == 1 else -1), 0)
        return self._observe(), -1.0, self.position >= self.length, False, {}


class Doubled(gym.RewardWrapper):
    def __init__(self, env, factor=2.0):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward


gym.register("Line-v0", "line_package:Line", max_episode_steps=30)
'''
ID = "line_package:Line-v0"


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "line_package.py").write_text(PACKAGE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield
    sys.modules.pop("line_package", None)
    gym.registry.pop("Line-v0", None)
    importlib.invalidate_caches()


def config(**overrides: object) -> RunConfig:
    sizes = {"n_timesteps": 300, "eval_freq": 100, "eval_episodes": 2, "save_freq": 100}
    return Suite("mine").run_config("cmdqn", ID, 0, {**PARAMS, **sizes, **overrides})


def test_an_environment_is_found_by_its_package_its_class_or_after_an_import() -> None:
    with pytest.raises(InvalidArgument, match="unknown environment 'Line-v0'"):
        find_environment("Line-v0")
    assert find_environment("Line-v0", ["line_package"]) == "Line-v0"
    assert find_environment(ID) == "Line-v0"
    assert has_time_limit(ID)
    assert not has_time_limit("line_package:Line")
    assert has_time_limit("line_package:Line", 10)
    env = make_environment("line_package:Line", seed=0, max_episode_steps=4, length=90)
    env.reset()
    dones = [env.step(np.array([1]))[2][0] for _ in range(4)]
    assert dones == [False, False, False, True]


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("no_such_package:Line-v0", "cannot import 'no_such_package'"),
        ("line_package:Lime-v0", "line_package neither registers 'Lime-v0' .*'Line-v0'"),
        (":Line-v0", "unknown environment ':Line-v0'"),
        ("..:Line-v0", "cannot import '..'"),
        ("broken_package:Line-v0", "cannot import 'broken_package' .*broken_package.py, line 1"),
    ],
)
def test_what_is_not_found_is_named(tmp_path: Path, env: str, message: str) -> None:
    (tmp_path / "code" / "broken_package.py").write_text("class Line(", encoding="utf-8")
    with pytest.raises(InvalidArgument, match=message) as error:
        find_environment(env)
    assert "\n" not in str(error.value)


def test_layers_are_those_of_the_zoo() -> None:
    wrappers = ["line_package.Doubled", {"line_package.Doubled": {"factor": 10.0}}]
    env = make_environment(
        ID, 2, 0, env_wrapper=wrappers, normalize={"norm_reward": False}, frame_stack=3
    )
    assert isinstance(env, VecFrameStack)
    assert isinstance(env.venv, VecNormalize)
    assert env.observation_space.shape == (3,)
    assert env.env_is_wrapped(Monitor) == [True, True]
    env.reset()
    assert env.step(np.array([0, 0]))[1].tolist() == [-20.0, -20.0]
    evaluation = make_environment(ID, training=False, normalize=True)
    assert isinstance(evaluation, VecNormalize)
    assert (evaluation.training, evaluation.norm_reward) == (False, False)
    images = make_environment(ID, images=True, frame_stack=4)
    assert isinstance(images, VecTransposeImage)
    assert images.observation_space.shape == (12, 36, 36)


def test_an_episode_that_a_wrapper_ends_is_reported_with_the_rewards_of_the_environment(
    tmp_path: Path,
) -> None:
    wrappers = ["line_package.Doubled", {"gymnasium.wrappers.TimeLimit": {"max_episode_steps": 4}}]
    env = make_environment(ID, seed=0, env_wrapper=wrappers, length=90)
    env.reset()
    for _ in range(2):
        infos = [env.step(np.array([0]))[3][0] for _ in range(4)]
        assert ["episode" in info for info in infos] == [False, False, False, True]
        episode = infos[-1]["episode"]
        assert (episode["r"], episode["l"]) == (4 * -1.0, 4)  # not doubled, as Monitor has it
    limited = config(env_wrapper=wrappers, env_kwargs={"length": 90}, eval_envs=2, n_timesteps=104)
    folder = train_run(limited, tmp_path, show="nothing").folder  # its evaluations end
    with np.load(folder / "evaluations.npz") as saved:
        assert saved["ep_lengths"].tolist() == [[4, 4]] * 2  # at step 100 and at the end
    episodes = [(row["r"], row["l"]) for row in rows(folder / "monitor.csv")]
    assert episodes == [("-4.0", "4")] * (104 // 4)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"vec_env": "threads"}, "vec_env must be one of 'dummy', 'subproc', got 'threads'"),
        ({"env_wrapper": 5}, "env_wrapper must be module.Class"),
        ({"env_wrapper": [{"a.B": 5}]}, "env_wrapper must be module.Class"),
        ({"normalize": "yes"}, "normalize must be true, false or arguments of VecNormalize"),
        ({"normalize": {"norm_ob": True}}, "no argument 'norm_ob'; did you mean 'norm_obs'"),
        ({"normalize": {"clip_obs": "ten"}}, "normalize.clip_obs must be a number"),
        ({"frame_stack": 0}, "frame_stack must be a number in"),
        ({"gym_packages": "line_package"}, "gym_packages must be a list"),
    ],
)
def test_a_mistake_in_a_layer_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        config(**overrides)


@pytest.mark.parametrize(
    ("wrapper", "message"),
    [
        ("line_package.Tripled", "line_package has no class 'Tripled'"),
        ("no_such.Wrapper", "cannot import 'no_such'"),
        ("Wrapper", "cannot import ''"),
    ],
)
def test_a_wrapper_that_is_not_there_is_named(wrapper: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        make_environment(ID, env_wrapper=[wrapper])


def test_atari_has_its_own_layers() -> None:
    pytest.importorskip("ale_py", reason="needs the extra atari")
    with pytest.raises(InvalidArgument, match="has its own wrappers, frame stack and threads"):
        make_environment("PongNoFrameskip-v4", frame_stack=4)


@pytest.mark.parametrize("normalize", [True, {"norm_obs": False}])
def test_statistics_travel_with_the_models(tmp_path: Path, normalize: object) -> None:
    """A saved model plays as it did in its evaluation: with the statistics of that moment."""
    folder = train_run(config(normalize=normalize), tmp_path, show="nothing").folder
    with np.load(folder / "evaluations.npz") as saved:
        results = saved["results"]
    means = results.mean(axis=1)
    best = len(means) - 1 - int(np.argmax(means[::-1]))
    for number, is_best in ((len(results) - 1, False), (best, True)):
        env = make_run_environment(config(normalize=normalize), training=False)
        load_run_normalization(env, folder, is_best)
        env.seed(1_000_003 + number)  # the seed of that evaluation
        model = load_run(folder, is_best)[1]
        returns, _ = evaluate_policy(model, env, 2, return_episode_rewards=True)
        assert returns == results[number].tolist()
    normalizer = unwrap_vec_normalize(env)
    assert normalizer is not None
    if normalize is True:
        assert 450 < normalizer.obs_rms.mean[0] < 1000  # type: ignore[union-attr]


def test_an_unfinished_run_plays_with_the_statistics_of_its_checkpoint(tmp_path: Path) -> None:
    folder = train_run(config(normalize=True), tmp_path, show="nothing").folder
    finished, unfinished = (make_environment(ID, normalize=True) for _ in range(2))
    load_run_normalization(finished, folder)
    (folder / "model.zip").unlink()
    load_run_normalization(unfinished, folder)
    ours, theirs = unwrap_vec_normalize(unfinished), unwrap_vec_normalize(finished)
    assert ours is not None
    assert theirs is not None
    assert ours.obs_rms.count > 300 - 1  # type: ignore[union-attr]
    assert np.array_equal(ours.obs_rms.mean, theirs.obs_rms.mean)  # type: ignore[union-attr]
    (folder / "best_model.npz").unlink()
    with pytest.raises(InvalidArgument, match=r"best_model.npz has no statistics of VecNormalize"):
        load_normalization(unfinished, folder / "best_model.npz")


def test_a_run_from_a_normalised_model_starts_with_its_statistics(tmp_path: Path) -> None:
    first = train_run(config(normalize=True), tmp_path, show="nothing").folder
    second = train_run(
        Suite("mine").run_config(
            "cmdqn", ID, 1, {**PARAMS, "n_timesteps": 104, "normalize": True, "eval_freq": -1}
        ),
        tmp_path,
        show="nothing",
        start_from=first / "model.zip",
    ).folder
    counts = []
    for folder in (first, second):
        with np.load(folder / "model.npz") as saved:
            counts.append(float(saved["obs//count"]))
    assert counts[1] - counts[0] == pytest.approx(105)  # 13 rollouts of 8 steps, one reset


@pytest.mark.slow
def test_environments_in_processes_of_their_own_train_and_are_resumed(tmp_path: Path) -> None:
    settings = {"vec_env": "subproc", "n_envs": 2, "normalize": True}
    folder = train_run(config(**settings), tmp_path, show="nothing").folder
    longer = config(**{**settings, "n_timesteps": 400})
    assert train_run(longer, tmp_path, show="nothing", start_from=folder).timesteps == 400
    with pytest.raises(InvalidArgument, match="env_kwargs do not fit"):
        make_environment(ID, 2, vec_env="subproc", width=3)
    env = make_environment(ID, 2, vec_env="subproc")
    assert isinstance(env, SubprocVecEnv)
    env.close()


def test_an_error_in_the_first_reset_is_kept_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, *, seed: object = None, options: object = None) -> None:
        raise RuntimeError("no map")

    folder = config().folder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("line_package").Line, "reset", fail)
        with pytest.raises(RunFailed, match="failed at step 0: no map"):
            train_run(config(), tmp_path, show="bar")
    status = read_status(folder)
    assert (status["state"], status["timesteps"], status["error"]) == ("failed", 0, "no map")
    assert "RuntimeError: no map" in (folder / "failure.log").read_text(encoding="utf-8")
    assert train_run(config(), tmp_path, show="nothing").state == "finished"


def test_an_environment_without_a_suite_trains_with_class_defaults_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert train("cpp", ID, n_timesteps=60, eval_freq=-1, save_freq=-1) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"note: {ID} is not in any suite: class defaults are used"
    assert "K = 0 target updates" in out[1]
    folder = Path("runs/custom/cpp/line_package-Line-v0/seed_0")
    assert (tmp_path / folder / "model.zip").is_file()
    assert train("cpp", "CartPole-v1", n_timesteps=60, eval_freq=-1, save_freq=-1) == 0
    assert "note" not in capsys.readouterr().out


def test_advice_is_for_runs_too_short_for_the_period_of_the_class() -> None:
    defaults = Suite("mine").run_config("cpp", "CartPole-v1", 0, {"n_timesteps": 30_000})
    advice = target_period_advice(defaults)
    assert advice is not None
    assert "a target period of 8,000 are K = 3 target updates" in advice
    assert "-params target_update_interval:49" in advice
    cautious = Suite("mine").run_config("cmdqn", "CartPole-v1", 0, {"n_timesteps": 24_100})
    advice = target_period_advice(cautious)
    assert advice is not None
    assert "a target period of 1,000 are K = 80 target updates" in advice  # 24,000 / (0.3 * 1,000)
    assert "-params target_update_interval:133" in advice
    cautious.hyperparameters["zeta"] = 0.0
    assert "K = 24 target updates" in str(target_period_advice(cautious))
    long = Suite("mine").run_config("cpp", "CartPole-v1", 0, {"n_timesteps": 1_000_000})
    assert target_period_advice(long) is None
    assert target_period_advice(small_config("cpp")) is None  # somebody has chosen one
    assert target_period_advice(load_suite("classic").run_config("dqn", "CartPole-v1", 0)) is None
