"""A single Atari environment that can be seen, for videos of agents trained on the native ones."""

from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

from sb3_cpp.atari.game_ids import check_frame_skip, rom_and_stickiness


def make_render_env(
    env_id: str,
    seed: int | None = None,
    *,
    repeat_action_probability: float | None = None,
    n_stack: int = 4,
    terminal_on_life_loss: bool = True,
    clip_reward: bool = True,
) -> VecEnv:
    """SB3's wrappers around one game with `render_mode="rgb_array"`; spaces are those of `make_atari_vec_env`.

    Give it to SB3's VecVideoRecorder, or call `render()`. Ids are understood as by `make_atari_vec_env`: 4 frames to a step in
    all, and sticky actions as chosen.
    """
    _, stickiness = rom_and_stickiness(env_id, repeat_action_probability)
    env_kwargs = {
        "frameskip": 1,
        "repeat_action_probability": stickiness,
        "render_mode": "rgb_array",
    }
    check_frame_skip(env_id, env_kwargs)
    wrapper_kwargs = {"terminal_on_life_loss": terminal_on_life_loss, "clip_reward": clip_reward}
    env = make_atari_env(
        env_id, n_envs=1, seed=seed, env_kwargs=env_kwargs, wrapper_kwargs=wrapper_kwargs
    )
    return VecTransposeImage(VecFrameStack(env, n_stack))
