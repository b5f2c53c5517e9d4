"""Checkpoints from which a run goes on as if nothing had happened."""

from sb3_cpp.checkpointing.callback import CheckpointCallback
from sb3_cpp.checkpointing.files import DamagedCheckpoint
from sb3_cpp.checkpointing.resuming import resume
from sb3_cpp.checkpointing.store import CheckpointStore

__all__ = ["CheckpointCallback", "CheckpointStore", "DamagedCheckpoint", "resume"]
