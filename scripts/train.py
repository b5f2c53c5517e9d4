"""Train one run: python scripts/train.py --algo cpp --env CartPole-v1 --seed 1"""

from sb3_cpp.training.command_line import CommandLine, run_command


def main() -> int:
    parser = CommandLine(
        prog="train.py", description="Train one run into runs/<suite>/<algo>/<env>/seed_<n>/."
    )
    parser.add_argument(
        "--algo",
        default="cpp",
        help="cpp, cvi, mdqn, modqn, cpi, dqn, qrdqn, ppo, a2c, or a name of the suite",
    )
    parser.add_argument("--env", default="CartPole-v1", help="environment id")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--suite",
        help="a file of configs/ or a path (without it: the suite that has the environment)",
    )
    parser.add_argument(
        "-n",
        "--n-timesteps",
        type=int,
        help="steps of the whole run, those of a checkpoint included",
    )
    parser.add_argument(
        "-params",
        "--hyperparams",
        nargs="+",
        default=[],
        metavar="KEY:VALUE",
        help="overrides, read as YAML",
    )
    parser.add_argument("--eval-freq", type=int, help="steps between evaluations (negative: none)")
    parser.add_argument("--eval-episodes", type=int, help="episodes of one evaluation")
    parser.add_argument("--save-freq", type=int, help="steps between checkpoints (negative: none)")
    parser.add_argument(
        "-i",
        "--trained-agent",
        metavar="CHECKPOINT",
        help="a run's folder, its checkpoint, or a model.zip",
    )
    parser.add_argument("-f", "--folder", default="runs", help="folder of all runs")
    parser.add_argument("-P", "--progress", action="store_true", help="show a bar instead of lines")
    parser.add_argument("-tb", "--tensorboard", metavar="DIR", help="also log to TensorBoard")
    parser.add_argument("--track", action="store_true", help="also log to Weights & Biases")
    parser.add_argument(
        "--num-threads",
        type=int,
        help="of torch (without it: one, and torch's own choice for Atari)",
    )
    args = parser.parse_args()

    from sb3_cpp.training.train import train

    return train(
        args.algo,
        args.env,
        args.seed,
        suite=args.suite,
        n_timesteps=args.n_timesteps,
        params=args.hyperparams,
        eval_freq=args.eval_freq,
        eval_episodes=args.eval_episodes,
        save_freq=args.save_freq,
        start_from=args.trained_agent,
        root=args.folder,
        progress=args.progress,
        tensorboard=args.tensorboard,
        track=args.track,
        n_threads=args.num_threads,
    )


if __name__ == "__main__":
    run_command(main)
