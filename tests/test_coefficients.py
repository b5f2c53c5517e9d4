"""zeta rules, C_K and the tracker, against hand-derived numbers and for every stream."""

import math
import pickle

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_cpp import coefficients

PAPER = {"alpha": 0.001 / 0.0134, "gamma": 0.99, "temperature": 0.0134}


def c_by_sum(K: int, alpha: float, gamma: float, temperature: float, r_max: float = 1.0) -> float:
    return r_max / temperature * math.fsum(alpha**k * gamma ** (K - k - 1) for k in range(K))


@pytest.mark.parametrize(
    ("alpha", "gamma"),
    [
        (0.0746, 0.99),
        (0.9, 0.99),
        (0.99, 0.99),
        (0.99, 0.9),
        (0.0, 0.9),
        (0.5, 1.0),
        (0.9, 0.9 - 1e-13),
    ],
)
def test_c_by_sum_recursion_and_closed_form_agree(alpha, gamma):
    temperature, r_max = 0.05, 2.0
    c = r_max / temperature  # C_1
    for K in range(1, 200):
        closed = coefficients.policy_change_bound(K, alpha, gamma, temperature, r_max)
        assert closed == pytest.approx(c_by_sum(K, alpha, gamma, temperature, r_max), rel=1e-9)
        assert closed == pytest.approx(c, rel=1e-9)
        c = gamma * c + r_max / temperature * alpha**K


def test_c_with_alpha_equal_gamma_is_the_limit():
    assert coefficients.policy_change_bound(7, 0.9, 0.9, 0.5) == pytest.approx(2 * 7 * 0.9**6)


