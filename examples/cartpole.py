"""Train on CartPole, ask the policy what it knows, save and load: one minute on one core.

Try it with `--timesteps 2000`.
"""

import argparse

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from sb3_cpp import CautiousMDQN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=30_000)
    parser.add_argument("--out", default="cautious_mdqn_cartpole.zip", help="file of the model")
    args = parser.parse_args()

    th.set_num_threads(1)  # a small network is slower with more
    model = CautiousMDQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        learning_starts=1000,
        batch_size=64,
        target_update_interval=500,
        exploration_fraction=0.2,
        seed=0,
        device="cpu",
    )
    model.learn(args.timesteps, progress_bar=True)

    env = Monitor(gym.make("CartPole-v1"))
    mean, deviation = evaluate_policy(model, env, n_eval_episodes=20)
    print(f"mean return {mean:.0f} +- {deviation:.0f}")

    observation = np.zeros(4, dtype=np.float32)
    print("Q-values, upright and at rest:", model.q_values(observation).round(2))
    print("probabilities of left and right:", model.action_probabilities(observation).round(3))

    model.save(args.out)
    loaded = CautiousMDQN.load(args.out)
    assert (
        loaded.predict(observation, deterministic=True)[0]
        == model.predict(observation, deterministic=True)[0]
    )


if __name__ == "__main__":
    main()
