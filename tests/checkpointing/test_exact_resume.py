"""A run that is interrupted and resumed is the same run, to the bit."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from sb3_contrib import QRDQN
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize
from stable_baselines3.her import HerReplayBuffer

from benchmarks.faults import same
from sb3_cpp import (
    CVI,
    MDQN,
    CautiousMDQN,
    CheckpointCallback,
    DeepCPI,
    DeepCPP,
    IterationCallback,
    MoDQN,
)
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checkpointing import CheckpointStore, remaining_timesteps, resume, store
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.environments import make_environment
from tests.deep.test_masks import Corridor

SMALL: dict[str, Any] = {
    "buffer_size": 300,
    "learning_starts": 40,
    "target_update_interval": 50,
    "exploration_fraction": 0.8,
    "learning_rate": 1e-3,
    "seed": 1,
    "policy_kwargs": {"net_arch": [16]},
}


@pytest.fixture(autouse=True)
def usual_handlers() -> Iterator[None]:
    """Learning that ends with an error leaves its signal handlers, which then call the former."""
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


class Killed(Exception):
    pass


class KillAt(BaseCallback):
    """Ends learning in mid-rollout, as SIGKILL would."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.step:
            np.random.seed(0)  # a new process has other generators
            th.manual_seed(0)
            raise Killed
        return True


def end_state(model: BaseAlgorithm) -> dict[str, Any]:
    buffer = getattr(model, "replay_buffer", None)
    arrays = (
        {}
        if buffer is None
        else {n: v for n, v in vars(buffer).items() if isinstance(v, (np.ndarray, dict, int, bool))}
    )
    return {
        "parameters": model.get_parameters(),  # of all networks and optimisers
        "buffer": arrays,
        "counters": [
            getattr(model, name, None)
            for name in ("num_timesteps", "_n_updates", "exploration_rate", "zeta", "iteration")
        ],
        "episodes": [(e["r"], e["l"]) for e in model.ep_info_buffer or ()],
        "next numbers": [np.random.rand(), th.rand(1), model.action_space.sample()],
        "observation": model._last_obs,
    }


def check_exact(
    make: Callable[[], BaseAlgorithm],
    folder: Path,
    kills: tuple[int, ...],
    total: int = 600,
    env: Any = None,
    every: int = 70,
) -> BaseAlgorithm:
    """Learn at once, and again with kills; both ends must be the same."""
    straight = make()
    straight.learn(total, callback=CheckpointCallback(folder / "straight", every))
    wanted = end_state(straight)
    path = folder / "killed"
    model = make()
    for number, step in enumerate([*kills, 10**9]):
        if number:
            model = resume(type(model), path, env() if env is not None else None)
            assert model.num_timesteps < step
        remaining = remaining_timesteps(model) if number else total
        with contextlib.suppress(Killed):
            model.learn(
                remaining,
                callback=[CheckpointCallback(path, every), KillAt(step)],
                reset_num_timesteps=number == 0,
            )
    assert same(end_state(model), wanted)
    return model


@pytest.mark.parametrize("algorithm", [DeepCPP, MDQN, MoDQN, CVI, DeepCPI])
def test_all_five_resume_to_the_bit(tmp_path: Path, algorithm: Any) -> None:
    check_exact(lambda: algorithm("MlpPolicy", "CartPole-v1", **SMALL), tmp_path, (75, 333, 500))


@pytest.mark.parametrize("algorithm", [DeepCPP, CautiousMDQN, MDQN, MoDQN, CVI, DeepCPI])
def test_quantiles_resume_to_the_bit(tmp_path: Path, algorithm: Any) -> None:
    settings = {**SMALL, "n_quantiles": 5}
    check_exact(lambda: algorithm("MlpPolicy", "CartPole-v1", **settings), tmp_path, (333,), 400)


@pytest.mark.parametrize(
    "changes",
    [
        {"train_freq": (1, "episode"), "gradient_steps": -1},
        {"behaviour": "boltzmann"},
        {"n_quantiles": 5, "averaging": 20},
        {
            "fast": False,
            "optimize_memory_usage": True,
            "replay_buffer_kwargs": {"handle_timeout_termination": False},
        },
    ],
)
def test_settings_resume_to_the_bit(tmp_path: Path, changes: dict[str, Any]) -> None:
    check_exact(
        lambda: DeepCPP("MlpPolicy", "CartPole-v1", **{**SMALL, **changes}), tmp_path, (333,)
    )


