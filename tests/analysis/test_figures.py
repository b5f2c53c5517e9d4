"""What the figures show, without looking at pixels, and the paper's Table 1."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from sb3_cpp.analysis.figures import NAMES, pictures, table1, table1_latex, table1_markdown
from sb3_cpp.analysis.figures_comparison import plot_bars, plot_pareto, plot_profiles
from sb3_cpp.analysis.figures_falls import falls
from sb3_cpp.analysis.figures_learning import (
    curve_set,
    curves_of_task,
    plot_curves,
    plot_trace,
    shows_intervals,
    traces,
)
from sb3_cpp.analysis.results import Results, load_results
from sb3_cpp.analysis.style import fixed_styles, new_figure, styles_for
from sb3_cpp.metrics import Interval, iqm, iqm_interval
from tests.analysis.synthetic_runs import write_grid, write_run


def test_every_figure_is_drawn_or_says_why_not(tmp_path: Path) -> None:
    found = {
        picture.name: picture for picture in pictures(load_results(write_grid(tmp_path)), "cpp")
    }
    assert set(found) == {*NAMES, "curve_CartPole-v1", "curve_Acrobot-v1"} - {"curves"}
    assert [name for name, picture in found.items() if picture.figure is None] == ["fig5"]
    assert "no runs of the ablation" in found["fig5"].caption
    assert all(picture.title and picture.caption for picture in found.values())


def test_a_study_of_many_variants_is_drawn_too(tmp_path: Path) -> None:
    variants = [f"cpp_variant_{i}" for i in range(12)]
    results = load_results(
        write_grid(tmp_path, algos=("cpp", *variants), envs=("CartPole-v1",), seeds=2)
    )
    found = {picture.name: picture for picture in pictures(results, "cpp")}
    assert [name for name, picture in found.items() if picture.figure is None] == ["falls", "fig5"]


def test_one_run_is_enough_for_most_figures(tmp_path: Path) -> None:
    write_run(tmp_path, "dqn")
    drawn = {
        picture.name
        for picture in pictures(load_results(tmp_path), "dqn")
        if picture.figure is not None
    }
    assert {
        "fig4",
        "pareto",
        "pareto_tasks",
        "oscillation_l2",
        "profiles",
        "training_curves",
        "curve_CartPole-v1",
    } <= drawn
    assert not {"improvement", "traces", "fig5"} & drawn


def test_a_task_on_which_nothing_differs_is_drawn_but_not_averaged(tmp_path: Path) -> None:
    for algo in ("cpp", "dqn"):
        write_run(tmp_path, algo, evaluations=[5, 5, 5, 5])
    found = {picture.name: picture for picture in pictures(load_results(tmp_path), "cpp")}
    assert found["fig4"].figure is not None
    assert found["pareto"].figure is None
    assert found["profiles"].figure is None


def test_environments_of_packages_have_figures_with_plain_names(tmp_path: Path) -> None:
    env = "my_package:Maze-v0"
    folder = write_run(tmp_path, "dqn", env)
    folder.parent.rename(folder.parent.with_name("my_package-Maze-v0"))
    results = load_results(tmp_path)
    assert results.used().task.tolist() == [env]
    assert [picture.name for picture in pictures(results, "dqn", ("curves",))] == [
        "curve_my_package-Maze-v0"
    ]


@pytest.mark.parametrize("algos", [("cpp", "cpi_0.01", "cpi_0.5"), ("cpi_cpi", "cpi_spi")])
def test_the_ablation_is_the_papers_fig_5(tmp_path: Path, algos: tuple[str, ...]) -> None:
    write_grid(tmp_path, algos=algos, envs=("MinAtar/Seaquest-v1",), seeds=2)
    found = {
        picture.name: picture for picture in pictures(load_results(tmp_path), algos[0], ("fig5",))
    }
    figure = found["fig5"].figure
    assert figure is not None
    assert len(figure.axes[0].lines) == len(algos)
    assert figure.axes[0].get_title() == "MinAtar Seaquest"


def test_only_the_chosen_figures_are_drawn(tmp_path: Path) -> None:
    results = load_results(write_grid(tmp_path, seeds=1))
    assert [picture.name for picture in pictures(results, "cpp", ("pareto", "fig4"))] == [
        "pareto",
        "fig4",
    ]


def test_a_variant_keeps_its_colour_in_figures_that_do_not_show_all(tmp_path: Path) -> None:
    write_grid(tmp_path, algos=("cpp", "cpp_b"), envs=("CartPole-v1", "Acrobot-v1"), seeds=2)
    write_grid(
        tmp_path, algos=("cpp_a",), envs=("CartPole-v1",), seeds=2
    )  # not on all tasks, so not in the plane
    found = {
        picture.name: picture
        for picture in pictures(load_results(tmp_path), "cpp", ("pareto", "curves"))
    }

    def colours(name: str) -> set[str]:
        figure = found[name].figure
        assert figure is not None
        return {to_hex(line.get_color()) for line in figure.axes[0].lines}

    with fixed_styles(["cpp_a", "cpp_b"]):
        styles = {
            name: style.colour.lower() for name, style in styles_for(["cpp_a", "cpp_b"]).items()
        }
    assert styles["cpp_b"] in colours("pareto")
    assert styles["cpp_a"] not in colours("pareto")
    assert set(styles.values()) < colours("curve_CartPole-v1")


def test_curve_is_the_iqm_over_seeds_within_its_band(tmp_path: Path) -> None:
    results = load_results(write_grid(tmp_path, seeds=4))
    curves = curve_set(results, "CartPole-v1", "dqn", "evaluation")
    assert curves is not None
    assert curves.returns.shape == (4, 10)
    ax = new_figure(3, 3).subplots()
    plot_curves(ax, results, "CartPole-v1", ["dqn"])
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
    plot_curves(ax, results, "CartPole-v1", ["dqn"], intervals=intervals)
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
        legend = curves_of_task(results, task).figure.legends[0]  # type: ignore[union-attr]
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


def test_many_curves_have_visible_bars_right_of_the_last_step_instead_of_bands(
    tmp_path: Path,
) -> None:
    algos = ["cmdqn", "cvi", "mdqn", "modqn", "dqn"]
    results = load_results(write_grid(tmp_path, algos=algos, envs=("CartPole-v1",), seeds=2))
    ax = new_figure(3, 3).subplots()
    plot_curves(ax, results, "CartPole-v1", algos, intervals=False)
    assert not ax.collections
    last = results.curves.step.max()
    bars = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_xdata()[0] > last]
    assert len(bars) == len(algos)
    assert all(bar.get_xdata()[0] < ax.get_xlim()[1] for bar in bars)
    assert max(ax.get_xticks()) <= last


def test_an_algorithm_that_learned_nothing_is_hollow_and_not_on_the_front() -> None:
    ax = new_figure(3, 3).subplots()
    none = np.float64("nan")
    points = {
        algo: (Interval(np.float64(gain), none, none), Interval(np.float64(fall), none, none))
        for algo, gain, fall in (("cpp", 9.0, 2.0), ("dqn", 5.0, 3.0), ("a2c", 0.5, 0.1))
    }
    plot_pareto(ax, points, (0.0, 10.0), "", "x", "y", names=False)
    front, *markers = ax.lines
    assert front.get_xdata().tolist() == [2.0]
    assert [line.get_markerfacecolor() for line in markers].index("white") == 2


def test_trace_is_the_median_over_seeds(tmp_path: Path) -> None:
    for seed, zetas in enumerate(((0.0, 0.1, 0.0), (0.0, 0.2, 0.0), (0.0, 0.9, 0.9))):
        write_run(tmp_path, seed=seed, zetas=zetas)
    ax = new_figure(3, 3).subplots()
    plot_trace(ax, load_results(tmp_path), "CartPole-v1", "zeta", ["cpp"])
    assert ax.lines[0].get_ydata() == pytest.approx(
        [np.nan, 0.2, np.nan], nan_ok=True
    )  # a zero is not on the axis
    assert ax.get_yscale() == "log"


def test_only_recorded_quantities_have_a_row(tmp_path: Path) -> None:
    for algo in ("cmdqn", "dqn"):
        write_run(tmp_path, algo, zetas=[0.1, 0.2] if algo == "cmdqn" else ())
    folder = tmp_path / "classic" / "cmdqn" / "CartPole-v1" / "seed_0"
    table = pd.read_csv(folder / "iterations.csv")
    table.assign(C_K=np.nan, m_K=0.0).to_csv(folder / "iterations.csv", index=False)
    figure = traces(load_results(tmp_path)).figure
    assert figure is not None
    assert [ax.get_ylabel() for ax in figure.axes] == [r"$\zeta$", r"$M_K$"]
    table.assign(C_K=np.nan, m_K=0.0, M_K=0.0, zeta=0.0).to_csv(
        folder / "iterations.csv", index=False
    )
    assert traces(load_results(tmp_path)).figure is None


def test_bars_are_the_middles_with_a_dot_per_run_and_the_marks() -> None:
    ax = new_figure(3, 3).subplots()
    runs = {"cpp": np.array([1.0, 2.0]), "dqn": np.array([3.0, 5.0])}
    plot_bars(ax, {algo: {"t": values} for algo, values in runs.items()}, {"dqn": 0.005}, "t", "x")
    assert [bar.get_width() for bar in ax.patches] == [1.5, 4.0]
    assert [text.get_text() for text in ax.texts] == ["**"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DeepCPP", "DQN"]


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
    assert [text.get_text() for text in ax.texts] == ["DeepCPP", "DQN"]


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
    plot_profiles(ax, {"cpp": {"a": [0.0, 1.0]}}, "t", "x", below=True)
    shares = ax.lines[0].get_ydata()
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert (np.diff(shares) >= 0).all()


def test_falls_are_red_where_the_return_falls_and_only_there(tmp_path: Path) -> None:
    write_run(tmp_path, "dqn", evaluations=[0, 4, 1, 5, 1])
    write_run(tmp_path, "cmdqn", evaluations=[0, 1, 2, 3, 3], zetas=[0.1, 0.2])
    write_run(tmp_path, "mdqn", evaluations=[0, 9, 0, 9, 0])
    figure = falls(load_results(tmp_path)).figure
    assert figure is not None
    left, right = figure.axes
    assert [ax.get_title("left") for ax in figure.axes] == ["DQN", "CautiousMDQN"]
    assert [segment[:, 1].tolist() for segment in left.collections[0].get_segments()] == [
        [4.0, 1.0],
        [5.0, 1.0],
    ]
    assert right.collections[0].get_segments() == []
    assert left.texts[0].get_text().startswith("largest fall 4, ")
    assert left.get_ylim() == right.get_ylim()


def test_falls_of_any_two_algorithms_with_zeta_below(tmp_path: Path) -> None:
    for algo in ("mdqn", "mine"):
        write_run(tmp_path, algo, zetas=[0.1, 0.2] if algo == "mine" else ())
    figure = falls(load_results(tmp_path), zeta=True).figure
    assert figure is not None
    assert len(figure.axes) == 4
    assert figure.axes[2].lines[0].get_ydata().tolist() == [0.1, 0.2]
    assert figure.axes[3].texts[0].get_text() == "MDQN has no mixing coefficient"


def test_zeta_is_drawn_of_runs_given_one_by_one(tmp_path: Path) -> None:
    plain = write_run(tmp_path, "dqn")
    cautious = write_run(tmp_path, "cmdqn", zetas=[0.1, 0.2])
    results = load_results(plain, cautious)
    assert results.iterations.zeta.dtype == np.float64
    assert falls(results, zeta=True).figure is not None


def test_falls_need_a_pair(tmp_path: Path) -> None:
    for algo in ("mdqn", "cvi", "dqn"):
        write_run(tmp_path, algo)
    assert "exactly two" in falls(load_results(tmp_path)).caption
    write_run(tmp_path, "cmdqn", "Acrobot-v1")
    assert "no task in common" in falls(load_results(tmp_path)).caption


@pytest.fixture
def oscillating(tmp_path: Path) -> Results:
    write_run(
        tmp_path, "cpp", "MinAtar/Breakout-v1", 0, suite="m", evaluations=[0, 4, 1, 5, 1]
    )  # falls 3, 4: l2 5, inf 4
    write_run(
        tmp_path, "cpp", "MinAtar/Breakout-v1", 1, suite="m", evaluations=[0, 1, 2, 3, 4]
    )  # none
    write_run(
        tmp_path, "cpi_0.5", "MinAtar/Breakout-v1", 0, suite="m", evaluations=[0, 200, 0, 0, 0]
    )
    write_run(tmp_path, "cpp", "MinAtar/Asterix-v1", 0, suite="m", evaluations=[0, 1, 0, 1, 1])
    return load_results(tmp_path)


def test_values_are_means_over_seeds(oscillating: Results) -> None:
    table = table1(oscillating).set_index(["Criterion", "Algorithm"])
    assert list(table.columns) == ["MinAtar/Asterix-v1", "MinAtar/Breakout-v1"]
    assert table.loc[("||OJ||_2", "DeepCPP"), "MinAtar/Breakout-v1"] == pytest.approx(2.5)
    assert table.loc[("||OJ||_inf", "DeepCPP"), "MinAtar/Breakout-v1"] == pytest.approx(2.0)


def test_markdown_has_a_row_per_criterion_and_algorithm(oscillating: Results) -> None:
    lines = table1_markdown(table1(oscillating)).splitlines()
    assert lines[0] == "| Criterion | Algorithm | MinAtar Asterix | MinAtar Breakout |"
    assert lines[2] == r"| \|\|OJ\|\|_2 | DeepCPP | 1.00 | 2 |"
    assert lines[3].endswith("|  | 200 |")  # no run of it on Asterix
    assert len(lines) == 2 + 4


def test_latex_has_the_layout_of_the_paper(oscillating: Results) -> None:
    text = table1_latex(table1(oscillating))
    assert text.startswith(
        "\\begin{tabular}{|c|c|c|c|}\n\\hline\nCriterion & Algorithm & \\texttt{MinAtar Asterix}"
    )
    assert r"\multirow{2}{*}{$\|\mathcal{O}J\|_2$} & DeepCPP & 1.00 & 2 \\" in text
    assert r"DeepCPI ($\zeta$ = 0.5)" in text
    assert text.count(r"\hline") == 4
