"""Features of the state: functions from states (..., dims) to features (..., M), numpy arrays both.

They are asked for at every step of the environment, where arrays are small: a rollout takes half the time it takes with torch.
"""

import math
from collections.abc import Callable, Sequence

import gymnasium as gym
import numpy as np

from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number

MAX_FEATURES = 10_000  # beyond it a trial's normal equations alone take gigabytes

StateFeatures = Callable[[np.ndarray], np.ndarray]


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
            raise InvalidArgument(
                f"low, high and bins must have one entry per dimension, got {low!r}, {high!r}, {bins!r}"
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
                    f"low and high must be finite with low < high, got {lo!r} and {hi!r} in dimension {d}"
                )
            spacing = (hi - lo) / (n if d in periodic else n - 1)
            dims += [d] * n
            scales += [1.0 / (width * spacing)] * n
            centres += [(lo + i * spacing) / (width * spacing) for i in range(n)]
            periods += [(hi - lo) / (width * spacing) if d in periodic else 0.0] * n
        turns = [1.0 / period if period else 0.0 for period in periods]
        self._dims, self._has_period = np.array(dims), len(periodic) > 0
        ends = np.cumsum(self.bins).tolist()
        self._axes = [slice(end - n, end) for n, end in zip(self.bins, ends)]
        self._tables = {
            np.dtype(dtype): tuple(
                np.array(column, dtype=dtype)
                for column in (scales, centres, periods, turns, np.finfo(dtype).eps)
            )
            for dtype in (np.float32, np.float64)
        }

    @classmethod
    def from_space(
        cls, space: gym.Space, bins: Sequence[int], width: float = 0.8, periodic: Sequence[int] = ()
    ) -> "RadialBasis":
        """A grid over the bounds of a flat Box; unbounded dimensions must be given by hand to the constructor."""
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise InvalidArgument(f"observation space must be a flat Box, got {space}")
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise InvalidArgument(
                f"observation space must have finite bounds (or give RadialBasis low and high), got {space}"
            )
        return cls(space.low.tolist(), space.high.tolist(), bins, width, periodic)

    def __call__(self, states: np.ndarray) -> np.ndarray:
        """(..., dims) -> (..., M). A Gaussian over a grid is the outer product of Gaussians over its dimensions."""
        scales, centres, periods, turns, lost = self._tables[states.dtype]
        distance = states.take(self._dims, axis=-1)
        distance *= scales
        distance -= centres  # in widths
        if self._has_period:
            turned = np.rint(distance * turns)
            turned *= periods
            distance -= turned
        factors = np.square(distance, out=distance)
        np.exp(np.negative(factors, out=factors), out=factors)
        # what is lost beside 1 in this precision counts as 0: left in, it makes denormal numbers, 20 times slower to multiply
        factors *= factors > lost
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
