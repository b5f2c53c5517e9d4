"""The console command ``sb3-cpp``; ``scripts/<command>.py`` are the same commands.

A command is a function that states its arguments, parses them and makes one call. What it needs is
imported after parsing, so that ``--help`` and a wrong argument are answered without delay.
"""

import argparse
import gc
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, NoReturn

from sb3_cpp.checks import InvalidArgument, require, suggestion
from sb3_cpp.version import __version__


def _flag(*flags: str, **options: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return flags, options


_ALGORITHMS = (
    "cpp, cmdqn, cvi, mdqn, modqn, cpi, csac, dqn, qrdqn, ppo, a2c, sac, td3, or a suite's own name"
)
_PACKAGES = "packages to import because they register environments"
_FOLDERS = "folders of runs, or of the CSV files of `sb3-cpp results`"
_LAYOUT = "last parts of the paths of SB3's runs (without it: {algo}/{env}_{seed}, as in rl_zoo3)"
_MANY: dict[str, Any] = {"nargs": "+", "default": []}
# Arguments that several commands have, by the name of the parameter they become
SHARED = {
    "algo": _flag("--algo", default="cpp", help=_ALGORITHMS),
    "env": _flag("--env", default="CartPole-v1", help="id, package:id or package.module:EnvClass"),
    "gym_packages": _flag("--gym-packages", metavar="PACKAGE", help=_PACKAGES, **_MANY),
    "suite": _flag("--suite", help="name or YAML file (without it: the environment's default)"),
    "n_timesteps": _flag("-n", "--n-timesteps", type=int, help="steps of a whole run"),
    "params": _flag(
        *("-params", "--hyperparams"),
        **{**_MANY, "dest": "params", "metavar": "KEY:VALUE"},
        help="overrides for every run, read as YAML",
    ),
    "root": _flag("-f", "--folder", dest="root", default="runs", help="folder of all runs"),
    "paths": _flag("paths", nargs="+", metavar="runs", help=_FOLDERS),
    "algos": _flag("--algos", help="without it: all", **_MANY),
    "envs": _flag("--envs", help="without it: all", **_MANY),
    "reference": _flag("--reference", help="compare with this algorithm (without it: the first)"),
    "one_suite": _flag("--suite", metavar="NAME", help="compare all runs as one suite"),
    "layout": _flag("--layout", metavar="PATTERN", help=_LAYOUT),
    "timesteps": _flag("--timesteps", type=int, help="length of SB3's runs, if not recorded"),
}
_RUNS = ("paths", "algos", "envs", "reference", "one_suite", "layout", "timesteps")


class CommandLine(argparse.ArgumentParser):
    """A parser that reports a wrong argument in one line, without the usage text.

    :param arguments: what to parse; None is the process's own arguments
    """

    def __init__(self, arguments: list[str] | None = None, **kwargs: Any) -> None:
        super().__init__(allow_abbrev=False, **kwargs)
        self.arguments = arguments

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())}\n")

    def parse(self) -> dict[str, Any]:
        return vars(self.parse_args(self.arguments))

    def add_shared(self, *names: str) -> None:
        """Arguments of :data:`SHARED`."""
        for name in names:
            flags, options = SHARED[name]
            self.add_argument(*flags, **options)

    def add_settings(self, cls: type, help_texts: Mapping[str, str]) -> None:
        """A flag per field of a dataclass that has a help text, of the type of its default.

        A flag that is not given stays out of the parsed arguments, so that a file can set it.
        """
        for field in fields(cls):
            if field.name in help_texts:
                if field.default is MISSING:
                    raise TypeError(f"setting {field.name} has no default, so its flag has no type")
                self.add_argument(
                    "--" + field.name.replace("_", "-"),
                    type=type(field.default),
                    default=argparse.SUPPRESS,
                    help=help_texts[field.name],
                )

    def add_output(self, default: str) -> None:
        self.add_argument("--out", help=f"folder for the results (default: {default})")
        self.add_argument(
            "--force",
            action="store_true",
            help="write into --out even if it holds other things; without it, only a new or empty "
            "folder, or one of the same settings, is accepted",
        )


