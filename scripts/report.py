"""Make one self-contained page about runs: python scripts/report.py runs/classic -o report.html"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="report.py",
        description="Tables, figures, settings and gaps of some runs on one HTML page.",
    )
    parser.add_runs()
    parser.add_argument("-o", "--out", default="report.html", help="the page")
    parser.add_argument("--title", default="Results")
    parser.add_argument("--force", action="store_true", help="replace the page")
    args = parser.parse_args()

    from sb3_cpp.analysis.reporting.report import report
    from sb3_cpp.analysis.results import Choice

    return report(
        args.runs, args.out, args.title, args.reference, args.force, Choice(args.algos, args.envs)
    )


if __name__ == "__main__":
    run_command(main)
