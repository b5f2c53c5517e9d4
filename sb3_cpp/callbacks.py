"""Callbacks: they observe, they never change the algorithm."""

import csv
import math
import sys
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv, sync_envs_normalization, unwrap_vec_normalize

from sb3_cpp.checks import InvalidArgument, check_whole_number
from sb3_cpp.deep.masks import evaluate_policy
from sb3_cpp.files import naming_path, write_text

COLUMNS = ("K", "timesteps", "zeta", "m_K", "M_K", "C_K", "return_mean", "episodes")


@runtime_checkable
class IteratedAlgorithm(Protocol):
    """What an algorithm must have for :class:`IterationCallback`, beside SB3's own methods."""

    num_timesteps: int
    iteration: int  # K so far
    iteration_record: dict[str, float]  # K, timesteps and further quantities of the last one
    callback_states: dict[str, Any]  # saved with the model, for callbacks
    resumed: bool  # whether the present learn() continues one that was interrupted


class IterationCallback(BaseCallback):
    """
    Writes one row per iteration K (target update) to ``iterations.csv``: K, timesteps, zeta, m_K,
    M_K, C_K, return_mean, episodes. Cells of quantities that an algorithm does not have are empty.

    ``return_mean`` is the mean return of ``n_eval_episodes`` deterministic episodes of
    ``eval_env`` after the iteration if there is one, else of the training episodes that ended
    during it (empty if none did); ``episodes`` is their number.

    A model with iterations behind it (a further ``learn()``, or a loaded one) appends. A fresh
    model refuses a file that holds another run's rows, unless ``overwrite`` is set. After
    ``resume``, rows later than the checkpoint are replaced.

    :param path: a folder, in which ``iterations.csv`` is written, or a file ending in ``.csv``
    :param eval_env: an environment to evaluate on at every ``eval_every``-th iteration
    :param n_eval_episodes: episodes of one evaluation
    :param eval_every: evaluate at iterations divisible by this number
    :param overwrite: whether a fresh model replaces an existing file. None: yes in a notebook,
        where cells are run again and again, and no elsewhere
    :param verbose: 1 prints every row
    """

    model: Any  # an IteratedAlgorithm and a BaseAlgorithm

    def __init__(
        self,
        path: str | Path,
        eval_env: GymEnv | VecEnv | None = None,
        n_eval_episodes: int = 5,
        eval_every: int = 1,
        overwrite: bool | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        path = Path(path)
        self.path = path if path.suffix == ".csv" else path / "iterations.csv"
        self.eval_env = eval_env
        self.n_eval_episodes = check_whole_number("n_eval_episodes", n_eval_episodes, 1)
        self.eval_every = check_whole_number("eval_every", eval_every, 1)
        self.overwrite = _in_notebook() if overwrite is None else overwrite
        # K of the last row, and the returns of the training episodes that have ended since
        self._state: dict[str, Any] = {"written": 0, "returns": []}

    def _on_training_start(self) -> None:
        if not isinstance(self.model, IteratedAlgorithm):
            raise InvalidArgument(
                f"IterationCallback needs an algorithm of sb3_cpp, got {type(self.model).__name__}"
            )
        self._check_normalization()
        # Kept with the model, so that a resumed run has the episodes of the iteration so far. The
        # last parts of the path are enough of a key: a run's folder may move
        states, key = self.model.callback_states, "/".join(self.path.absolute().parts[-3:])
        if self.model.num_timesteps == 0:
            states.pop(key, None)
            if self.overwrite and self.model.iteration == 0:  # else a second learn() appends
                self.path.unlink(missing_ok=True)
        continues_this_file = self.model.resumed and key in states
        self._state = states.setdefault(key, {"written": self.model.iteration, "returns": []})
        if not self.model.resumed:
            self._state["written"] = self.model.iteration
        if self.path.exists() and self.path.stat().st_size > 0:
            self._check_rows(continues_this_file)
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write(COLUMNS)

    def _check_normalization(self) -> None:
        normalization = self.model.get_vec_normalize_env()
        if self.eval_env is None or normalization is None or not normalization.norm_obs:
            return
        if not isinstance(self.eval_env, VecEnv) or unwrap_vec_normalize(self.eval_env) is None:
            raise InvalidArgument(
                "eval_env must be wrapped in VecNormalize, as the environment of the training is, "
                f"got {type(self.eval_env).__name__}"
            )

    def _check_rows(self, continues_this_file: bool) -> None:
        """Refuse rows of iterations still to be written; a resumed run drops them."""
        # newline="": rows are written back with the line ends of the csv module
        with self.path.open(newline="") as file:
            header, *rows = file.readlines()
        kept = [row for row in rows if _is_row(row, self._state["written"])]
        if len(kept) == len(rows):
            return
        if not continues_this_file:
            raise InvalidArgument(
                f"path must not hold the iterations of another run, got {self.path} with rows "
                f"after K = {self.model.iteration} of this model; overwrite=True replaces the file"
            )
        write_text(self.path, "".join([header, *kept]))

    def _on_rollout_start(self) -> None:
        # Between two rollouts a run may be saved: the rows must not be behind the model
        self._write_iteration()

    def _on_step(self) -> bool:
        # A target update comes after the callbacks of its step: its row is written a step later
        self._write_iteration()
        self._state["returns"].extend(
            float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info
        )
        return True

    def _on_training_end(self) -> None:
        self._write_iteration()

    def _write_iteration(self) -> None:
        if self.model.iteration == self._state["written"]:
            return
        returns = self._state["returns"]
        self._state.update(written=self.model.iteration, returns=[])
        # Written at the target update itself, so these are the values of iteration K
        record: dict[str, Any] = dict(self.model.iteration_record)
        if self.eval_env is not None:
            returns = self._evaluate() if self.model.iteration % self.eval_every == 0 else []
        record["episodes"] = len(returns)
        record["return_mean"] = float(np.mean(returns)) if returns else ""
        row = [record.get(column, "") for column in COLUMNS]
        self._write(row)
        if self.verbose:
            print(
                " ".join(
                    f"{c}={v:.4g}" for c, v in zip(COLUMNS, row) if v != "" and math.isfinite(v)
                )
            )

    def _evaluate(self) -> list[float]:
        assert self.eval_env is not None
        if isinstance(self.eval_env, VecEnv) and unwrap_vec_normalize(self.eval_env) is not None:
            sync_envs_normalization(self.training_env, self.eval_env)
        # Do not ask a user who gave a plain environment to wrap it in a Monitor
        warn = isinstance(self.eval_env, VecEnv) or is_wrapped(self.eval_env, Monitor)
        returns, _ = evaluate_policy(
            self.model, self.eval_env, self.n_eval_episodes, return_episode_rewards=True, warn=warn
        )
        return list(returns)

    def _write(self, row: Any) -> None:
        with naming_path(self.path), self.path.open("a", newline="") as file:
            csv.writer(file).writerow(row)


def _in_notebook() -> bool:
    """Whether this is the kernel of a Jupyter notebook."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


def _is_row(line: str, newest: int) -> bool:
    """Whether a line is complete and of an iteration up to ``newest``."""
    number = line.partition(",")[0]
    return line.endswith("\n") and number.isdigit() and int(number) <= newest
