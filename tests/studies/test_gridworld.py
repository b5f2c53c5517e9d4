"""The gridworld study: what it writes, what repeats, and what the paper's main claim looks like
on the expected return."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sb3_cpp.metrics import oscillation, welch_p_value
from sb3_cpp.studies.gridworld import (
    ALGORITHMS,
    Curves,
    GridworldSettings,
    check_claims,
    learn,
    run_gridworld,
    summary_table,
    trial_table,
)
from sb3_cpp.threads import torch_threads


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study on disk."""
    return run_gridworld(
        GridworldSettings(trials=4, iterations=5, seed=2), tmp_path_factory.mktemp("study")
    )


def test_study_writes_tables_figures_and_settings(study: Path) -> None:
    names = {
        "caution.png",
        "claims.csv",
        "config.yml",
        "curves.csv",
        "expected.png",
        "rollout.png",
        "summary.csv",
        "tables.md",
        "zeta_danger.png",
    }
    assert {path.name for path in study.iterdir()} == names
    summary = pd.read_csv(study / "summary.csv")
    assert set(zip(summary.algo, summary.series, strict=True)) == {
        (a, s) for a in ALGORITHMS for s in ("rollout", "expected")
    }
    columns = {
        "oscillation_inf",
        "oscillation_inf_sd",
        "oscillation_l2",
        "oscillation_l2_sd",
        "p_inf",
        "p_l2",
        "final_return",
    }
    assert columns | {"danger_visits"} <= set(summary.columns)
    # algorithms, series, trials, iterations
    assert len(pd.read_csv(study / "curves.csv")) == len(ALGORITHMS) * 2 * 4 * 5
    assert "danger visits: CPP < CVI" in set(pd.read_csv(study / "claims.csv").claim)


def test_summary_can_be_computed_again_from_the_curves(study: Path) -> None:
    summary, curves = pd.read_csv(study / "summary.csv"), pd.read_csv(study / "curves.csv")
    for row in summary.itertuples():
        part = curves[(curves.algo == row.algo) & (curves.series == row.series)]
        returns = part.pivot(index="trial", columns="K", values="return").to_numpy()
        assert row.oscillation_l2 == pytest.approx(oscillation(returns).l2.mean())
        assert row.oscillation_inf == pytest.approx(oscillation(returns).inf.mean())
        assert row.final_return == pytest.approx(returns[:, -1].mean())
        assert row.danger_visits == pytest.approx(part.groupby("trial").danger_visits.sum().mean())


def test_a_seed_repeats_its_numbers_and_another_does_not() -> None:
    small = GridworldSettings(trials=3, iterations=4)
    first, again = learn(small, "cpp"), learn(small, "cpp")
    other = learn(GridworldSettings(trials=3, iterations=4, seed=1), "cpp")
    assert np.array_equal(first.returns["rollout"], again.returns["rollout"])
    assert not np.array_equal(first.returns["rollout"], other.returns["rollout"])


def test_first_iteration_is_the_uniform_policy_for_everyone() -> None:
    """The expected return before learning is the same number for every algorithm and trial."""
    small = GridworldSettings(trials=3, iterations=2)
    firsts = np.concatenate([learn(small, algo).returns["expected"][:, 0] for algo in ALGORITHMS])
    assert np.ptp(firsts) < 1e-12


def test_cpp_oscillates_less_than_cvi_on_the_expected_return_and_ends_no_lower() -> None:
    """The paper's main claim for the gridworld, with its 100 trials, at its level of
    significance."""
    settings = GridworldSettings()
    with torch_threads(1):
        cpp, cvi = (learn(settings, algo).returns["expected"] for algo in ("cpp", "cvi"))
    assert oscillation(cpp).l2.mean() < oscillation(cvi).l2.mean()
    assert welch_p_value(oscillation(cpp).l2, oscillation(cvi).l2) < 0.05
    assert cpp[:, -1].mean() >= cvi[:, -1].mean()


def test_a_geometric_mixture_oscillates_less_than_cvi_and_learns_faster_than_cpp() -> None:
    settings = GridworldSettings()
    with torch_threads(1):
        found = {
            algo: learn(settings, algo).returns["expected"]
            for algo in ("cpp", "cvi", "cpp_geometric")
        }
    l2 = {algo: oscillation(curves).l2 for algo, curves in found.items()}
    assert l2["cpp_geometric"].mean() < l2["cvi"].mean()
    assert welch_p_value(l2["cpp_geometric"], l2["cvi"]) < 0.001
    assert found["cpp_geometric"].mean() > found["cpp"].mean()


def curves_with(oscillating: float, final: float, danger: float) -> Curves:
    """Four trials that fall by a given height once and end at a given return."""
    heights = oscillating * np.array([0.99, 1.0, 1.0, 1.01])[:, None]
    returns = np.hstack([heights, np.zeros((4, 1)), np.full((4, 1), final)])
    visits = np.full((4, 3), danger) + np.array([0.0, 0.1, 0.0, 0.1])[:, None]
    return Curves(
        {"rollout": returns, "expected": returns},
        {"rollout": visits, "expected": visits},
        np.ones((4, 3)),
    )


def test_claims_are_judged_by_the_numbers() -> None:
    quiet, wild, same = (
        curves_with(1.0, 5.0, 1.0),
        curves_with(3.0, 4.0, 9.0),
        curves_with(1.0, 5.0, 1.0),
    )
    results = {"cpp": quiet, "cvi": wild, "espi": same, "aspi": quiet, "cpi": quiet}
    verdicts = {c.claim: c.verdict for c in check_claims(trial_table(results))}
    assert verdicts["l2 oscillation: CPP < CVI"] == "reproduces"
    assert verdicts["danger visits: CPP < CVI"] == "reproduces"
    assert verdicts["final return: CPP >= CVI"] == "reproduces"
    assert verdicts["l2 oscillation: E-SPI < CPP"] == "no difference found"
    swapped = {**results, "cpp": wild, "cvi": quiet}
    verdicts = {c.claim: c.verdict for c in check_claims(trial_table(swapped))}
    assert verdicts["l2 oscillation: CPP < CVI"] == "reversed"
    assert verdicts["final return: CPP >= CVI"] == "reversed"


def test_summary_has_no_significance_against_itself() -> None:
    results = {"cpp": curves_with(1.0, 5.0, 1.0), "cvi": curves_with(3.0, 4.0, 9.0)}
    summary = summary_table(trial_table(results)).set_index(["algo", "series"])
    assert summary.p_l2["cvi", "expected"] == pytest.approx(1.0)
    assert summary.p_l2["cpp", "expected"] < 0.001


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"trials": 1}, "trials must be a whole number of at least 2, got 1"),
        ({"trials": 10.5}, "trials must be a whole number of at least 2, got 10.5"),
        ({"gamma": 1.0}, r"gamma must be a number in \(0, 1\), got 1.0"),
        ({"scheme": 2}, "scheme must be one of '1', '1b', '2', got 2"),
        ({"cpp_rule": "dcpp"}, "cpp_rule must be one of"),
        ({"ent_coef": 0.0, "kl_coef": 0.0}, r"kl_coef must be a number in \(0, inf\), got 0.0"),
        ({"danger": 3}, "danger must be a list of cells"),
        ({"regularized": "no"}, "regularized must be true or false, got 'no'"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GridworldSettings(**wrong)
