"""Rollouts, their exact expectation, and the model that counts give."""

import pytest
import torch as th

from sb3_cpp.regularization import log_one_hot
from sb3_cpp.tabular import DangerGrid
from sb3_cpp.tabular.gridworld import expected_rollout, model_from_counts, rollout

RIGHT, DOWN = 1, 2


def fixed_route(grid: DangerGrid, first: int, second: int, trials: int = 1) -> th.Tensor:
    """Go ``first`` until the wall, then ``second``."""
    values = th.zeros(trials, grid.n_states, 4, dtype=th.float64)
    for s in range(grid.n_states):
        at_wall = (s % grid.size if first == RIGHT else s // grid.size) == grid.size - 1
        values[:, s, second if at_wall else first] = 1.0
    return log_one_hot(values, smoothing=0.0)


def test_a_certain_route_returns_what_it_costs() -> None:
    """Right along the top and down: 7 steps of -0.1 and +1, no danger; a horizon of 3 sees three
    steps."""
    grid = DangerGrid(success_probability=1.0)
    policy = fixed_route(grid, RIGHT, DOWN)
    for horizon, expected in ((20, 0.3), (8, 0.3), (3, -0.3)):
        episode = rollout(grid, policy, horizon, th.Generator())
        assert episode.returns.item() == pytest.approx(expected)
        assert expected_rollout(grid, policy, horizon)[0].item() == pytest.approx(expected)
        assert episode.counts.sum().item() == min(horizon, 8)


def test_danger_is_counted_once_per_step_into_it() -> None:
    """With danger at (0,1) and (0,2) the same route enters both: -1 twice, 5 steps of -0.1, +1."""
    grid = DangerGrid(success_probability=1.0, danger=((0, 1), (0, 2)))
    policy = fixed_route(grid, RIGHT, DOWN)
    returns, danger_visits = expected_rollout(grid, policy, 20)
    episode = rollout(grid, policy, 20, th.Generator())
    assert episode.danger_visits.item() == pytest.approx(2.0)
    assert danger_visits.item() == pytest.approx(2.0)
    assert returns.item() == pytest.approx(-1.5)


def test_mean_of_many_rollouts_is_the_expectation() -> None:
    """Within 4 standard errors, for the uniform policy with slips."""
    grid, trials = DangerGrid(), 20_000
    policy = th.full((trials, 25, 4), 0.25, dtype=th.float64).log()
    episode = rollout(grid, policy, 20, th.Generator().manual_seed(0))
    expected = expected_rollout(grid, policy[:1], 20)
    for sample, mean in zip((episode.returns, episode.danger_visits), expected):
        assert abs(sample.mean() - mean.item()) <= 4.0 * sample.std() / trials**0.5


def test_model_has_the_frequencies_seen_and_ends_where_nothing_was_tried() -> None:
    """State 11, right: 3 times into danger (-1), once up into 6 (-0.1): P = 3/4, 1/4 and r =
    -3.1/4."""
    grid = DangerGrid()
    counts = th.zeros(1, 25, 4, 25, dtype=th.float64)
    counts[0, 11, RIGHT, 12], counts[0, 11, RIGHT, 6] = 3.0, 1.0
    model = model_from_counts(grid, counts, 0.9)
    assert model.transition[0, 11, RIGHT, [12, 6]].tolist() == pytest.approx([0.75, 0.25])
    assert model.reward[0, 11, RIGHT].item() == pytest.approx(-3.1 / 4)
    assert model.transition[0, 11, DOWN, grid.goal].item() == 1.0
    assert model.reward[0, 11, DOWN].item() == 0.0


def test_model_of_endless_data_is_the_world() -> None:
    grid = DangerGrid()
    model, world = model_from_counts(grid, grid.transition[None] * 1e6, 0.9), grid.mdp(0.9)
    assert th.allclose(model.transition[0], world.transition, atol=1e-12)
    assert th.allclose(model.reward[0, : grid.goal], world.reward[: grid.goal], atol=1e-12)
