"""All figures of a suite, in the order in which a reader wants them."""

from collections.abc import Callable, Iterator
from functools import partial

from sb3_cpp.analysis.comparison import tasks_of
from sb3_cpp.analysis.plotting.learning_figures import (
    ablation_curves,
    curves_of_all_tasks,
    curves_of_task,
    traces,
)
from sb3_cpp.analysis.plotting.picture import Picture
from sb3_cpp.analysis.plotting.statistics_figures import improvement, profiles
from sb3_cpp.analysis.plotting.styles import drawn_together
from sb3_cpp.analysis.plotting.tradeoff_figures import (
    oscillation_bars,
    pareto_by_task,
    pareto_of_all_tasks,
)
from sb3_cpp.analysis.results import Results

NAMES = (
    "fig4",
    "pareto",
    "pareto_tasks",
    "oscillation_l2",
    "oscillation_inf",
    "profiles",
    "improvement",
    "training_curves",
    "traces",
    "fig5",
    "curves",  # one per task
)


def pictures(results: Results, reference: str, names: tuple[str, ...] = NAMES) -> Iterator[Picture]:
    """The chosen figures of one suite, drawn one at a time."""
    makers: dict[str, Callable[[], Picture]] = {
        "fig4": lambda: curves_of_all_tasks(results, reference),
        "pareto": lambda: pareto_of_all_tasks(results),
        "pareto_tasks": lambda: pareto_by_task(results),
        "oscillation_l2": lambda: oscillation_bars(results, "l2", reference),
        "oscillation_inf": lambda: oscillation_bars(results, "inf", reference),
        "profiles": lambda: profiles(results, reference),
        "improvement": lambda: improvement(results, reference),
        "training_curves": lambda: curves_of_all_tasks(results, reference, "training"),
        "traces": lambda: traces(results),
        "fig5": lambda: ablation_curves(results),
    }
    chosen = [makers[name] for name in names if name != "curves"]
    if "curves" in names:
        chosen += [partial(curves_of_task, results, task, reference) for task in tasks_of(results)]
    for make in chosen:
        with drawn_together(results.used().algo):
            picture = make()
        yield picture
