"""A grid on the console: one live table on a terminal, a line per event elsewhere."""

import time
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from sb3_cpp.training.pools import Cell

_MAX_ROWS = 30
_COLOURS = {"finished": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}


def live_table(cells: list[Cell]) -> Table:
    """A row per cell, those in work first; what does not fit is counted."""
    order = ("running", "failed", "interrupted", "waiting", "finished")
    counts = {state: len([cell for cell in cells if cell.state == state]) for state in order}
    table = Table(title=", ".join(f"{count} {state}" for state, count in counts.items() if count))
    for column in ("algo", "env", "seed", "state", "steps", "return", "zeta", "steps/s"):
        table.add_column(column, justify="left" if column in ("algo", "env", "state") else "right")
    shown = (
        cells
        if len(cells) <= _MAX_ROWS
        else sorted(cells, key=lambda cell: order.index(cell.state))[:_MAX_ROWS]
    )
    for cell in shown:
        config, status = cell.config, cell.status
        colour = _COLOURS.get(cell.state, "white")
        share = f"{min(status.get('timesteps', 0) / config.n_timesteps, 1.0):.0%}" if status else ""
        numbers = [
            _number(status.get("return"), ".1f"),
            _number(status.get("zeta"), ".3g"),
            _number(status.get("speed"), ".0f"),
        ]
        table.add_row(
            config.algo, config.env, str(config.seed), f"[{colour}]{cell.state}[/]", share, *numbers
        )
    if len(shown) < len(cells):
        table.caption = f"and {len(cells) - len(shown)} more"
    return table


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def final_table(cells: list[Cell]) -> None:
    """Mean return of the last evaluation over the seeds, per environment and algorithm."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.config.env, cell.config.algo), []).append(cell)
    table = Table(title="return of the last evaluation, mean ± standard deviation over seeds")
    for column in ("env", "algo", "seeds", "return"):
        table.add_column(column, justify="right" if column in ("seeds", "return") else "left")
    for (env, algo), group in groups.items():
        returns = [
            cell.status["return"]
            for cell in group
            if cell.state == "finished" and cell.status.get("return") is not None
        ]
        spread = f" ± {np.std(returns, ddof=1):.1f}" if len(returns) > 1 else ""
        finished = len([cell for cell in group if cell.state == "finished"])
        table.add_row(
            env,
            algo,
            f"{finished}/{len(group)}",
            f"{np.mean(returns):.1f}{spread}" if returns else "-",
        )
    Console().print(table)


class GridDisplay:
    """Shows the cells while it is entered."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells = cells
        self._states = {id(cell): (cell.state, cell.attempts) for cell in cells}
        console = Console()
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
                note = f" ({cell.note})" if cell.note else ""
                print(
                    f"{time.strftime('%H:%M:%S')} {cell.config.name()}: {cell.state}{note}",
                    flush=True,
                )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
