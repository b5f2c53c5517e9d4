"""The command train: one run, reported on the console."""

import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter, TensorBoardOutputFormat

from sb3_cpp.checks import InvalidArgument, check_whole_number, require
from sb3_cpp.deep import CautiousMDQN, RegularizedDQN
from sb3_cpp.deep.cautious_mdqn import step_share
from sb3_cpp.files import write_text
from sb3_cpp.run_folder import WANDB_ID, command_line
from sb3_cpp.training.algorithms import get_algorithm, hyperparameter_defaults
from sb3_cpp.training.environments import has_time_limit
from sb3_cpp.training.run import Outcome, RunFailed, start_of, train_run
from sb3_cpp.training.suites import (
    RUN_KEYS,
    RunConfig,
    choose_suite,
    merge,
    note_unlisted,
    parse_overrides,
)


def train(
    algo: str,
    env: str,
    seed: int = 0,
    *,
    suite: str | None = None,
    n_timesteps: int | None = None,
    params: Sequence[str] = (),
    gym_packages: Sequence[str] = (),
    eval_freq: int | None = None,
    eval_episodes: int | None = None,
    save_freq: int | None = None,
    start_from: str | None = None,
    root: str = "runs",
    progress: bool = False,
    tensorboard: str | None = None,
    track: bool = False,
    n_threads: int | None = None,
) -> int:
    """Train one run and say where it is; returns the exit code of the script."""
    given = {
        "gym_packages": list(gym_packages) or None,
        "n_timesteps": n_timesteps,
        "eval_freq": eval_freq,
        "eval_episodes": eval_episodes,
        "save_freq": save_freq,
    }
    overrides = parse_overrides(list(params), given)
    if n_threads is not None:
        check_whole_number("--num-threads", n_threads, 1)
    chosen = choose_suite(env, suite, overrides)
    config = chosen.run_config(algo, env, seed, overrides)
    if start_from is not None:
        _check_start(Path(start_from).resolve(), config.folder(root).resolve(), overrides)
    make_writers = _check_writers(config, tensorboard, track)
    note_unlisted(chosen, env)
    if advice := target_period_advice(config):
        print(advice, flush=True)
    if config.evaluate_every and not has_time_limit(
        env, config.max_episode_steps, config.gym_packages
    ):
        print(
            f"note: {env} has no time limit, so an evaluation may never end; "
            "-params max_episode_steps:N sets one",
            flush=True,
        )
    print(f"{config.name()}: {config.n_timesteps:,} steps into {config.folder(root)}", flush=True)
    if start_from is not None:
        print(f"from {start_from}, with the hyperparameters it was saved with", flush=True)
    show = "bar" if progress else "lines"
    try:
        outcome = train_run(
            config,
            root,
            start_from=start_from,
            show=show,
            make_writers=make_writers,
            n_threads=n_threads,
        )
    except RunFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(_conclusion(outcome))
    return outcome.exit_code


def target_period_advice(config: RunConfig) -> str | None:
    """A line for a run that is too short for the target period of its class."""
    algorithm = get_algorithm(config.algorithm)
    if not issubclass(algorithm, RegularizedDQN) or (
        "target_update_interval" in config.hyperparameters
    ):
        return None
    values = {**hyperparameter_defaults(algorithm), **config.hyperparameters}
    period = values["target_update_interval"]
    share = step_share(values["zeta"]) if issubclass(algorithm, CautiousMDQN) else 1.0
    steps = config.n_timesteps - values["learning_starts"]
    updates = max(int(steps / (share * period)), 0)
    if updates >= 100:
        return None
    return (
        f"advice: {config.n_timesteps:,} steps with a target period of {period:,} are "
        f"K = {updates} target updates, where the paper has about 600; "
        f"-params target_update_interval:{max(int(steps / 600 / share), 10)} suits them better"
    )


def _check_start(source: Path, folder: Path, overrides: dict[str, Any]) -> None:
    """Refuse new hyperparameters for a trained model, except those of the run that is extended."""
    changed = [key for key in overrides if key not in RUN_KEYS]
    if folder in (source, *source.parents):  # a run that began with a model of another has its own
        own = start_of(folder).get("hyperparameters")
        changed = [key for key in changed if own and merge(own, {key: overrides[key]}) != own]
    if changed:
        raise InvalidArgument(
            f"-params must not have {', '.join(changed)} with -i {source}: a model keeps the "
            "hyperparameters it was saved with"
        )


def _conclusion(outcome: Outcome) -> str:
    if outcome.state == "interrupted":
        return (
            f"stopped and saved at step {outcome.timesteps:,}; to resume, run the same command "
            f"again:\n  {command_line()}"
        )
    if outcome.state == "kept":
        extend = f"-i {outcome.folder} -n MORE_STEPS"
        return f"already finished: {outcome.folder} (to extend it: {extend})"
    returns = outcome.final_returns
    result = (
        f", return {np.mean(returns):.1f} ± {np.std(returns):.1f} over {len(returns)} episodes"
        if returns
        else ""
    )
    return f"finished: {outcome.folder}{result}"


def _check_writers(
    config: RunConfig, tensorboard: str | None, track: bool
) -> Callable[[Path], list[KVWriter]]:
    """Check that the packages are there; returns what makes SB3's further outputs once the run's
    folder is locked, so that a refused or finished run logs nothing."""
    if tensorboard is not None:
        require("tensorboard", "tensorboard")
    if track:
        require("wandb", "wandb")

    def make(folder: Path) -> list[KVWriter]:
        writers: list[KVWriter] = []
        if tensorboard is not None:
            writers.append(TensorBoardOutputFormat(str(config.folder(tensorboard))))
        if track:
            writers.append(WandbOutputFormat(config, folder))
        return writers

    return make


class WandbOutputFormat(KVWriter):
    """Sends SB3's log to Weights & Biases.

    The run's id is kept in its folder, so that a resumed run continues the same W&B run; W&B
    ignores steps that it already has.

    :param config: the run's config
    :param folder: the run's folder
    """

    def __init__(self, config: RunConfig, folder: Path) -> None:
        import wandb

        path = folder / WANDB_ID
        if not path.is_file():
            write_text(path, uuid.uuid4().hex[:8])
        group = f"{config.algo}/{config.env}"
        self.run = wandb.init(
            project="sb3_cpp",
            id=path.read_text(encoding="utf-8").strip(),
            resume="allow",
            group=group,
            name=f"{group}/{config.seed}",
            config=config.plain(),
            dir=folder,
        )

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        self.run.log(
            {key: value for key, value in key_values.items() if isinstance(value, (int, float))},
            step=step,
        )

    def close(self) -> None:
        self.run.finish()
