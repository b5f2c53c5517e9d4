"""What is drawn, without looking at pixels."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sb3_cpp.analysis.plotting.bars import plot_bars
from sb3_cpp.analysis.plotting.canvas import (
    FORMATS,
    line_handles,
    new_figure,
    panels,
    save_figure,
    short_name,
    step_text,
)
from sb3_cpp.analysis.plotting.curves import curve_set, plot_curves, shows_intervals
from sb3_cpp.analysis.plotting.learning_figures import curves_of_task
from sb3_cpp.analysis.plotting.pareto import plot_pareto
from sb3_cpp.analysis.plotting.profiles import plot_profiles
from sb3_cpp.analysis.plotting.styles import STYLES, styles_for
from sb3_cpp.analysis.plotting.traces import plot_trace
from sb3_cpp.analysis.results import load_results
from sb3_cpp.metrics import Interval, iqm, iqm_interval
from tests.analysis.synthetic_runs import write_grid, write_run

# Linear RGB of a dichromat (Machado, Oliveira and Fernandes 2009, severity 1)
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
PROTANOPIA = np.array(
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]
)


def lab(colour: str, eye: np.ndarray) -> np.ndarray:
    """CIELAB of what an eye makes of a colour."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(eye @ linear, 0.0, 1.0)
    xyz = (
        np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
        @ seen
        / [0.9505, 1.0, 1.089]
    )
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_no_two_algorithms_look_alike() -> None:
    for part in ("label", "colour", "dashes", "marker"):
        assert len({getattr(style, part) for style in STYLES.values()}) == len(STYLES), part


@pytest.mark.parametrize(
    "eye", [np.eye(3), DEUTERANOPIA, PROTANOPIA], ids=["usual", "deuteranopia", "protanopia"]
)
def test_colours_of_the_benchmark_can_be_told_apart(eye: np.ndarray) -> None:
    algos = (
        "cpp",
        "cvi",
        "mdqn",
        "modqn",
        "cpi",
        "dqn",
        "qrdqn",
        "ppo",
        "a2c",
        "a_variant",
        "another",
        "one_more",
    )
    colours = [lab(style.colour, eye) for style in styles_for(algos).values()]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]]
    assert min(distances) > 15.0  # two shades differ visibly from about 2.3 on


def test_an_algorithm_keeps_its_style_and_others_get_one_of_their_own() -> None:
    assert styles_for(["dqn", "cpp"])["cpp"] is STYLES["cpp"]
    variants = styles_for(["cpp", "cpp_c55", "cpp_c5"])
    assert variants["cpp_c55"].label == "cpp_c55"
    assert len({style.colour for style in variants.values()}) == 3
    assert variants["cpp_c5"] == styles_for(["cpp_c5", "zzz"])["cpp_c5"]


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("MinAtar/Breakout-v1", "MinAtar Breakout"),
        ("SeaquestNoFrameskip-v4", "Seaquest"),
        ("CartPole-v1", "CartPole"),
        ("sb3_cpp/DangerGridworld-v0", "DangerGridworld"),
        ("strange", "strange"),
    ],
)
def test_short_names(task: str, name: str) -> None:
    assert short_name(task) == name


def test_steps_are_short() -> None:
    assert [step_text(x) for x in (0, 500, 50_000, 1_500_000)] == ["0", "500", "50k", "1.5M"]


def test_curve_is_the_iqm_over_seeds_within_its_band(tmp_path: Path) -> None:
    results = load_results(write_grid(tmp_path, seeds=4))
    curves = curve_set(results, "CartPole-v1", "dqn", "evaluation")
    assert curves is not None
    assert curves.returns.shape == (4, 10)
    ax = new_figure(3, 3).subplots()
    plot_curves(ax, results, "CartPole-v1", ["dqn"], "dqn")
    assert ax.lines[0].get_ydata() == pytest.approx(
        [float(iqm({"x": point})) for point in curves.returns.T]
    )
    assert len(ax.collections) == 1
    assert ax.get_ylim()[0] < curves.returns.min()


