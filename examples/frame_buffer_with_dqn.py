"""SB3's own DQN on Atari with a million transitions in 7 GB instead of 56.

Only the buffer class and the environment change.

Try it with `--timesteps 2000 --buffer-size 2000`; without arguments it is the usual training of ten
million steps.
"""

import argparse

from stable_baselines3 import DQN

from sb3_cpp.atari import FrameReplayBuffer, make_atari_vec_env


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="SpaceInvadersNoFrameskip-v4")
    parser.add_argument("--timesteps", type=int, default=10_000_000)
    parser.add_argument("--buffer-size", type=int, default=1_000_000)
    args = parser.parse_args()

    env = make_atari_vec_env(args.env, n_envs=4, seed=0)
    model = DQN(
        "CnnPolicy",
        env,
        replay_buffer_class=FrameReplayBuffer,
        buffer_size=args.buffer_size,
        learning_starts=min(50_000, args.timesteps // 2),
        train_freq=1,  # vector steps of 4 environments: a gradient step per 4 transitions
        gradient_steps=1,
        batch_size=32,
        learning_rate=1e-4,
        target_update_interval=10_000,
        exploration_fraction=0.1,
        exploration_final_eps=0.01,
        seed=0,
        verbose=1,
    )
    model.learn(args.timesteps, log_interval=100)
    model.save("dqn_atari")


if __name__ == "__main__":
    main()
