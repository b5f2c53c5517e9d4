"""What is measured of a run on its own, and the tidy tables of many."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sb3_cpp.analysis.cell_checks import CELL
from sb3_cpp.analysis.run_records import TRACES, RunRecord
from sb3_cpp.metrics import (
    area_under_curve,
    human_normalised_score,
    oscillation,
    oscillation_of_noise,
)
from sb3_cpp.metrics.atari_scores import atari_game

EVALUATION, TRAINING = "evaluation", "training"
FINAL_EVALUATIONS, FINAL_EPISODES = 3, 100
MEASURES = (
    "final_return",
    "final_training_return",
    "best_return",
    "auc",
    "oscillation_l2",
    "oscillation_inf",
    "oscillation_noise",
    "training_oscillation_l2",
    "training_oscillation_inf",
    "human_normalised",
)
RUN_COLUMNS = [
    *CELL,
    "state",
    "problem",
    "n_timesteps",
    "timesteps",
    "seconds",
    "evaluations",
    "episodes",
    *MEASURES,
]
CURVE_COLUMNS = [*CELL, "series", "step", "return"]
ITERATION_COLUMNS = [*CELL, "K", "timesteps", *TRACES]


class Tables(NamedTuple):
    """Runs, curves, iterations and configs, before the runs are compared with each other."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    iterations: pd.DataFrame
    configs: list[dict[str, Any]]


def tabulate(records: Sequence[RunRecord]) -> Tables:
    """The tables of some runs."""
    curves, iterations = [], []
    for record in records:
        cell = {name: getattr(record, name) for name in CELL}
        for series, curve in ((EVALUATION, record.evaluations), (TRAINING, record.training)):
            curves.append(curve[["step", "return"]].assign(**cell, series=series))
        if len(record.iterations):
            iterations.append(record.iterations.assign(**cell))
    runs = pd.DataFrame([measure_run(record) for record in records], columns=RUN_COLUMNS)
    return Tables(
        runs, _join(curves, CURVE_COLUMNS), _join(iterations, ITERATION_COLUMNS), _configs(records)
    )


def _join(frames: list[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    frames = [frame for frame in frames if len(frame)]
    return (
        pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)
    )


def measure_run(record: RunRecord) -> dict[str, Any]:
    """A row of runs.csv, without what needs the other runs."""
    row: dict[str, Any] = {
        name: getattr(record, name)
        for name in (*CELL, "state", "problem", "n_timesteps", "timesteps")
    }
    row |= {
        "seconds": record.seconds,
        "evaluations": len(record.evaluations),
        "episodes": len(record.returns),
    }
    row |= dict.fromkeys(MEASURES, np.nan)
    if len(record.evaluations):
        steps, returns = (
            record.evaluations["step"].to_numpy(),
            record.evaluations["return"].to_numpy(),
        )
        norms = oscillation(returns)
        errors = record.evaluations["error"]
        row["oscillation_noise"] = oscillation_of_noise(errors) if errors.notna().all() else np.nan
        row |= {"final_return": returns[-FINAL_EVALUATIONS:].mean(), "best_return": returns.max()}
        row |= {
            "auc": area_under_curve(steps, returns),
            "oscillation_l2": float(norms.l2),
            "oscillation_inf": float(norms.inf),
        }
    if len(record.returns):
        norms = oscillation(record.training["return"].to_numpy())
        row |= {"final_training_return": record.returns[-FINAL_EPISODES:].mean()}
        row |= {
            "training_oscillation_l2": float(norms.l2),
            "training_oscillation_inf": float(norms.inf),
        }
    if atari_game(record.task):
        row["human_normalised"] = human_normalised_score(record.task, row["final_return"])
    return row


def _configs(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Settings and origin, written once for the seeds that share them."""
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
        same = next(
            (old for old in entries if {k: v for k, v in old.items() if k != "seeds"} == entry),
            None,
        )
        if same is not None:
            same["seeds"].append(record.seed)
        else:
            entries.append({**entry, "seeds": [record.seed]})
    return entries
