"""zeta during deep learning: one rule, fed at every gradient step, asked at every target update."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch as th

from sb3_cpp import coefficients as rules
from sb3_cpp.checks import InvalidArgument, check_number


class Estimate(NamedTuple):
    """What the rules are computed from."""

    mean: float  # m_K, running mean of the advantage
    ratio: float  # m_K / M_K
    log_c: float | None  # log(C_K + B_K); None where the policies are not regularised
    gamma: float
    r_max: float


def _log_c(estimate: Estimate) -> float:
    assert estimate.log_c is not None, "this rule needs C_K"
    return estimate.log_c


# Printed constants: the experiments reproduce the paper's figures (sb3_cpp.coefficients explains printed and exact).
RULES: dict[str, Callable[[Estimate], float]] = {
    "dcpp": lambda e: rules.dcpp(e.ratio, _log_c(e)),
    "linear_cpp": lambda e: rules.linear_cpp(e.mean, _log_c(e), e.gamma),
    "dcpi": lambda e: rules.dcpi(e.ratio),
    "cpi": lambda e: rules.cpi(e.mean, e.gamma, e.r_max),
    "spi": lambda e: rules.approximate_spi(e.mean, e.gamma, e.r_max),
    "measured": lambda e: rules.measured_spi(e.ratio),
    "typical": lambda e: rules.measured_spi(e.ratio),
}
# The rules that measure the step itself: m_K is the mean of the advantages of the new policy over the old one, one per state,
# and M_K not the largest of them but the largest of this, which C_K only bounds. Distances are ``sum_a |new - old|``.
SCALES: dict[str | float, Callable[[th.Tensor, th.Tensor], th.Tensor]] = {
    "measured": lambda advantages, distances: (
        distances.max() * (advantages.max() - advantages.min())
    ),
    "typical": lambda advantages, distances: distances.mean() * advantages.std(correction=0),
}


class Caution:
    """The coefficient ``zeta`` and the measurements behind it.

    :param rule: the name of a rule, or a fixed number in [0, 1]
    :param allowed: the names of the rules the algorithm can use
    :param rho1: decay of the running mean m_K of the advantage
    :param rho2: decay of its running maximum M_K
    :param r_max: bound of the absolute reward
    """

    def __init__(
        self, rule: str | float, allowed: Collection[str], rho1: float, rho2: float, r_max: float
    ) -> None:
        if isinstance(rule, str):
            if rule not in allowed:
                raise InvalidArgument(
                    f"zeta must be a number in [0, 1] or one of {', '.join(allowed)}, got {rule!r}"
                )
            self.rule: str | float = rule
            self.zeta = 1.0  # before the first target update the old policy is a random network: nothing to be cautious about
        else:
            self.rule = self.zeta = check_number("zeta", rule, 0.0, 1.0)
        self.r_max = check_number("r_max", r_max, 0.0, low_open=True)
        self.tracker = rules.AdvantageTracker(
            check_number("rho1", rho1, 0.0, 1.0, high_open=True),
            check_number("rho2", rho2, 0.0, 1.0, high_open=True),
        )

    def changed(self, allowed: Collection[str], **settings: Any) -> "Caution":
        """The same with other settings (``zeta``, ``rho1``, ``rho2``, ``r_max``), and with the measurements so far, if fit."""
        if not settings:
            return self
        old = {
            "zeta": self.rule,
            "rho1": self.tracker.rho1,
            "rho2": self.tracker.rho2,
            "r_max": self.r_max,
        }
        new = {**old, **settings}
        other = Caution(new["zeta"], allowed, new["rho1"], new["rho2"], new["r_max"])
        if SCALES.get(other.rule) is SCALES.get(self.rule):  # else they are of something else
            other.tracker.mean, other.tracker.maximum = self.tracker.mean, self.tracker.maximum
        if isinstance(other.rule, str):  # until it is asked
            other.zeta = self.zeta
        return other

    @property
    def measures_the_step(self) -> bool:
        """Whether the rule asks for the step from the old policy to the new one, not for that to the greedy policy."""
        return self.rule in SCALES

    def observe(self, advantages: th.Tensor, distances: th.Tensor | None = None) -> None:
        """Take in the advantages of a batch, one per state, and, for a rule that measures the step, the distances."""
        largest = (
            advantages.max() if distances is None else SCALES[self.rule](advantages, distances)
        )
        self.tracker.update(advantages.mean(), largest)

    def refresh(self, gamma: float, log_c: float | None = None) -> dict[str, float]:
        """Set zeta for the next iteration; returns it with m_K and M_K, or, with nothing observed yet, as it was."""
        mean, maximum = self.tracker.mean, self.tracker.maximum
        if mean is None or maximum is None:
            return {"zeta": self.zeta}
        if isinstance(self.rule, str):
            estimate = Estimate(float(mean), float(self.tracker.ratio), log_c, gamma, self.r_max)
            self.zeta = RULES[self.rule](estimate)
        return {"zeta": self.zeta, "m_K": float(mean), "M_K": float(maximum)}
