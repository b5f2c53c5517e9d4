"""Names, colours, panels, legends and files of figures."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from sb3_cpp.analysis.style import (
    FORMATS,
    STYLES,
    line_handles,
    new_figure,
    panels,
    save_figure,
    short_name,
    step_text,
    styles_for,
)

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
        "cmdqn",
        "cvi",
        "mdqn",
        "modqn",
        "cpi",
        "dqn",
        "qrdqn",
        "ppo",
        "a2c",
        "dqn_average",
        "mdqn_average",
        "cpp_munchausen_typical",
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
        ("my_package:Maze-v0", "Maze"),
        ("my_package.worlds:MazeEnv", "MazeEnv"),
    ],
)
def test_short_names(task: str, name: str) -> None:
    assert short_name(task) == name


def test_steps_are_short() -> None:
    assert [step_text(x) for x in (0, 500, 50_000, 1_500_000)] == ["0", "500", "50k", "1.5M"]


@pytest.mark.parametrize(
    ("count", "shape"),
    [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3)), (6, (2, 3))],
)
def test_the_legend_takes_the_cell_after_the_panels_or_a_line_below_full_rows(
    count: int, shape: tuple[int, int]
) -> None:
    handles = line_handles(styles_for(["cpp", "dqn"]))
    figure, axes = panels(count, handles=handles)
    assert len(axes) == count
    assert len(figure.axes) == shape[0] * shape[1]
    assert all(ax.get_legend() is None for ax in axes)
    below = count == shape[0] * shape[1]
    legend = figure.legends[0] if below else figure.axes[-1].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["DeepCPP", "DQN"]
    assert len(figure.legends) == below


@pytest.mark.parametrize(("count", "letters"), [(1, 4), (3, 4), (2, 30), (3, 30), (3, 120)])
def test_a_legend_lies_within_its_figure_however_long_the_names(count: int, letters: int) -> None:
    names = [f"{i:x}" * letters for i in range(1, 12)]
    figure, _ = panels(count, handles=line_handles(styles_for(names)))
    figure.draw_without_rendering()
    legend = figure.legends[0] if figure.legends else figure.axes[-1].get_legend()
    box = legend.get_window_extent()
    assert box.y0 >= 0
    assert (box.x0 >= 0 and box.x1 <= figure.bbox.width) or legend._ncols == 1


@pytest.mark.parametrize(("letters", "columns"), [(4, 5), (18, 3), (40, 2), (90, 1)])
def test_a_legend_has_rows_of_about_equal_length(letters: int, columns: int) -> None:
    """Five names are a row, 3 and 2, or 2, 2 and 1; never 4 and 1."""
    names = [f"{i}" * letters for i in range(5)]
    figure, _ = panels(1, handles=line_handles(styles_for(names)))
    assert figure.legends[0]._ncols == columns


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
