"""The policy that acts: a mixture of Boltzmann policies (CPP Eq. mixture_cvi)."""

import torch as th

from sb3_cpp.regularization import boltzmann

_CHUNK = 10
"""Trials at a time when a mixture is computed: what fits the processor's cache goes three times as fast."""


class Mixture:
    """``pi~ = zeta_n pi_n + (1 - zeta_n) [ zeta_{n-1} pi_{n-1} + (1 - zeta_{n-1}) [ ... pi_0 ] ]``, one for every trial.

    Each ``pi_k = softmax(phi(s) . preferences_k / temperature)``. Acting draws at every step *which* of them acts: the same
    law as acting from the mixture's probabilities, at the cost of one policy however long the chain is.

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

    def of_trial(self, trial: int) -> "Mixture":
        """The mixture of one trial alone."""
        mixture = Mixture(self.members[0][trial : trial + 1], self.temperature)
        mixture.members = [member[trial : trial + 1] for member in self.members]
        mixture.zetas = [zeta[trial : trial + 1] for zeta in self.zetas]
        return mixture

    def draw_members(self, steps: int, generator: th.Generator) -> th.Tensor:
        """Index of the member that acts, for every step of every trial, shape (steps, trials)."""
        return th.multinomial(self.weights, steps, replacement=True, generator=generator).T

    def log_policy(self, phi: th.Tensor) -> th.Tensor:
        """Log-probabilities of every trial's mixture: features (trials, states, M) -> (trials, states, actions)."""
        weights = th.stack(self.members, dim=2).flatten(1, 2)
        parts = zip(phi.split(_CHUNK), weights.split(_CHUNK), self.weights.split(_CHUNK))
        return (
            th.cat([self._probabilities(*part) for part in parts])
            .transpose(-1, -2)
            .log()
            .contiguous()
        )

    def _probabilities(
        self, phi: th.Tensor, preferences: th.Tensor, weights: th.Tensor
    ) -> th.Tensor:
        """(trials, actions, states): states last, where they are many, because a softmax over 3 numbers at a time is slow."""
        values = (preferences @ phi.transpose(-1, -2)).unflatten(1, (-1, len(self.members)))
        policies = boltzmann(values, self.temperature, dim=1)  # (trials, actions, members, states)
        return (weights[:, None, None] @ policies).squeeze(2)