def test_inverse_c_with_the_papers_numbers():
    # 1/C_K = 0.0134 (gamma - alpha) / gamma^K once alpha^K is negligible
    for K, expected in [(1, 0.0134), (100, 0.034), (300, 0.25), (500, 1.9)]:
        assert 1 / coefficients.policy_change_bound(K, **PAPER) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("alpha", [0.0, 0.0746, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("gamma", [0.5, 0.99, 1.0])
def test_c_and_zeta_are_finite_for_every_k(alpha, gamma):
    for K in [*range(1, 50), 10**3, 10**4, 10**5, 10**6]:
        log_c = coefficients.log_policy_change_bound(K, alpha, gamma, 0.0134)
        assert math.isfinite(log_c)
        assert 0 < coefficients.policy_change_bound(K, alpha, gamma, 0.0134) < math.inf
        for ratio in (0.0, 1e-300, 0.5, 1.0):
            assert 0.0 <= coefficients.dcpp(ratio, log_c) <= 1.0
            assert 0.0 <= coefficients.linear_cpp(ratio, log_c, 0.99) <= 1.0
            assert 0.0 <= coefficients.theorem4_zeta(ratio, log_c, 0.99) <= 1.0


def test_extreme_temperatures_keep_c_within_the_floats():
    assert 0 < coefficients.policy_change_bound(1, 0.5, 0.9, 1e-320, 1e300) < math.inf
    assert 0 < coefficients.policy_change_bound(10**6, 0.5, 0.9, 1e300) < math.inf


def test_error_bound_adds_b():
    # B_3 = (1 - 0.9^3)/(1 - 0.9) * 0.02 / 0.5 = 2.71 * 0.04
    assert coefficients.error_sum(3, 0.9, 0.5, 0.02) == pytest.approx(2.71 * 0.04)
    with_error = coefficients.policy_change_bound(3, 0.2, 0.9, 0.5, error_bound=0.02)
    assert with_error == pytest.approx(
        coefficients.policy_change_bound(3, 0.2, 0.9, 0.5) + 2.71 * 0.04
    )
    assert coefficients.error_sum(5, 1.0, 0.5, 0.1) == pytest.approx(1.0)


def test_k_below_one_is_refused():
    with pytest.raises(ValueError, match="K must be at least 1, got 0"):
        coefficients.policy_change_bound(0, **PAPER)


def test_rules_by_hand():
    g, A = 0.5, 0.8
    assert coefficients.cpi(A, g, r_max=2.0) == pytest.approx(0.5 * 0.8 / 8)
    assert coefficients.cpi(A, g, r_max=2.0, exact=True) == pytest.approx(0.25 * 0.8 / 8)
    assert coefficients.exact_spi(A, 1.5, 2.0, g) == pytest.approx(0.25 * 0.8 / (0.5 * 3))
    assert coefficients.exact_spi(A, 1.5, 2.0, g, exact=True) == pytest.approx(
        0.5 * 0.8 / (0.5 * 3)
    )
    assert coefficients.approximate_spi(A, g) == pytest.approx(0.125 * 0.8 / 2)
    assert coefficients.approximate_spi(A, g, exact=True) == pytest.approx(0.25 * 0.8 / 2)
    assert coefficients.linear_cpp(A, math.log(3.0), g) == pytest.approx(0.125 * 0.8 / 12)
    assert coefficients.linear_cpp(A, math.log(3.0), g, exact=True) == pytest.approx(
        0.25 * 0.8 / 12
    )
    assert coefficients.dcpi(0.6) == pytest.approx(0.15)
    assert coefficients.dcpp(0.6, math.log(3.0)) == pytest.approx(0.2)


def test_theorem4_takes_the_smaller_of_its_two_branches():
    A, g = 0.8, 0.5
    large, small = 3.0, 0.1  # 1 - e^-6 < 3, but 1 - e^-0.2 = 0.181 > 0.1
    assert coefficients.theorem4_zeta(A, math.log(large), g) == pytest.approx(
        0.125 * 0.8 / (4 * (1 - math.exp(-6.0)))
    )
    assert coefficients.theorem4_zeta(A, math.log(small), g) == coefficients.linear_cpp(
        A, math.log(small), g
    )


RULES = {
    "cpi": lambda a: coefficients.cpi(a, 0.9),
    "exact_spi": lambda a: coefficients.exact_spi(a, 0.5 + 0 * a, 0.1 + 0 * a, 0.9),
    "no_change": lambda a: coefficients.exact_spi(a, 0 * a, 0 * a, 0.9),
    "approximate_spi": lambda a: coefficients.approximate_spi(a, 0.9),
    "linear_cpp": lambda a: coefficients.linear_cpp(a, -800.0, 0.9),
    "theorem4": lambda a: coefficients.theorem4_zeta(a, 2.0, 0.9),
    "dcpi": lambda a: coefficients.dcpi(a),
    "dcpp": lambda a: coefficients.dcpp(a, -10.0),
}


@pytest.mark.parametrize("name", RULES)
def test_rules_give_the_same_for_floats_and_tensors_within_bounds(name):
    advantages = [-1.0, 0.0, 1e-12, 0.3, 1.0, 1e9]
    floats = [RULES[name](a) for a in advantages]
    tensor = RULES[name](th.tensor(advantages, dtype=th.float64))
    assert all(0.0 <= z <= 1.0 for z in floats)
    assert floats[:2] == [0.0, 0.0]
    assert floats[-1] > 0.0
    assert tensor.tolist() == pytest.approx(floats, abs=1e-15)


def test_tracker_by_hand():
    tracker = coefficients.AdvantageTracker(rho1=0.5, rho2=0.9)
    tracker.update(th.tensor(1.0), th.tensor(4.0))
    tracker.update(th.tensor(3.0), th.tensor(3.0))
    assert tracker.mean.item() == pytest.approx(0.5 * 1 + 0.5 * 3)
    assert tracker.maximum.item() == pytest.approx(0.9 * 4)
    assert tracker.ratio.item() == pytest.approx(2 / 3.6)


def test_tracker_from_zero_starts_slowly():
    tracker = coefficients.AdvantageTracker(rho1=0.9, rho2=0.999, start="zero")
    tracker.update(th.tensor([1.0, 2.0]), th.tensor([2.0, 2.0]))
    assert tracker.ratio.tolist() == pytest.approx([0.05, 0.1])


def test_printed_minimum_would_open_zeta_for_ever():
    """With the printed ``M <- min(rho2 M, min A)`` m/M would grow without bound."""
    generator = th.Generator().manual_seed(0)
    tracker = coefficients.AdvantageTracker()
    printed = math.inf
    for _ in range(2000):
        advantages = th.rand(64, generator=generator)
        tracker.update(advantages.mean(), advantages.max())
        printed = min(0.9999 * printed, advantages.min().item())
    assert tracker.mean.item() / printed > 100
    assert 0.4 < tracker.ratio.item() < 0.6


@settings(max_examples=200, deadline=None)
@given(
    stream=st.lists(
        st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=5), min_size=1, max_size=30
    ),
    rho1=st.floats(0, 0.999),
    rho2=st.floats(0, 0.9999),
    start=st.sampled_from(["first", "zero"]),
)
def test_ratio_stays_in_the_unit_interval_for_any_stream(stream, rho1, rho2, start):
    tracker = coefficients.AdvantageTracker(rho1, rho2, start)
    assert tracker.ratio.item() == 0.0
    for batch in stream:
        advantages = th.tensor(batch)
        tracker.update(advantages.mean(), advantages.max())
        assert 0.0 <= tracker.ratio.item() <= 1.0


def test_tracker_survives_pickling_to_the_bit():
    tracker = coefficients.AdvantageTracker()
    for x in np.random.default_rng(0).random(20):
        tracker.update(th.tensor(x, dtype=th.float32), th.tensor(2 * x, dtype=th.float32))
    copy = pickle.loads(pickle.dumps(tracker))
    for t in (tracker, copy):
        t.update(th.tensor(0.3), th.tensor(0.4))
    assert th.equal(tracker.mean, copy.mean)
    assert th.equal(tracker.maximum, copy.maximum)


def test_tracker_refuses_an_unknown_start():
    with pytest.raises(ValueError, match="start must be 'first' or 'zero', got 'warm'"):
        coefficients.AdvantageTracker(start="warm")
