"""Which runs may be compared: every run that may not is named with its reason, and so is every run that is not there."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

CELL = ["suite", "task", "algo", "seed"]
_NORMALISED = {
    "final_return": "normalised_return",
    "auc": "normalised_auc",
    "oscillation_l2": "normalised_oscillation_l2",
    "oscillation_inf": "normalised_oscillation_inf",
    "oscillation_noise": "normalised_oscillation_noise",
    "training_oscillation_l2": "normalised_training_oscillation_l2",
    "training_oscillation_inf": "normalised_training_oscillation_inf",
}


def assess(runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Add ``excluded``, the rows of missing runs, the range of each task and the normalised measures.

    Compared are finished runs with evaluations that are as long, and were evaluated as often, as most of their task (the
    longest of equally many). A run is missing if its algorithm has runs in the suite and its seed was run on the task.
    """
    runs = runs.assign(problem=runs["problem"].astype(object).fillna("").astype(str))
    runs["excluded"] = runs["problem"]
    for _, group in runs[runs.excluded == ""].groupby(["suite", "task"], sort=False):
        lengths = group[["n_timesteps", "evaluations"]].value_counts()
        usual = max(lengths.index, key=lambda length: (lengths[length], *length))
        for index, row in group.iterrows():
            if (row.n_timesteps, row.evaluations) != usual:
                runs.loc[index, "excluded"] = (
                    f"unequal length: {row.n_timesteps:,} steps and {row.evaluations} evaluations, "
                    f"most have {usual[0]:,} and {usual[1]}"
                )
    return _normalise(pd.concat([runs, missing_runs(runs)], ignore_index=True), curves)


def missing_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell of the grid (algorithms of the suite, by seeds of the task) that has no run."""
    rows = []
    for suite, group in runs.groupby("suite", sort=False):
        for task, here in group.groupby("task", sort=False):
            for algo in dict.fromkeys(group.algo):
                for seed in sorted(set(here.seed) - set(here[here.algo == algo].seed)):
                    rows.append({"suite": suite, "task": task, "algo": algo, "seed": seed})
    table = pd.DataFrame(rows, columns=CELL).astype({"seed": runs.seed.dtype})
    counts = dict.fromkeys(("n_timesteps", "timesteps", "evaluations", "episodes"), 0)
    return table.assign(state="missing", problem="missing", excluded="missing", **counts)


def _normalise(runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Measures in units of the range of the evaluations of all compared runs of the task; NaN if it has no width."""
    used = runs.loc[runs.excluded == "", CELL]
    evaluations = curves[curves.series == "evaluation"].merge(used, on=CELL)
    ranges = evaluations.groupby(["suite", "task"], as_index=False)["return"].agg(
        return_low="min", return_high="max"
    )
    runs = runs.merge(ranges, on=["suite", "task"], how="left")
    width = (runs.return_high - runs.return_low).replace(0.0, np.nan)
    for measure, name in _NORMALISED.items():
        low = runs.return_low if measure in ("final_return", "auc") else 0.0
        runs[name] = (runs[measure] - low) / width
    return runs


def describe_excluded(runs: pd.DataFrame) -> list[str]:
    """One line per reason, algorithm and task, naming its seeds."""
    lines = []
    for (suite, task, algo, reason), group in runs[runs.excluded != ""].groupby(
        ["suite", "task", "algo", "excluded"], sort=False
    ):
        lines.append(f"{suite}: {algo} on {task}, {_seeds(sorted(group.seed))}: {reason}")
    return lines


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(str(seed) for seed in seeds)}"
