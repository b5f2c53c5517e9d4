"""Compare ALE's native environment with SB3's make_atari_env: the same games, step for step and in distribution."""

import argparse
import sys

from sb3_cpp.atari.parity import parity_study

GAMES = ["BreakoutNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4", "MsPacmanNoFrameskip-v4"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--env", nargs="+", default=GAMES, metavar="ID", help="Atari ids without frame skip"
    )
    parser.add_argument(
        "--games", type=int, default=200, help="games per environment for the distributions"
    )
    parser.add_argument(
        "--steps", type=int, default=5000, help="steps played side by side with equal actions"
    )
    parser.add_argument("--n-envs", type=int, default=4, help="copies of the game at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", default="runs/atari_parity.csv", help="where to write the table")
    args = parser.parse_args()
    try:
        parity_study(args.env, args.games, args.steps, args.n_envs, args.seed, args.csv)
    except (ValueError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
