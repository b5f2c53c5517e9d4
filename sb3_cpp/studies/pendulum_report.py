"""What the pendulum study found: files as soon as they are known, tables and figures at the end."""

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.progress import Progress

from sb3_cpp.analysis.style import new_row, save_figure
from sb3_cpp.analysis.tables import Table, print_and_save
from sb3_cpp.linear.pendulum import ENV_ID, PendulumSwingUp
from sb3_cpp.linear.policy import LinearPolicy, save_weights
from sb3_cpp.metrics import oscillation, welch_p_value
from sb3_cpp.studies.figures import STYLES, long_table, plot_zeta, save_comparison
from sb3_cpp.studies.pendulum import PART, STOPPED, Learners, PendulumSettings, Record

Records = Mapping[str, Record]
LAST = 10  # iterations whose mean return counts as the final one
FIGURES = {
    "comparison": ("cpp", "cvi", "espi", "aspi", "cpi"),  # the paper's, and CPI
    "variants": ("cpp", "cvi", "cpp_1", "linear_cpp", "espi_printed"),  # what the paper prints
    "caution": ("cpp", "cvi", "cpp_geometric", "span_cpp", "statewise"),  # beyond the paper
}
SURFACES = ("cpp", "espi", "espi_printed")
# Sec. 5.2 prints these two numbers of A-SPI, the only ones to compare with directly
PAPER_ASPI = {"zeta_mean": 1.69e-6, "improvement": 2.39e-9}


def trial_table(settings: PendulumSettings, record: Record) -> pd.DataFrame:
    """One row per trial: the samples of the significance tests, and whether it was solved."""
    # whether it was solved while it explored, and with the most probable actions
    norms = oscillation(record.curves("returns"))
    return pd.DataFrame(
        {
            "algo": record.algo,
            "trial": range(settings.trials),
            "oscillation_inf": norms.inf,
            "oscillation_l2": norms.l2,
            "last_return": record.curves("returns")[:, -LAST:].mean(axis=1),
            "solved": record.curves("upright")[:, -LAST:].mean(axis=1),
            "solved_greedy": record.solved_greedily,
        }
    )


def summary_table(trials: pd.DataFrame, records: Records) -> pd.DataFrame:
    """One row per algorithm: means over trials, p of oscillation against CVI, zeta, seconds."""
    rows = []
    for algo, group in trials.groupby("algo", sort=False):
        record, zeta = records[str(algo)], records[str(algo)].curves("zeta")
        row: dict[str, object] = {"algo": algo}
        for norm in ("oscillation_inf", "oscillation_l2"):
            cvi = trials[trials.algo == "cvi"][norm]
            row |= {norm: group[norm].mean(), f"{norm}_sd": group[norm].std()}
            # CVI may not be among the algorithms chosen
            row[f"{norm}_p"] = welch_p_value(group[norm], cvi) if len(cvi) else np.nan
        row |= {"last_return": group.last_return.mean(), "last_return_sd": group.last_return.std()}
        row |= {"solved": group.solved.mean(), "solved_greedy": group.solved_greedy.mean()}
        row |= {"zeta_mean": zeta.mean(), "zeta_first": zeta[:, 0].mean()}
        row |= {"zeta_last": zeta[:, -1].mean(), "improvement": np.nan, "seconds": record.seconds}
        if algo == "aspi":  # only its bound is the one the paper gives a number for
            row["improvement"] = record.guaranteed_improvement()
        rows.append(row)
    return pd.DataFrame(rows)


def tables(summary: pd.DataFrame, settings: PendulumSettings) -> list[Table]:
    """The measures of every algorithm, its zeta, and A-SPI beside what the paper prints of it."""
    results, coefficients = [], []
    for row in summary.to_dict("records"):
        label = STYLES[row["algo"]].label
        norms = [
            f"{row[f'oscillation_{n}']:.0f} ({row[f'oscillation_{n}_p']:.1g})"
            for n in ("inf", "l2")
        ]
        shares = [f"{row[name]:.0%}" for name in ("solved", "solved_greedy")]
        results.append(
            [label, *norms, f"{row['last_return']:.1f} ± {row['last_return_sd']:.1f}", *shares]
        )
        zeta = [f"{row[name]:.2g}" for name in ("zeta_first", "zeta_mean", "zeta_last")]
        coefficients.append([label, *zeta])
    title = f"Pendulum swing-up, gamma {settings.gamma}, means over {settings.trials} trials"
    measures = ("osc. inf (p)", "osc. l2 (p)", "last return ± sd", "solved", "solved greedily")
    found = [Table(f"{title} (in brackets: p against CVI)", ("algo", *measures), results)]
    columns = ("algo", "zeta, K=1", "zeta, mean", "zeta, last K")
    found.append(Table("Mixing coefficients", columns, coefficients))
    for row in summary[summary.algo == "aspi"].to_dict("records"):
        rows = [
            [name, f"{row[measure]:.2e}", f"{PAPER_ASPI[measure]:.2e}"]
            for name, measure in (
                ("mean zeta", "zeta_mean"),
                ("mean guaranteed improvement", "improvement"),
            )
        ]
        found.append(Table("What the paper prints of A-SPI", ("", "here", "paper"), rows))
    return found


