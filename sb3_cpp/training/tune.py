"""`sb3-cpp tune`: search an algorithm's hyperparameters on one environment."""

import contextlib
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_seed
from sb3_cpp.metrics import oscillation
from sb3_cpp.run_folder import (
    CONFIG,
    MODEL,
    command_line,
    folder_name,
    read_evaluations,
    write_config,
)
from sb3_cpp.training.algorithms import get_algorithm, hyperparameter_defaults
from sb3_cpp.training.grid import check_buildable
from sb3_cpp.training.run import RunFailed, RunLocked, StopRun, locked, train_run
from sb3_cpp.training.suites import Suite, choose_suite, merge, note_unlisted, parse_overrides

try:
    import optuna
    from optuna.trial import FrozenTrial

    from sb3_cpp.training import tuning_report
    from sb3_cpp.training.study import (
        Dimension,
        hyperparameters,
        is_fixed,
        open_storage,
        open_study,
        run_trials,
        sample,
        search_space,
        storage_address,
    )
except ImportError as error:
    raise InvalidArgument(
        f"tuning needs a further package: pip install 'sb3_cpp[tune]' ({error})"
    ) from None

EVALUATIONS = 10  # per run


@dataclass(frozen=True)
class Score:
    """Mean return of the last quarter of a run's evaluations, and l2 oscillation of all."""

    value: float
    oscillation: float


