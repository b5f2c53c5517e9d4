"""The tidy results of many runs: from their folders, or from the CSV files made of them.

``runs.csv`` has one row per run, ``curves.csv`` the learning curves with the standard error of each
evaluation, ``iterations.csv`` zeta, m_K, M_K and C_K, and ``configs.yml`` settings, commands,
versions and machines. All figures and reports can be made again from these four files.

R_K, whose falls are measured, is the mean return of the deterministic evaluation episodes at each
evaluation. The range of a task is from the lowest to the highest such mean of all compared runs on
it: a normalised return is 0 at the lowest and 1 at the highest, and a normalised oscillation of 1
is a fall through the whole range. Columns of runs.csv:

- suite, task, algo, seed: which run
- state: finished, failed, unfinished, unreadable or missing
- problem, excluded: what is wrong with the run; why it is not compared (empty if it is)
- n_timesteps, timesteps, seconds: steps asked for, steps made, time of training
- evaluations, episodes: number of evaluations and of training episodes
- final_return: mean of the last 3 evaluations
- final_training_return: mean of the last 100 training episodes
- best_return: the best evaluation
- auc: mean height of the evaluation curve (its area over its span of steps)
- oscillation_l2, oscillation_inf: falls of R_K, root of the sum of squares and the largest
- oscillation_noise: expected oscillation_l2 of a policy of constant return, given the spread of
  the evaluation episodes
- oscillation_l2_denoised: estimate of oscillation_l2 of the true returns, without that noise; a
  root with the sign of its square, which may be negative: average the squares, x |x|, over runs.
  Empty, as is oscillation_noise, where standard errors are unknown (one episode per evaluation)
- drawdown: the largest fall below the best evaluation so far, in however many evaluations
- training_oscillation_l2, training_oscillation_inf: the same of the training curve (means of 100
  episodes at 50 even steps)
- return_low, return_high: range of the task
- normalised_return, normalised_auc, normalised_oscillation_l2, ...: in units of that range
- human_normalised: the final return on Atari, 0 for the random agent and 1 for the human tester
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from sb3_cpp.analysis.runs import (
    CELL,
    CURVE_COLUMNS,
    ITERATION_COLUMNS,
    MEASURES,
    RUN_COLUMNS,
    RunRecord,
    Tables,
    join_tables,
    read_run,
    tabulate,
)
from sb3_cpp.analysis.sb3_folders import ZOO_LAYOUT, check_layout, is_sb3_folder, read_sb3_run
from sb3_cpp.checks import InvalidArgument, check_whole_number
from sb3_cpp.files import write_text
from sb3_cpp.metrics import largest_drawdown
from sb3_cpp.run_folder import CONFIG, EVALUATIONS, WITHOUT_EFFECT, settings_differences

RUNS, CURVES, ITERATIONS, CONFIGS = "runs.csv", "curves.csv", "iterations.csv", "configs.yml"
FILES = (RUNS, CURVES, ITERATIONS, CONFIGS)
_TEXT = ("suite", "task", "algo", "state", "problem", "series")
_WHOLE = ("seed", "n_timesteps", "timesteps", "evaluations", "episodes")
_SINCE_0_2 = ("oscillation_l2_denoised", "drawdown")  # columns that older files do not have
_NORMALISED = {
    "final_return": "normalised_return",
    "auc": "normalised_auc",
    "oscillation_l2": "normalised_oscillation_l2",
    "oscillation_inf": "normalised_oscillation_inf",
    "oscillation_noise": "normalised_oscillation_noise",
    "oscillation_l2_denoised": "normalised_oscillation_l2_denoised",
    "drawdown": "normalised_drawdown",
    "training_oscillation_l2": "normalised_training_oscillation_l2",
    "training_oscillation_inf": "normalised_training_oscillation_inf",
}


@dataclass(frozen=True)
class Results:
    """Runs of one or more suites; ``ignored`` are run folders of no suite (tuning trials)."""

    runs: pd.DataFrame
    curves: pd.DataFrame
    iterations: pd.DataFrame
    configs: list[dict[str, Any]]
    ignored: tuple[str, ...] = ()

    def suites(self) -> list[str]:
        return list(dict.fromkeys(self.runs.suite))

    def suite(self, name: str) -> "Results":
        """The results of one suite."""
        runs, curves, iterations = (
            table[table.suite == name].reset_index(drop=True)
            for table in (self.runs, self.curves, self.iterations)
        )
        configs = [entry for entry in self.configs if entry["suite"] == name]
        return Results(runs, curves, iterations, configs)

    def used(self) -> pd.DataFrame:
        """The runs that are compared."""
        return self.runs[self.runs.excluded == ""]

    def excluded(self) -> pd.DataFrame:
        """The runs that are not compared, each with its reason."""
        return self.runs[self.runs.excluded != ""]


@dataclass(frozen=True)
class Choice:
    """Which runs are compared, and how those of SB3 and rl_zoo3 are read.

    :param algos: compare these algorithms; without names, all
    :param envs: compare on these environments; without names, all
    :param suite: compare all runs as one suite of this name
    :param layout: how paths of SB3's runs are read, by default ``{algo}/{env}_{seed}``
    :param timesteps: length of SB3's runs that did not record it
    """

    algos: Sequence[str] = ()
    envs: Sequence[str] = ()
    suite: str | None = None
    layout: str | None = None
    timesteps: int | None = None

    def __post_init__(self) -> None:
        if self.layout is not None:
            check_layout(self.layout)
        if self.timesteps is not None:
            check_whole_number("--timesteps", self.timesteps, 1)
        if self.suite is not None and not self.suite.strip():
            raise InvalidArgument(f"--suite must be a name, got {self.suite!r}")

    def select(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of chosen runs."""
        for column, names in (("algo", self.algos), ("task", self.envs)):
            if names:
                table = table[table[column].isin(names)]
        return table.reset_index(drop=True)

    def includes(self, algo: str, task: str) -> bool:
        return (not self.algos or algo in self.algos) and (not self.envs or task in self.envs)

    def check(self, runs: pd.DataFrame) -> None:
        for flag, column, names in (("--algos", "algo", self.algos), ("--envs", "task", self.envs)):
            present = list(dict.fromkeys(runs[column]))
            for name in names:
                if name not in present:
                    raise InvalidArgument(
                        f"{flag} must be among those of the runs, {', '.join(present)}, "
                        f"got {name!r}"
                    )
        if self.select(runs).empty:
            raise InvalidArgument(
                f"no run is of --algos {' '.join(self.algos)} and of --envs {' '.join(self.envs)}"
            )


