"""The theory, executable: exact MDPs, the paper's algorithms and bounds in a table, and the danger gridworld."""

from sb3_cpp.tabular.algorithms import ExactView, Update, iterate
from sb3_cpp.tabular.garnet import garnet
from sb3_cpp.tabular.gridworld import DangerGrid
from sb3_cpp.tabular.gridworld_env import ENV_ID, DangerGridworldEnv, register_envs
from sb3_cpp.tabular.mdp import MDP, Evaluation, policy_advantage, uniform_log_policy
from sb3_cpp.tabular.rules import RULES, SCHEMES, Settings

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
    "register_envs",
    "uniform_log_policy",
]

register_envs()