def score(means: Sequence[float]) -> Score:
    last = max(len(means) // 4, 1)
    return Score(float(np.mean(means[-last:])), float(oscillation(means).l2))


@dataclass(frozen=True)
class Search:
    """One search: what a trial's values mean."""

    suite: Suite
    algo: str
    env: str
    n_timesteps: int
    seeds: tuple[int, ...]
    overrides: dict[str, Any]
    folder: Path

    def run(
        self,
        values: dict[str, Any],
        seed: int,
        folder: Path,
        on_evaluation: Callable[[list[float]], None] | None = None,
    ) -> Score:
        """Train one run with a trial's values."""
        fixed = {
            "n_timesteps": self.n_timesteps,
            "eval_freq": max(self.n_timesteps // EVALUATIONS, 1),
            "save_freq": max(self.n_timesteps // 4, 1),
            "keep_checkpoint": False,  # of each of hundreds of runs
        }
        overrides = merge(merge(self.overrides, values), fixed)
        config = self.suite.run_config(self.algo, self.env, seed, overrides)
        outcome = train_run(
            config, folder=folder, show="nothing", on_evaluation=on_evaluation, n_threads=1
        )
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        # From the folder: of a run that was finished before, nothing was evaluated now
        returns = read_evaluations(folder)["results"]
        # Only the score is needed
        (folder / MODEL).unlink(missing_ok=True)
        return score([float(np.mean(episodes)) for episodes in returns])

    def objective(self, trial: optuna.Trial, dimensions: list[Dimension], pareto: bool) -> Any:
        """Train a trial's runs, seed by seed; returns the return, or return and oscillation."""
        values = sample(dimensions, trial)
        # A trial that was interrupted, or whose worker died, is retried under another number and
        # resumes in its folder
        name = trial.user_attrs.get("folder", f"trial_{trial.number}")
        trial.set_user_attr("folder", name)
        scores: list[Score] = []

        def prune(means: list[float]) -> None:
            value = float(np.mean([*(s.value for s in scores), means[-1]]))
            trial.report(value, len(scores) * (EVALUATIONS + 1) + len(means))
            if trial.should_prune():
                raise StopRun

        try:
            for seed in self.seeds:
                folder = self.folder / name / f"seed_{seed}"
                scores.append(self.run(values, seed, folder, None if pareto else prune))
        except StopRun:
            raise optuna.TrialPruned("below the median of the others") from None
        except RunFailed as error:  # diverged: the search continues without these values
            trial.set_user_attr("failure", str(error))
            raise optuna.TrialPruned(str(error)) from None
        except KeyboardInterrupt:
            trial.study.enqueue_trial(trial.params, user_attrs={"folder": name})
            raise
        value = float(np.mean([s.value for s in scores]))
        falls = float(np.mean([s.oscillation for s in scores]))
        trial.set_user_attr("return", value)
        trial.set_user_attr("oscillation", falls)
        return (value, falls) if pareto else value


def tune(
    algo: str,
    env: str,
    *,
    trials: int,
    n_timesteps: int,
    suite: str | None = None,
    study: str | None = None,
    storage: str | None = None,
    seeds_per_trial: int = 1,
    objective: str = "return",
    pruner: str = "median",
    seed: int = 0,
    top: int = 3,
    top_seeds: int = 3,
    heartbeat: int = 60,
    params: Sequence[str] = (),
    gym_packages: Sequence[str] = (),
    root: str = "runs",
) -> int:
    """Work on a study until it has its trials, then re-evaluate the best; returns the exit code.

    :param algo: algorithm
    :param env: environment
    :param trials: ended trials (complete or pruned) of the whole study
    :param n_timesteps: steps of a run
    :param suite: the suite with the settings and the search space; None for the environment's own
    :param study: name of the study
    :param storage: Optuna's: a database URL or a journal file; None for a file in its folder
    :param seeds_per_trial: runs per trial
    :param objective: "return", or "pareto" for return and oscillation
    :param pruner: "median" or "none"
    :param seed: seed of the sampler
    :param top: number of best trials that are trained again with new seeds
    :param top_seeds: their number of seeds
    :param heartbeat: seconds between the heartbeats of a database's worker
    :param params: ``key:value`` settings that are not searched
    :param gym_packages: packages that register environments
    :param root: folder of all runs
    """
    for name, number, low in (
        ("--trials", trials, 1),
        ("-n", n_timesteps, 1),
        ("--seeds-per-trial", seeds_per_trial, 1),
        ("--top", top, 0),
        ("--top-seeds", top_seeds, 1),
        ("--heartbeat", heartbeat, 1),
    ):
        check_number(name, number, low)
    check_seed("--seed", seed)
    check_choice("--objective", objective, ("return", "pareto"))
    check_choice("--pruner", pruner, ("median", "none"))
    overrides = parse_overrides(list(params), {"gym_packages": list(gym_packages) or None})
    chosen = choose_suite(env, suite, overrides)
    for key in ("n_timesteps", "eval_freq", "save_freq", "keep_checkpoint"):
        if key in overrides:
            raise InvalidArgument(f"-params must not have {key}, which the search itself decides")
    space = search_space(chosen, algo)
    dimensions = [dimension for dimension in space if not is_fixed(dimension.name, overrides)]
    if not dimensions:
        raise InvalidArgument(
            f"-params must leave something to search, got all of it: {', '.join(params)}"
        )
    # A mistake shows before the study is made
    config = chosen.run_config(algo, env, 0, merge(overrides, {"n_timesteps": n_timesteps}))
    check_buildable([config])
    defaults = hyperparameter_defaults(get_algorithm(config.algorithm))
    starts = {**defaults, **config.hyperparameters}.get("learning_starts", 0)
    if n_timesteps < 5 * starts:
        print(
            f"note: runs of {n_timesteps:,} steps that learn from step {starts:,} measure little "
            "but noise; raise -n or lower -params learning_starts:N",
            flush=True,
        )
    note_unlisted(chosen, env)
    name = study or f"{algo}_{folder_name(env)}"
    folder = Path(root) / "tune" / name
    search = Search(
        chosen, algo, env, n_timesteps, tuple(range(seeds_per_trial)), overrides, folder
    )
    settings = {
        "suite": chosen.name,
        "algo": algo,
        "env": env,
        "n_timesteps": n_timesteps,
        "seeds_per_trial": seeds_per_trial,
        "objective": objective,
        "overrides": overrides,
        "seed": seed,
        "space": {dimension.name: dimension.plain() for dimension in dimensions},
    }
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rule: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if pruner == "median":
        rule = optuna.pruners.MedianPruner(n_startup_trials=10, n_warmup_steps=EVALUATIONS // 3)
    opened = open_study(name, open_storage(storage, folder, heartbeat), seed, settings, rule)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CONFIG).is_file():  # of the worker that begins, with its command
        write_config(folder, settings)
    dashboard = shlex.quote(storage_address(storage, folder))
    print(
        f"study {name}: {trials} trials of {n_timesteps:,} steps, {seeds_per_trial} seed(s) each, "
        f"into {folder}\nwatch it: optuna-dashboard {dashboard}",
        flush=True,
    )

    def run_trial(trial: optuna.Trial) -> Any:
        result = search.objective(trial, dimensions, objective == "pareto")
        print(_describe(trial), flush=True)
        return result

    try:
        run_trials(opened, run_trial, trials, print)
        _reevaluate_best(opened, search, top, top_seeds)
    except KeyboardInterrupt:
        print(f"stopped; to go on, run the same command again:\n  {command_line()}")
        return 130
    return 0


def _describe(trial: optuna.Trial) -> str:
    measures = ", ".join(
        f"{name} {trial.user_attrs[name]:.1f}" for name in ("return", "oscillation")
    )
    values = ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in trial.params.items()
    )
    return f"trial {trial.number}: {measures} with {values}"


def _reevaluate_best(study: optuna.Study, search: Search, top: int, seeds: int) -> None:
    """Train the best trials with new seeds and write the results; one worker does it for all."""
    search.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(search.folder))
        except RunLocked:
            print("another worker re-evaluates the best trials and writes the results")
            return
        best = tuning_report.best_trials(study, max(top, 1))
        for trial in best[:top]:
            _reevaluate(study, search, trial, seeds)
        print(tuning_report.summary(study))
        for path in tuning_report.write(
            study, search.folder, search.env, search.algo, best, search.overrides
        ):
            print(f"written: {path}")


def _reevaluate(study: optuna.Study, search: Search, trial: FrozenTrial, seeds: int) -> None:
    """Train a trial with new seeds: what is best among many is partly luck."""
    known: dict[str, list[float]] = study.user_attrs.get("fresh", {})
    values = known.get(str(trial.number), [])
    for seed in range(tuning_report.FRESH_SEED + len(values), tuning_report.FRESH_SEED + seeds):
        folder = search.folder / "top" / f"trial_{trial.number}" / f"seed_{seed}"
        try:
            value = search.run(hyperparameters(trial.params), seed, folder).value
        except RunFailed as error:  # diverged: what does so once is not the best
            print(f"trial {trial.number} failed with a fresh seed: {error}", flush=True)
            value = -math.inf
        values = [*values, value]
        study.set_user_attr("fresh", {**known, str(trial.number): values})
    print(
        f"trial {trial.number} with {seeds} fresh seeds: {tuning_report.describe(values)}",
        flush=True,
    )
