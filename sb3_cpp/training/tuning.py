"""The command behind scripts/tune.py: search an algorithm's hyperparameters on one environment."""

import contextlib
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sb3_cpp.checks import InvalidArgument, check_choice, check_number
from sb3_cpp.metrics import oscillation
from sb3_cpp.run_folder import MODEL
from sb3_cpp.training.environments import check_environment
from sb3_cpp.training.grid import check_buildable
from sb3_cpp.training.lock import locked
from sb3_cpp.training.runner import RunFailed, StopRun, train_run
from sb3_cpp.training.search_space import hyperparameters, is_fixed, sample, search_space
from sb3_cpp.training.suites import Suite, load_suite, merge, parse_overrides, suite_of

try:
    import optuna
    from optuna.trial import FrozenTrial

    from sb3_cpp.training import tuning_report
    from sb3_cpp.training.study import open_storage, open_study, run_trials
except ImportError as error:
    raise InvalidArgument(
        f"tuning needs a further package: pip install 'sb3_cpp[tune]' ({error})"
    ) from None

EVALUATIONS = 10
FRESH_SEED = 10_000  # seeds of the re-evaluation, never used in the search


@dataclass(frozen=True)
class Score:
    """What a run is worth: mean return of the last quarter of its evaluations, and how much the curve fell on the way."""

    value: float
    oscillation: float


