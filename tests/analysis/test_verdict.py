"""The verdict in one sentence, and unequal runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sb3_cpp.analysis.results import load_results
from sb3_cpp.analysis.verdict import unequal_runs, verdict
from tests.analysis.synthetic_runs import write_run

RISE = (0.0, 3.0, 6.0, 9.0, 9.0, 9.0)
FALL = (0.0, 6.0, 2.0, 6.0, 6.0, 6.0)
NOTHING = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def write(root: Path, curves: Mapping[str, Sequence[float]], seeds: int = 4) -> Path:
    """Runs of each algorithm around one curve, a little higher for each further seed."""
    for algo, curve in curves.items():
        for seed in range(seeds):
            write_run(root, algo, seed=seed, evaluations=[v * (1 + 0.01 * seed) for v in curve])
    return root


def test_one_algorithm_that_is_best_in_both_is_named_once(tmp_path: Path) -> None:
    write(tmp_path, {"cmdqn": RISE, "dqn": FALL})
    assert verdict(load_results(tmp_path)) == (
        "CautiousMDQN returned most (decided against DQN) and oscillated least (decided against "
        "DQN)."
    )


def test_what_learned_nothing_does_not_oscillate_least(tmp_path: Path) -> None:
    write(tmp_path, {"cmdqn": RISE, "dqn": FALL, "a2c": NOTHING})
    sentence = verdict(load_results(tmp_path))
    assert "oscillated least of those that learned (decided against DQN)." in sentence
    assert "CautiousMDQN returned most (decided against all others)" in sentence


def test_a_lead_within_the_spread_of_the_runs_is_undecided(tmp_path: Path) -> None:
    for seed, (ours, theirs) in enumerate(((1.0, 1.3), (1.5, 0.9), (0.8, 1.0), (1.2, 1.1))):
        write_run(tmp_path, "mdqn", seed=seed, evaluations=[v * ours for v in FALL])
        write_run(tmp_path, "dqn", seed=seed, evaluations=[v * theirs for v in FALL])
    sentence = verdict(load_results(tmp_path))
    assert sentence.count("undecided against") == 2
    assert "decided against MDQN" in sentence or "decided against DQN" in sentence


def test_equal_returns_are_shared(tmp_path: Path) -> None:
    write(tmp_path, {"cmdqn": RISE, "dqn": (0.0, 6.0, 2.0, 9.0, 9.0, 9.0)})
    assert verdict(load_results(tmp_path)).startswith(
        "CautiousMDQN and DQN returned most, and CautiousMDQN oscillated least ("
    )


@pytest.mark.parametrize(
    ("algos", "words"),
    [
        (("cmdqn",), "No verdict: only CautiousMDQN has runs"),
        (("cmdqn", "dqn"), "oscillated least; nothing is decided, because single runs have no"),
    ],
)
def test_without_runs_to_compare_nothing_is_decided(
    tmp_path: Path, algos: tuple[str, ...], words: str
) -> None:
    write(tmp_path, {algo: FALL if algo == "dqn" else RISE for algo in algos}, seeds=1)
    assert words in verdict(load_results(tmp_path))


def test_runs_of_unequal_number_and_length_are_named(tmp_path: Path) -> None:
    write(tmp_path, {"cmdqn": RISE, "cvi": RISE, "dqn": FALL}, seeds=3)
    assert unequal_runs(load_results(tmp_path)) == []
    write_run(tmp_path, "dqn", seed=3, evaluations=FALL)
    write_run(tmp_path, "cvi", seed=3, evaluations=RISE[:3], n_timesteps=200)
    lines = unequal_runs(load_results(tmp_path))
    assert lines[0] == "CartPole: 3 runs of most algorithms, but of DQN 4"
    assert lines[1].startswith("CVI on CartPole, seed 3 is not compared: unequal length: 200 steps")
    assert len(lines) == 2
