"""sb3_cpp: Cautious Policy Programming (CPP, not C++) and its relatives for Stable-Baselines3."""

import sb3_cpp.linear
import sb3_cpp.tabular  # noqa: F401  # both register their environments
from sb3_cpp.callbacks import IterationCallback
from sb3_cpp.checkpointing import CheckpointCallback
from sb3_cpp.deep import (
    CVI,
    MDQN,
    CautiousMDQN,
    CautiousSAC,
    DeepCPI,
    DeepCPP,
    MoDQN,
    RegularizedDQN,
)
from sb3_cpp.version import __version__

# The names of the command line
ALGORITHMS: dict[str, type[RegularizedDQN] | type[CautiousSAC]] = {
    "cpp": DeepCPP,
    "cmdqn": CautiousMDQN,
    "mdqn": MDQN,
    "modqn": MoDQN,
    "cvi": CVI,
    "cpi": DeepCPI,
    "csac": CautiousSAC,
}

__all__ = [
    "ALGORITHMS",
    "CVI",
    "MDQN",
    "CautiousMDQN",
    "CautiousSAC",
    "CheckpointCallback",
    "DeepCPI",
    "DeepCPP",
    "IterationCallback",
    "MoDQN",
    "RegularizedDQN",
    "__version__",
]