def score(means: Sequence[float]) -> Score:
    last = max(len(means) // 4, 1)
    return Score(float(np.mean(means[-last:])), float(oscillation(means).l2))


@dataclass(frozen=True)
class Search:
    """One search: everything that decides what a trial's values mean."""

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
        watch: Callable[[list[float]], None] | None = None,
    ) -> Score:
        """Train one run with a trial's values."""
        fixed = {
            "n_timesteps": self.n_timesteps,
            "eval_freq": max(self.n_timesteps // EVALUATIONS, 1),
            "save_freq": max(self.n_timesteps // 4, 1),
            "keep_checkpoint": False,
        }
        overrides = merge(merge(self.overrides, values), fixed)
        config = self.suite.run_config(self.algo, self.env, seed, overrides)
        curve: list[float] = []

        def remember(means: list[float]) -> None:
            curve[:] = means
            if watch is not None:
                watch(means)

        outcome = train_run(
            config, folder=folder, show="nothing", on_evaluation=remember, n_threads=1
        )
        if outcome.state == "interrupted":
            raise KeyboardInterrupt
        (folder / MODEL).unlink(missing_ok=True)
        return score(curve)

    def objective(self, trial: optuna.Trial, dimensions: list[Any], pareto: bool) -> Any:
        """Train a trial's runs, one seed after the other; gives its value, or value and oscillation."""
        values = sample(dimensions, trial)
        # A trial that was interrupted or whose worker died comes back with another number, and goes on where it was
        name = trial.user_attrs.get("folder", f"trial_{trial.number}")
        trial.set_user_attr("folder", name)
        scores: list[Score] = []

        def watch(means: list[float]) -> None:
            so_far = [s.value for s in scores]
            trial.report(
                float(np.mean([*so_far, means[-1]])), len(scores) * (EVALUATIONS + 1) + len(means)
            )
            if trial.should_prune():
                raise StopRun

        try:
            for seed in self.seeds:
                folder = self.folder / name / f"seed_{seed}"
                scores.append(self.run(values, seed, folder, None if pareto else watch))
        except StopRun:
            raise optuna.TrialPruned("below the median of the others") from None
        except RunFailed as error:  # diverged: these values are no good, the search goes on
            trial.set_user_attr("failure", str(error))
            raise optuna.TrialPruned(str(error)) from None
        except KeyboardInterrupt:
            trial.study.enqueue_trial(
                trial.params, user_attrs={"folder": name}
            )  # for whoever goes on with the study
            raise
        value, falls = (
            float(np.mean([s.value for s in scores])),
            float(np.mean([s.oscillation for s in scores])),
        )
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
    root: str = "runs",
) -> int:
    """Take part in a study until it has its trials, then re-evaluate the best; returns the exit code of the script."""
    for name, number, low in (
        ("--trials", trials, 1),
        ("-n", n_timesteps, 1),
        ("--seeds-per-trial", seeds_per_trial, 1),
    ):
        check_number(name, number, low)
    for name, number, low in (
        ("--top", top, 0),
        ("--top-seeds", top_seeds, 1),
        ("--heartbeat", heartbeat, 1),
        ("--seed", seed, 0),
    ):
        check_number(name, number, low)
    check_choice("--objective", objective, ("return", "pareto"))
    check_choice("--pruner", pruner, ("median", "none"))
    check_environment(env)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    chosen = load_suite(suite) if suite is not None else suite_of(env)
    overrides = parse_overrides(list(params))
    dimensions = [
        dimension
        for dimension in search_space(chosen, algo)
        if not is_fixed(dimension.name, overrides)
    ]
    if not dimensions:
        raise InvalidArgument(
            f"-params must leave something to search, got all of it: {', '.join(params)}"
        )
    for key in ("n_timesteps", "eval_freq", "save_freq", "keep_checkpoint"):
        if key in overrides:
            raise InvalidArgument(f"-params must not have {key}, which the search itself decides")
    name = study or f"{algo}_{env.replace('/', '-')}"
    folder = Path(root) / "tune" / name
    seeds = tuple(range(seeds_per_trial))
    search = Search(chosen, algo, env, n_timesteps, seeds, overrides, folder)
    # A mistake shows before the study is made
    check_buildable(
        [chosen.run_config(algo, env, 0, merge(overrides, {"n_timesteps": n_timesteps}))]
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
    }
    rule = optuna.pruners.MedianPruner(n_startup_trials=10, n_warmup_steps=EVALUATIONS // 3)
    opened = open_study(
        name,
        open_storage(storage, folder, heartbeat),
        seed,
        settings,
        rule if pruner == "median" else optuna.pruners.NopPruner(),
    )
    print(
        f"study {name}: {trials} trials of {n_timesteps:,} steps, {seeds_per_trial} seed(s) each, into {folder}",
        flush=True,
    )

    def objective_of(trial: optuna.Trial) -> Any:
        result = search.objective(trial, dimensions, objective == "pareto")
        print(
            f"trial {trial.number}: {_words(trial.user_attrs)} with {_short(trial.params)}",
            flush=True,
        )
        return result

    try:
        run_trials(opened, objective_of, trials, print)
        return _conclude(opened, search, top, top_seeds)
    except KeyboardInterrupt:
        print(
            f"stopped; to go on, run the same command again:\n  {shlex.join([Path(sys.executable).name, *sys.argv])}"
        )
        return 130


def _short(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
    )


def _words(attributes: dict[str, Any]) -> str:
    return f"return {attributes['return']:.1f}, oscillation {attributes['oscillation']:.1f}"


def _conclude(study: optuna.Study, search: Search, top: int, top_seeds: int) -> int:
    """Re-evaluate the best trials with fresh seeds and write the results; one worker of a machine does it for all."""
    search.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(search.folder))
        except InvalidArgument:
            print("another worker re-evaluates the best trials and writes the results")
            return 0
        best = tuning_report.best_trials(study, max(top, 1))
        for trial in best[:top]:
            _reevaluate(study, search, trial, top_seeds)
        print(tuning_report.summary(study))
        for path in tuning_report.write(
            study, search.folder, search.env, search.algo, best, search.overrides
        ):
            print(f"written: {path}")
    return 0


def _reevaluate(study: optuna.Study, search: Search, trial: FrozenTrial, seeds: int) -> None:
    """With seeds the search has not seen: what looks best among many is partly luck."""
    known: dict[str, list[float]] = study.user_attrs.get("fresh", {})
    values = known.get(str(trial.number), [])
    for i in range(len(values), seeds):
        seed = FRESH_SEED + i
        result = search.run(
            hyperparameters(trial.params),
            seed,
            search.folder / "top" / f"trial_{trial.number}" / f"seed_{seed}",
        )
        values = [*values, result.value]
        study.set_user_attr("fresh", {**known, str(trial.number): values})
    print(
        f"trial {trial.number} with {seeds} fresh seeds: return {np.mean(values):.1f} ± {np.std(values):.1f}",
        flush=True,
    )
