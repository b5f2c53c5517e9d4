"""Random MDPs (Garnets) to try a theorem on."""

import torch as th

from sb3_cpp.checks import check_number, check_whole_number
from sb3_cpp.tabular.mdp import MDP


def garnet(
    generator: th.Generator,
    n_mdps: int,
    n_states: int = 8,
    n_actions: int = 3,
    branching: int = 3,
    gamma: float = 0.9,
) -> MDP:
    """A batch of Garnets: every (s,a) leads to ``branching`` random states; rewards r(s,a) are uniform in [-1, 1].

    The start is state 0. The probabilities of the successors are uniform on the simplex (Bhatnagar et al. 2009).
    """
    check_whole_number("n_mdps", n_mdps, 1)
    check_number("branching", branching, 1, n_states)
    shape = (n_mdps, n_states, n_actions)
    order = th.rand(*shape, n_states, dtype=th.float64, generator=generator)
    successors = order.argsort(-1)[..., :branching]
    weights = (
        -th.rand(*shape, branching, dtype=th.float64, generator=generator).clamp(min=1e-300).log()
    )
    transition = th.zeros(*shape, n_states, dtype=th.float64)
    transition.scatter_(-1, successors, weights / weights.sum(-1, keepdim=True))
    reward = 2.0 * th.rand(*shape, dtype=th.float64, generator=generator) - 1.0
    return MDP(transition, reward, gamma)
