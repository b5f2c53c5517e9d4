"""Run folders of Stable-Baselines3 and rl_zoo3: ``evaluations.npz`` or monitor files, read as ours.

SB3's EvalCallback writes ``evaluations.npz``, its Monitor ``monitor.csv`` (or ``0.monitor.csv``,
``1.monitor.csv``, ... for several environments). Neither names the algorithm or the seed, so these
come from the path, by a layout; the default is rl_zoo3's ``{algo}/{env}_{seed}``, where the run
number stands for the seed. What the layout leaves out comes from rl_zoo3's ``args.yml``, and the
environment also from the head of a monitor file.
"""

import json
import os
import re
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from sb3_cpp.analysis.runs import (
    TRAINING_POINTS,
    RunRecord,
    evaluation_curve,
    length_in_steps,
    training_curve,
)
from sb3_cpp.checks import InvalidArgument
from sb3_cpp.run_folder import EVALUATIONS, MONITOR, read_evaluations

ZOO_LAYOUT = "{algo}/{env}_{seed}"
_FIELDS = ("algo", "env", "seed")


def is_sb3_folder(folder: Path) -> bool:
    """Whether SB3's callbacks or monitors have written into this very folder."""
    return (folder / EVALUATIONS).is_file() or bool(_monitor_files(folder))


def check_layout(layout: str) -> None:
    """Refuse a layout that names no algorithm or has unknown fields."""
    try:
        parsed = list(string.Formatter().parse(layout))
    except ValueError as error:
        raise InvalidArgument(f"--layout must be a pattern, got {layout!r} ({error})") from None
    names = [name for _, name, _, _ in parsed if name is not None]
    if "algo" not in names or any(names.count(name) > 1 or name not in _FIELDS for name in names):
        fields = ", ".join(f"{{{name}}}" for name in _FIELDS)
        raise InvalidArgument(
            f"--layout must contain {{algo}}, each of {fields} at most once and nothing else in "
            f"braces, got {layout!r}"
        )


def read_sb3_run(
    folder: Path, layout: str = ZOO_LAYOUT, n_timesteps: int | None = None
) -> RunRecord | None:
    """The record of a folder of SB3; None if its path does not fit the layout.

    The suite is the folder above the layout: ``logs`` for ``logs/dqn/CartPole-v1_1``. A run without
    evaluations is compared by its training curve. A seed of -1 means that none is known.

    :param layout: meaning of the last parts of the path
    :param n_timesteps: length of runs that did not record it; by default their last evaluation
    """
    path = Path(os.path.abspath(folder))  # links are not resolved: names as the user sees them
    depth = layout.count("/") + 1
    if len(path.parts) < depth + 2:
        return None
    found = re.fullmatch(_pattern(layout), "/".join(path.parts[-depth:]))
    if found is None:
        return None
    names = found.groupdict()
    suite, algo = path.parts[-depth - 1], names["algo"]
    record = RunRecord(suite, names.get("env", ""), algo, int(names.get("seed", -1)))
    try:
        arguments = _zoo_arguments(folder)
        episodes, header = _read_monitors(folder)
        record.task = _environment(names.get("env"), arguments, header)
        if "seed" not in names:
            record.seed = int(arguments.get("seed", -1))
        _fill(record, folder, episodes, arguments, n_timesteps)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        task, problem = record.task or "unknown", f"its logs cannot be read ({reason})"
        return RunRecord(suite, task, algo, record.seed, problem=problem)
    return record


def _pattern(layout: str) -> str:
    """The layout as a regular expression; rl_zoo3 may add a UUID to the run number."""
    patterns = {"algo": r"[^/]+", "env": r"[^/]+?", "seed": r"\d+"}
    text = ""
    for literal, name, _, _ in string.Formatter().parse(layout):
        text += re.escape(literal)
        if name is not None:
            text += f"(?P<{name}>{patterns[name]})"
    return text + (r"(?:_[0-9a-f-]{36})?" if layout == ZOO_LAYOUT else "")


def _environment(name: str | None, arguments: Mapping[str, Any], header: Mapping[str, Any]) -> str:
    """The environment; in a path ``/`` is written as ``-``."""
    recorded = arguments.get("env") or header.get("env_id")
    if recorded in (None, "None"):
        recorded = name
    if not recorded:
        raise ValueError("neither its path nor a monitor file names the environment")
    same = name is None or str(recorded).replace("/", "-") == name
    return str(recorded) if same else str(name)