def train(parser: CommandLine) -> int:
    """Train one run into runs/<suite>/<algo>/<env>/seed_<n>/."""
    parser.add_shared("algo", "env")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_shared("suite", "n_timesteps", "params", "gym_packages")
    parser.add_argument("--eval-freq", type=int, help="steps between evaluations (negative: none)")
    parser.add_argument("--eval-episodes", type=int, help="episodes of one evaluation")
    parser.add_argument("--save-freq", type=int, help="steps between checkpoints (negative: none)")
    parser.add_argument(
        "-i",
        "--trained-agent",
        dest="start_from",
        metavar="CHECKPOINT",
        help="a run's folder, its checkpoint, or a model.zip",
    )
    parser.add_shared("root")
    parser.add_argument("-P", "--progress", action="store_true", help="show a bar instead of lines")
    parser.add_argument("-tb", "--tensorboard", metavar="DIR", help="also log to TensorBoard")
    parser.add_argument("--track", action="store_true", help="also log to Weights & Biases")
    parser.add_argument(
        "--num-threads",
        dest="n_threads",
        type=int,
        help="of torch (without it: one, and torch's own choice for Atari)",
    )
    args = parser.parse()

    from sb3_cpp.training.train import train

    return train(**args)


def enjoy(parser: CommandLine) -> int:
    """Play a trained run, print its returns, show a window or record a video."""
    parser.add_shared("algo", "env")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_shared("suite", "gym_packages", "root")
    parser.add_argument(
        "--run", metavar="FOLDER", help="folder of one run, instead of algo, env, seed and suite"
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument(
        "--stochastic", action="store_true", help="act as in training instead of greedily"
    )
    parser.add_argument("--video", metavar="FILE", help="record to .mp4 or .gif")
    parser.add_argument("--force", action="store_true", help="replace the video")
    parser.add_argument("--no-render", dest="render", action="store_false", help="no window")
    parser.add_argument(
        "--show-policy",
        action="store_true",
        help="action probabilities and zeta, printed or in the video",
    )
    parser.add_argument(
        "--load-best", action="store_true", help="the model of the best evaluation, not the last"
    )
    parser.add_argument("--play-seed", type=int, default=0, help="of the episodes")
    args = parser.parse()

    from sb3_cpp.training.enjoy import enjoy

    return enjoy(**args)


def benchmark(parser: CommandLine) -> int:
    """Train every cell of a grid once; run the command again to continue."""
    parser.add_argument("suite", help="a name or a YAML file")
    parser.add_shared("algos", "envs")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_shared("n_timesteps", "params", "gym_packages")
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes on this machine, one torch thread each"
    )
    parser.add_argument("--dask", metavar="ADDRESS", help="train on a Dask cluster instead")
    parser.add_argument("--retry", action="store_true", help="train failed cells again")
    parser.add_argument(
        "--published",
        metavar="RESULTS",
        help="a folder of sb3-cpp results: runs that it holds are not trained again",
    )
    parser.add_shared("root")
    args = parser.parse()
    if args["dask"] is not None:
        require("cluster", "distributed")

    from sb3_cpp.training.grid import benchmark

    return benchmark(**args)


def tune(parser: CommandLine) -> int:
    """Search hyperparameters with Optuna; run the command again, or several times, to continue."""
    parser.add_shared("algo", "env", "suite")
    parser.add_argument(
        "--trials", type=int, default=300, help="ended trials (complete or pruned) of the study"
    )
    parser.add_shared("n_timesteps")
    parser.set_defaults(n_timesteps=100_000)
    parser.add_argument("--study", help="name of the study (without it: algo_env)")
    parser.add_argument(
        "--storage",
        help="journal file, or sqlite:///… or postgresql://… (without it: a journal in the folder)",
    )
    parser.add_argument("--seeds-per-trial", type=int, default=1)
    parser.add_argument(
        "--objective",
        default="return",
        help="return, or pareto: return and oscillation at once (no pruning)",
    )
    parser.add_argument("--pruner", default="median", help="median or none")
    parser.add_argument("--seed", type=int, default=0, help="of the suggestions")
    parser.add_argument(
        "--top", type=int, default=3, help="how many of the best are evaluated again"
    )
    parser.add_argument("--top-seeds", type=int, default=3, help="with how many fresh seeds")
    parser.add_argument(
        "--heartbeat",
        type=int,
        default=60,
        help="seconds; a trial silent for two of them is dead (databases)",
    )
    parser.add_shared("params", "gym_packages", "root")
    args = parser.parse()
    require("tune", "optuna", "scipy", "pandas", "matplotlib")

    from sb3_cpp.training.tune import tune

    return tune(**args)


