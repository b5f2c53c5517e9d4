"""Is the native environment SB3's? Two studies with random actions, per game.

In step: one native and one SB3 environment get the same start (as many no-ops) and the same actions; without sticky actions
the emulator is deterministic, so every reward, done flag, score and length must agree, and pixels up to the order of grey and
max-pooling.

Apart: both play games with seeds of their own, and the distributions of raw scores and lengths are compared by the two-sample
Kolmogorov-Smirnov test. A p-value below 0.05 in one of twenty such tests is what chance alone gives.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import ks_2samp
from stable_baselines3.common.atari_wrappers import NoopResetEnv
from stable_baselines3.common.env_util import make_atari_env, unwrap_wrapper
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack, VecTransposeImage

from sb3_cpp.atari.game_ids import check_frame_skip
from sb3_cpp.atari.vec_env import make_atari_vec_env
from sb3_cpp.checks import check_whole_number


@dataclass
class InStep:
    """What agreed and what not, over the steps of one game; pixel differences are in grey values of 255."""

    steps: int = 0
    disagreements: int = 0
    games: int = 0
    lives_lost: int = 0
    pixel_mean: float = 0.0
    pixel_max: int = 0
    life_loss_terminal_max: int = 0
    game_over_terminal_older_frames_max: int = 0


def sb3_env(env_id: str, n_envs: int, seed: int) -> VecEnv:
    """SB3's way to the same observations."""
    check_frame_skip(env_id)
    return VecTransposeImage(VecFrameStack(make_atari_env(env_id, n_envs, seed=seed), 4))


def compare_in_step(env_id: str, steps: int, seed: int) -> InStep:
    native, reference = make_atari_vec_env(env_id, 1, seed), sb3_env(env_id, 1, seed)
    noop_wrapper = unwrap_wrapper(reference.unwrapped.envs[0], NoopResetEnv)  # type: ignore[attr-defined]
    assert noop_wrapper is not None
    rng = np.random.default_rng(seed)
    result = InStep(steps)
    obs: Any = native.reset()
    noop_wrapper.override_num_noops = native.games[0].noops  # type: ignore[attr-defined]
    expected: Any = reference.reset()
    for _ in range(steps):
        difference = _difference(obs, expected)
        result.pixel_mean += float(difference.mean()) / steps
        result.pixel_max = max(result.pixel_max, int(difference.max()))
        actions = rng.integers(0, native.action_space.n, 1)  # type: ignore[attr-defined]
        obs, reward, done, infos = native.step(actions)
        noop_wrapper.override_num_noops = native.games[0].noops  # type: ignore[attr-defined]
        expected, expected_reward, expected_done, expected_infos = reference.step(actions)
        outcome, wanted = (
            _outcome(reward, done, infos),
            _outcome(expected_reward, expected_done, expected_infos),
        )
        result.disagreements += outcome != wanted
        if done[0] and expected_done[0]:
            terminal = _difference(
                infos[0]["terminal_observation"], expected_infos[0]["terminal_observation"]
            )
            if "episode" in infos[0]:
                result.games += 1
                older = int(terminal[:-1].max())
                result.game_over_terminal_older_frames_max = max(
                    result.game_over_terminal_older_frames_max, older
                )
            else:
                result.lives_lost += 1
                result.life_loss_terminal_max = max(
                    result.life_loss_terminal_max, int(terminal.max())
                )
    native.close()
    reference.close()
    return result


def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(one.astype(np.int16) - other.astype(np.int16))


def _outcome(reward: np.ndarray, done: np.ndarray, infos: list[dict[str, Any]]) -> tuple[Any, ...]:
    episode = infos[0].get("episode", {})
    return (
        float(reward[0]),
        bool(done[0]),
        infos[0]["TimeLimit.truncated"],
        episode.get("r"),
        episode.get("l"),
    )


def play_games(env: VecEnv, n_games: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw scores and lengths of games with random actions; each environment plays its share, lest short games be preferred."""
    rng = np.random.default_rng(seed)
    left = np.array([(n_games + i) // env.num_envs for i in range(env.num_envs)])
    scores: list[float] = []
    lengths: list[int] = []
    env.reset()
    while left.any():
        _, _, _, infos = env.step(rng.integers(0, env.action_space.n, env.num_envs))  # type: ignore[attr-defined]
        for i, info in enumerate(infos):
            if "episode" in info and left[i] > 0:
                left[i] -= 1
                scores.append(info["episode"]["r"])
                lengths.append(info["episode"]["l"])
    env.close()
    return np.array(scores), np.array(lengths)


def compare_game(env_id: str, n_games: int, steps: int, n_envs: int, seed: int) -> dict[str, Any]:
    """One row of the table: both studies for one game."""
    ours = play_games(make_atari_vec_env(env_id, n_envs, seed), n_games, seed)
    theirs = play_games(sb3_env(env_id, n_envs, seed + 1000), n_games, seed + 1)
    row: dict[str, Any] = {"env_id": env_id, "n_games": n_games}
    for name, native, sb3 in zip(("score", "length"), ours, theirs):
        test = ks_2samp(native, sb3)
        row |= {f"{name}_native": np.mean(native), f"{name}_sb3": np.mean(sb3)}
        row |= {f"{name}_ks": test.statistic, f"{name}_p": test.pvalue}
    return row | {
        f"in_step_{key}": value
        for key, value in asdict(compare_in_step(env_id, steps, seed)).items()
    }


def parity_study(
    env_ids: list[str], n_games: int, steps: int, n_envs: int, seed: int, csv: str | None
) -> pd.DataFrame:
    """Compare the native environment with SB3's on each game; print the table and write it to `csv`."""
    for name, value in {"n_games": n_games, "steps": steps, "n_envs": n_envs}.items():
        check_whole_number(name, value, 1)
    check_whole_number("seed", seed, 0)
    for env_id in env_ids:
        check_frame_skip(env_id)
    table = pd.DataFrame([compare_game(env_id, n_games, steps, n_envs, seed) for env_id in env_ids])
    print(table.set_index("env_id").T.to_string(float_format="{:.4g}".format))
    if csv is not None:
        Path(csv).parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(csv, index=False)
    return table
