"""What the scripts share: flags for a dataclass of settings, and errors of one line with exit code 2."""

import argparse
import gc
import sys
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Any, NoReturn

from sb3_cpp.checks import InvalidArgument


class CommandLine(argparse.ArgumentParser):
    """A parser that reports a bad argument in one line, without the usage text."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")

    def add_settings(self, cls: type, help_texts: dict[str, str]) -> None:
        """One flag per setting that has a help text; one not given stays out of the namespace, so that a file can set it."""
        for field in fields(cls):
            if field.name in help_texts:
                self.add_argument(
                    "--" + field.name.replace("_", "-"),
                    type=_type_of(field),
                    default=argparse.SUPPRESS,
                    help=help_texts[field.name],
                )

    def add_runs(self) -> None:
        """What the scripts about finished runs ask for: where the runs are, and which of them to compare."""
        self.add_argument(
            "runs", nargs="+", help="folders of runs, or of the CSV files of scripts/results.py"
        )
        self.add_argument(
            "--algos", nargs="+", default=[], help="compare these algorithms (without it: all)"
        )
        self.add_argument(
            "--envs", nargs="+", default=[], help="compare on these environments (without it: all)"
        )
        self.add_argument(
            "--reference", help="algorithm that the others are compared with (without it: cpp)"
        )

    def add_output(self, default: str) -> None:
        """``--out`` and ``--force``, with what happens to a folder that is not empty."""
        self.add_argument(
            "--out", default=argparse.SUPPRESS, help=f"folder for the results (default: {default})"
        )
        self.add_argument(
            "--force",
            action="store_true",
            help="write into --out even if it holds other things; without it, only a new or empty folder, or one of the same "
            "settings, is accepted",
        )


def _type_of(field: "Field[Any]") -> Callable[[str], Any]:
    """The type of the default, which every setting with a flag has."""
    if field.default is MISSING:
        raise TypeError(f"setting {field.name} has no default, so its flag has no type")
    return type(field.default)


def run_command(main: Callable[[], int]) -> NoReturn:
    """Run a script's main function and leave with its exit code; a wrong argument ends it with one line and code 2."""
    try:
        code = main()
    except InvalidArgument as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        code = 2
    except OSError as error:  # a full disk, a folder without permission
        print(
            f"error: {error.strerror or error}{f': {error.filename}' if error.filename else ''}",
            file=sys.stderr,
        )
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    gc.freeze()  # what is left ends with the process: to search it once more for garbage takes half a second
    sys.exit(code)
