"""Policies with linear preferences: the mixture that acts, and a learned policy saved to a file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch as th

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.coefficients import statewise
from sb3_cpp.linear.features import RadialBasis, StateFeatures
from sb3_cpp.regularization import boltzmann, l1_distance, log_boltzmann
from sb3_cpp.tabular.mdp import policy_advantage

# From a step and the features (trials, M) to the preferences that act, (trials, actions, M)
Acting = Callable[[int, np.ndarray], np.ndarray]

_CHUNK = 10  # trials at a time: computing a mixture is three times as fast if they fit the cache


class Mixture:
    """``pi~ = zeta_n pi_n + (1 - zeta_n) [ zeta_{n-1} pi_{n-1} + ... pi_0 ]``, one per trial.

    CPP Eq. mixture_cvi with ``pi_k = softmax(phi(s) . preferences_k / temperature)``.

    :param preferences: weights of pi_0, shape (trials, actions, M)
    """

    def __init__(self, preferences: th.Tensor, temperature: float) -> None:
        self.temperature = temperature
        self.members = [preferences]
        self.zetas = [th.ones(preferences.shape[0], dtype=preferences.dtype)]

    def mixed_with(self, preferences: th.Tensor, zeta: th.Tensor) -> "Mixture":
        """``zeta * new + (1 - zeta) * this``."""
        mixture = Mixture(preferences, self.temperature)
        mixture.members = [*self.members, preferences]
        mixture.zetas = [*self.zetas, zeta]
        # Drop the oldest members whose weight, in every trial, is below the precision; the oldest
        # one kept stands for them. Otherwise a long run would cost more with every iteration.
        relevant = mixture.weights.cumsum(-1) > th.finfo(zeta.dtype).eps
        first = int(relevant.any(dim=0).nonzero()[0])
        mixture.members = mixture.members[first:]
        mixture.zetas = [th.ones_like(zeta), *mixture.zetas[first + 1 :]]
        return mixture

    @property
    def weights(self) -> th.Tensor:
        """Probability of each member, ``zeta_k prod_{j>k} (1 - zeta_j)``: (trials, members)."""
        # a product over the members after each one: cumprod from the end
        zetas = th.stack(self.zetas, dim=-1)
        stay = th.cat((1.0 - zetas[:, 1:], th.ones_like(zetas[:, :1])), dim=-1)
        return zetas * stay.flip(-1).cumprod(-1).flip(-1)

    def of_trial(self, trial: int) -> "Mixture":
        """The mixture of one trial."""
        mixture = Mixture(self.members[0][trial : trial + 1], self.temperature)
        mixture.members = [member[trial : trial + 1] for member in self.members]
        mixture.zetas = [zeta[trial : trial + 1] for zeta in self.zetas]
        return mixture

    def draw_members(self, steps: int, generator: th.Generator) -> th.Tensor:
        """Index of the acting member, for every step of every trial, shape (steps, trials)."""
        return th.multinomial(self.weights, steps, replacement=True, generator=generator).T

    def acting(self, steps: int, generator: th.Generator) -> Acting:
        """Draw the members that act in the next steps."""
        # Drawing *which* member acts has the same law as acting from the mixture's probabilities,
        # at the cost of one policy however long the chain is.
        n = len(self.members[0])
        members = th.cat(self.members).numpy()  # (members * trials, actions, M)
        drawn = (self.draw_members(steps, generator) * n + th.arange(n)).numpy()
        # drawn nevertheless: how many random numbers are used must not depend on the mixture
        if len(self.members) == 1:
            return lambda t, phi: members
        return lambda t, phi: members.take(drawn[t], axis=0)

    def log_policy(self, phi: th.Tensor) -> th.Tensor:
        """Log-probabilities of every trial: (trials, states, M) -> (trials, states, actions)."""
        weights = th.stack(self.members, dim=2).flatten(1, 2)
        parts = zip(phi.split(_CHUNK), weights.split(_CHUNK), self.weights.split(_CHUNK))
        probabilities = th.cat([self._probabilities(*part) for part in parts])
        return probabilities.transpose(-1, -2).log().contiguous()

    def _probabilities(
        self, phi: th.Tensor, preferences: th.Tensor, weights: th.Tensor
    ) -> th.Tensor:
        """(trials, actions, states): states last, since a softmax over 3 numbers each is slow."""
        values = (preferences @ phi.transpose(-1, -2)).unflatten(1, (-1, len(self.members)))
        policies = boltzmann(values, self.temperature, dim=1)  # (trials, actions, members, states)
        return (weights[:, None, None] @ policies).squeeze(2)


class StatewiseMixture:
    """``new`` in the states where it is no worse than ``old`` beyond the error of Q, else ``old``.

    State-wise caution (docs/theory/caution.md, E) as a policy: whether a state's coefficient is 1
    is decided when the state is met.

    :param old: preferences of the old policy, shape (trials, actions, M)
    :param new: preferences of the new policy
    :param q: weights of Q of the old policy, per action
    :param error: bound on its error, shape (trials,)
    """

    def __init__(
        self, old: th.Tensor, new: th.Tensor, q: th.Tensor, error: th.Tensor, temperature: float
    ) -> None:
        self.old, self.new, self.q, self.error = old, new, q, error
        self.temperature = temperature

    def of_trial(self, trial: int) -> "StatewiseMixture":
        """The policy of one trial."""
        one = slice(trial, trial + 1)
        return StatewiseMixture(
            self.old[one], self.new[one], self.q[one], self.error[one], self.temperature
        )

    def _candidates(self, phi: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Log-probabilities of new and old (trials, states, actions), and whether new acts."""
        log_new, log_old = (
            log_boltzmann(phi @ part.mT, self.temperature) for part in (self.new, self.old)
        )
        advantage = policy_advantage(phi @ self.q.mT, log_new, log_old)
        zeta = statewise(advantage, l1_distance(log_new, log_old), self.error.unsqueeze(-1))
        return log_new, log_old, zeta.unsqueeze(-1) > 0.0

    def log_policy(self, phi: th.Tensor) -> th.Tensor:
        """Log-probabilities of every trial: (trials, states, M) -> (trials, states, actions)."""
        log_new, log_old, accepted = self._candidates(phi)
        return log_new.where(accepted, log_old)

    def acting(self, steps: int, generator: th.Generator) -> Acting:
        """The preferences that act depend on the state, and nothing is drawn."""

        def choose(t: int, phi: np.ndarray) -> np.ndarray:
            accepted = self._candidates(th.from_numpy(phi).unsqueeze(1))[2]
            return self.new.where(accepted, self.old).numpy()

        return choose


