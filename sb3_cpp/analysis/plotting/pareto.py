"""The plane of return and oscillation: one point per algorithm, with both intervals."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from sb3_cpp.analysis.comparison import pareto_front
from sb3_cpp.analysis.plotting.canvas import FONT, dress
from sb3_cpp.analysis.plotting.styles import styles_for
from sb3_cpp.metrics import Interval

Points = Mapping[str, tuple[Interval, Interval]]


def plot_pareto(
    ax: Axes,
    points: Points,
    bounds: tuple[float, float],
    title: str,
    xlabel: str,
    ylabel: str,
    names: bool = True,
) -> None:
    """Left and up is better. The dashed line joins the algorithms that no other one beats on both.

    :param points: by algorithm, return and oscillation
    :param bounds: the range of returns that is shown; oscillation is shown from 0 on, intervals are cut at the frame
    :param names: whether each point carries its algorithm's name
    """
    styles = styles_for(points)
    values = {
        algo: (float(gain.estimate), float(fall.estimate)) for algo, (gain, fall) in points.items()
    }
    front = sorted((values[algo][1], values[algo][0]) for algo in pareto_front(values))
    ax.plot(
        *zip(*front), color="0.6", linewidth=1.2, linestyle="--", drawstyle="steps-post", zorder=1
    )
    for algo, (gain, fall) in points.items():
        style = styles[algo]
        x, y = values[algo][1], values[algo][0]
        if np.isfinite(fall.low):
            ax.plot(
                [float(fall.low), float(fall.high)],
                [y, y],
                color=style.colour,
                linewidth=1.0,
                alpha=0.55,
                zorder=2,
            )
        if np.isfinite(gain.low):
            ax.plot(
                [x, x],
                [float(gain.low), float(gain.high)],
                color=style.colour,
                linewidth=1.0,
                alpha=0.55,
                zorder=2,
            )
        ax.plot(
            x, y, marker=style.marker, linestyle="none", color=style.colour, markersize=6, zorder=3
        )
    margin = 0.06 * (bounds[1] - bounds[0]) or 1.0
    ax.set_ylim(bounds[0] - margin, bounds[1] + margin)
    ax.set_xlim(0.0, 1.3 * max(x for _, x in values.values()) or 1.0)
    dress(ax, title, xlabel, ylabel)
    if names:
        _name_points(ax, values)


def _name_points(ax: Axes, values: Mapping[str, tuple[float, float]]) -> None:
    """Each name beside its point, inside the frame, where it covers least of the points and names already there."""
    styles, figure = styles_for(values), ax.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # so that the axes have their place
    points = 72.0 / figure.dpi * ax.transData.transform([(x, y) for y, x in values.values()])
    places = dict(zip(values, points.tolist()))
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in places.values()]
    frame = tuple(72.0 / figure.dpi * float(edge) for edge in ax.bbox.extents)
    for algo, (x, y) in places.items():
        long = 0.65 * FONT * len(styles[algo].label)
        lines = [3 + 1.3 * FONT * step for step in range(4)]  # above the point; as far below
        sides = [
            (dx, dy)
            for line in lines
            for dx in (6, -6 - long, -long / 2)
            for dy in (line, -line - FONT)
        ]
        boxes = [(x + dx, y + dy, x + dx + long, y + dy + FONT) for dx, dy in sides]
        outside = [long * FONT - _overlap(box, frame) for box in boxes]
        crowding = [
            sum(_overlap(box, other) for other in taken) + area for box, area in zip(boxes, outside)
        ]
        best = int(
            np.argmin(np.round(crowding, 6))
        )  # of equal ones the nearest, whatever the last digits say
        taken.append(boxes[best])
        point = (values[algo][1], values[algo][0])
        ax.annotate(
            styles[algo].label,
            point,
            xytext=sides[best],
            textcoords="offset points",
            fontsize=FONT,
            color=styles[algo].colour,
        )


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)