def _choice(args: dict[str, Any]) -> Any:
    """Which runs are compared: a Choice of the parsed arguments, which it removes."""
    from sb3_cpp.analysis.results import Choice

    names = ("algos", "envs", "suite", "layout", "timesteps")
    return Choice(**{name: args.pop(name) for name in names})


def results(parser: CommandLine) -> int:
    """Gather runs into CSV files and configs.yml, and print the tables."""
    parser.add_shared(*_RUNS)
    parser.add_argument("-o", "--out", help="folder (without it, the tables are only printed)")
    parser.add_argument("--force", action="store_true", help="replace its files of these names")
    args = parser.parse()

    from sb3_cpp.analysis.tables import gather

    return gather(choice=_choice(args), **args)


def plot(parser: CommandLine) -> int:
    """Draw the figures of a suite's runs, and the paper's Table 1."""
    parser.add_shared(*_RUNS)
    parser.add_argument(
        "-o", "--out", default="figures", help="folder; one inside it per suite if several"
    )
    parser.add_argument("--formats", nargs="+", default=["png", "pdf"], help="png, pdf, svg")
    parser.add_argument(
        "--figures",
        nargs="+",
        default=[],
        help="fig4, pareto, pareto_tasks, oscillation_l2, oscillation_inf, profiles, improvement, "
        "training_curves, traces, fig5, falls, curves, table1 (without it: all)",
    )
    parser.add_argument("--force", action="store_true", help="replace its files of these names")
    args = parser.parse()

    from sb3_cpp.analysis.figures import plot

    return plot(choice=_choice(args), **args)


def report(parser: CommandLine) -> int:
    """Write tables, figures, settings and gaps of some runs to one self-contained HTML page."""
    parser.add_shared(*_RUNS)
    parser.add_argument("-o", "--out", default="report.html", help="the page")
    parser.add_argument("--title", default="Results")
    parser.add_argument("--force", action="store_true", help="replace the page")
    args = parser.parse()

    from sb3_cpp.analysis.report import report

    return report(choice=_choice(args), **args)


def theory(parser: CommandLine) -> int:
    """Check every coefficient rule on random MDPs, each update against its guarantee.

    Exit code 0 if every guarantee held and the cases that must fall fell, else 1; 2 for a wrong
    argument.
    """
    from sb3_cpp.studies.certificate import CertificateSettings, run_certificate

    flags = {
        "updates": "updates per rule, at least",
        "seed": "seed of the random MDPs and of the noise",
        "iterations": "updates of one MDP",
    }
    parser.add_settings(CertificateSettings, flags)
    parser.add_output("runs/theory/updates_<updates>_seed_<seed>")
    args = parser.parse()
    out, force = args.pop("out"), args.pop("force")
    settings = CertificateSettings(**args)
    default = f"runs/theory/updates_{settings.updates}_seed_{settings.seed}"
    return run_certificate(settings, out or default, force)


# Settings of both didactic studies
_STUDY = {
    "trials": "independent trials, at least 2",
    "seed": "seed of every random number",
    "iterations": "rollouts, each followed by an update, at least 2",
    "gamma": "discount",
    "ent_coef": "entropy weight",
    "kl_coef": "KL weight",
    "backups": "Bellman backups per iteration",
    "rho1": "decay of m_K",
    "rho2": "decay of M_K",
}


def gridworld(parser: CommandLine) -> int:
    """Section 5.1 of the paper, and cautions beyond it, on the gridworld with danger."""
    from sb3_cpp.studies.gridworld import GridworldSettings, run_gridworld

    flags = {
        "horizon": "steps of a rollout at most",
        "scheme": "what the mixture is for: 1 (acts), 1b (acts, mixed with the deployed policy), "
        "2 (also the next baseline)",
        "cpp_rule": "coefficient of CPP: adaptive_cpp, linear_cpp or cpp (Theorem 4)",
        "success_probability": "of a move going where it should",
        "error_bound": "error of Q that the state-wise rule assumes",
    }
    parser.add_settings(GridworldSettings, _STUDY | flags)
    parser.add_output("runs/gridworld/trials_<trials>_seed_<seed>")
    settings, args = _study_settings(parser, GridworldSettings, "gridworld")
    default = f"runs/gridworld/trials_{settings.trials}_seed_{settings.seed}"
    run_gridworld(settings, args["out"] or default, args["force"])
    return 0


