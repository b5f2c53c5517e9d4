"""`sb3-cpp benchmark`: train a grid of runs, one cell per algorithm, environment and seed."""

import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Protocol

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from sb3_cpp.checks import InvalidArgument, check_number, require, suggestion
from sb3_cpp.run_folder import (
    FAILURE,
    WITHOUT_EFFECT,
    command_line,
    is_finished,
    settings_differences,
)
from sb3_cpp.training.algorithms import check_values, get_algorithm
from sb3_cpp.training.pools import Cell, DaskPool, LocalPool, Pool
from sb3_cpp.training.run import check_folder, make_model, make_run_environment, settings_of
from sb3_cpp.training.suites import (
    DEFAULTS,
    RunConfig,
    Suite,
    load_suite,
    note_unlisted,
    parse_overrides,
)

_MAX_ROWS = 30
_COLOURS = {"finished": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}


def benchmark(
    suite: str,
    *,
    algos: Sequence[str] = (),
    envs: Sequence[str] = (),
    seeds: int = 3,
    first_seed: int = 0,
    n_timesteps: int | None = None,
    params: Sequence[str] = (),
    gym_packages: Sequence[str] = (),
    jobs: int = 1,
    dask: str | None = None,
    retry: bool = False,
    published: str | None = None,
    root: str = "runs",
) -> int:
    """Train all cells of a grid that are not finished; returns the exit code of the command.

    :param suite: name or file of a suite
    :param algos: algorithms; none for all of the suite
    :param envs: environments; none for all of the suite
    :param seeds: number of seeds
    :param first_seed: the first of them
    :param n_timesteps: steps of each run, if not the suite's
    :param params: ``key:value`` overrides
    :param gym_packages: packages that register environments
    :param jobs: processes on this machine
    :param dask: address of a Dask scheduler to train on instead
    :param retry: train failed cells again
    :param published: folder of ``sb3-cpp results``; the runs that it holds are not trained again
    :param root: folder of all runs
    """
    given = {"n_timesteps": n_timesteps, "gym_packages": list(gym_packages) or None}
    overrides = parse_overrides(list(params), given)
    check_number("--seeds", seeds, 1)
    check_number("--jobs", jobs, 1)
    chosen = load_suite(suite)
    cells = make_cells(chosen, algos, envs, range(first_seed, first_seed + seeds), overrides, root)
    if published is not None:
        cells = leave_out_published(cells, published)
    waiting = select_unfinished(cells, retry)
    for env in dict.fromkeys(envs):
        note_unlisted(chosen, env)
    done = sum(cell.state == "finished" for cell in cells)
    print(f"{len(cells)} cells: {done} finished before, {len(waiting)} to train", flush=True)
    if waiting:
        check_buildable([cell.config for cell in waiting])
        pool: Pool = LocalPool(root, jobs) if dask is None else DaskPool(root, dask)
        if not run_cells(cells, waiting, pool):
            print(f"stopped; to go on, run the same command again:\n  {command_line()}")
            return 130
    return report_outcome(cells)


def make_cells(
    suite: Suite,
    algos: Sequence[str],
    envs: Sequence[str],
    seeds: Sequence[int],
    overrides: dict,
    root: str | Path,
) -> list[Cell]:
    """The cells of a grid, seed by seed: a grid that is stopped early has every algorithm."""
    for env in envs:
        if ":" in env or "gym_packages" in overrides:  # somebody's own, which no suite knows
            suite.check_environment(env, overrides)
        elif env not in suite.envs:
            raise InvalidArgument(
                f"suite {suite.name} has no environment {env!r}{suggestion(env, suite.envs)}"
            )
    cells = []
    for seed in seeds:
        for env in dict.fromkeys(envs or suite.envs):
            for algo in dict.fromkeys(algos or suite.algos):
                config = suite.run_config(algo, env, seed, overrides)
                cells.append(Cell(config, config.folder(root)))
    if not cells:
        missing = "algos" if suite.envs else "envs"
        raise InvalidArgument(f"suite {suite.name} has no {missing}, so there is nothing to train")
    return cells


def leave_out_published(cells: list[Cell], folder: str) -> list[Cell]:
    """The cells of which these results have no finished run; says how many they have."""
    require("analysis", "pandas")
    from sb3_cpp.analysis.results import load_results

    results = load_results(folder)
    finished = results.runs[results.runs.state == "finished"]
    known = set(finished[["suite", "task", "algo", "seed"]].itertuples(index=False, name=None))
    settings = {
        (entry["suite"], entry["task"], entry["algo"], seed): entry
        for entry in results.configs
        for seed in entry["seeds"]
    }
    missing = []
    for cell in cells:
        config = cell.config
        key = (config.suite, config.env, config.algo, config.seed)
        if key not in known:
            missing.append(cell)
        elif differences := differences_from_published(config, settings.get(key)):
            raise InvalidArgument(
                f"{folder} has {config.name()} with other settings "
                f"({'; '.join(differences[:3])}); name results with these, or none"
            )
    print(f"{folder} has {len(cells) - len(missing)} of {len(cells)} cells", flush=True)
    return missing


def differences_from_published(config: RunConfig, entry: dict | None) -> list[str]:
    """How settings differ from those of published results, as far as numbers depend on them."""
    if entry is None:
        return []
    own = config.plain()
    names = {name: own[name] for name in ("suite", "algo", "env", "seed")}
    stored = {**entry, "config": {**DEFAULTS, **entry["config"], **names}}
    return settings_differences(stored, settings_of(config), WITHOUT_EFFECT)


