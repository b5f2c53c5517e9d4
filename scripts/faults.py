"""Kill training with SIGKILL, resume it, compare: python scripts/faults.py --kills 10 --write-kills 200"""

from sb3_cpp.cli import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="faults.py",
        description="Trains small runs undisturbed and again with kills at random moments, and compares weights, optimiser, "
        "replay buffer, random generators, CSV rows (but for the clock's columns) and evaluations to the bit.",
    )
    parser.add_argument(
        "--tasks", nargs="+", default=["cartpole", "minatar", "ale"], help="cartpole, minatar, ale"
    )
    parser.add_argument("--algos", nargs="+", default=[], help="without it: all five (ale: cpp)")
    parser.add_argument("--kills", type=int, default=10, help="of each run")
    parser.add_argument(
        "--write-kills",
        type=int,
        default=0,
        help="also kill this often while a checkpoint is written",
    )
    parser.add_argument(
        "-n", "--n-timesteps", type=int, help="steps of each run (without it: 3000, ale 1000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the runs and of the moments")
    parser.add_argument(
        "-f", "--folder", default="runs/faults", help="a folder that is new or empty"
    )
    args = parser.parse_args()

    from sb3_cpp.benchmarks.faults import faults

    return faults(
        args.tasks,
        args.algos,
        args.kills,
        args.seed,
        args.folder,
        args.n_timesteps,
        args.write_kills,
    )


if __name__ == "__main__":
    run_command(main)
