"""Train a grid of runs: python scripts/benchmark.py classic --algos cpp dqn --envs CartPole-v1 --seeds 4 --jobs 2"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="benchmark.py", description="Train every cell of a grid once; run again to go on."
    )
    parser.add_argument("suite", help="a file of configs/ or a path")
    parser.add_argument("--algos", nargs="+", default=[], help="without it: all of the suite")
    parser.add_argument("--envs", nargs="+", default=[], help="without it: all of the suite")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("-n", "--n-timesteps", type=int, help="steps of every run")
    parser.add_argument(
        "-params",
        "--hyperparams",
        nargs="+",
        default=[],
        metavar="KEY:VALUE",
        help="overrides, read as YAML",
    )
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes on this machine, one torch thread each"
    )
    parser.add_argument("--dask", metavar="ADDRESS", help="train on a Dask cluster instead")
    parser.add_argument("--retry", action="store_true", help="train failed cells again")
    parser.add_argument("-f", "--folder", default="runs", help="folder of all runs")
    args = parser.parse_args()

    from sb3_cpp.training.grid import benchmark

    return benchmark(
        args.suite,
        algos=args.algos,
        envs=args.envs,
        seeds=args.seeds,
        first_seed=args.first_seed,
        n_timesteps=args.n_timesteps,
        params=args.hyperparams,
        jobs=args.jobs,
        dask=args.dask,
        retry=args.retry,
        root=args.folder,
    )


if __name__ == "__main__":
    run_command(main)