def select_unfinished(cells: list[Cell], retry: bool) -> list[Cell]:
    """Set the state of finished and failed cells; returns the others, and failed ones to retry."""
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
    """Build every environment and model, so that a mistake shows before anything is trained."""
    for config in {(config.algo, config.env): config for config in configs}.values():
        check_values(config.hyperparameters, get_algorithm(config.algorithm))
        # A replay buffer of its true size would take gigabytes
        small = {"buffer_size": 1} if "buffer_size" in config.hyperparameters else {}
        env = make_run_environment(config)
        try:
            make_model(replace(config, hyperparameters={**config.hyperparameters, **small}), env)
        finally:
            env.close()


def run_cells(
    cells: list[Cell], waiting: list[Cell], pool: Pool, display: "Display | None" = None
) -> bool:
    """Train the waiting cells and show all of them; False if interrupted.

    :param display: by default a :class:`GridDisplay`
    """
    # Schedulers and shells stop a process by SIGTERM: let the workers save, as after Ctrl-C
    former = signal.signal(signal.SIGTERM, _interrupt)
    unfinished = {id(cell) for cell in waiting}
    try:
        with display or GridDisplay(cells) as shown:
            pool.start(waiting)
            while unfinished:
                for cell, state, note in pool.poll(0.5):
                    cell.state, cell.note = state, note
                    unfinished.discard(id(cell))
                # A cell that has just finished is read once more, for its last evaluation
                for cell in cells:
                    if id(cell) in unfinished or cell.state == "finished":
                        cell.refresh()
                shown.update()
        return True
    except KeyboardInterrupt:
        return False
    finally:
        pool.stop()
        signal.signal(signal.SIGTERM, former)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def report_outcome(cells: list[Cell]) -> int:
    """Print the results and what is not finished; returns 1 if a cell is not."""
    print_returns(cells)
    unfinished = [cell for cell in cells if cell.state != "finished"]
    logged = [cell for cell in unfinished if (cell.folder / FAILURE).is_file()]
    for cell in unfinished:
        log = f" (log: {cell.folder / FAILURE})" if cell in logged else ""
        print(f"{cell.state}: {cell.config.name()}: {cell.note}{log}", file=sys.stderr)
    if len(logged) < len(unfinished):
        print(f"to go on, run the same command again:\n  {command_line()}", file=sys.stderr)
    if logged:  # a run that raised an error would probably do so again
        print("to train the failed cells again, add --retry", file=sys.stderr)
    return 1 if unfinished else 0


def print_returns(cells: list[Cell]) -> None:
    """Mean return of the last evaluation over the seeds, per environment and algorithm."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.config.env, cell.config.algo), []).append(cell)
    table = Table(title="return of the last evaluation, mean ± standard deviation over seeds")
    for column in ("env", "algo", "seeds", "return"):
        table.add_column(column, justify="right" if column in ("seeds", "return") else "left")
    for (env, algo), group in groups.items():
        finished = [cell for cell in group if cell.state == "finished"]
        returns = [
            cell.status["return"] for cell in finished if cell.status.get("return") is not None
        ]
        spread = f" ± {np.std(returns, ddof=1):.1f}" if len(returns) > 1 else ""
        value = f"{np.mean(returns):.1f}{spread}" if returns else "-"
        table.add_row(env, algo, f"{len(finished)}/{len(group)}", value)
    Console().print(table)


class Display(Protocol):
    """Shows cells until it is left."""

    def __enter__(self) -> "Display": ...

    def update(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class GridDisplay:
    """The cells on the console: a live table on a terminal, a line per event elsewhere."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = cells
        self._states = {id(cell): (cell.state, cell.attempts) for cell in cells}
        console = Console()
        # A log file gets no control characters
        self._live = (
            Live(live_table(cells), console=console, refresh_per_second=2)
            if console.is_terminal
            else None
        )

    def __enter__(self) -> "GridDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def update(self) -> None:
        if self._live is not None:
            self._live.update(live_table(self.cells))
            return
        for cell in self.cells:
            if (cell.state, cell.attempts) != self._states[id(cell)]:
                self._states[id(cell)] = (cell.state, cell.attempts)
                event = cell.state + (f" ({cell.note})" if cell.note else "")
                print(f"{time.strftime('%H:%M:%S')} {cell.config.name()}: {event}", flush=True)

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


def live_table(cells: list[Cell]) -> Table:
    """A row per cell, running ones first; cells that do not fit are counted."""
    order = ("running", "failed", "interrupted", "waiting", "finished")
    counts = {state: sum(cell.state == state for cell in cells) for state in order}
    table = Table(title=", ".join(f"{count} {state}" for state, count in counts.items() if count))
    for column in ("algo", "env", "seed", "state", "steps", "return", "zeta", "steps/s"):
        table.add_column(column, justify="left" if column in ("algo", "env", "state") else "right")
    shown = cells
    if len(cells) > _MAX_ROWS:
        shown = sorted(cells, key=lambda cell: order.index(cell.state))[:_MAX_ROWS]
        table.caption = f"and {len(cells) - len(shown)} more"
    for cell in shown:
        config, status = cell.config, cell.status
        state = f"[{_COLOURS.get(cell.state, 'white')}]{cell.state}[/]"
        share = f"{min(status.get('timesteps', 0) / config.n_timesteps, 1.0):.0%}" if status else ""
        numbers = [
            "" if status.get(name) is None else format(status[name], form)
            for name, form in (("return", ".1f"), ("zeta", ".3g"), ("speed", ".0f"))
        ]
        table.add_row(config.algo, config.env, str(config.seed), state, share, *numbers)
    return table
