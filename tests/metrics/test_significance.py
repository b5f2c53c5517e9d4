"""Welch, Mann-Whitney, Holm, and the stars."""

import numpy as np
import pytest
from scipy import stats

from sb3_cpp.metrics import (
    holm_correction,
    mann_whitney_p_value,
    permutation_p_value,
    significance_stars,
    welch_p_value,
)


def test_p_value_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        a, b = rng.normal(0.0, 1.0, rng.integers(2, 30)), rng.normal(0.5, 3.0, rng.integers(2, 30))
        assert welch_p_value(a, b) == pytest.approx(
            stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9
        )


def test_one_constant_sample_is_allowed() -> None:
    """Mean 1 of (0, 2) has the standard error 1, so t = 1 with one degree of freedom: p = 1/2."""
    assert welch_p_value([0.0, 2.0], [0.0, 0.0, 0.0]) == pytest.approx(0.5)


def test_constant_samples_differ_surely_or_not_at_all() -> None:
    assert welch_p_value([1.0, 1.0], [1.0, 1.0, 1.0]) == 1.0
    assert welch_p_value([1.0, 1.0], [2.0, 2.0]) == 0.0


def test_a_sample_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 values, got 1 and 2"):
        welch_p_value([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("p", "stars"), [(0.5, "n.s."), (0.05, "n.s."), (0.049, "*"), (0.009, "**"), (0.0009, "***")]
)
def test_stars_follow_the_levels(p: float, stars: str) -> None:
    assert significance_stars(p) == stars


def test_samples_with_gaps_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        welch_p_value([1.0, np.nan], [1.0, 2.0])


def test_mann_whitney_by_hand() -> None:
    """Of 10 ways to choose 2 of 5 ranks, {4, 5} and {1, 2} are the most extreme: p = 2/10."""
    assert mann_whitney_p_value([8.0, 9.0], [1.0, 2.0, 3.0]) == pytest.approx(0.2)
    assert mann_whitney_p_value([1.0, 1.0], [1.0, 1.0]) == 1.0


def test_mann_whitney_with_ties_by_hand() -> None:
    """Ranks 1, 2.5, 2.5, 4: sums of two are 3.5, 3.5, 5, 5, 6.5, 6.5; 6.5 observed: p = 4/6."""
    assert mann_whitney_p_value([2.0, 3.0], [1.0, 2.0]) == pytest.approx(4 / 6)


def test_mann_whitney_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    for n, m in ((3, 3), (4, 7), (8, 6)):
        a, b = rng.normal(0.0, 1.0, n), rng.normal(0.8, 2.0, m)
        assert mann_whitney_p_value(a, b) == pytest.approx(
            stats.mannwhitneyu(a, b, method="exact").pvalue
        )
    a, b = rng.normal(0.0, 1.0, 30), rng.normal(0.3, 1.0, 25)
    assert mann_whitney_p_value(a, b) == pytest.approx(
        stats.mannwhitneyu(a, b, method="asymptotic").pvalue
    )


def test_three_against_three_cannot_be_significant() -> None:
    assert mann_whitney_p_value([7.0, 8.0, 9.0], [1.0, 2.0, 3.0]) == pytest.approx(0.1)


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.03, 0.04, 0.4 become 4 * 0.01, 3 * 0.03, max(0.09, 2 * 0.04), 0.4."""
    assert holm_correction([0.03, 0.4, 0.01, 0.04]).tolist() == pytest.approx(
        [0.09, 0.4, 0.04, 0.09]
    )


def test_holm_leaves_one_test_alone_and_never_exceeds_one() -> None:
    assert holm_correction([0.03]).tolist() == [0.03]
    assert holm_correction([0.7, 0.9]).tolist() == [1.0, 1.0]
    assert holm_correction([]).tolist() == []


def test_holm_keeps_false_alarms_of_many_tests_at_the_level() -> None:
    """Of 5 true null hypotheses one has p < 0.05 in 23 % of the families; corrected in 5 %."""
    families = np.random.default_rng(0).uniform(size=(4000, 5))
    alarms = np.mean([holm_correction(family).min() < 0.05 for family in families])
    assert 0.035 < alarms < 0.065


@pytest.mark.parametrize("bad", [[0.5, 1.2], [-0.1], [np.nan], 0.5])
def test_holm_refuses_what_is_no_p_value(bad: object) -> None:
    with pytest.raises(ValueError, match="p-values must be"):
        holm_correction(bad)  # type: ignore[arg-type]


def test_permutation_test_by_hand() -> None:
    """3 against 3, fully apart: 2 of 20 splits as extreme. Two such tasks, same sign: 2 of 400."""
    first, second = [7.0, 8.0, 9.0], [1.0, 2.0, 3.0]
    assert permutation_p_value({"a": first}, {"a": second}) == pytest.approx(0.1, abs=0.01)
    two = permutation_p_value({"a": first, "b": first}, {"b": second, "a": second})
    assert two == pytest.approx(0.005, abs=0.003)
    assert permutation_p_value({"a": first, "b": second}, {"a": second, "b": first}) == 1.0


def test_permutation_test_does_not_depend_on_an_offset() -> None:
    """With an offset of 1e7 the differences of 0.3 are rounded; ties must stay ties."""
    first, second = np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.5, 0.6])
    near, far = (
        permutation_p_value({"a": first + offset}, {"a": second + offset}) for offset in (0.0, 1e7)
    )
    assert near == far
    assert near == pytest.approx(0.1, abs=0.01)


def test_permutation_test_is_that_of_scipy_on_one_task() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.0, 1.0, 5), rng.normal(1.0, 1.0, 6)
    exact = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x) - np.mean(y), n_resamples=np.inf, alternative="two-sided"
    ).pvalue
    assert permutation_p_value({"x": a}, {"x": b}) == pytest.approx(exact, abs=0.015)


def test_permutation_test_keeps_its_level() -> None:
    """No difference, tasks with different means: 5 % of the p-values lie below 0.05."""
    rng = np.random.default_rng(6)
    runs = [
        [{t: rng.normal(10 * t, 1.0, 3) for t in range(3)} for _ in range(2)] for _ in range(500)
    ]
    small = np.mean(
        [
            permutation_p_value(a, b, permutations=399, seed=i) <= 0.05
            for i, (a, b) in enumerate(runs)
        ]
    )
    assert 0.03 <= small <= 0.07


def test_permutation_test_needs_the_same_tasks() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        permutation_p_value({"a": [1.0]}, {"b": [1.0]})