class LinearPolicy:
    """``softmax(preferences . phi(s) / temperature)`` of one trial, or its most probable action.

    ``predict`` has SB3's signature, so ``stable_baselines3.common.evaluation.evaluate_policy``
    accepts it as a model.

    :param state_features: maps states (..., dims) to (..., M)
    :param preferences: one vector of weights per action, shape (actions, M)
    :param temperature: of the sampled policy (``deterministic=False``)
    :param seed: of the sampled policy
    """

    def __init__(
        self,
        state_features: StateFeatures,
        preferences: th.Tensor,
        temperature: float,
        seed: int = 0,
    ) -> None:
        self.state_features, self.preferences = state_features, preferences
        self.temperature = temperature
        self.generator = th.Generator().manual_seed(seed)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Actions for observations of shape (..., dims); ``state`` is returned unchanged."""
        states = np.asarray(observation, dtype=self.preferences.numpy().dtype)
        values = th.from_numpy(self.state_features(states)) @ self.preferences.T
        if deterministic:
            return values.argmax(-1).numpy(), state
        probabilities = log_boltzmann(values, self.temperature).exp()
        # th.multinomial takes at most two dimensions
        flat = probabilities.reshape(-1, values.shape[-1])
        actions = th.multinomial(flat, 1, generator=self.generator)
        return actions.reshape(values.shape[:-1]).numpy(), state


def save_weights(
    path: str | Path, basis: RadialBasis, preferences: th.Tensor, temperature: float
) -> None:
    """Write the preferences of all trials, (trials, actions, M), and their grid, as ``.npz``."""
    # np.savez stores any further keyword as an array: before numpy 2.2 even `allow_pickle`
    arrays: dict[str, Any] = {name: np.asarray(value) for name, value in basis.arguments.items()}
    np.savez(path, preferences=preferences.numpy(), temperature=np.array(temperature), **arrays)


def load_policy(path: str | Path, trial: int = 0) -> LinearPolicy:
    """The policy of one trial from a file of :func:`save_weights`."""
    with np.load(path) as file:
        content = dict(file)
    preferences = th.from_numpy(content.pop("preferences"))
    temperature = float(content.pop("temperature"))
    if not 0 <= trial < len(preferences):
        raise InvalidArgument(
            f"trial must be a whole number in [0, {len(preferences) - 1}], got {trial!r}"
        )
    basis = RadialBasis(**{name: value.tolist() for name, value in content.items()})
    return LinearPolicy(basis, preferences[trial], temperature)
