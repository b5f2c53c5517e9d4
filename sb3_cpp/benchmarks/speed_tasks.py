"""What the speed benchmark runs: a task is an environment with a network, the same for SB3's DQN and for our algorithms.

Every task makes one gradient step of 64 transitions for 4 environment steps, with the exploration rate at 0.05 throughout, so
that acting costs what it costs during most of a long run.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack

from sb3_cpp import CVI, MDQN, DeepCPP, MoDQN, RegularizedDQN
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.environments import MinAtarCNN, check_environment, make_environment

BATCH_SIZE = 64
STEPS_PER_GRADIENT = 4
SB3 = "dqn"  # the reference of every ratio

# Ours: "plain" is DQN's own arithmetic on the fast path, "cpp_explicit" the paper's form of DeepCPP
OURS: dict[str, Callable[..., DQN]] = {
    "plain": lambda *args, **kwargs: RegularizedDQN(*args, fast=True, **kwargs),
    "mdqn": MDQN,
    "cvi": CVI,
    "modqn": MoDQN,
    "cpp": DeepCPP,
    "cpp_explicit": lambda *args, **kwargs: DeepCPP(*args, form="explicit", **kwargs),
}
ALL: dict[str, Callable[..., DQN]] = {SB3: DQN, **OURS}
LABELS = {SB3: "SB3 DQN", "plain": "plain DQN", "mdqn": "MDQN", "cvi": "CVI", "modqn": "MoDQN"}
LABELS |= {"cpp": "DeepCPP", "cpp_explicit": "DeepCPP, explicit"}


@dataclass(frozen=True)
class Task:
    """An environment, a network, and how much of it is one measurement.

    :param env: id of the environment
    :param n_envs: copies stepped together
    :param threads: of torch
    :param steps: environment steps of one measurement
    :param warm_up: gradient steps before the first measurement
    :param policy: name of the policy
    :param settings: further arguments of every constructor
    """

    name: str
    env: str
    n_envs: int
    threads: int
    steps: int
    warm_up: int
    policy: str
    settings: dict[str, Any] = field(default_factory=dict)

    def make(self, algo: str, same_env: bool = False, seed: int = 0) -> DQN:
        """A model as its users have it; with ``same_env`` SB3's DQN gets our environment and buffer too."""
        ours = algo != SB3 or same_env
        venv = self._environment(ours, seed)
        buffer: dict[str, Any] = (
            {"replay_buffer_class": FrameReplayBuffer} if self.is_atari and ours else {}
        )
        return ALL[algo](
            self.policy,
            venv,
            batch_size=BATCH_SIZE,
            train_freq=STEPS_PER_GRADIENT // self.n_envs,  # SB3 counts steps of the whole vector
            gradient_steps=1,
            learning_starts=10 * BATCH_SIZE,
            exploration_initial_eps=0.05,
            exploration_final_eps=0.05,
            seed=seed,
            device="cpu",
            **self.settings,
            **buffer,
        )

    @property
    def is_atari(self) -> bool:
        return self.name == "atari"

    def check(self) -> None:
        """Refuse a game that nobody knows, or that would skip frames twice in SB3's environment."""
        if self.is_atari and importlib.util.find_spec("ale_py") is None:
            raise InvalidArgument(
                "the task atari needs a further package: pip install 'sb3_cpp[atari]'"
            )
        check_environment(self.env)
        if self.is_atari:
            from sb3_cpp.atari import check_frame_skip

            check_frame_skip(self.env)

    def _environment(self, ours: bool, seed: int) -> VecEnv:
        if not self.is_atari:
            return make_environment(self.env, self.n_envs, seed)
        self.check()
        if ours:
            from sb3_cpp.atari import make_atari_vec_env

            return make_atari_vec_env(self.env, self.n_envs, seed)
        from stable_baselines3.common.env_util import make_atari_env

        return VecFrameStack(
            make_atari_env(self.env, self.n_envs, seed, vec_env_cls=DummyVecEnv), n_stack=4
        )


TASKS = {
    "atari": Task(
        name="atari",
        env="BreakoutNoFrameskip-v4",
        n_envs=4,
        threads=2,
        steps=800,
        warm_up=20,
        policy="CnnPolicy",
        settings={"buffer_size": 10_000, "learning_rate": 1e-4, "target_update_interval": 8000},
    ),
    "minatar": Task(
        name="minatar",
        env="MinAtar/Breakout-v1",
        n_envs=1,
        threads=1,
        steps=4000,
        warm_up=200,
        policy="CnnPolicy",
        settings={
            "policy_kwargs": {"features_extractor_class": MinAtarCNN, "net_arch": []},
            "buffer_size": 100_000,
            "learning_rate": 2.5e-4,
            "target_update_interval": 1000,
        },
    ),
    "cartpole": Task(
        name="cartpole",
        env="CartPole-v1",
        n_envs=1,
        threads=1,
        steps=8000,
        warm_up=200,
        policy="MlpPolicy",
        settings={"buffer_size": 50_000, "learning_rate": 1e-3, "target_update_interval": 500},
    ),
}
