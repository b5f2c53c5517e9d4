"""ALE's native Atari environments as an SB3 VecEnv, with the semantics of SB3's `make_atari_env`
followed by `VecFrameStack`.

The same games under the same rules, faster: emulators run in C++ threads and frames are stacked
once, channels first, as SB3's networks want them. Only this differs from SB3:

1. A frame is reduced to grey before it is max-pooled (SB3: after): a few pixels differ by some grey
   values.
2. The step that ends a game shows the last pictures before the end (SB3: sometimes). Nobody
   bootstraps from it. A time limit is checked between steps, so a truncated game may be 3 frames
   longer and its last observation is complete.
3. `reset()` always starts a new game (SB3: after a lost life it only plays a no-op).
4. A game that ends in the hidden steps after a lost life is reported in that step's info (SB3 loses
   it).
"""

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

# First, because it says which packages are missing
from sb3_cpp.atari.game_ids import check_frame_skip, game_spec, rom_and_stickiness  # isort: skip
from ale_py.vector_env import AtariVectorEnv

from sb3_cpp.checks import InvalidArgument, check_whole_number

NOOP, FIRE, AFTER_FIRE = 0, 1, 2


class NativeGame:
    """One game of ALE's native environment with the episodes of SB3's AtariWrapper.

    Emulation, no-op start, frame skip, max-pooling, grey scale and resize run in ALE's C++ thread.
    What SB3's wrappers do between episodes is done here: after a lost life the game continues with
    a no-op step, and in games with FIRE every episode begins with FIRE and the action after it.
    Each game has its own native environment, because these hidden steps concern one game and not
    its neighbours; the emulators' threads run in parallel either way.

    `send` an action, then `receive`: `frame`, `reward` (not clipped), `terminated`, `truncated` and
    `lives` describe the step. `finished` is (score, emulator frames) of a game that just ended,
    until `pop_finished`.
    """

    def __init__(
        self,
        rom: str,
        *,
        repeat_action_probability: float,
        frame_skip: int,
        noop_max: int,
        terminal_on_life_loss: bool,
        screen_size: int,
        max_episode_frames: int,
        full_action_space: bool,
    ):
        self.native = AtariVectorEnv(
            rom,
            num_envs=1,
            num_threads=1,
            repeat_action_probability=repeat_action_probability,
            # Its own limit would end a step before the last picture is taken: `receive` checks ours
            max_num_frames_per_episode=2**31 - 1,
            full_action_space=full_action_space,
            img_height=screen_size,
            img_width=screen_size,
            stack_num=1,
            frameskip=frame_skip,
            maxpool=frame_skip > 1,
            # ALE draws from 0 .. noop_max - 1, SB3 from 1 .. noop_max: new_game draws again at 0
            noop_max=noop_max + 1 if noop_max > 0 else 0,
            reward_clipping=False,
            use_fire_reset=False,
        )
        self.noop_max = noop_max
        self.max_episode_frames = max_episode_frames
        self.terminal_on_life_loss = terminal_on_life_loss
        self.action_meanings: list[str] = [
            action.name for action in self.native.ale.get_action_set()
        ]
        self.fire_at_start = "FIRE" in self.action_meanings
        self.lives = 0
        self.score = 0.0
        self.noops = 0  # at the start of the running game
        self.episode_frames = 0
        self.reward = 0.0
        self.terminated = self.truncated = False
        self.game_over = True
        self.finished: tuple[float, int] | None = None
        self.frame = np.zeros((screen_size, screen_size), dtype=np.uint8)

    def send(self, action: int) -> None:
        """Start a step. The action must be valid: ALE never answers to one that is not."""
        self.native.send(np.array([action], dtype=np.int64))

    def receive(self) -> None:
        """Wait for the step."""
        obs, rewards, terminations, _, info = self.native.recv()
        lives = int(info["lives"][0])
        self.episode_frames = int(info["episode_frame_number"][0])
        # SB3's condition: some games stay at 0 lives for a few frames before they are over
        life_lost = self.terminal_on_life_loss and 0 < lives < self.lives
        self.terminated = bool(terminations[0]) or life_lost
        self.truncated = self.episode_frames >= self.max_episode_frames
        self.game_over = bool(terminations[0]) or self.truncated
        self.frame, self.reward, self.lives = obs[0, 0], float(rewards[0]), lives
        self.score += self.reward
        if self.game_over:
            self.finished = (self.score, self.episode_frames)

    def pop_finished(self) -> tuple[float, int] | None:
        finished, self.finished = self.finished, None
        return finished

    def new_game(self, seed: int | None = None) -> None:
        """Reset the console and wait a random number of frames."""
        # ALE's seeds are 31-bit and consecutive ones start different games
        obs, info = self.native.reset(seed=None if seed is None else seed % 2**31)
        while self.noop_max > 0 and info["episode_frame_number"][0] == 0:
            obs, info = self.native.reset()
        self.frame, self.lives = obs[0, 0], int(info["lives"][0])
        self.noops = self.episode_frames = int(info["episode_frame_number"][0])
        self.score, self.game_over = 0.0, False

    def begin_episode(self, new_game: bool = False, seed: int | None = None) -> None:
        """Step to the first observation of the next episode, as SB3's FireResetEnv does."""
        if new_game:
            self.new_game(seed)
        else:
            self._next_life()
        if self.fire_at_start:
            for action in (FIRE, AFTER_FIRE):
                if self._hidden_step(action):
                    self._next_life()

    def _next_life(self) -> None:
        """A new game after a game over, else a no-op in the running one: SB3's EpisodicLifeEnv."""
        if not self.game_over:
            self._hidden_step(NOOP)
        if self.game_over:
            self.new_game()

    def _hidden_step(self, action: int) -> bool:
        """A step outside the transitions; its reward counts for the score. Returns done."""
        self.send(action)
        self.receive()
        return self.terminated or self.truncated


