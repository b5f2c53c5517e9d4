"""The theory, executable: exact MDPs, the paper's algorithms and bounds, the danger gridworld."""

from sb3_cpp.tabular.algorithms import RULES, SCHEMES, ExactView, Settings, Update, iterate
from sb3_cpp.tabular.gridworld import ENV_ID, DangerGrid, DangerGridworldEnv
from sb3_cpp.tabular.mdp import MDP, Evaluation, garnet, policy_advantage, uniform_log_policy

__all__ = [
    "ENV_ID",
    "MDP",
    "RULES",
    "SCHEMES",
    "DangerGrid",
    "DangerGridworldEnv",
    "Evaluation",
    "ExactView",
    "Settings",
    "Update",
    "garnet",
    "iterate",
    "policy_advantage",
    "uniform_log_policy",
]
