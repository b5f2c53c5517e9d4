"""One-hot features and a buffer that holds every transition as often as it is probable: linear
CPP is tabular CPP."""

import pytest
import torch as th

from sb3_cpp.linear import LinearLearner, LinearQ, OneHot, Settings
from sb3_cpp.linear.rollout import Buffer
from sb3_cpp.tabular.algorithms import RULES, View
from sb3_cpp.tabular.algorithms import Settings as TabularSettings
from sb3_cpp.tabular.algorithms import iterate as iterate_table
from sb3_cpp.tabular.mdp import MDP

STATES, ACTIONS, COPIES, GAMMA = 5, 3, 4, 0.9


def _world() -> tuple[MDP, Buffer]:
    """Each (s, a) has COPIES equally probable successors (some of them equal) and is met COPIES
    times."""
    generator = th.Generator().manual_seed(0)
    successors = th.randint(0, STATES, (STATES, ACTIONS, COPIES), generator=generator)
    transition = th.nn.functional.one_hot(successors, STATES).double().mean(-2)
    reward = 2.0 * th.rand(STATES, ACTIONS, dtype=th.float64, generator=generator) - 1.0
    grid = th.meshgrid(th.arange(STATES), th.arange(ACTIONS), th.arange(COPIES), indexing="ij")
    s, a, copy = (index.flatten()[None] for index in grid)
    phi, next_phi = (
        th.from_numpy(OneHot(STATES)(i.double().numpy()[..., None]))
        for i in (s, successors[s, a, copy])
    )
    buffer = Buffer(phi, a, reward[s, a], next_phi, th.zeros_like(a, dtype=th.bool))
    return MDP(transition[None], reward[None], GAMMA), buffer


VARIANTS = [
    *((rule, scheme, "arithmetic") for rule in sorted(RULES) for scheme in ("1", "1b")),
    *((rule, scheme, "geometric") for rule in sorted(RULES) for scheme in ("1", "1b", "2")),
]


@pytest.mark.parametrize(
    ("rule", "scheme", "mixture"),
    [
        (rule, scheme, mixture)
        for rule, scheme, mixture in VARIANTS
        if (rule, mixture) != ("geometric_spi", "arithmetic")
        and (rule != "statewise" or scheme == "1")
    ],
)
@pytest.mark.parametrize(("backups", "regularized"), [(1, True), (3, False)])
def test_one_hot_features_reproduce_the_tabular_iterates(
    rule: str, scheme: str, mixture: str, backups: int, regularized: bool
) -> None:
    mdp, buffer = _world()
    shared = {
        "rule": rule,
        "temperature": 0.2,
        "alpha": 0.6,
        "scheme": scheme,
        "mixture": mixture,
        "backups": backups,
        "regularized": regularized,
    }
    constants = {"exact_constants": False, "rho1": 0.9, "rho2": 0.99}
    settings = Settings(
        **shared,
        **constants,
        gamma=GAMMA,
        ridge=0.0,
        ridge_centre="zero",
        tracker_start="first",
        error_scale=0.0,  # the residual here is the spread of the successors
    )
    learner = LinearLearner(
        LinearQ(OneHot(STATES), STATES, ACTIONS), settings, n_trials=1, dtype=th.float64
    )
    everywhere = th.eye(STATES, dtype=th.float64)[None]

    uniform = th.full((1, STATES, ACTIONS), 1.0 / ACTIONS, dtype=th.float64).log()
    weights = th.full((1, STATES), 1.0 / STATES, dtype=th.float64)
    updates = iterate_table(
        TabularSettings(**shared, **constants),
        uniform,
        lambda deployed, old: View(mdp, weights, None),
        12,
    )
    for expected in updates:
        found = learner.update(buffer)
        th.testing.assert_close(found.zeta, expected.zeta, rtol=1e-9, atol=1e-14)
        th.testing.assert_close(
            found.evidence.advantage, expected.evidence.advantage, rtol=1e-9, atol=1e-12
        )
        chain = th.log_softmax(learner.q.values(everywhere, learner.next_preferences) / 0.2, dim=-1)
        following = expected.log_deployed if scheme == "2" else expected.log_new
        th.testing.assert_close(chain, following, rtol=0.0, atol=1e-10)
        th.testing.assert_close(
            learner.deployed.log_policy(everywhere), expected.log_deployed, rtol=0.0, atol=1e-10
        )
    assert 0.0 < float(expected.zeta) <= 1.0
