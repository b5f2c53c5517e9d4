"""The logs of a run: monitor.csv, progress.csv and evaluations.npz, each able to go on where a checkpoint left off."""

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import CSVOutputFormat, filter_excluded_keys
from stable_baselines3.common.vec_env import VecEnv

from sb3_cpp.checkpointing.interruption import Interruption
from sb3_cpp.run_folder import (
    BEST_MODEL,
    EVALUATIONS,
    ITERATIONS,
    MONITOR,
    PROGRESS,
    read_evaluations,
)
from sb3_cpp.training.checkpoint import save_model

PATIENCE = 30.0  # seconds that a signal waits for the end of an evaluation
_CSV_LOGS = (MONITOR, PROGRESS, ITERATIONS)


def log_lines(run: Path) -> dict[str, int]:
    """How many lines each log has by now; they are brought to the disk first."""
    lines = {}
    for path in (run / name for name in (*_CSV_LOGS, EVALUATIONS)):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                lines[path.name] = sum(1 for _ in file)
    return lines


def cut_back_logs(run: Path, lines: dict[str, int], timesteps: int) -> None:
    """Remove what was written after a checkpoint, which a resumed run writes again."""
    for name in _CSV_LOGS:
        path = run / name
        if path.is_file():
            with path.open("rb+") as file:  # cut in place: nothing that is kept is ever missing
                file.truncate(sum(len(file.readline()) for _ in range(lines.get(name, 0))))
    if saved := read_evaluations(run):
        keep = saved["timesteps"] <= timesteps
        arrays = {key: array[keep] for key, array in saved.items()}
        _save_evaluations(run / EVALUATIONS, arrays)


def _save_evaluations(path: Path, arrays: dict[str, Any]) -> None:
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    part.replace(path)


class ContinuedCSV(CSVOutputFormat):
    """SB3's progress.csv, appended to if it exists.

    New columns come in alphabetical order (SB3: in that of a set, which differs from process to process), and the file with
    more columns replaces the old one at once, so that a process that dies leaves one or the other.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(os.devnull)  # for the attributes; SB3 would empty the file itself
        self.close()
        self._open()

    def _open(self) -> None:
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
            part = self._path.with_suffix(".part.csv")
            padding = "," * len(new)
            part.write_text(
                "".join(
                    [
                        ",".join([*self.keys, *new]),
                        "\n",
                        *(f"{row[:-1]}{padding}\n" for row in rows),
                    ]
                )
            )
            part.replace(self._path)
            self._open()
        super().write(key_values, key_excluded, step)


class MonitorCallback(BaseCallback):
    """Every finished training episode in one monitor.csv of SB3's format, for any number of environments.

    :param path: the file
    :param env_id: for its first line
    :param elapsed: seconds the run had been going before
    """

    def __init__(self, path: Path, env_id: str, elapsed: float = 0.0) -> None:
        super().__init__()
        self.path, self.env_id, self.elapsed = path, env_id, elapsed

    def _on_training_start(self) -> None:
        self._start = time.time() - self.elapsed
        fresh = not self.path.is_file() or self.path.stat().st_size == 0
        self._file = self.path.open("a", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        if fresh:
            self._file.write(f"#{json.dumps({'t_start': self._start, 'env_id': self.env_id})}\n")
            self._writer.writerow(("r", "l", "t"))
            self._file.flush()

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                episode = info["episode"]
                self._writer.writerow(
                    (
                        round(float(episode["r"]), 6),
                        int(episode["l"]),
                        round(time.time() - self._start, 6),
                    )
                )
                self._file.flush()
        return True

    def _on_training_end(self) -> None:
        self._file.close()


class EvaluationCallback(BaseCallback):
    """Deterministic evaluations in SB3's evaluations.npz, every ``every`` steps and at the end of the run.

    The model of the best evaluation (the latest of equal ones) is kept in best_model.zip beside it.

    Each evaluation seeds its environments by the run's seed and its own number, so it depends on the weights alone and not on
    the evaluations before it.

    :param env: environments of its own
    :param path: the file
    :param total: steps of the whole run
    :param on_evaluation: called after each evaluation with the mean returns of all so far
    :param interruption: a signal waits for the end of an evaluation too; where some may never end, not for long
    """

    def __init__(
        self,
        env: VecEnv,
        path: Path,
        every: int,
        episodes: int,
        seed: int,
        total: int,
        on_evaluation: Callable[[list[float]], None] | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        super().__init__()
        self.interruption = interruption or Interruption()
        self.env, self.path, self.every, self.episodes, self.seed, self.total = (
            env,
            path,
            every,
            episodes,
            seed,
            total,
        )
        self.on_evaluation = on_evaluation
        self.timesteps: list[int] = []
        self.results: list[list[float]] = []
        self.lengths: list[list[int]] = []
        if saved := read_evaluations(path.parent):
            self.timesteps = saved["timesteps"].tolist()
            self.results = saved["results"].tolist()
            self.lengths = saved["ep_lengths"].tolist()

    def _on_training_start(self) -> None:
        self._due = (self.num_timesteps // self.every + 1) * self.every

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._due:
            self._due = (self.num_timesteps // self.every + 1) * self.every
            self.evaluate()
        return True

    def finish(self) -> None:
        """The evaluation of the finished model, unless it was just made."""
        if not self.timesteps or self.timesteps[-1] < self.total:
            self.evaluate()

    def evaluate(self) -> None:
        seed = 1_000_003 * (self.seed + 1) + len(self.timesteps) * self.env.num_envs
        self.env.seed(seed % (2**32 - self.env.num_envs))  # MinAtar takes no larger ones
        returns, lengths = evaluate_policy(
            self.model,
            self.env,
            self.episodes,
            return_episode_rewards=True,
            callback=lambda *_: self.interruption.check(PATIENCE),
        )
        self.timesteps.append(self.num_timesteps)
        self.results.append([float(r) for r in returns])  # type: ignore[union-attr]
        self.lengths.append([int(n) for n in lengths])  # type: ignore[union-attr]
        arrays = {"timesteps": self.timesteps, "results": self.results, "ep_lengths": self.lengths}
        _save_evaluations(self.path, {key: np.asarray(value) for key, value in arrays.items()})
        if self.means[-1] >= max(self.means):
            save_model(self.model, self.path.with_name(BEST_MODEL))
        self.logger.record("eval/mean_reward", self.means[-1])
        if self.on_evaluation is not None:
            self.on_evaluation(self.means)

    @property
    def means(self) -> list[float]:
        return [float(np.mean(result)) for result in self.results]
