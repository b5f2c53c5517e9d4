"""Compare ALE's native environment with SB3's make_atari_env, on random actions, game by game.

In step: both environments get the same number of no-ops and the same actions. Without sticky
actions the emulator is deterministic, so every reward, done flag, score and length must agree, and
pixels up to the order of grey scale and max-pooling.

In distribution: both play games with seeds of their own; raw scores and lengths are compared by the
two-sample Kolmogorov-Smirnov test. Chance alone gives a p-value below 0.05 in one of twenty tests.
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

from sb3_cpp.atari import check_frame_skip, make_atari_vec_env
from sb3_cpp.checks import check_whole_number
from sb3_cpp.cli import CommandLine, run_command

GAMES = ["BreakoutNoFrameskip-v4", "SpaceInvadersNoFrameskip-v4", "MsPacmanNoFrameskip-v4"]


@dataclass
class InStep:
    """Disagreements over the steps of one game; pixel differences are in grey values of 255."""

    steps: int = 0
    disagreements: int = 0
    games: int = 0
    lives_lost: int = 0
    pixel_mean: float = 0.0
    pixel_max: int = 0
    life_loss_terminal_max: int = 0
    game_over_terminal_older_frames_max: int = 0


def sb3_env(env_id: str, n_envs: int, seed: int) -> VecEnv:
    """SB3's environment with the same observations."""
    check_frame_skip(env_id)
    return VecTransposeImage(VecFrameStack(make_atari_env(env_id, n_envs, seed=seed), 4))


def compare_in_step(env_id: str, steps: int, seed: int) -> InStep:
    """Play one game with equal actions in both environments."""
    native, reference = make_atari_vec_env(env_id, 1, seed), sb3_env(env_id, 1, seed)
    unwrapped: Any = reference.unwrapped
    noop_wrapper: Any = unwrap_wrapper(unwrapped.envs[0], NoopResetEnv)
    rng = np.random.default_rng(seed)
    result = InStep(steps)
    obs: Any = native.reset()
    # the two draw their no-ops from different generators, so one is told the other's number
    noop_wrapper.override_num_noops = native.games[0].noops
    expected: Any = reference.reset()
    for _ in range(steps):
        difference = _difference(obs, expected)
        result.pixel_mean += float(difference.mean()) / steps
        result.pixel_max = max(result.pixel_max, int(difference.max()))
        actions = rng.integers(0, native.action_space.n, 1)  # type: ignore[attr-defined]
        obs, reward, done, infos = native.step(actions)
        noop_wrapper.override_num_noops = native.games[0].noops
        expected, expected_reward, expected_done, expected_infos = reference.step(actions)
        outcome = _outcome(reward, done, infos)
        result.disagreements += outcome != _outcome(expected_reward, expected_done, expected_infos)
        if done[0] and expected_done[0]:
            terminal = _difference(
                infos[0]["terminal_observation"], expected_infos[0]["terminal_observation"]
            )
            if "episode" in infos[0]:
                result.games += 1
                result.game_over_terminal_older_frames_max = max(
                    result.game_over_terminal_older_frames_max, int(terminal[:-1].max())
                )
            else:
                result.lives_lost += 1
                result.life_loss_terminal_max = max(
                    result.life_loss_terminal_max, int(terminal.max())
                )
    native.close()
    reference.close()
    return result


# in signed numbers: the difference of two uint8 wraps around
def _difference(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.abs(one.astype(np.int16) - other.astype(np.int16))


def _outcome(reward: np.ndarray, done: np.ndarray, infos: list[dict[str, Any]]) -> tuple[Any, ...]:
    episode = infos[0].get("episode", {})
    truncated = infos[0]["TimeLimit.truncated"]
    return float(reward[0]), bool(done[0]), truncated, episode.get("r"), episode.get("l")


def play_games(env: VecEnv, n_games: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw scores and lengths of games with random actions."""
    # each environment plays its share: whoever takes the first games that end prefers short ones
    rng = np.random.default_rng(seed)
    left = np.array([(n_games + i) // env.num_envs for i in range(env.num_envs)])
    n_actions = env.action_space.n  # type: ignore[attr-defined]
    scores: list[float] = []
    lengths: list[int] = []
    env.reset()
    while left.any():
        _, _, _, infos = env.step(rng.integers(0, n_actions, env.num_envs))
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
    in_step = asdict(compare_in_step(env_id, steps, seed))
    return row | {f"in_step_{key}": value for key, value in in_step.items()}


def parity_study(
    env_ids: list[str], n_games: int, steps: int, n_envs: int, seed: int, csv: str
) -> pd.DataFrame:
    """Compare the environments on each game; print the table and write it to `csv`."""
    for name, value in {"games": n_games, "steps": steps, "n_envs": n_envs}.items():
        check_whole_number(name, value, 1)
    check_whole_number("seed", seed, 0)
    for env_id in env_ids:
        check_frame_skip(env_id)
    table = pd.DataFrame([compare_game(env_id, n_games, steps, n_envs, seed) for env_id in env_ids])
    print(table.set_index("env_id").T.to_string(float_format="{:.4g}".format))
    Path(csv).parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(csv, index=False)
    return table


def main() -> int:
    parser = CommandLine(prog="atari_parity.py", description=__doc__)
    parser.add_argument("--env", nargs="+", default=GAMES, metavar="ID", help="without frame skip")
    parser.add_argument("--games", type=int, default=200, help="games for the distributions")
    parser.add_argument("--steps", type=int, default=5000, help="steps with equal actions")
    parser.add_argument("--n-envs", type=int, default=4, help="copies of the game at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", default="runs/atari_parity.csv", help="file of the table")
    args = parser.parse()
    parity_study(args.pop("env"), args.pop("games"), **args)
    return 0


if __name__ == "__main__":
    run_command(main)
