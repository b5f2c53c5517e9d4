"""The results of a study: the best block as YAML, a table of trials, and figures."""

import csv
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from sb3_cpp.analysis.style import label_axes, new_row, save_figure
from sb3_cpp.analysis.tables import TABLES, Table, as_markdown
from sb3_cpp.files import write_text
from sb3_cpp.metrics import pareto_front
from sb3_cpp.training.study import hyperparameters
from sb3_cpp.training.suites import merge

_POINT, _BEST, _PRUNED = "#0072B2", "#D55E00", "#999999"
_MIN_FOR_IMPORTANCE = 8
FRESH_SEED = 10_000  # first seed of the re-evaluation; the search uses 0, 1, ...


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def best_trials(study: optuna.Study, count: int) -> list[FrozenTrial]:
    """The best by return; of a two-objective study, the best by return on its Pareto front."""
    trials = study.best_trials if len(study.directions) == 2 else complete_trials(study)
    return sorted(trials, key=lambda trial: -trial.user_attrs["return"])[:count]


def describe(returns: Sequence[float]) -> str:
    """Mean and standard deviation over fresh seeds; a failed one is -inf."""
    if failed := sum(not math.isfinite(value) for value in returns):
        return f"{failed} failed"
    return f"return {np.mean(returns):.1f} ± {np.std(returns):.1f}"


def fresh_return(study: optuna.Study, trial: FrozenTrial) -> float:
    """Mean return with fresh seeds, or of the search if there were none; -inf if one failed."""
    returns = study.user_attrs.get("fresh", {}).get(str(trial.number))
    mean = float(np.mean(returns or [trial.user_attrs["return"]]))
    return mean if math.isfinite(mean) else -math.inf


def summary(study: optuna.Study) -> str:
    """Numbers of complete, pruned and failed trials, without superfluous ones."""
    trials = study.get_trials(deepcopy=False)
    states = [trial.state for trial in trials if "superfluous" not in trial.user_attrs]
    counts = [
        f"{states.count(state)} {state.name.lower()}"
        for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    ]
    return f"study {study.study_name}: {', '.join(counts)}"


