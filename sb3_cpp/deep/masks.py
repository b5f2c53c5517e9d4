"""Invalid-action masks for the DQN family, in sb3-contrib's protocol or in gymnasium's infos.

An environment provides masks by a method ``action_masks()`` (sb3-contrib) or by
``info["action_mask"]`` in ``reset`` and ``step``: True marks a valid action.

The masks of s and s' are stored in the replay buffer as two further columns of its actions, packed
into 64-bit words. So every replay buffer stores, samples and saves them, and needs no change.
"""

import inspect
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch as th
from stable_baselines3.common import evaluation
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import PolicyPredictor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecEnvWrapper
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

from sb3_cpp.checks import InvalidArgument

if TYPE_CHECKING:
    from sb3_cpp.deep.base import RegularizedDQN

# Value of an invalid action: so low that its probability is exactly 0 at any temperature, and
# finite, so that 0 * log(0) stays 0
INVALID = -1e8
_BITS = 62  # per word, so that a word is never negative


class MaskSource:
    """Reads the masks of the current observations of a vectorised environment.

    :param env: the environment
    :param n_actions: number of actions
    :param masked: False for an environment without masks, where all actions are valid
    """

    def __init__(self, env: VecEnv, n_actions: int, masked: bool = True) -> None:
        self.env, self.n_actions, self.masked = env, n_actions, masked
        self.has_method = _has_method(env)

    @staticmethod
    def found(env: VecEnv) -> bool:
        """Whether the environment provides masks. Infos have them only after the first reset."""
        return _has_method(env) or any("action_mask" in info for info in env.unwrapped.reset_infos)

    def at_reset(self) -> np.ndarray:
        """Masks, shape (n_envs, n_actions), of the observations after a reset."""
        if not self.masked:
            return np.ones((self.env.num_envs, self.n_actions), dtype=bool)
        # The method is preferred: it is contrib's protocol and needs no infos
        if self.has_method:
            return self._checked(self.env.env_method("action_masks"))
        return self._checked([info.get("action_mask") for info in self.env.unwrapped.reset_infos])

    def after_step(
        self, dones: np.ndarray, infos: list[dict[str, Any]], before: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the next observations of the transitions, and of the observations to act on.

        They differ where an episode has ended: ``info["action_mask"]`` is then that of its last
        observation. An environment with only ``action_masks()`` has been reset by then and its last
        mask is lost; the mask before the step replaces it. It matters only for an episode cut off
        by a time limit, whose last state is bootstrapped from.
        """
        if not self.masked:
            return before, before
        given = [info.get("action_mask") for info in infos]
        if self.has_method:
            current = self._checked(self.env.env_method("action_masks"))
        else:
            resets = [info.get("action_mask") for info in self.env.unwrapped.reset_infos]
            newest = [reset if done else mask for done, reset, mask in zip(dones, resets, given)]
            current = self._checked(newest)
        following = current.copy()
        for row in np.flatnonzero(dones):
            last = before[row] if given[row] is None else np.asarray(given[row], dtype=bool)
            # A final state may have no valid action; nothing is bootstrapped from it
            following[row] = last if last.any() else True
        return following, current

    def _checked(self, masks: list[Any]) -> np.ndarray:
        if any(mask is None for mask in masks):
            raise InvalidArgument('info["action_mask"] must be given at every reset and step')
        rows = np.array([np.asarray(mask, dtype=bool).reshape(-1) for mask in masks])
        if rows.shape != (self.env.num_envs, self.n_actions):
            raise InvalidArgument(
                f"action masks must have {self.n_actions} entries for each of "
                f"{self.env.num_envs} environments, got shape {rows.shape}"
            )
        if not rows.any(axis=1).all():
            raise InvalidArgument("action masks must allow at least one action, got none")
        return rows


class RecordMasks(VecEnvWrapper):
    """Keeps the masks of the current observations in ``masks``; None where there are none.

    :param env: the environment
    """

    masks: np.ndarray | None = None
    _source: MaskSource | None = None

    def reset(self) -> VecEnvObs:
        observations = self.venv.reset()
        # Infos have no masks before the first reset
        space = self.action_space
        if isinstance(space, gym.spaces.Discrete) and MaskSource.found(self.venv):
            self._source = MaskSource(self.venv, int(space.n))
            self.masks = self._source.at_reset()
        return observations

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        if self._source is not None and self.masks is not None:
            _, self.masks = self._source.after_step(dones, infos, self.masks)
        return observations, rewards, dones, infos


class MaskedPolicy:
    """A model whose ``predict`` is given the masks of the environment, if it takes masks.

    :param model: any algorithm
    :param env: where its observations come from
    """

    def __init__(self, model: PolicyPredictor, env: RecordMasks) -> None:
        self.model, self.env = model, env
        self.takes_masks = "action_masks" in inspect.signature(model.predict).parameters

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """As SB3's ``predict``."""
        masked = self.takes_masks and self.env.masks is not None
        keywords: dict[str, Any] = {"action_masks": self.env.masks} if masked else {}
        return self.model.predict(observation, state, episode_start, deterministic, **keywords)


def evaluate_policy(
    model: PolicyPredictor, env: gym.Env | VecEnv, n_eval_episodes: int = 10, **keywords: Any
) -> Any:
    """SB3's ``evaluate_policy``, with the environment's masks if it has any.

    :param model: any algorithm
    :param env: the environment
    :param n_eval_episodes: number of episodes
    :param keywords: further arguments of SB3's function
    """
    if not isinstance(env, VecEnv):
        single = env
        env = DummyVecEnv([lambda: single])
    recorder = RecordMasks(env)
    return evaluation.evaluate_policy(
        MaskedPolicy(model, recorder), recorder, n_eval_episodes, **keywords
    )


def _has_method(env: VecEnv) -> bool:
    return env.has_attr("action_masks")


def start(model: "RegularizedDQN", env_was_reset: bool) -> MaskSource | None:
    """The source of masks of the model's environment, None if it has none.

    Sets the masks of the current observations and makes room for masks in the replay buffer.
    """
    env, buffer = model.env, model.replay_buffer
    assert env is not None
    assert buffer is not None
    # A resumed episode is masked as it was: its environment shows infos from the next step on
    masked = MaskSource.found(env) or not (env_was_reset or model._last_masks is None)
    # A buffer with the masks of another environment still needs all columns
    if not masked and buffer.action_dim == 1:
        model._last_masks = None
        return None
    if getattr(buffer, "n_steps", 1) > 1:
        raise InvalidArgument("n_steps must be 1 for an environment that masks actions")
    source = MaskSource(env, model._n_actions, masked)
    if env_was_reset or model._last_masks is None:
        model._last_masks = source.at_reset()
    add_columns(buffer, model._n_actions)
    return source


def broadcast(action_masks: Any, n_observations: int, n_actions: int) -> np.ndarray:
    """Masks given to ``predict`` as rows of booleans, one for each observation."""
    given = np.asarray(action_masks)
    rows = np.atleast_2d(given).astype(bool)
    if rows.ndim > 2 or rows.shape[1] != n_actions or len(rows) not in (1, n_observations):
        raise InvalidArgument(
            f"action_masks must have the shape ({n_actions},) or ({n_observations}, {n_actions}), "
            f"got {given.shape}"
        )
    if not rows.any(axis=1).all():
        raise InvalidArgument("action_masks must allow at least one action, got none")
    return np.broadcast_to(rows, (n_observations, n_actions)).copy()


def sample(space: gym.spaces.Space, rows: np.ndarray) -> np.ndarray:
    """A random valid action per row of masks."""
    assert isinstance(space, gym.spaces.Discrete)
    return np.array([space.sample(row) for row in rows.astype(np.int8)])


def n_words(n_actions: int) -> int:
    """Words that a packed mask takes."""
    return -(-n_actions // _BITS)


def pack(masks: np.ndarray) -> np.ndarray:
    """Masks (n, n_actions) as words (n, n_words)."""
    padding = n_words(masks.shape[1]) * _BITS - masks.shape[1]
    bits = np.pad(masks, ((0, 0), (0, padding))).reshape(len(masks), -1, _BITS)
    return (bits.astype(np.int64) << np.arange(_BITS)).sum(-1)


def unpack(words: th.Tensor, n_actions: int) -> th.Tensor:
    """The inverse of :func:`pack`, for tensors."""
    bits = (words.unsqueeze(-1) >> th.arange(_BITS, device=words.device)) & 1
    return bits.flatten(1)[:, :n_actions].bool()


def add_columns(buffer: ReplayBuffer, n_actions: int) -> None:
    """Make room for the two masks in the buffer; transitions it already holds are unmasked."""
    words = 2 * n_words(n_actions)
    # A discrete action takes one column; more are masks of an earlier learn()
    if buffer.action_dim > 1:
        return
    all_valid = pack(np.ones((1, n_actions), dtype=bool))
    masks = np.broadcast_to(np.tile(all_valid, 2), (*buffer.actions.shape[:2], words))
    buffer.actions = np.concatenate((buffer.actions.astype(np.int64), masks), axis=2)
    buffer.action_dim = 1 + words


def apply(values: th.Tensor, mask: th.Tensor) -> th.Tensor:
    """Values with :data:`INVALID` where the mask is False."""
    return values.masked_fill(~mask, INVALID)
