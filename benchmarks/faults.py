"""Kill training with SIGKILL at random moments, resume it, and compare it with an undisturbed run.

    python benchmarks/faults.py --kills 10 --write-kills 200

Weights, optimiser, replay buffer, random generators, CSV rows (but for the clock's columns) and
evaluations must agree to the bit.
"""

import csv
import importlib.util
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pandas as pd
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.save_util import load_from_zip_file

from sb3_cpp import ALGORITHMS, DeepCPP, RegularizedDQN, run_folder
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.checkpointing import CheckpointStore, store
from sb3_cpp.checks import InvalidArgument, check_seed, check_whole_number
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.files import is_part
from sb3_cpp.training.run import find_checkpoint, read_counters, train_run
from sb3_cpp.training.suites import RunConfig, load_suite

OUTPUT = "output.log"  # what the killed processes printed
_POLL = 0.0005  # seconds between two looks at the step counter of a process


# --- what is trained ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A small run of a suite."""

    suite: str
    env: str
    n_timesteps: int
    algos: tuple[str, ...]
    settings: dict[str, Any]
    extra: str = ""  # of the package
    modules: tuple[str, ...] = ()  # of that extra

    def config(self, algo: str, seed: int, n_timesteps: int | None = None) -> RunConfig:
        n = n_timesteps or self.n_timesteps
        sizes = {
            "n_timesteps": n,
            "save_freq": max(n // 12, 1),
            "eval_freq": max(n // 4, 1),
            "eval_episodes": 2,
        }
        return load_suite(self.suite).run_config(algo, self.env, seed, {**sizes, **self.settings})


# those that can act where actions are discrete
DISCRETE = [name for name, cls in ALGORITHMS.items() if issubclass(cls, RegularizedDQN)]
_LEARNING: dict[str, Any] = {
    "train_freq": 4,
    "gradient_steps": 1,
    "batch_size": 32,
    "target_update_interval": 100,
    "learning_starts": 200,
}
TASKS = {
    "cartpole": Task(
        "classic", "CartPole-v1", 3000, tuple(DISCRETE), {**_LEARNING, "buffer_size": 2000}
    ),
    "minatar": Task(
        "minatar",
        "MinAtar/Breakout-v1",
        3000,
        tuple(DISCRETE),
        {**_LEARNING, "buffer_size": 2000, "max_episode_steps": 500},
        "minatar",
        ("minatar",),
    ),
    "ale": Task(
        "atari",
        "SeaquestNoFrameskip-v4",  # an untrained agent dies soon
        1000,
        ("cpp",),
        {
            **_LEARNING,
            "buffer_size": 600,
            "keep_checkpoint": True,
            "eval_episodes": 1,
            "eval_freq": 500,
            "n_envs": 1,
            "env_kwargs": {"native": False},
        },
        "atari",
        ("ale_py", "cv2"),
    ),
    "pendulum": Task(
        "continuous",
        "Pendulum-v1",
        3000,
        ("csac",),
        {
            **_LEARNING,
            "buffer_size": 2000,
            "target_update_interval": 1,
            "policy_kwargs": {"net_arch": [64, 64]},
        },
    ),
}
TRIED = list(dict.fromkeys(algo for task in TASKS.values() for algo in task.algos))


def check_extras(tasks: Sequence[str]) -> None:
    """Refuse tasks whose packages are not installed."""
    missing = [
        TASKS[task].extra
        for task in tasks
        if any(importlib.util.find_spec(module) is None for module in TASKS[task].modules)
    ]
    if missing:
        raise InvalidArgument(
            f"--tasks {' '.join(tasks)} needs the extras {', '.join(missing)}: "
            f'pip install "sb3_cpp[{",".join(missing)}]", or choose --tasks cartpole'
        )


# --- killing runs ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """One killed run."""

    task: str
    algo: str
    timesteps: int
    kills: int
    resumes: int
    lost_steps: int  # that had to be repeated
    differences: int  # from the undisturbed run
    first_difference: str = ""


class _Report(BaseCallback):
    """Shares the step with the process that kills."""

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
    """Send what this process prints to a file."""
    # descriptors, not sys.stdout: emulators print from C
    folder.mkdir(parents=True, exist_ok=True)
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)


def _context() -> Any:
    """Processes that start with everything imported (of the games, those that are installed)."""
    if sys.platform == "win32":
        raise InvalidArgument("this program needs SIGKILL, which Windows does not have")
    # "spawn" would import torch anew in every process; "fork" would copy threads that hold locks
    made: Any = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(
        ["sb3_cpp.training.run", "torch._dynamo", "minatar.gym", "ale_py", "cv2"]
    )
    return made


def run_case(
    task: str, algo: str, kills: int, seed: int, root: Path, n_timesteps: int | None = None
) -> Result:
    """Train a run undisturbed and again with kills; compare."""
    config = TASKS[task].config(algo, seed, n_timesteps)
    moments = random.Random(f"{task} {algo} {seed}")
    processes = _context()
    undisturbed, killed = (config.folder(root / name) for name in ("undisturbed", "killed"))
    for folder in (undisturbed, killed):
        if folder.exists():
            raise InvalidArgument(f"{folder} exists; choose another -f")

    def start(name: str, step: Any) -> Any:
        arguments = (config, str(root / name), step)
        process = processes.Process(daemon=True, target=_train, args=arguments)
        process.start()
        return process

    start("undisturbed", processes.Value("q", 0, lock=False)).join()
    # A little before the end, so that the last kill finds the process alive
    steps = sorted(moments.randint(1, int(0.97 * config.n_timesteps)) for _ in range(kills))
    done = resumes = lost = 0
    for target in [*steps, None]:
        resumes += find_checkpoint(killed) is not None
        step = processes.Value("q", 0, lock=False)
        process = start("killed", step)
        if target is not None and _reached(process, step, target):
            # somewhere within a step, not always at its end
            time.sleep(moments.uniform(0.0, 0.02))
            process.kill()  # SIGKILL: nothing can be tidied up
            done += 1
        process.join()
        if target is not None:
            lost += max(step.value - _saved_step(killed), 0)
    # an unfinished run has nothing to compare
    found = [
        f"the {name} run did not finish, see {root / name / OUTPUT}"
        for name, folder in (("undisturbed", undisturbed), ("killed", killed))
        if not run_folder.is_finished(folder)
    ] or differences(undisturbed, killed)
    first = found[0] if found else ""
    return Result(task, algo, config.n_timesteps, done, resumes, lost, len(found), first)


def _reached(process: Any, step: Any, target: int) -> bool:
    while step.value < target:
        if not process.is_alive():
            return False
        time.sleep(_POLL)
    return True


def _saved_step(folder: Path) -> int:
    checkpoint = find_checkpoint(folder)
    return read_counters(checkpoint)["timesteps"] if checkpoint is not None else 0


# --- comparing two runs ---------------------------------------------------------------------------

# Columns that say what time it was, not what happened
CLOCKS = {
    run_folder.MONITOR: ("t",),
    run_folder.PROGRESS: ("time/fps", "time/time_elapsed"),
    run_folder.ITERATIONS: (),
}
_COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_n_calls",
    "_episode_num",
    "exploration_rate",
    "iteration",
    "iteration_record",
)


