"""Finite MDPs with exact values, one or a whole batch at a time; Garnets to test on."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch as th

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number
from sb3_cpp.regularization import log_one_hot, regularized_value

_SUM_TOLERANCE = 1e-9


class Evaluation(NamedTuple):
    """Everything exact about one policy in one MDP."""

    v: th.Tensor  #: V(s), shape (..., S)
    q: th.Tensor  #: Q(s,a), shape (..., S, A)
    visitation: th.Tensor  #: d(s) = (1-gamma) sum_t gamma^t P(s_t = s), shape (..., S); sums to 1
    J: th.Tensor  #: normalised: (1-gamma) E sum_t gamma^t r_t, shape (...)


def _first_bad(name: str, bad: th.Tensor, values: th.Tensor, allowed: str) -> None:
    """Raise for the first entry marked bad, naming its index and value."""
    if bad.any():
        index = tuple(int(i) for i in bad.nonzero()[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, index))}] must be {allowed}, got {values[index].item():g}"
        )


def _check_distribution(name: str, p: th.Tensor) -> None:
    _first_bad(name, ~(p >= 0.0), p, "a probability in [0, 1]")  # this way round also NaN
    sums = p.sum(-1)
    _first_bad(f"sum of {name}", (sums - 1.0).abs() > _SUM_TOLERANCE, sums, "1")


@dataclass(frozen=True, eq=False)
class MDP:
    """Transitions, rewards, discount and start; leading dimensions, if any, are a batch.

    Policies are log-probabilities of shape (..., S, A) that broadcast against the batch. A terminal
    state is one that keeps itself with reward 0.

    :param transition: ``P(s'|s,a)``, shape (..., S, A, S)
    :param reward: r(s,a), shape (..., S, A)
    :param gamma: discount in [0, 1), the same for the whole batch
    :param start: distribution of the first state, shape (..., S); default: always state 0
    """

    transition: th.Tensor
    reward: th.Tensor
    gamma: float
    start: th.Tensor | None = None

    def __post_init__(self) -> None:
        transition, reward = self._as_float64("transition"), self._as_float64("reward")
        if transition.ndim < 3 or transition.shape[-1] != transition.shape[-3]:
            raise ValueError(
                f"transition must have shape (..., S, A, S), got {tuple(transition.shape)}"
            )
        if reward.shape != transition.shape[:-1]:
            raise ValueError(
                f"reward must have shape {tuple(transition.shape[:-1])}, got {tuple(reward.shape)}"
            )
        check_number("gamma", self.gamma, 0.0, 1.0, high_open=True)
        if self.start is None:
            first = th.zeros(self.n_states, dtype=th.float64)
            first[0] = 1.0
            object.__setattr__(self, "start", first)  # the dataclass is frozen
        start = self._as_float64("start")
        if start.shape not in (transition.shape[-1:], transition.shape[:-2]):
            raise ValueError(
                f"start must have shape {tuple(transition.shape[:-2])}, got {tuple(start.shape)}"
            )
        _check_distribution("transition", transition)
        _check_distribution("start", start)
        _first_bad("reward", ~reward.isfinite(), reward, "finite")

    # Double precision, because guarantees are checked to 1e-10 at values up to 1 / (1-gamma).
    def _as_float64(self, name: str) -> th.Tensor:
        tensor = th.as_tensor(getattr(self, name), dtype=th.float64)
        object.__setattr__(self, name, tensor)
        return tensor

    @property
    def n_states(self) -> int:
        return self.transition.shape[-1]

    @property
    def n_actions(self) -> int:
        return self.transition.shape[-2]

    @property
    def r_max(self) -> float:
        """Largest absolute reward."""
        return self.reward.abs().max().item()

    def backup(self, v: th.Tensor) -> th.Tensor:
        """``r(s,a) + gamma sum_s' P(s'|s,a) v(s')``: from (..., S) to (..., S, A)."""
        # one matrix per MDP: far faster than one per state
        following = self.transition.flatten(-3, -2) @ v[..., None]
        return self.reward + self.gamma * following.reshape(self.reward.shape)

    def state_transition(self, log_policy: th.Tensor) -> th.Tensor:
        """``P_pi(s'|s) = sum_a pi(a|s) P(s'|s,a)``, shape (..., S, S)."""
        return th.einsum("...sa,...sat->...st", log_policy.exp(), self.transition)

    def _bellman_matrix(self, log_policy: th.Tensor) -> th.Tensor:
        """``I - gamma P_pi``, whose inverse sums over time."""
        identity = th.eye(self.n_states, dtype=th.float64)
        return identity - self.gamma * self.state_transition(log_policy)

    def evaluate(self, log_policy: th.Tensor) -> Evaluation:
        """Exact V, Q, normalised visitation and J, by one factorisation of ``I - gamma P_pi``."""
        factors = th.linalg.lu_factor(self._bellman_matrix(log_policy))
        reward = (log_policy.exp() * self.reward).sum(-1)
        v = th.linalg.lu_solve(*factors, reward[..., None]).squeeze(-1)
        start: Any = self.start
        first = start.expand(v.shape)[..., None]
        # d = (1-gamma) (I - gamma P')^-1 start: the same factors, transposed
        visits = th.linalg.lu_solve(*factors, first, adjoint=True).squeeze(-1)
        visitation = (1.0 - self.gamma) * visits
        return Evaluation(v, self.backup(v), visitation, (visitation * reward).sum(-1))

    def regularized_v(
        self, log_policy: th.Tensor, log_baseline: th.Tensor, alpha: float, temperature: float
    ) -> th.Tensor:
        """Exact value with entropy bonus and KL penalty at every step, shape (..., S).

        ``V = r_pi + tau H(pi) - sigma KL(pi || baseline) + gamma P_pi V`` with the entropy weight
        ``tau = (1-alpha) temperature`` and the KL weight ``sigma = alpha temperature`` (CPP
        Eq. sys_DPPbellman). The regularised Q is its :meth:`backup`.
        """
        # The paper prints the signs of both regularisers the other way round. Both are expectations
        # under pi, so they enter as a part of the reward.
        reward = regularized_value(log_policy, self.reward, log_baseline, alpha, temperature)
        return th.linalg.solve(self._bellman_matrix(log_policy), reward).squeeze(-1)

    def optimum(self) -> Evaluation:
        """The unregularised optimal policy's values, by policy iteration."""
        best = self.evaluate(log_one_hot(self.reward, smoothing=0.0))
        # Policy iteration ends after finitely many steps; a tie of two actions could flip the
        # policy for ever, so the test is on values.
        while True:
            better = self.evaluate(log_one_hot(best.q, smoothing=0.0))
            # the batch ends together: an MDP that is done stays where it is
            if (better.v - best.v).max() <= 1e-12:
                return best
            best = better


def uniform_log_policy(mdp: MDP) -> th.Tensor:
    """Every action equally likely, shape (..., S, A)."""
    return th.full(mdp.reward.shape, 1.0 / mdp.n_actions, dtype=th.float64).log()


def policy_advantage(q: th.Tensor, log_new: th.Tensor, log_old: th.Tensor) -> th.Tensor:
    """``A(s) = sum_a (new(a|s) - old(a|s)) Q_old(s,a)``, shape (..., S) (CPP Eq. expAdv)."""
    # new - old sums to 0, so a shift of Q per state (as from Q to the advantage) cancels
    return ((log_new.exp() - log_old.exp()) * q).sum(-1)


def garnet(
    generator: th.Generator,
    n_mdps: int,
    n_states: int = 8,
    n_actions: int = 3,
    branching: int = 3,
    gamma: float = 0.9,
) -> MDP:
    """A batch of random MDPs (Bhatnagar et al. 2009); rewards r(s,a) are uniform in [-1, 1].

    Every (s,a) leads to ``branching`` random states with probabilities uniform on the simplex. The
    start is state 0.
    """
    for name, value in (("n_mdps", n_mdps), ("n_states", n_states), ("n_actions", n_actions)):
        check_whole_number(name, value, 1)
    if check_whole_number("branching", branching, 1) > n_states:
        raise InvalidArgument(f"branching must be at most n_states = {n_states}, got {branching}")
    shape = (n_mdps, n_states, n_actions)
    # the first entries of a random permutation: successors without repetition
    order = th.rand(*shape, n_states, dtype=th.float64, generator=generator)
    successors = order.argsort(-1)[..., :branching]
    uniform = th.rand(*shape, branching, dtype=th.float64, generator=generator)
    # normalised exponential variables are uniform on the simplex; the clamp avoids log 0
    weights = -uniform.clamp(min=1e-300).log()
    transition = th.zeros(*shape, n_states, dtype=th.float64)
    transition.scatter_(-1, successors, weights / weights.sum(-1, keepdim=True))
    reward = 2.0 * th.rand(*shape, dtype=th.float64, generator=generator) - 1.0
    return MDP(transition, reward, gamma)
