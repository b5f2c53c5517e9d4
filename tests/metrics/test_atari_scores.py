"""Human-normalised scores."""

import pytest

from sb3_cpp.metrics.atari_scores import SCORES, atari_game, human_normalised_score
from sb3_cpp.training.suites import load_suite


def test_random_is_zero_and_human_is_one() -> None:
    for game, (random, human) in SCORES.items():
        assert human_normalised_score(f"{game}NoFrameskip-v4", random) == 0.0
        assert human_normalised_score(f"ALE/{game}-v5", human) == 1.0


def test_score_by_hand() -> None:
    """Seaquest: random 68.4, human 42054.7."""
    assert human_normalised_score("SeaquestNoFrameskip-v4", 3000.0) == pytest.approx(
        (3000.0 - 68.4) / (42054.7 - 68.4)
    )


def test_the_usual_57_and_all_games_of_the_suite_are_there() -> None:
    assert len(SCORES) == 57
    assert all(atari_game(env) for env in load_suite("atari").envs)


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "MinAtar/Seaquest-v1", "ALE/NoSuchGame-v5", "Seaquest"]
)
def test_other_tasks_have_no_human_score(env: str) -> None:
    assert atari_game(env) is None
    with pytest.raises(ValueError, match="57 Atari games only"):
        human_normalised_score(env, 1.0)
