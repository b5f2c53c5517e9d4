"""Measure the speed of SB3's DQN and of our algorithms: python scripts/speed.py --tasks cartpole --rounds 5"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="speed.py",
        description="SB3's DQN and ours (plain DQN arithmetic, MDQN, CVI, MoDQN, DeepCPP) in interleaved rounds of learn(), "
        "with the same network, batch, train frequency and number of environments. Needs a machine that does nothing else.",
    )
    parser.add_argument(
        "--tasks",
        nargs="+",
        default=["atari", "minatar", "cartpole"],
        help="atari, minatar, cartpole",
    )
    parser.add_argument(
        "--algos",
        nargs="+",
        default=["plain", "mdqn", "cvi", "modqn", "cpp"],
        help="beside SB3's DQN",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="times that every algorithm is measured"
    )
    parser.add_argument(
        "--steps",
        type=int,
        help="of one measurement (default: atari 800, minatar 4000, cartpole 8000)",
    )
    parser.add_argument(
        "--threads", type=int, help="of torch (default: atari 2, minatar 1, cartpole 1)"
    )
    parser.add_argument("--atari-env", default="BreakoutNoFrameskip-v4", help="the game")
    parser.add_argument(
        "--same-env",
        action="store_true",
        help="give SB3's DQN our Atari environment and buffer, so that only the learners differ; without it everyone has what "
        "its users have: SB3 make_atari_env, VecFrameStack and ReplayBuffer, ours the native environment and the frame buffer",
    )
    parser.add_argument(
        "--fill",
        action="store_true",
        help="store a million transitions (7 GB) and measure the memory",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_output("runs/speed")
    args = vars(parser.parse_args())

    from sb3_cpp.benchmarks.speed import SpeedSettings, run_speed

    out, force = args.pop("out", "runs/speed"), args.pop("force")
    lists = {name: tuple(args.pop(name)) for name in ("tasks", "algos")}
    run_speed(SpeedSettings(**lists, **args), out, force)
    return 0


if __name__ == "__main__":
    run_command(main)