def save_figures(
    settings: PendulumSettings, records: Records, trials: pd.DataFrame, folder: Path, pool: Executor
) -> None:
    """Return and oscillation, zeta over K, policy surfaces, and a swing-up of a solved trial."""
    solved = trials[trials.solved_greedy]
    if len(solved):  # in another process, because drawing 100 frames takes as long as all figures
        best = solved.iloc[0]
        preferences = records[best.algo].preferences[int(best.trial)]
        policy = LinearPolicy(settings.basis(), preferences, settings.ent_coef + settings.kl_coef)
        swing_up = pool.submit(save_swing_up, policy, folder)
    shown: set[str] = set()
    for name, algos in FIGURES.items():
        returns = {algo: records[algo].curves("returns") for algo in algos if algo in records}
        if not shown.issuperset(returns):  # with few algorithms, a figure may show nothing new
            shown.update(returns)
            norms = {algo: oscillation(curve) for algo, curve in returns.items()}
            save_comparison(folder / f"{name}.png", returns, norms, "return of a rollout")
    # a lower floor than the gridworld's: A-SPI's coefficient is 1e-6 here
    figure, (ax,) = new_row(columns=1, height=2.6)
    plot_zeta(ax, {algo: record.curves("zeta") for algo, record in records.items()}, floor=1e-8)
    save_figure(figure, folder / "zeta.png", legend_from=ax)
    surfaces = {
        algo: np.stack(records[algo].probability_right) for algo in SURFACES if algo in records
    }
    if surfaces:
        save_surfaces(surfaces, folder / "probability_right.png")
    if len(solved):
        swing_up.result()


def write_results(settings: PendulumSettings, team: Learners, folder: Path) -> int:
    """Files of each algorithm when it ends, then tables and figures; 1 if learning failed."""
    records = _follow(settings, team, folder)
    if records is None:
        return 1
    trials = pd.concat(
        [trial_table(settings, record) for record in records.values()], ignore_index=True
    )
    # tables before figures: if drawing fails, the numbers are there
    trials.to_csv(folder / "trials.csv", index=False)
    summary = summary_table(trials, records)
    summary.to_csv(folder / "summary.csv", index=False)
    save_figures(settings, records, trials, folder, team.pool)
    print_and_save(tables(summary, settings), folder)
    print(f"written: {folder}")
    return 0


def _follow(settings: PendulumSettings, team: Learners, folder: Path) -> dict[str, Record] | None:
    """The record of every algorithm, saved when it is complete; None and a message on failure."""
    learned: dict[str, list[Record]] = {algo: [] for algo in settings.algos}
    with Progress(console=Console(stderr=True), transient=True) as bar:
        total = settings.iterations * len(settings.part_sizes)
        tasks = {algo: bar.add_task(STYLES[algo].label, total=total) for algo in settings.algos}

        def show() -> None:
            for algo, task in tasks.items():
                bar.update(task, completed=team.progress(algo))

        try:
            for record in team.follow(show):
                parts = learned[record.algo]
                parts.append(record)
                if record.error:
                    break
                if len(parts) == len(settings.part_sizes):  # saved before the others have ended
                    save_curves(parts, folder)
                    weights = settings.basis(), Record.joined(parts).preferences
                    temperature = settings.ent_coef + settings.kl_coef
                    save_weights(folder / f"weights_{record.algo}.npz", *weights, temperature)
            else:
                return {algo: Record.joined(parts) for algo, parts in learned.items()}
        except KeyboardInterrupt:
            _save_unfinished(team, learned, folder)
            raise
    _save_unfinished(team, learned, folder)
    # the one that failed made the others stop
    every = (record for parts in learned.values() for record in parts)
    failed = next(record for record in every if record.error not in ("", STOPPED))
    where = f"{failed.algo}, iteration {len(failed.zeta) + 1}"
    print(f"error: {where}: {failed.error}; kept: {folder}", file=sys.stderr)
    return None


