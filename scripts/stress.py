"""Unkind worlds for the five algorithms: python scripts/stress.py -n 1000"""

from sb3_cpp.cli import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="stress.py",
        description="Rewards from 1e-3 to 1e30, sparse, NaN; constant and broken observations; 1 and 500 actions; episodes of "
        "one step and without end. Each algorithm must learn on or refuse in one line; anything else is exit code 1.",
    )
    parser.add_argument("--worlds", nargs="+", default=[], help="without it: all")
    parser.add_argument("--algos", nargs="+", default=[], help="without it: all five")
    parser.add_argument("-n", "--n-timesteps", type=int, default=1000, help="steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="a new .csv file for the table")
    args = parser.parse_args()

    from sb3_cpp.benchmarks.stress import stress

    return stress(args.worlds, args.algos, args.n_timesteps, args.seed, args.out)


if __name__ == "__main__":
    run_command(main)
