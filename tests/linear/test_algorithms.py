import zipfile
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.linear import (
    BadObservation,
    GymBatch,
    LinearLearner,
    LinearPolicy,
    LinearQ,
    PendulumBatch,
    RadialBasis,
    Settings,
    SingularEquations,
    iterate,
    load_policy,
    save_weights,
)
from sb3_cpp.linear.rollout import episode_return


class Corridor(gym.Env):
    """Walk right from 0 to 1 in steps of 0.1 for a reward of 1 and the end; left costs 0.1.
    ``nan_at``: a broken sensor."""

    def __init__(self, nan_at: int | None = None) -> None:
        self.observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2, start=1)
        self.nan_at, self.steps = nan_at, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return np.array([0.0], dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert action in (1, 2)
        self.steps += 1
        self.place = max(self.place + (1 if action == 2 else -1), 0)
        place = np.nan if self.steps == self.nan_at else self.place / 10.0
        return (
            np.array([place], dtype=np.float32),
            1.0 if self.place == 10 else -0.1 * (action == 1),
            self.place == 10,
            False,
            {},
        )


def _corridor_learner(n_trials: int, **settings: Any) -> LinearLearner:
    basis = RadialBasis([0.0], [1.0], [11])
    arguments = {"rule": "cvi", "temperature": 0.05, "alpha": 0.5, **settings}
    return LinearLearner(LinearQ(basis, basis.size, 2), Settings(**arguments), n_trials)


@pytest.mark.parametrize(
    "settings",
    [
        {"rule": "cvi"},
        {"rule": "adaptive_cpp"},
        {"rule": "adaptive_cpp", "scheme": "2", "mixture": "geometric"},
        {"rule": "statewise", "scheme": "1"},
    ],
    ids=str,
)
def test_any_gymnasium_environment_with_a_box_and_discrete_actions_is_learned(
    settings: dict[str, Any],
) -> None:
    learner = _corridor_learner(3, **settings)
    returns = [
        i.rollout.returns
        for i in iterate(learner, GymBatch(Corridor, 3), iterations=60, steps=60, seed=0)
    ]
    assert th.stack(returns[-5:]).mean() > 0.9  # straight ahead gives 1
    assert th.stack(returns[:2]).mean() < 0.5
    policy = LinearPolicy(
        learner.q.state_features, learner.q.per_action(learner.next_preferences)[0], 0.05
    )
    assert policy.predict(np.full((4, 1), 0.5, dtype=np.float32))[0].tolist() == [1] * 4
    sampled, memory = policy.predict(np.array([0.5], dtype=np.float32), deterministic=False)
    assert sampled.shape == ()
    assert memory is None


def test_terminal_states_are_worth_nothing_beyond_their_reward() -> None:
    learner = _corridor_learner(1, gamma=0.9)
    for _ in iterate(learner, GymBatch(Corridor), iterations=60, steps=60, seed=0):
        pass
    phi = th.from_numpy(learner.q.state_features(np.full((1, 1, 1), 0.9, dtype=np.float32)))
    last_step = learner.q.values(phi, learner.theta)[0, 0, 1]
    assert float(last_step) == pytest.approx(
        1.0, abs=0.02
    )  # not 1 + 0.9 V(start of the next episode)


def test_mean_return_counts_ended_episodes_and_an_unfinished_first_one() -> None:
    rewards = th.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]])
    ended = th.tensor([[False, True, True, False], [False] * 4])
    assert episode_return(rewards, ended).tolist() == [(3.0 + 3.0) / 2.0, 10.0]


def test_the_same_seed_repeats_the_same_numbers_and_another_does_not() -> None:
    def returns(seed: int) -> list[float]:
        return [
            float(i.rollout.returns)
            for i in iterate(_corridor_learner(1), GymBatch(Corridor), 4, 50, seed)
        ]

    assert returns(0) == returns(0) != returns(1)


def test_printed_delta_gives_espi_the_step_of_cvi() -> None:
    learner = _corridor_learner(2, rule="espi", printed_delta=True)
    zetas = [i.update.zeta for i in iterate(learner, GymBatch(Corridor, 2), 6, 50, 0)]
    assert th.stack(zetas[1:]).min() == 1.0
    cautious = [
        i.update.zeta
        for i in iterate(_corridor_learner(2, rule="espi"), GymBatch(Corridor, 2), 6, 50, 0)
    ]
    assert th.stack(cautious).max() < 0.5


