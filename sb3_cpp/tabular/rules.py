"""What makes one tabular algorithm differ from another: its settings, above all the rule for ``zeta``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch as th

from sb3_cpp import coefficients
from sb3_cpp.checks import check_choice, check_number, check_whole_number

__all__ = ["RULES", "SCHEMES", "Evidence", "Settings"]

SCHEMES = ("1", "1b", "2")


class Evidence(NamedTuple):
    """What a coefficient rule may look at; tensors have one entry per MDP or trial."""

    advantage: th.Tensor
    """A = sum_s d(s) A(s)."""
    delta: th.Tensor
    """max_s sum_a |new - old|."""
    advantage_range: th.Tensor
    """max_{s,s'} |A(s) - A(s')|."""
    ratio: th.Tensor
    """m_K / M_K of the advantage tracker."""
    log_c: float
    """log C_K."""


RULES: dict[str, Callable[[Evidence, "Settings", float], th.Tensor]] = {
    "cvi": lambda e, s, gamma: th.ones_like(e.advantage),
    "cpp": lambda e, s, gamma: coefficients.theorem4(
        e.advantage, e.log_c, gamma, s.exact_constants
    ),
    "linear_cpp": lambda e, s, gamma: coefficients.linear_cpp(
        e.advantage, e.log_c, gamma, s.exact_constants
    ),
    "adaptive_cpp": lambda e, s, gamma: coefficients.dcpp(e.ratio, e.log_c),
    "espi": lambda e, s, gamma: coefficients.exact_spi(
        e.advantage, e.delta, e.advantage_range, gamma, s.exact_constants
    ),
    "aspi": lambda e, s, gamma: coefficients.approximate_spi(
        e.advantage, gamma, s.r_max, s.exact_constants
    ),
    "cpi": lambda e, s, gamma: coefficients.cpi(e.advantage, gamma, s.r_max, s.exact_constants),
}
"""How far the new policy is let in. ``cvi`` always 1; ``cpp`` is Theorem 4 with both branches corrected."""


@dataclass(frozen=True)
class Settings:
    """What one algorithm is.

    :param rule: a name of :data:`RULES`
    :param temperature: ``tau + sigma``; 0 makes the greedy step the hard arg max
    :param alpha: share of the KL weight, ``sigma / (tau + sigma)``, in [0, 1]; 1 means no entropy bonus
    :param scheme: "1", "1b" or "2"
    :param exact_constants: constants with a guarantee for a normalised visitation, or those printed in the paper
    :param backups: Bellman backups per evaluation, warm-started; None solves for the exact values
    :param regularized: whether the evaluation contains entropy bonus and KL penalty (as in CVI)
    :param r_max: bound of the absolute reward
    :param rho1: decay of m_K (adaptive rule)
    :param rho2: decay of M_K (adaptive rule)
    :param noise: standard deviation of normal noise on Q before the greedy step
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
    noise: float = 0.0

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, RULES)
        check_choice("scheme", self.scheme, SCHEMES)
        check_number("temperature", self.temperature, 0.0)
        check_number("alpha", self.alpha, 0.0, 1.0)
        check_number("r_max", self.r_max, 0.0, low_open=True)
        check_number("rho1", self.rho1, 0.0, 1.0, high_open=True)
        check_number("rho2", self.rho2, 0.0, 1.0)
        check_number("noise", self.noise, 0.0)
        if self.backups is not None:
            check_whole_number("backups", self.backups, 1)

    @property
    def plain_exact(self) -> bool:
        """Whether the evaluation is that of :meth:`MDP.evaluate`."""
        return self.backups is None and not self.regularized
