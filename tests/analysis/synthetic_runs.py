"""Run folders as the runner leaves them, made up in no time."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

PROVENANCE = {
    "command": "python scripts/benchmark.py classic --algos cpp dqn",
    "commit": "0123456789abcdef0123456789abcdef01234567-dirty",
    "versions": {"python": "3.11.0", "sb3_cpp": "0.1.0", "torch": "2.13.0"},
    "machine": {"processor": "Abacus 3000", "cores": 2, "memory_gb": 8.0, "gpu": "none"},
}


def write_run(
    root: Path,
    algo: str = "cpp",
    env: str = "CartPole-v1",
    seed: int = 0,
    *,
    suite: str = "classic",
    evaluations: Sequence[float] = (1.0, 2.0, 3.0, 4.0),
    episodes: Sequence[float] = (1.0,) * 40,
    n_timesteps: int = 400,
    n_envs: int = 1,
    state: str = "finished",
    error: str = "",
    zetas: Sequence[float] = (),
    spread: Sequence[float] = (-0.5, 0.5),
) -> Path:
    """A run evaluated at even steps, with training episodes of equal length.

    :param episodes: returns of the training episodes
    :param spread: differences of the episodes of an evaluation from its mean
    """
    folder = root / suite / algo / env.replace("/", "-") / f"seed_{seed}"
    folder.mkdir(parents=True)
    config = {
        "suite": suite,
        "algo": algo,
        "env": env,
        "seed": seed,
        "n_timesteps": n_timesteps,
        "algorithm": algo,
    }
    config |= {"n_envs": n_envs, "hyperparameters": {"gamma": 0.99}}
    record = {"config": config, "class_defaults": {"batch_size": 32}, "provenance": PROVENANCE}
    (folder / "config.yml").write_text(yaml.safe_dump(record, sort_keys=False))
    with (folder / "monitor.csv").open("w") as file:
        file.write('#{"t_start": 0.0, "env_id": "x"}\n')
        rows = [
            (value, n_timesteps // max(len(episodes), 1), 0.5 * (i + 1))
            for i, value in enumerate(episodes)
        ]
        csv.writer(file).writerows([("r", "l", "t"), *rows])
    if len(evaluations):
        steps = np.linspace(0, n_timesteps, len(evaluations) + 1)[1:].astype(int)
        results = np.array(evaluations, dtype=float)[:, None] + np.array(spread)
        np.savez(
            folder / "evaluations.npz",
            timesteps=steps,
            results=results,
            ep_lengths=np.ones_like(results, dtype=int),
        )
    if len(zetas):
        with (folder / "iterations.csv").open("w") as file:
            rows = [
                (k + 1, 10 * (k + 1), zeta, 0.1, 0.5, 20.0, "", 0) for k, zeta in enumerate(zetas)
            ]
            header = ("K", "timesteps", "zeta", "m_K", "M_K", "C_K", "return_mean", "episodes")
            csv.writer(file).writerows([header, *rows])
    status: dict[str, Any] = {
        "state": state,
        "timesteps": n_timesteps if state == "finished" else n_timesteps // 2,
    }
    (folder / "status.json").write_text(json.dumps(status | ({"error": error} if error else {})))
    if state == "finished":
        (folder / "model.zip").write_bytes(b"")
    if state == "failed":
        (folder / "failure.log").write_text(f"Traceback\nValueError: {error}\n")
    return folder


def write_grid(
    root: Path,
    algos: Sequence[str] = ("cpp", "dqn", "ppo"),
    envs: Sequence[str] = ("CartPole-v1", "Acrobot-v1"),
    seeds: int = 3,
) -> Path:
    """Curves that rise and fall back a little, in other units for each task; returns ``root``."""
    rng = np.random.default_rng(0)
    for e, env in enumerate(envs):
        for a, algo in enumerate(algos):
            for seed in range(seeds):
                curve = 10.0 ** (e + 1) * (
                    np.linspace(0.1, 1.0 - 0.1 * a, 10) + rng.normal(0, 0.02 + 0.05 * a, 10)
                )
                zetas = (
                    np.linspace(0.001, 0.3, 12) * (1 + 0.1 * seed) if algo in ("cpp", "cpi") else ()
                )
                write_run(
                    root,
                    algo,
                    env,
                    seed,
                    evaluations=curve,
                    episodes=np.repeat(curve, 20),
                    zetas=zetas,
                )
    return root
