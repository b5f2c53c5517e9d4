import math

import numpy as np
import pytest
import torch as th

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.linear import LinearQ, RadialBasis


def _states(n: int = 7) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1.0, 1.0, (n, 2))


def test_features_are_gaussians_of_the_distance_to_each_centre() -> None:
    basis = RadialBasis([-1.0, -1.0], [1.0, 1.0], [3, 5], width=0.8)
    centres = [(x, y) for x in (-1.0, 0.0, 1.0) for y in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    for state, phi in zip(_states().tolist(), basis(_states()).tolist()):
        for centre, value in zip(centres, phi):
            squared = ((state[0] - centre[0]) / (0.8 * 1.0)) ** 2 + (
                (state[1] - centre[1]) / (0.8 * 0.5)
            ) ** 2
            assert value == pytest.approx(math.exp(-squared), rel=1e-12)


def test_both_ends_of_a_periodic_dimension_are_one_point() -> None:
    basis = RadialBasis([-math.pi], [math.pi], [10], periodic=[0])
    ends = basis(np.array([[-math.pi], [math.pi]]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=0.0, atol=1e-14)
    assert ends[0, 0] == pytest.approx(1.0)  # the first centre lies there
    assert ends[0, 1] == pytest.approx(float(ends[0, 9]))  # and its two neighbours are equally far


def test_far_tails_are_exactly_zero_so_that_no_denormal_number_slows_products() -> None:
    phi = RadialBasis([-1.0], [1.0], [20])(np.linspace(-1.0, 1.0, 50, dtype=np.float32)[:, None])
    assert set(((phi > 0.0) & (phi < np.finfo(np.float32).eps)).flatten().tolist()) == {False}
    assert (phi == 0.0).any()


def test_joint_features_are_gaussians_over_state_and_action_together() -> None:
    basis = RadialBasis([-1.0, -1.0], [1.0, 1.0], [3, 3])
    q = LinearQ(
        basis, basis.size, n_actions=3, action_centres=2
    )  # centres at actions 0 and 2, spacing 2
    weights = th.randn(1, 1, q.size, dtype=th.float64, generator=th.Generator().manual_seed(1))
    values = q.values(th.from_numpy(basis(_states())[None]), weights)[0]
    for state, row in zip(_states().tolist(), values.tolist()):
        for action in range(3):
            expected, i = 0.0, 0
            for x in (-1.0, 0.0, 1.0):
                for y in (-1.0, 0.0, 1.0):
                    for a in (0.0, 2.0):
                        squared = (
                            ((state[0] - x) / 0.8) ** 2
                            + ((state[1] - y) / 0.8) ** 2
                            + ((action - a) / 1.6) ** 2
                        )
                        expected += math.exp(-squared) * float(weights[0, 0, i])
                        i += 1
            assert row[action] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("action_centres", [None, 2])
def test_normal_equations_are_those_of_the_rows_of_each_group(action_centres: int | None) -> None:
    generator = th.Generator().manual_seed(0)
    q = LinearQ(lambda s: s, 4, n_actions=3, action_centres=action_centres)
    phi = th.randn(2, 50, 4, dtype=th.float64, generator=generator)
    actions = th.randint(0, 3, (2, 50), generator=generator)
    targets = th.randn(2, 50, dtype=th.float64, generator=generator)
    gram, right = q.normal_equations(phi, actions, targets)
    for trial in range(2):
        # Q is linear in the weights, so its derivatives are the rows of the regression
        units = th.eye(q.groups * q.size, dtype=th.float64).unflatten(-1, (q.groups, q.size))
        values = q.values(phi[trial].expand(len(units), -1, -1), units)
        design = values[:, th.arange(50), actions[trial]].T
        full = (design.T @ design).reshape(q.groups, q.size, q.groups, q.size)
        for g in range(q.groups):
            th.testing.assert_close(gram[trial, g], full[g, :, g])
        th.testing.assert_close(right[trial].flatten(), design.T @ targets[trial])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": [0.0], "high": [math.inf], "bins": [3]}, "finite"),
        (
            {"low": [0.0], "high": [1.0], "bins": [1]},
            "bins must be a whole number of at least 2, got 1",
        ),
        ({"low": [0.0], "high": [1.0], "bins": [3], "width": 0.0}, "width"),
        ({"low": [0.0] * 5, "high": [1.0] * 5, "bins": [10] * 5}, "at most 10000 centres"),
        ({"low": [0.0], "high": [1.0], "bins": [3], "periodic": [1]}, "periodic"),
    ],
)
def test_impossible_grids_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RadialBasis(**arguments)
