"""The report as a person sees it: in a real browser, on a desk, a phone and paper."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from sb3_cpp.analysis.report import report_page
from sb3_cpp.analysis.results import load_results
from tests.analysis.browser import CHROMIUM, Browser
from tests.analysis.synthetic_runs import write_grid, write_run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = write_grid(tmp_path_factory.mktemp("runs"))
    write_run(
        folder,
        "mdqn",
        "CartPole-v1",
        1,
        state="failed",
        error="<script>document.body.remove()</script>",
    )
    return report_page(
        load_results(folder), "<i>Results</i>", command="python scripts/report.py " + "runs/" * 60
    )


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


def test_the_browser_notices_what_is_wrong(browser: Browser) -> None:
    """An error on the console, an uncaught one, a broken image: so that silence means something."""
    script = (
        "<script>console.error('first'); setTimeout(() => { throw Error('second'); });</script>"
    )
    seen = browser.look(
        f'<!DOCTYPE html><body><img alt="broken" src="data:image/png;base64,AAAA">{script}</body>'
    )
    assert len(seen["console"]) == 2
    assert not seen["images"][0]["loaded"]


def test_the_page_opens_without_errors_and_every_figure_is_painted(
    page: str, browser: Browser
) -> None:
    seen = browser.look(page)
    assert seen["console"] == []
    assert seen["error"] is None
    assert len(seen["images"]) == page.count("<figure>") >= 11
    assert all(image["loaded"] for image in seen["images"])
    pixels = matplotlib.image.imread(browser.screenshot(page, 1000, seen["height"]))[..., :3]
    assert pixels.shape[0] == seen["height"]
    for image in seen["images"]:
        left, top, width, height = (round(number) for number in image["box"])
        part = pixels[top : top + height, left : left + width]
        assert part.shape[:2] == (height, width)
        assert np.mean(part.min(axis=2) < 0.5) > 0.003, f"{image['alt']} is not painted"


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_of_a_small_screen(page: str, browser: Browser, width: int) -> None:
    seen = browser.look_in_frame(page, width)
    assert seen["window"] == width
    assert seen["width"] == width
    assert seen["console"] == []


SCROLLING = """
  window.result = [...document.querySelectorAll(".frame")].map((frame) => ({
    wide: frame.querySelector(".wide").scrollWidth > frame.querySelector(".wide").clientWidth + 1,
    hint: getComputedStyle(frame.querySelector(".hint")).display !== "none",
  }));
"""


def test_a_desktop_cuts_off_no_column_and_no_figure(page: str, browser: Browser) -> None:
    frames = browser.look(page, 1280, SCROLLING)["result"]
    assert len(frames) >= 14
    assert not any(frame["wide"] or frame["hint"] for frame in frames)


def test_what_scrolls_on_a_phone_says_so(page: str, browser: Browser) -> None:
    frames = browser.look_in_frame(page, 375, SCROLLING)["result"]
    assert any(frame["wide"] for frame in frames)
    assert all(frame["wide"] == frame["hint"] for frame in frames)


def test_the_page_is_dark_where_the_reader_wants_it(page: str, browser: Browser) -> None:
    def paper(*flags: str) -> float:
        pixels = matplotlib.image.imread(browser.screenshot(page, 800, 300, *flags))[..., :3]
        return float(np.median(pixels))

    assert paper() > 0.9
    assert paper("--blink-settings=preferredColorScheme=0") < 0.2


def test_a_click_sorts_by_number_and_a_second_one_the_other_way(
    page: str, browser: Browser
) -> None:
    action = """
      const table = document.querySelector("#runs table"), heads = [...table.tHead.rows[0].cells];
      const column = heads.findIndex((head) => head.textContent === "final return");
      const values = () => [...table.tBodies[0].rows].map((row) => row.cells[column].dataset.value);
      const button = heads[column].querySelector("button");
      window.result = { before: values() };
      const order = () => heads[column].getAttribute("aria-sort");
      button.click(); window.result.up = values(); window.result.upSort = order();
      button.click(); window.result.down = values(); window.result.downSort = order();
    """
    result = browser.look(page, action=action)["result"]
    numbers = sorted(float(value) for value in result["before"] if value)
    empty = [value for value in result["before"] if not value]
    assert empty, "the table should have a run without a return"
    assert result["up"][-len(empty) :] == empty
    assert [float(value) for value in result["up"][: len(numbers)]] == numbers
    assert [float(value) for value in result["down"][: len(numbers)]] == numbers[::-1]
    assert result["down"][-len(empty) :] == empty
    assert (result["upSort"], result["downSort"]) == ("ascending", "descending")


def test_text_is_sorted_by_the_alphabet(page: str, browser: Browser) -> None:
    action = """
      const table = document.querySelector("#runs table");
      table.tHead.rows[0].cells[1].querySelector("button").click();
      window.result = [...table.tBodies[0].rows].map((row) => row.cells[1].textContent);
    """
    result = browser.look(page, action=action)["result"]
    assert result == sorted(result, key=str.lower)
    assert len(set(result)) == 4


def test_paper_shows_what_is_folded_on_the_screen(page: str, browser: Browser) -> None:
    action = """
      dispatchEvent(new Event("beforeprint"));
      window.result = [...document.querySelectorAll("details")].map((one) => one.open);
    """
    opened = browser.look(page, action=action)["result"]
    assert opened
    assert all(opened)
    assert browser.print_to_pdf(page).startswith(b"%PDF")