def load_results(*paths: str | Path, choice: Choice | None = None) -> Results:
    """Runs from folders of runs, of CSV files, or both, in the order of suite, task, algorithm and
    seed: intervals do not depend on the order of the paths.

    :param paths: folders that contain ``<suite>/<algo>/<env>/seed_<n>/`` or folders of SB3 or
        rl_zoo3 at any depth, or ``runs.csv`` and its companions. A run that is in several of them,
        as its folder and in the CSV files made of it, is counted once; of a run that is finished
        in one of them only, that one counts
    :param choice: which of them to compare; the range of a task is that of the chosen ones
    """
    if not paths:
        raise InvalidArgument("no folder of runs was given")
    choice = choice or Choice()
    loaded = _without_copies([_load(Path(path), choice) for path in paths])
    runs = pd.concat([part.tables.runs for part in loaded], ignore_index=True)
    choice.check(runs)
    runs = choice.select(runs)
    curves, iterations = (
        choice.select(join_tables([getattr(part.tables, name) for part in loaded], columns))
        for name, columns in (("curves", CURVE_COLUMNS), ("iterations", ITERATION_COLUMNS))
    )
    configs = [
        entry
        for part in loaded
        for entry in part.tables.configs
        if choice.includes(entry["algo"], entry["task"])
    ]
    ignored = tuple(name for part in loaded for name in part.ignored)
    runs, curves, iterations = (
        table.sort_values(CELL, kind="stable", ignore_index=True)
        for table in (runs, curves, iterations)
    )
    configs.sort(key=lambda entry: (entry["suite"], entry["task"], entry["algo"]))
    return Results(assess(runs, curves), curves, iterations, configs, ignored)


