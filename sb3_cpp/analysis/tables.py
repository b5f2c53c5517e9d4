"""How the studies show a table."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_WIDTH = 100
"""Where the terminal is narrower, or there is none: a wrapped line is better than a number cut off."""


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text: int = 1
) -> None:
    """Print rows of finished cells; the first ``text`` columns are set to the left, numbers to the right."""
    table = Table(title=title, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    console.width = max(
        console.width,
        _WIDTH,
        table.__rich_measure__(console, console.options.update(max_width=1000)).maximum,
    )
    console.print(table)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]], text: int = 1) -> str:
    """The same for a file of Markdown."""
    lines = [list(columns), [*["---"] * text, *["---:"] * (len(columns) - text)], *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )
