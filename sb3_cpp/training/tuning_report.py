"""What a study leaves behind: the best block as YAML to paste, a table of trials, and pictures."""

import csv
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState

from sb3_cpp.analysis.didactic_plots import dress, new_figure, save_figure
from sb3_cpp.training.search_space import hyperparameters
from sb3_cpp.training.suites import merge

_POINT, _BEST, _PRUNED = "#0072B2", "#D55E00", "#999999"
_MIN_FOR_IMPORTANCE = 8


def complete_trials(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def best_trials(study: optuna.Study, count: int) -> list[FrozenTrial]:
    """The best by return; of a two-objective study the best by return among those that no other beats in both."""
    trials = study.best_trials if len(study.directions) == 2 else complete_trials(study)
    return sorted(trials, key=lambda trial: -trial.user_attrs["return"])[:count]


def summary(study: optuna.Study) -> str:
    """How its trials ended; those nobody needed any more, because others ended at the same moment, do not count."""
    states = [
        trial.state
        for trial in study.get_trials(deepcopy=False)
        if "superfluous" not in trial.user_attrs
    ]
    counts = {
        state: states.count(state)
        for state in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    }
    return f"study {study.study_name}: " + ", ".join(
        f"{count} {state.name.lower()}" for state, count in counts.items()
    )


def write(
    study: optuna.Study,
    folder: Path,
    env: str,
    algo: str,
    best: list[FrozenTrial],
    fixed: Mapping[str, Any] | None = None,
) -> list[Path]:
    """All files of the report; those a study has too few trials for are left out.

    :param fixed: hyperparameters that all trials had and nobody searched
    """
    paths = [_write_trials(study, folder / "trials.csv")]
    if best:
        paths.append(_write_best(study, folder / "best.yml", env, algo, best, fixed or {}))
        paths += [
            _plot_history(study, folder / "history.png"),
            _plot_pareto(study, folder / "pareto.png"),
        ]
        importance = _plot_importance(study, folder / "importance.png")
        paths += [importance] if importance else []
    return paths


def _write_trials(study: optuna.Study, path: Path) -> Path:
    trials = study.get_trials(deepcopy=False)
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["number", "state", "return", "oscillation", *names])
        for trial in trials:
            measures = [trial.user_attrs.get(name, "") for name in ("return", "oscillation")]
            writer.writerow(
                [
                    trial.number,
                    trial.state.name,
                    *measures,
                    *(trial.params.get(name, "") for name in names),
                ]
            )
    return path


def _write_best(
    study: optuna.Study,
    path: Path,
    env: str,
    algo: str,
    best: list[FrozenTrial],
    fixed: Mapping[str, Any],
) -> Path:
    """The block of the trial that did best with fresh seeds, ready for a suite, with its figures as a comment."""
    fresh: dict[str, list[float]] = study.user_attrs.get("fresh", {})
    winner = max(
        best, key=lambda trial: np.mean(fresh.get(str(trial.number), [trial.user_attrs["return"]]))
    )
    values = fresh.get(str(winner.number), [])
    again = (
        f"; {len(values)} fresh seeds: return {np.mean(values):.1f} ± {np.std(values):.1f}"
        if values
        else ""
    )
    block = {"envs": {env: {"algos": {algo: merge(fixed, hyperparameters(winner.params))}}}}
    comment = (
        f"# study {study.study_name}, trial {winner.number} of {len(study.get_trials(deepcopy=False))}, found with return "
        f"{winner.user_attrs['return']:.1f}, oscillation {winner.user_attrs['oscillation']:.1f}{again}\n"
    )
    path.write_text(comment + yaml.safe_dump(_plain(block), sort_keys=False), encoding="utf-8")
    return path


def _plain(value: Any) -> Any:
    """Numbers as YAML reads them back: 6 significant digits, always with a point in an exponent."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Figure, Axes]:
    figure, (ax,) = new_figure(columns=1, width=5.2, height=3.4)
    dress(ax, title, xlabel, ylabel)
    return figure, ax


def _plot_history(study: optuna.Study, path: Path) -> Path:
    figure, ax = _axes(f"{study.study_name}: history", "trial", "return")
    done = complete_trials(study)
    values = np.array([trial.user_attrs["return"] for trial in done])
    numbers = [trial.number for trial in done]
    ax.scatter(numbers, values, s=14, color=_POINT, label="complete")
    ax.step(
        numbers,
        np.maximum.accumulate(values),
        where="post",
        color=_BEST,
        linewidth=1.4,
        label="best so far",
    )
    pruned = [
        t
        for t in study.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
        if t.intermediate_values
    ]
    if pruned:
        last = [t.intermediate_values[max(t.intermediate_values)] for t in pruned]
        ax.scatter(
            [t.number for t in pruned],
            last,
            s=14,
            color=_PRUNED,
            marker="x",
            label="pruned, at that moment",
        )
    return save_figure(figure, path, legend_from=ax)


def _plot_pareto(study: optuna.Study, path: Path) -> Path:
    figure, ax = _axes(
        f"{study.study_name}: return against oscillation", "oscillation (less is better)", "return"
    )
    points = np.array(
        [(t.user_attrs["oscillation"], t.user_attrs["return"]) for t in complete_trials(study)]
    )
    ax.scatter(points[:, 0], points[:, 1], s=14, color=_POINT, label="trials")
    front = pareto_front(points)
    ax.plot(
        front[:, 0],
        front[:, 1],
        color=_BEST,
        marker="o",
        markersize=4,
        linewidth=1.4,
        label="no trial is better in both",
    )
    return save_figure(figure, path, legend_from=ax)


def pareto_front(points: np.ndarray) -> np.ndarray:
    """Of (oscillation, return) pairs those that no other beats in both, by growing oscillation."""
    front: list[np.ndarray] = []
    for point in points[np.lexsort((-points[:, 1], points[:, 0]))]:
        if not front or point[1] > front[-1][1]:
            front.append(point)
    return np.array(front)


def _plot_importance(study: optuna.Study, path: Path) -> Path | None:
    """Share of the variance of the return each hyperparameter explains among the better trials (PED-ANOVA)."""
    if len(complete_trials(study)) < _MIN_FOR_IMPORTANCE:
        return None
    with (
        warnings.catch_warnings()
    ):  # it warns that it explains low values of the target, which is why the sign is turned
        warnings.simplefilter("ignore", UserWarning)
        importances = get_param_importances(
            study,
            evaluator=PedAnovaImportanceEvaluator(),
            target=lambda trial: -trial.user_attrs["return"],
        )
    figure, ax = _axes(
        f"{study.study_name}: importance for the return", "importance (PED-ANOVA)", ""
    )
    names = list(importances)[::-1]
    ax.barh(names, [importances[name] for name in names], color=_POINT)
    ax.grid(axis="y", visible=False)
    return save_figure(figure, path)
