"""What a run writes while it trains: CSV logs, evaluations, models, status.json, the console.

The CSV files and the evaluations can be cut back to a checkpoint and continued from there.
"""

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import CSVOutputFormat, filter_excluded_keys
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_cpp import files
from sb3_cpp.checkpointing import Interruption
from sb3_cpp.deep.masks import evaluate_policy
from sb3_cpp.run_folder import (
    BEST_MODEL,
    EVALUATIONS,
    ITERATIONS,
    MONITOR,
    PROGRESS,
    read_evaluations,
    write_status,
)
from sb3_cpp.training.environments import copy_normalization, save_normalization

PATIENCE = 30.0  # seconds that a signal waits for the end of an evaluation
_CSV_LOGS = (MONITOR, PROGRESS, ITERATIONS)
_N_EVALUATIONS = f"n_{EVALUATIONS}"


def log_sizes(run: Path) -> dict[str, int]:
    """Flush the logs to the disk; returns their lines and the number of evaluations."""
    sizes = {}
    for path in (run / name for name in _CSV_LOGS):
        if path.is_file():
            files.sync_file(path)
            sizes[path.name] = path.read_bytes().count(b"\n")
    if saved := read_evaluations(run):
        sizes[_N_EVALUATIONS] = len(saved["timesteps"])
    return sizes


def truncate_logs(run: Path, sizes: dict[str, int], timesteps: int) -> list[str]:
    """Remove what was logged after a checkpoint: the resumed run logs it again.

    :param run: the run's folder
    :param sizes: :func:`log_sizes` at the checkpoint
    :param timesteps: its number of steps
    :return: warnings about logs that are shorter than they were at the checkpoint
    """
    found = {name: _truncate_csv(run / name, sizes.get(name, 0)) for name in _CSV_LOGS}
    if saved := read_evaluations(run):
        keep = saved["timesteps"] <= timesteps
        _save_evaluations(run / EVALUATIONS, {key: array[keep] for key, array in saved.items()})
        found[_N_EVALUATIONS] = int(keep.sum())
    return [
        f"{run / name.removeprefix('n_')} has lost {sizes[name] - found.get(name, 0)} of "
        f"{sizes[name]} rows that it had at step {timesteps}; the run goes on without them"
        for name in (*_CSV_LOGS, _N_EVALUATIONS)
        if sizes.get(name, 0) > found.get(name, 0)
    ]


def _truncate_csv(path: Path, lines: int) -> int:
    """Keep the first lines, as far as they are whole; returns their number."""
    if not path.is_file():
        return 0
    whole = path.read_bytes().split(b"\n")[:-1][:lines]
    if path.name == MONITOR and len(whole) < 2:  # without its header of two lines
        whole = []
    with path.open("rb+") as file:  # in place: rows that are kept are never missing
        file.truncate(sum(len(line) + 1 for line in whole))
    return len(whole)


def _save_evaluations(path: Path, arrays: dict[str, Any]) -> None:
    files.write_with(path, lambda part: np.savez(part, **arrays))


def save_model(model: BaseAlgorithm, path: Path) -> None:
    """Write model.zip or best_model.zip, and what normalises its observations beside it."""
    zipped = io.BytesIO()
    model.save(zipped)
    save_normalization(model.get_env(), path.with_suffix(".npz"))
    files.write_bytes(path, zipped.getvalue())


