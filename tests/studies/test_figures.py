"""The figures: what is drawn, without looking at pixels."""

from pathlib import Path

import numpy as np
import pytest

from sb3_cpp.analysis.style import new_row
from sb3_cpp.metrics import oscillation
from sb3_cpp.studies.figures import (
    STYLES,
    plot_oscillation,
    plot_returns,
    plot_zeta,
    save_comparison,
)

RNG = np.random.default_rng(0)
CURVES = {
    algo: RNG.normal(scale=scale, size=(10, 6)) for algo, scale in (("cpp", 0.1), ("cvi", 2.0))
}


def test_line_is_the_mean_over_trials() -> None:
    _, (ax, _) = new_row()
    plot_returns(ax, CURVES)
    assert np.allclose(ax.lines[0].get_ydata(), CURVES["cpp"].mean(axis=0))
    assert list(ax.lines[0].get_xdata()) == [1, 2, 3, 4, 5, 6]


def test_stars_stand_on_the_bars_that_differ_from_cvi() -> None:
    _, (ax, _) = new_row()
    plot_oscillation(ax, {algo: oscillation(curve) for algo, curve in CURVES.items()})
    assert [text.get_text() for text in ax.texts] == ["***", "***"]  # CPP, both norms
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == pytest.approx(
        [getattr(oscillation(CURVES[a]), n).mean() for a in CURVES for n in ("inf", "l2")]
    )


def test_a_vanishing_zeta_stays_in_the_picture() -> None:
    _, (ax, _) = new_row()
    plot_zeta(ax, {"aspi": np.zeros((3, 4))}, floor=1e-6)
    assert np.allclose(ax.lines[0].get_ydata(), 1e-6)
    assert ax.get_ylim()[0] < 1e-6


def test_comparison_is_written_as_a_picture(tmp_path: Path) -> None:
    path = save_comparison(
        tmp_path / "f.png", CURVES, {a: oscillation(c) for a, c in CURVES.items()}, "return"
    )
    assert path.read_bytes().startswith(b"\x89PNG")


def test_no_two_algorithms_look_alike() -> None:
    assert len({style.colour for style in STYLES.values()}) == len(STYLES)
    assert len({style.dashes for style in STYLES.values()}) == len(STYLES)
