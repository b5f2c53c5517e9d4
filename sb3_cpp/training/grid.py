"""The command behind scripts/benchmark.py: many runs, each cell of the grid trained once."""

import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from sb3_cpp.checks import InvalidArgument, check_number, suggestion
from sb3_cpp.run_folder import FAILURE, is_finished
from sb3_cpp.training.algorithms import check_values
from sb3_cpp.training.existing_run import check_folder
from sb3_cpp.training.grid_display import GridDisplay, final_table
from sb3_cpp.training.pools import Cell, DaskPool, LocalPool, Pool
from sb3_cpp.training.runner import make_model, make_run_environment
from sb3_cpp.training.suites import RunConfig, Suite, load_suite, parse_overrides


def benchmark(
    suite: str,
    *,
    algos: Sequence[str] = (),
    envs: Sequence[str] = (),
    seeds: int = 3,
    first_seed: int = 0,
    n_timesteps: int | None = None,
    params: Sequence[str] = (),
    jobs: int = 1,
    dask: str | None = None,
    retry: bool = False,
    root: str = "runs",
) -> int:
    """Train all cells of a grid that are not finished; returns the exit code of the script."""
    overrides = parse_overrides(list(params), {"n_timesteps": n_timesteps})
    check_number("--seeds", seeds, 1)
    check_number("--jobs", jobs, 1)
    cells = plan(
        load_suite(suite), algos, envs, range(first_seed, first_seed + seeds), overrides, root
    )
    waiting = settle(cells, retry)
    done = len([cell for cell in cells if cell.state == "finished"])
    print(f"{len(cells)} cells: {done} finished before, {len(waiting)} to train", flush=True)
    if waiting:
        check_buildable([cell.config for cell in waiting])
        pool: Pool = LocalPool(root, jobs) if dask is None else DaskPool(root, dask)
        if not run_grid(cells, waiting, pool):
            print(
                f"stopped; to go on, run the same command again:\n  {shlex.join([Path(sys.executable).name, *sys.argv])}"
            )
            return 130
    return conclude(cells)


def plan(
    suite: Suite,
    algos: Sequence[str],
    envs: Sequence[str],
    seeds: Sequence[int],
    overrides: dict,
    root: str | Path,
) -> list[Cell]:
    """The cells of a grid; without a choice all algorithms and environments of the suite."""
    for env in envs:
        if env not in suite.envs:
            raise InvalidArgument(
                f"suite {suite.name} has no environment {env!r}{suggestion(env, suite.envs)}"
            )
    cells = []
    for env in dict.fromkeys(envs or suite.envs):
        for algo in dict.fromkeys(algos or suite.algos):
            for seed in seeds:
                config = suite.run_config(algo, env, seed, overrides)
                cells.append(Cell(config, config.folder(root)))
    if not cells:
        raise InvalidArgument(
            f"suite {suite.name} has no {'algos' if suite.envs else 'envs'}, so there is nothing to train"
        )
    return cells


def settle(cells: list[Cell], retry: bool) -> list[Cell]:
    """Mark what is finished or has failed before; gives the cells to train. A folder of another run is refused."""
    waiting = []
    for cell in cells:
        check_folder(cell.folder, cell.config)
        cell.refresh()
        if is_finished(cell.folder):
            cell.state = "finished"
        elif (cell.folder / FAILURE).is_file() and not retry:
            cell.state, cell.note = "failed", cell.status.get("error", "")
        else:
            waiting.append(cell)
    return waiting


def check_buildable(configs: list[RunConfig]) -> None:
    """Build every environment and model once, so that a mistake shows before anything is trained."""
    for config in {(config.algo, config.env): config for config in configs}.values():
        check_values(config.hyperparameters)
        small = {key: 1 for key in ("buffer_size",) if key in config.hyperparameters}
        env = make_run_environment(config)
        try:
            make_model(replace(config, hyperparameters={**config.hyperparameters, **small}), env)
        finally:
            env.close()


def run_grid(cells: list[Cell], waiting: list[Cell], pool: Pool) -> bool:
    """Train the waiting cells while showing all of them; False if it was interrupted."""
    former = signal.signal(signal.SIGTERM, _interrupt)
    open_cells = {id(cell) for cell in waiting}
    try:
        with GridDisplay(cells) as display:
            pool.start(waiting)
            while open_cells:
                for cell, state, note in pool.poll(0.5):
                    cell.state, cell.note = state, note
                    open_cells.discard(id(cell))
                for cell in cells:
                    if id(cell) in open_cells or cell.state == "finished":
                        cell.refresh()
                display.update()
        return True
    except KeyboardInterrupt:
        return False
    finally:
        pool.stop()
        signal.signal(signal.SIGTERM, former)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def conclude(cells: list[Cell]) -> int:
    """Print the results; 1 if a cell failed."""
    final_table(cells)
    failed = [cell for cell in cells if cell.state == "failed"]
    for cell in failed:
        log = cell.folder / FAILURE
        print(
            f"failed: {cell.config.name()}: {cell.note}{f' (log: {log})' if log.is_file() else ''}",
            file=sys.stderr,
        )
    if failed:
        print("to train the failed cells again, add --retry", file=sys.stderr)
    return 1 if failed else 0
