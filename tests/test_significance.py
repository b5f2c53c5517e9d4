"""Welch's test and its stars."""

import numpy as np
import pytest
from scipy import stats

from sb3_cpp.metrics import significance_stars, welch_p_value


def test_p_value_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(0.0, 1.0, rng.integers(2, 30)), rng.normal(0.5, 3.0, rng.integers(2, 30))
        assert welch_p_value(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)


def test_one_constant_sample_is_allowed() -> None:
    """Mean 1 of (0, 2) has the standard error 1, so t = 1 with one degree of freedom: p = 1/2."""
    assert welch_p_value([0.0, 2.0], [0.0, 0.0, 0.0]) == pytest.approx(0.5)


def test_constant_samples_differ_surely_or_not_at_all() -> None:
    assert welch_p_value([1.0, 1.0], [1.0, 1.0, 1.0]) == 1.0
    assert welch_p_value([1.0, 1.0], [2.0, 2.0]) == 0.0


def test_a_sample_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 values, got 1 and 2"):
        welch_p_value([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("p", "stars"), [(0.5, "n.s."), (0.05, "n.s."), (0.049, "*"), (0.009, "**"), (0.0009, "***")])
def test_stars_follow_the_levels(p: float, stars: str) -> None:
    assert significance_stars(p) == stars