class _Loaded(NamedTuple):
    tables: Tables
    origins: list[str]  # the folder of each run
    ignored: list[str]


def _without_copies(parts: list[_Loaded]) -> list[_Loaded]:
    """Each run from one of the parts: a run counted twice would make every interval too narrow.
    Different finished runs of one cell, or two in one folder, are refused."""
    chosen: dict[tuple[Any, ...], tuple[Any, str, int]] = {}
    for place, part in enumerate(parts):
        for (_, run), origin in zip(part.tables.runs.iterrows(), part.origins):
            known, first, earlier = chosen.setdefault(tuple(run[CELL]), (run, origin, place))
            if known is run:
                continue
            both = known.state == run.state == "finished"
            if earlier == place or (both and not _same_run(known, run)):
                raise InvalidArgument(
                    f"two runs are {run.algo} on {run.task}, seed {run.seed}, of suite "
                    f"{run.suite}, in {first} and in {origin}; name the folder of one grid"
                )
            if _worth(run) > _worth(known):
                chosen[tuple(run[CELL])] = (run, origin, place)
    return [
        part._replace(tables=_only(part.tables, [chosen[tuple(cell)][2] == place for cell in rows]))
        for place, part in enumerate(parts)
        for rows in [part.tables.runs[CELL].itertuples(index=False, name=None)]
    ]


def _worth(run: Any) -> tuple[bool, int, bool]:
    """Which of two copies counts: a finished one, the one that is further, the one that knows the
    standard errors of its evaluations."""
    return run.state == "finished", run.timesteps, bool(np.isfinite(run.oscillation_l2_denoised))


def _same_run(one: Any, other: Any) -> bool:
    """Whether two finished runs are copies, as far as both know their measures."""
    columns = ["n_timesteps", "timesteps", "evaluations", "episodes", *MEASURES]
    first, second = (run[columns].to_numpy(np.float64) for run in (one, other))
    unknown = np.isnan(first) | np.isnan(second)
    return bool((np.isclose(first, second, rtol=1e-9, atol=0.0) | unknown).all())


def _only(tables: Tables, chosen: Sequence[bool]) -> Tables:
    """The tables of some of their runs."""
    runs = tables.runs[list(chosen)].reset_index(drop=True)
    cells = set(runs[CELL].itertuples(index=False, name=None))
    curves, iterations = (
        table[[cell in cells for cell in table[CELL].itertuples(index=False, name=None)]]
        for table in (tables.curves, tables.iterations)
    )
    configs = []
    for entry in tables.configs:
        place = (entry["suite"], entry["task"], entry["algo"])
        seeds = [seed for seed in entry["seeds"] if (*place, seed) in cells]
        configs += [{**entry, "seeds": seeds}] if seeds else []
    return Tables(runs, curves, iterations, configs)


def _load(path: Path, choice: Choice) -> _Loaded:
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
        if choice.suite is not None:
            tables = _as_suite(tables, choice.suite)
        return _Loaded(tables, [str(path)] * len(tables.runs), [])
    records, ignored = [], []
    folders = list(_run_folders(path))
    while folders:
        folder = folders.pop(0)
        if (record := _read(folder, choice)) is not None:
            records.append((record, str(folder)))
            continue
        ignored.append(str(folder))
        # A monitor file that lies above the runs must not hide them
        above = (folder.resolve(), *folder.resolve().parents)
        folders += _folders_below(folder, above)
    if not records and ignored:
        raise InvalidArgument(
            f"the algorithm and seed of {ignored[0]} cannot be told from its path; describe its "
            f"last parts, e.g. --layout {choice.layout or ZOO_LAYOUT!r}"
        )
    if not records:
        raise InvalidArgument(
            f"{path} holds no runs (<suite>/<algo>/<env>/seed_<n>/ or {EVALUATIONS}) and no {RUNS}"
        )
    _number_unknown_seeds([record for record, _ in records])
    records.sort(key=lambda pair: (pair[0].suite, pair[0].task, pair[0].algo, pair[0].seed))
    tables = tabulate([record for record, _ in records])
    return _Loaded(tables, [folder for _, folder in records], ignored)


