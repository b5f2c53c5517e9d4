"""What one run's folder says about it, whatever state the run is in."""

import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from sb3_cpp.run_folder import (
    CONFIG,
    EVALUATIONS,
    FAILURE,
    ITERATIONS,
    MONITOR,
    is_finished,
    read_status,
)
from sb3_cpp.training.environments import is_atari

TRACES = ("zeta", "m_K", "M_K", "C_K")
TRAINING_POINTS, TRAINING_WINDOW, MOST_ITERATIONS = 50, 100, 200
_ATARI_FRAMES = 4  # the length of an Atari episode is counted in frames of the emulator


@dataclass
class RunRecord:
    """One run.

    :param state: "finished", "failed", "unfinished" or "unreadable"
    :param problem: why the run cannot be compared with others; empty if it can
    :param evaluations: step, mean return and its standard error (NaN for one episode) of each evaluation
    :param training: step and mean return of the last 100 training episodes, at 50 even steps of the run
    :param returns: of the training episodes
    :param iterations: K, timesteps, zeta, m_K, M_K, C_K; at most 200 rows, evenly chosen
    :param seconds: of training
    :param settings: what config.yml holds
    """

    suite: str
    task: str
    algo: str
    seed: int
    state: str = "unreadable"
    problem: str = ""
    n_timesteps: int = 0
    timesteps: int = 0
    evaluations: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame({"step": [], "return": [], "error": []})
    )
    training: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"step": [], "return": []}))
    returns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    iterations: pd.DataFrame = field(default_factory=pd.DataFrame)
    seconds: float = np.nan
    settings: dict[str, Any] = field(default_factory=dict)


def read_run(folder: Path) -> RunRecord | None:
    """The record of a folder ``<suite>/<algo>/<env>/seed_<n>``; None if it is the run of something else (a search)."""
    parts = Path(
        os.path.abspath(folder)
    ).parts  # names as the user sees them, also behind a link to another disk
    if len(parts) < 5:  # the root, and then the four
        return None
    suite, algo, env, seed = parts[-4:]
    number = int(seed.removeprefix("seed_"))
    try:
        settings = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
        config = settings["config"]
        task, total = str(config["env"]), int(config["n_timesteps"])
        if task.replace("/", "-") != env:
            return None
        if int(config["seed"]) != number:
            return RunRecord(
                suite,
                task,
                algo,
                number,
                problem=f"{CONFIG} is of another run, with seed {config['seed']}",
            )
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        reason = "is missing" if isinstance(error, FileNotFoundError) else "cannot be read"
        return RunRecord(suite, env, algo, number, problem=f"{CONFIG} {reason}")
    record = RunRecord(suite, task, algo, number, n_timesteps=total, settings=settings)
    try:
        _read_logs(record, folder)
    except (
        OSError,
        UnicodeDecodeError,
        ValueError,
        TypeError,
        KeyError,
        zipfile.BadZipFile,
        EOFError,
    ) as error:
        record.problem = f"its logs cannot be read ({' '.join(str(error).split())[:200]})"
        return record
    record.state, record.problem = _state(record, folder)
    return record


def _read_logs(record: RunRecord, folder: Path) -> None:
    config = record.settings["config"]
    if (folder / EVALUATIONS).is_file():
        with np.load(folder / EVALUATIONS) as saved:
            steps, results = saved["timesteps"], saved["results"]
        # On-policy algorithms finish their last rollout, and are evaluated in it, after the steps that were asked for
        within = int(np.searchsorted(steps, record.n_timesteps)) + 1
        steps, results = (
            steps[:within],
            [np.asarray(result, dtype=np.float64) for result in results[:within]],
        )
        means = [float(np.mean(result)) for result in results]
        errors = [
            result.std(ddof=1) / np.sqrt(result.size) if result.size > 1 else np.nan
            for result in results
        ]
        if not np.isfinite(means).all():
            raise ValueError(f"{EVALUATIONS} has returns that are not finite")
        if not (np.diff(steps) > 0).all():
            raise ValueError(f"{EVALUATIONS} has steps that do not grow")
        record.evaluations = pd.DataFrame(
            {"step": steps.astype(np.int64), "return": means, "error": errors}
        )
        record.timesteps = int(steps[-1]) if len(steps) else 0
    if (folder / MONITOR).is_file() and (folder / MONITOR).stat().st_size:
        episodes = read_episodes(folder / MONITOR, record.task, int(config.get("n_envs", 1)))
        ends = episodes["end"].to_numpy(np.float64)
        within = int(np.searchsorted(ends, record.n_timesteps, side="right"))
        record.returns = episodes["r"].to_numpy(np.float64)[:within]
        record.training = training_curve(ends[:within], record.returns, record.n_timesteps)
        record.seconds = float(episodes["t"].iloc[-1]) if len(episodes) else np.nan
    if (folder / ITERATIONS).is_file() and (folder / ITERATIONS).stat().st_size:
        record.iterations = _thinned(pd.read_csv(folder / ITERATIONS))


