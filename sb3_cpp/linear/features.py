"""Features of states and a Q-function linear in them, fitted by ridge regression.

Features of the state are functions from states (..., dims) to features (..., M), numpy arrays both.
Weights and values are torch tensors.
"""
# Features are computed at every step of the environment, where arrays are small and numpy takes
# half the time of torch.

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch as th

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number, require

MAX_FEATURES = 10_000  # beyond it one trial's normal equations take gigabytes

StateFeatures = Callable[[np.ndarray], np.ndarray]


class RadialBasis:
    """Radial basis functions on a grid, ``phi_i(s) = exp(-||s - c_i||^2 / width^2)``.

    :param low: lowest value of each dimension of the state
    :param high: highest value of each dimension
    :param bins: number of centres along each dimension (at least 2)
    :param width: in units of the spacing of the centres, as are the distances
    :param periodic: indices of the dimensions that close upon themselves (an angle): there ``low``
        and ``high`` are one point
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
            raise InvalidArgument(
                "low, high and bins must have one entry per dimension, "
                f"got {low!r}, {high!r}, {bins!r}"
            )
        if any(not 0 <= d < len(low) for d in periodic):
            raise InvalidArgument(
                f"periodic must hold dimensions between 0 and {len(low) - 1}, got {periodic!r}"
            )
        self.bins = [check_whole_number("bins", b, 2) for b in bins]
        self.size = math.prod(self.bins)
        self.arguments = {
            "low": list(low),
            "high": list(high),
            "bins": self.bins,
            "width": width,
            "periodic": list(periodic),
        }
        if self.size > MAX_FEATURES:
            raise InvalidArgument(
                f"bins must make at most {MAX_FEATURES} centres, got {self.bins!r} = {self.size}"
            )
        dims, centres, scales, periods = [], [], [], []
        for d, (lo, hi, n) in enumerate(zip(low, high, self.bins)):
            if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
                raise InvalidArgument(
                    f"low and high must be finite with low < high, got {lo!r} and {hi!r} "
                    f"in dimension {d}"
                )
            # of n centres on a circle, the last one has the first as its next neighbour
            spacing = (hi - lo) / (n if d in periodic else n - 1)
            dims += [d] * n
            scales += [1.0 / (width * spacing)] * n
            centres += [(lo + i * spacing) / (width * spacing) for i in range(n)]
            periods += [(hi - lo) / (width * spacing) if d in periodic else 0.0] * n
        turns = [1.0 / period if period else 0.0 for period in periods]
        self._dims, self._has_period = np.array(dims), len(periodic) > 0
        ends = np.cumsum(self.bins).tolist()
        self._axes = [slice(end - n, end) for n, end in zip(self.bins, ends)]
        # per precision, because numpy would promote float32 states to float64 otherwise
        self._tables = {
            np.dtype(dtype): tuple(
                np.array(column, dtype=dtype)
                for column in (scales, centres, periods, turns, np.finfo(dtype).eps)
            )
            for dtype in (np.float32, np.float64)
        }

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """(..., dims) -> (..., M): the outer product of the Gaussians over each dimension."""
        scales, centres, periods, turns, lost = self._tables[states.dtype]
        distance = states.take(self._dims, axis=-1)
        distance *= scales
        distance -= centres  # in widths
        if self._has_period:  # the shorter way round; where there is no period, turns are 0
            turned = np.rint(distance * turns)
            turned *= periods
            distance -= turned
        factors = np.square(distance, out=distance)
        np.exp(np.negative(factors, out=factors), out=factors)
        # values below the precision become 0: denormal numbers are 20 times slower to multiply
        factors *= factors > lost
        # A Gaussian of the squared norm is the product of those over each dimension: 10 + 10
        # exponentials instead of 10 * 10.
        product, *others = (factors[..., axis] for axis in self._axes)
        for part in others:
            product = np.einsum("...i,...j->...ij", product, part).reshape(*states.shape[:-1], -1)
        return product


class OneHot:
    """One feature per state, for states given as an index of shape (..., 1): the tabular case."""

    def __init__(self, n_states: int) -> None:
        self.size = check_whole_number("n_states", n_states, 1)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        return np.eye(self.size, dtype=states.dtype)[states[..., 0].astype(int)]


class LinearQ:
    """``Q(s,a) = phi(s,a) . theta`` (CPP Sec. 4.4): values of weights, regression of transitions.

    Every feature is a product ``phi(s,a) = phi(s) x g(a)`` of state and action features. Shapes:
    state features (..., M), weights (..., groups, F), values (..., actions).

    :param state_features: maps states (..., dims) to (..., M)
    :param n_state_features: M
    :param n_actions: number of actions
    :param action_centres: None gives every action its own weights (F = M, one group per action). A
        number puts that many Gaussian centres along the action's index, the printed features over
        ``x = [s, a]`` (F = M * centres, one group)
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
        # A Gaussian over the joint x = [s, a] is such a product; so is "one set of weights per
        # action", whose g(a) is the one-hot vector of a.
        self.groups, self.size = n_actions, n_state_features
        if action_centres is not None:
            check_whole_number("action_centres", action_centres, 2)
            check_number("action_centres", action_centres, 2, MAX_FEATURES)
            # a grid needs an extent, also for one action
            axis = RadialBasis([0.0], [max(n_actions - 1.0, 1.0)], [action_centres], width)
            indices = np.arange(n_actions, dtype=np.float64)[:, np.newaxis]
            self.action_features = th.from_numpy(axis(indices))
            self.groups, self.size = 1, n_state_features * action_centres

    def zeros(self, n_trials: int, dtype: th.dtype) -> th.Tensor:
        """Weights of the function Q = 0, shape (trials, groups, F)."""
        return th.zeros(n_trials, self.groups, self.size, dtype=dtype)

    def per_action(self, weights: th.Tensor) -> th.Tensor:
        """Weights (..., groups, F) as one vector of M weights per action, (..., actions, M)."""
        if self.action_features is None:
            return weights
        # sum over the action centres: one vector of M weights for each row of g
        g = self.action_features.to(weights)
        return g @ weights.squeeze(-2).unflatten(-1, (-1, g.shape[-1])).transpose(-1, -2)

    def values(self, phi: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """``Q(s,a)`` of every action: (trials, steps, M) -> (trials, steps, actions)."""
        # the few actions as rows of the product: twice as fast as the few as its columns
        return (self.per_action(weights) @ phi.transpose(-1, -2)).transpose(-1, -2).contiguous()

    def normal_equations(
        self, phi: th.Tensor, actions: th.Tensor, targets: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor]:
        """``Phi' Phi`` (trials, groups, F, F) and ``Phi' y`` (trials, groups, F).

        :param phi: state features, shape (trials, steps, M)
        :param actions: shape (trials, steps)
        :param targets: y, shape (trials, steps)
        """
        trials = th.arange(len(phi)).unsqueeze(-1)
        if self.action_features is None:
            rows, group = phi, trials * self.groups + actions
        else:
            g = self.action_features.to(phi)[actions]
            rows = (phi.unsqueeze(-1) * g.unsqueeze(-2)).flatten(-2)
            group = trials.expand_as(actions)
        # Sorted by group, no product is spent on the zeros of a block matrix; one group at a time,
        # the rows are still in the cache when they are multiplied.
        order = group.flatten().argsort()
        counts = th.bincount(group.flatten(), minlength=len(phi) * self.groups).tolist()
        rows, y = rows.flatten(0, 1), targets.flatten()
        gram = rows.new_empty(len(counts), self.size, self.size)
        right = rows.new_empty(len(counts), self.size)
        for i, members in enumerate(order.split(counts)):
            design = rows.index_select(0, members)
            th.mm(design.T, design, out=gram[i])
            th.mv(design.T, y.index_select(0, members), out=right[i])
        return gram.unflatten(0, (-1, self.groups)), right.unflatten(0, (-1, self.groups))


class SingularEquations(ValueError):
    """The samples do not determine the weights, and there is no penalty to do so."""


def solve_ridge(
    gram: th.Tensor, right: th.Tensor, penalty: float, centre: th.Tensor | None = None
) -> th.Tensor:
    """``theta = (Phi' Phi + penalty I)^-1 (Phi' y + penalty centre)``, many problems at once.

    The minimiser of ``||Phi theta - y||^2 + penalty ||theta - centre||^2`` (CPP
    Eq. normal_equations).

    :param gram: Phi' Phi, shape (..., F, F)
    :param right: Phi' y, shape (..., F), like ``centre`` and the result
    """
    # Deviation: without a centre this is the printed form, which pulls the weights of unvisited
    # features back to 0; centred on the previous weights, they are kept.
    # a part of scipy that `import sb3_cpp` should not wait for
    require("analysis", "scipy")
    from scipy.linalg import get_lapack_funcs

    matrices = (gram + penalty * th.eye(gram.shape[-1], dtype=gram.dtype)).flatten(0, -3).numpy()
    sides = (right if centre is None else right + penalty * centre).flatten(0, -2).numpy()
    # for many matrices of this size, one LAPACK call each takes half the time of torch's solvers
    (posv,) = get_lapack_funcs(("posv",), (matrices, sides))
    solutions, pivots = np.empty_like(sides), np.empty_like(sides)
    failed = np.zeros(len(sides), dtype=bool)
    for i, (matrix, side) in enumerate(zip(matrices, sides)):
        # transposed, a symmetric matrix is the same and has Fortran's order: no copy
        factor, solutions[i], failed[i] = posv(matrix.T, side)
        pivots[i] = factor.diagonal()
    # an undetermined direction may pass as a tiny pivot, whose solution would be rounding noise
    tiny = ~(pivots.min(-1) ** 2 > np.finfo(pivots.dtype).eps * pivots.max(-1) ** 2)
    singular = int((failed | tiny).sum())
    if singular:
        raise SingularEquations(
            f"the normal equations are singular in {singular} of {len(matrices)} regressions: the "
            "samples do not determine every weight; the ridge penalty must be positive, "
            f"got {penalty:g}"
        )
    return th.from_numpy(solutions).view_as(right)