def _read(folder: Path, choice: Choice) -> RunRecord | None:
    """A run of ours, or, without a config.yml of ours, one of SB3."""
    # With a layout even folders called seed_<n> may be SB3's
    ours = _is_seed_folder(folder) and (choice.layout is None or (folder / CONFIG).exists())
    record = (
        read_run(folder)
        if ours
        else read_sb3_run(folder, choice.layout or ZOO_LAYOUT, choice.timesteps)
    )
    if record is not None and choice.suite is not None:
        record.suite = choice.suite
    return record


def _number_unknown_seeds(records: Sequence[RunRecord]) -> None:
    """Runs without a seed are numbered from 0, in the order of their folders."""
    counts: dict[tuple[str, str, str], int] = {}
    for record in records:
        if record.seed < 0:
            cell = (record.suite, record.task, record.algo)
            record.seed = counts.setdefault(cell, 0)
            counts[cell] += 1


def _as_suite(tables: Tables, suite: str) -> Tables:
    runs, curves, iterations = (table.assign(suite=suite) for table in tables[:3])
    return Tables(runs, curves, iterations, [{**entry, "suite": suite} for entry in tables.configs])


def _run_folders(path: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Folders called seed_<n>, or written by SB3, not searched further.

    Links are followed, but not in circles.
    """
    if _is_seed_folder(path) or is_sb3_folder(path):
        yield path
        return
    yield from _folders_below(path, (*above, path.resolve()))


def _folders_below(path: Path, above: tuple[Path, ...]) -> Iterator[Path]:
    for below in sorted(entry for entry in path.iterdir() if entry.is_dir()):
        if below.resolve() not in above:
            yield from _run_folders(below, above)


def _is_seed_folder(path: Path) -> bool:
    name = Path(os.path.abspath(path)).name
    return name.startswith("seed_") and name.removeprefix("seed_").isdigit()


def assess(runs: pd.DataFrame, curves: pd.DataFrame) -> pd.DataFrame:
    """Add ``excluded``, the rows of missing runs, the range of each task and normalised measures.

    Compared are finished runs with evaluations that are as long, and were evaluated as often, as
    most of their task (the longest of equally many). A run is missing if its algorithm has runs in
    the suite and its seed was run on the task.
    """
    runs = runs.assign(problem=runs["problem"].astype(object).fillna("").astype(str))
    runs["excluded"] = runs["problem"]
    # The area and the oscillation grow with length and number of evaluations
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
    """A row per cell of the grid (algorithms of the suite, seeds of the task) without a run."""
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
    """Measures in units of the task's range; NaN if it has no width."""
    used = runs.loc[runs.excluded == "", CELL]
    evaluations = curves[curves.series == "evaluation"].merge(used, on=CELL)
    ranges = evaluations.groupby(["suite", "task"], as_index=False)["return"].agg(
        return_low="min", return_high="max"
    )
    runs = runs.merge(ranges, on=["suite", "task"], how="left")
    # Where all evaluations are equal nothing can be normalised: NaN instead of a division by 0
    width = (runs.return_high - runs.return_low).replace(0.0, np.nan)
    for measure, name in _NORMALISED.items():
        # Returns are shifted and scaled, falls are differences of returns: scaled only
        low = runs.return_low if measure in ("final_return", "auc") else 0.0
        runs[name] = (runs[measure] - low) / width
    return runs


def unequal_settings(configs: Sequence[dict[str, Any]]) -> list[str]:
    """One line per algorithm and task whose seeds were trained with different settings."""
    lines: list[str] = []
    first: dict[tuple[str, ...], dict[str, Any]] = {}
    for entry in configs:
        known = first.setdefault((entry["suite"], entry["algo"], entry["task"]), entry)
        if differences := settings_differences(known, entry, WITHOUT_EFFECT):
            there, here = (", ".join(map(str, part["seeds"])) for part in (known, entry))
            lines.append(
                f"{entry['algo']} on {entry['task']}, seeds {there} and {here} have different "
                f"settings: {'; '.join(differences[:3])}"
            )
    return lines


def describe_excluded(runs: pd.DataFrame) -> list[str]:
    """One line per reason, algorithm and task, naming its seeds."""
    lines = []
    for (suite, task, algo, reason), group in runs[runs.excluded != ""].groupby(
        ["suite", "task", "algo", "excluded"], sort=False
    ):
        seeds = ", ".join(str(seed) for seed in sorted(group.seed))
        plural = "s" if len(group) > 1 else ""
        lines.append(f"{suite}: {algo} on {task}, seed{plural} {seeds}: {reason}")
    return lines


def save_results(results: Results, folder: str | Path, force: bool = False) -> list[Path]:
    """Write the four files; existing ones are replaced only with ``force``."""
    folder = Path(folder)
    present = [name for name in FILES if (folder / name).exists()]
    if present and not force:
        raise InvalidArgument(
            f"{folder} already holds {', '.join(present)}; choose another folder, or use --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (
        (RUNS, results.runs),
        (CURVES, results.curves),
        (ITERATIONS, results.iterations),
    ):
        write_text(folder / name, table.to_csv(index=False))
    write_text(folder / CONFIGS, yaml.safe_dump(results.configs, sort_keys=False, width=127))
    return [folder / name for name in FILES]


def read_tables(folder: Path) -> Tables:
    """The tables that :func:`save_results` wrote; a damaged one is refused in one line.

    Files of version 0.1.0 have no standard errors; their drawdowns are computed from the curves.
    """
    runs = _read_csv(folder / RUNS, RUN_COLUMNS, _SINCE_0_2)
    # Missing runs are determined anew: another choice of runs may need other ones
    runs = runs[runs.state != "missing"].astype(dict.fromkeys(_WHOLE, np.int64))
    if not len(runs):
        raise InvalidArgument(f"{folder / RUNS} holds no run")
    unknown = runs[runs.problem.isna() & ~np.isfinite(runs.final_return)]
    if len(unknown):
        raise InvalidArgument(
            f"{folder / RUNS} must have a finite final_return for seed {unknown.seed.iloc[0]} of "
            f"{unknown.algo.iloc[0]} on {unknown.task.iloc[0]}, or a problem"
        )
    curves = _read_csv(folder / CURVES, CURVE_COLUMNS, ("standard_error",))
    if runs.drawdown.isna().all():
        runs = runs.drop(columns="drawdown").merge(_drawdowns(curves), on=CELL, how="left")
        runs = runs[RUN_COLUMNS]
    iterations = _read_csv(folder / ITERATIONS, ITERATION_COLUMNS)
    return Tables(runs, curves, iterations, _read_configs(folder / CONFIGS))


def _drawdowns(curves: pd.DataFrame) -> pd.DataFrame:
    evaluations = curves[curves.series == "evaluation"]
    drawdowns = evaluations.groupby(CELL, sort=False)["return"].agg(largest_drawdown)
    return drawdowns.rename("drawdown").reset_index()


def _read_csv(path: Path, columns: Sequence[str], optional: Sequence[str] = ()) -> pd.DataFrame:
    # Names are text, also one like 0.001 or None
    kinds = dict.fromkeys(_TEXT, str)
    unknown = {column: [""] for column in {*columns, *optional} - {"suite", "task", "algo"}}
    try:
        table = pd.read_csv(path, dtype=kinds, keep_default_na=False, na_values=unknown)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(f"{path} must be a CSV file of results ({reason})") from None
    table = table.assign(**{column: np.nan for column in optional if column not in table})
    missing = [column for column in columns if column not in table]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        raise InvalidArgument(f"{path} lacks the column{plural} {', '.join(missing)}")
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
        reason = " ".join(str(error).split())[:200]
        raise InvalidArgument(f"{path} must be YAML ({reason})") from None
    needed = {"suite", "algo", "task", "config", "seeds"}
    if not isinstance(configs, list) or not all(
        isinstance(entry, dict) and needed <= entry.keys() for entry in configs
    ):
        raise InvalidArgument(f"{path} must be a list of entries with {', '.join(sorted(needed))}")
    return [{**entry, **{key: str(entry[key]) for key in CELL[:3]}} for entry in configs]
