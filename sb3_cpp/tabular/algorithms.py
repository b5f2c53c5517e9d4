"""CVI, CPP, SPI, CPI and state-wise caution in a table: one loop, different rules for ``zeta``.

Update K: observe the MDP (exactly, or by a rollout), evaluate, improve (regularised greedy step),
choose ``zeta``, mix. Three *schemes* say what the mixture is for (CPP Section "Leveraging Policy
Interpolation"):

==  =========================================  ============================  =====================
    deployed policy                            baseline of the greedy step   evaluated policy
==  =========================================  ============================  =====================
1   zeta pi_K + (1-zeta) pi_{K-1}              pi_{K-1}                      pi_{K-1}
1b  zeta pi_K + (1-zeta) deployed_{K-1}        pi_{K-1}                      pi_{K-1}
2   zeta pi_K + (1-zeta) deployed_{K-1}        deployed_{K-1}                deployed_{K-1}
==  =========================================  ============================  =====================

(With ``mixture="geometric"``, ``∝ new^zeta old^(1-zeta)`` takes the place of the sum.) Everything
is batched: leading dimensions of the MDP are trials or random MDPs.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch as th

from sb3_cpp import coefficients as rules
from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.regularization import (
    greedy_advantage,
    l1_distance,
    log_geometric_mixture,
    log_greedy,
    log_mixture,
    log_one_hot,
    log_ratio_span,
    regularized_value,
)
from sb3_cpp.tabular.mdp import MDP, Evaluation, policy_advantage

SCHEMES = ("1", "1b", "2")
# in log-probabilities, because exp() of a nearly greedy policy rounds its rare actions to 0
MIXTURES = {"arithmetic": log_mixture, "geometric": log_geometric_mixture}
NOISES = ("normal", "uniform")


# --- what makes one algorithm differ from another -------------------------------------------------


class Evidence(NamedTuple):
    """The inputs of a coefficient rule, computed from the Q that the learner sees.

    The first two have shape (..., S); everything else has one entry per MDP or trial.
    """

    state_advantage: th.Tensor  # A(s) = sum_a (new - old) Q
    state_l1: th.Tensor  # L1(s) = sum_a |new - old|
    advantage: th.Tensor  # A = sum_s d(s) A(s)
    span: th.Tensor  # largest span over actions of f = log(new / old)
    q_span: th.Tensor  # largest span over actions of Q
    covariance: th.Tensor  # sum_s d(s) Cov_old(Q, f)
    ratio: th.Tensor  # m_K / M_K of the advantage tracker
    log_c: float  # log C_K: C_K itself falls like gamma^K and would underflow
    # bound on the error of Q; a tensor broadcasts against (..., S)
    error_bound: th.Tensor | float

    @property
    def delta(self) -> th.Tensor:
        """max_s sum_a |new - old|."""
        return self.state_l1.amax(-1)

    @property
    def advantage_range(self) -> th.Tensor:
        """max_{s,s'} |A(s) - A(s')|."""
        return self.state_advantage.amax(-1) - self.state_advantage.amin(-1)


@dataclass(frozen=True)
class Settings:
    """What one algorithm is.

    :param rule: a name of :data:`RULES`
    :param temperature: entropy weight + KL weight; 0 makes the greedy step the hard arg max
    :param alpha: share of the KL weight in their sum, in [0, 1]; 1 means no entropy bonus
    :param scheme: "1", "1b" or "2"
    :param exact_constants: guaranteed constants (for a normalised visitation) or the printed ones
    :param backups: Bellman backups per evaluation, warm-started; None solves for the exact values
    :param regularized: whether the evaluation contains entropy bonus and KL penalty (as in CVI)
    :param r_max: bound of the absolute reward
    :param rho1: decay of m_K, and rho2: of M_K (adaptive rule)
    :param mixture: "arithmetic" (zeta new + (1-zeta) old) or "geometric"
    :param noise: error on Q: the standard deviation if ``noise_law`` is "normal", the bound if it
        is "uniform"
    :param error_bound: the bound on that error which the state-wise rule assumes
    """

    rule: str
    temperature: float
    alpha: float
    scheme: str = "2"
    exact_constants: bool = True
    backups: int | None = None
    regularized: bool = False
    r_max: float = 1.0
    rho1: float = 0.9
    rho2: float = 1.0
    mixture: str = "arithmetic"
    noise: float = 0.0
    noise_law: str = "normal"
    error_bound: float = 0.0

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, RULES)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("temperature", self.temperature, 0.0)
        check_number("alpha", self.alpha, 0.0, 1.0)
        check_number("r_max", self.r_max, 0.0, low_open=True)
        check_number("rho1", self.rho1, 0.0, 1.0, high_open=True)
        check_number("rho2", self.rho2, 0.0, 1.0)
        check_choice("mixture", self.mixture, MIXTURES)
        check_number("noise", self.noise, 0.0)
        check_choice("noise_law", self.noise_law, NOISES)
        check_number("error_bound", self.error_bound, 0.0)
        # its bound (Theorem D) is one on geometric mixtures only
        if self.rule == "geometric_spi" and self.mixture != "geometric":
            raise InvalidArgument(
                f"mixture must be 'geometric' for geometric_spi, got {self.mixture!r}"
            )
        if self.backups is not None:
            check_whole_number("backups", self.backups, 1)


# From (evidence, settings, discount) to the mixing coefficient of the new policy, shape (...), or
# (..., S) for "statewise".
RULES: dict[str, Callable[[Evidence, Settings, float], th.Tensor]] = {
    "cvi": lambda e, s, g: th.ones_like(e.advantage),
    # Theorem 4 with both branches; linear_cpp is the printed one, only its first branch
    "cpp": lambda e, s, g: rules.theorem4_zeta(e.advantage, e.log_c, g, s.exact_constants),
    "linear_cpp": lambda e, s, g: rules.linear_cpp(e.advantage, e.log_c, g, s.exact_constants),
    "adaptive_cpp": lambda e, s, g: rules.dcpp(e.ratio, e.log_c),
    "espi": lambda e, s, g: rules.exact_spi(
        e.advantage, e.delta, e.advantage_range, g, s.exact_constants
    ),
    "aspi": lambda e, s, g: rules.approximate_spi(e.advantage, g, s.r_max, s.exact_constants),
    "cpi": lambda e, s, g: rules.cpi(e.advantage, g, s.r_max, s.exact_constants),
    "span_cpp": lambda e, s, g: rules.span_cpp(e.advantage, e.span, e.q_span, g),
    "geometric_spi": lambda e, s, g: rules.geometric_spi(e.covariance, e.span, e.q_span, g),
    "statewise": lambda e, s, g: rules.statewise(e.state_advantage, e.state_l1, e.error_bound),
}


# --- one update -----------------------------------------------------------------------------------


class View(NamedTuple):
    """What an update may know of the MDP."""

    model: MDP  # the MDP itself, or one estimated from samples
    weights: th.Tensor  # d(s), over which advantages are averaged, shape (..., S); sums to 1
    q: th.Tensor | None  # exact Q of the policy mixed with; None: use the Q of the evaluation


class Update(NamedTuple):
    """One update, with everything a bound on it mentions."""

    K: int
    log_old: th.Tensor  #: the policy the new one is mixed with
    log_new: th.Tensor  #: the regularised greedy policy, not yet deployed
    log_deployed: th.Tensor  #: the mixture
    evidence: Evidence
    zeta: th.Tensor  #: shape (...); of a state-wise rule the mean over the states met


class ExactView:
    """The MDP is known; advantages are those of the policy mixed with, over its own visitation."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp
        # the check of an update and the next update ask for the same policy: one linear solve
        self._last: tuple[th.Tensor, Evaluation] | None = None

    def evaluate(self, log_policy: th.Tensor) -> Evaluation:
        if self._last is None or self._last[0] is not log_policy:
            self._last = (log_policy, self.mdp.evaluate(log_policy))
        return self._last[1]

    def __call__(self, log_deployed: th.Tensor, log_old: th.Tensor) -> View:
        evaluation = self.evaluate(log_old)
        return View(self.mdp, evaluation.visitation, evaluation.q)


