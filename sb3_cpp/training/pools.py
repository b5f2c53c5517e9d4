"""Where the cells of a grid are trained: processes of this machine, or a Dask cluster."""

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
from sb3_cpp.run_folder import OUTPUT, is_finished, read_evaluations, read_status
from sb3_cpp.training.run import RunFailed, RunLocked, train_run
from sb3_cpp.training.suites import RunConfig

MAX_ATTEMPTS = 4  # for a cell whose worker keeps dying; Dask's number
_train_lock = threading.Lock()  # SB3 seeds generators that all threads of a process share


@dataclass
class Cell:
    """One run of a grid.

    :param state: waiting, running, finished, failed or interrupted
    :param note: the reason
    :param attempts: how often it was started
    :param status: content of its status.json
    """

    config: RunConfig
    folder: Path
    state: str = "waiting"
    note: str = ""
    attempts: int = 0
    status: dict[str, Any] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the status. Of a finished run, the return is that of its last evaluation: a process
        that died just after it had written the model leaves an older status."""
        self.status = read_status(self.folder)
        if is_finished(self.folder):
            with contextlib.suppress(InvalidArgument):
                if saved := read_evaluations(self.folder):
                    self.status["return"] = float(saved["results"][-1].mean())
            self.status["timesteps"] = self.config.n_timesteps


class Pool(Protocol):
    """Trains cells; ``poll`` waits a moment and returns those that ended, with state and note."""

    def start(self, cells: list[Cell]) -> None: ...

    def poll(self, seconds: float) -> list[tuple[Cell, str, str]]: ...

    def stop(self) -> None: ...


def train_cell(config: RunConfig, root: str) -> tuple[str, str]:
    """Train one cell in a worker; returns its state and a note instead of raising."""
    with _train_lock:
        try:
            outcome = train_run(config, root, show="nothing", n_threads=1)
        except RunLocked as error:
            return "interrupted", str(error)
        except (InvalidArgument, RunFailed) as error:
            return "failed", str(error)
        except OSError as error:
            return "failed", f"{error.strerror or error}"
        except Exception as error:
            return "failed", "".join(traceback.format_exception_only(error)).strip()
        if outcome.state == "interrupted":
            return "interrupted", f"stopped and saved at step {outcome.timesteps:,}"
        return "finished", ""


def _work(config: RunConfig, root: str, folder: str, sender: Connection) -> None:
    """A worker process of the local pool; its output goes to the cell's folder."""
    os.makedirs(folder, exist_ok=True)
    output = os.open(os.path.join(folder, OUTPUT), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # The file descriptors, because libraries in C print, too
    os.dup2(output, 1)
    os.dup2(output, 2)
    result = train_cell(config, root)
    with contextlib.suppress(BrokenPipeError):  # the grid is dead; the run is on the disk
        sender.send(result)


class LocalPool:
    """Up to ``jobs`` processes, one per cell, each with one torch thread. The cell of a killed
    process is started again and resumes from its checkpoint.

    :param root: folder of all runs
    :param jobs: number of processes at a time
    """

    def __init__(self, root: str, jobs: int) -> None:
        self.root, self.jobs = root, jobs
        self._waiting: list[Cell] = []
        self._running: dict[int, tuple[Cell, Any, Connection]] = {}
        method = "forkserver" if sys.platform != "win32" else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            # Import once, not once per cell; torch imports _dynamo when it makes an optimiser
            self._context.set_forkserver_preload([__name__, "torch._dynamo"])

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
                self._waiting.insert(0, cell)  # before cells that have not begun
            else:
                results.append((cell, "failed" if state == "died" else state, note))
        return results

    @staticmethod
    def _result(receiver: Connection, exit_code: int) -> tuple[str, str]:
        with receiver, contextlib.suppress(EOFError):
            if receiver.poll():
                return receiver.recv()
        cause = signal.Signals(-exit_code).name if exit_code < 0 else f"exit {exit_code}"
        return "died", f"its process was killed ({cause})"

    def _launch(self, cell: Cell) -> None:
        receiver, sender = self._context.Pipe(duplex=False)
        arguments = (cell.config, self.root, str(cell.folder), sender)
        process = self._context.Process(target=_work, args=arguments)
        process.start()
        sender.close()  # the worker holds the only other end: if it dies, the pipe ends
        cell.state, cell.attempts = "running", cell.attempts + 1
        self._running[process.pid] = (cell, process, receiver)

    def stop(self) -> None:
        """Let the running cells save and end."""
        for _, process, _ in self._running.values():
            process.terminate()
        for cell, process, receiver in self._running.values():
            process.join()
            state, cell.note = self._result(receiver, process.exitcode)
            cell.state = "interrupted" if state == "died" else state
        self._running.clear()
        self._waiting.clear()


class DaskPool:
    """The workers of a Dask cluster, which must see the same folder of runs and have this package
    installed. Dask gives the cell of a dead worker to another one, where it resumes.

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
            config = cell.config
            name = f"{config.algo}-{config.env}-{config.seed}"
            # Unique: for a known key, Dask returns the result of an earlier grid
            key = f"{name}-{id(self):x}-{len(self._cells)}"
            future = self.client.submit(train_cell, config, self.root, pure=False, key=key)
            self._cells[future] = cell

    def poll(self, seconds: float) -> list[tuple[Cell, str, str]]:
        time.sleep(seconds)
        results = []
        for future in [future for future in self._cells if future.done()]:
            cell = self._cells.pop(future)
            if future.status == "finished":
                results.append((cell, *future.result()))
            else:
                results.append((cell, "failed", f"{future.exception()}".splitlines()[0]))
        # Dask does not tell a client what runs; the run's folder does
        for cell in self._cells.values():
            if cell.state == "waiting" and cell.status.get("state") == "training":
                cell.state = "running"
        return results

    def stop(self) -> None:
        """Cancel the cells that have not begun; those in training run to their end."""
        waiting = [future for future, cell in self._cells.items() if cell.state == "waiting"]
        self.client.cancel(waiting)
        self.client.close()
