"""Where the cells of a grid are trained: processes of this machine, or the workers of a Dask cluster."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import OUTPUT, read_status
from sb3_cpp.training.runner import RunFailed, train_run
from sb3_cpp.training.suites import RunConfig

MAX_ATTEMPTS = 4  # a cell whose worker keeps dying is given up, as Dask does
_one_at_a_time = threading.Lock()  # SB3 seeds generators that all threads of a process share


@dataclass
class Cell:
    """One run of a grid. States: waiting, running, finished, failed, interrupted; ``note`` says why."""

    config: RunConfig
    folder: Path
    state: str = "waiting"
    note: str = ""
    attempts: int = 0
    status: dict[str, Any] = field(default_factory=dict)

    def refresh(self) -> None:
        self.status = read_status(self.folder)


class Pool(Protocol):
    """Trains cells; ``poll`` waits a moment and gives those that ended, with their state and a note."""

    def start(self, cells: list[Cell]) -> None: ...

    def poll(self, seconds: float) -> list[tuple[Cell, str, str]]: ...

    def stop(self) -> None: ...


def train_cell(config: RunConfig, root: str) -> tuple[str, str]:
    """Train one cell in a worker; gives its state and a note instead of raising."""
    with _one_at_a_time:
        try:
            outcome = train_run(config, root, show="nothing", n_threads=1)
        except (InvalidArgument, RunFailed) as error:
            return "failed", str(error)
        except OSError as error:
            return "failed", f"{error.strerror or error}"
        except Exception as error:
            return "failed", "".join(traceback.format_exception_only(error)).strip()
        return ("interrupted" if outcome.state == "interrupted" else "finished"), ""


def _child(config: RunConfig, root: str, folder: str, sender: Connection) -> None:
    """A process of the local pool: what the run prints goes to its folder."""
    os.makedirs(folder, exist_ok=True)
    output = os.open(os.path.join(folder, OUTPUT), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sender.send(train_cell(config, root))


class LocalPool:
    """Up to ``jobs`` processes, one per cell, each with one torch thread. A killed process costs only its cell, which is
    started again and goes on from its checkpoint.

    :param root: folder of all runs
    :param jobs: how many at once
    """

    def __init__(self, root: str, jobs: int) -> None:
        self.root, self.jobs = root, jobs
        self._waiting: list[Cell] = []
        self._running: dict[int, tuple[Cell, Any, Connection]] = {}
        self._context: Any = multiprocessing.get_context(
            "forkserver" if sys.platform != "win32" else "spawn"
        )
        if sys.platform != "win32":
            # Imported once, not once a cell; torch loads the second one when it makes an optimiser
            self._context.set_forkserver_preload(["sb3_cpp.training.pools", "torch._dynamo"])

    def start(self, cells: list[Cell]) -> None:
        self._waiting += cells

    def poll(self, seconds: float) -> list[tuple[Cell, str, str]]:
        while self._waiting and len(self._running) < self.jobs:
            self._launch(self._waiting.pop(0))
        wait([process.sentinel for _, process, _ in self._running.values()], timeout=seconds)
        ended = [entry for entry in self._running.values() if not entry[1].is_alive()]
        results = []
        for cell, process, receiver in ended:
            process.join()
            del self._running[process.pid]
            state, note = self._result(receiver, process.exitcode)
            if state == "died" and cell.attempts < MAX_ATTEMPTS:
                cell.state, cell.note = "waiting", note
                self._waiting.insert(0, cell)
            else:
                results.append((cell, "failed" if state == "died" else state, note))
        return results

    @staticmethod
    def _result(receiver: Connection, exit_code: int) -> tuple[str, str]:
        with receiver, contextlib.suppress(EOFError):
            if receiver.poll():
                return receiver.recv()
        return (
            "died",
            f"its process was killed ({signal.Signals(-exit_code).name if exit_code < 0 else f'exit {exit_code}'})",
        )

    def _launch(self, cell: Cell) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_child, args=(cell.config, self.root, str(cell.folder), sender)
        )
        process.start()
        sender.close()
        cell.state, cell.attempts = "running", cell.attempts + 1
        self._running[process.pid] = (cell, process, receiver)

    def stop(self) -> None:
        """Let the running cells save and end."""
        for _, process, _ in self._running.values():
            process.terminate()
        for cell, process, receiver in self._running.values():
            process.join()
            cell.state, cell.note = self._result(receiver, process.exitcode)
            cell.state = "interrupted" if cell.state == "died" else cell.state
        self._running.clear()
        self._waiting.clear()


class DaskPool:
    """The workers of a Dask cluster, which must see the same folder of runs and have this package installed. A worker that
    dies costs only its cell: Dask gives it to another worker, where it goes on from its checkpoint.

    :param root: folder of all runs
    :param address: of the scheduler
    """

    def __init__(self, root: str, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise InvalidArgument(
                "--dask needs a further package: pip install 'sb3_cpp[cluster]'"
            ) from None
        self.root = str(Path(root).resolve())
        try:
            self.client = distributed.Client(address, timeout="10s", set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise InvalidArgument(
                f"no Dask scheduler at {address!r} ({type(error).__name__})"
            ) from None
        self._cells: dict[Any, Cell] = {}

    def start(self, cells: list[Cell]) -> None:
        for cell in cells:
            key = f"{cell.config.algo}-{cell.config.env}-{cell.config.seed}-{id(self):x}-{len(self._cells)}"
            self._cells[
                self.client.submit(train_cell, cell.config, self.root, pure=False, key=key)
            ] = cell

    def poll(self, seconds: float) -> list[tuple[Cell, str, str]]:
        time.sleep(seconds)
        results = []
        for future in [future for future in self._cells if future.done()]:
            cell = self._cells.pop(future)
            if future.status == "finished":
                results.append((cell, *future.result()))
            else:
                results.append((cell, "failed", f"{future.exception()}".splitlines()[0]))
        for cell in self._cells.values():
            if cell.state == "waiting" and cell.status.get("state") == "training":
                cell.state = "running"
        return results

    def stop(self) -> None:
        """Take back the cells that have not begun; those in training go on to their end."""
        self.client.cancel(
            [future for future, cell in self._cells.items() if cell.state == "waiting"]
        )
        self.client.close()