def _save_unfinished(team: Learners, learned: Mapping[str, list[Record]], folder: Path) -> None:
    """Stop the processes and keep the curves of everything they saw."""
    known = {(record.algo, record.part) for parts in learned.values() for record in parts}
    for record in team.finish_early():
        if (record.algo, record.part) not in known:
            learned[record.algo].append(record)
    for parts in learned.values():
        save_curves(parts, folder)


def save_curves(parts: Sequence[Record], folder: Path) -> None:
    """One row per trial and iteration K of an algorithm, of those parts that saw any."""
    names = {"return": "returns", **{n: n for n in ("zeta", "advantage", "delta", "upright")}}
    tables = [
        long_table(
            {column: record.curves(name) for column, name in names.items()},
            first_trial=PART * record.part,
            algo=record.algo,
        )
        for record in parts
        if record.zeta
    ]
    if tables:
        path = folder / f"curves_{parts[0].algo}.csv"
        pd.concat(tables).sort_values(["trial", "K"]).to_csv(path, index=False)


# --- pictures -------------------------------------------------------------------------------------

_EVERY = 5  # steps between the lines of a surface: 500 lines would be a black patch
_FRAMES, _STRIP_STEPS = 10, 90  # the swing-up takes about 80 steps
_GIF_STEPS = 100


def save_surfaces(surfaces: Mapping[str, NDArray[np.float64]], path: Path) -> None:
    """P(swing right) of the acting policy, an array (iterations, steps) for each algorithm."""
    # not through pyplot, which would need a display or change the user's backend
    figure = Figure(figsize=(4.0 * len(surfaces), 3.7))
    FigureCanvasAgg(figure)
    for i, (algo, probability) in enumerate(surfaces.items()):
        ax: Any = figure.add_subplot(1, len(surfaces), i + 1, projection="3d")
        shown = probability[:, ::_EVERY]
        steps, iterations = np.meshgrid(
            np.arange(shown.shape[1]) * _EVERY + 1, np.arange(1, len(shown) + 1)
        )
        style = {"cmap": "viridis", "vmin": 0.0, "vmax": 1.0, "linewidth": 0}
        # one colour scale for all algorithms, so that the surfaces can be compared
        ax.plot_surface(steps, iterations, shown, rstride=1, cstride=2, **style)
        ax.set(zlim=(0.0, 1.0), box_aspect=(1.25, 1.0, 0.6))
        ax.view_init(elev=32, azim=-122)
        ax.set_title(f"{STYLES[algo].label}: P(swing right)", fontsize=10, y=0.98)
        ax.set_xlabel("time step", fontsize=8, labelpad=2)
        ax.set_ylabel("iteration K", fontsize=8, labelpad=2)
        ax.tick_params(labelsize=7, pad=0)
    figure.subplots_adjust(left=0.02, right=0.95, bottom=0.08, top=0.95, wspace=0.12)
    figure.savefig(path, dpi=170)


def swing_up_frames(policy: LinearPolicy, steps: int) -> list[NDArray[np.uint8]]:
    """One picture per step of the gymnasium environment under the most probable actions."""
    env = gym.make(ENV_ID, render_mode="rgb_array")
    # rendered before each step, so that the first frame hangs at rest
    observation, _ = env.reset(seed=0)
    frames = []
    for _ in range(steps):
        frames.append(np.asarray(env.render(), dtype=np.uint8))
        observation = env.step(policy.predict(observation)[0])[0]
    env.close()
    return frames


# At module level with picklable arguments, because it runs in another process.
def save_swing_up(policy: LinearPolicy, folder: Path) -> None:
    """``swing_up.png``, frames side by side, and ``swing_up.gif`` at the simulation's speed."""
    frames = swing_up_frames(policy, _GIF_STEPS)
    # evenly spaced until a little after the pendulum is up; then nothing moves any more
    chosen = np.linspace(0, _STRIP_STEPS - 1, _FRAMES).round().astype(int)
    strip = Image.fromarray(np.concatenate([frames[i] for i in chosen], axis=1))
    strip.save(folder / "swing_up.png", optimize=True)
    # one palette for all frames, without dithering: otherwise the still background would flicker
    palette = Image.fromarray(np.concatenate([frames[i] for i in chosen])).quantize(32)
    pictures = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    milliseconds = 1000 // PendulumSwingUp.metadata["render_fps"]
    options: dict[str, Any] = {"duration": milliseconds, "loop": 0, "save_all": True}
    pictures[0].save(folder / "swing_up.gif", append_images=pictures[1:], **options)