@pytest.mark.parametrize(
    "env_id", ["MinAtar/Breakout-v1", "sb3_cpp/DangerGridworld-v0", "sb3_cpp/PendulumSwingUp-v0"]
)
def test_environments_resume_to_the_bit(tmp_path: Path, env_id: str) -> None:
    if env_id.startswith("MinAtar"):
        pytest.importorskip("minatar")
    make_env = lambda: make_environment(env_id, 2, seed=3, max_episode_steps=100)  # noqa: E731
    check_exact(
        lambda: DeepCPP("MlpPolicy", make_env(), **SMALL), tmp_path, (200, 450), env=make_env
    )


def test_an_emulator_resumes_to_the_bit(tmp_path: Path) -> None:
    """One ALE environment: emulator (sticky actions and time limit included), wrappers' buffers."""
    pytest.importorskip("ale_py")
    settings = {"native": False, "repeat_action_probability": 0.25, "max_episode_steps": 120}
    make_env = lambda: make_environment("ALE/Pong-v5", seed=3, **settings)  # noqa: E731
    changes = {
        **SMALL,
        "replay_buffer_class": FrameReplayBuffer,
        "train_freq": 30,
        "batch_size": 4,
        "learning_starts": 150,
    }
    check_exact(
        lambda: DeepCPP("CnnPolicy", make_env(), **changes),
        tmp_path,
        (200,),
        total=300,
        env=make_env,
    )


def test_wrappers_of_the_vector_resume_to_the_bit(tmp_path: Path) -> None:
    def make_env() -> VecNormalize:
        return VecNormalize(VecFrameStack(make_vec_env("CartPole-v1", 2, seed=1), 3))

    model = check_exact(
        lambda: MDQN("MlpPolicy", make_env(), **SMALL), tmp_path, (333,), env=make_env
    )
    normalized, straight = model.get_vec_normalize_env(), make_env()
    MDQN("MlpPolicy", straight, **SMALL).learn(600)
    assert normalized is not None
    for name in ("obs_rms", "ret_rms"):
        assert same(vars(getattr(normalized, name)), vars(getattr(straight, name)))
    assert same(normalized.returns, straight.returns)


def test_statistics_of_environments_in_other_processes_are_kept(tmp_path: Path) -> None:
    def make_env() -> VecNormalize:
        kwargs = {"vec_env_cls": SubprocVecEnv, "vec_env_kwargs": {"start_method": "fork"}}
        return VecNormalize(make_vec_env("CartPole-v1", 2, seed=1, **kwargs))

    env, other = make_env(), make_env()
    try:
        model = MDQN("MlpPolicy", env, **SMALL)
        model.learn(80, callback=CheckpointCallback(tmp_path, 80))
        CheckpointStore(tmp_path).save(model)
        resume(MDQN, tmp_path, other)
        for name in ("obs_rms", "ret_rms"):
            assert same(vars(getattr(other, name)), vars(getattr(env, name)))
        assert not same(other.obs_rms.mean, np.zeros(4))
    finally:
        env.close()
        other.close()


@pytest.mark.parametrize("protocol", ["method", "info"])
def test_masked_actions_resume_to_the_bit(tmp_path: Path, protocol: str) -> None:
    make_env = lambda: DummyVecEnv([lambda: Corridor(protocol)])  # noqa: E731
    check_exact(lambda: MDQN("MlpPolicy", make_env(), **SMALL), tmp_path, (333,), env=make_env)


def test_a_hindsight_buffer_resumes_to_the_bit(tmp_path: Path) -> None:
    make_env = lambda: DummyVecEnv([lambda: BitFlippingEnv(n_bits=4)])  # noqa: E731
    settings = {**SMALL, "replay_buffer_class": HerReplayBuffer}
    make = lambda: DQN("MultiInputPolicy", make_env(), **settings)  # noqa: E731
    check_exact(make, tmp_path, (333,), env=make_env)