@pytest.mark.parametrize("intervals", [False, True])
def test_band_is_the_range_of_seeds_or_the_interval(tmp_path: Path, intervals: bool) -> None:
    results = load_results(write_grid(tmp_path, algos=("dqn",), envs=("CartPole-v1",), seeds=5))
    curves = curve_set(results, "CartPole-v1", "dqn", "evaluation")
    assert curves is not None
    ax = new_figure(3, 3).subplots()
    plot_curves(ax, results, "CartPole-v1", ["dqn"], "dqn", intervals=intervals)
    corners = ax.collections[0].get_paths()[0].vertices[:, 1]
    expected = np.array(iqm_interval({"x": curves.returns})[1:]) if intervals else curves.returns
    assert (corners.min(), corners.max()) == pytest.approx((expected.min(), expected.max()))


def test_bands_of_a_figure_are_of_one_kind_and_its_legend_says_which(tmp_path: Path) -> None:
    """An algorithm with fewer seeds must not look more certain than one with all of them."""
    write_grid(tmp_path, algos=("cpp", "dqn"), envs=("CartPole-v1",), seeds=5)
    write_grid(tmp_path, algos=("cpp",), envs=("Acrobot-v1",), seeds=4)
    results = load_results(tmp_path)
    assert shows_intervals(results, ["cpp", "dqn"], ["CartPole-v1"])
    assert not shows_intervals(results, ["cpp", "dqn"], ["CartPole-v1", "Acrobot-v1"])
    for task, words in (("CartPole-v1", "95 % interval"), ("Acrobot-v1", "range of seeds")):
        legend = curves_of_task(results, task, "cpp").figure.legends[0]  # type: ignore[union-attr]
        assert legend.get_texts()[-1].get_text() == words


def test_seeds_with_other_steps_are_read_off_where_all_have_values(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, evaluations=[1, 2, 3, 4], n_timesteps=400)
    write_run(tmp_path, seed=1, evaluations=[2, 4, 6, 8], n_timesteps=400)
    results = load_results(tmp_path)
    results.curves.loc[results.curves.seed == 1, "step"] += 50  # 150, 250, 350, 450
    curves = curve_set(results, "CartPole-v1", "cpp", "evaluation")
    assert curves is not None
    assert curves.steps.tolist() == [200.0, 300.0, 400.0]
    assert curves.returns.tolist() == [[2.0, 3.0, 4.0], [3.0, 5.0, 7.0]]


def test_runs_that_are_not_compared_are_not_drawn(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=1, state="failed", error="x")
    curves = curve_set(load_results(tmp_path), "CartPole-v1", "cpp", "evaluation")
    assert curves is not None
    assert len(curves.returns) == 1
    assert curve_set(load_results(tmp_path), "CartPole-v1", "dqn", "evaluation") is None


def test_trace_is_the_median_over_seeds(tmp_path: Path) -> None:
    for seed, zetas in enumerate(((0.0, 0.1, 0.0), (0.0, 0.2, 0.0), (0.0, 0.9, 0.9))):
        write_run(tmp_path, seed=seed, zetas=zetas)
    ax = new_figure(3, 3).subplots()
    plot_trace(ax, load_results(tmp_path), "CartPole-v1", "zeta", ["cpp"])
    assert ax.lines[0].get_ydata() == pytest.approx(
        [np.nan, 0.2, np.nan], nan_ok=True
    )  # a zero is not on the axis
    assert ax.get_yscale() == "log"