def evaluate(
    model: MDP, q: th.Tensor, log_policy: th.Tensor, log_baseline: th.Tensor, settings: Settings
) -> th.Tensor:
    """Q of a policy: exactly, or by backups from the last Q (CPP Eq. policy_evaluation)."""
    alpha, temperature = settings.alpha, settings.temperature if settings.regularized else 0.0
    if settings.backups is None:
        return model.backup(model.regularized_v(log_policy, log_baseline, alpha, temperature))
    v = regularized_value(log_policy, q, log_baseline, alpha, temperature).squeeze(-1)
    # Further backups act on V, which is A times smaller than Q: V <- r_pi + tau H - sigma KL +
    # gamma P_pi V. The last one gives Q.
    reward = regularized_value(log_policy, model.reward, log_baseline, alpha, temperature)
    step = model.gamma * model.state_transition(log_policy)
    for _ in range(settings.backups - 1):
        v = (reward + step @ v[..., None]).squeeze(-1)
    return model.backup(v)


def improve(q: th.Tensor, log_baseline: th.Tensor, settings: Settings) -> th.Tensor:
    """The (regularised) greedy policy."""
    # the limit of the softmax, which itself would divide by 0
    if settings.temperature == 0.0:
        return log_one_hot(q)
    return log_greedy(q, log_baseline, settings.alpha, settings.temperature)


