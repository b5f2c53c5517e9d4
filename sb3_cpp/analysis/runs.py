"""Run folders -> records -> tidy tables: the reader of what a training run leaves behind."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.metrics import (
    area_under_curve,
    human_normalised_score,
    largest_drawdown,
    oscillation,
    oscillation_of_noise,
    oscillation_without_noise,
)
from sb3_cpp.metrics.atari_scores import atari_game
from sb3_cpp.run_folder import (
    CONFIG,
    EVALUATIONS,
    FAILURE,
    ITERATIONS,
    MONITOR,
    folder_name,
    is_finished,
    read_evaluations,
    read_record,
    read_status,
)

CELL = ["suite", "task", "algo", "seed"]
EVALUATION, TRAINING = "evaluation", "training"
TRACES = ("zeta", "m_K", "M_K", "C_K")
# 100 episodes as in SB3's rollout/ep_rew_mean; 50 points and 200 rows keep CSV files small
TRAINING_POINTS, TRAINING_WINDOW, MOST_ITERATIONS = 50, 100, 200
FINAL_EVALUATIONS, FINAL_EPISODES = 3, 100
MEASURES = (
    *("final_return", "final_training_return", "best_return", "auc"),
    *("oscillation_l2", "oscillation_inf", "oscillation_noise"),
    *("oscillation_l2_denoised", "drawdown"),
    *("training_oscillation_l2", "training_oscillation_inf", "human_normalised"),
)
RUN_COLUMNS = [
    *CELL,
    *("state", "problem", "n_timesteps", "timesteps", "seconds", "evaluations", "episodes"),
    *MEASURES,
]
CURVE_COLUMNS = [*CELL, "series", "step", "return", "standard_error"]
ITERATION_COLUMNS = [*CELL, "K", "timesteps", *TRACES]
_ATARI_FRAMES = 4  # Atari's Monitor counts the length of an episode in emulator frames


@dataclass
class RunRecord:
    """One run.

    :param state: "finished", "failed", "unfinished" or "unreadable"
    :param problem: why the run cannot be compared with others; empty if it can
    :param evaluations: step, mean return and its standard error (NaN for one episode)
    :param training: step and mean return of the last 100 training episodes, at 50 even steps
    :param returns: of the training episodes
    :param iterations: K, timesteps, zeta, m_K, M_K, C_K; at most 200 rows, evenly spaced
    :param seconds: of training
    :param settings: the content of config.yml
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
        default_factory=lambda: pd.DataFrame({"step": [], "return": [], "standard_error": []})
    )
    training: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"step": [], "return": []}))
    returns: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    iterations: pd.DataFrame = field(default_factory=pd.DataFrame)
    seconds: float = np.nan
    settings: dict[str, Any] = field(default_factory=dict)


