"""ALE's native Atari environments as an SB3 VecEnv with the semantics of SB3's `make_atari_env` and `VecFrameStack`.

The same games under the same rules, faster: emulators run in C++ threads and frames are stacked once, channels first, as SB3's
networks want them. What differs from SB3, and only this:

1. A frame is reduced to grey before it is max-pooled (SB3: after): a few pixels differ by some grey values.
2. The step that ends a game shows the last pictures before the end (SB3: sometimes). Nobody bootstraps from it. A time limit
   is checked between steps, so a truncated game may be 3 frames longer and its last observation is a whole one.
3. `reset()` always starts a new game (SB3: only plays a no-op if the last done was a lost life).
4. A game that ends in the unseen steps after a lost life is reported in that step's info (SB3 loses it).
"""

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from sb3_cpp.atari.game_ids import game_spec, rom_and_stickiness
from sb3_cpp.atari.native_game import NativeGame
from sb3_cpp.checks import InvalidArgument, check_whole_number


class AtariVecEnv(VecEnv):
    """Several copies of an Atari game, stepped in parallel; observations are uint8 (n_stack, screen_size, screen_size).

    `info["episode"]` is what SB3's Monitor gives under the AtariWrapper, at a game's end and not at a lost life: the raw score
    `r`, the length `l` in emulator frames (4 to a step), the time `t`.

    :param env_id: `*NoFrameskip-v4` or `ALE/*-v5`; either way `frame_skip` frames to a step in all
    :param repeat_action_probability: sticky actions; None is 0 for `*NoFrameskip-v4`, and must be decided for `ALE/*-v5`
    :param n_stack: frames in an observation, black at an episode's start
    :param frame_skip: emulator frames per step, of which the last two are max-pooled
    :param noop_max: a game starts with 1 to noop_max frames of no-ops; 0 for none
    :param terminal_on_life_loss: a lost life ends the episode; the game goes on
    :param clip_reward: rewards for learning are -1, 0 or 1
    :param max_episode_frames: emulator frames after which a game is truncated
    :param full_action_space: all 18 actions instead of those the game uses
    :param monitor_file: where to write a row per game, as SB3's Monitor does
    """

    render_mode: str | None = None  # the native emulator draws nothing: see make_render_env

    def __init__(
        self,
        env_id: str,
        n_envs: int = 1,
        *,
        repeat_action_probability: float | None = None,
        n_stack: int = 4,
        frame_skip: int = 4,
        noop_max: int = 30,
        screen_size: int = 84,
        terminal_on_life_loss: bool = True,
        clip_reward: bool = True,
        max_episode_frames: int = 108_000,
        full_action_space: bool = False,
        monitor_file: str | None = None,
    ):
        rom, self.repeat_action_probability = rom_and_stickiness(env_id, repeat_action_probability)
        check_whole_number("noop_max", noop_max, 0)
        counts = {
            "n_envs": n_envs,
            "n_stack": n_stack,
            "frame_skip": frame_skip,
            "screen_size": screen_size,
        }
        for name, value in {**counts, "max_episode_frames": max_episode_frames}.items():
            check_whole_number(name, value, 1)
        self.spec = game_spec(env_id)
        self.clip_reward = clip_reward
        self.games = [
            NativeGame(
                rom,
                repeat_action_probability=self.repeat_action_probability,
                frame_skip=frame_skip,
                noop_max=noop_max,
                terminal_on_life_loss=terminal_on_life_loss,
                screen_size=screen_size,
                max_episode_frames=max_episode_frames,
                full_action_space=full_action_space,
            )
            for _ in range(n_envs)
        ]
        conditions = {
            "NoopResetEnv": noop_max > 0,
            "MaxAndSkipEnv": frame_skip > 1,
            "EpisodicLifeEnv": terminal_on_life_loss,
        }
        conditions |= {"FireResetEnv": self.games[0].fire_at_start, "ClipRewardEnv": clip_reward}
        names = [
            "AtariWrapper",
            "WarpFrame",
            *(name for name, holds in conditions.items() if holds),
        ]
        self._stands_for: tuple[type, ...] = (
            Monitor,
            *(getattr(atari_wrappers, name) for name in names),
        )
        self._stacks = np.zeros((n_envs, n_stack, screen_size, screen_size), dtype=np.uint8)
        self._stepping = False
        self._start_time = time.time()
        self._writer = None
        if monitor_file is not None:
            self._writer = ResultsWriter(
                monitor_file, header={"t_start": self._start_time, "env_id": env_id}
            )
        super().__init__(
            n_envs,
            spaces.Box(0, 255, self._stacks.shape[1:], np.uint8),
            spaces.Discrete(len(self.games[0].action_meanings)),
        )

    def reset(self) -> np.ndarray:
        """New games in all environments; those that were given a seed start from it."""
        if self._stepping:
            self.step_wait()
        self._stacks = np.zeros_like(self._stacks)
        for env, (game, seed) in enumerate(zip(self.games, self._seeds)):
            game.begin_episode(new_game=True, seed=seed)
            game.pop_finished()
            self._stacks[env, -1] = game.frame
            self.reset_infos[env] = {"lives": game.lives}
        self._reset_seeds()
        self._reset_options()
        return self._stacks.copy()

    def step_async(self, actions: np.ndarray) -> None:
        actions = np.asarray(actions).reshape(-1)
        n_actions = len(self.games[0].action_meanings)
        if len(actions) != self.num_envs or not ((actions >= 0) & (actions < n_actions)).all():
            raise InvalidArgument(
                f"actions must be {self.num_envs} numbers from 0 to {n_actions - 1}, got {actions.tolist()}"
            )
        for game, action in zip(self.games, actions):
            game.send(int(action))
        self._stepping = True

    def step_wait(self) -> VecEnvStepReturn:
        self._stepping = False
        stacks = np.empty_like(self._stacks)
        stacks[:, :-1] = self._stacks[:, 1:]
        rewards = np.empty(self.num_envs, dtype=np.float32)
        dones = np.empty(self.num_envs, dtype=bool)
        infos: list[dict[str, Any]] = []
        for env, game in enumerate(self.games):
            game.receive()
            stacks[env, -1] = game.frame
            rewards[env] = np.sign(game.reward) if self.clip_reward else game.reward
            dones[env] = game.terminated or game.truncated
            info: dict[str, Any] = {
                "lives": game.lives,
                "episode_frame_number": game.episode_frames,
            }
            info["TimeLimit.truncated"] = game.truncated and not game.terminated
            if dones[env]:
                info["terminal_observation"] = stacks[env].copy()
                game.begin_episode()
                stacks[env, :-1] = 0
                stacks[env, -1] = game.frame
                self.reset_infos[env] = {"lives": game.lives}
            if (finished := game.pop_finished()) is not None:
                info["episode"] = self._episode(*finished)
            infos.append(info)
        self._stacks = stacks
        return stacks.copy(), rewards, dones, infos

    def _episode(self, score: float, frames: int) -> dict[str, float]:
        episode = {"r": round(score, 6), "l": frames, "t": round(time.time() - self._start_time, 6)}
        if self._writer is not None:
            self._writer.write_row(episode)
        return episode

    def close(self) -> None:
        """End the emulators' threads."""
        if self._stepping:
            self.step_wait()
        self.games = []
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def get_action_meanings(self) -> list[str]:
        return list(self.games[0].action_meanings)

    def get_images(self) -> Sequence[np.ndarray | None]:
        # SB3's VecEnv raises this where there are no pictures; here it says what to do instead
        raise NotImplementedError(
            "the native emulator draws no pictures: record in the environment of make_render_env"
        )

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """`lives` of each game; everything else is the same for all of them."""
        if attr_name == "lives":
            return [self.games[env].lives for env in self._get_indices(indices)]
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        raise AttributeError(
            f"{attr_name} cannot be set: the games live in ALE's C++ code; choose settings when making them"
        )

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """`get_action_meanings` is the one method a single game has."""
        if method_name != "get_action_meanings":
            raise AttributeError(
                f"method_name must be 'get_action_meanings', got {method_name!r}: the games live in C++ code"
            )
        return [self.get_action_meanings() for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """True for the SB3 wrappers whose work is done here: Monitor (`info["episode"]`) and the AtariWrapper's parts."""
        return [wrapper_class in self._stands_for for _ in self._get_indices(indices)]


def make_atari_vec_env(
    env_id: str, n_envs: int = 1, seed: int | None = None, **settings: Any
) -> AtariVecEnv:
    """SB3's `make_atari_env` followed by `VecFrameStack(4)`, on ALE's native environments; settings are AtariVecEnv's."""
    env = AtariVecEnv(env_id, n_envs, **settings)
    env.seed(seed)
    return env
