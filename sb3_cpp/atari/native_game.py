"""One Atari game with SB3's AtariWrapper semantics over ALE's native environment.

Emulation, no-op start, frame skip, max-pooling, grey scale and resize run in ALE's C++ thread. What SB3's wrappers do between
episodes is restated here on top of it, step for step: after a lost life the game goes on with a no-op step, and every episode
begins with FIRE and the action after it in games that have FIRE. Each game has its own native environment because these unseen
steps concern one game and not its neighbours; it costs nothing, the emulator's threads run side by side either way.
"""

import numpy as np
from ale_py.vector_env import AtariVectorEnv

NOOP, FIRE, AFTER_FIRE = 0, 1, 2


class NativeGame:
    """A game that is sent an action and then received from, so that several can run at once.

    After `receive`, `frame`, `reward` (not clipped), `terminated`, `truncated` and `lives` describe the step. `finished` holds
    (score, emulator frames) of a game that just ended, until `pop_finished` takes it.
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
            # Its own time limit would end a step before the last picture is taken: `receive` checks ours.
            max_num_frames_per_episode=2**31 - 1,
            full_action_space=full_action_space,
            img_height=screen_size,
            img_width=screen_size,
            stack_num=1,
            frameskip=frame_skip,
            maxpool=frame_skip > 1,
            # It draws from 0 .. noop_max - 1, SB3 from 1 .. noop_max: ask for one more and draw again at 0.
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
        self.noops = 0  # of the running game's start
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
        # SB3's condition: some games stay at 0 lives for a few frames before they are over.
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
        """Switch the console off and on, and wait a random number of frames."""
        # ALE's seeds are 31-bit and consecutive ones start different games.
        obs, info = self.native.reset(seed=None if seed is None else seed % 2**31)
        while self.noop_max > 0 and info["episode_frame_number"][0] == 0:
            obs, info = self.native.reset()
        self.frame, self.lives = obs[0, 0], int(info["lives"][0])
        self.noops = self.episode_frames = int(info["episode_frame_number"][0])
        self.score, self.game_over = 0.0, False

    def begin_episode(self, new_game: bool = False, seed: int | None = None) -> None:
        """Go to the next episode's first observation: SB3's FireResetEnv."""
        if new_game:
            self.new_game(seed)
        else:
            self._go_on()
        if self.fire_at_start:
            for action in (FIRE, AFTER_FIRE):
                if self._unseen_step(action):
                    self._go_on()

    def _go_on(self) -> None:
        """A new game after a game over, else one no-op step in the running one: SB3's EpisodicLifeEnv."""
        if not self.game_over:
            self._unseen_step(NOOP)
        if self.game_over:
            self.new_game()

    def _unseen_step(self, action: int) -> bool:
        """A step nobody learns from; its reward counts for the score. Whether it ended an episode."""
        self.send(action)
        self.receive()
        return self.terminated or self.truncated
