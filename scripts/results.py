"""Gather runs into tidy CSV files: python scripts/results.py runs/classic -o results/classic"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="results.py",
        description="Gather runs into runs.csv, curves.csv, iterations.csv and configs.yml, and print the tables.",
    )
    parser.add_runs()
    parser.add_argument(
        "-o", "--out", help="folder to write into (without it, the tables are only printed)"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the files of that name in --out"
    )
    args = parser.parse_args()

    from sb3_cpp.analysis.result_display import gather
    from sb3_cpp.analysis.results import Choice

    return gather(args.runs, args.out, args.reference, args.force, Choice(args.algos, args.envs))


if __name__ == "__main__":
    run_command(main)
