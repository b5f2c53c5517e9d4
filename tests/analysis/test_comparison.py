"""Algorithms against each other."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from sb3_cpp.analysis.comparison import (
    averaged_algorithms,
    check_reference,
    choose_reference,
    left_out,
    ordered,
    positions,
    significance_table,
    suite_table,
    task_table,
    unknown_noise,
)
from sb3_cpp.analysis.results import Results, load_results
from sb3_cpp.metrics import (
    holm_correction,
    iqm,
    iqm_interval,
    pareto_front,
    permutation_p_value,
)
from tests.analysis.synthetic_runs import write_grid, write_run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return load_results(write_grid(tmp_path_factory.mktemp("runs"), seeds=4))


def test_order_is_ours_first_then_baselines_then_the_alphabet() -> None:
    assert ordered(["zeta", "ppo", "alpha", "dqn", "cpp", "cvi", "cpp"]) == [
        "cpp",
        "cvi",
        "dqn",
        "ppo",
        "alpha",
        "zeta",
    ]


def test_task_table_is_the_iqm_over_seeds(results: Results) -> None:
    table = task_table(results).set_index(["task", "algo", "measure"])
    runs = results.used()
    values = runs[(runs.task == "CartPole-v1") & (runs.algo == "dqn")].final_return.to_numpy()
    row = table.loc[("CartPole-v1", "dqn", "final_return")]
    assert (row.iqm, row.low, row.high) == pytest.approx(tuple(iqm_interval({"x": values})))
    assert row.runs == 4
    assert ("CartPole-v1", "dqn", "human_normalised") not in table.index


def test_an_interval_of_oscillations_does_not_reach_below_zero(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, evaluations=[0, 9, 1])
    write_run(tmp_path, seed=1, evaluations=[0, 1, 2])
    row = task_table(load_results(tmp_path)).set_index("measure").loc["oscillation_l2"]
    assert row.low == 0.0
    assert row.iqm == pytest.approx(4.0)


def test_suite_table_pools_normalised_values_and_compares_with_the_reference(
    results: Results,
) -> None:
    table = suite_table(results, "cpp").set_index(["algo", "measure"])
    runs = results.used()
    pools = {
        algo: {
            task: group.normalised_return.to_numpy()
            for task, group in runs[runs.algo == algo].groupby("task")
        }
        for algo in ("cpp", "ppo")
    }
    row = table.loc[("ppo", "normalised_return")]
    assert row.iqm == pytest.approx(float(iqm(pools["ppo"])))
    assert row.difference == pytest.approx(float(iqm(pools["cpp"]) - iqm(pools["ppo"])))
    wins = [np.mean(pools["cpp"][task][:, None] > pools["ppo"][task]) for task in pools["cpp"]]
    assert row.better == pytest.approx(np.mean(wins))
    assert np.isnan(table.loc[("cpp", "normalised_return")].better)


def test_less_oscillation_is_better(results: Results) -> None:
    row = (
        suite_table(results, "cpp")
        .set_index(["algo", "measure"])
        .loc[("ppo", "normalised_oscillation_l2")]
    )
    assert row.difference < 0.0
    assert row.better > 0.5


def test_an_algorithm_that_lacks_a_task_is_not_averaged_but_named(tmp_path: Path) -> None:
    write_grid(tmp_path, algos=("cpp", "dqn"))
    write_run(tmp_path, "mdqn", "CartPole-v1", evaluations=np.arange(10.0), episodes=[1.0] * 200)
    results = load_results(tmp_path)
    assert averaged_algorithms(results) == ["cpp", "dqn"]
    assert left_out(results) == {"mdqn": ["Acrobot-v1"]}
    assert set(suite_table(results, "cpp").algo) == {"cpp", "dqn"}
    assert "mdqn" in set(task_table(results).algo)


def test_p_values_are_those_of_scipy_and_holms_family_is_one_measure(results: Results) -> None:
    table = significance_table(results, "cpp")
    runs = results.used()
    rows = table[table.measure == "final_return"]
    assert len(rows) == 4  # two algorithms on two tasks
    for row in rows.itertuples():
        a, b = (
            runs[(runs.task == row.task) & (runs.algo == algo)].final_return.to_numpy()
            for algo in ("cpp", row.algo)
        )
        assert row.welch == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)
        assert row.mann_whitney == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)
    assert rows.welch_holm.tolist() == pytest.approx(holm_correction(rows.welch).tolist())


def test_a_single_run_has_no_p_value_and_no_part_in_the_family(tmp_path: Path) -> None:
    write_grid(tmp_path, algos=("cpp", "dqn"), envs=("CartPole-v1",))
    write_run(tmp_path, "mdqn", "CartPole-v1", evaluations=np.arange(10.0), episodes=[1.0] * 200)
    table = significance_table(load_results(tmp_path), "cpp").set_index(["measure", "algo"])
    assert np.isnan(table.loc[("final_return", "mdqn"), "welch"])
    assert np.isnan(table.loc[("final_return", "mdqn"), "welch_holm"])
    assert (
        table.loc[("final_return", "dqn"), "welch_holm"]
        == table.loc[("final_return", "dqn"), "welch"]
    )


def test_pareto_front_by_hand() -> None:
    points = {
        "high": (9.0, 5.0),
        "smooth": (3.0, 1.0),
        "beaten": (3.0, 2.0),
        "twin": (3.0, 1.0),
        "worst": (1.0, 6.0),
    }
    assert pareto_front(points) == ["high", "smooth", "twin"]


def test_positions_are_stated_for_every_other_algorithm(results: Results) -> None:
    lines = positions(results, "cpp")
    assert [line.split(":")[0] for line in lines] == ["cpp against dqn", "cpp against ppo"]
    row = (
        suite_table(results, "cpp").set_index(["algo", "measure"]).loc[("ppo", "normalised_return")]
    )
    number = f"{row.difference:+.3f} [{row.difference_low:+.3f}, {row.difference_high:+.3f}]"
    start = f"cpp against ppo: higher return ({number}, p = {row.p_holm:.3f}), "
    assert lines[1].startswith(start)
    assert ", less oscillation without noise (squared: -0." in lines[1]
    assert ", smaller drawdown (-0." in lines[1]
    assert positions(results, "ppo")[0].startswith("ppo against cpp: lower return (-")
    assert ", more oscillation without noise (squared: +0." in positions(results, "ppo")[0]
    assert ", larger drawdown (+0." in positions(results, "ppo")[0]


def test_squares_without_noise_are_averaged_before_the_root(results: Results) -> None:
    """Over two tasks of equal weight; the difference and its test are of the squares."""
    measure = "normalised_oscillation_l2_denoised"
    table = suite_table(results, "cpp").set_index(["algo", "measure"])
    runs = results.used()
    squares = {
        algo: {
            task: np.sign(group[measure].to_numpy()) * group[measure].to_numpy() ** 2
            for task, group in runs[runs.algo == algo].groupby("task")
        }
        for algo in ("cpp", "ppo")
    }
    mean = {a: np.mean([np.mean(v) for v in by_task.values()]) for a, by_task in squares.items()}
    for algo, square in mean.items():
        row = table.loc[(algo, measure)]
        assert np.sign(row.iqm) * row.iqm**2 == pytest.approx(square)
        assert row.low < row.iqm < row.high
    row = table.loc[("ppo", measure)]
    assert row.difference == pytest.approx(mean["cpp"] - mean["ppo"])
    assert row.difference_low < row.difference < row.difference_high
    assert row.p == permutation_p_value(squares["cpp"], squares["ppo"])
    assert row.better > 0.5


def test_an_estimate_without_noise_may_be_negative(tmp_path: Path) -> None:
    """Equal evaluations: 8 differences with variance 0.5, half of which noise would show as falls.

    Clipped at 0, as the raw norm is, averages over runs would be too large.
    """
    for seed in range(3):
        write_run(tmp_path, seed=seed, evaluations=[5.0 + seed] * 9)
    row = task_table(load_results(tmp_path)).set_index("measure").loc["oscillation_l2_denoised"]
    assert (row.iqm, row.low, row.high) == pytest.approx((-np.sqrt(2.0),) * 3)


def test_a_run_without_standard_errors_leaves_its_cell_empty(tmp_path: Path) -> None:
    for seed, spread in enumerate(((-0.5, 0.5), (-0.5, 0.5), (0.0,))):
        write_run(tmp_path, seed=seed, evaluations=(0, 3, 1), spread=spread)
    results = load_results(tmp_path)
    assert "oscillation_l2_denoised" not in set(task_table(results).measure)
    assert unknown_noise(results) == {"cpp": ["CartPole-v1"]}


def test_a_difference_that_only_the_interval_decides_says_so(tmp_path: Path) -> None:
    """2 against 2 runs: 6 splits, so that no permutation test can reject at 0.05."""
    for seed in range(2):
        for algo, value in (("cpp", 9.0), ("dqn", 1.0)):
            curve = [0, value, value, value + 0.01 * seed]
            write_run(tmp_path, algo, seed=seed, evaluations=curve)
    line = positions(load_results(tmp_path), "cpp")[0]
    assert line.startswith("cpp against dqn: higher return by the interval alone (+0.")


def test_positions_without_intervals_say_so(tmp_path: Path) -> None:
    line = positions(load_results(write_grid(tmp_path, algos=("cpp", "dqn"), seeds=1)), "cpp")[0]
    assert line.count("undecided") == 3
    assert "no interval from single runs" in line


def test_a_difference_whose_interval_holds_zero_is_undecided(tmp_path: Path) -> None:
    for seed, values in enumerate(((1.0, 5.0), (4.0, 2.0), (3.0, 3.0))):
        for algo, value in zip(("cpp", "dqn"), values):
            write_run(tmp_path, algo, seed=seed, evaluations=[0, value, value, value])
    line = positions(load_results(tmp_path), "cpp")[0]
    assert line.startswith("cpp against dqn: return undecided (-")


def test_the_reference_must_be_there(results: Results) -> None:
    assert choose_reference(results) == "cpp"
    assert choose_reference(results, "dqn") == "dqn"
    assert choose_reference(results, "of another suite") == "cpp"
    with pytest.raises(
        ValueError, match="must be one of the compared algorithms cpp, dqn, ppo, got 'sac'"
    ):
        check_reference(results, "sac")
