"""A trained run plays: loaded without its buffer, with its probabilities, into a film."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from sb3_cpp.checks import InvalidArgument
from sb3_cpp.training.enjoy import action_probabilities, annotate, check_video, enjoy, load_run
from sb3_cpp.training.run import train_run
from tests.training.small_runs import small_config


@pytest.mark.parametrize("algo", ["cpp", "modqn", "dqn", "ppo"])
def test_a_run_is_loaded_without_its_replay_buffer(tmp_path: Path, algo: str) -> None:
    folder = train_run(small_config(algo, n_timesteps=200), tmp_path, show="nothing").folder
    config, model = load_run(folder)
    assert config.algo == algo
    if isinstance(model, OffPolicyAlgorithm):
        assert model.replay_buffer is not None
        assert model.replay_buffer.buffer_size == 1
    probabilities = action_probabilities(model, np.zeros((1, 4), dtype=np.float32))
    if algo == "dqn":
        assert probabilities is None
    else:
        assert probabilities is not None
        assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)


def test_a_film_is_recorded_with_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pygame", reason="pictures of CartPole need the extra video")
    folder = train_run(small_config(n_timesteps=200), tmp_path, show="nothing").folder
    film = tmp_path / "films" / "a.gif"
    assert (
        enjoy("cpp", "CartPole-v1", run=str(folder), episodes=1, video=str(film), show_policy=True)
        == 0
    )
    out = capsys.readouterr().out
    with Image.open(film) as gif:
        frames: int = gif.n_frames  # type: ignore[attr-defined]
        assert frames == int(out.split("episode 1: return ")[1].split(".")[0])
        assert gif.size == (600, 400 + 3 * 18 + 6)
    assert "cpp CartPole-v1 seed 0: return" in out


def test_the_policy_is_printed_without_a_film(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train_run(small_config(n_timesteps=200), tmp_path, show="nothing").folder
    assert (
        enjoy("cpp", "CartPole-v1", root=str(tmp_path), episodes=1, render=False, show_policy=True)
        == 0
    )
    out = capsys.readouterr().out
    assert re.search(r"step 0   zeta \S+: action \d, probabilities \S+ \S+, values \S+ \S+\n", out)
    (folder / "model.zip").unlink()  # an unfinished run plays its checkpoint
    assert enjoy("cpp", "CartPole-v1", root=str(tmp_path), episodes=1, render=False) == 0


def test_what_cannot_be_played_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no trained run at"):
        enjoy("cpp", "CartPole-v1", root=str(tmp_path))
    with pytest.raises(InvalidArgument, match=r"must end in .mp4 or .gif"):
        check_video("film.avi")


def test_a_run_without_evaluations_has_no_best_model(tmp_path: Path) -> None:
    settings = small_config(n_timesteps=200, eval_freq=-1)
    folder = train_run(settings, tmp_path, show="nothing").folder
    with pytest.raises(InvalidArgument, match="has no best model, because the run was not eval"):
        load_run(folder, best=True)


def test_a_video_replaces_nothing_unless_asked_to(tmp_path: Path) -> None:
    film, folder = tmp_path / "film.gif", tmp_path / "folder.gif"
    film.write_bytes(b"another one")
    folder.mkdir()
    with pytest.raises(InvalidArgument, match=r"film.gif already exists; .* or use --force"):
        check_video(film)
    assert check_video(film, force=True) == film
    for force in (False, True):
        with pytest.raises(InvalidArgument, match="--video must be a file, got the folder"):
            check_video(folder, force)


def test_bars_are_as_long_as_the_probabilities() -> None:
    picture = annotate(np.zeros((20, 316, 3), dtype=np.uint8), [0.25, 0.75], action=1, title="")
    rows = [20 + 3 + (a + 1) * 18 + 8 for a in range(2)]
    lengths = [int((picture[row, 110:, 2] != 250).sum()) for row in rows]
    assert lengths == pytest.approx([0.25 * 200, 0.75 * 200], abs=1)
