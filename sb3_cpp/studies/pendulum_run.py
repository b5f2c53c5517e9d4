"""The pendulum study from settings to files."""

from dataclasses import asdict
from pathlib import Path

from sb3_cpp.checks import check_whole_number
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.studies.pendulum_parts import learners
from sb3_cpp.studies.pendulum_study import PendulumSettings


def run_pendulum(
    settings: PendulumSettings, out: str | Path, force: bool = False, jobs: int | None = None
) -> int:
    """The whole study; returns 0, or 1 if learning broke off, with what was seen until then on disk.

    :param jobs: processes at once, each with a part of the trials of an algorithm (default: one per processor); the numbers
        do not depend on it
    """
    if jobs is not None:
        check_whole_number("jobs", jobs, 1)
    folder = open_run_folder(out, asdict(settings), force)
    with learners(settings, jobs) as team:
        from sb3_cpp.studies.pendulum_report import (
            write_results,
        )  # loading it takes a second, while they learn

        return write_results(settings, team, folder)
