"""The bounds against their own definitions: maximum of the quadratic, both branches, the cut-off
at zeta = 1."""

import math

import pytest
import torch as th

from sb3_cpp import coefficients
from sb3_cpp.regularization import kl_divergence, log_boltzmann
from sb3_cpp.tabular import bounds

GAMMA = 0.9


def scalar(value: float) -> th.Tensor:
    return th.tensor(value, dtype=th.float64)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("product", [0.02, 0.5, 30.0])  # the first makes zeta* larger than 1
def test_lemma2_is_the_maximum_of_the_quadratic_over_zeta(exact: bool, product: float) -> None:
    grid = th.linspace(0.0, 1.0, 100_001, dtype=th.float64)
    best = bounds.quadratic_bound(grid, scalar(0.3), product, GAMMA, exact).max().item()
    curvature = GAMMA * product / (2.0 * (1.0 - GAMMA) ** (1 if exact else 2))
    missed = curvature * (0.5e-5) ** 2  # the vertex lies at most half a grid step from a grid point
    assert best <= bounds.lemma2(scalar(0.3), product, GAMMA, exact).item() + 1e-15
    assert best >= bounds.lemma2(scalar(0.3), product, GAMMA, exact).item() - 1.01 * missed - 1e-15


def test_lemma2_has_the_printed_value_where_zeta_is_not_clipped() -> None:
    """((1-gamma) A)^2 / (2 gamma delta DeltaA) with A = 0.3 and delta DeltaA = 30."""
    assert bounds.lemma2(scalar(0.3), 30.0, GAMMA, exact=False).item() == pytest.approx(
        (0.1 * 0.3) ** 2 / (2 * 0.9 * 30.0)
    )


def test_printed_value_is_out_of_reach_where_zeta_is_clipped() -> None:
    """zeta* = 4 and A = 1: the printed A zeta*/2 = 2 is more than A itself; the clipped value is
    1 - 1/8."""
    assert bounds.clipped_improvement(scalar(1.0), scalar(4.0)).item() == pytest.approx(7 / 8)
    assert bounds.clipped_improvement(scalar(1.0), scalar(1.0)).item() == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("rule", "product"), [("espi", 2.0), ("aspi", 40.0), ("cpi", 40.0 / GAMMA), ("cpp", None)]
)
def test_every_rule_picks_the_best_zeta_for_its_product(rule: str, product: float | None) -> None:
    """1-gamma = 0.1, so A-SPI's product is 4/0.1 = 40 and CPI's 40/0.9; E-SPI's is delta DeltaA =
    2 * 1."""
    advantage, temperature, alpha, K = scalar(0.3), 0.5, 0.5, 3
    log_c = coefficients.log_policy_change_bound(K, alpha, GAMMA, temperature)
    coefficient = {
        "espi": coefficients.exact_spi(advantage, scalar(2.0), scalar(1.0), GAMMA, exact=True),
        "aspi": coefficients.approximate_spi(advantage, GAMMA, exact=True),
        "cpi": coefficients.cpi(advantage, GAMMA, exact=True),
        "cpp": coefficients.theorem4_zeta(advantage, log_c, GAMMA, exact=True),
    }[rule]
    assert product is None or product == pytest.approx(
        {
            "espi": 2.0,
            "aspi": bounds.approximate_spi_product(GAMMA),
            "cpi": bounds.cpi_product(GAMMA),
        }[rule]
    )
    product = product or bounds.theorem4_product(K, alpha, GAMMA, temperature)
    promised = bounds.lemma2(advantage, product, GAMMA)
    assert bounds.quadratic_bound(coefficient, advantage, product, GAMMA).item() == pytest.approx(
        promised.item()
    )


@pytest.mark.parametrize(("temperature", "branch"), [(100.0, "C"), (0.05, "1 - exp(-2C)")])
def test_theorem4_takes_the_smaller_of_both_branches(temperature: float, branch: str) -> None:
    """K = 1, so C = 1/temperature: 0.01 is below 1 - exp(-0.02) = 0.0198, and 20 above 1 -
    exp(-40)."""
    c = 1.0 / temperature
    smaller = {"C": c, "1 - exp(-2C)": 1.0 - math.exp(-2.0 * c)}[branch]
    advantage = 1e-4
    expected = (1.0 - GAMMA) ** 3 * advantage**2 / (16.0 * GAMMA * smaller)
    assert bounds.theorem4_improvement(
        scalar(advantage), 1, 0.5, GAMMA, temperature, exact=False
    ).item() == pytest.approx(expected)


def test_lemma3_is_four_b_plus_two_c_and_its_l1_never_exceeds_two() -> None:
    """K = 2, alpha = 1/2, gamma = 0.9, temperature = 2: C = (0.9 + 0.5)/2 = 0.7, B = 1.9 * 0.1/2
    = 0.095."""
    bound = bounds.lemma3(2, 0.5, GAMMA, 2.0, error_bound=0.1)
    assert bound.kl == pytest.approx(4 * 0.095 + 2 * 0.7)
    assert bound.l1 == pytest.approx(min(math.sqrt(2 * 1.78), 2 * math.sqrt(1 - math.exp(-1.78))))
    assert bounds.lemma3(2, 0.5, GAMMA, 1e-3).l1 <= 2.0


def test_errors_can_move_the_policy_further_than_two_c_plus_two_b() -> None:
    """Why C_K + B_K, which the paper prints for the case with errors, does not suffice.

    gamma = alpha = 0, temperature 0.1, rewards (-0.4, 0.4), errors +-0.5 of alternating sign: the
    log-odds of the first action go from 10 (-0.8 - 1) = -18 to 10 (-0.8 + 1) = 2. C_2 = 0 and
    B_2 = 5, so 2 (C + B) = 10 and 4 B = 20.
    """
    reward, error = (
        th.tensor([-0.4, 0.4], dtype=th.float64),
        th.tensor([0.5, -0.5], dtype=th.float64),
    )
    kl = kl_divergence(
        log_boltzmann(reward + error, 0.1), log_boltzmann(reward - error, 0.1)
    ).item()
    printed = 2.0 * coefficients.policy_change_bound(2, 0.0, 0.0, 0.1, error_bound=0.5)
    assert printed == pytest.approx(10.0)
    assert printed < kl <= bounds.lemma3(2, 0.0, 0.0, 0.1, error_bound=0.5).kl


def test_errors_enter_theorem4_as_lemma3_says() -> None:
    """KL <= 2 (C + 2B), so C is replaced by C + 2B, here small enough for the first branch: 8 (C
    + 2B) / (1-gamma)."""
    c, b = 1.4 / 200.0, 1.9 * 0.1 / 200.0
    assert bounds.theorem4_product(2, 0.5, GAMMA, 200.0, error_bound=0.1) == pytest.approx(
        8.0 * (c + 2.0 * b) / 0.1
    )
