"""SB3's replay buffer with faster sampling, which is much of a gradient step of small networks."""

import numpy as np
import torch as th
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize


class QuickReplayBuffer(ReplayBuffer):
    """SB3's ReplayBuffer: the same samples from the same random numbers, to the bit.

    Rows are gathered with one flat index instead of two, and torch shares the memory of the
    gathered arrays instead of copying them.
    """

    def _get_samples(
        self, batch_inds: np.ndarray, env: VecNormalize | None = None
    ) -> ReplayBufferSamples:
        # Normalisation and shared observations are left to SB3
        if env is not None or self.optimize_memory_usage:
            return super()._get_samples(batch_inds, env)
        # SB3 draws the environment of each row with these same numbers
        at = batch_inds * self.n_envs + np.random.randint(
            0, high=self.n_envs, size=(len(batch_inds),)
        )
        now, later = self._gather_observations(at)
        actions = gather(self.actions, at)
        # As in SB3, an episode that a time limit cut off does not count as terminal
        ended = self.dones.take(at) * (1 - self.timeouts.take(at))
        columns = (actions, ended.reshape(-1, 1), self.rewards.take(at).reshape(-1, 1))
        actions_t, dones_t, rewards_t = (self.to_torch(column, copy=False) for column in columns)
        return ReplayBufferSamples(now, actions_t, later, dones_t, rewards_t)

    def _gather_observations(self, at: np.ndarray) -> tuple[th.Tensor, th.Tensor]:
        """Observations and next observations, as new arrays.

        :param at: flat index of the transitions, ``row * n_envs + environment``
        """
        now, later = (gather(array, at) for array in (self.observations, self.next_observations))
        return self.to_torch(now, copy=False), self.to_torch(later, copy=False)


def gather(array: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Entries of an array (rows, n_envs, ...) by their flat index."""
    return array.reshape(-1, *array.shape[2:]).take(at, axis=0)