def pendulum(parser: CommandLine) -> int:
    """Section 5.2 of the paper, and cautions beyond it: swing a pendulum up, linear features."""
    from sb3_cpp.studies.pendulum import ALGORITHMS, PendulumSettings, run_pendulum

    flags = {
        "steps": "steps of a rollout, at least 200; an episode has 500, and the last 200 of the "
        "last whole one decide whether it is solved",
        "scheme": "what a new policy is mixed with to act: 1 (its predecessor) or 1b (the policy "
        "that acts)",
        "cpp_scheme": "the same, for CPP",
        "bins": "centres of the radial basis along angle and along velocity",
        "width": "width of the radial basis in spacings of the centres",
        "action_centres": "0: weights per action; else joint features over [s, a] with so many "
        "centres along the action, at least 2",
        "ridge": "penalty of the regression",
        "ridge_centre": "where it pulls the weights: previous, or zero as printed",
        "error_scale": "error of Q of the state-wise rule, in root mean squares of the residual",
    }
    parser.add_argument(
        "--algos", nargs="+", default=argparse.SUPPRESS, help=f"some of: {' '.join(ALGORITHMS)}"
    )
    parser.add_settings(PendulumSettings, _STUDY | flags)
    parser.add_argument(
        "--jobs", type=int, help="processes at once (default: one per processor); changes no number"
    )
    parser.add_output("runs/pendulum/gamma_<gamma>_trials_<trials>_seed_<seed>")
    settings, args = _study_settings(parser, PendulumSettings, "pendulum")
    default = f"gamma_{settings.gamma}_trials_{settings.trials}_seed_{settings.seed}"
    out = args["out"] or f"runs/pendulum/{default}"
    return run_pendulum(settings, out, args["force"], args["jobs"])


def _study_settings(parser: CommandLine, cls: type, name: str) -> tuple[Any, dict[str, Any]]:
    """Settings of a study, from its YAML file and the flags, and all parsed arguments."""
    from sb3_cpp.training.suites import find_config, load_yaml, settings_from

    parser.add_argument(
        "--config", help=f"settings, overridden by flags (default: configs/{name}.yml)"
    )
    args = parser.parse()
    names = {field.name for field in fields(cls)}
    config = args["config"] or str(find_config(name))
    given = {key: value for key, value in args.items() if key in names}
    return settings_from(cls, {**load_yaml(config), **given}, config), args


def demo(parser: CommandLine) -> int:
    """Train DQN and CautiousMDQN beside each other on CartPole-v1 and draw both: `make demo`."""
    parser.add_argument("--seed", type=int, default=3)
    parser.add_shared("root")
    args = parser.parse()

    from sb3_cpp.training.demo import demo

    return demo(**args)


_ORDER = (demo, train, enjoy, benchmark, tune, results, plot, report, theory, gridworld, pendulum)
COMMANDS: dict[str, Callable[[CommandLine], int]] = {f.__name__: f for f in _ORDER}


def main(name: str | None = None) -> NoReturn:
    """Run a command and leave with its exit code.

    :param name: the command, for ``scripts/<name>.py``; None takes it from the command line
    """
    prog, arguments = (f"{name}.py", sys.argv[1:]) if name else ("sb3-cpp", sys.argv[2:])
    if name is None:
        name = sys.argv[1] if len(sys.argv) > 1 else "--help"
        if name in ("-h", "--help", "--version"):
            print(_overview() if name != "--version" else f"sb3-cpp {__version__}")
            sys.exit(0)
        if name not in COMMANDS:
            hint = suggestion(name, COMMANDS)
            print(f"sb3-cpp: error: unknown command {name!r}{hint}", file=sys.stderr)
            sys.exit(2)
        prog = f"sb3-cpp {name}"
    if os.getcwd() not in sys.path:  # an environment in the present folder, as with python -m
        sys.path.append(os.getcwd())
    command = COMMANDS[name]
    parser = CommandLine(arguments, prog=prog, description=command.__doc__)
    run_command(lambda: command(parser))


def _overview() -> str:
    usage = "usage: sb3-cpp COMMAND [arguments]   (sb3-cpp COMMAND --help explains them)\n"
    lines = (f"  {n:<10} {(f.__doc__ or '').splitlines()[0]}" for n, f in COMMANDS.items())
    return "\n".join([usage, *lines])


def run_command(command: Callable[[], int]) -> NoReturn:
    """Leave with a command's exit code; a wrong argument is one line and exit code 2."""
    try:
        code = command()
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
    gc.freeze()  # the last garbage collection would take half a second, and the process ends anyway
    sys.exit(code)


if __name__ == "__main__":
    main()
