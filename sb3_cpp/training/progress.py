"""What a run tells about itself while it goes on: status.json for whoever watches, a bar or plain lines for the console."""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from stable_baselines3.common.callbacks import BaseCallback

from sb3_cpp.run_folder import write_status


def describe(status: dict[str, Any]) -> str:
    """return, zeta and speed, as far as they are known."""
    parts = [f"return {status['return']:.1f}" if status.get("return") is not None else "return -"]
    if status.get("zeta") is not None:
        parts.append(f"zeta {status['zeta']:.3g}")
    parts.append(f"{status.get('speed', 0.0):.0f} steps/s")
    return ", ".join(parts)


class ProgressCallback(BaseCallback):
    """Writes status.json about once a second, and shows the same on the console.

    :param run: the run's folder
    :param total: steps of the whole run
    :param show: "bar" (plain lines if there is no terminal), "lines" (ten in a run) or "nothing"
    """

    def __init__(self, run: Path, total: int, show: str = "lines") -> None:
        super().__init__()
        self.run, self.total = run, total
        self.show = "lines" if show == "bar" and not sys.stdout.isatty() else show
        self._bar: Progress | None = None

    def _on_training_start(self) -> None:
        self._began = self._seen = time.monotonic()
        self._first = self.num_timesteps
        self._next_line = self._after(self.num_timesteps)
        if self.show == "bar":
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns)
            self._bar.start()
            self._task = self._bar.add_task("return -", total=self.total, completed=self._first)
        write_status(self.run, **self.status("training"))

    def _after(self, timesteps: int) -> int:
        return (timesteps * 10 // self.total + 1) * self.total // 10

    def _on_step(self) -> bool:
        now = time.monotonic()
        if now - self._seen >= 1.0:
            self._seen = now
            status = self.status("training")
            write_status(self.run, **status)
            if self._bar is not None:
                self._bar.update(
                    self._task,
                    completed=min(self.num_timesteps, self.total),
                    description=describe(status),
                )
        if self.show == "lines" and self.num_timesteps >= self._next_line:
            self._next_line = self._after(self.num_timesteps)
            print(
                f"{self.num_timesteps:>9,} of {self.total:,} steps: {describe(self.status('training'))}",
                flush=True,
            )
        return True

    def close(self) -> None:
        """Take the bar down, however training ended."""
        if self._bar is not None:
            self._bar.update(self._task, completed=min(self.num_timesteps, self.total))
            self._bar.stop()
            self._bar = None

    def status(self, state: str) -> dict[str, Any]:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        return {
            "state": state,
            "timesteps": self.num_timesteps,
            "total": self.total,
            "return": float(np.mean(returns)) if returns else None,
            "zeta": getattr(self.model, "zeta", None),
            "speed": (self.num_timesteps - self._first) / max(time.monotonic() - self._began, 1e-9),
        }