def gather_evidence(
    q: th.Tensor,
    weights: th.Tensor,
    log_new: th.Tensor,
    log_old: th.Tensor,
    ratio: th.Tensor,
    log_c: float,
    error_bound: th.Tensor | float = 0.0,
) -> Evidence:
    """Advantage of the new policy over the old one and their distance, from Q of the old one."""
    advantage = policy_advantage(q, log_new, log_old)
    # f = log(new/old) is known up to a constant per state, which spans and covariances ignore
    log_ratio, old = log_new - log_old, log_old.exp()
    centred = q - (old * q).sum(-1, keepdim=True)
    return Evidence(
        state_advantage=advantage,
        state_l1=l1_distance(log_new, log_old),
        advantage=(weights * advantage).sum(-1),
        span=log_ratio_span(log_new, log_old).amax(-1),
        q_span=(q.amax(-1) - q.amin(-1)).amax(-1),
        covariance=(weights * (old * centred * log_ratio).sum(-1)).sum(-1),
        ratio=ratio,
        log_c=log_c,
        error_bound=error_bound,
    )


def log_change_bound(K: int, gamma: float, settings: Settings) -> float:
    """``log C_K`` of Lemma 3; infinite for the hard greedy step, which nothing bounds."""
    if settings.temperature == 0.0:
        return float("inf")
    return rules.log_policy_change_bound(
        K, settings.alpha, gamma, settings.temperature, settings.r_max
    )


def draw_noise(
    q: th.Tensor, settings: Settings, generator: th.Generator | None
) -> th.Tensor | float:
    """The error on Q of one update."""
    # drawing nothing keeps a generator where it is, so that runs without noise stay comparable
    if settings.noise == 0.0:
        return 0.0
    if settings.noise_law == "uniform":
        unit = 2.0 * th.rand(q.shape, dtype=q.dtype, generator=generator) - 1.0
    else:
        unit = th.randn(q.shape, dtype=q.dtype, generator=generator)
    return settings.noise * unit


def iterate(
    settings: Settings,
    log_policy: th.Tensor,
    observe: Callable[[th.Tensor, th.Tensor], View],
    iterations: int,
    generator: th.Generator | None = None,
) -> Iterator[Update]:
    """The loop shared by every algorithm and scheme; yields one :class:`Update` per K = 1, 2, ...

    :param log_policy: first policy, shape (..., S, A)
    :param observe: from (deployed policy, policy mixed with) to a :class:`View`
    :param generator: source of the noise on Q, if there is any
    """
    # the chain is pi_K, the sequence of greedy steps; what acts is the mixture
    chain = previous = deployed = log_policy
    q = th.zeros_like(log_policy)
    tracker = rules.AdvantageTracker(settings.rho1, settings.rho2)
    for K in range(1, iterations + 1):
        # In scheme 2 chain and deployed are one policy; in 1b the chain ignores what is deployed.
        old = chain if settings.scheme == "1" else deployed
        view = observe(deployed, old)
        gamma = view.model.gamma

        exact = settings.backups is None and not settings.regularized
        if view.q is not None and old is chain and exact:
            q = view.q  # the same solve again would give the same Q
        else:
            q = evaluate(view.model, q, chain, previous, settings)
        # One error for the greedy step and the rule: both belong to a learner that sees q + error.
        error = draw_noise(q, settings, generator)
        new = improve(q + error, chain, settings)
        q_old = (q if view.q is None else view.q) + error

        # M_K is a maximum over the visited states: elsewhere Q may be arbitrary.
        greedy = greedy_advantage(q_old, old)
        tracker.update(
            (view.weights * greedy).sum(-1), greedy.where(view.weights > 0.0, 0.0).amax(-1)
        )
        log_c = log_change_bound(K, gamma, settings)
        evidence = gather_evidence(
            q_old, view.weights, new, old, tracker.ratio, log_c, settings.error_bound
        )
        zeta = RULES[settings.rule](evidence, settings, gamma)
        statewise = settings.rule == "statewise"
        step = zeta[..., None] if statewise else zeta[..., None, None]
        deployed = MIXTURES[settings.mixture](new, old, step)
        if statewise:
            # the weights sum to 1 only up to rounding, and a coefficient above 1 is none
            zeta = (view.weights * zeta).sum(-1).clamp(max=1.0)
        yield Update(K, old, new, deployed, evidence, zeta)
        previous, chain = chain, deployed if settings.scheme == "2" else new