def _state(record: RunRecord, folder: Path) -> tuple[str, str]:
    status = read_status(folder)
    record.timesteps = max(record.timesteps, int(status.get("timesteps") or 0))
    if is_finished(folder) or status.get("state") == "finished":
        return "finished", "" if len(record.evaluations) else "has no evaluations"
    if (folder / FAILURE).is_file():
        lines = (folder / FAILURE).read_text(encoding="utf-8", errors="replace").split("\n")
        reason = status.get("error") or next((line for line in reversed(lines) if line.strip()), "")
        return (
            "failed",
            f"failed at step {record.timesteps:,}: {' '.join(str(reason).split())[:200]}",
        )
    return "unfinished", f"unfinished: {record.timesteps:,} of {record.n_timesteps:,} steps"


def read_episodes(path: Path, task: str, n_envs: int = 1) -> pd.DataFrame:
    """A monitor.csv, with the step of the run at which each episode ended as ``end`` (Atari's lengths count frames)."""
    episodes = pd.read_csv(path, comment="#")
    lengths = episodes["l"].to_numpy(np.int64) / (_ATARI_FRAMES if is_atari(task) else 1)
    return episodes.assign(end=episode_ends(lengths, n_envs))


def episode_ends(lengths: NDArray[np.float64], n_envs: int = 1) -> NDArray[np.float64]:
    """The step of the run at which each episode ended, from their lengths in the order in which they ended.

    With one environment the running sum, exactly. With several the others are in the middle of an episode then, which the log
    does not show; their mean age E[l^2] / (2 E[l]), over the episodes that end about that time, is added for each.
    """
    ends = np.cumsum(lengths, dtype=np.float64)
    if n_envs == 1:
        return ends
    index = np.arange(len(lengths))
    first, last = np.maximum(index - 2 * n_envs, 0), np.minimum(index + 2 * n_envs, len(lengths))
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (lengths, lengths**2))
    age = (squares[last] - squares[first]) / (2.0 * (sums[last] - sums[first]))
    return np.maximum.accumulate(ends + (n_envs - 1) * age)


def training_curve(
    ends: NDArray[np.float64], returns: NDArray[np.float64], total: int
) -> pd.DataFrame:
    """Mean return of the last 100 episodes (fewer at first) at 50 even steps; none before the first episode has ended."""
    if not np.isfinite(returns).all():
        raise ValueError(f"{MONITOR} has returns that are not finite")
    grid = np.linspace(0, total, TRAINING_POINTS + 1)[1:]
    counts = np.searchsorted(ends, grid, side="right")
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    grid, counts = grid[counts > 0], counts[counts > 0]
    first = np.maximum(counts - TRAINING_WINDOW, 0)
    return pd.DataFrame(
        {
            "step": np.round(grid).astype(np.int64),
            "return": (sums[counts] - sums[first]) / (counts - first),
        }
    )


def _thinned(iterations: pd.DataFrame) -> pd.DataFrame:
    """Rows that have something of an algorithm's own, at most 200 of them, with six digits."""
    iterations = iterations.reindex(columns=["K", "timesteps", *TRACES]).dropna(
        subset=list(TRACES), how="all"
    )
    if len(iterations) > MOST_ITERATIONS:
        iterations = iterations.iloc[
            np.linspace(0, len(iterations) - 1, MOST_ITERATIONS).round().astype(int)
        ]
    rounded = iterations.astype(dict.fromkeys(TRACES, np.float64))
    for name in TRACES:
        rounded[name] = [float(f"{value:.6g}") for value in rounded[name]]
    return rounded.reset_index(drop=True)