def differences(one: Path, two: Path) -> list[str]:
    """What differs between two finished runs, clocks aside."""
    runs = (one, two)
    found = _model_differences(one / run_folder.MODEL, two / run_folder.MODEL)
    if not same(*(_best_weights(run / run_folder.BEST_MODEL) for run in runs)):
        found.append(f"{run_folder.BEST_MODEL} has other weights")
    checkpoints = [find_checkpoint(run) for run in runs]
    if checkpoints[0] is not None and checkpoints[1] is not None:
        found += _checkpoint_differences(checkpoints[0], checkpoints[1])
    elif checkpoints != [None, None]:
        found.append("only one run has a checkpoint")
    for name, clocks in CLOCKS.items():
        if _rows(one / name, clocks) != _rows(two / name, clocks):
            found.append(f"{name} has other rows")
    if not same(*(_evaluations(run / run_folder.EVALUATIONS) for run in runs)):
        found.append(f"{run_folder.EVALUATIONS} has other results")
    return found


def _model_differences(one: Path, two: Path) -> list[str]:
    (data, params, tensors), (other_data, other_params, other_tensors) = map(
        load_from_zip_file, (one, two)
    )
    assert data is not None
    assert other_data is not None
    # Tensors outside of any module: SAC's entropy coefficient
    params, other_params = {**params, **(tensors or {})}, {**other_params, **(other_tensors or {})}
    found = [
        f"{name} differs"
        for name in dict.fromkeys([*params, *other_params])
        if not same(params.get(name), other_params.get(name))
    ]
    for name in _COUNTERS:
        if not same(_plain(data.get(name)), _plain(other_data.get(name))):
            found.append(f"{name} differs")
    return found


