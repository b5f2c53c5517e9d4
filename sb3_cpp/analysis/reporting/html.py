"""Pieces of HTML, every text escaped."""

import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import NamedTuple
from urllib.parse import quote

import matplotlib
from matplotlib.figure import Figure


class Cell(NamedTuple):
    """A cell of a table: what it shows, what it is sorted by, and in small print the interval."""

    text: str
    value: float | str | None = None
    interval: str = ""


def text_of(value: object) -> str:
    return escape(str(value))


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{text_of(text)}</p>"


def bullets(lines: Iterable[str], kind: str = "") -> str:
    return f"<ul{_class(kind)}>{''.join(f'<li>{text_of(line)}</li>' for line in lines)}</ul>"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    caption: str = "",
    text_columns: int = 1,
) -> str:
    """A table whose columns can be sorted; the first ``text_columns`` are set to the left, numbers to the right."""
    kinds = ["" if i < text_columns else "number" for i in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{_class(kind)}><button type="button">{text_of(name)}</button></th>'
        for name, kind in zip(columns, kinds)
    )
    body = "".join(
        f"<tr>{''.join(_cell(cell, kind) for cell, kind in zip(row, kinds))}</tr>" for row in rows
    )
    title = paragraph(caption, "quiet") if caption else ""
    content = f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody>"
    return f'{title}<div class="wide"><table class="sortable">{content}</table></div>'


def _cell(cell: Cell | str, kind: str) -> str:
    if isinstance(cell, str):
        return f"<td{_class(kind)}>{text_of(cell)}</td>"
    value = "" if cell.value is None else f' data-value="{text_of(cell.value)}"'
    interval = f' <span class="interval">{text_of(cell.interval)}</span>' if cell.interval else ""
    return f"<td{_class(kind)}{value}>{text_of(cell.text)}{interval}</td>"


def picture(figure: Figure, title: str, caption: str) -> str:
    """The figure as an SVG inside the page."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "sb3_cpp"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    # Hundredths of a point are enough for a line, and spare a sixth of the page
    drawing = re.sub(
        rb' d="[^"]*"', lambda path: re.sub(rb"(\.\d\d)\d+", rb"\1", path[0]), buffer.getvalue()
    )
    data = quote(drawing, safe=" ,.:;=/()-")
    width, height = (round(inches * 120) for inches in figure.get_size_inches())
    image = f'<img src="data:image/svg+xml,{data}" alt="{text_of(title)}" width="{width}" height="{height}">'
    kind = "wide panels" if width > 600 else "wide"
    return f'<figure><div class="{kind}">{image}</div><figcaption>{text_of(caption)}</figcaption></figure>'


def unfolding(summary: str, content: str) -> str:
    """Something that opens on a click; ``content`` is HTML."""
    return f"<details><summary>{text_of(summary)}</summary>{content}</details>"


def preformatted(text: str, kind: str = "") -> str:
    return f"<pre{_class(kind)}>{text_of(text)}</pre>"


def definitions(pairs: Iterable[tuple[str, str]]) -> str:
    return f"<dl>{''.join(f'<dt>{text_of(word)}</dt><dd>{text_of(meaning)}</dd>' for word, meaning in pairs)}</dl>"


def page(title: str, body: str) -> str:
    """The whole document; its policy forbids the browser to load anything from elsewhere."""
    files = resources.files("sb3_cpp.analysis.reporting")
    style, script = (
        (files / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{text_of(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
