"""An algorithm of one's own: the hooks of RegularizedDQN are the target and the losses.

Double DQN (van Hasselt et al. 2016) chooses the next action by the online network and evaluates it
by the target network. Everything else (replay, target updates, saving, resuming, the fast path,
quantiles) is inherited.
"""

import argparse

import torch as th

from sb3_cpp import RegularizedDQN
from sb3_cpp.deep.batch import Batch


class DoubleDQN(RegularizedDQN):
    def _target(self, batch: Batch) -> th.Tensor:
        actions = batch.next_q.argmax(dim=1, keepdim=True)
        return batch.bootstrap(batch.next_target_of(actions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timesteps", type=int, default=30_000)
    args = parser.parse_args()

    th.set_num_threads(1)  # a small network is slower with more
    model = DoubleDQN(
        "MlpPolicy",
        "CartPole-v1",
        learning_rate=1e-3,
        learning_starts=1000,
        target_update_interval=500,
        seed=0,
        device="cpu",
        verbose=1,
    )
    model.learn(args.timesteps, log_interval=50)


if __name__ == "__main__":
    main()
