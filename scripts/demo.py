"""Train DeepCPP on CartPole-v1, evaluate it and draw a picture: what `make demo` runs."""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="demo.py", description="Train DeepCPP on CartPole-v1, evaluate it and draw a picture."
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("-f", "--folder", default="runs", help="folder of all runs")
    args = parser.parse_args()

    from sb3_cpp.training.demo import demo

    return demo(args.seed, args.folder)


if __name__ == "__main__":
    run_command(main)
