"""Train the algorithms where arithmetic is hard: each must learn, or refuse in one line.

    python benchmarks/stress.py -n 1000

Rewards from 1e-3 to 1e30, sparse, NaN; constant and NaN observations; 1 and 500 actions; episodes
of one step and without end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import torch as th
from gymnasium import spaces
from stable_baselines3.common.logger import KVWriter, Logger

from sb3_cpp import ALGORITHMS, RegularizedDQN
from sb3_cpp.analysis.tables import print_table
from sb3_cpp.checks import InvalidArgument, check_number, check_seed
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.deep.health import NonFiniteLoss


@dataclass(frozen=True)
class Scenario:
    """An environment; the good action gives ``reward`` with a probability."""

    n_actions: int = 3
    reward: float = 1.0
    probability: float = 1.0
    observation: str = "random"  # random, constant or nan
    episode: int = 20  # steps; 0 never ends


SCENARIOS = {
    "reward 1e-3": Scenario(reward=1e-3),
    "reward 1": Scenario(),
    "reward 1e2": Scenario(reward=1e2),
    "reward 1e4": Scenario(reward=1e4),
    "huge reward 1e8": Scenario(reward=1e8),
    "huge reward 1e30": Scenario(reward=1e30),
    "sparse reward": Scenario(probability=0.002),
    "no reward": Scenario(reward=0.0),
    "constant observations": Scenario(observation="constant"),
    "1 action": Scenario(n_actions=1),
    "500 actions": Scenario(n_actions=500),
    "1-step episodes": Scenario(episode=1),
    "never-ending episode": Scenario(episode=0),
    "NaN reward": Scenario(reward=math.nan),
    "infinite reward": Scenario(reward=math.inf),
    "NaN observations": Scenario(observation="nan"),
}


# those that can act in StressEnv
DISCRETE = {name: cls for name, cls in ALGORITHMS.items() if issubclass(cls, RegularizedDQN)}


class StressEnv(gym.Env[np.ndarray, int]):
    """The sign of the first number says which of the first two actions is rewarded."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(scenario.n_actions)  # type: ignore[assignment]

    def _observe(self) -> np.ndarray:
        if self.scenario.observation == "constant":
            self._seen = np.ones(4, np.float32)
        else:
            self._seen = self.np_random.normal(size=4).astype(np.float32)
        if self.scenario.observation == "nan" and self.np_random.random() < 0.05:
            self._seen[2] = np.nan
        return self._seen

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        good = action == (self._seen[0] > 0) % self.scenario.n_actions
        given = good and self.np_random.random() < self.scenario.probability
        reward = self.scenario.reward if given else 0.0
        self._steps += 1
        return self._observe(), reward, self._steps == self.scenario.episode, False, {}


class _Watch(KVWriter):
    """Remembers names of logged values that are not finite."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        for key, value in key_values.items():
            not_finite = isinstance(value, float) and not math.isfinite(value)
            if not_finite and not key.startswith("rollout/"):  # returns of the environment itself
                self.found.add(key)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class StressResult:
    """What one algorithm did in one scenario."""

    scenario: str
    algo: str
    outcome: str  # learned, refused, silent NaN or crashed
    note: str = ""  # the refusal, the names of the NaN values, or the error

    @property
    def held(self) -> bool:
        return self.outcome in ("learned", "refused")


def stress_one(scenario: str, algo: str, n_timesteps: int = 1000, seed: int = 0) -> StressResult:
    """Train one algorithm in one scenario."""
    watch, model = _Watch(), None
    try:
        model = DISCRETE[algo](
            "MlpPolicy",
            StressEnv(SCENARIOS[scenario]),
            learning_starts=100,
            buffer_size=1000,
            target_update_interval=50,
            policy_kwargs={"net_arch": [32]},
            seed=seed,
            device="cpu",
        )
        model.set_logger(Logger(None, [watch]))
        model.learn(n_timesteps, log_interval=1)
        model.logger.dump()
    except (NonFiniteLoss, InvalidArgument) as error:
        # a refusal that comes after the weights are lost is none
        found = _not_finite_weights(model)
        return StressResult(
            scenario, algo, "silent NaN" if found else "refused", ", ".join(found) or str(error)
        )
    # anything else is what the study looks for, and must not end it
    except Exception as error:
        return StressResult(scenario, algo, "crashed", f"{type(error).__name__}: {error}")
    found = [*sorted(watch.found), *_not_finite_weights(model)]
    return StressResult(scenario, algo, "silent NaN" if found else "learned", ", ".join(found))


def _not_finite_weights(model: RegularizedDQN | None) -> list[str]:
    state = {} if model is None else model.policy.state_dict()
    return [name for name, value in state.items() if not value.isfinite().all()]


def stress(
    worlds: Sequence[str], algos: Sequence[str], n_timesteps: int, seed: int, out: str | None
) -> int:
    """Train all of them and print a table; returns the exit code: 0 if each learned or refused."""
    check_number("-n", n_timesteps, 1)
    check_seed("--seed", seed)
    for name, known in ((worlds, SCENARIOS), (algos, DISCRETE)):
        for entry in name:
            if entry not in known:
                raise InvalidArgument(f"unknown name {entry!r}; known: {', '.join(known)}")
    path = Path(out) if out is not None else None
    if path is not None and (path.exists() or path.suffix != ".csv"):
        raise InvalidArgument(f"--out must be a new file ending in .csv, got {out!r}")
    th.set_num_threads(1)
    # a name that is given twice counts once
    chosen = list(dict.fromkeys(algos or DISCRETE))
    scenarios = list(dict.fromkeys(worlds or SCENARIOS))
    results = [
        stress_one(scenario, algo, n_timesteps, seed) for scenario in scenarios for algo in chosen
    ]
    table = pd.DataFrame(results)
    wide = table.pivot(index="scenario", columns="algo", values="outcome")
    wide = wide.loc[scenarios, chosen].reset_index()
    title = "Stress: environments that are hard on arithmetic"
    print_table(title, ["scenario", *chosen], wide.to_numpy().tolist(), text=len(wide.columns))
    for note in dict.fromkeys(
        f"{r.scenario}, {r.algo}, {r.outcome}: {r.note}" for r in results if r.note
    ):
        print(note)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        table.to_csv(path, index=False)
        print(f"written: {path}")
    return int(not all(result.held for result in results))


def main() -> int:
    parser = CommandLine(prog="stress.py", description=__doc__)
    parser.add_argument("--worlds", nargs="+", default=[], help="without it: all")
    parser.add_argument("--algos", nargs="+", default=[], help="without it: all")
    parser.add_argument("-n", "--n-timesteps", type=int, default=1000, help="steps of each run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="a new .csv file for the table")
    return stress(**parser.parse())


if __name__ == "__main__":
    run_command(main)
