"""Section 5.1 of the paper: CPP, CVI, E-SPI, A-SPI and CPI on the gridworld with danger."""

from pathlib import Path

from sb3_cpp.studies.gridworld import GridworldSettings, run_gridworld
from sb3_cpp.training.command_line import CommandLine, run_command
from sb3_cpp.training.suites import load_yaml, settings_from

CONFIG = Path(__file__).resolve().parent.parent / "configs" / "gridworld.yml"
FLAGS = {
    "trials": "independent trials, at least 2",
    "seed": "seed of every random number",
    "iterations": "rollouts, each followed by an update, at least 2",
    "horizon": "steps of a rollout at most",
    "gamma": "discount, in (0, 1)",
    "ent_coef": "entropy weight (tau of the paper)",
    "kl_coef": "KL weight (sigma of the paper)",
    "scheme": "what the mixture is for: 1 (acts), 1b (acts, mixed with the deployed policy), 2 (also the next baseline)",
    "cpp_rule": "coefficient of CPP: adaptive_cpp, linear_cpp or cpp (Theorem 4)",
    "backups": "Bellman backups per iteration",
    "rho1": "decay of m_K",
    "rho2": "decay of M_K",
    "success_probability": "of a move going where it should",
}


def main() -> int:
    parser = CommandLine(description=__doc__)
    parser.add_argument(
        "--config",
        default=str(CONFIG),
        help="settings, overridden by flags (default: configs/gridworld.yml)",
    )
    parser.add_settings(GridworldSettings, FLAGS)
    parser.add_output("runs/gridworld/trials_<trials>_seed_<seed>")
    args = vars(parser.parse_args())
    config, force, out = args.pop("config"), args.pop("force"), args.pop("out", None)
    settings = settings_from(GridworldSettings, {**load_yaml(config), **args}, config)
    run_gridworld(
        settings, out or f"runs/gridworld/trials_{settings.trials}_seed_{settings.seed}", force
    )
    return 0


if __name__ == "__main__":
    run_command(main)
