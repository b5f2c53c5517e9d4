"""Tests of the difference of two samples: Welch, Mann-Whitney, permutation; Holm's correction."""

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sb3_cpp.checks import require
from sb3_cpp.metrics.aggregates import Scores

# Up to this many splits of the pooled sample the Mann-Whitney test is exact (10 and 10: 184,756)
_MOST_SPLITS = 200_000


def welch_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of Welch's t-test: equal means, without assuming equal variances.

    Two constant samples have no variance to test with: 1 if they are equal, 0 if not.
    """
    a, b = _samples(first, second, least=2)
    if np.ptp(a) == 0.0 and np.ptp(b) == 0.0:
        return float(a[0] == b[0])
    require("analysis", "scipy")
    from scipy import special  # scipy.stats takes half a second to import

    # scipy.stats.ttest_ind(equal_var=False), by hand to spare that import
    error_a, error_b = a.var(ddof=1) / a.size, b.var(ddof=1) / b.size
    t = (a.mean() - b.mean()) / np.sqrt(error_a + error_b)
    freedom = (error_a + error_b) ** 2 / (error_a**2 / (a.size - 1) + error_b**2 / (b.size - 1))
    return float(2.0 * special.stdtr(freedom, -abs(t)))


def mann_whitney_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of the Mann-Whitney U test: neither sample tends to be larger.

    Exact, ties included, for small samples; else the normal approximation with corrections for
    ties and continuity. With 3 against 3 runs it is at least 0.1, with 4 against 4 at least 0.029.
    """
    require("analysis", "scipy")
    from scipy import stats

    a, b = _samples(first, second, least=1)
    if math.comb(a.size + b.size, a.size) > _MOST_SPLITS:
        return float(stats.mannwhitneyu(a, b, alternative="two-sided", method="asymptotic").pvalue)
    # Exact with ties, which scipy's exact method refuses
    # scipy's exact method ignores ties, and returns of few episodes have many
    ranks = stats.rankdata(np.concatenate([a, b]))
    splits = np.array(list(itertools.combinations(range(ranks.size), a.size)))
    distances = np.abs(ranks[splits].sum(axis=1) - a.size * ranks.mean())
    return float(np.mean(distances >= distances[0] - 1e-9))  # the first split is the one observed


def permutation_p_value(
    first: Scores, second: Scores, permutations: int = 9999, seed: int = 0
) -> float:
    """Two-sided p-value of a permutation test stratified by task: no difference on any task.

    The statistic is the difference of the means, averaged over tasks; runs are exchanged within
    their task only. The scores of the tasks must be in comparable units.
    """
    if set(first) != set(second) or not first:
        raise ValueError(f"both must have the same tasks, got {sorted(first)} and {sorted(second)}")
    rng = np.random.default_rng(seed)
    differences = np.zeros(permutations + 1)
    for task in first:
        a, b = _samples(first[task], second[task], least=1)
        values = np.concatenate([a, b])
        # Centred: an offset common to all scores would only add rounding
        pooled = np.tile(values - values.mean(), (permutations + 1, 1))
        pooled[1:] = rng.permuted(pooled[1:], axis=1)  # the first row is the observed one
        differences += pooled[:, : a.size].mean(axis=1) - pooled[:, a.size :].mean(axis=1)
    # The observed split is one of the permutations, so p is never 0; the tolerance counts splits
    # that equal it but for rounding
    distances = np.abs(differences)
    rounding = 1e-12 * max(
        float(np.abs(part[task]).max()) for part in (first, second) for task in first
    )
    return float(np.mean(distances >= distances[0] * (1.0 - 1e-9) - rounding))


def holm_correction(p_values: ArrayLike) -> NDArray[np.float64]:
    """p-values corrected for multiple comparisons (Holm 1979, step-down Bonferroni).

    The smallest of n is multiplied by n, the next by n - 1, and so on; monotone, at most 1.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not np.all((p >= 0.0) & (p <= 1.0)):
        raise ValueError(f"p-values must be a list of numbers in [0, 1], got {p_values!r}")
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(steps, 1.0)
    return corrected


def significance_stars(p_value: float) -> str:
    """``*`` below 0.05 (the paper's level), ``**`` below 0.01, ``***`` below 0.001, or ``n.s.``"""
    return "*" * sum(p_value < level for level in (0.05, 0.01, 0.001)) or "n.s."


def _samples(
    first: ArrayLike, second: ArrayLike, least: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, b = (np.ravel(np.asarray(sample, dtype=np.float64)) for sample in (first, second))
    if min(a.size, b.size) < least:
        raise ValueError(f"each sample needs at least {least} values, got {a.size} and {b.size}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise ValueError("samples must be finite numbers")
    return a, b
