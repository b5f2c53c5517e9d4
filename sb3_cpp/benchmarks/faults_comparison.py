"""Whether two runs ended with the same numbers, to the bit; the clock is the only thing that may differ."""

import csv
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import torch as th
from stable_baselines3.common.save_util import load_from_zip_file

from sb3_cpp import run_folder
from sb3_cpp.checkpointing import manifest, store
from sb3_cpp.training.run import find_checkpoint

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
    "caution",
)


def differences(one: Path, two: Path) -> list[str]:
    """What differs between two finished runs: weights, optimiser, counters, buffer, generators, CSV rows, evaluations."""
    found = _model_differences(one / run_folder.MODEL, two / run_folder.MODEL)
    best = [
        load_from_zip_file(run / run_folder.BEST_MODEL)[1]
        if (run / run_folder.BEST_MODEL).is_file()
        else None
        for run in (one, two)
    ]
    if not same(*best):
        found.append(f"{run_folder.BEST_MODEL} has other weights")
    checkpoints = [find_checkpoint(run) for run in (one, two)]
    if None in checkpoints:
        found.append("a run has no checkpoint")
    else:
        found += _checkpoint_differences(*checkpoints)  # type: ignore[arg-type]
    for name, clocks in CLOCKS.items():
        if _rows(one / name, clocks) != _rows(two / name, clocks):
            found.append(f"{name} has other rows")
    evaluations = [_evaluations(run / run_folder.EVALUATIONS) for run in (one, two)]
    if not same(*evaluations):
        found.append(f"{run_folder.EVALUATIONS} has other results")
    return found


def _model_differences(one: Path, two: Path) -> list[str]:
    (data, params, _), (other_data, other_params, _) = (
        load_from_zip_file(path) for path in (one, two)
    )
    assert data is not None
    assert other_data is not None
    found = [] if same(params, other_params) else ["weights or optimiser differ"]
    values = [
        {name: _plain(content.get(name)) for name in _COUNTERS} for content in (data, other_data)
    ]
    return found + [
        f"{name} differs" for name in _COUNTERS if not same(values[0][name], values[1][name])
    ]


def _plain(value: Any) -> Any:
    """Objects as their attributes."""
    if hasattr(value, "__dict__") and not isinstance(value, th.Tensor):
        return {name: _plain(entry) for name, entry in vars(value).items()}
    return value


def _checkpoint_differences(one: Path, two: Path) -> list[str]:
    contents = [manifest.read(entry) for entry in (one, two)]
    states = [cloudpickle.loads((entry / store.STATE).read_bytes()) for entry in (one, two)]
    found = []
    buffers = [
        {
            name: (array["rows"], [block[3] for block in array["blocks"]])
            for name, array in content["arrays"].items()
        }
        for content in contents
    ]
    if buffers[0] != buffers[1]:
        found.append("the replay buffer differs")
    if not same(states[0]["random"], states[1]["random"]):
        found.append("a random generator is in another state")
    if not same(states[0]["last_obs"], states[1]["last_obs"]):
        found.append("the environment is in another state")
    return found


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
        return (
            one.dtype == two.dtype
            and one.shape == two.shape
            and same(one.cpu().numpy(), two.cpu().numpy())
        )
    if isinstance(one, np.ndarray) and isinstance(two, np.ndarray):
        kind = one.dtype.kind
        return one.dtype == two.dtype and np.array_equal(one, two, equal_nan=kind in "fc")
    return bool(one == two) or (one != one and two != two)
