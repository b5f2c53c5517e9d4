"""A newcomer's first comparison: easy tasks, few settings, and rewards of any scale.

    python benchmarks/first_comparison.py -o runs/first_comparison --jobs 2

Every cell (task, settings, algorithm, factor of the rewards, seed) is one row of cells.csv; run the
command again to continue. It ends with a table: how many seeds solve the task, and the mean return
of the last model with its 95 % interval, divided by the factor of the rewards.
"""

import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pandas as pd
from scipy import stats
from stable_baselines3 import DQN
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from tqdm import tqdm

from sb3_cpp import MDQN, CautiousMDQN
from sb3_cpp.analysis.tables import markdown_table
from sb3_cpp.checks import InvalidArgument, check_number
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.files import write_text
from sb3_cpp.threads import torch_threads


class Corridor(gym.Env):
    """Six cells in a row; the reward is 1 at the right end. Left of the first cell is a wall."""

    observation_space = gym.spaces.Box(0.0, 1.0, (6,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return np.eye(6, dtype=np.float32)[self.cell], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.cell = max(self.cell + (1 if action == 1 else -1), 0)
        at_end = self.cell == 5
        return np.eye(6, dtype=np.float32)[self.cell], float(at_end), at_end, False, {}


class Task(NamedTuple):
    """An environment, how long is trained on it, and the return from which it counts as solved."""

    env: str
    n_timesteps: int
    solved: float
    max_episode_steps: int | None = None


TASKS = {
    "corridor, 6,000 steps": Task("corridor", 6_000, 1.0, max_episode_steps=30),
    "corridor, 20,000 steps": Task("corridor", 20_000, 1.0, max_episode_steps=30),
    "CartPole-v1, 50,000 steps": Task("CartPole-v1", 50_000, 475.0),
    "LunarLander-v3, 60,000 steps": Task("LunarLander-v3", 60_000, 200.0),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "class defaults": {"buffer_size": 100_000},
    "usual": {"buffer_size": 100_000, "learning_rate": 1e-3, "target_update_interval": 250},
    # of configs/classic.yml (rl_zoo3's)
    "zoo": {
        "policy_kwargs": {"net_arch": [256, 256]},
        "learning_rate": 6.3e-4,
        "batch_size": 128,
        "buffer_size": 50_000,
        "learning_starts": 0,
        "target_update_interval": 250,
        "train_freq": 4,
        "gradient_steps": -1,
        "exploration_fraction": 0.12,
        "exploration_final_eps": 0.1,
    },
}
ALGORITHMS: dict[str, tuple[type[BaseAlgorithm], dict[str, Any]]] = {
    "DQN": (DQN, {}),
    "MDQN": (MDQN, {}),
    "MDQN, Huber": (MDQN, {"loss": "huber"}),
    "CautiousMDQN": (CautiousMDQN, {}),
}
NOISY = ("CartPole-v1, 50,000 steps", "usual")  # ten seeds decide nothing: three times as many
EASY = ["corridor, 6,000 steps", "corridor, 20,000 steps", "CartPole-v1, 50,000 steps"]
FACTORS = (0.01, 1.0, 100.0)


class Cell(NamedTuple):
    task: str
    settings: str
    algorithm: str
    factor: float
    seed: int


def cells(easy_seeds: int, scale_seeds: int) -> list[Cell]:
    """Every algorithm on the easy tasks, then rewards times a factor (on LunarLander, where a run
    takes minutes, CautiousMDQN only)."""
    easy = [
        Cell(task, settings, algorithm, 1.0, seed)
        for task in EASY
        for settings in ("class defaults", "usual")
        for algorithm in ALGORITHMS
        for seed in range(easy_seeds * (3 if (task, settings) == NOISY else 1))
    ]
    scaled = [
        Cell(task, settings, algorithm, factor, seed)
        for task, settings in (
            ("CartPole-v1, 50,000 steps", "usual"),
            ("LunarLander-v3, 60,000 steps", "zoo"),
        )
        for algorithm in ALGORITHMS
        for factor in FACTORS
        if factor == 1.0 or task.startswith("CartPole") or algorithm == "CautiousMDQN"
        for seed in range(scale_seeds)
    ]
    return list(dict.fromkeys(easy + scaled))


def make_env(task: Task, factor: float) -> gym.Env:
    env = Corridor() if task.env == "corridor" else gym.make(task.env)
    if task.max_episode_steps is not None:
        env = gym.wrappers.TimeLimit(env, task.max_episode_steps)
    return Monitor(gym.wrappers.TransformReward(env, lambda reward: factor * reward))


def train(cell: Cell, n_timesteps: int | None = None, episodes: int = 20) -> dict[str, Any]:
    """Train one cell; its row of the table."""
    task, (algorithm, own) = TASKS[cell.task], ALGORITHMS[cell.algorithm]
    arguments = {**SETTINGS[cell.settings], **own, "seed": cell.seed, "device": "cpu"}
    with torch_threads(1):
        model = algorithm("MlpPolicy", make_env(task, cell.factor), **arguments)
        model.learn(n_timesteps or task.n_timesteps)
        env = make_env(task, 1.0)
        env.reset(seed=10_000 + cell.seed)
        score, _ = evaluate_policy(model, env, n_eval_episodes=episodes)
    return {
        **cell._asdict(),
        "n_timesteps": n_timesteps or task.n_timesteps,
        "return": score,
        "solved": score >= task.solved,
    }


def in_order(rows: pd.DataFrame, chosen: list[Cell]) -> pd.DataFrame:
    """The rows of these cells, in their order."""
    place = {cell: number for number, cell in enumerate(chosen)}
    keys = [place.get(Cell(*row), -1) for row in rows[list(Cell._fields)].itertuples(index=False)]
    rows = rows.assign(place=keys)
    return rows[rows.place >= 0].sort_values("place").drop(columns="place")


def table(rows: pd.DataFrame) -> str:
    """Solved seeds and mean return with its t interval, as Markdown."""
    columns, lines = ["task", "settings", "algorithm", "factor"], []
    for key, group in rows.groupby(columns, sort=False):
        returns = group["return"].to_numpy()
        mean = returns.mean()
        text = f"{mean:.4g}"
        if len(returns) > 1:
            reach = stats.t.ppf(0.975, len(returns) - 1) * stats.sem(returns)
            text += f" [{mean - reach:.4g}, {mean + reach:.4g}]"
        lines.append([*key, f"{group.solved.sum()} of {len(group)}", text])
    return markdown_table([*columns, "seeds solved", "return"], lines, text=3)


def read_rows(path: Path) -> pd.DataFrame:
    """The rows of a comparison so far; those without a number of steps have the task's."""
    rows = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=list(Cell._fields))
    if "n_timesteps" not in rows:
        rows["n_timesteps"] = [TASKS[task].n_timesteps for task in rows.task]
    return rows


def compare(
    out: str,
    seeds: int,
    scale_seeds: int,
    tasks: list[str],
    algos: list[str],
    n_timesteps: int | None,
    jobs: int,
) -> int:
    """Train what is missing in ``out``, and print the table; returns 1 if a run failed."""
    check_number("--jobs", jobs, 1)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cells.csv"
    chosen = [
        cell for cell in cells(seeds, scale_seeds) if cell.task in tasks and cell.algorithm in algos
    ]
    rows = read_rows(path)
    for row in rows.itertuples():
        if row.n_timesteps != (wanted := n_timesteps or TASKS[row.task].n_timesteps):
            raise InvalidArgument(
                f"{path} has runs of {row.n_timesteps:,} steps on {row.task}, these have "
                f"{wanted:,}; choose another -o"
            )
    finished = {Cell(*row) for row in rows[list(Cell._fields)].itertuples(index=False)}
    missing, failed = [cell for cell in chosen if cell not in finished], 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(train, cell, n_timesteps): cell for cell in missing}
        for future in tqdm(as_completed(futures), total=len(futures)):
            if error := future.exception():
                failed += 1
                print(f"failed: {futures[future]}: {error}", file=sys.stderr)
                continue
            rows = pd.DataFrame([*rows.to_dict("records"), future.result()])
            write_text(path, rows.to_csv(index=False))
    text = table(in_order(rows, chosen)) if len(rows) else "no run has ended"
    write_text(folder / "table.md", text + "\n")
    print(text)
    return 1 if failed else 0


def main() -> int:
    parser = CommandLine(prog="first_comparison.py", description=__doc__)
    parser.add_argument("-o", "--out", default="runs/first_comparison", help="folder")
    parser.add_argument("--seeds", type=int, default=10, help="of the easy tasks")
    parser.add_argument("--scale-seeds", type=int, default=5, help="of the scaled rewards")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--algos", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("-n", "--n-timesteps", type=int, help="of every run")
    parser.add_argument("--jobs", type=int, default=1)
    return compare(**parser.parse())


if __name__ == "__main__":
    run_command(main)
