"""Area under the curve, by hand."""

import numpy as np
import pytest

from sb3_cpp.metrics import area_under_curve


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
