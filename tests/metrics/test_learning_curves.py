"""Oscillation, drawdown and area under the curve by hand; the estimate without noise simulated."""

import numpy as np
import pytest

from sb3_cpp.metrics import (
    area_under_curve,
    largest_drawdown,
    oscillation,
    oscillation_of_noise,
    oscillation_without_noise,
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


def test_drawdown_by_hand() -> None:
    """From 5 down to 1 in three steps, with a rise between; the fall from 7 to 4 is smaller."""
    assert largest_drawdown([0.0, 5.0, 3.0, 3.5, 1.0, 7.0, 4.0]) == 4.0
    assert largest_drawdown([[3.0, 1.0, 2.0], [1.0, 2.0, 2.0]]).tolist() == [2.0, 0.0]


def test_drawdown_does_not_forgive_a_slow_decline() -> None:
    slow, sudden = np.linspace(10.0, 0.0, 101), np.repeat([10.0, 0.0], 50)
    assert largest_drawdown(slow) == largest_drawdown(sudden) == 10.0
    assert oscillation(slow).l2 == pytest.approx(1.0)
    assert oscillation(sudden).l2 == 10.0


@pytest.mark.parametrize("curve", [[1.0, 1.0, 2.0], [3.0], []])
def test_a_curve_that_never_falls_has_no_drawdown(curve: list[float]) -> None:
    assert largest_drawdown(curve) == 0.0


def test_without_noise_to_take_out_nothing_changes() -> None:
    curve = [0.0, 5.0, 2.0, 6.0, 6.0, 2.0, 9.0]
    estimate = oscillation_without_noise(curve, np.zeros(7))
    assert estimate == (pytest.approx(25.0), pytest.approx(5.0))
    assert oscillation_without_noise([3.0], [1.0]) == (0.0, 0.0)


def test_known_variance_is_taken_out_of_a_large_fall() -> None:
    """E[D^2] = d^2 + s^2, and s^2 = 3^2 + 4^2; a large rise has no fall to correct."""
    squared, root = oscillation_without_noise([500.0, 0.0, 500.0], [3.0, 4.0, 3.0])
    assert squared == pytest.approx(500.0**2 - 25.0)
    assert root == pytest.approx(np.sqrt(500.0**2 - 25.0))


def test_estimate_without_noise_may_be_negative() -> None:
    squared, root = oscillation_without_noise([1.0, 0.9, 1.0], [1.0, 1.0, 1.0])
    assert squared < 0.0
    assert root == -np.sqrt(-squared)


def _true_curves(evaluations: int, depth: float) -> np.ndarray:
    """A return that rises to 10, with falls of a part of it that are made up in two steps."""
    curve = 10.0 / (1.0 + np.exp(-10.0 * (np.linspace(0.0, 1.0, evaluations) - 0.3)))
    for place in range(6, evaluations - 2, 7):
        curve[place : place + 2] *= [1.0 - depth, 1.0 - depth / 2.0]
    return curve


def _evaluate(curve: np.ndarray, episodes: int, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard errors of skewed episodes whose spread grows with their mean."""
    rng = np.random.default_rng(0)
    spread = 0.3 + 0.5 * curve
    shape, scale = (curve / spread) ** 2, spread**2 / curve
    results = rng.gamma(shape[:, None], scale[:, None], (runs, curve.size, episodes))
    return results.mean(axis=2), results.std(axis=2, ddof=1) / np.sqrt(episodes)


@pytest.mark.parametrize(("evaluations", "episodes"), [(29, 30), (29, 50), (60, 30), (60, 50)])
def test_falls_above_the_noise_are_estimated_to_five_percent(
    evaluations: int, episodes: int
) -> None:
    curve = _true_curves(evaluations, depth=0.4)
    returns, errors = _evaluate(curve, episodes, runs=3000)
    truth, noise = oscillation(curve).l2 ** 2, np.mean([oscillation_of_noise(e) for e in errors])
    assert truth > noise**2  # the regime in which five percent are promised
    assert np.mean(oscillation(returns).l2 ** 2) > 1.15 * truth  # what there is to correct
    assert oscillation_without_noise(returns, errors).squared.mean() == pytest.approx(
        truth, rel=0.05
    )


@pytest.mark.parametrize("depth", [0.0, 0.1, 0.2])
@pytest.mark.parametrize(("evaluations", "episodes"), [(29, 30), (60, 30), (29, 5), (29, 10)])
def test_the_rest_of_the_bias_is_within_a_twentieth_of_the_noise(
    evaluations: int, episodes: int, depth: float
) -> None:
    """No or few real falls: the error is small against the noise, not against the falls."""
    curve = _true_curves(evaluations, depth)
    returns, errors = _evaluate(curve, episodes, runs=3000)
    noise = np.mean([oscillation_of_noise(e) ** 2 for e in errors])
    truth = oscillation(curve).l2 ** 2
    assert np.mean(oscillation(returns).l2 ** 2) - truth > 0.6 * noise
    assert abs(oscillation_without_noise(returns, errors).squared.mean() - truth) < 0.05 * noise


def test_bias_per_difference_is_within_its_stated_bound() -> None:
    """Expectation under normal noise of variance 1, by the trapezoid rule."""
    noise = np.linspace(-9.0, 9.0, 2001)
    density = np.exp(-(noise**2) / 2.0) / np.sqrt(2.0 * np.pi) * (noise[1] - noise[0])
    for true in (-3.0, -1.0, -0.4, 0.0, 0.4, 1.0, 3.0):
        seen = np.stack([np.zeros_like(noise), true + noise], axis=1)
        estimates = oscillation_without_noise(seen, np.full_like(seen, np.sqrt(0.5))).squared
        bias = estimates @ density - min(true, 0.0) ** 2
        assert abs(bias) < (0.001 if true == 0.0 else 0.0465)
        if abs(true) == 0.4:  # the worst place: the docstring's number is not only a bound
            assert bias == pytest.approx(-0.046 * np.sign(true), abs=0.001)


@pytest.mark.parametrize("errors", [[1.0, np.nan], [1.0, -1.0], [1.0], 2.0])
def test_errors_must_be_known_for_every_return(errors: object) -> None:
    with pytest.raises(ValueError, match="standard errors must be a number of at least 0 per"):
        oscillation_without_noise([1.0, 2.0], errors)  # type: ignore[arg-type]


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
