"""The demo: DQN and CautiousMDQN beside each other on CartPole-v1, one process each."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_cpp.checks import require
from sb3_cpp.run_folder import FAILURE, read_evaluations
from sb3_cpp.threads import torch_threads
from sb3_cpp.training.enjoy import load_run
from sb3_cpp.training.environments import make_environment
from sb3_cpp.training.grid import make_cells, run_cells, select_unfinished
from sb3_cpp.training.pools import Cell, LocalPool
from sb3_cpp.training.suites import load_suite

NAMES = {"dqn": "DQN", "cmdqn": "CautiousMDQN"}
ENV = "CartPole-v1"


def demo(seed: int = 3, root: str | Path = "runs", n_timesteps: int = 40_000) -> int:
    """Train both, evaluate them, draw them; returns the exit code.

    The settings are those of the classic suite with fewer steps, so the runs are a suite of their
    own, ``demo``: single runs of another length do not belong among those of a benchmark.

    :param seed: of both runs
    :param root: folder of all runs; picture and report go to ``demo`` inside it
    :param n_timesteps: steps of each run
    """
    require("analysis", "matplotlib", "pandas", "scipy")  # before a minute of training
    suite, overrides = replace(load_suite("classic"), name="demo"), {"n_timesteps": n_timesteps}
    cells = make_cells(suite, list(NAMES), [ENV], [seed], overrides, root)
    waiting = select_unfinished(cells, retry=True)
    print(f"{' and '.join(NAMES.values())} on {ENV}, {n_timesteps:,} steps each", flush=True)
    for cell in cells:
        again = "" if cell in waiting else " (trained before; remove it to train again)"
        print(f"  {cell.folder}{again}", flush=True)
    if waiting:
        pool = LocalPool(str(root), jobs=len(NAMES))
        if not run_cells(cells, waiting, pool, DemoDisplay(cells)):
            print("stopped and saved; run the same command to resume")
            return 130
    failed = [cell for cell in cells if cell.state != "finished"]
    for cell in failed:
        log = cell.folder / FAILURE
        print(f"{cell.state}: {cell.config.name()}: {cell.note} (log: {log})", file=sys.stderr)
    if failed:
        return 1
    for cell in cells:
        print_evaluation(cell)
    draw(cells, Path(root) / suite.name)
    print("One seed shows what falls are, not who falls less: that needs sb3-cpp benchmark --seeds")
    return 0


def print_evaluation(cell: Cell, n_episodes: int = 20) -> None:
    """The last and the best model on fresh episodes, all at once."""
    returns = []
    for best in (False, True):
        _, model = load_run(cell.folder, best)
        seed = 10_000 + cell.config.seed
        env = make_environment(ENV, n_episodes, seed=seed, training=False)
        with torch_threads(1):
            mean, spread = evaluate_policy(model, env, n_episodes)
        env.close()
        returns.append(f"{mean:.1f} ± {spread:.1f}")
    print(
        f"{NAMES[cell.config.algo]}: last model {returns[0]}, best model {returns[1]} over "
        f"{n_episodes} fresh episodes (500 is perfect)"
    )


def draw(cells: Sequence[Cell], folder: Path) -> None:
    """Picture and report page of both runs, in place of earlier ones."""
    from sb3_cpp.analysis.figures_falls import falls
    from sb3_cpp.analysis.report import report_page
    from sb3_cpp.analysis.results import load_results
    from sb3_cpp.analysis.style import save_figure
    from sb3_cpp.files import write_text
    from sb3_cpp.run_folder import command_line

    results = load_results(*(cell.folder for cell in cells))
    folder.mkdir(parents=True, exist_ok=True)
    picture = falls(results, zeta=True).figure
    assert picture is not None
    print(f"picture (falls in red): {save_figure(picture, folder / 'falls.png')}")
    title = f"{' and '.join(NAMES.values())} on {ENV}, seed {cells[0].config.seed}"
    page = folder / "report.html"
    write_text(page, report_page(results, title, command=command_line()))
    print(f"report: {page}")


class DemoDisplay:
    """A bar per run with its last return and zeta; lines where there is no terminal."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        console = Console()
        self.cells = cells
        self._quarters = {id(cell): 0 for cell in cells}
        self._bars: Progress | None = None
        if console.is_terminal:
            name, words = TextColumn("{task.description:<12}"), TextColumn("{task.fields[words]}")
            columns = (name, BarColumn(), MofNCompleteColumn(), words, TimeElapsedColumn())
            self._bars = Progress(*columns, console=console)
            self._tasks = {
                id(cell): self._bars.add_task(
                    NAMES[cell.config.algo], total=cell.config.n_timesteps, words=""
                )
                for cell in cells
            }

    def __enter__(self) -> "DemoDisplay":
        if self._bars is not None:
            self._bars.start()
        return self

    def update(self) -> None:
        for cell in self.cells:
            done = cell.status.get("timesteps", 0)
            if self._bars is not None:
                task = self._tasks[id(cell)]
                self._bars.update(task, completed=done, words=describe(cell))
            elif (quarter := 4 * done // cell.config.n_timesteps) > self._quarters[id(cell)]:
                self._quarters[id(cell)] = quarter
                name = NAMES[cell.config.algo]
                print(f"{time.strftime('%H:%M:%S')} {name}: {done:,} steps, {describe(cell)}")

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()


def describe(cell: Cell) -> str:
    """As in ``return 412.0  zeta 0.08``: the last evaluation, and the mixing coefficient."""
    saved = read_evaluations(cell.folder)
    words = f"return {saved['results'][-1].mean():5.1f}" if saved else "return     -"
    zeta = cell.status.get("zeta")
    return words if zeta is None else f"{words}  zeta {zeta:.3f}"
