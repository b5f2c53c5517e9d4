"""The deep algorithms: SB3's DQN and SAC with other targets, losses and a mixing coefficient."""

from sb3_cpp.deep.base import RegularizedDQN
from sb3_cpp.deep.cautious_mdqn import CautiousMDQN
from sb3_cpp.deep.cautious_sac import CautiousSAC
from sb3_cpp.deep.cpi import DeepCPI
from sb3_cpp.deep.cpp import DeepCPP
from sb3_cpp.deep.cvi import CVI
from sb3_cpp.deep.mdqn import MDQN
from sb3_cpp.deep.modqn import MoDQN

__all__ = [
    "CVI",
    "MDQN",
    "CautiousMDQN",
    "CautiousSAC",
    "DeepCPI",
    "DeepCPP",
    "MoDQN",
    "RegularizedDQN",
]