class Frames(gym.Env):
    """Random frames in stacks of two; episodes of 7 steps."""

    observation_space = gym.spaces.Box(0, 255, (2, 36, 36), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def _next(self) -> np.ndarray:
        self.stack = np.concatenate(
            [self.stack[1:], self.np_random.integers(0, 255, (1, 36, 36), dtype=np.uint8)]
        )
        return self.stack.copy()

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps, self.stack = 0, np.zeros((2, 36, 36), np.uint8)
        return self._next(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self._next(), float(action), False, self.steps == 7, {}


@pytest.mark.parametrize("compress", [None, "lz4"])
def test_a_frame_buffer_resumes_to_the_bit(tmp_path: Path, compress: str | None) -> None:
    changes = {
        **SMALL,
        "replay_buffer_class": FrameReplayBuffer,
        "replay_buffer_kwargs": {"compress": compress},
        "train_freq": 20,
        "buffer_size": 150,
    }
    model = check_exact(
        lambda: DeepCPP("CnnPolicy", DummyVecEnv([Frames]), **changes),
        tmp_path,
        (165,),
        total=240,
        env=lambda: DummyVecEnv([Frames]),
    )
    buffer = model.replay_buffer
    assert buffer.observations.buffer is buffer


ROLLOUTS: dict[str, Any] = {"n_steps": 32, "seed": 1, "device": "cpu"}
CONTINUOUS: dict[str, Any] = {
    "buffer_size": 300,
    "learning_starts": 40,
    "batch_size": 16,
    "train_freq": 8,
    "seed": 1,
    "policy_kwargs": {"net_arch": [16]},
}


@pytest.mark.parametrize(
    ("algorithm", "env_id", "settings"),
    [
        (DQN, "CartPole-v1", SMALL),
        (QRDQN, "CartPole-v1", SMALL),
        (PPO, "CartPole-v1", {**ROLLOUTS, "batch_size": 32}),
        (PPO, "Pendulum-v1", {**ROLLOUTS, "batch_size": 32, "use_sde": True}),
        (A2C, "CartPole-v1", ROLLOUTS),
        (SAC, "Pendulum-v1", CONTINUOUS),
        (SAC, "Pendulum-v1", {**CONTINUOUS, "use_sde": True}),
        (
            TD3,
            "Pendulum-v1",
            {**CONTINUOUS, "action_noise": OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))},
        ),
    ],
    ids=["DQN", "QRDQN", "PPO", "PPO with gSDE", "A2C", "SAC", "SAC with gSDE", "TD3 with noise"],
)
def test_algorithms_of_sb3_resume_to_the_bit(
    tmp_path: Path, algorithm: Any, env_id: str, settings: dict[str, Any]
) -> None:
    make = lambda: algorithm("MlpPolicy", env_id, **deepcopy(settings))  # noqa: E731
    check_exact(make, tmp_path, (333,), total=640)


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_a_resumed_model_may_learn_without_the_callback(tmp_path: Path, algorithm: Any) -> None:
    settings = SMALL if algorithm is DQN else {**ROLLOUTS, "batch_size": 32}
    straight = algorithm("MlpPolicy", "CartPole-v1", **settings)
    straight.learn(320, callback=CheckpointCallback(tmp_path, 100))
    np.random.seed(5)
    th.manual_seed(5)
    model = resume(algorithm, tmp_path)
    assert model.num_timesteps < 320
    model.learn(remaining_timesteps(model), reset_num_timesteps=False)
    assert same(model.get_parameters(), straight.get_parameters())


def test_logs_of_plain_python_have_the_same_rows(tmp_path: Path) -> None:
    straight = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    straight.learn(600, callback=IterationCallback(tmp_path / "a"))
    model = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    # A checkpoint in the middle of an iteration, the kill right after it: no row is written twice
    with pytest.raises(Killed):
        model.learn(
            600,
            callback=[
                CheckpointCallback(tmp_path / "c", 320),
                IterationCallback(tmp_path / "b"),
                KillAt(325),
            ],
        )
    DeepCPP.resume(tmp_path / "c").learn(callback=IterationCallback(tmp_path / "b"))
    assert (tmp_path / "a/iterations.csv").read_text() == (
        tmp_path / "b/iterations.csv"
    ).read_text()


