"""Section 5.2 of the paper: CPP, CVI, E-SPI, A-SPI and CPI swing the pendulum up, with linear features."""

import argparse
from pathlib import Path

from sb3_cpp.studies.pendulum import ALGORITHMS, PendulumSettings, run_pendulum
from sb3_cpp.training.command_line import CommandLine, run_command
from sb3_cpp.training.suites import load_yaml, settings_from

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "pendulum.yml"
FLAGS = {
    "trials": "independent trials, at least 2",
    "seed": "seed of every random number",
    "iterations": "rollouts, each followed by an update, at least 2",
    "steps": "steps of a rollout, at least 200",
    "gamma": "discount, in [0, 1)",
    "ent_coef": "entropy weight (tau of the paper)",
    "kl_coef": "KL weight (sigma of the paper)",
    "scheme": "what a new policy is mixed with to act: 1 (its predecessor) or 1b (the policy that acts)",
    "cpp_scheme": "the same, for CPP",
    "bins": "centres of the radial basis along angle and along velocity",
    "width": "width of the radial basis in spacings of the centres",
    "action_centres": "0: weights per action; else joint features over [s, a] with so many centres along the action",
    "ridge": "penalty of the regression",
    "ridge_centre": "where it pulls the weights: previous, or zero as printed",
    "backups": "Bellman backups per iteration",
    "rho1": "decay of m_K",
    "rho2": "decay of M_K",
}


def main() -> int:
    parser = CommandLine(description=__doc__)
    parser.add_argument(
        "--config",
        default=str(CONFIG),
        help="settings, overridden by flags (default: configs/pendulum.yml)",
    )
    parser.add_argument(
        "--algos", nargs="+", default=argparse.SUPPRESS, help=f"some of: {' '.join(ALGORITHMS)}"
    )
    parser.add_settings(PendulumSettings, FLAGS)
    parser.add_argument(
        "--jobs", type=int, help="processes at once (default: one per processor); changes no number"
    )
    default = "runs/pendulum/gamma_<gamma>_trials_<trials>_seed_<seed>"
    parser.add_output(default)
    args = vars(parser.parse_args())
    config, force, out, jobs = (
        args.pop("config"),
        args.pop("force"),
        args.pop("out", None),
        args.pop("jobs"),
    )
    settings = settings_from(PendulumSettings, {**load_yaml(config), **args}, config)
    return run_pendulum(
        settings,
        out
        or f"runs/pendulum/gamma_{settings.gamma}_trials_{settings.trials}_seed_{settings.seed}",
        force,
        jobs,
    )


if __name__ == "__main__":
    run_command(main)
