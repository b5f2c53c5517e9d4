"""Search hyperparameters: python scripts/tune.py --algo cpp --env CartPole-v1 --trials 30 -n 20000"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="tune.py",
        description="Optuna over the suite's search space; run again, or several at once, to go on.",
    )
    parser.add_argument("--algo", default="cpp")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--suite", help="without it: the suite that has the environment")
    parser.add_argument(
        "--trials",
        type=int,
        default=300,
        help="ended trials (complete or pruned) of the whole study",
    )
    parser.add_argument("-n", "--n-timesteps", type=int, default=100_000, help="steps of one run")
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
    parser.add_argument(
        "-params",
        "--hyperparams",
        nargs="+",
        default=[],
        metavar="KEY:VALUE",
        help="fixed for all trials",
    )
    parser.add_argument("-f", "--folder", default="runs", help="folder of all runs")
    args = parser.parse_args()

    from sb3_cpp.training.tune import tune

    return tune(
        args.algo,
        args.env,
        trials=args.trials,
        n_timesteps=args.n_timesteps,
        suite=args.suite,
        study=args.study,
        storage=args.storage,
        seeds_per_trial=args.seeds_per_trial,
        objective=args.objective,
        pruner=args.pruner,
        seed=args.seed,
        top=args.top,
        top_seeds=args.top_seeds,
        heartbeat=args.heartbeat,
        params=args.hyperparams,
        root=args.folder,
    )


if __name__ == "__main__":
    run_command(main)
