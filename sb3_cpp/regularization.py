"""The regularised greedy step, its values and its distances, as pure functions.

Tabular, linear and deep code call these same functions. Every tensor has the actions in its last
dimension; policies are given as log-probabilities. ``temperature = tau + sigma`` (1/beta in the
paper) is the sum of the entropy weight ``tau`` and the KL weight ``sigma``, and
``alpha = sigma / (tau + sigma)`` is the share of the KL weight, so

    entropy weight  tau   = (1 - alpha) * temperature
    KL weight       sigma = alpha * temperature

Reference: Zhu, Kitamura, Matsubara, "Cautious Policy Programming" (CPP).
docs/theory/deviations.md lists the deviations from its print.
"""

import math

import torch as th
from torch.distributions import Normal
from torch.distributions import kl_divergence as distribution_kl

__all__ = [
    "boltzmann",
    "entropy",
    "gaussian_kl",
    "gaussian_mixture",
    "greedy_advantage",
    "greedy_value",
    "kl_divergence",
    "l1_bound",
    "l1_distance",
    "log_boltzmann",
    "log_geometric_mixture",
    "log_greedy",
    "log_mixture",
    "log_one_hot",
    "log_ratio_span",
    "mellow_value",
    "munchausen_bonus",
    "projection_loss",
    "regularized_value",
    "soft_value",
]


def _top(values: th.Tensor) -> th.Tensor:
    """Largest value over actions, detached: it is subtracted and added again, so it cancels."""
    return values.detach().amax(-1, keepdim=True)


def log_boltzmann(values: th.Tensor, temperature: float) -> th.Tensor:
    """Boltzmann policy, ``log softmax(values / temperature)``.

    The maximum is subtracted before the division, so that a small temperature cannot overflow.
    """
    return th.log_softmax((values - _top(values)) / temperature, dim=-1)


def boltzmann(values: th.Tensor, temperature: float, dim: int = -1) -> th.Tensor:
    """Probabilities of :func:`log_boltzmann`, with the actions in dimension ``dim``."""
    top = values.detach().amax(dim, keepdim=True)
    return th.softmax((values - top) / temperature, dim=dim)


def log_greedy(
    q: th.Tensor, log_baseline: th.Tensor, alpha: float, temperature: float
) -> th.Tensor:
    """Regularised greedy policy ``G Q ∝ baseline^alpha exp(Q / temperature)``.

    CPP Eq. boltzmann_greedy. It maximises :func:`regularized_value` over policies if alpha is the
    share of the *KL* weight. The paper prints ``alpha = tau / (tau + sigma)`` with tau as the
    entropy weight. Two readings are consistent: the two names are swapped (our default: KL weight
    .0124, alpha .9254), or the formula is wrong (KL weight .001, alpha .0746).
    """
    return th.log_softmax((q - _top(q)) / temperature + alpha * log_baseline, dim=-1)


def regularized_value(
    log_policy: th.Tensor, q: th.Tensor, log_baseline: th.Tensor, alpha: float, temperature: float
) -> th.Tensor:
    """Value of a policy with entropy bonus and KL penalty, shape (..., 1).

    ``sum_a p(a) [ Q(a) - tau log p(a) - sigma log(p(a) / baseline(a)) ]`` (CPP Eq. sys_DPPbellman;
    the paper prints both logs with a plus, which punishes entropy and rewards distance).
    """
    policy = log_policy.exp()
    # = - tau log p - sigma log(p / baseline)
    bonus = temperature * (alpha * log_baseline - log_policy)
    return (policy * (q + bonus)).sum(-1, keepdim=True)


def greedy_value(
    q: th.Tensor, log_baseline: th.Tensor, alpha: float, temperature: float
) -> th.Tensor:
    """Value at the maximiser :func:`log_greedy`, shape (..., 1).

    ``temperature * log sum_a baseline(a)^alpha exp(Q(a) / temperature)``
    """
    # The maximum is subtracted before the division by a small temperature
    top = _top(q)
    return top + temperature * th.logsumexp(
        (q - top) / temperature + alpha * log_baseline, dim=-1, keepdim=True
    )


