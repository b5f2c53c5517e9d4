"""Oscillation and area under the curve, by hand."""

import numpy as np
import pytest

from sb3_cpp.metrics import (
    area_under_curve,
    oscillation,
    oscillation_of_noise,
)


def test_oscillation_by_hand():
    # falls of 3 and 4, rises do not count
    assert oscillation([0.0, 5.0, 2.0, 6.0, 2.0, 9.0]) == (pytest.approx(4.0), pytest.approx(5.0))


@pytest.mark.parametrize("curve", [[1.0, 1.0, 2.0], [3.0], []])
def test_a_curve_that_never_falls_has_none(curve):
    assert oscillation(curve) == (0.0, 0.0)


def test_curves_are_measured_one_by_one():
    result = oscillation(np.array([[0.0, -1.0, -3.0], [0.0, 1.0, 2.0]]))
    assert result.inf.tolist() == [2.0, 0.0]
    assert result.l2.tolist() == pytest.approx([np.sqrt(5.0), 0.0])


@pytest.mark.parametrize("bad", [[1.0, np.nan], [np.inf, 0.0], 3.0])
def test_missing_returns_are_refused(bad):
    with pytest.raises(ValueError, match="returns must be a series of finite numbers"):
        oscillation(bad)


def test_oscillation_of_noise_by_hand():
    """Errors 3, 4, 0: (9 + 16) / 2 + (16 + 0) / 2 = 20.5."""
    assert oscillation_of_noise([3.0, 4.0, 0.0]) == pytest.approx(np.sqrt(20.5))
    assert oscillation_of_noise([5.0]) == 0.0


def test_oscillation_of_noise_is_what_a_constant_policy_shows():
    rng = np.random.default_rng(0)
    episodes = rng.exponential(
        5.0, size=(2000, 20, 10)
    )  # 2000 runs, 20 evaluations of 10 episodes, nothing is learnt
    seen = oscillation(episodes.mean(axis=2)).l2
    told = [oscillation_of_noise(run.std(axis=1, ddof=1) / np.sqrt(10)) for run in episodes]
    assert np.mean(np.square(told)) == pytest.approx(np.mean(seen**2), rel=0.03)


@pytest.mark.parametrize("bad", [[1.0, np.nan], 2.0])
def test_unknown_errors_are_refused(bad):
    with pytest.raises(ValueError, match="standard errors must be"):
        oscillation_of_noise(bad)


def test_area_by_hand() -> None:
    """Two trapezoids: 10 * (0 + 4) / 2 = 20 and 30 * (4 + 6) / 2 = 150, over 40 steps."""
    assert area_under_curve([10, 20, 50], [0.0, 4.0, 6.0]) == pytest.approx(170 / 40)


def test_area_of_a_constant_is_the_constant() -> None:
    assert area_under_curve([1, 5, 7], [3.0, 3.0, 3.0]) == pytest.approx(3.0)
    assert area_under_curve([100], [3.0]) == 3.0


def test_a_curve_that_rises_sooner_has_more() -> None:
    steps = np.arange(5)
    assert area_under_curve(steps, [0, 1, 1, 1, 1]) > area_under_curve(steps, [0, 0, 0, 0, 1])


@pytest.mark.parametrize(
    ("steps", "returns"), [([1, 2], [1.0]), ([], []), ([2, 1], [1.0, 1.0]), ([1, 2], [1.0, np.nan])]
)
def test_what_is_no_curve_is_refused(steps: list[int], returns: list[float]) -> None:
    with pytest.raises(ValueError, match="steps"):
        area_under_curve(steps, returns)