def _plain(value: Any) -> Any:
    """Objects as their attributes."""
    if hasattr(value, "__dict__") and not isinstance(value, th.Tensor):
        return {name: _plain(entry) for name, entry in vars(value).items()}
    return value


def _checkpoint_differences(one: Path, two: Path) -> list[str]:
    entries = (one, two)
    arrays = [store.read_manifest(entry)["arrays"] for entry in entries]
    # checksums, not segments: how blocks are spread over files depends on when it was saved
    buffers = [
        {name: (a["rows"], [block[3] for block in a["blocks"]]) for name, a in described.items()}
        for described in arrays
    ]
    states = [cloudpickle.loads((entry / store.STATE).read_bytes()) for entry in entries]
    found = ["the replay buffer differs"] if buffers[0] != buffers[1] else []
    if not same(states[0]["random"], states[1]["random"]):
        found.append("a random generator is in another state")
    if not same(states[0]["last_obs"], states[1]["last_obs"]):
        found.append("the environment is in another state")
    return found


def _best_weights(path: Path) -> Any:
    return load_from_zip_file(path)[1] if path.is_file() else None


def _rows(path: Path, clocks: tuple[str, ...]) -> list[dict[str, str]] | None:
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        reader = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{key: value for key, value in row.items() if key not in clocks} for row in reader]


def _evaluations(path: Path) -> dict[str, np.ndarray] | None:
    if not path.is_file():
        return None
    with np.load(path) as saved:
        return {key: saved[key] for key in saved.files}


def same(one: Any, two: Any) -> bool:
    """Equal to the bit, through dictionaries and sequences; NaN equals NaN."""
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, th.Tensor) and isinstance(two, th.Tensor):
        alike = one.dtype == two.dtype and one.shape == two.shape
        return alike and same(one.detach().cpu().numpy(), two.detach().cpu().numpy())
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        equal_nan = one.dtype.kind in "fc"
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=equal_nan)
    return bool(one == two) or (one != one and two != two)


# --- killing processes while they write a checkpoint ----------------------------------------------


@dataclass(frozen=True)
class WritingOutcome:
    """Numbers of kills."""

    kills: int
    unfinished: int  # that left an unfinished checkpoint behind
    unloadable: int  # after which the newest checkpoint was not intact
    older: int  # after which it was older than the last one announced
    first_reason: str = ""

    @property
    def held(self) -> bool:
        return self.unloadable == self.older == 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills while a checkpoint was written "
            f"({self.unfinished} left an unfinished one): "
            f"{self.unloadable} without a loadable checkpoint{self.first_reason}, "
            f"{self.older} with an older one than announced"
        )


def _write_for_ever(folder: str, announced: Any, writing: Any) -> None:
    th.set_num_threads(1)
    redirect_output(Path(folder))
    if store.newest(Path(folder)) is None:
        model = DeepCPP(
            "MlpPolicy",
            "CartPole-v1",
            buffer_size=500,
            learning_starts=10,
            seed=0,
            policy_kwargs={"net_arch": [16]},
        )
    else:
        model = DeepCPP.resume(folder)
    checkpoints = CheckpointStore(folder)
    while True:
        model.learn(8, reset_num_timesteps=False)
        writing.value = 1
        entry = checkpoints.save(model)
        announced.value = int(entry.name)
        writing.value = 0