def soft_value(values: th.Tensor, temperature: float) -> th.Tensor:
    """Log-sum-exp value, ``temperature * log sum_a exp(values / temperature)``, shape (..., 1)."""
    top = _top(values)
    return top + temperature * th.logsumexp((values - top) / temperature, dim=-1, keepdim=True)


def mellow_value(values: th.Tensor, temperature: float, mask: th.Tensor | None = None) -> th.Tensor:
    """Mellowmax, ``temperature * log mean_a exp(values / temperature)``, shape (..., 1).

    It lies between the mean and the maximum. With a ``mask`` (True for valid actions) the mean is
    over the valid ones; values of the others must be very low.
    """
    top = _top(values)
    weights = th.exp((values - top) / temperature)
    if mask is None:
        mean = weights.mean(-1, keepdim=True)
    else:
        mean = weights.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    return top + temperature * mean.log()


def munchausen_bonus(
    values: th.Tensor,
    actions: th.Tensor,
    alpha: float | th.Tensor,
    temperature: float,
    clip_min: float = -float("inf"),
) -> th.Tensor:
    """Munchausen bonus ``alpha * clip(temperature * log pi(a), clip_min, 0)``, shape (..., 1).

    ``pi = softmax(values / temperature)``; ``actions`` has shape (..., 1) (Vieillard et al. 2020,
    "Munchausen Reinforcement Learning").
    """
    scaled_log_policy = temperature * log_boltzmann(values, temperature)
    return alpha * scaled_log_policy.gather(-1, actions.long()).clamp(clip_min, 0.0)


def log_one_hot(values: th.Tensor, smoothing: float = 1e-6) -> th.Tensor:
    """Greedy policy (ties to the first action), mixed with ``smoothing`` of the uniform policy.

    The smoothing keeps the logs finite.
    """
    n_actions = values.shape[-1]
    # Not F.one_hot, which reads values back from the device and so cannot be compiled
    one_hot = th.zeros_like(values).scatter(-1, values.argmax(-1, keepdim=True), 1.0)
    return ((1.0 - smoothing) * one_hot + smoothing / n_actions).log()


def log_mixture(log_new: th.Tensor, log_old: th.Tensor, zeta: float | th.Tensor) -> th.Tensor:
    """Mixture ``zeta * new + (1 - zeta) * old`` (CPP Eq. mixture_cvi).

    It is exactly ``new`` at zeta = 1 and ``old`` at 0. A tensor ``zeta`` must broadcast against the
    policies: shape (trials, 1, 1) for one coefficient per trial.
    """
    # log 0 = -inf is right here: logaddexp(x, -inf) is exactly x
    if isinstance(zeta, th.Tensor):
        return th.logaddexp(log_new + zeta.log(), log_old + th.log1p(-zeta))
    log_zeta, log_rest = (
        math.log(weight) if weight > 0.0 else -math.inf for weight in (zeta, 1.0 - zeta)
    )
    return th.logaddexp(log_new + log_zeta, log_old + log_rest)


def log_geometric_mixture(
    log_new: th.Tensor, log_old: th.Tensor, zeta: float | th.Tensor
) -> th.Tensor:
    """Geometric mixture ``∝ new^zeta old^(1-zeta)``; exactly ``new`` at 1 and ``old`` at 0.

    A mixture of Boltzmann policies is one: their preferences are mixed linearly. With ``new = G Q``
    (baseline old) it is the greedy step with ``alpha' = 1 - zeta (1-alpha)`` and temperature
    ``temperature / zeta``: the entropy weight stays, the KL weight grows as zeta falls. A tensor
    ``zeta`` must broadcast against the policies. (docs/theory/caution.md, A)
    """
    weight = th.as_tensor(zeta, dtype=log_new.dtype, device=log_new.device)
    # The ends are exact, and spared 0 * log(0) = NaN
    inside = (weight > 0.0) & (weight < 1.0)
    new, old = log_new.where(inside | (weight >= 1.0), 0.0), log_old.where(weight < 1.0, 0.0)
    mixed = th.log_softmax(weight * new + (1.0 - weight) * old, dim=-1)
    return th.where(inside, mixed, th.where(weight >= 1.0, log_new, log_old))


