"""The verdict on a suite in one sentence, and the runs that make a comparison unequal."""

from collections.abc import Mapping, Sequence

import numpy as np

from sb3_cpp.analysis.comparison import (
    averaged_algorithms,
    learned,
    scores,
    shared_tasks,
    tasks_of,
    why_no_average,
)
from sb3_cpp.analysis.results import Results
from sb3_cpp.analysis.style import label_of, short_name
from sb3_cpp.metrics import iqm, iqm_difference

MOST_NAMES = 3
RETURN, OSCILLATION = "normalised_return", "normalised_oscillation_l2"


def verdict(results: Results) -> str:
    """Which algorithm returned most, which oscillated least, and what of it is decided.

    A difference is decided if its 95 % interval excludes 0. Oscillation is compared among the
    algorithms that learned: one that did not has little to fall from.
    """
    tasks, algos = shared_tasks(results), averaged_algorithms(results)
    if not (tasks and algos):
        return f"No verdict over all tasks: {why_no_average(results)}."
    if len(algos) == 1:
        return f"No verdict: only {label_of(algos[0])} has runs on all tasks."
    gains, falls = (
        {algo: float(iqm(scores(results, algo, measure, tasks))) for algo in algos}
        for measure in (RETURN, OSCILLATION)
    )
    able = learned(gains, 0.0)
    single = all(
        len(runs) < 2 for algo in algos for runs in scores(results, algo, RETURN, tasks).values()
    )
    falls = {algo: falls[algo] for algo in able}
    most, least = _ties(gains, max(gains.values())), _ties(falls, min(falls.values()))
    first, second = "returned most", "oscillated least"
    if not single:
        first += _decided(results, tasks, algos, most, RETURN)
    if len(able) == 1:
        return f"{_names(most)} {first}, and no other learned enough to compare oscillation."
    if len(able) < len(algos):
        second += " of those that learned"
    if not single:
        second += _decided(results, tasks, able, least, OSCILLATION)
    joint = " and " if most == least else f", and {_names(least)} "
    end = "; nothing is decided, because single runs have no interval" if single else ""
    return f"{_names(most)} {first}{joint}{second}{end}."


def _ties(values: Mapping[str, float], best: float) -> list[str]:
    return [algo for algo, value in values.items() if np.isclose(value, best, rtol=0.0, atol=1e-9)]


def _decided(
    results: Results, tasks: Sequence[str], algos: Sequence[str], winners: list[str], measure: str
) -> str:
    """In brackets, against which of the others the first winner's lead is decided."""
    own = scores(results, winners[0], measure, tasks)
    against: dict[bool, list[str]] = {True: [], False: []}
    for algo in algos:
        if algo not in winners:
            gap = iqm_difference(own, scores(results, algo, measure, tasks))
            against[bool(gap.low > 0 or gap.high < 0)].append(algo)
    if not (against[True] or against[False]):
        return ""
    if not (against[True] and against[False]):
        word = "decided" if against[True] else "undecided"
        others = against[bool(against[True])]
        return f" ({word} against {_names(others) if len(others) == 1 else 'all others'})"
    return f" (decided against {_some(against[True])}; not against {_some(against[False])})"


def _some(algos: Sequence[str]) -> str:
    """Names, or of more than three their number."""
    return _names(algos) if len(algos) <= MOST_NAMES else f"{len(algos)} others"


def _names(algos: Sequence[str]) -> str:
    """As in ``DQN, CVI and PPO``."""
    *others, last = [label_of(algo) for algo in algos]
    return f"{', '.join(others)} and {last}" if others else last


def unequal_runs(results: Results) -> list[str]:
    """Algorithms with more or fewer runs than most on a task, and runs of another length."""
    used, lines = results.used(), []
    for task in tasks_of(results):
        counts = used[used.task == task].groupby("algo", sort=False).seed.nunique()
        usual = int(counts.mode().max())
        if others := [f"{label_of(str(a))} {n}" for a, n in counts.items() if n != usual]:
            plural = "s" if usual > 1 else ""
            lines.append(
                f"{short_name(task)}: {usual} run{plural} of most algorithms, but of "
                f"{', of '.join(others)}"
            )
    excluded = results.excluded()
    for run in excluded[excluded.excluded.str.startswith("unequal length")].to_dict("records"):
        where = f"{label_of(run['algo'])} on {short_name(run['task'])}, seed {run['seed']}"
        lines.append(f"{where} is not compared: {run['excluded']}")
    return lines
