"""Features phi(s, a) of a linear Q-function, ``Q(s,a) = phi(s,a) . theta`` (CPP Sec. 4.4, "Linear CPP").

Every feature here is a product ``phi(s,a) = phi(s) x g(a)``: state features times action features. A Gaussian over the joint
``x = [s, a]`` is such a product, and so is "one set of weights per action", whose g(a) is the one-hot vector of a.
Shapes: states (..., dims), state features (..., M), weights (..., groups, F), values (..., actions).
"""

import math
from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np
import torch as th

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number

MAX_FEATURES = 10_000  # beyond it a trial's normal equations alone take gigabytes

StateFeatures = Callable[[th.Tensor], th.Tensor]


class RadialBasis:
    """Radial basis functions on a grid, ``phi_i(s) = exp(-||s - c_i||^2 / width^2)``, distances in grid spacings.

    :param low: lowest value of each dimension of the state
    :param high: highest value of each dimension
    :param bins: number of centres along each dimension (at least 2)
    :param width: in units of the spacing of the centres
    :param periodic: indices of the dimensions that close upon themselves (an angle): there ``low`` and ``high`` are one point
    """

    def __init__(
        self,
        low: Sequence[float],
        high: Sequence[float],
        bins: Sequence[int],
        width: float = 0.8,
        periodic: Sequence[int] = (),
    ) -> None:
        check_number("width", width, 0.0, low_open=True)
        if not len(low) == len(high) == len(bins) > 0:
            raise InvalidArgument(f"low, high and bins must have one entry per dimension, got {low!r}, {high!r}, {bins!r}")
        if any(not 0 <= d < len(low) for d in periodic):
            raise InvalidArgument(f"periodic must hold dimensions between 0 and {len(low) - 1}, got {periodic!r}")
        self.bins = [check_whole_number("bins", b, 2) for b in bins]
        self.size = math.prod(self.bins)
        self.arguments = {"low": list(low), "high": list(high), "bins": self.bins, "width": width, "periodic": list(periodic)}
        if self.size > MAX_FEATURES:
            raise InvalidArgument(f"bins must make at most {MAX_FEATURES} centres, got {self.bins!r} = {self.size}")
        dims, centres, scales, periods = [], [], [], []
        for d, (lo, hi, n) in enumerate(zip(low, high, self.bins)):
            if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
                raise InvalidArgument(f"low and high must be finite with low < high, got {lo!r} and {hi!r} in dimension {d}")
            spacing = (hi - lo) / (n if d in periodic else n - 1)
            dims += [d] * n
            scales += [1.0 / (width * spacing)] * n
            centres += [(lo + i * spacing) / (width * spacing) for i in range(n)]
            periods += [(hi - lo) / (width * spacing) if d in periodic else 0.0] * n
        turns = [1.0 / period if period else 0.0 for period in periods]
        self._dims, self._has_period = th.tensor(dims), len(periodic) > 0
        self._tables = {
            dtype: tuple(th.tensor(column, dtype=dtype) for column in (scales, centres, periods, turns))
            for dtype in (th.float32, th.float64)
        }

    @classmethod
    def from_space(
        cls, space: gym.Space, bins: Sequence[int], width: float = 0.8, periodic: Sequence[int] = ()
    ) -> "RadialBasis":
        """A grid over the bounds of a flat Box; unbounded dimensions must be given by hand to the constructor."""
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise InvalidArgument(f"observation space must be a flat Box, got {space}")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InvalidArgument(f"observation space must have finite bounds (or give RadialBasis low and high), got {space}")
        return cls(space.low.tolist(), space.high.tolist(), bins, width, periodic)

    def __call__(self, states: th.Tensor) -> th.Tensor:
        """(..., dims) -> (..., M). A Gaussian over a grid is the outer product of Gaussians over its dimensions."""
        scales, centres, periods, turns = self._tables[states.dtype]
        distance = states.index_select(-1, self._dims) * scales - centres  # in widths
        if self._has_period:
            distance = distance - th.round(distance * turns) * periods
        product, *others = th.exp(-distance.square()).split_with_sizes(self.bins, dim=-1)
        for part in others:
            product = (product.unsqueeze(-1) * part.unsqueeze(-2)).flatten(-2)
        # what is lost beside 1 in this precision counts as 0: left in, it makes denormal numbers, 20 times slower to multiply
        return th.threshold(product, th.finfo(states.dtype).eps, 0.0)


