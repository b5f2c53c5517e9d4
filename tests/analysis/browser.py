"""A page in headless Chromium: what its scripts see, its console, and how it looks."""

import html
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
ATTEMPTS, SECONDS = 3, 60.0
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--hide-scrollbars",
)
FLAGS += (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)

# Waits for all pictures, then writes down what a person would see
PROBE = """<script>
addEventListener("error", (event) => { document.body.dataset.error = event.message; });
addEventListener("load", async () => {
  const images = [...document.images];
  await Promise.all(images.map((image) => image.decode().catch(() => {})));
  ACTION
  const box = (element) => {
    const place = element.getBoundingClientRect();
    return [place.x + scrollX, place.y + scrollY, place.width, place.height];
  };
  const found = {
    width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
    window: innerWidth,
    images: images.map((image) => (
      { alt: image.alt, loaded: image.complete && image.naturalWidth > 0, box: box(image) })),
    error: document.body.dataset.error ?? null, result: window.result ?? null,
  };
  document.body.dataset.probe = JSON.stringify(found);
  parent.postMessage(found, "*");
});
</script>"""


class Browser:
    """Opens pages of a folder that tests may write to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def look(self, page: str, width: int = 1000, action: str = "") -> dict[str, Any]:
        """Findings after ``action`` (JavaScript; may set window.result), and the console."""
        path = self._write(page.replace("</body>", PROBE.replace("ACTION", action) + "</body>"))
        return self._probe(path, width)

    def look_in_frame(self, page: str, width: int, action: str = "") -> dict[str, Any]:
        """The same in a frame, for widths that a window of Chromium cannot have."""
        inner = self._write(
            page.replace("</body>", PROBE.replace("ACTION", action) + "</body>"), "inner.html"
        )
        listen = (
            "addEventListener('message', (event) => "
            "{ document.body.dataset.probe = JSON.stringify(event.data); });"
        )
        frame = (
            f'<iframe src="{inner.name}" width="{width}" height="800" style="border:0"></iframe>'
        )
        return self._probe(
            self._write(f"<!DOCTYPE html><body><script>{listen}</script>{frame}</body>"), 1000
        )

    def screenshot(self, page: str, width: int, height: int, *flags: str) -> Path:
        path, picture = self._write(page), self.folder / "screenshot.png"
        size = f"--window-size={width},{height}"
        self._run(f"--screenshot={picture}", size, *flags, path.as_uri())
        return picture

    def print_to_pdf(self, page: str) -> bytes:
        path, pdf = self._write(page), self.folder / "page.pdf"
        self._run(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", path.as_uri())
        return pdf.read_bytes()

    def _probe(self, path: Path, width: int) -> dict[str, Any]:
        done = self._run("--dump-dom", f"--window-size={width},800", path.as_uri())
        match = re.search(r'<body[^>]* data-probe="([^"]*)"', done.stdout)
        assert match, f"the page did not finish: {done.stderr[-2000:]}"
        console = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        return {**json.loads(html.unescape(match[1])), "console": console}

    def _write(self, page: str, name: str = "page.html") -> Path:
        path = self.folder / name
        path.write_text(page, encoding="utf-8")
        return path

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """On a busy machine Chromium sometimes does not come up; it is started again then."""
        for _ in range(ATTEMPTS - 1):
            try:
                return self._run_once(*arguments)
            except subprocess.TimeoutExpired:
                continue
        return self._run_once(*arguments)

    def _run_once(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        assert CHROMIUM is not None
        profile = tempfile.mkdtemp(
            dir=self.folder
        )  # of its own: the lock of one that is still closing would be in the way
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, text=True, start_new_session=True, stdout=pipe, stderr=pipe
        ) as process:
            try:
                out, err = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with its children, which hold the pipes
                raise
        assert process.returncode == 0, err[-2000:]
        return subprocess.CompletedProcess(command, process.returncode, out, err)