class AtariVecEnv(VecEnv):
    """Several copies of an Atari game, stepped in parallel.

    Observations are uint8 of shape (n_stack, screen_size, screen_size).

    `info["episode"]` is what SB3's Monitor gives under the AtariWrapper, at the end of a game and
    not at a lost life: the raw score `r`, the length `l` in emulator frames (4 to a step), the time
    `t`.

    :param env_id: `*NoFrameskip-v4` or `ALE/*-v5`; a step is `frame_skip` frames with either
    :param n_envs: number of games
    :param repeat_action_probability: sticky actions; None is 0 for `*NoFrameskip-v4` and refused
        for `ALE/*-v5`
    :param n_stack: frames in an observation, black at an episode's start
    :param frame_skip: emulator frames per step, of which the last two are max-pooled
    :param noop_max: a game starts with 1 to noop_max frames of no-ops; 0 for none
    :param screen_size: height and width of a frame
    :param terminal_on_life_loss: a lost life ends the episode; the game continues
    :param clip_reward: rewards for learning are -1, 0 or 1
    :param max_episode_frames: emulator frames after which a game is truncated
    :param full_action_space: all 18 actions instead of those the game uses
    :param monitor_file: CSV file with a row per game, as SB3's Monitor writes it
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
        _check_counts(
            n_envs=n_envs,
            n_stack=n_stack,
            frame_skip=frame_skip,
            screen_size=screen_size,
            max_episode_frames=max_episode_frames,
        )
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
        wrappers = {
            Monitor: True,
            atari_wrappers.AtariWrapper: True,
            atari_wrappers.WarpFrame: True,
            atari_wrappers.NoopResetEnv: noop_max > 0,
            atari_wrappers.MaxAndSkipEnv: frame_skip > 1,
            atari_wrappers.EpisodicLifeEnv: terminal_on_life_loss,
            atari_wrappers.FireResetEnv: self.games[0].fire_at_start,
            atari_wrappers.ClipRewardEnv: clip_reward,
        }
        self._wrappers = {wrapper for wrapper, active in wrappers.items() if active}
        self.stacks_frames = n_stack > 1  # see guarantees_stacked_frames
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
                f"actions must be {self.num_envs} numbers from 0 to {n_actions - 1}, "
                f"got {actions.tolist()}"
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
        # The type that SB3's VecEnv raises, with what to do instead
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
            f"{attr_name} cannot be set: the games live in ALE's C++ code; "
            "choose settings when making them"
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
                f"method_name must be 'get_action_meanings', got {method_name!r}: "
                "the games live in C++ code"
            )
        return [self.get_action_meanings() for _ in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None
    ) -> list[bool]:
        """True for the SB3 wrappers implemented here: Monitor and the parts of AtariWrapper."""
        return [wrapper_class in self._wrappers for _ in self._get_indices(indices)]


def _check_counts(**values: Any) -> None:
    for name, value in values.items():
        check_whole_number(name, value, 1)


def make_atari_vec_env(
    env_id: str, n_envs: int = 1, seed: int | None = None, **settings: Any
) -> AtariVecEnv:
    """SB3's `make_atari_env` followed by `VecFrameStack(4)`, on ALE's native environments.

    :param env_id: id of the game, see AtariVecEnv
    :param n_envs: number of games
    :param seed: of the first game; the others get the numbers after it
    :param settings: further arguments of AtariVecEnv
    """
    env = AtariVecEnv(env_id, n_envs, **settings)
    env.seed(seed)
    return env


def make_render_env(
    env_id: str,
    seed: int | None = None,
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
) -> VecEnv:
    """One game that can be rendered, for videos of agents trained on the native environment.

    SB3's wrappers with `render_mode="rgb_array"` and the spaces of `make_atari_vec_env`. Give it to
    SB3's VecVideoRecorder, or call `render()`. A step is `frame_skip` frames with every id.

    :param env_id: id of the game, see AtariVecEnv
    :param seed: of the game
    :param repeat_action_probability: sticky actions, see AtariVecEnv
    :param n_stack: frames in an observation
    :param frame_skip: frames of a step
    :param noop_max: most frames that a game waits before it begins
    :param screen_size: height and width of an observation
    :param terminal_on_life_loss: a lost life ends the episode; the game continues
    :param clip_reward: rewards are -1, 0 or 1
    :param max_episode_frames: emulator frames after which a game is truncated
    :param full_action_space: all 18 actions instead of those the game uses
    """
    _, stickiness = rom_and_stickiness(env_id, repeat_action_probability)
    check_whole_number("noop_max", noop_max, 0)
    _check_counts(
        n_stack=n_stack,
        frame_skip=frame_skip,
        screen_size=screen_size,
        max_episode_frames=max_episode_frames,
    )
    env_kwargs = {
        "frameskip": 1,
        "repeat_action_probability": stickiness,
        "render_mode": "rgb_array",
        "max_num_frames_per_episode": max_episode_frames,
        "full_action_space": full_action_space,
    }
    check_frame_skip(env_id, env_kwargs)
    wrapper_kwargs = {
        "noop_max": noop_max,
        "frame_skip": frame_skip,
        "screen_size": screen_size,
        "terminal_on_life_loss": terminal_on_life_loss,
        "clip_reward": clip_reward,
    }
    env = make_atari_env(
        env_id, n_envs=1, seed=seed, env_kwargs=env_kwargs, wrapper_kwargs=wrapper_kwargs
    )
    return VecTransposeImage(VecFrameStack(env, n_stack))
