"""Watch a trained agent: python scripts/enjoy.py --algo cpp --env CartPole-v1 --seed 1 --video cartpole.gif"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="enjoy.py",
        description="Play a trained run, print its returns, show a window or record a video.",
    )
    parser.add_argument("--algo", default="cpp")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--seed", type=int, default=0, help="of the training")
    parser.add_argument("--suite", help="without it: the suite that has the environment")
    parser.add_argument("-f", "--folder", default="runs", help="folder of all runs")
    parser.add_argument(
        "--run",
        metavar="FOLDER",
        help="the folder of one run, instead of algo, env, seed and suite",
    )
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument(
        "--stochastic", action="store_true", help="act as in training instead of greedily"
    )
    parser.add_argument("--video", metavar="FILE", help="record to .mp4 or .gif")
    parser.add_argument("--no-render", action="store_true", help="no window")
    parser.add_argument(
        "--show-policy",
        action="store_true",
        help="action probabilities and zeta, printed or in the video",
    )
    parser.add_argument(
        "--load-best",
        action="store_true",
        help="the model of the best evaluation instead of the last one",
    )
    parser.add_argument("--play-seed", type=int, default=0, help="of the episodes")
    args = parser.parse_args()

    from sb3_cpp.training.enjoy import enjoy

    return enjoy(
        args.algo,
        args.env,
        args.seed,
        suite=args.suite,
        root=args.folder,
        run=args.run,
        episodes=args.episodes,
        stochastic=args.stochastic,
        video=args.video,
        render=not args.no_render,
        show_policy=args.show_policy,
        play_seed=args.play_seed,
        load_best=args.load_best,
    )


if __name__ == "__main__":
    run_command(main)
