"""The random generators a run draws from, beside those of its environments: python's, numpy's, torch's."""

import random
from typing import Any

import numpy as np
import torch as th


def capture() -> dict[str, Any]:
    cuda = th.cuda.get_rng_state_all() if th.cuda.is_available() else None
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": th.get_rng_state(),
        "cuda": cuda,
    }


def restore(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    th.set_rng_state(state["torch"])
    if (
        state["cuda"] is not None
        and th.cuda.is_available()
        and len(state["cuda"]) == th.cuda.device_count()
    ):
        th.cuda.set_rng_state_all(state["cuda"])