def test_a_nan_observation_is_named_and_what_came_before_is_kept() -> None:
    iterations = iterate(_corridor_learner(1), GymBatch(lambda: Corridor(nan_at=120)), 5, 50, 0)
    assert [next(iterations).update.K for _ in range(2)] == [1, 2]
    with pytest.raises(
        BadObservation, match=r"observation must be finite, got \[nan\] in trial 0 after 20 steps"
    ):
        next(iterations)


def test_a_buffer_that_does_not_determine_the_weights_needs_a_penalty() -> None:
    with pytest.raises(SingularEquations, match="penalty must be positive, got 0"):
        next(iterate(_corridor_learner(1, ridge=0.0), GymBatch(Corridor), 1, 30, 0))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("Pendulum-v1", "action space must be Discrete, got Box"),
        ("FrozenLake-v1", "observation space must be a flat Box"),
    ],
)
def test_other_spaces_are_refused(make: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        GymBatch(make)


def test_an_empty_buffer_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="steps must be a whole number of at least 1, got 0"):
        next(iterate(_corridor_learner(1), GymBatch(Corridor), 1, 0, 0))


def test_features_for_another_number_of_actions_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="3 actions, got 2"):
        next(iterate(_corridor_learner(1), PendulumBatch(1), 1, 10, 0))


def test_statewise_rule_mixes_with_the_chain() -> None:
    with pytest.raises(InvalidArgument, match="scheme must be '1' for rule 'statewise', got '1b'"):
        _corridor_learner(1, rule="statewise")


def test_a_larger_error_lets_the_new_policy_into_fewer_states() -> None:
    shares = []
    for scale in (0.0, 1.0, 1e6):
        learner = _corridor_learner(2, rule="statewise", scheme="1", error_scale=scale)
        updates = [i.update for i in iterate(learner, GymBatch(Corridor, 2), 6, 50, 0)]
        shares.append(float(th.stack([update.zeta for update in updates[1:]]).mean()))
    assert 1.0 >= shares[0] > shares[1] > shares[2] == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scheme", "2"),
        ("gamma", 1.0),
        ("ridge", -1.0),
        ("ridge_centre", "here"),
        ("backups", None),
        ("temperature", 0.0),
    ],
)
def test_settings_that_make_no_sense_here_are_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} must be"):
        Settings(**cast(Any, {"rule": "cvi", "temperature": 0.05, "alpha": 0.5, name: value}))


def test_saved_weights_load_as_a_policy_that_sb3_can_evaluate(tmp_path: Any) -> None:
    basis = RadialBasis([0.0], [1.0], [11])
    right = th.stack((th.zeros(11), th.ones(11)))
    save_weights(tmp_path / "w.npz", basis, th.stack((-right, right)), 0.05)
    policy = load_policy(tmp_path / "w.npz", trial=1)

    class FromZero(gym.ActionWrapper):  # SB3 knows only actions that start from 0
        def __init__(self) -> None:
            super().__init__(Corridor())
            self.action_space = gym.spaces.Discrete(2)

        def action(self, action: Any) -> Any:
            return action + 1

    mean, _ = evaluate_policy(
        policy, gym.wrappers.TimeLimit(FromZero(), 50), n_eval_episodes=2, warn=False
    )  # type: ignore[arg-type]
    assert mean == pytest.approx(1.0)
    with pytest.raises(InvalidArgument, match="trial"):
        load_policy(tmp_path / "w.npz", trial=2)


def test_saved_weights_hold_no_further_array_under_an_older_numpy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before numpy 2.2 savez had no argument allow_pickle and stored it as one more array."""

    def older_savez(file: Path, *args: Any, **arrays: Any) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.asanyarray(values))

    basis = RadialBasis([0.0], [1.0], [11])
    members = {"preferences", "temperature", *basis.arguments}
    save_weights(tmp_path / "now.npz", basis, th.ones(1, 2, 11), 0.05)
    monkeypatch.setattr(np, "savez", older_savez)
    save_weights(tmp_path / "older.npz", basis, th.ones(1, 2, 11), 0.05)
    for name in ("now.npz", "older.npz"):
        with np.load(tmp_path / name) as file:
            assert set(file.files) == members
        assert load_policy(tmp_path / name).temperature == 0.05
