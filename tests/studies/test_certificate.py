"""The certificate: it holds, it counts what it says, and it breaks when a guarantee is claimed
that is none."""

from pathlib import Path

import pandas as pd
import pytest

from sb3_cpp.studies import certificate
from sb3_cpp.studies.certificate import CASES, Case, CertificateSettings, run_certificate

SMALL = CertificateSettings(updates=2_000, iterations=10)


def test_nothing_guaranteed_is_violated_and_the_noisy_case_falls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_certificate(SMALL, tmp_path) == 0
    table = pd.read_csv(tmp_path / "certificate.csv").set_index("rule")
    assert (table.updates >= 2_000).all()
    assert (table.violations == 0).all()
    assert (table.falls[table.premise != "never"] == 0).all()
    assert (
        0.3 < table.falls["greedy with noise 0.5"] / table.updates["greedy with noise 0.5"] < 0.55
    )
    assert (table.tightest_slack >= -1e-10).all()
    assert (table.J_reached <= table.J_optimum + 1e-10).all()
    assert {path.name for path in tmp_path.iterdir()} == {
        "certificate.csv",
        "certificate.png",
        "config.yml",
        "progress.csv",
    }
    assert f"written: {tmp_path}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [
        Case("full steps are safe", "always", {"rule": "cvi"}),
        Case("noise is safe", "always", {"rule": "cvi", "noise": 0.5}, hard=True),
        Case("delta is 0, as printed", "always", {"rule": "espi"}, lambda update, group: 0.0),
        Case("a full step can fall", "never", {"rule": "espi"}, must_fall=True),
    ],
    ids=lambda case: case.name,
)
def test_a_false_claim_ends_with_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], wrong: Case
) -> None:
    monkeypatch.setattr(certificate, "CASES", (CASES[0], wrong))
    monkeypatch.setattr(certificate, "_COLOURS", certificate._COLOURS[:2])
    monkeypatch.setattr(certificate, "_DASHES", certificate._DASHES[:2])
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