def kill_writers(folder: Path, kills: int, seed: int) -> WritingOutcome:
    """Kill processes that write one checkpoint after the other, at random moments of a write."""
    moments = random.Random(seed)
    processes = _context()
    done = unfinished = older = 0
    reasons: list[str] = []
    duration = 0.05
    while done < kills:
        announced, writing = (processes.Value("q", 0, lock=False) for _ in range(2))
        process = processes.Process(
            daemon=True, target=_write_for_ever, args=(str(folder), announced, writing)
        )
        process.start()
        _wait_for_change(process, announced, 0)  # its first checkpoint
        for _ in range(moments.randint(0, 2)):
            _wait_for_change(process, announced, announced.value)
        while not writing.value:
            time.sleep(0.0002)
        began, number = time.monotonic(), announced.value
        delay = moments.uniform(0.0, duration)
        while time.monotonic() - began < delay and announced.value == number:
            time.sleep(0.0002)
        # Kills are spread over the time of a write, which is learned from writes that ended first.
        if announced.value != number:
            duration = 0.8 * duration + 0.2 * (time.monotonic() - began)
        process.kill()
        process.join()
        if not writing.value:  # it ended just before the kill: not the moment that is tested
            continue
        done += 1
        unfinished += any(folder.rglob("*.part"))
        newest = store.newest(folder)
        try:
            store.verify(store.locate(folder))
            DeepCPP.resume(folder)
        except InvalidArgument as error:  # damaged, or none at all
            reasons.append(str(error))
        older += newest is None or int(newest.name) < announced.value
    first = f" ({reasons[0]})" if reasons else ""
    return WritingOutcome(done, unfinished, len(reasons), older, first)


def _wait_for_change(process: Any, announced: Any, value: int) -> None:
    while announced.value == value:
        if not process.is_alive():
            raise RuntimeError(f"the writing process ended by itself, see {OUTPUT}")
        time.sleep(_POLL)


# --- killing a run before each of its file operations ---------------------------------------------

