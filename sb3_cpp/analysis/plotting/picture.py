"""What a figure is to those who save or print it."""

from typing import NamedTuple

from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure with its words; without a figure, the caption is the reason why there is none."""

    name: str
    title: str
    caption: str
    figure: Figure | None
