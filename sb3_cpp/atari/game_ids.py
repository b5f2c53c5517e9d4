"""Which game an environment id names, and how many frames it skips by itself.

Gymnasium has three families of Atari ids, and they differ in more than their names:

| id                      | frames per step  | sticky actions |
|-------------------------|------------------|----------------|
| `BreakoutNoFrameskip-v4`| 1                | 0 (-v0: 0.25)  |
| `ALE/Breakout-v5`       | 4                | 0.25           |
| `Breakout-v4`           | 2 to 4 at random | 0 (-v0: 0.25)  |

SB3's AtariWrapper skips 4 frames on top of that: 16 with `ALE/Breakout-v5`, which is not the game
of the papers.
"""

from typing import Any

import gymnasium as gym

from sb3_cpp.checks import InvalidArgument, check_number

try:
    import ale_py
    import cv2  # noqa: F401
except ImportError as error:
    raise ImportError(
        "Atari environments need ale-py and opencv-python: pip install 'sb3_cpp[atari]'"
    ) from error

gym.register_envs(ale_py)


def game_spec(env_id: str) -> gym.envs.registration.EnvSpec:
    """Gymnasium's entry of an Atari id."""
    try:
        spec = gym.spec(env_id)
    except (gym.error.Error, AttributeError, TypeError):
        spec = None
    if spec is None or spec.entry_point != "ale_py.env:AtariEnv":
        example = "'BreakoutNoFrameskip-v4' or 'ALE/Breakout-v5'"
        raise InvalidArgument(f"env_id must be an Atari game's, like {example}, got {env_id!r}")
    return spec


def no_frameskip_id(env_id: str) -> str:
    """The id of the same game without frame skip; games that only v5 knows keep theirs."""
    name = gym.envs.registration.parse_env_id(env_id)[1].removesuffix("NoFrameskip")
    plain = f"{name}NoFrameskip-v4"
    return plain if plain in gym.registry else env_id


def check_frame_skip(
    env_id: str, env_kwargs: dict[str, Any] | None = None, wrapper_skip: int = 4
) -> None:
    """Refuse an id that skips frames by itself if a wrapper (SB3's AtariWrapper) skips them again.

    :param env_id: Gymnasium id of the game
    :param env_kwargs: arguments of `gym.make`, of which `frameskip` counts
    :param wrapper_skip: frames that the wrapper skips
    """
    own_skip = {**game_spec(env_id).kwargs, **(env_kwargs or {})}["frameskip"]
    if own_skip != 1 and wrapper_skip > 1:
        own = f"{own_skip[0]} to {own_skip[1] - 1}" if isinstance(own_skip, tuple) else own_skip
        raise InvalidArgument(
            f"env_id {env_id!r} skips {own} frames by itself and the wrapper {wrapper_skip} more "
            f"for each: use {no_frameskip_id(env_id)!r}, or env_kwargs={{'frameskip': 1}}"
        )


def rom_and_stickiness(env_id: str, repeat_action_probability: float | None) -> tuple[str, float]:
    """ROM of a game and its probability of sticky actions, for environments with their own skip.

    The default is 0 for `*NoFrameskip-v4` and 0.25 for `*NoFrameskip-v0`. `ALE/*-v5` has none: its
    0.25 is not what most published DQN results use. Ids with a random frame skip are refused.
    """
    kwargs = game_spec(env_id).kwargs
    if isinstance(kwargs["frameskip"], tuple):
        raise InvalidArgument(
            f"env_id must not be one with a random frame skip, got {env_id!r}: "
            f"use {no_frameskip_id(env_id)!r}"
        )
    if repeat_action_probability is not None:
        return kwargs["game"], check_number(
            "repeat_action_probability", repeat_action_probability, 0, 1
        )
    if kwargs["frameskip"] != 1:
        raise InvalidArgument(
            f"repeat_action_probability must be given for {env_id!r}: 0 as in DQN's papers and "
            "SB3's zoo, or 0.25 (sticky actions, Machado et al. 2018)"
        )
    return kwargs["game"], kwargs["repeat_action_probability"]
