"""Measures of learning curves, and statistics of few runs on several tasks."""

from sb3_cpp.metrics.aggregates import (
    Interval,
    Scores,
    iqm,
    iqm_difference,
    iqm_interval,
    mean_difference,
    mean_interval,
    pareto_front,
    performance_profile,
    probability_of_improvement,
)
from sb3_cpp.metrics.atari_scores import human_normalised_score
from sb3_cpp.metrics.learning_curves import (
    DenoisedOscillation,
    Oscillation,
    area_under_curve,
    largest_drawdown,
    oscillation,
    oscillation_of_noise,
    oscillation_without_noise,
)
from sb3_cpp.metrics.significance import (
    holm_correction,
    mann_whitney_p_value,
    permutation_p_value,
    significance_stars,
    welch_p_value,
)

__all__ = [
    "DenoisedOscillation",
    "Interval",
    "Oscillation",
    "Scores",
    "area_under_curve",
    "holm_correction",
    "human_normalised_score",
    "iqm",
    "iqm_difference",
    "iqm_interval",
    "largest_drawdown",
    "mann_whitney_p_value",
    "mean_difference",
    "mean_interval",
    "oscillation",
    "oscillation_of_noise",
    "oscillation_without_noise",
    "pareto_front",
    "performance_profile",
    "permutation_p_value",
    "probability_of_improvement",
    "significance_stars",
    "welch_p_value",
]
