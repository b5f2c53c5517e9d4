import numpy as np
import pytest
import torch as th

from sb3_cpp.linear import SingularEquations, solve_ridge


def _problem(rows: int = 40, columns: int = 6) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return generator.normal(size=(3, rows, columns)), generator.normal(size=(3, rows))


def _solve(
    design: np.ndarray, targets: np.ndarray, penalty: float, centre: np.ndarray | None = None
) -> np.ndarray:
    phi, y = th.from_numpy(design), th.from_numpy(targets)
    gram, right = phi.mT @ phi, (phi.mT @ y.unsqueeze(-1)).squeeze(-1)
    return solve_ridge(
        gram, right, penalty, None if centre is None else th.from_numpy(centre)
    ).numpy()


def test_without_penalty_the_normal_equations_match_lstsq() -> None:
    design, targets = _problem()
    for solution, phi, y in zip(_solve(design, targets, 0.0), design, targets):
        np.testing.assert_allclose(solution, np.linalg.lstsq(phi, y)[0], rtol=1e-10)


@pytest.mark.parametrize("centred", [False, True])
def test_with_penalty_they_match_lstsq_with_extra_rows_for_the_penalty(centred: bool) -> None:
    design, targets = _problem()
    centre = np.random.default_rng(1).normal(size=(3, 6)) if centred else None
    for i, solution in enumerate(_solve(design, targets, 0.7, centre)):
        phi = np.concatenate([design[i], np.sqrt(0.7) * np.eye(6)])
        y = np.concatenate(
            [targets[i], np.sqrt(0.7) * (centre[i] if centre is not None else np.zeros(6))]
        )
        np.testing.assert_allclose(solution, np.linalg.lstsq(phi, y)[0], rtol=1e-10)


def test_unvisited_features_keep_the_centre_and_without_it_are_forgotten() -> None:
    design, targets = _problem()
    design[:, :, 2] = 0.0
    centre = np.full((3, 6), 5.0)
    np.testing.assert_allclose(_solve(design, targets, 1.0, centre)[:, 2], 5.0)
    np.testing.assert_allclose(_solve(design, targets, 1.0)[:, 2], 0.0)


def test_singular_equations_are_an_error_that_names_the_penalty() -> None:
    design, targets = _problem()
    design[1, :, 3] = design[1, :, 0]  # two equal columns in one of three problems
    with pytest.raises(
        SingularEquations, match=r"singular in 1 of 3 regressions.*must be positive, got 0"
    ):
        _solve(design, targets, 0.0)
    assert np.isfinite(_solve(design, targets, 1e-3)).all()


def test_fewer_samples_than_features_are_singular_even_if_rounding_hides_it() -> None:
    design, targets = _problem(rows=4)
    with pytest.raises(SingularEquations):
        _solve(design, targets, 0.0)
