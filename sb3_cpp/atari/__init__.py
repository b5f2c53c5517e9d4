"""Atari at full size on one machine: a replay buffer that stores each frame once, and ALE's native
environments for SB3.

The buffer needs nothing beyond SB3. The environments need the extra `atari`; they are imported on
first use.
"""

from typing import TYPE_CHECKING, Any

from sb3_cpp.atari.frame_buffer import FrameReplayBuffer, NStepFrameReplayBuffer

if TYPE_CHECKING:
    from sb3_cpp.atari.game_ids import check_frame_skip
    from sb3_cpp.atari.vec_env import AtariVecEnv, make_atari_vec_env, make_render_env

__all__ = [
    "AtariVecEnv",
    "FrameReplayBuffer",
    "NStepFrameReplayBuffer",
    "check_frame_skip",
    "make_atari_vec_env",
    "make_render_env",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sb3_cpp.atari import vec_env

    return getattr(vec_env, name)
