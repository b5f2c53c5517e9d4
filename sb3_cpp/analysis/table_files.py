"""The four files of results, read back: what is not as they were written is refused in one line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from sb3_cpp.analysis.run_measures import CURVE_COLUMNS, ITERATION_COLUMNS, RUN_COLUMNS, Tables
from sb3_cpp.checks import InvalidArgument

RUNS, CURVES, ITERATIONS, CONFIGS = "runs.csv", "curves.csv", "iterations.csv", "configs.yml"
_TEXT = ("suite", "task", "algo", "state", "problem", "series")
_WHOLE = ("seed", "n_timesteps", "timesteps", "evaluations", "episodes")


def read_tables(folder: Path) -> Tables:
    """The tables that ``results.save_results`` wrote."""
    runs = _read_csv(folder / RUNS, RUN_COLUMNS)
    runs = runs[runs.state != "missing"].astype(
        dict.fromkeys(_WHOLE, np.int64)
    )  # which cells are missing is found anew
    if not len(runs):
        raise InvalidArgument(f"{folder / RUNS} holds no run")
    unknown = runs[runs.problem.isna() & ~np.isfinite(runs.final_return)]
    if len(unknown):
        raise InvalidArgument(
            f"{folder / RUNS} must have a finite final_return for seed {unknown.seed.iloc[0]} of "
            f"{unknown.algo.iloc[0]} on {unknown.task.iloc[0]}, or a problem"
        )
    curves, iterations = (
        _read_csv(folder / CURVES, CURVE_COLUMNS),
        _read_csv(folder / ITERATIONS, ITERATION_COLUMNS),
    )
    return Tables(runs, curves, iterations, _read_configs(folder / CONFIGS))


def _read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InvalidArgument(
            f"{path} must be a CSV file of results ({' '.join(str(error).split())[:200]})"
        ) from None
    missing = [column for column in columns if column not in table]
    if missing:
        raise InvalidArgument(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
        )
    table = table[list(columns)]
    for column in table.columns.difference(list(_TEXT)):
        try:
            table[column] = pd.to_numeric(table[column])
        except (TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{path} must have numbers in the column {column} ({error})"
            ) from None
        if column in _WHOLE and not np.isfinite(table[column]).all():
            raise InvalidArgument(f"{path} must have whole numbers in the column {column}")
    return table


def _read_configs(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        configs = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"{path} must be YAML ({' '.join(str(error).split())[:200]})"
        ) from None
    needed = {"suite", "algo", "task", "config", "seeds"}
    if not isinstance(configs, list) or not all(
        isinstance(entry, dict) and needed <= entry.keys() for entry in configs
    ):
        raise InvalidArgument(f"{path} must be a list of entries with {', '.join(sorted(needed))}")
    return configs