class ContinuedCSV(CSVOutputFormat):
    """SB3's progress.csv, appended to if it exists.

    New columns come in alphabetical order (SB3's order is that of a set, different in every
    process), and the file with more columns replaces the old one atomically.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(os.devnull)  # for the attributes; SB3 would truncate the file
        self.close()
        self._open()

    def _open(self) -> None:
        # To read the header and append rows
        self.file = self._path.open("a+", newline="")
        self.file.seek(0)
        header = self.file.readline().strip()
        self.keys = header.split(",") if header else []

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        new = sorted(filter_excluded_keys(key_values, key_excluded, "csv").keys() - set(self.keys))
        if new:
            self.file.seek(0)
            rows = self.file.readlines()[1:]
            self.file.close()
            lines = [",".join([*self.keys, *new]), *(row[:-1] + "," * len(new) for row in rows)]
            files.write_text(self._path, "".join(f"{line}\n" for line in lines))
            self._open()
        with files.naming_path(self._path):
            super().write(key_values, key_excluded, step)


class MonitorCallback(BaseCallback):
    """Training episodes in one monitor.csv of SB3's format, for any number of environments.

    SB3's Monitor writes a file per environment, and starts it anew when a run is resumed.

    :param path: the file
    :param env_id: for its first line
    :param elapsed: seconds of training before a resume
    """

    def __init__(self, path: Path, env_id: str, elapsed: float = 0.0) -> None:
        super().__init__()
        self.path, self.env_id, self.elapsed = path, env_id, elapsed

    def _on_training_start(self) -> None:
        self._start = time.time() - self.elapsed
        new = not self.path.is_file() or self.path.stat().st_size == 0
        self._file = self.path.open("a", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if new:
            self._file.write(f"#{json.dumps({'t_start': self._start, 'env_id': self.env_id})}\n")
            self._write(("r", "l", "t"))

    def _on_step(self) -> bool:
        for episode in (info["episode"] for info in self.locals["infos"] if "episode" in info):
            seconds = round(time.time() - self._start, 6)
            self._write((round(float(episode["r"]), 6), int(episode["l"]), seconds))
        return True

    def _write(self, row: tuple[Any, ...]) -> None:
        with files.naming_path(self.path):
            self._writer.writerow(row)
            self._file.flush()

    def _on_training_end(self) -> None:
        self._file.close()


class EvaluationCallback(BaseCallback):
    """Deterministic evaluations in SB3's evaluations.npz, every ``every`` steps and at the end.

    The model of the best evaluation (the latest of equal ones) is saved as best_model.zip. Each
    evaluation seeds its environments from the run's seed and its own number: it depends on the
    weights only, not on earlier evaluations.

    :param env: environments for evaluation only
    :param folder: the run's folder
    :param every: steps between evaluations
    :param episodes: episodes of one evaluation
    :param seed: seed of the run
    :param total: steps of the whole run
    :param on_evaluation: called with the mean returns of all evaluations so far
    :param interruption: stops an evaluation that outlasts a signal by ``PATIENCE``; for
        environments without a time limit
    """

    def __init__(
        self,
        env: VecEnv,
        folder: Path,
        every: int,
        episodes: int,
        seed: int,
        total: int,
        on_evaluation: Callable[[list[float]], None] | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        super().__init__()
        _stop_after_episodes(env, episodes)
        self.env, self.folder, self.every, self.episodes = env, folder, every, episodes
        self.seed, self.total, self.on_evaluation = seed, total, on_evaluation
        self.interruption = interruption or Interruption()
        saved = read_evaluations(folder)
        self.timesteps: list[int] = saved["timesteps"].tolist() if saved else []
        self.results: list[list[float]] = saved["results"].tolist() if saved else []
        self.lengths: list[list[int]] = saved["ep_lengths"].tolist() if saved else []

    def _on_training_start(self) -> None:
        # Multiples of `every`: a resumed run evaluates when it would have done so anyway
        self._due = (self.num_timesteps // self.every + 1) * self.every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._due:
            self._due = (self.num_timesteps // self.every + 1) * self.every
            self.evaluate()
        return True

    def finish(self) -> None:
        """Evaluate the trained model, unless its last step already did."""
        if not self.timesteps or self.timesteps[-1] < self.total:
            self.evaluate()

    def evaluate(self) -> None:
        # Far apart, so that no two runs of a grid are evaluated on the same episodes
        seed = 1_000_003 * (self.seed + 1) + len(self.timesteps) * self.env.num_envs
        self.env.seed(seed % (2**32 - self.env.num_envs))  # MinAtar takes no larger ones
        copy_normalization(self.model.get_env(), self.env)
        returns, lengths = evaluate_policy(
            self.model,
            self.env,
            self.episodes,
            return_episode_rewards=True,
            callback=lambda *_: self.interruption.check(PATIENCE),
        )
        self.timesteps.append(self.num_timesteps)
        self.results.append([float(r) for r in returns])
        self.lengths.append([int(n) for n in lengths])
        if self.means[-1] >= max(self.means):
            # Before the evaluation: a run that dies in between evaluates, and saves, again
            save_model(self.model, self.folder / BEST_MODEL)
        arrays = {"timesteps": self.timesteps, "results": self.results, "ep_lengths": self.lengths}
        _save_evaluations(
            self.folder / EVALUATIONS, {key: np.asarray(value) for key, value in arrays.items()}
        )
        self.logger.record("eval/mean_reward", self.means[-1])
        if self.on_evaluation is not None:
            self.on_evaluation(self.means)

    @property
    def means(self) -> list[float]:
        return [float(np.mean(result)) for result in self.results]


class EpisodeLimit(gym.Wrapper[Any, Any, Any, Any]):
    """Plays so many episodes after a reset with a seed, and then stands still.

    The environments of an evaluation step side by side until the longest episode has ended. What
    the others play meanwhile is not counted: it would only take time.

    :param env: with SB3's ``Monitor``, which says when an episode has ended
    :param episodes: how many
    """

    def __init__(self, env: gym.Env[Any, Any], episodes: int) -> None:
        super().__init__(env)
        self.episodes, self.played = episodes, 0
        self._start: tuple[Any, dict[str, Any]] = None, {}

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if kwargs.get("seed") is not None:
            self.played = 0
        self._start = self.env.reset(**kwargs)
        return self._start

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.played >= self.episodes:
            observation, info = self._start
            return observation, 0.0, False, False, dict(info)  # with its action mask, if any
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.played += "episode" in info
        return observation, float(reward), terminated, truncated, info


def _stop_after_episodes(venv: VecEnv, episodes: int) -> None:
    """Let each environment play only the episodes that ``evaluate_policy`` takes from it."""
    base = venv.unwrapped
    if isinstance(base, DummyVecEnv):
        shares = [(episodes + index) // base.num_envs for index in range(base.num_envs)]
        base.envs = [EpisodeLimit(env, share) for env, share in zip(base.envs, shares)]


class ProgressCallback(BaseCallback):
    """Writes status.json about once a second, and shows progress on the console.

    :param folder: the run's folder
    :param total: steps of the whole run
    :param show: "bar" ("lines" without a terminal), "lines" (ten in a run) or "nothing"
    """

    def __init__(self, folder: Path, total: int, show: str = "lines") -> None:
        super().__init__()
        self.folder, self.total = folder, total
        self.show = "lines" if show == "bar" and not sys.stdout.isatty() else show
        self._bar: Progress | None = None

    def _init_callback(self) -> None:
        # Before training starts: the first reset of the environment may fail
        self._start = self._last = time.monotonic()
        self._first = self.num_timesteps = self.model.num_timesteps

    def _on_training_start(self) -> None:
        self._start = self._last = time.monotonic()
        self._next_line = self._after(self.num_timesteps)
        if self.show == "bar":
            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(TextColumn("{task.description}"), *columns)
            self._bar.start()
            self._task = self._bar.add_task("return -", total=self.total, completed=self._first)
        write_status(self.folder, **self.status("training"))

    def _after(self, timesteps: int) -> int:
        return (timesteps * 10 // self.total + 1) * self.total // 10

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._last >= 1.0:
            self._last = now
            status = self.status("training")
            write_status(self.folder, **status)
            self._update_bar(description=_describe(status))
        if self.show == "lines" and self.num_timesteps >= self._next_line:
            self._next_line = self._after(self.num_timesteps)
            steps = f"{self.num_timesteps:>9,} of {self.total:,} steps"
            print(f"{steps}: {_describe(self.status('training'))}", flush=True)
        return True

    def _update_bar(self, **changes: Any) -> None:
        if self._bar is not None:
            completed = min(self.num_timesteps, self.total)
            self._bar.update(self._task, completed=completed, **changes)

    def close(self) -> None:
        """Remove the bar, however training ended."""
        self._update_bar()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def status(self, state: str) -> dict[str, Any]:
        # The last 100 training episodes, as SB3's rollout/ep_rew_mean
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        seconds = max(time.monotonic() - self._start, 1e-9)
        return {
            "state": state,
            "timesteps": self.num_timesteps,
            "total": self.total,
            "return": float(np.mean(returns)) if returns else None,
            "zeta": current_zeta(self.model),
            "speed": (self.num_timesteps - self._first) / seconds,
        }


def current_zeta(model: BaseAlgorithm) -> float | None:
    """The mixing coefficient of the last iteration, or the one that learning begins with
    (``model.zeta`` is the rule); None without one."""
    last = getattr(model, "iteration_record", {})
    return last.get("zeta", getattr(getattr(model, "caution", None), "zeta", None))


def _describe(status: dict[str, Any]) -> str:
    """Return, zeta (if the algorithm has one) and speed."""
    parts = ["return -" if status["return"] is None else f"return {status['return']:.1f}"]
    if status["zeta"] is not None:
        parts.append(f"zeta {status['zeta']:.3g}")
    return ", ".join([*parts, f"{status['speed']:.0f} steps/s"])
