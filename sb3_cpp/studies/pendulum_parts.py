"""The trials of the pendulum study in parts, each learned by a process of its own."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch as th

from sb3_cpp.linear.features import SingularEquations
from sb3_cpp.linear.rollout import BadObservation
from sb3_cpp.studies.pendulum_study import PendulumSettings, Record, drive, is_upright, learn

STOPPED = "stopped"


class Part(NamedTuple):
    """Some of the trials of one algorithm."""

    algo: str
    number: int
    """0 for the first trials, 1 for those after them, ..."""


@dataclass
class Learned:
    """What came of a part: with an error, what was seen until then."""

    part: Part
    record: Record
    error: str = ""


_shared: Any = None
"""In a worker: the iteration each part has reached, and whether all should stop."""


def _enter_worker(reached: Any, stop: Any) -> None:
    global _shared
    _shared = reached, stop
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the parent, which stops everyone after their iteration
    th.set_num_threads(
        1
    )  # with small tables, more of them only wait for each other (7 times longer if busy)


def _learn_part(settings: PendulumSettings, part: Part, place: int) -> Learned:
    reached, stop = _shared
    record = Record(part.algo)
    try:
        for K in learn(settings, part.algo, record, part.number):
            reached[place] = K
            if stop.is_set():
                return Learned(part, record, STOPPED)
    except (BadObservation, SingularEquations) as error:
        return Learned(part, record, str(error))
    record.solved_greedily = is_upright(drive(settings, record.preferences)).numpy()
    return Learned(part, record)


class Learners:
    """The processes; ``follow`` gives each part when it is learned.

    :param settings: of the study
    :param jobs: processes at once
    """

    def __init__(self, settings: PendulumSettings, jobs: int | None = None) -> None:
        self.parts = [
            Part(algo, number)
            for algo in settings.algos
            for number in range(len(settings.part_sizes))
        ]
        context = multiprocessing.get_context(
            "fork" if sys.platform == "linux" else "spawn"
        )  # a fork starts at once
        self.reached = context.Array("i", len(self.parts))
        self.stop = context.Event()
        workers = min(jobs or os.cpu_count() or 1, len(self.parts))
        self.pool = ProcessPoolExecutor(workers, context, _enter_worker, (self.reached, self.stop))
        self.futures = [
            self.pool.submit(_learn_part, settings, part, i) for i, part in enumerate(self.parts)
        ]

    def progress(self, algo: str) -> int:
        """Iterations that an algorithm has finished, summed over its parts."""
        return sum(self.reached[i] for i, part in enumerate(self.parts) if part.algo == algo)

    def follow(self, on_moment: Callable[[], None]) -> Iterator[Learned]:
        """The parts in the order in which they end; ``on_moment`` is called several times a second."""
        waiting = set(self.futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.1, return_when="FIRST_COMPLETED")
            on_moment()
            yield from (future.result() for future in done)

    def finish_early(self) -> Iterator[Learned]:
        """Stop every part after its iteration and give what it learned."""
        self.stop.set()
        started = [future for future in self.futures if not future.cancel()]
        yield from (future.result() for future in started)


@contextmanager
def learners(settings: PendulumSettings, jobs: int | None = None) -> Iterator[Learners]:
    """The processes, ended whatever happens."""
    team = Learners(settings, jobs)
    try:
        yield team
    finally:
        team.stop.set()
        team.pool.shutdown(cancel_futures=True)
