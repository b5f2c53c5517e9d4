"""The mixing coefficient zeta in deep learning: measured at every gradient step, set at every
target update."""

import math
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import torch as th

from sb3_cpp import coefficients
from sb3_cpp.checks import InvalidArgument, check_number


class Estimate(NamedTuple):
    """What a rule for zeta is computed from."""

    m_K: float  # running mean of the advantage
    M_K: float  # running maximum (or scale) of the advantage
    ratio: float  # m_K / M_K, clipped to [0, 1]; 0 where M_K = 0
    K: int  # number of target updates since learning began
    gamma: float
    r_max: float
    log_C_K: float  # log of the bound C_K + B_K; nan where the policies are not regularised

    @property
    def C_K(self) -> float:
        """The bound itself, which may underflow to 0."""
        return math.exp(min(self.log_C_K, 700.0))


Rule = Callable[[Estimate], float]

# Printed constants, with which the paper's figures were made (coefficients.py explains them)
RULES: dict[str, Rule] = {
    "dcpp": lambda e: coefficients.dcpp(e.ratio, e.log_C_K),
    "dcpi": lambda e: coefficients.dcpi(e.ratio),
    "cpi": lambda e: coefficients.cpi(e.m_K, e.gamma, e.r_max),
    "spi": lambda e: coefficients.approximate_spi(e.m_K, e.gamma, e.r_max),
    "typical": lambda e: coefficients.measured_spi(e.ratio),
}


class Caution:
    """The coefficient ``zeta`` and the running measurements it is computed from.

    :param rule: name of a rule, "module:function" of one, a function of :class:`Estimate`,
        or a fixed number in [0, 1]
    :param allowed: names of the rules that fit the algorithm
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of its running maximum M_K, in [0, 1)
    :param r_max: bound of the absolute reward, > 0
    """

    def __init__(
        self,
        rule: str | float | Rule,
        allowed: Collection[str],
        rho1: float,
        rho2: float,
        r_max: float,
    ) -> None:
        # Before the first target update pi- is a random network: nothing to be cautious about
        self.zeta = 1.0
        self._rule: Rule | None = None
        self.argument: str | float | Rule = rule
        if callable(rule):
            self._rule = rule
        elif isinstance(rule, str):
            if rule not in allowed and ":" not in rule:
                raise InvalidArgument(
                    "zeta must be a number in [0, 1], a function of an Estimate, or one of "
                    f"{', '.join(allowed)}, got {rule!r}"
                )
            self._rule = RULES[rule] if rule in allowed else rule_from_name(rule)
        else:
            self.argument = self.zeta = check_number("zeta", rule, 0.0, 1.0)
        self.r_max = check_number("r_max", r_max, 0.0, low_open=True)
        self.tracker = coefficients.AdvantageTracker(
            check_number("rho1", rho1, 0.0, 1.0, high_open=True),
            check_number("rho2", rho2, 0.0, 1.0, high_open=True),
        )

    def observe(self, mean: th.Tensor, maximum: th.Tensor) -> None:
        """Include the mean and the maximum (or scale) of the advantages of one batch."""
        self.tracker.update(mean, maximum)

    def update_zeta(self, K: int, gamma: float, log_c: float = math.nan) -> dict[str, float]:
        """Set zeta for the next iteration. Returns zeta, and m_K and M_K if there are any yet."""
        mean, maximum = self.tracker.mean, self.tracker.maximum
        if mean is None or maximum is None:
            return {"zeta": self.zeta}
        m, M = float(mean), float(maximum)
        if self._rule is not None:
            ratio = float(self.tracker.ratio)
            zeta = self._rule(Estimate(m, M, ratio, K, gamma, self.r_max, log_c))
            # Our own rules are clipped; a user's may not be
            self.zeta = check_number("the result of zeta's function", zeta, 0.0, 1.0)
        return {"zeta": self.zeta, "m_K": m, "M_K": M}

    # Saved and loaded as the networks are, as tensors. NaN stands for "not measured yet".

    def state_dict(self) -> dict[str, th.Tensor]:
        nothing = th.tensor(math.nan)
        mean, maximum = self.tracker.mean, self.tracker.maximum
        return {
            "zeta": th.tensor(self.zeta, dtype=th.float64),
            "mean": nothing if mean is None else mean.clone(),
            "maximum": nothing if maximum is None else maximum.clone(),
        }

    def load_state_dict(self, state: dict[str, th.Tensor], strict: bool = True) -> None:
        """As ``nn.Module.load_state_dict``: without ``strict``, what is missing stays as it is."""
        if strict and set(state) != set(self.state_dict()):
            raise RuntimeError(
                f"the state of zeta must have the keys {', '.join(self.state_dict())}, "
                f"got {', '.join(state)}"
            )
        # A fixed number is an argument, which load() may have changed: it is not overwritten
        if self._rule is not None and "zeta" in state:
            self.zeta = float(state["zeta"])
        for name in ("mean", "maximum"):
            if name in state:
                setattr(self.tracker, name, None if state[name].isnan() else state[name].clone())


