"""A picture of the pendulum: pivot, rod, bob, the goal above, and the torque as an arc of arrows."""

import math

import numpy as np
from PIL import Image, ImageDraw

SIZE = 240  # pixels
_OVERSAMPLING = 2  # drawn larger and scaled down, for smooth edges

_PAPER, _GREY, _ROD, _BOB, _TORQUE = (
    (255, 255, 255),
    (214, 219, 224),
    (58, 76, 99),
    (201, 84, 58),
    (226, 150, 40),
)


def draw_pendulum(angle: float, push: float, size: int = SIZE) -> np.ndarray:
    """An RGB image (size, size, 3); angle 0 is upright and grows clockwise as seen, ``push`` in [-1, 1] is the torque."""
    n = size * _OVERSAMPLING
    image = Image.new("RGB", (n, n), _PAPER)
    pen = ImageDraw.Draw(image)
    centre, rod = n / 2, 0.36 * n

    def disc(x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)

    pen.ellipse(
        (centre - rod, centre - rod, centre + rod, centre + rod),
        outline=_GREY,
        width=max(1, n // 180),
    )
    goal = 0.062 * n
    pen.ellipse(
        (centre - goal, centre - rod - goal, centre + goal, centre - rod + goal),
        outline=_GREY,
        width=max(2, n // 90),
    )
    x, y = centre + rod * math.sin(angle), centre - rod * math.cos(angle)
    pen.line((centre, centre, x, y), fill=_ROD, width=n // 36)
    disc(x, y, 0.05 * n, _BOB)
    if push != 0.0:
        _draw_push(pen, centre, 0.13 * n, push)
    disc(centre, centre, 0.025 * n, _ROD)
    return np.asarray(image.resize((size, size), Image.Resampling.LANCZOS), dtype=np.uint8)


def _draw_push(pen: ImageDraw.ImageDraw, centre: float, radius: float, push: float) -> None:
    """An arc around the pivot with a head in the direction of the torque, its length in proportion."""
    turn = math.copysign(1.0, push)
    half = 70.0 * min(abs(push), 1.0)
    box = (centre - radius, centre - radius, centre + radius, centre + radius)
    pen.arc(box, -90.0 - half, -90.0 + half, fill=_TORQUE, width=max(2, int(radius / 6)))
    tip = math.radians(-90.0 + turn * (half + 18.0))
    base = math.radians(-90.0 + turn * half)
    spread = radius / 3.2
    pen.polygon(
        [
            (centre + radius * math.cos(tip), centre + radius * math.sin(tip)),
            (
                centre + (radius + spread) * math.cos(base),
                centre + (radius + spread) * math.sin(base),
            ),
            (
                centre + (radius - spread) * math.cos(base),
                centre + (radius - spread) * math.sin(base),
            ),
        ],
        fill=_TORQUE,
    )
