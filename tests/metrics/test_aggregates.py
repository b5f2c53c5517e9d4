"""IQM, probability of improvement and profiles, by hand and against scipy."""

import numpy as np
import pytest
from scipy import stats

from sb3_cpp.metrics import (
    iqm,
    iqm_difference,
    iqm_interval,
    mean_difference,
    mean_interval,
    performance_profile,
    probability_of_improvement,
)

RNG = np.random.default_rng(0)


def test_iqm_by_hand() -> None:
    """Of eight runs the middle four: (2 + 3 + 4 + 5) / 4, whatever the outliers are."""
    assert iqm({"a": [100.0, 2.0, 1.0, 3.0, 4.0, 5.0, -50.0, 6.0]}) == pytest.approx(3.5)


def test_runs_on_the_edge_count_in_part() -> None:
    """Of three runs the half is 1.5: the middle one and a quarter of each neighbour."""
    assert iqm({"a": [0.0, 1.0, 8.0]}) == pytest.approx((0.25 * 0.0 + 1.0 + 0.25 * 8.0) / 1.5)


def test_iqm_is_scipys_trimmed_mean_where_four_divides_the_runs() -> None:
    scores = RNG.normal(size=(5, 8))
    pooled = {str(task): row for task, row in enumerate(scores)}
    assert iqm(pooled) == pytest.approx(stats.trim_mean(scores.ravel(), 0.25))


def test_tasks_count_equally_however_many_runs_they_have() -> None:
    once, thrice = {"a": [0.0, 1.0], "b": [2.0, 5.0]}, {"a": [0.0, 1.0] * 3, "b": [2.0, 5.0]}
    assert iqm(once) == pytest.approx(iqm(thrice))


def test_means_weigh_tasks_equally() -> None:
    """(2 + 5) / 2 and (1 + 3) / 2, however many runs a task has."""
    first, second = {"a": [1.0, 3.0], "b": [3.0, 4.0, 8.0]}, {"b": [3.0, 3.0], "a": [0.0, 2.0]}
    assert mean_interval(first).estimate == pytest.approx(3.5)
    difference = mean_difference(first, second)
    assert difference.estimate == pytest.approx(1.5)
    assert difference.low < 1.5 < difference.high


def test_interval_of_the_mean_of_one_task_is_students_but_for_the_bootstrap() -> None:
    values = RNG.normal(size=12)
    interval = mean_interval({"a": values}, draws=20_000)
    student = stats.t.interval(0.95, 11, values.mean(), stats.sem(values))
    assert (interval.low, interval.high) == pytest.approx(student, abs=0.06)


def test_iqm_of_curves_is_that_of_each_point() -> None:
    curves = RNG.normal(size=(5, 7))
    whole = iqm_interval({"a": curves})
    single = [iqm_interval({"a": curves[:, point]}) for point in range(7)]
    assert whole.estimate == pytest.approx([point.estimate for point in single])
    assert whole.low == pytest.approx([point.low for point in single])


def test_interval_of_two_runs_knows_how_little_it_knows() -> None:
    """Student's half-width of 0 and 1: 12.7 * sqrt(1/2) * sqrt(1/2) = 6.4; bootstrap: [0, 1]."""
    interval = iqm_interval({"a": [0.0, 1.0]})
    assert interval.estimate == pytest.approx(0.5)
    assert interval.low == pytest.approx(
        0.5 - 0.5 * np.sqrt(2) * stats.t.ppf(0.975, 1) / stats.norm.ppf(0.975)
    )
    assert interval.high == pytest.approx(1.0 - interval.low)


def test_one_run_has_no_interval() -> None:
    interval = iqm_interval({"a": [1.0, 2.0], "b": [3.0]})
    assert np.isfinite(interval.estimate)
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)


def test_runs_that_agree_have_an_interval_without_width() -> None:
    assert iqm_interval({"a": [2.0, 2.0, 2.0], "b": [3.0, 3.0]}) == (2.5, 2.5, 2.5)


def test_interval_repeats_itself() -> None:
    scores = {"a": RNG.normal(size=5), "b": RNG.normal(size=4)}
    assert iqm_interval(scores) == iqm_interval(scores)
    assert iqm_interval(scores, seed=1).low != iqm_interval(scores, seed=2).low


