"""The policy that acts: a mixture of Boltzmann policies (CPP Eq. mixture_cvi)."""

import torch as th

from sb3_cpp.regularization import log_boltzmann, log_mixture


class Mixture:
    """``pi~ = zeta_n pi_n + (1 - zeta_n) [ zeta_{n-1} pi_{n-1} + (1 - zeta_{n-1}) [ ... pi_0 ] ]``, one for every trial.

    Each ``pi_k = softmax(phi(s) . preferences_k / temperature)``. Acting draws at every step *which* of them acts: the same law
    as acting from the mixture's probabilities, at the cost of one policy however long the chain is.

    :param preferences: weights of pi_0, shape (trials, actions, M)
    """

    def __init__(self, preferences: th.Tensor, temperature: float) -> None:
        self.temperature = temperature
        self.members = [preferences]
        self.zetas = [th.ones(preferences.shape[0], dtype=preferences.dtype)]

    def mixed_with(self, preferences: th.Tensor, zeta: th.Tensor) -> "Mixture":
        """``zeta * new + (1 - zeta) * this``; the oldest members are dropped once all that is left of them, in every trial, is
        lost beside 1 in this precision (the oldest member kept then stands for them)."""
        mixture = Mixture(preferences, self.temperature)
        mixture.members = [*self.members, preferences]
        mixture.zetas = [*self.zetas, zeta]
        felt = mixture.weights.cumsum(-1) > th.finfo(zeta.dtype).eps
        first = int(felt.any(dim=0).nonzero()[0])
        mixture.members = mixture.members[first:]
        mixture.zetas = [th.ones_like(zeta), *mixture.zetas[first + 1 :]]
        return mixture

    @property
    def weights(self) -> th.Tensor:
        """Probability of each member, ``zeta_k prod_{j>k} (1 - zeta_j)``, shape (trials, members)."""
        zetas = th.stack(self.zetas, dim=-1)
        stay = th.cat((1.0 - zetas[:, 1:], th.ones_like(zetas[:, :1])), dim=-1)
        return zetas * stay.flip(-1).cumprod(-1).flip(-1)

    def draw_members(self, steps: int, generator: th.Generator) -> th.Tensor:
        """Which member acts, at every step of every trial: preferences (steps, trials, actions, M) by index (steps, trials)."""
        return th.multinomial(self.weights, steps, replacement=True, generator=generator).T

    def log_policy(self, phi: th.Tensor) -> th.Tensor:
        """Log-probabilities of every trial's mixture at state features (trials, states, M), shape (trials, states, actions)."""
        stacked = th.cat(self.members, dim=1)
        log_policies = log_boltzmann((phi @ stacked.transpose(-1, -2)).unflatten(-1, (len(self.members), -1)), self.temperature)
        return th.einsum("nska,nk->nsa", log_policies.exp(), self.weights).log()
