"""Runs of a second or less."""

import csv
from pathlib import Path
from typing import Any

from sb3_cpp.training.suites import RunConfig, load_suite

PARAMS = {
    "learning_starts": 50,
    "train_freq": 8,
    "gradient_steps": 1,
    "batch_size": 16,
    "buffer_size": 1000,
    "target_update_interval": 50,
    "policy_kwargs": {"net_arch": [16]},
}
FLAGS = [
    "learning_starts:50",
    "train_freq:8",
    "gradient_steps:1",
    "batch_size:16",
    "buffer_size:1000",
    "target_update_interval:50",
    "policy_kwargs.net_arch:[16]",
]


def small_config(
    algo: str = "cpp", seed: int = 0, n_timesteps: int = 600, **overrides: Any
) -> RunConfig:
    params = (
        PARAMS
        if algo not in ("ppo", "a2c")
        else {"n_steps": 32, "n_envs": 2, "policy_kwargs": {"net_arch": [16]}}
    )
    if algo == "ppo":
        params = {**params, "batch_size": 32}
    sizes = {"n_timesteps": n_timesteps, "eval_freq": 200, "eval_episodes": 2, "save_freq": 200}
    return load_suite("classic").run_config(
        algo, "CartPole-v1", seed, {**params, **sizes, **overrides}
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))