class OneHot:
    """One feature per state, for states given as an index of shape (..., 1): the tabular case."""

    def __init__(self, n_states: int) -> None:
        self.size = check_whole_number("n_states", n_states, 1)

    def __call__(self, states: th.Tensor) -> th.Tensor:
        return th.nn.functional.one_hot(states[..., 0].long(), self.size).to(states.dtype)


class LinearQ:
    """State features crossed with action features: how weights become values, and transitions become rows of a regression.

    :param state_features: maps states (..., dims) to (..., M)
    :param n_state_features: M
    :param n_actions: number of actions
    :param action_centres: None gives every action its own weights (F = M, one group per action). A number puts that many
        Gaussian centres along the action's index, the printed features over ``x = [s, a]`` (F = M * centres, one group)
    :param width: width of the action Gaussians in spacings of their centres
    """

    def __init__(
        self,
        state_features: StateFeatures,
        n_state_features: int,
        n_actions: int,
        action_centres: int | None = None,
        width: float = 0.8,
    ) -> None:
        self.state_features, self.n_actions = state_features, n_actions
        self.action_features: th.Tensor | None = None
        self.groups, self.size = n_actions, n_state_features
        if action_centres is not None:
            axis = RadialBasis([0.0], [max(n_actions - 1.0, 1.0)], [action_centres], width)
            self.action_features = axis(th.arange(n_actions, dtype=th.float64).unsqueeze(-1))
            self.groups, self.size = 1, n_state_features * action_centres

    def zeros(self, n_trials: int, dtype: th.dtype) -> th.Tensor:
        """Weights of the function Q = 0, shape (trials, groups, F)."""
        return th.zeros(n_trials, self.groups, self.size, dtype=dtype)

    def per_action(self, weights: th.Tensor) -> th.Tensor:
        """Weights (..., groups, F) as one vector of M weights per action, (..., actions, M)."""
        if self.action_features is None:
            return weights
        g = self.action_features.to(weights)
        return g @ weights.squeeze(-2).unflatten(-1, (-1, g.shape[-1])).transpose(-1, -2)

    def values(self, phi: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """``Q(s,a) = phi(s,a) . theta`` of every action: state features (trials, steps, M) -> (trials, steps, actions)."""
        # the few actions as rows of the product: twice as fast as the few as its columns
        return (self.per_action(weights) @ phi.transpose(-1, -2)).transpose(-1, -2).contiguous()

    def normal_equations(self, phi: th.Tensor, actions: th.Tensor, targets: th.Tensor) -> tuple[th.Tensor, th.Tensor]:
        """``Phi' Phi`` (trials, groups, F, F) and ``Phi' y`` (trials, groups, F) of the rows phi(s_t, a_t).

        :param phi: state features, shape (trials, steps, M)
        :param actions: shape (trials, steps)
        :param targets: y, shape (trials, steps)
        """
        if self.action_features is None:
            groups = actions + self.n_actions * th.arange(len(phi)).unsqueeze(-1)
            rows, per_group = phi.flatten(0, 1), self.n_actions
        else:
            groups = th.arange(len(phi)).unsqueeze(-1).expand_as(actions)
            rows, per_group = (
                (phi.unsqueeze(-1) * self.action_features.to(phi)[actions].unsqueeze(-2)).flatten(-2).flatten(0, 1),
                1,
            )
        # each action's rows lie together, so that no product is spent on the zeros of a block matrix
        order = groups.flatten().argsort()
        counts = th.bincount(groups.flatten(), minlength=len(phi) * per_group).tolist()
        gram = rows.new_empty(len(counts), self.size, self.size)
        right = rows.new_empty(len(counts), self.size)
        for i, (x, y) in enumerate(zip(rows.index_select(0, order).split(counts), targets.flatten()[order].split(counts))):
            th.mm(x.T, x, out=gram[i])
            th.mv(x.T, y, out=right[i])
        return gram.unflatten(0, (-1, per_group)), right.unflatten(0, (-1, per_group))