def test_difference_is_that_of_the_estimates_and_turns_its_sign() -> None:
    first, second = (
        {"a": RNG.normal(size=6), "b": RNG.normal(size=5)},
        {"b": RNG.normal(size=4), "a": RNG.normal(size=6)},
    )
    there, back = iqm_difference(first, second), iqm_difference(second, first)
    assert there.estimate == pytest.approx(iqm(first) - iqm(second))
    assert back.estimate == pytest.approx(-there.estimate)
    assert there.low < there.estimate < there.high


def test_probability_of_improvement_by_hand() -> None:
    """Task a: 3 against {1, 3} wins and ties once, 0 loses twice: 1.5 of 4. Task b: 1 of 1."""
    result = probability_of_improvement(
        {"a": [3.0, 0.0], "b": [2.0, 2.0]}, {"a": [1.0, 3.0], "b": [1.0, 1.0]}
    )
    assert result.estimate == pytest.approx((0.375 + 1.0) / 2)


def test_probability_of_improvement_is_scipys_u_over_the_pairs() -> None:
    a, b = RNG.normal(0.5, 1, 7), RNG.normal(0, 1, 9)
    u = stats.mannwhitneyu(a, b).statistic
    assert probability_of_improvement({"x": a}, {"x": b}).estimate == pytest.approx(u / 63)


def test_a_clean_sweep_is_not_certainty() -> None:
    """Three wins of three: the probability may be as low as the p with p^3 = 0.025."""
    sweep = probability_of_improvement({"a": [4.0, 5.0, 6.0]}, {"a": [1.0, 2.0, 3.0]})
    assert sweep == (1.0, pytest.approx(0.025 ** (1 / 3)), 1.0)
    lost = probability_of_improvement({"a": [1.0, 2.0, 3.0]}, {"a": [4.0, 5.0, 6.0]})
    assert lost == (0.0, 0.0, pytest.approx(1.0 - 0.025 ** (1 / 3)))


def test_sweeps_in_both_directions_and_ties_are_not_certainty() -> None:
    """Width 1 - 0.025^(1/3) of each task, a third of it in the mean, added in quadrature."""
    high, low = [4.0, 5.0, 6.0], [1.0, 2.0, 3.0]
    split = probability_of_improvement(
        {"a": high, "b": low, "c": high}, {"a": low, "b": high, "c": low}
    )
    doubt = (1.0 - 0.025 ** (1 / 3)) / 3
    assert split == pytest.approx((2 / 3, 2 / 3 - np.sqrt(2) * doubt, 2 / 3 + doubt))
    ties = probability_of_improvement({"a": [5.0] * 3}, {"a": [5.0] * 3})
    assert ties == pytest.approx((0.5, 0.5 - 1.5 * doubt, 0.5 + 1.5 * doubt))


def test_profile_by_hand() -> None:
    """Above 0: 2 of 4 and 1 of 1, above 1: 1 of 4 and 1 of 1, above 5: none."""
    profile = performance_profile({"a": [0.0, 0.0, 1.0, 2.0], "b": [3.0]}, [0.0, 1.0, 5.0])
    assert profile.estimate.tolist() == pytest.approx([0.75, 0.625, 0.0])


def test_profile_falls_and_its_band_encloses_it_inside_zero_and_one() -> None:
    profile = performance_profile(
        {"a": RNG.uniform(size=5), "b": RNG.uniform(size=5)}, np.linspace(-0.1, 1.1, 25)
    )
    low, share, high = profile.low, profile.estimate, profile.high
    assert (np.diff(share) <= 0).all()
    assert (low <= share + 1e-12).all()
    assert (share <= high + 1e-12).all()
    assert low.min() == 0.0
    assert high.max() == 1.0


@pytest.mark.parametrize("bad", [{}, {"a": []}, {"a": [1.0, np.nan]}, {"a": 1.0}])
def test_scores_with_gaps_are_refused(bad: dict) -> None:
    with pytest.raises(ValueError, match="scores must"):
        iqm_interval(bad)


def test_comparing_different_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        probability_of_improvement({"a": [1.0, 2.0]}, {"b": [1.0, 2.0]})


def test_confidence_must_be_a_share() -> None:
    with pytest.raises(ValueError, match="confidence must be in"):
        iqm_interval({"a": [1.0, 2.0]}, confidence=95.0)
