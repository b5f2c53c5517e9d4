"""Pictures of the pendulum study beyond those it shares with the gridworld: policy surfaces, a learned swing-up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from sb3_cpp.analysis.didactic_plots import STYLES
from sb3_cpp.linear.pendulum import ENV_ID, PendulumSwingUp
from sb3_cpp.linear.policy import LinearPolicy

_EVERY = 5  # steps between the lines of a surface: 500 lines would be a black patch
_FRAMES, _STRIP_STEPS = (
    10,
    90,
)  # the swing-up takes about 80 steps; after it the picture stands still
_GIF_STEPS = 100


def save_surfaces(surfaces: Mapping[str, NDArray[np.float64]], path: Path) -> None:
    """P(swing right) of the acting policy over time step and iteration, (iterations, steps) for each algorithm."""
    figure = Figure(figsize=(4.0 * len(surfaces), 3.7))
    FigureCanvasAgg(figure)
    for i, (algo, probability) in enumerate(surfaces.items()):
        ax: Any = figure.add_subplot(1, len(surfaces), i + 1, projection="3d")
        shown = probability[:, ::_EVERY]
        steps, iterations = np.meshgrid(
            np.arange(shown.shape[1]) * _EVERY + 1, np.arange(1, len(shown) + 1)
        )
        ax.plot_surface(
            steps,
            iterations,
            shown,
            cmap="viridis",
            vmin=0.0,
            vmax=1.0,
            rstride=1,
            cstride=2,
            linewidth=0,
        )
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
    observation, _ = env.reset(seed=0)
    frames = []
    for _ in range(steps):
        frames.append(np.asarray(env.render(), dtype=np.uint8))
        observation = env.step(policy.predict(observation)[0])[0]
    env.close()
    return frames


def save_swing_up(policy: LinearPolicy, folder: Path) -> None:
    """``swing_up.png``, frames side by side in the order of time, and ``swing_up.gif`` at the speed of the simulation."""
    frames = swing_up_frames(policy, _GIF_STEPS)
    chosen = np.linspace(0, _STRIP_STEPS - 1, _FRAMES).round().astype(int)
    Image.fromarray(np.concatenate([frames[i] for i in chosen], axis=1)).save(
        folder / "swing_up.png", optimize=True
    )
    palette = Image.fromarray(np.concatenate([frames[i] for i in chosen])).quantize(32)
    pictures = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    ]
    milliseconds = 1000 // PendulumSwingUp.metadata["render_fps"]
    pictures[0].save(
        folder / "swing_up.gif",
        save_all=True,
        append_images=pictures[1:],
        duration=milliseconds,
        loop=0,
    )
