"""Killing processes while they write a checkpoint: there is always a whole one, and never an older one than announced."""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch as th

from sb3_cpp import DeepCPP
from sb3_cpp.benchmarks.faults import OUTPUT, context, redirect_output
from sb3_cpp.checkpointing import CheckpointStore, store
from sb3_cpp.checks import InvalidArgument


@dataclass(frozen=True)
class WritingOutcome:
    """:param unloadable: kills after which the newest checkpoint was not intact
    :param older: kills after which it was older than the last one announced"""

    kills: int
    unfinished: int
    unloadable: int
    older: int
    first_reason: str = ""

    @property
    def held(self) -> bool:
        return self.unloadable == self.older == 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills while a checkpoint was written ({self.unfinished} left an unfinished one): {self.unloadable} "
            f"without a loadable checkpoint{self.first_reason}, {self.older} with an older one than announced"
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
    """Start a process that writes checkpoints without end, kill it while it writes, look at what is there; again and again."""
    processes, moments = context(), random.Random(seed)
    done = unfinished = older = 0
    reasons: list[str] = []
    duration = 0.05
    while done < kills:
        announced, writing = (
            processes.Value("q", 0, lock=False),
            processes.Value("q", 0, lock=False),
        )
        process = processes.Process(
            daemon=True, target=_write_for_ever, args=(str(folder), announced, writing)
        )
        process.start()
        _wait_for(process, announced, 0)  # its first checkpoint
        for _ in range(moments.randint(0, 2)):
            _wait_for(process, announced, announced.value)
        while not writing.value:
            time.sleep(0.0002)
        began, number = time.monotonic(), announced.value
        delay = moments.uniform(0.0, duration)
        while time.monotonic() - began < delay and announced.value == number:
            time.sleep(0.0002)
        if announced.value != number:  # written faster than expected
            duration = 0.8 * duration + 0.2 * (time.monotonic() - began)
        process.kill()
        process.join()
        if not writing.value:
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
    return WritingOutcome(
        done, unfinished, len(reasons), older, f" ({reasons[0]})" if reasons else ""
    )


def _wait_for(process: Any, announced: Any, value: int) -> None:
    while announced.value == value:
        if not process.is_alive():
            raise RuntimeError(
                f"the process that writes checkpoints ended by itself, see {OUTPUT} beside them"
            )
        time.sleep(0.0005)
