"""Many runs as one tidy table: from their folders, or from the CSV files that were made of them.

``runs.csv`` has one row per run, ``curves.csv`` the learning curves, ``iterations.csv`` zeta, m_K, M_K and C_K, and
``configs.yml`` the settings, commands, versions and machines. All figures and reports can be made again from these four files.

The series R_K whose falls are measured is that of the evaluations: the mean return of the deterministic evaluation episodes,
at the steps at which the run was evaluated. The range of a task reaches from the lowest to the highest such mean of all
compared runs of the task; a normalised return is 0 at the lowest and 1 at the highest, and a normalised oscillation of 1 is
a fall through the whole range. Columns of runs.csv:

- suite, task, algo, seed: which run
- state: finished, failed, unfinished, unreadable or missing
- problem, excluded: what is wrong with the run itself; why it is not compared with the others (empty if it is)
- n_timesteps, timesteps, seconds: steps asked for, steps made, time of training
- evaluations, episodes: how many evaluations, how many training episodes
- final_return: mean of the last 3 evaluations
- final_training_return: mean of the last 100 training episodes
- best_return: the best evaluation
- auc: mean height of the evaluation curve (its area over its span of steps), the speed of learning
- oscillation_l2, oscillation_inf: falls of R_K, the root of the sum of their squares and the largest
- oscillation_noise: the oscillation_l2 to be expected of a policy of constant return, from the spread of the episodes
- training_oscillation_l2, training_oscillation_inf: the same of the training curve (100-episode means at 50 even steps)
- return_low, return_high: range of the task
- normalised_return, normalised_auc, normalised_oscillation_l2, ...: in units of that range
- human_normalised: the final return on Atari, 0 for the random agent and 1 for the human tester
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import yaml

from sb3_cpp.analysis.cell_checks import CELL, assess
from sb3_cpp.analysis.run_measures import Tables, tabulate
from sb3_cpp.analysis.run_records import read_run
from sb3_cpp.analysis.table_files import CONFIGS, CURVES, ITERATIONS, RUNS, read_tables
from sb3_cpp.checks import InvalidArgument

FILES = (RUNS, CURVES, ITERATIONS, CONFIGS)


@dataclass(frozen=True)
class Results:
    """Runs of one or more suites; ``ignored`` are folders that look like runs and belong to no suite (a search's trials)."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    iterations: pd.DataFrame
    configs: list[dict[str, Any]]
    ignored: tuple[str, ...] = ()

    def suites(self) -> list[str]:
        return list(dict.fromkeys(self.runs.suite))

    def suite(self, name: str) -> "Results":
        """The part of one suite."""
        runs, curves, iterations = (
            frame[frame.suite == name].reset_index(drop=True)
            for frame in (self.runs, self.curves, self.iterations)
        )
        return Results(
            runs, curves, iterations, [entry for entry in self.configs if entry["suite"] == name]
        )

    def used(self) -> pd.DataFrame:
        """The runs that are compared."""
        return self.runs[self.runs.excluded == ""]

    def excluded(self) -> pd.DataFrame:
        """The runs that are not, each with its reason."""
        return self.runs[self.runs.excluded != ""]


@dataclass(frozen=True)
class Choice:
    """Which runs are compared; without names, all."""

    algos: Sequence[str] = ()
    envs: Sequence[str] = ()

    def of(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of chosen runs."""
        for column, names in (("algo", self.algos), ("task", self.envs)):
            if names:
                table = table[table[column].isin(names)]
        return table

    def takes(self, algo: str, task: str) -> bool:
        return (not self.algos or algo in self.algos) and (not self.envs or task in self.envs)

    def check(self, runs: pd.DataFrame) -> None:
        for flag, column, names in (("--algos", "algo", self.algos), ("--envs", "task", self.envs)):
            there = list(dict.fromkeys(runs[column]))
            for name in names:
                if name not in there:
                    raise InvalidArgument(
                        f"{flag} must be among those of the runs, {', '.join(there)}, got {name!r}"
                    )


def load_results(*paths: str | Path, choice: Choice | None = None) -> Results:
    """Runs from folders of runs, of CSV files, or both.

    :param paths: folders that hold ``<suite>/<algo>/<env>/seed_<n>/`` somewhere below, or ``runs.csv`` and its companions
    :param choice: which of them to compare; the range of a task is that of the chosen ones
    """
    if not paths:
        raise InvalidArgument("no folder of runs was given")
    choice = choice or Choice()
    loaded = [_load(Path(path)) for path in paths]
    tables = [part.tables for part in loaded]
    runs = pd.concat(
        [part.tables.runs.assign(origin=part.origins) for part in loaded], ignore_index=True
    )
    choice.check(runs)
    runs = choice.of(runs).reset_index(drop=True)
    if runs.empty and choice.algos and choice.envs:
        raise InvalidArgument(
            f"no run is of --algos {' '.join(choice.algos)} and of --envs {' '.join(choice.envs)}"
        )
    _refuse_twice(runs)
    curves = choice.of(pd.concat([part.curves for part in tables], ignore_index=True)).reset_index(
        drop=True
    )
    iterations = choice.of(
        pd.concat([part.iterations for part in tables], ignore_index=True)
    ).reset_index(drop=True)
    configs = [
        entry
        for part in tables
        for entry in part.configs
        if choice.takes(entry["algo"], entry["task"])
    ]
    ignored = tuple(name for part in loaded for name in part.ignored)
    return Results(
        assess(runs.drop(columns="origin"), curves), curves, iterations, configs, ignored
    )


def _refuse_twice(runs: pd.DataFrame) -> None:
    double = runs[runs.duplicated(CELL, keep=False)]
    if len(double):
        suite, task, algo, seed = double[CELL].iloc[0]
        first, second = double.loc[
            (double[CELL] == double[CELL].iloc[0]).all(axis=1), "origin"
        ].iloc[:2]
        raise InvalidArgument(
            f"a run was given twice: {algo} on {task}, seed {seed}, of suite {suite}, in {first} and in {second}; "
            "name the folder of one grid"
        )


class _Loaded(NamedTuple):
    tables: Tables
    origins: list[str]  # where each run was found
    ignored: list[str]


def _load(path: Path) -> _Loaded:
    if not path.is_dir():
        raise InvalidArgument(
            f"runs must be a folder of runs or of their CSV files, got {str(path)!r}"
        )
    if (path / RUNS).is_file():
        if (run := next(_run_folders(path), None)) is not None:
            raise InvalidArgument(
                f"{path} holds both {RUNS} and runs ({run}); move the CSV files elsewhere"
            )
        tables = read_tables(path)
        return _Loaded(tables, [str(path)] * len(tables.runs), [])
    records, ignored = [], []
    for folder in _run_folders(path):
        record = read_run(folder)
        if record is None:
            ignored.append(str(folder))
        else:
            records.append((record, str(folder)))
    if not records:
        raise InvalidArgument(
            f"{path} holds no runs (<suite>/<algo>/<env>/seed_<n>/) and no {RUNS}"
        )
    records.sort(key=lambda pair: (pair[0].suite, pair[0].task, pair[0].algo, pair[0].seed))
    return _Loaded(
        tabulate([record for record, _ in records]), [folder for _, folder in records], ignored
    )


def _run_folders(path: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Folders called seed_<n>, without looking inside them; links are followed."""
    name = Path(os.path.abspath(path)).name
    if name.startswith("seed_") and name.removeprefix("seed_").isdigit():
        yield path
        return
    above = (*above, path.resolve())
    for below in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        if below.resolve() not in above:  # a link that leads back
            yield from _run_folders(below, above)


def save_results(results: Results, folder: str | Path, force: bool = False) -> list[Path]:
    """Write the four files; files of that name that are already there only with ``force``."""
    folder = Path(folder)
    there = [name for name in FILES if (folder / name).exists()]
    if there and not force:
        raise InvalidArgument(
            f"{folder} already holds {', '.join(there)}; choose another folder, or use --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (
        (RUNS, results.runs),
        (CURVES, results.curves),
        (ITERATIONS, results.iterations),
    ):
        table.to_csv(folder / name, index=False)
    (folder / CONFIGS).write_text(
        yaml.safe_dump(results.configs, sort_keys=False, width=127), encoding="utf-8"
    )
    return [folder / name for name in FILES]