def write(
    study: optuna.Study,
    folder: Path,
    env: str,
    algo: str,
    best: list[FrozenTrial],
    fixed: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Write all files; figures that a study has too few trials for are left out.

    :param study: the study
    :param folder: where to write
    :param env: environment of the block
    :param algo: algorithm of the block
    :param best: candidates for the block
    :param fixed: hyperparameters of all trials that were not searched
    """
    paths = [_write_trials(study, folder / "trials.csv")]
    if best:
        fresh = fresh_returns(study)
        fresh.to_csv(folder / "fresh.csv", index=False)
        write_text(folder / TABLES, as_markdown(tables(pd.read_csv(paths[0]), fresh)))
        paths += [
            folder / "fresh.csv",
            folder / TABLES,
            _write_best(study, folder / "best.yml", env, algo, best, fixed or {}),
            _plot_history(study, folder / "history.png"),
            _plot_pareto(study, folder / "pareto.png"),
        ]
        if len(complete_trials(study)) >= _MIN_FOR_IMPORTANCE:
            paths.append(_plot_importance(study, folder / "importance.png"))
    return paths


def fresh_returns(study: optuna.Study) -> pd.DataFrame:
    """A row per run of the re-evaluation; a failed one has -inf."""
    rows = [
        {"trial": int(number), "seed": FRESH_SEED + i, "return": value}
        for number, returns in study.user_attrs.get("fresh", {}).items()
        for i, value in enumerate(returns)
    ]
    return pd.DataFrame(rows, columns=["trial", "seed", "return"])


def tables(trials: pd.DataFrame, fresh: pd.DataFrame) -> list[Table]:
    """How the trials ended, and the best of them: in the search and with fresh seeds.

    :param trials: trials.csv
    :param fresh: fresh.csv
    """
    counts = trials.state.str.lower().value_counts()
    complete = trials[trials.state == "COMPLETE"].set_index("number")
    spread = complete["return"].quantile([0.0, 0.25, 0.5, 0.75, 1.0])
    names = ("trials", "lowest return", "quartile", "median", "quartile", "highest")
    row = [", ".join(f"{count} {state}" for state, count in counts.items())]
    found = [Table("The search", names, [[*row, *(f"{value:.1f}" for value in spread)]])]
    chosen = list(dict.fromkeys(fresh.trial))
    if chosen:
        dimensions = list(complete.columns[3:])
        rows = []
        for number in chosen:
            returns = fresh.loc[fresh.trial == number, "return"]
            trial = complete.loc[number]
            values = [
                f"{trial[name]:.3g}" if isinstance(trial[name], float) else str(trial[name])
                for name in dimensions
            ]
            measures = [f"{trial['return']:.1f}", f"{trial['oscillation']:.1f}"]
            rows.append([str(number), *values, *measures, str(len(returns)), describe(returns)])
        columns = ("trial", *dimensions, "return", "oscillation", "fresh seeds", "with them")
        title = "The best trials, in the search and with seeds that it has not seen"
        found.append(Table(title, columns, rows, text=1 + len(dimensions)))
    return found


def _write_trials(study: optuna.Study, path: Path) -> Path:
    trials = study.get_trials(deepcopy=False)
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "state", "return", "oscillation", *names])
        for trial in trials:
            measures = [trial.user_attrs.get(name, "") for name in ("return", "oscillation")]
            params = [trial.params.get(name, "") for name in names]
            writer.writerow([trial.number, trial.state.name, *measures, *params])
    return path


def _write_best(
    study: optuna.Study,
    path: Path,
    env: str,
    algo: str,
    best: list[FrozenTrial],
    fixed: Mapping[str, Any],
) -> Path:
    """The block of the trial that did best with fresh seeds, with its results as a comment."""
    fresh: dict[str, list[float]] = study.user_attrs.get("fresh", {})
    winner = max(best, key=lambda trial: fresh_return(study, trial))
    comment = (
        f"# study {study.study_name}, trial {winner.number} of "
        f"{len(study.get_trials(deepcopy=False))}, found with return "
        f"{winner.user_attrs['return']:.1f}, oscillation {winner.user_attrs['oscillation']:.1f}"
    )
    if values := fresh.get(str(winner.number), []):
        comment += f"; {len(values)} fresh seeds: {describe(values)}"
    block = {"envs": {env: {"algos": {algo: merge(fixed, hyperparameters(winner.params))}}}}
    write_text(path, f"{comment}\n{yaml.safe_dump(_rounded(block), sort_keys=False)}")
    return path


def _rounded(value: Any) -> Any:
    """Floats with 6 significant digits."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure, (ax,) = new_row(columns=1, width=5.2, height=3.4)
    label_axes(ax, title, xlabel, ylabel)
    return figure, ax


def _plot_history(study: optuna.Study, path: Path) -> Path:
    figure, ax = _axes(f"{study.study_name}: history", "trial", "return")
    done = complete_trials(study)
    numbers = [trial.number for trial in done]
    values = np.array([trial.user_attrs["return"] for trial in done])
    best = np.maximum.accumulate(values)
    ax.scatter(numbers, values, s=14, color=_POINT, label="complete")
    ax.step(numbers, best, where="post", color=_BEST, linewidth=1.4, label="best so far")
    pruned = study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
    if last := {
        t.number: t.intermediate_values[max(t.intermediate_values)]
        for t in pruned
        if t.intermediate_values
    }:
        label = "pruned, at that moment"
        ax.scatter(list(last), list(last.values()), s=14, color=_PRUNED, marker="x", label=label)
    return save_figure(figure, path, legend_from=ax)


def _plot_pareto(study: optuna.Study, path: Path) -> Path:
    title = f"{study.study_name}: return against oscillation"
    figure, ax = _axes(title, "oscillation (less is better)", "return")
    points = {
        str(t.number): (t.user_attrs["return"], t.user_attrs["oscillation"])
        for t in complete_trials(study)
    }
    returns, oscillations = zip(*points.values())
    ax.scatter(oscillations, returns, s=14, color=_POINT, label="trials")
    front = sorted((points[name][1], points[name][0]) for name in pareto_front(points))
    label = "no trial is better in both"
    ax.plot(*zip(*front), color=_BEST, marker="o", markersize=4, linewidth=1.4, label=label)
    return save_figure(figure, path, legend_from=ax)


def _plot_importance(study: optuna.Study, path: Path) -> Path:
    """Share of the return's variance among the better trials that each hyperparameter explains
    (PED-ANOVA)."""
    with warnings.catch_warnings():
        # It warns that it explains low values of the target, hence the sign
        warnings.simplefilter("ignore", UserWarning)
        importances = get_param_importances(
            study,
            evaluator=PedAnovaImportanceEvaluator(),
            target=lambda trial: -trial.user_attrs["return"],
        )
    figure, ax = _axes(f"{study.study_name}: importance for the return", "importance", "")
    names = list(importances)[::-1]
    ax.barh(names, [importances[name] for name in names], color=_POINT)
    ax.grid(axis="y", visible=False)
    return save_figure(figure, path)
