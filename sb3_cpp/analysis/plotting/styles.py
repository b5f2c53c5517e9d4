"""How an algorithm looks: the same label, colour, dashes and marker in every figure.

Colours are from the palettes of Okabe and Ito and of Tol (muted), which colour-blind readers can tell apart; dashes and
markers differ too, for those who print in grey.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

Dashes = str | tuple[float, tuple[float, ...]]


class AlgorithmStyle(NamedTuple):
    label: str
    colour: str
    dashes: Dashes
    marker: str


STYLES = {
    "cpp": AlgorithmStyle("CPP", "#0072B2", "-", "o"),
    "cvi": AlgorithmStyle("CVI", "#D55E00", "--", "s"),
    "mdqn": AlgorithmStyle("MDQN", "#009E73", "-.", "^"),
    "modqn": AlgorithmStyle("MoDQN", "#E69F00", (0, (1, 1)), "D"),
    "cpi": AlgorithmStyle("DCPI", "#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "v"),
    "dqn": AlgorithmStyle("DQN", "#000000", (0, (4, 1.5)), "P"),
    "qrdqn": AlgorithmStyle("QR-DQN", "#5E5E5E", (0, (2, 1)), "X"),
    "ppo": AlgorithmStyle("PPO", "#56B4E9", (0, (6, 2)), "<"),
    "a2c": AlgorithmStyle("A2C", "#661100", (0, (3, 1, 1, 1)), ">"),
    "cpi_0.01": AlgorithmStyle("DCPI, ζ = 0.01", "#332288", (0, (8, 2)), "p"),
    "cpi_0.5": AlgorithmStyle("DCPI, ζ = 0.5", "#44AA99", (0, (1, 2)), "*"),
    "cpi_cpi": AlgorithmStyle("DCPI, ζ of CPI", "#AA4499", (0, (4, 1, 1, 1)), "h"),
    "cpi_spi": AlgorithmStyle("DCPI, ζ of A-SPI", "#999933", (0, (7, 1, 2, 1)), "d"),
}
_SPARE_COLOURS = (
    "#4422DD",
    "#880077",
    "#117733",
    "#88BB66",
    "#BB55FF",
    "#000055",
    "#DDCC77",
    "#CC6677",
)
_SPARE_DASHES: tuple[Dashes, ...] = (
    (0, (9, 1)),
    (0, (2, 2)),
    (0, (6, 1, 1, 1)),
    (0, (3, 2)),
    (0, (5, 1, 1, 1, 1, 1, 1, 1)),
)
_SPARE_MARKERS = ("H", "8", "$+$", "$x$", "$o$")

_together: ContextVar[tuple[str, ...]] = ContextVar("_together", default=())


@contextmanager
def drawn_together(algos: Iterable[str]) -> Iterator[None]:
    """Inside, all these algorithms keep their styles, whichever of them a figure shows."""
    token = _together.set(tuple(algos))
    try:
        yield
    finally:
        _together.reset(token)


def styles_for(algos: Iterable[str]) -> Mapping[str, AlgorithmStyle]:
    """The styles of some algorithms; those with other names (variants of a study) get spare ones, by the alphabet."""
    names = list(dict.fromkeys(algos))
    others = sorted({*names, *_together.get()} - STYLES.keys())
    spare = {
        name: AlgorithmStyle(
            name,
            _SPARE_COLOURS[i % len(_SPARE_COLOURS)],
            _SPARE_DASHES[i % len(_SPARE_DASHES)],
            _SPARE_MARKERS[i % len(_SPARE_MARKERS)],
        )
        for i, name in enumerate(others)
    }
    return {name: STYLES.get(name) or spare[name] for name in names}
