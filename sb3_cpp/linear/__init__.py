"""CPP with linear function approximation (Algorithm 1); importing it registers the pendulum."""

from sb3_cpp.linear.algorithms import Iteration, LinearLearner, Settings, Update, iterate
from sb3_cpp.linear.features import LinearQ, OneHot, RadialBasis, SingularEquations, solve_ridge
from sb3_cpp.linear.pendulum import ENV_ID, PendulumBatch, PendulumSwingUp, Physics
from sb3_cpp.linear.policy import LinearPolicy, load_policy, save_weights
from sb3_cpp.linear.rollout import BadObservation, BatchEnv, GymBatch

__all__ = [
    "ENV_ID",
    "BadObservation",
    "BatchEnv",
    "GymBatch",
    "Iteration",
    "LinearLearner",
    "LinearPolicy",
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
    "load_policy",
    "save_weights",
    "solve_ridge",
]