# Audit events of Python, and the argument that says on which file
_OPERATIONS = {"open": 0, "os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0}


def crash_config(keep_checkpoint: bool = True) -> RunConfig:
    """A run with two checkpoints and three evaluations, which takes half a second."""
    settings = {
        **_LEARNING,
        "n_timesteps": 160,
        "learning_starts": 20,
        "target_update_interval": 40,
        "buffer_size": 100,
        "save_freq": 60,
        "eval_freq": 60,
        "eval_episodes": 1,
        "keep_checkpoint": keep_checkpoint,
        "policy_kwargs": {"net_arch": [8]},
    }
    return load_suite("classic").run_config("cmdqn", "CartPole-v1", 0, settings)


def _train_and_crash(
    root: str, config: RunConfig, crash_before: int | None, record: str | None = None
) -> None:
    """Train, and die by SIGKILL before an operation that writes below ``root``."""
    th.set_num_threads(1)
    redirect_output(Path(root))
    seen: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _OPERATIONS or not _concerns(root, event, arguments):
            return
        if len(seen) == crash_before:
            os.kill(os.getpid(), signal.SIGKILL)
        seen.append(f"{event} {Path(os.fsdecode(arguments[_OPERATIONS[event]])).name}")

    # audit hooks see what every library does, and nothing has to be patched
    sys.addaudithook(watch)
    train_run(config, root, show="nothing")
    if record is not None:
        Path(record).write_text("\n".join(seen))


def _concerns(root: str, event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return False
    if event in ("os.remove", "os.rmdir") and arguments[1] != -1:
        return True  # by shutil.rmtree, relative to a folder's descriptor
    path = arguments[0]
    return isinstance(path, (str, bytes, Path)) and os.fsdecode(path).startswith(root)


def crash_points(
    root: Path, config: RunConfig, choose: Callable[[list[str]], Sequence[int]] | None = None
) -> tuple[int, dict[str, list[str]]]:
    """
    Kill a run before each of its file operations; resume and compare.

    :param root: a folder
    :param config: the run
    :param choose: gives the numbers of the operations to crash before, of the list of all; without
        it, every one
    :return: number of points tried, and what went wrong at which of them
    """
    processes = _context()

    def train(*arguments: Any) -> int:
        process = processes.Process(target=_train_and_crash, args=arguments)
        process.start()
        process.join()
        return process.exitcode

    undisturbed, events = root / "undisturbed", root / "operations.txt"
    if train(str(undisturbed), config, None, str(events)) != 0:
        raise RuntimeError(f"the undisturbed run did not finish, see {undisturbed / OUTPUT}")
    operations = events.read_text().splitlines()
    points = range(len(operations)) if choose is None else choose(operations)
    wrong = {}
    for point in points:
        folder = root / f"killed_{point}"
        codes = [train(str(folder), config, crash) for crash in (point, None)]
        name = f"{point}: before {operations[point]}"
        if codes != [-signal.SIGKILL, 0]:
            wrong[name] = [f"exit codes {codes}, see {folder / OUTPUT}"]
            continue
        found = differences(config.folder(undisturbed), config.folder(folder))
        if operations[point] != f"os.rename {run_folder.STATUS}":  # a finished run is left as it is
            found += [f"{path.name} is left" for path in folder.rglob("*") if is_part(path)]
        if found:
            wrong[name] = found
        else:
            shutil.rmtree(folder)
    return len(points), wrong


# --- the program ----------------------------------------------------------------------------------


def faults(
    tasks: Sequence[str],
    algos: Sequence[str],
    kills: int,
    write_kills: int,
    crash: bool,
    n_timesteps: int | None,
    seed: int,
    folder: str,
) -> int:
    """Kill, compare, print a table; returns the exit code: 1 if anything differs."""
    check_whole_number("--kills", kills, 1)
    check_seed("--seed", seed)
    check_whole_number("--write-kills", write_kills, 0)
    if n_timesteps is not None:
        check_whole_number("-n", n_timesteps, 100)
    for kind, names, known in (("task", tasks, TASKS), ("algorithm", algos, TRIED)):
        for name in names:
            if name not in known:
                raise InvalidArgument(f"unknown {kind} {name!r}; known: {', '.join(known)}")
    pairs = [
        (t, a) for t in dict.fromkeys(tasks) for a in TASKS[t].algos if not algos or a in algos
    ]
    if not pairs:
        raise InvalidArgument(
            f"--algos must have an algorithm of --tasks {' '.join(tasks)}, got {' '.join(algos)}"
        )
    check_extras(tasks)
    root = Path(folder)
    if root.exists() and any(root.iterdir()):
        raise InvalidArgument(f"{root} is not empty; choose another -f")
    results = []
    for task, algo in pairs:
        last = run_case(task, algo, kills, seed, root, n_timesteps)
        results.append(last)
        counts = f"{last.kills} kills, {last.differences} differences"
        print(f"{task} {algo}: {counts} {last.first_difference}".rstrip(), flush=True)
    failed = any(result.differences for result in results)
    table = pd.DataFrame(results)
    shown = table.drop(columns="first_difference").astype(str)
    columns = [str(name).replace("_", " ") for name in shown]
    title = "Killed and resumed, compared with an undisturbed run"
    print_table(title, columns, shown.to_numpy().tolist(), text=2)
    table.to_csv(root / "faults.csv", index=False)
    print(f"written: {root / 'faults.csv'}")
    if write_kills:
        outcome = kill_writers(root / "writing", write_kills, seed)
        print(str(outcome))
        failed = failed or not outcome.held
    if crash:
        for keep in (True, False):
            config = crash_config(keep)
            n, wrong = crash_points(root / f"crash_{keep}", config)
            print(f"killed before each of {n} file operations: {len(wrong)} ended differently")
            print("\n".join(f"  {point}: {', '.join(found)}" for point, found in wrong.items()))
            failed = failed or bool(wrong)
    return int(failed)


def main() -> int:
    parser = CommandLine(prog="faults.py", description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help=", ".join(TASKS))
    parser.add_argument("--algos", nargs="+", default=[], help="without it: all of a task")
    parser.add_argument("--kills", type=int, default=10, help="of each run")
    parser.add_argument(
        "--write-kills", type=int, default=0, help="kills while a checkpoint is written"
    )
    parser.add_argument(
        "--crash", action="store_true", help="also kill a short run before every file operation"
    )
    parser.add_argument("-n", "--n-timesteps", type=int, help="of each run (3000, ale 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the runs and of the moments")
    parser.add_argument("-f", "--folder", default="runs/faults", help="new or empty")
    return faults(**parser.parse())


if __name__ == "__main__":
    run_command(main)
