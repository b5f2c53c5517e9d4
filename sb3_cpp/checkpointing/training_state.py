"""What the future of a run depends on, beside what SB3 saves in model.zip and the replay buffer."""

import time
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_cpp.checkpointing import environment_state, random_state

PENDING = "_pending"  # attribute of a loaded model: what is restored when its learn() begins


def capture(model: BaseAlgorithm) -> tuple[dict[str, Any], str | None]:
    """The state between two rollouts, and why the environment's state is not in it (None if it is)."""
    assert model.env is not None
    environment, spec, reason = None, None, None
    try:
        environment = environment_state.capture(model.env)
        spec = environment_state.specification(model.env)
    except environment_state.CannotBeSaved as error:
        reason = str(error)
    state = {
        "action_space": model.action_space,
        "environment": environment,
        "spec": spec,
        "last_obs": model._last_obs,
        **(vars(model).get(PENDING) or _of_learning(model)),
    }
    return state, reason


def _of_learning(model: BaseAlgorithm) -> dict[str, Any]:
    """The generators, what is recorded for the next row of the log, and the clock."""
    names = ("name_to_value", "name_to_count", "name_to_excluded")
    return {
        "random": random_state.capture(),
        "log": {name: dict(getattr(model._logger, name)) for name in names}
        if hasattr(model, "_logger")
        else {},
        "elapsed": time.time_ns() - model.start_time,
        "first_timestep": model._num_timesteps_at_start,
    }


def restore(model: BaseAlgorithm, state: dict[str, Any]) -> None:
    """Put the state into a loaded model whose replay buffer is restored; the rest waits for ``learn()``, see :func:`go_on`."""
    assert model.env is not None
    if state["environment"] is not None:
        environment_state.restore(model.env, state["environment"])
        model._last_obs = state["last_obs"]
    else:  # another game than the first one of the run
        model.env.seed((model.seed or 0) + model.num_timesteps)
    model.action_space = state["action_space"]
    vars(model)[PENDING] = {
        key: state[key] for key in ("random", "log", "elapsed", "first_timestep")
    }


def waiting_generators(model: BaseAlgorithm) -> dict[str, Any] | None:
    """State of the generators of a resumed model whose ``learn()`` has not begun."""
    return (vars(model).get(PENDING) or {}).get("random")


def go_on(model: BaseAlgorithm) -> bool:
    """When a resumed ``learn()`` has its logger: the values waiting for the next row, the time before, the generators (late,
    because making environments for evaluation, say, draws from them). Returns whether there is anything to go on with."""
    pending = vars(model).pop(PENDING, None)
    if pending is None:
        return False
    random_state.restore(pending["random"])
    for name, values in pending["log"].items():
        getattr(model._logger, name).update(values)
    model.start_time = time.time_ns() - pending["elapsed"]
    model._num_timesteps_at_start = pending["first_timestep"]
    return True
