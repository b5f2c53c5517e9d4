"""Numbers that leave their range end a run with its last good weights, the batch, and one line."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from benchmarks.stress import SCENARIOS, stress_one
from sb3_cpp import CheckpointCallback, DeepCPI, DeepCPP
from sb3_cpp.deep import base, health
from sb3_cpp.deep.health import NonFiniteLoss


class Poisoned(gym.Env):
    """Pays a reward that is not a number at one step."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.steps = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        reward = np.nan if self.steps == 130 else 1.0
        return (
            self.np_random.uniform(-1, 1, 2).astype(np.float32),
            reward,
            self.steps % 10 == 0,
            False,
            {},
        )


def test_a_non_finite_loss_leaves_checkpoint_batch_and_one_line(
    algorithm: Any, tmp_path: Path
) -> None:
    model = algorithm.make(env=Poisoned(), policy_kwargs={"net_arch": [8]}, batch_size=32)
    with pytest.raises(NonFiniteLoss) as error:
        model.learn(1000, callback=CheckpointCallback(tmp_path, 40))
    message = str(error.value)
    assert "\n" not in message
    assert "The rewards hold NaN or infinity: repair the environment." in message
    assert f"The batch is in {tmp_path / 'bad_batch.npz'}." in message
    with np.load(tmp_path / "bad_batch.npz") as batch:
        assert np.isnan(batch["rewards"]).any()
        assert batch["observations"].shape == batch["next_observations"].shape == (32, 2)
    assert all(value.isfinite().all() for value in model.policy.state_dict().values())
    resumed = type(model).resume(tmp_path, Poisoned())
    assert 80 <= resumed.num_timesteps < model.num_timesteps
    assert all(value.isfinite().all() for value in resumed.policy.state_dict().values())


@pytest.mark.parametrize("cls", [DeepCPP, DeepCPI])
def test_a_batch_that_was_refused_leaves_no_trace_in_zeta(cls: Any) -> None:
    model = cls(
        "MlpPolicy",
        "CartPole-v1",
        buffer_size=500,
        learning_starts=50,
        target_update_interval=50,
        device="cpu",
    ).learn(200)
    tracked = [model.caution.tracker.mean.clone(), model.caution.tracker.maximum.clone()]
    good = model.replay_buffer.observations.copy()
    model.replay_buffer.observations[:] = np.nan
    with pytest.raises(NonFiniteLoss):
        model.train(1, 32)
    assert [model.caution.tracker.mean, model.caution.tracker.maximum] == tracked
    model.replay_buffer.observations[:] = good
    model.learn(100, reset_num_timesteps=False)
    assert 0.0 < model.iteration_record["m_K"] < np.inf


@pytest.mark.parametrize(
    ("rewards", "observation", "words"),
    [
        (1.0, 1.0, "smaller learning_rate"),
        (1e9, 1.0, "Rewards reach 1e+09: scale or clip"),
        (1.0, np.inf, "VecCheckNan"),
    ],
)
def test_advice_fits_the_batch(rewards: float, observation: float, words: str) -> None:
    column = th.full((2, 1), rewards)
    samples = ReplayBufferSamples(
        th.full((2, 3), observation), column.long(), th.zeros(2, 3), column, column
    )
    bad = {"value": th.tensor(float("nan"))}
    with pytest.raises(NonFiniteLoss, match="non-finite loss \\(value = nan\\)") as error:
        health.refuse("here", bad["value"], bad, [th.tensor(1.0)], samples, None)
    assert words in str(error.value)


def test_figures_are_those_of_the_definitions() -> None:
    log_policy, log_previous = (
        th.tensor([[0.5, 0.5], [0.9, 0.1]]).log(),
        th.tensor([[0.5, 0.5], [0.5, 0.5]]).log(),
    )
    figures = health.figures(th.tensor([[1.0, -2.0], [4.0, 0.0]]), log_policy, log_previous)
    second = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    assert (figures["q_min"], figures["q_max"]) == (-2.0, 4.0)
    assert figures["entropy"] == pytest.approx((np.log(2) + second) / 2)
    assert figures["kl_to_previous"] == pytest.approx((np.log(2) - second) / 2)


@pytest.mark.parametrize(
    ("every", "interval"), [(0, 50), (20, 4)]
)  # (20, 4): each of 20 updates would be an iteration
def test_figures_are_logged_once_per_iteration_and_not_more_often_than_they_may(
    algorithm: Any, monkeypatch: pytest.MonkeyPatch, every: int, interval: int
) -> None:
    monkeypatch.setattr(base, "DIAGNOSE_EVERY", every)
    model = algorithm.make(policy_kwargs={"net_arch": [8]}, target_update_interval=interval)
    seen: list[int] = []
    original = model._record_diagnostics

    def record(*args: Any) -> None:
        seen.append(model._n_updates)
        original(*args)
        assert {
            f"health/{name}" for name in ("q_min", "q_max", "entropy", "kl_to_previous")
        } <= set(model.logger.name_to_value)

    model._record_diagnostics = record
    model.learn(300)
    del model._record_diagnostics
    assert len(seen) > 2
    if every == 0:
        assert len(seen) == model.iteration + 1  # the unfinished one included
    else:
        assert len(seen) < model.iteration / 2
        assert np.diff(seen).min() >= every


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_an_unkind_world_is_learned_in_or_refused(scenario: str) -> None:
    """The study itself is longer: benchmarks/stress.py."""
    results = [
        stress_one(scenario, algo, n_timesteps=260)
        for algo in ("cpp", "cvi", "mdqn", "modqn", "cpi")
    ]
    assert all(result.held for result in results), results
    kind = {"NaN reward", "infinite reward", "NaN observations", "huge reward 1e30"}
    assert {result.outcome for result in results} == {"refused" if scenario in kind else "learned"}
    assert all("\n" not in result.note for result in results)
