"""The speed benchmark: SB3's DQN and our algorithms in interleaved rounds of the real `learn()`."""

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch as th
import yaml
from rich.console import Console
from rich.progress import Progress

from sb3_cpp.benchmarks.speed_limits import flops_per_step, matrix_product_speed
from sb3_cpp.benchmarks.speed_memory import footprints
from sb3_cpp.benchmarks.speed_report import print_report, save_picture
from sb3_cpp.benchmarks.speed_tasks import OURS, SB3, TASKS, Task
from sb3_cpp.benchmarks.speed_timing import Round, time_parts, time_rounds, warm_up
from sb3_cpp.checks import InvalidArgument, check_choice, check_seed, check_whole_number
from sb3_cpp.run_folder import machine, open_run_folder
from sb3_cpp.threads import torch_threads

LONG_RUN = 5_000_000  # steps of the paper's Atari runs


@dataclass(frozen=True)
class SpeedSettings:
    """What is measured.

    :param steps: environment steps of one measurement; None is the task's own number
    :param threads: of torch; None is the task's own number
    :param same_env: whether SB3's DQN gets our Atari environment and buffer, so that only the learners differ
    :param fill: whether the million transitions are really stored
    """

    tasks: tuple[str, ...] = tuple(TASKS)
    algos: tuple[str, ...] = tuple(OURS)
    rounds: int = 5
    steps: int | None = None
    threads: int | None = None
    atari_env: str = TASKS["atari"].env
    same_env: bool = False
    fill: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, values, choices in (("tasks", self.tasks, TASKS), ("algos", self.algos, OURS)):
            for value in values:
                check_choice(name, value, choices)
            if len(set(values)) < max(len(values), 1):
                raise InvalidArgument(
                    f"{name} must be different names, at least one, got {' '.join(values) or 'none'}"
                )
        check_whole_number("rounds", self.rounds, 1)
        check_seed("seed", self.seed)
        for name, low in (("steps", 40), ("threads", 1)):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), low)

    def task(self, name: str) -> Task:
        task = TASKS[name]
        changes: dict[str, Any] = {"env": self.atari_env} if task.is_atari else {}
        changes |= {
            key: getattr(self, key)
            for key in ("steps", "threads")
            if getattr(self, key) is not None
        }
        return replace(task, **changes)


@dataclass(frozen=True)
class TaskResult:
    """One task's tables: a row per measurement, per algorithm, and per algorithm and part of a step."""

    task: Task
    rounds: pd.DataFrame
    summary: pd.DataFrame
    parts: pd.DataFrame


def measure_task(task: Task, settings: SpeedSettings, progress: Progress) -> TaskResult:
    """All models side by side in this process, warmed up, then timed round by round, then taken apart."""
    names = [SB3, *settings.algos]
    bar = progress.add_task(task.name, total=len(names) * (settings.rounds + 2))

    def done(_: object = None) -> None:
        progress.advance(bar)

    with torch_threads(task.threads):
        models = {}
        for name in names:
            models[name] = task.make(name, settings.same_env, settings.seed)
            warm_up(models[name], task.warm_up)
            done()
        peaks = [matrix_product_speed()]
        timed = time_rounds(models, task.steps, settings.rounds, done)
        peaks.append(matrix_product_speed())
        parts = []
        for name, model in models.items():
            milliseconds = time_parts(model, max(task.steps // 4, 40))
            parts += [
                {"task": task.name, "algo": name, "part": part, "ms": ms}
                for part, ms in milliseconds.items()
            ]
            done()
        flops = {name: flops_per_step(model) for name, model in models.items()}
    for model in models.values():
        model.get_env().close()  # type: ignore[union-attr]
    rounds = round_table(task.name, timed)
    return TaskResult(
        task, rounds, summary_table(rounds, flops, max(peaks), task.threads), pd.DataFrame(parts)
    )


def round_table(task: str, timed: Sequence[Round]) -> pd.DataFrame:
    """One row per measurement, with its ratio to SB3's DQN of the same round: above 1 is faster."""
    table = pd.DataFrame(timed)
    table.insert(0, "task", task)
    table["steps_per_s"] = table.steps / table.wall_s
    reference = table[table.algo == SB3].set_index("round")
    per_step = table.wall_s / table.steps, table.cpu_s / table.steps
    for name, mine, clock in zip(("ratio", "cpu_ratio"), per_step, ("wall_s", "cpu_s")):
        table[name] = table["round"].map(reference[clock] / reference.steps) / mine
    return table


def summary_table(
    rounds: pd.DataFrame, flops: dict[str, float], peak: float, threads: int
) -> pd.DataFrame:
    """One row per algorithm: medians over rounds, and what they are of the machine's limit.

    :param flops: of one environment step, by algorithm
    :param peak: floating-point operations a second of a matrix product
    """
    rows = []
    for algo, group in rounds.groupby("algo", sort=False):
        speed, limit = statistics.median(group.steps_per_s), peak / flops[str(algo)]
        row = {
            "task": group.task.iloc[0],
            "algo": algo,
            "threads": threads,
            "rounds": len(group),
            "steps_per_s": speed,
        }
        row |= {
            "ratio": group.ratio.median(),
            "ratio_min": group.ratio.min(),
            "ratio_max": group.ratio.max(),
        }
        row |= {"cpu_ratio": group.cpu_ratio.median(), "mflop_per_step": flops[str(algo)] / 1e6}
        row |= {
            "peak_gflops": peak / 1e9,
            "limit_steps_per_s": limit,
            "share_of_limit": speed / limit,
        }
        rows.append({**row, "hours_5e6": LONG_RUN / speed / 3600})
    return pd.DataFrame(rows)


def run_speed(settings: SpeedSettings, out: str | Path, force: bool = False) -> Path:
    """The whole benchmark: writes rounds.csv, summary.csv, parts.csv, memory.csv and speed.png, prints the tables."""
    for name in settings.tasks:
        settings.task(name).check()
    folder = open_run_folder(out, asdict(settings), force)
    load = round(os.getloadavg()[0], 2)
    console, on = Console(), {**machine(), "load_at_start": load, "torch": str(th.__version__)}
    (folder / "machine.yml").write_text(yaml.safe_dump(on, sort_keys=False), encoding="utf-8")
    if load > 0.5:
        console.print(
            f"[yellow]The machine is busy (load {load}): ratios of threads that wait mean little.[/]"
        )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        results = [measure_task(settings.task(name), settings, progress) for name in settings.tasks]
    memory = footprints(fill_all=settings.fill) if "atari" in settings.tasks else []
    for name in ("rounds", "summary", "parts"):
        pd.concat([getattr(result, name) for result in results]).to_csv(
            folder / f"{name}.csv", index=False
        )
    if memory:
        pd.DataFrame(memory).to_csv(folder / "memory.csv", index=False)
    tables = [(result.rounds, result.summary, result.parts) for result in results]
    save_picture(tables, folder / "speed.png")
    print_report(console, tables, memory)
    console.print(f"written: {folder}", soft_wrap=True, highlight=False)
    return folder
