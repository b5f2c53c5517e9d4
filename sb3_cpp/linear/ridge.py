"""Ridge regression by normal equations (CPP Eq. normal_equations), many problems at once."""

import numpy as np
import torch as th
from scipy.linalg import get_lapack_funcs


class SingularEquations(ValueError):
    """The samples do not determine the weights, and there is no penalty to decide for them."""


def solve_ridge(
    gram: th.Tensor, right: th.Tensor, penalty: float, centre: th.Tensor | None = None
) -> th.Tensor:
    """``theta = (Phi' Phi + penalty I)^-1 (Phi' y + penalty centre)``, the minimiser of
    ``||Phi theta - y||^2 + penalty ||theta - centre||^2``.

    Without ``centre`` this is the printed form, which pulls the weights of unvisited features back to 0. Centred on the
    previous weights, what was not visited is not forgotten.

    :param gram: Phi' Phi, shape (..., F, F)
    :param right: Phi' y, shape (..., F)
    :param penalty: at least 0
    :param centre: shape (..., F)
    :return: shape (..., F)
    """
    matrices = (gram + penalty * th.eye(gram.shape[-1], dtype=gram.dtype)).flatten(0, -3).numpy()
    sides = (right if centre is None else right + penalty * centre).flatten(0, -2).numpy()
    # for many matrices of this size, LAPACK called one by one is more than twice as fast as torch's solvers for all of them
    (posv,) = get_lapack_funcs(("posv",), (matrices, sides))
    solutions, pivots, failed = (
        np.empty_like(sides),
        np.empty_like(sides),
        np.zeros(len(sides), dtype=bool),
    )
    for i, (matrix, side) in enumerate(zip(matrices, sides)):
        factor, solutions[i], failed[i] = posv(matrix.T, side)
        pivots[i] = factor.diagonal()
    # an undetermined direction may also pass as a tiny pivot, whose solution would be rounding noise
    tiny = ~(pivots.min(-1) ** 2 > np.finfo(pivots.dtype).eps * pivots.max(-1) ** 2)
    singular = int((failed | tiny).sum())
    if singular:
        raise SingularEquations(
            f"the normal equations are singular in {singular} of {len(matrices)} regressions: "
            f"the samples do not determine every weight; the ridge penalty must be positive, got {penalty:g}"
        )
    return th.from_numpy(solutions).view_as(right)