def _fill(
    record: RunRecord,
    folder: Path,
    episodes: pd.DataFrame,
    arguments: Mapping[str, Any],
    n_timesteps: int | None,
) -> None:
    arrays = read_evaluations(folder)
    hyperparameters = arguments.get("hyperparameters") or {}
    # -1 in args.yml means: as in the hyperparameters
    recorded = int(arguments.get("n_timesteps") or -1)
    recorded = recorded if recorded > 0 else int(hyperparameters.get("n_timesteps") or 0)
    evaluated = arrays.get("timesteps", np.zeros(0))
    last = int(evaluated[-1]) if len(evaluated) else 0
    total = recorded or n_timesteps or last
    if not total:
        raise ValueError(f"without {EVALUATIONS} its length is not recorded, see --timesteps")
    record.n_timesteps = total
    n_envs = max(episodes["file"].nunique(), 1)
    lengths = length_in_steps(episodes["l"], record.task)
    ends = n_envs * _sums(lengths, episodes["file"])  # all environments step together
    # Files come one after the other, episodes ended in turns
    order = np.argsort(ends, kind="stable")
    ends, returns = ends[order], episodes["r"].to_numpy(np.float64)[order]
    within = int(np.searchsorted(ends, total, side="right"))
    record.returns = returns[:within]
    record.training = training_curve(ends[:within], record.returns, total)
    record.seconds = float(episodes["t"].max()) if len(episodes) else np.nan
    if len(evaluated):
        record.evaluations = evaluation_curve(arrays, total)
        steps = record.evaluations["step"].to_numpy()
        record.timesteps = max(int(steps[-1]), min(int(ends[-1]) if len(ends) else 0, total))
        interval = int(np.diff(steps, prepend=0)[-1])
        finished = steps[-1] + interval > total  # no further evaluation was due
    elif len(record.training):
        record.evaluations = _evenly(record.training, total)
        record.timesteps = min(int(ends[-1]), total)
        finished = total - ends[-1] <= n_envs * lengths.max()  # at most one episode is missing
    else:
        raise ValueError(f"it has no evaluations, and no episode ended within {total:,} steps")
    record.state, record.problem = "finished", ""
    if not finished:
        record.state = "unfinished"
        record.problem = f"unfinished: {record.timesteps:,} of {total:,} steps"
    if arguments:
        provenance = {"command": arguments["command"]} if "command" in arguments else {}
        config = {"n_timesteps": total, "hyperparameters": hyperparameters}
        record.settings = {"config": config, "provenance": provenance}


def _evenly(training: pd.DataFrame, total: int) -> pd.DataFrame:
    """The training curve at 50 even steps; before the first episode has ended, its return."""
    steps = np.round(np.linspace(0, total, TRAINING_POINTS + 1)[1:]).astype(np.int64)
    values = np.interp(steps, training["step"], training["return"])
    return pd.DataFrame({"step": steps, "return": values, "standard_error": np.nan})


def _monitor_files(folder: Path) -> list[Path]:
    return sorted({*folder.glob(f"*.{MONITOR}"), *folder.glob(MONITOR)})


def _read_monitors(folder: Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The episodes of all environments, and the head of the first file."""
    tables, headers = [], []
    for number, path in enumerate(_monitor_files(folder)):
        with path.open(encoding="utf-8") as file:
            first = file.readline()
        if not first.strip():
            continue  # a process was killed before it wrote anything
        if not first.startswith("#"):
            raise ValueError(f"{path.name} has no header")
        header = json.loads(first[1:])
        table = pd.read_csv(path, comment="#")[["r", "l", "t"]]
        # t counts from the start of its own environment
        tables.append(table.assign(t=table["t"] + float(header["t_start"]), file=number))
        headers.append(header)
    if not tables:
        return pd.DataFrame({"r": [], "l": [], "t": [], "file": []}), {}
    episodes = pd.concat(tables, ignore_index=True)
    start = min(float(header["t_start"]) for header in headers)
    return episodes.assign(t=episodes["t"] - start), headers[0]


def _sums(lengths: NDArray[np.float64], files: "pd.Series[int]") -> NDArray[np.float64]:
    """Running sums of the lengths in each file."""
    sums = pd.Series(lengths, index=files.index).groupby(files).cumsum()
    return np.asarray(sums, dtype=np.float64)


class _PlainLoader(yaml.SafeLoader):
    """Reads rl_zoo3's YAML, which names Python types, as plain values; makes no object of them."""


def _plain(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return node.value or suffix
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    values = loader.construct_sequence(node, deep=True)  # type: ignore[arg-type]
    # An OrderedDict is a list with one entry: its list of pairs
    if suffix.endswith("OrderedDict"):
        return dict(values[0]) if values else {}
    return values


_PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", _plain)


def _zoo_arguments(folder: Path) -> dict[str, Any]:
    """rl_zoo3's args.yml, with the hyperparameters of config.yml and the command; {} without."""
    files = sorted(folder.glob("*/args.yml"))
    if not files:
        return {}

    def read(name: str) -> dict[str, Any]:
        try:
            content = yaml.load((files[0].parent / name).read_text(encoding="utf-8"), _PlainLoader)
        except (UnicodeDecodeError, yaml.YAMLError):
            raise ValueError(f"{name} is not YAML") from None
        if not isinstance(content, dict):
            raise ValueError(f"{name} has no settings")
        return content

    arguments = read("args.yml")
    if (files[0].parent / "config.yml").is_file():
        plain = json.dumps(read("config.yml"), default=str)
        arguments["hyperparameters"] = json.loads(plain)
    command = files[0].parent / "command.txt"
    if command.is_file():
        arguments["command"] = command.read_text(encoding="utf-8", errors="replace").strip()
    return arguments