class RewardScale:
    """Typical size of a reward: the unit in which values are learned.

    It is the geometric mean of ``|r|`` over all rewards that are not 0: 1 where rewards are 1 and
    -1, whatever their number, and little moved by a few large ones. Rewards times c give c times
    the unit (to the bit for powers of two), so what is learned in it does not depend on c.
    """

    def __init__(self) -> None:
        # log2 |r| = exponent + log2 of the mantissa; the exponents are summed without rounding
        self._exponents, self._logarithms, self._count = 0, 0.0, 0

    @property
    def unit(self) -> float:
        """1 before the first reward."""
        if not self._count:
            return 1.0
        exponent, rest = divmod(self._exponents, self._count)
        return math.ldexp(2.0 ** ((rest + self._logarithms) / self._count), exponent)

    def observe(self, rewards: np.ndarray) -> None:
        """Include one step of every environment."""
        # A broken reward must not hide in the unit: it is found, and named, in its batch
        found = rewards[np.isfinite(rewards) & (rewards != 0.0)]
        if not len(found):
            return
        mantissas, exponents = np.frexp(np.abs(found, dtype=np.float64))
        self._exponents += int(exponents.sum())
        self._logarithms += float(np.log2(mantissas).sum())
        self._count += len(found)

    def state_dict(self) -> dict[str, th.Tensor]:
        return {
            "exponents": th.tensor(self._exponents, dtype=th.float64),
            "logarithms": th.tensor(self._logarithms, dtype=th.float64),
            "count": th.tensor(self._count, dtype=th.float64),
        }

    def load_state_dict(self, state: dict[str, th.Tensor], strict: bool = True) -> None:
        """As ``nn.Module.load_state_dict``: without ``strict``, what is missing stays as it is."""
        if strict and set(state) != set(self.state_dict()):
            raise RuntimeError(
                f"the state of the unit must have the keys {', '.join(self.state_dict())}, "
                f"got {', '.join(state)}"
            )
        if "exponents" in state:
            self._exponents = int(state["exponents"])
        if "logarithms" in state:
            self._logarithms = float(state["logarithms"])
        if "count" in state:
            self._count = int(state["count"])


def name_of_rule(rule: Rule) -> str:
    """``module:function``, under which a function given as zeta is saved. Other callables have no
    name that leads back to them: theirs says what to do when it is loaded."""
    kind = type(rule)
    module = getattr(rule, "__module__", kind.__module__)
    name = f"{module}:{getattr(rule, '__qualname__', kind.__qualname__)}"
    try:
        named = rule_from_name(name) is rule
    except InvalidArgument:  # a lambda, or a function inside another
        named = True
    return name if named else f"{name} (no function of a module)"


def rule_from_name(name: str) -> Rule:
    """The function behind ``module:function``, of a module that is already imported.

    A saved model must not choose what is imported.
    """
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InvalidArgument(
            f"zeta must be a function of an imported module, got {name!r}; "
            "import it, or give it again, as in load(path, zeta=my_rule)"
        )
    return found