def test_values_waiting_for_the_next_row_of_the_log_are_kept(tmp_path: Path) -> None:
    def last_rows(model: BaseAlgorithm, folder: Path, **kwargs: Any) -> list[str]:
        model.set_logger(configure(str(folder), ["json"]))
        with contextlib.suppress(Killed):
            model.learn(**kwargs)
        return (folder / "progress.json").read_text().splitlines()

    straight = last_rows(
        DeepCPP("MlpPolicy", "CartPole-v1", **SMALL), tmp_path / "a", total_timesteps=400
    )
    killed = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    last_rows(
        killed,
        tmp_path / "b",
        total_timesteps=400,
        callback=[CheckpointCallback(tmp_path / "c", 300), KillAt(301)],
    )
    resumed = last_rows(DeepCPP.resume(tmp_path / "c"), tmp_path / "d")
    clocks = ("time/fps", "time/time_elapsed")
    plain = [
        [{k: v for k, v in json.loads(row).items() if k not in clocks} for row in rows]
        for rows in (straight, resumed)
    ]
    assert plain[1]
    assert plain[0][-len(plain[1]) :] == plain[1]


def test_a_signal_saves_and_the_run_goes_on(tmp_path: Path) -> None:
    class Interrupt(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps == 205:
                os.kill(os.getpid(), signal.SIGINT)
            return True

    wanted = end_state(DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(500))
    model = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.learn(500, callback=[CheckpointCallback(tmp_path, 0), Interrupt()])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    model = DeepCPP.resume(tmp_path)
    assert model.num_timesteps == 208  # the end of its rollout of four steps
    assert same(end_state(model.learn()), wanted)


def test_signals_go_their_usual_way_after_learning_ended_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(
            100, callback=[CheckpointCallback(tmp_path, 0), KillAt(10)]
        )
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_environment_that_cannot_be_saved_is_reset_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Opaque(Frames):
        def __init__(self) -> None:
            self.lock = threading.Lock()

    make_env = lambda: DummyVecEnv([Opaque])  # noqa: E731
    model = DeepCPP("CnnPolicy", make_env(), **{**SMALL, "train_freq": 20})
    model.learn(80, callback=CheckpointCallback(tmp_path, 40))
    assert "Opaque cannot be pickled" in store.read_manifest(store.locate(tmp_path))["environment"]
    resumed = DeepCPP.resume(tmp_path, make_env())
    assert (
        "not exact: the environment starts a new episode, because Opaque cannot be pickled"
        in capsys.readouterr().err
    )
    assert resumed._last_obs is None
    resumed.learn(20, reset_num_timesteps=False)


def test_native_games_are_reset_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ale_py")
    make_env = lambda: make_environment("PongNoFrameskip-v4", 2, seed=3)  # noqa: E731
    changes = {**SMALL, "replay_buffer_class": FrameReplayBuffer, "train_freq": 10, "batch_size": 4}
    DeepCPP("CnnPolicy", make_env(), **changes).learn(80, callback=CheckpointCallback(tmp_path, 40))
    model = DeepCPP.resume(tmp_path, make_env())
    assert (
        "because AtariVecEnv runs its environments outside this process" in capsys.readouterr().err
    )
    assert model.learn().num_timesteps == 80


def test_a_wrapper_that_a_package_has_replaced_by_its_own_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rl_zoo3 does when it is imported."""
    before = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    wanted = end_state(before.learn(60, callback=CheckpointCallback(tmp_path, 40)))

    class Patched(gym.wrappers.TimeLimit):
        pass

    monkeypatch.setattr("gymnasium.envs.registration.gym.wrappers.TimeLimit", Patched)
    after = DeepCPP.resume(tmp_path)
    assert after.get_env().envs[0].env.__class__ is Patched
    assert same(end_state(after.learn()), wanted)


def test_another_environment_or_algorithm_is_refused(tmp_path: Path) -> None:
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(
        60, callback=CheckpointCallback(tmp_path, 40)
    )
    with pytest.raises(InvalidArgument, match="env must be built as in the run that was saved"):
        DeepCPP.resume(tmp_path, gym.make("CartPole-v1", disable_env_checker=True))
    with pytest.raises(InvalidArgument, match="a checkpoint of DeepCPP, not of MDQN"):
        MDQN.resume(tmp_path)
    with pytest.raises(InvalidArgument, match="no checkpoint at"):
        DeepCPP.resume(tmp_path / "nowhere")
    with pytest.raises(InvalidArgument, match="checkpoints of another run"):
        DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(
            60, callback=CheckpointCallback(tmp_path, 40)
        )
