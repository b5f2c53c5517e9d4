"""Streams of stacked frames with everything that can happen at the end of an episode."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

N_STACK = 4
FRAME = (7, 6)


class Transition(NamedTuple):
    obs: np.ndarray
    next_obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    done: np.ndarray
    infos: list[dict[str, Any]]


def stacked_space(channels_first: bool = True) -> spaces.Box:
    shape = (N_STACK, *FRAME) if channels_first else (*FRAME, N_STACK)
    return spaces.Box(0, 255, shape, np.uint8)


def random_stream(
    rng: np.random.Generator,
    n_envs: int,
    n_steps: int,
    end_probability: float = 0.1,
    channels_first: bool = True,
) -> Iterator[Transition]:
    """Terminals, time-outs, lost lives that keep the stack, resets in mid-episode; first stacks
    padded in every way."""

    def frames(n: int) -> np.ndarray:
        # Few grey values: black frames and frames equal to their predecessor happen.
        return rng.integers(0, 3, (n, 1, 1)).astype(np.uint8) * rng.integers(
            0, 2, (n, *FRAME), dtype=np.uint8
        )

    def first_stack() -> np.ndarray:
        stack = frames(N_STACK)
        padding = rng.choice(["black", "repeated", "none"])
        if padding != "none":
            stack[:-1] = 0 if padding == "black" else stack[-1]
        return stack

    def layout(stacks: np.ndarray) -> np.ndarray:
        return stacks.copy() if channels_first else np.moveaxis(stacks, 1, -1).copy()

    obs = np.stack([first_stack() for _ in range(n_envs)])
    for _ in range(n_steps):
        next_obs = np.concatenate([obs[:, 1:], frames(n_envs)[:, None]], axis=1)
        ends = rng.random(n_envs) < end_probability
        kinds = rng.choice(["terminal", "time-out", "stack kept", "reset unseen"], n_envs)
        done = ends & (kinds != "reset unseen")
        infos = [
            {"TimeLimit.truncated": bool(end and kind == "time-out")}
            for end, kind in zip(ends, kinds)
        ]
        yield Transition(
            layout(obs),
            layout(next_obs),
            rng.integers(0, 5, n_envs),
            rng.normal(size=n_envs),
            done,
            infos,
        )
        obs = next_obs
        for env in np.flatnonzero(ends & (kinds != "stack kept")):
            obs[env] = first_stack()
