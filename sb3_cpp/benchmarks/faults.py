"""The fault study: training processes are killed with SIGKILL at random moments and resumed; the end must be the same."""

import csv
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch as th
from rich.console import Console
from rich.table import Table
from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp import ALGORITHMS
from sb3_cpp.benchmarks.faults_comparison import differences
from sb3_cpp.checks import InvalidArgument, check_number
from sb3_cpp.run_folder import is_finished
from sb3_cpp.training.run import find_checkpoint, read_counters, train_run
from sb3_cpp.training.suites import RunConfig, load_suite

OUTPUT = "output.log"  # what the processes print, why one of them ended by itself
_POLL = 0.0005  # seconds between two looks at the step counter of a process


@dataclass(frozen=True)
class Task:
    """A small run of a suite: what is trained, and for how long."""

    suite: str
    env: str
    n_timesteps: int
    algos: tuple[str, ...]
    settings: dict[str, Any]

    def config(self, algo: str, seed: int, n_timesteps: int | None = None) -> RunConfig:
        n = n_timesteps or self.n_timesteps
        sizes = {
            "n_timesteps": n,
            "save_freq": max(n // 12, 1),
            "eval_freq": max(n // 4, 1),
            "eval_episodes": 2,
        }
        return load_suite(self.suite).run_config(algo, self.env, seed, {**sizes, **self.settings})


_LEARNING: dict[str, Any] = {
    "train_freq": 4,
    "gradient_steps": 1,
    "batch_size": 32,
    "target_update_interval": 100,
}
TASKS = {
    "cartpole": Task(
        "classic",
        "CartPole-v1",
        3000,
        tuple(ALGORITHMS),
        {**_LEARNING, "learning_starts": 200, "buffer_size": 2000},
    ),
    "minatar": Task(
        "minatar",
        "MinAtar/Breakout-v1",
        3000,
        tuple(ALGORITHMS),
        {**_LEARNING, "learning_starts": 200, "buffer_size": 2000, "max_episode_steps": 500},
    ),
    "ale": Task(
        "atari",
        "SeaquestNoFrameskip-v4",  # where an untrained agent does not live for ever
        1000,
        ("cpp",),
        {
            **_LEARNING,
            "learning_starts": 200,
            "buffer_size": 600,
            "keep_checkpoint": True,
            "eval_episodes": 1,
            "eval_freq": 500,
            "n_envs": 1,
            "env_kwargs": {"native": False},
        },
    ),
}


@dataclass(frozen=True)
class Result:
    """One killed run: how often, how many steps had to be done again, and what differs from the undisturbed run."""

    task: str
    algo: str
    timesteps: int
    kills: int
    resumes: int
    lost_steps: int
    differences: int
    first_difference: str = ""


class _Report(BaseCallback):
    """Tells the step to whoever decides when to kill."""

    def __init__(self, step: Any) -> None:
        super().__init__()
        self.step = step

    def _on_step(self) -> bool:
        self.step.value = self.num_timesteps
        return True


def _train(config: RunConfig, root: str, step: Any) -> None:
    th.set_num_threads(1)
    redirect_output(Path(root))
    train_run(config, root, show="nothing", callbacks=[_Report(step)])


def redirect_output(folder: Path) -> None:
    """Let what this process prints go to a file, the greetings of emulators included, which do not ask Python."""
    folder.mkdir(parents=True, exist_ok=True)
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)


def context() -> Any:
    """Processes that begin with everything imported (of the games, those that are installed)."""
    if sys.platform == "win32":
        raise InvalidArgument("the fault study needs SIGKILL, which Windows does not have")
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(
        ["sb3_cpp.benchmarks.faults", "torch._dynamo", "minatar.gym", "ale_py", "cv2"]
    )
    return made


def run_case(
    task: str, algo: str, kills: int, seed: int, root: Path, n_timesteps: int | None = None
) -> Result:
    """Train a run undisturbed and again with kills; compare."""
    config = TASKS[task].config(algo, seed, n_timesteps)
    moments = random.Random(f"{task} {algo} {seed}")
    processes = context()
    for name in ("undisturbed", "killed"):
        if config.folder(root / name).exists():
            raise InvalidArgument(f"{config.folder(root / name)} exists; choose another -f")
    undisturbed = processes.Process(
        daemon=True,
        target=_train,
        args=(config, str(root / "undisturbed"), processes.Value("q", 0, lock=False)),
    )
    undisturbed.start()
    undisturbed.join()
    # A little before the end, so that the last kill finds the process alive
    steps = sorted(moments.randint(1, int(0.97 * config.n_timesteps)) for _ in range(kills))
    folder = config.folder(root / "killed")
    done = resumes = lost = 0
    for target in [*steps, None]:
        step = processes.Value("q", 0, lock=False)
        process = processes.Process(
            daemon=True, target=_train, args=(config, str(root / "killed"), step)
        )
        resumes += find_checkpoint(folder) is not None if folder.exists() else 0
        process.start()
        if target is not None and _reached(process, step, target):
            time.sleep(moments.uniform(0.0, 0.02))
            process.kill()
            done += 1
        process.join()
        if target is not None:
            lost += max(step.value - _saved(folder), 0)
    found = [
        f"the {name} run did not finish, see {root / name / OUTPUT}"
        for name in _unfinished(config, root)
    ]
    found = found or differences(config.folder(root / "undisturbed"), folder)
    return Result(
        task, algo, config.n_timesteps, done, resumes, lost, len(found), found[0] if found else ""
    )


def _unfinished(config: RunConfig, root: Path) -> list[str]:
    return [
        name for name in ("undisturbed", "killed") if not is_finished(config.folder(root / name))
    ]


def _reached(process: Any, step: Any, target: int) -> bool:
    while step.value < target:
        if not process.is_alive():
            return False
        time.sleep(_POLL)
    return True


def _saved(folder: Path) -> int:
    checkpoint = find_checkpoint(folder)
    return read_counters(checkpoint)["timesteps"] if checkpoint is not None else 0


def faults(
    tasks: Sequence[str],
    algos: Sequence[str],
    kills: int,
    seed: int,
    root: str,
    n_timesteps: int | None = None,
    write_kills: int = 0,
    say: Callable[[str], None] = print,
) -> int:
    """Run the study and print its table; returns the exit code of the script."""
    check_number("--kills", kills, 1)
    check_number("--seed", seed, 0)
    check_number("--write-kills", write_kills, 0)
    for task in tasks:
        if task not in TASKS:
            raise InvalidArgument(f"unknown task {task!r}; known: {', '.join(TASKS)}")
    for algo in algos:
        if algo not in ALGORITHMS:
            raise InvalidArgument(f"unknown algorithm {algo!r}; known: {', '.join(ALGORITHMS)}")
    if n_timesteps is not None:
        check_number("-n", n_timesteps, 100)
    folder = Path(root)
    if folder.exists() and any(folder.iterdir()):
        raise InvalidArgument(f"{folder} is not empty; choose another -f")
    results = []
    for task in tasks:
        for algo in [a for a in TASKS[task].algos if not algos or a in algos]:
            results.append(run_case(task, algo, kills, seed, folder, n_timesteps))
            last = results[-1]
            say(
                f"{task} {algo}: {last.kills} kills, {last.differences} differences {last.first_difference}".rstrip()
            )
    failed = any(result.differences for result in results)
    if results:
        _show(results)
        _write(folder / "faults.csv", results)
        say(f"written: {folder / 'faults.csv'}")
    if write_kills:
        from sb3_cpp.benchmarks.faults_writing import kill_writers

        outcome = kill_writers(folder / "writing", write_kills, seed)
        say(str(outcome))
        failed = failed or not outcome.held
    return int(failed)


def _show(results: list[Result]) -> None:
    table = Table(title="Killed and resumed, compared with an undisturbed run")
    columns = ("task", "algo", "timesteps", "kills", "resumes", "lost_steps", "differences")
    for column in columns:
        table.add_column(
            column.replace("_", " "), justify="left" if column in ("task", "algo") else "right"
        )
    for result in results:
        table.add_row(*(str(getattr(result, column)) for column in columns))
    Console().print(table)


def _write(path: Path, results: list[Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(asdict(results[0])))
        writer.writeheader()
        writer.writerows(asdict(result) for result in results)
