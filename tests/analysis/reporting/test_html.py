"""Pieces of HTML."""

from html.parser import HTMLParser

import pytest

from sb3_cpp.analysis.plotting.canvas import new_figure
from sb3_cpp.analysis.reporting.html import (
    Cell,
    bullets,
    definitions,
    page,
    paragraph,
    picture,
    preformatted,
    table,
    unfolding,
)

EVIL = "<script>alert(\"1\")</script> & 'more'"


@pytest.mark.parametrize(
    "piece",
    [
        paragraph(EVIL),
        bullets([EVIL]),
        table([EVIL], [[EVIL], [Cell(EVIL, EVIL, EVIL)]], EVIL),
        unfolding(EVIL, ""),
        preformatted(EVIL),
        definitions([(EVIL, EVIL)]),
        picture(new_figure(1, 1), EVIL, EVIL),
    ],
)
def test_every_text_is_escaped(piece: str) -> None:
    assert "<script" not in piece
    assert 'alert("1")' not in piece
    assert "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt; &amp; &#x27;more&#x27;" in piece


def test_the_title_of_a_page_is_escaped() -> None:
    assert "<title>&lt;b&gt;</title>" in page("<b>", "")


def test_a_cell_is_sorted_by_its_value_and_shows_its_interval() -> None:
    assert (
        '<td class="number" data-value="1000.0">1,000 <span class="interval">[900, 1,100]</span></td>'
        in table(["name", "number"], [["a", Cell("1,000", 1000.0, "[900, 1,100]")]])
    )


class Tags(HTMLParser):
    """Fails on tags that are not closed in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_page_is_well_formed() -> None:
    parser = Tags()
    parser.feed(
        page(
            "t",
            table(["a"], [["1"]])
            + picture(new_figure(1, 1), "p", "c")
            + unfolding("s", preformatted("x")),
        )
    )
    assert parser.open == []