class Tables(NamedTuple):
    """Runs, curves, iterations and configs, before the runs are compared with each other."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    iterations: pd.DataFrame
    configs: list[dict[str, Any]]


def read_run(folder: Path) -> RunRecord | None:
    """The record of ``<suite>/<algo>/<env>/seed_<n>``; None for another folder (a tuning trial)."""
    # Not resolved: a link to another disk keeps the names that the user sees
    parts = Path(os.path.abspath(folder)).parts
    if len(parts) < 5:  # the root and the four names
        return None
    suite, algo, env, seed = parts[-4:]
    number = int(seed.removeprefix("seed_"))
    try:
        settings = read_record(folder)
        config = settings["config"]
        task, total = str(config["env"]), int(config["n_timesteps"])
        # A tuning trial has a config.yml too, but its folder is not named after the environment
        if folder_name(task) != env:
            return None
        if int(config["seed"]) != number:
            problem = f"{CONFIG} is of another run, with seed {config['seed']}"
            return RunRecord(suite, task, algo, number, problem=problem)
    except (InvalidArgument, TypeError, KeyError, ValueError):
        reason = "cannot be read" if (folder / CONFIG).exists() else "is missing"
        return RunRecord(suite, env, algo, number, problem=f"{CONFIG} {reason}")
    record = RunRecord(suite, task, algo, number, n_timesteps=total, settings=settings)
    try:
        _read_logs(record, folder)
    except (OSError, ValueError, TypeError, KeyError) as error:
        record.problem = f"its logs cannot be read ({' '.join(str(error).split())[:200]})"
        return record
    record.state, record.problem = _state(record, folder)
    return record


def _read_logs(record: RunRecord, folder: Path) -> None:
    if arrays := read_evaluations(folder):
        record.evaluations = evaluation_curve(arrays, record.n_timesteps)
        record.timesteps = int(record.evaluations["step"].max()) if len(record.evaluations) else 0
    if _has_content(folder / MONITOR):
        n_envs = int(record.settings["config"].get("n_envs", 1))
        episodes = read_episodes(folder / MONITOR, record.task, n_envs)
        ends = episodes["end"].to_numpy(np.float64)
        within = int(np.searchsorted(ends, record.n_timesteps, side="right"))
        record.returns = episodes["r"].to_numpy(np.float64)[:within]
        record.training = training_curve(ends[:within], record.returns, record.n_timesteps)
        record.seconds = float(episodes["t"].iloc[-1]) if len(episodes) else np.nan
    if _has_content(folder / ITERATIONS):
        record.iterations = _thinned(pd.read_csv(folder / ITERATIONS))


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def evaluation_curve(arrays: Mapping[str, NDArray[Any]], n_timesteps: int) -> pd.DataFrame:
    """The arrays of SB3's evaluations.npz as step, mean return and its standard error.

    On-policy algorithms finish their last rollout, and are evaluated in it, after the steps that
    were asked for: the table ends with the first evaluation at or after ``n_timesteps``.
    """
    steps, results = arrays["timesteps"], arrays["results"].astype(np.float64)
    within = int(np.searchsorted(steps, n_timesteps)) + 1
    steps, results = steps[:within].astype(np.int64), results[:within]
    # Row by row: numpy's mean over an axis adds in another order, and may differ in the last digit
    means = [float(np.mean(result)) for result in results]
    if not np.isfinite(means).all():
        raise ValueError(f"{EVALUATIONS} has returns that are not finite")
    if not (np.diff(steps) > 0).all():
        raise ValueError(f"{EVALUATIONS} has steps that do not grow")
    errors = [
        result.std(ddof=1) / np.sqrt(result.size) if result.size > 1 else np.nan
        for result in results
    ]
    return pd.DataFrame({"step": steps, "return": means, "standard_error": errors})


def _state(record: RunRecord, folder: Path) -> tuple[str, str]:
    status = read_status(folder)
    # The status is written every second, evaluations are rarer
    record.timesteps = max(record.timesteps, int(status.get("timesteps") or 0))
    # A run that was to be prolonged may have the files of the shorter one
    complete = record.timesteps >= record.n_timesteps
    if complete and (is_finished(folder) or status.get("state") == "finished"):
        return "finished", "" if len(record.evaluations) else "has no evaluations"
    if (folder / FAILURE).is_file():
        lines = (folder / FAILURE).read_text(encoding="utf-8", errors="replace").split("\n")
        reason = status.get("error") or next((line for line in reversed(lines) if line.strip()), "")
        reason = " ".join(str(reason).split())[:200]
        return "failed", f"failed at step {record.timesteps:,}: {reason}"
    return "unfinished", f"unfinished: {record.timesteps:,} of {record.n_timesteps:,} steps"


def read_episodes(path: Path, task: str, n_envs: int = 1) -> pd.DataFrame:
    """A monitor.csv with a column ``end``: the step of the run at which each episode ended."""
    try:
        episodes = pd.read_csv(path, comment="#").astype({"r": float, "l": int, "t": float})
    except (ValueError, KeyError) as error:  # pandas' own errors are ValueErrors
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(f"{path} is not a monitor file of SB3 ({reason})") from None
    return episodes.assign(end=episode_ends(length_in_steps(episodes["l"], task), n_envs))


def length_in_steps(lengths: "pd.Series[int]", task: str) -> NDArray[np.float64]:
    """Lengths of a monitor file in steps of the agent."""
    is_atari = task.startswith("ALE/") or "NoFrameskip" in task
    return lengths.to_numpy(np.int64) / (_ATARI_FRAMES if is_atari else 1)


def episode_ends(lengths: NDArray[np.float64], n_envs: int = 1) -> NDArray[np.float64]:
    """The step of the run at which each episode ended, from lengths in the order of their ends.

    With one environment the running sum, exactly. With several the others are in the middle of an
    episode then, which the log does not show; for each, the mean age E[l^2] / (2 E[l]) over the
    episodes that end about that time is added.
    """
    ends = np.cumsum(lengths, dtype=np.float64)
    if n_envs == 1:
        return ends
    # Windows of 4 n_envs episodes: lengths change while the agent learns
    index = np.arange(len(lengths))
    first, last = np.maximum(index - 2 * n_envs, 0), np.minimum(index + 2 * n_envs, len(lengths))
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (lengths, lengths**2))
    age = (squares[last] - squares[first]) / (2.0 * (sums[last] - sums[first]))
    # The estimate must not go back, or episodes would change their order
    return np.maximum.accumulate(ends + (n_envs - 1) * age)


def training_curve(
    ends: NDArray[np.float64], returns: NDArray[np.float64], total: int
) -> pd.DataFrame:
    """Mean return of the last 100 episodes (fewer at first) at 50 even steps.

    It starts when the first episode has ended.
    """
    if not np.isfinite(returns).all():
        raise ValueError(f"{MONITOR} has returns that are not finite")
    grid = np.linspace(0, total, TRAINING_POINTS + 1)[1:]
    counts = np.searchsorted(ends, grid, side="right")
    sums = np.concatenate([[0.0], np.cumsum(returns)])  # windows as differences of running sums
    grid, counts = grid[counts > 0], counts[counts > 0]
    first = np.maximum(counts - TRAINING_WINDOW, 0)
    means = (sums[counts] - sums[first]) / (counts - first)
    return pd.DataFrame({"step": np.round(grid).astype(np.int64), "return": means})


def _thinned(iterations: pd.DataFrame) -> pd.DataFrame:
    """Rows with a value of zeta, m_K, M_K or C_K: at most 200, rounded to six digits."""
    columns = ["K", "timesteps", *TRACES]
    iterations = iterations.reindex(columns=columns).dropna(subset=list(TRACES), how="all")
    if len(iterations) > MOST_ITERATIONS:
        rows = np.linspace(0, len(iterations) - 1, MOST_ITERATIONS).round().astype(int)
        iterations = iterations.iloc[rows]
    # Six digits are more than a figure shows
    rounded = iterations.astype(dict.fromkeys(TRACES, np.float64))
    for name in TRACES:
        rounded[name] = [float(f"{value:.6g}") for value in rounded[name]]
    return rounded.reset_index(drop=True)


def tabulate(records: Sequence[RunRecord]) -> Tables:
    """The tidy tables of some runs."""
    curves, iterations = [], []
    for record in records:
        cell = {name: getattr(record, name) for name in CELL}
        for series, curve in ((EVALUATION, record.evaluations), (TRAINING, record.training)):
            curve = curve.assign(**cell, series=series)
            # Means of training episodes overlap, and have no standard error
            curves.append(curve.reindex(columns=CURVE_COLUMNS))
        iterations.append(record.iterations.assign(**cell))
    runs = pd.DataFrame([measure_run(record) for record in records], columns=RUN_COLUMNS)
    curve_table, iteration_table = (
        join_tables(curves, CURVE_COLUMNS),
        join_tables(iterations, ITERATION_COLUMNS),
    )
    return Tables(runs, curve_table, iteration_table, _configs(records))


def join_tables(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """One below the other; without the empty ones, whose columns have no type."""
    frames = [frame for frame in frames if len(frame)]
    if not frames:
        return pd.DataFrame(columns=columns)
    return pd.concat(frames, ignore_index=True)[columns]


def measure_run(record: RunRecord) -> dict[str, Any]:
    """A row of runs.csv, without the columns that depend on other runs."""
    row: dict[str, Any] = {name: getattr(record, name) for name in RUN_COLUMNS[:9]}
    row |= {"evaluations": len(record.evaluations), "episodes": len(record.returns)}
    row |= dict.fromkeys(MEASURES, np.nan)
    if len(record.evaluations):
        returns = record.evaluations["return"].to_numpy()
        row |= {
            "final_return": returns[-FINAL_EVALUATIONS:].mean(),
            "best_return": returns.max(),
            "auc": area_under_curve(record.evaluations["step"], returns),
        }
        row |= measure_falls(returns, record.evaluations["standard_error"].to_numpy())
    if len(record.returns):
        norms = oscillation(record.training["return"].to_numpy())
        row |= {
            "final_training_return": record.returns[-FINAL_EPISODES:].mean(),
            "training_oscillation_l2": float(norms.l2),
            "training_oscillation_inf": float(norms.inf),
        }
    if atari_game(record.task):
        row["human_normalised"] = human_normalised_score(record.task, row["final_return"])
    return row


def measure_falls(
    returns: NDArray[np.float64], standard_errors: NDArray[np.float64]
) -> dict[str, float]:
    """The columns of runs.csv about falls; NaN for those that need unknown standard errors."""
    norms, drawdown = oscillation(returns), largest_drawdown(returns)
    noise = denoised = np.nan
    if not np.isnan(standard_errors).any():
        noise = oscillation_of_noise(standard_errors)
        denoised = float(oscillation_without_noise(returns, standard_errors).l2)
    return {
        "oscillation_l2": float(norms.l2),
        "oscillation_inf": float(norms.inf),
        "oscillation_noise": noise,
        "oscillation_l2_denoised": denoised,
        "drawdown": float(drawdown),
    }


def _configs(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Settings and provenance, written once for the seeds that share them."""
    entries: list[dict[str, Any]] = []
    for record in records:
        if not record.settings:
            continue
        config = {
            key: value
            for key, value in record.settings["config"].items()
            if key not in ("suite", "algo", "env", "seed")
        }
        entry = {"suite": record.suite, "algo": record.algo, "task": record.task, "config": config}
        entry |= {key: record.settings.get(key, {}) for key in ("class_defaults", "provenance")}
        for old in entries:
            if {key: value for key, value in old.items() if key != "seeds"} == entry:
                old["seeds"].append(record.seed)
                break
        else:
            entries.append({**entry, "seeds": [record.seed]})
    return entries
