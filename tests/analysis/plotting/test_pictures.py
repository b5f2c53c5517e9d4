"""All figures of a suite."""

from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from sb3_cpp.analysis.plotting.pictures import NAMES, pictures
from sb3_cpp.analysis.plotting.styles import drawn_together, styles_for
from sb3_cpp.analysis.results import load_results
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
    assert [name for name, picture in found.items() if picture.figure is None] == ["fig5"]


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

    with drawn_together(["cpp_a", "cpp_b"]):
        styles = {
            name: style.colour.lower() for name, style in styles_for(["cpp_a", "cpp_b"]).items()
        }
    assert styles["cpp_b"] in colours("pareto")
    assert styles["cpp_a"] not in colours("pareto")
    assert set(styles.values()) < colours("curve_CartPole-v1")
