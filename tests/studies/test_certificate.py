"""The certificate: it holds, it counts what it says, and it breaks when a guarantee is claimed
that is none."""

from pathlib import Path

import pandas as pd
import pytest
import torch as th

from sb3_cpp.studies import certificate
from sb3_cpp.studies.certificate import (
    CASES,
    Case,
    CertificateSettings,
    Tally,
    certify,
    groups,
    quadratic,
    run_certificate,
)
from sb3_cpp.studies.figures import STYLES

SMALL = CertificateSettings(updates=2_000, iterations=10)


def test_nothing_guaranteed_is_violated_and_the_noisy_case_falls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_certificate(SMALL, tmp_path) == 0
    table = pd.read_csv(tmp_path / "certificate.csv").set_index("rule")
    assert (table.updates >= 2_000).all()
    assert (table.violations == 0).all()
    assert (table.falls[table.premise != "never"] == 0).all()
    share = table.falls / table.updates
    assert 0.3 < share["greedy with noise 0.5"] < 0.55
    assert share["CVI, error 0.2"] > 0.1
    assert share["state-wise, error 0.2 unknown"] > 0.05
    assert (table.tightest_slack >= -1e-10).all()
    assert (table.J_reached <= table.J_optimum + 1e-10).all()
    assert {path.name for path in tmp_path.iterdir()} == {
        "certificate.csv",
        "certificate.png",
        "tables.md",
        "config.yml",
        "progress.csv",
    }
    assert f"written: {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        Case("full steps are safe", "always", {"rule": "cvi"}),
        Case("noise is safe", "always", {"rule": "cvi", "noise": 0.5}, hard=True),
        Case("delta is 0, as printed", "always", {"rule": "espi"}, quadratic(lambda u, g: 0.0)),
        Case(
            "half of the error is known",
            "always",
            {"rule": "statewise", "noise": 0.4, "noise_law": "uniform", "error_bound": 0.2},
        ),
        Case("a full step can fall", "never", {"rule": "espi"}, must_fall=True),
    ],
    ids=lambda case: case.name,
)
def test_a_false_claim_ends_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: Case
) -> None:
    monkeypatch.setattr(certificate, "CASES", (CASES[0], wrong))
    assert run_certificate(SMALL, tmp_path) == 1
    assert f"BROKEN by: {wrong.name}" in capsys.readouterr().out


def test_the_number_of_updates_is_a_lower_limit() -> None:
    """5 discounts x 5 pairs of weights x 10 iterations = 250 updates per MDP, so 2001 need 9 MDPs
    per group."""
    assert CertificateSettings(updates=2_001, iterations=10).mdps_per_group == 9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"updates": 0}, "updates must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"gammas": (1.0,)}, r"gammas must be a number in \(0, 1\), got 1.0"),
        ({"weights": ((0.0, 0.0),)}, "weights must be pairs"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CertificateSettings(**wrong)


def test_statewise_caution_reaches_at_least_what_cvi_reaches() -> None:
    """It refuses only steps that lose in some state; with an entropy weight, full steps do."""
    small = CertificateSettings(updates=15_000, iterations=30)
    pairs = ("state-wise", "CVI, zeta = 1"), ("state-wise, error 0.2 known", "CVI, error 0.2")
    tallies = {case.name: Tally(case) for case in CASES if case.name in sum(pairs, ())}
    for group in groups(small):
        for tally in tallies.values():
            noise = th.Generator().manual_seed(0)
            certify(tally.case, group, small.iterations, noise, tally)
    for cautious, full in pairs:
        assert tallies[cautious].falls == 0 < tallies[full].falls
        assert tallies[cautious].row()["J_reached"] >= tallies[full].row()["J_reached"]


def test_every_rule_has_the_colour_of_the_other_studies() -> None:
    """Only greedy improvement with noise is in no other figure."""
    names = {case.name for case in certificate.CASES}
    assert names - certificate._LOOKS.keys() == {"greedy with noise 0.5"}
    assert certificate._LOOKS.keys() <= names
    assert {rule for rule, _ in certificate._LOOKS.values()} <= STYLES.keys()
    looks = [(STYLES[rule].colour, dashes) for rule, dashes in certificate._LOOKS.values()]
    assert len(set(looks)) == len(looks)
