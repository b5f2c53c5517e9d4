"""CPP with linear function approximation (Algorithm 1) and the paper's pendulum, registered with gymnasium on import."""

from sb3_cpp.linear.algorithms import Iteration, LinearLearner, Settings, Update, iterate
from sb3_cpp.linear.batch import BatchEnv, GymBatch
from sb3_cpp.linear.features import LinearQ, OneHot, RadialBasis
from sb3_cpp.linear.pendulum import ENV_ID, PendulumBatch, PendulumSwingUp, Physics
from sb3_cpp.linear.ridge import SingularEquations, solve_ridge
from sb3_cpp.linear.rollout import BadObservation
from sb3_cpp.linear.rules import RULES

__all__ = [
    "ENV_ID",
    "RULES",
    "BadObservation",
    "BatchEnv",
    "GymBatch",
    "Iteration",
    "LinearLearner",
    "LinearQ",
    "OneHot",
    "PendulumBatch",
    "PendulumSwingUp",
    "Physics",
    "RadialBasis",
    "Settings",
    "SingularEquations",
    "Update",
    "iterate",
    "solve_ridge",
]