def log_ratio_span(log_new: th.Tensor, log_old: th.Tensor) -> th.Tensor:
    """Span over actions of ``f = log(new / old)``, shape (...): it bounds KL and L1 distance.

    For ``new = G Q`` with baseline old, ``f = Q / temperature - (1-alpha) log old`` up to a
    constant per state. The bounds: ``tabular.bounds.span_change``.
    """
    ratio = log_new - log_old
    return ratio.amax(-1) - ratio.amin(-1)


def kl_divergence(log_p: th.Tensor, log_q: th.Tensor) -> th.Tensor:
    """``KL(p || q) = sum_a p(a) log(p(a) / q(a))``, shape (...)."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def entropy(log_policy: th.Tensor) -> th.Tensor:
    """Shannon entropy ``- sum_a p(a) log p(a)``, shape (...)."""
    return -(log_policy.exp() * log_policy).sum(-1)


def l1_distance(log_p: th.Tensor, log_q: th.Tensor) -> th.Tensor:
    """``sum_a |p(a) - q(a)|``, twice the total variation, shape (...)."""
    return (log_p.exp() - log_q.exp()).abs().sum(-1)


def l1_bound(kl: th.Tensor) -> th.Tensor:
    """Upper bound of the L1 distance of two policies by their KL, shape of ``kl``, at most 2.

    ``2 min( sqrt(KL / 2), sqrt(1 - exp(-KL)) )``: Pinsker, and Bretagnolle and Huber.
    """
    return 2.0 * th.minimum(kl / 2.0, -th.expm1(-kl)).clamp_min(0.0).sqrt()


def gaussian_mixture(new: Normal, old: Normal, zeta: float) -> Normal:
    """Geometric mixture ``∝ new^zeta old^(1-zeta)`` of Gaussians with independent dimensions.

    Precisions (1/variance), and means weighted by them, average with weights zeta and 1 - zeta.
    Behind the same tanh it is the geometric mixture too: its Jacobian is that of both. Exactly
    ``new`` at 1 and ``old`` at 0. (docs/algorithms/cautious_sac.md)
    """
    if zeta in (0.0, 1.0):
        return new if zeta else old
    new_weight, old_weight = (
        zeta * new.variance.reciprocal(),
        (1 - zeta) * old.variance.reciprocal(),
    )
    precision = new_weight + old_weight
    return Normal(th.lerp(old.mean, new.mean, new_weight / precision), precision.rsqrt())


def gaussian_kl(p: Normal, q: Normal) -> th.Tensor:
    """``KL(p || q)`` summed over the actions' dimensions, shape (..., 1); equal behind a tanh."""
    return distribution_kl(p, q).sum(-1, keepdim=True)


def greedy_advantage(q: th.Tensor, log_policy: th.Tensor) -> th.Tensor:
    """Advantage of the greedy policy over ``pi``, shape (...).

    ``A(s) = max_a Q(s,a) - sum_a pi(a|s) Q(s,a) >= 0``, computed as a mean of action gaps, which
    cannot turn negative by rounding.
    """
    gaps = q.amax(-1, keepdim=True) - q
    return (log_policy.exp() * gaps).sum(-1)


def projection_loss(log_policy: th.Tensor, log_mix: th.Tensor) -> th.Tensor:
    """Mean of ``KL( policy || stopgrad[mixture] )`` (CPP Eq. policy_loss).

    The gradient of ``sum_a p log(p/m)`` has a second part, ``sum_a grad p = 0``. It is left out, so
    that at zeta = 1, where the mixture is the policy, value and gradient are exactly 0 in floats.
    """
    log_ratio = (log_policy - log_mix).detach()
    return (log_policy.exp() * log_ratio).sum(-1).mean()
