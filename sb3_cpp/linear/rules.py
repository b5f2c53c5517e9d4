"""The algorithms of CPP Sec. 5.2: each is a rule that turns what the last buffer showed into zeta, one entry per trial.

The rules themselves are those of :mod:`sb3_cpp.zeta`, here with the constants as printed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch as th

from sb3_cpp import zeta


class Evidence(NamedTuple):
    """What is known of the step from pi_K to pi_{K+1}; tensors have shape (trials,), maxima are over the buffer's states."""

    advantage: th.Tensor  # mean of A(s) = max_a Q(s,a) - sum_a pi_K(a|s) Q(s,a)
    advantage_range: th.Tensor  # max_{s,s'} |A(s) - A(s')|
    distance: th.Tensor  # delta = max_s sum_a |pi_{K+1} - pi_K|
    printed_distance: th.Tensor  # max_s |sum_a (pi_{K+1} - pi_K)|, as the paper prints it: 0 but for rounding
    ratio: th.Tensor  # m_K / M_K
    log_c: float  # log C_K
    gamma: float
    r_max: float


Rule = Callable[[Evidence], th.Tensor]

RULES: dict[str, Rule] = {
    "cvi": lambda e: th.ones_like(e.advantage),
    "cpp": lambda e: zeta.dcpp(e.ratio, e.log_c),  # Algorithm 1: the adaptive coefficient
    "cpp_linear": lambda e: zeta.linear_cpp(e.advantage, e.log_c, e.gamma),  # the text's Eq. linear_cpp
    "espi": lambda e: zeta.exact_spi(e.advantage, e.distance, e.advantage_range, e.gamma),
    "espi_printed": lambda e: zeta.exact_spi(e.advantage, e.printed_distance, e.advantage_range, e.gamma),
    "aspi": lambda e: zeta.approximate_spi(e.advantage, e.gamma, e.r_max),
    "cpi": lambda e: zeta.cpi(e.advantage, e.gamma, e.r_max),
}
