"""Exact resume for any SB3 algorithm: an interrupted run ends with the same numbers, to the bit."""

from sb3_cpp.checkpointing.callback import CheckpointCallback, Interruption, TrainingInterrupted
from sb3_cpp.checkpointing.store import (
    CheckpointStore,
    DamagedCheckpoint,
    remaining_timesteps,
    resume,
)
from sb3_cpp.checkpointing.weights import load_weights, save_weights

__all__ = [
    "CheckpointCallback",
    "CheckpointStore",
    "DamagedCheckpoint",
    "Interruption",
    "TrainingInterrupted",
    "load_weights",
    "remaining_timesteps",
    "resume",
    "save_weights",
]
