"""Draw figures of runs: python scripts/plot.py runs/classic -o figures"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="plot.py", description="Draw the figures of a suite's runs, and the paper's Table 1."
    )
    parser.add_runs()
    parser.add_argument(
        "-o",
        "--out",
        default="figures",
        help="folder to write into; one inside it per suite if there are several",
    )
    parser.add_argument("--formats", nargs="+", default=["png", "pdf"], help="png, pdf, svg")
    parser.add_argument(
        "--figures",
        nargs="+",
        default=[],
        help="fig4, pareto, pareto_tasks, oscillation_l2, oscillation_inf, profiles, improvement, training_curves, traces, "
        "fig5, curves, table1 (without it: all)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the files of that name in --out"
    )
    args = parser.parse_args()

    from sb3_cpp.analysis.plotting.files import plot
    from sb3_cpp.analysis.results import Choice

    choice = Choice(args.algos, args.envs)
    return plot(args.runs, args.out, args.formats, args.figures, args.reference, args.force, choice)


if __name__ == "__main__":
    run_command(main)