def test_bars_are_the_middles_with_a_dot_per_run_and_the_marks() -> None:
    ax = new_figure(3, 3).subplots()
    runs = {"cpp": np.array([1.0, 2.0]), "dqn": np.array([3.0, 5.0])}
    middles = {
        algo: Interval(values.mean(), values.min(), values.max()) for algo, values in runs.items()
    }
    plot_bars(ax, runs, middles, "t", "x", {"dqn": "**"})
    assert [bar.get_width() for bar in ax.patches] == [1.5, 4.0]
    assert [text.get_text() for text in ax.texts] == ["**"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["CPP", "DQN"]


def test_pareto_plane_has_return_upwards_and_oscillation_to_the_right() -> None:
    ax = new_figure(3, 3).subplots()
    none = np.float64("nan")
    points = {
        "cpp": (Interval(np.float64(9.0), 8.0, 10.0), Interval(np.float64(1.0), 0.5, 2.0)),
        "dqn": (Interval(np.float64(5.0), none, none), Interval(np.float64(3.0), none, none)),
    }
    plot_pareto(ax, points, (0.0, 10.0), "", "x", "y")  # type: ignore[arg-type]
    assert ax.get_xlim()[0] == 0.0
    assert ax.get_ylim() == pytest.approx((-0.6, 10.6))
    markers = [line for line in ax.lines if line.get_marker() != "None"]
    assert [(float(m.get_xdata()[0]), float(m.get_ydata()[0])) for m in markers] == [
        (1.0, 9.0),
        (3.0, 5.0),
    ]
    assert len(ax.lines) == 1 + 2 + 2  # the front, two points, and the two intervals of one of them
    assert [text.get_text() for text in ax.texts] == ["CPP", "DQN"]


def test_names_of_close_points_do_not_cover_each_other() -> None:
    figure = new_figure(4, 3)
    ax = figure.subplots()
    one = Interval(np.float64(1.0), np.float64("nan"), np.float64("nan"))
    points = {
        algo: (one, Interval(np.float64(1.0 + 0.01 * i), one.low, one.high))
        for i, algo in enumerate(("mdqn", "qrdqn", "cvi"))
    }
    points["ppo"] = (
        Interval(np.float64(0.0), one.low, one.high),
        Interval(np.float64(2.0), one.low, one.high),
    )
    plot_pareto(ax, points, (0.0, 1.0), "", "x", "y")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_profile_of_oscillation_counts_the_runs_below() -> None:
    ax = new_figure(3, 3).subplots()
    plot_profiles(ax, {"cpp": {"a": [0.0, 1.0]}}, "cpp", "t", "x", below=True)
    shares = ax.lines[0].get_ydata()
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert (np.diff(shares) >= 0).all()


@pytest.mark.parametrize(
    ("count", "shape"),
    [(1, (1, 2)), (2, (1, 3)), (3, (1, 3)), (4, (2, 3)), (5, (2, 3)), (6, (2, 3))],
)
def test_the_legend_takes_the_cell_after_the_panels_or_a_line_below_full_rows(
    count: int, shape: tuple[int, int]
) -> None:
    handles = line_handles(styles_for(["cpp", "dqn"]))
    figure, axes = panels(count, handles=handles)
    assert len(axes) == count
    assert len(figure.axes) == shape[0] * shape[1]
    assert all(ax.get_legend() is None for ax in axes)
    legend = figure.legends[0] if count % 3 == 0 else figure.axes[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["CPP", "DQN"]
    assert len(figure.legends) == (count % 3 == 0)


@pytest.mark.parametrize(("count", "letters"), [(1, 4), (3, 4), (2, 30), (3, 30), (3, 120)])
def test_a_legend_lies_within_its_figure_however_long_the_names(count: int, letters: int) -> None:
    names = [f"{i:x}" * letters for i in range(1, 12)]
    figure, _ = panels(count, handles=line_handles(styles_for(names)))
    figure.draw_without_rendering()
    legend = figure.legends[0] if figure.legends else figure.axes[-1].get_legend()
    box = legend.get_window_extent()
    assert box.y0 >= 0
    assert (box.x0 >= 0 and box.x1 <= figure.bbox.width) or legend._ncols == 1


def test_panels_without_a_legend_leave_no_cell() -> None:
    figure, axes = panels(2)
    assert figure.axes == axes


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_figure_gives_the_same_file(tmp_path: Path, kind: str) -> None:
    files = []
    for name in ("a", "b"):
        figure = new_figure(3, 2)
        figure.subplots().plot([0, 1], [1, 0])
        files.append(save_figure(figure, tmp_path / f"{name}.{kind}").read_bytes())
    assert files[0] == files[1]
