"""A user's mistake is answered with one line on stderr and exit code 2, and nothing is written."""

from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
TRAIN = ("train", "--env", "CartPole-v1")

CASES: list[tuple[tuple[str, ...], str]] = [
    ((*TRAIN, "--algo", "ccp"), "unknown algorithm 'ccp'; did you mean 'cpp'"),
    (("train", "--env", "Cartpole-v1"), "did you mean 'CartPole-v1'"),
    (("train", "--env", "Pendulum-v1", "-n", "100"), "must have a Discrete action space"),
    (("train", "--env", "CartPole-v0"), "-n STEPS"),
    ((*TRAIN, "-params", "learning_rate:1e-3"), "1.0e-3"),
    ((*TRAIN, "-params", "learnin_rate:0.1"), "did you mean 'learning_rate'"),
    ((*TRAIN, "-params", "gamma"), "must be key:value"),
    ((*TRAIN, "-params", "temperature:-1"), "temperature must be"),
    (
        (*TRAIN, "-params", "buffer_size:many"),
        "buffer_size must be a whole number of at least 1, got 'many'",
    ),
    ((*TRAIN, "-i", "nowhere"), "no checkpoint at nowhere"),
    ((*TRAIN, "-n", "-5"), "n_timesteps must be"),
    ((*TRAIN, "--seed", "-1"), "seed must be"),
    ((*TRAIN, "--seed", "9" * 400), "seed must be a number in [0, inf) that fits a float"),
    ((*TRAIN, "-n", "9" * 400), "n_timesteps must be a number in [1, inf) that fits a float"),
    ((*TRAIN, "--seed", "one"), "invalid int value"),
    ((*TRAIN, "--suite", "clasic"), "did you mean 'classic'"),
    ((*TRAIN, "--suite", "missing.yml"), "must be a readable file"),
    ((*TRAIN, "--suite", "bad.yml"), "must be YAML"),
    ((*TRAIN, "--suite", "text.yml"), "1.0e-3"),
    ((*TRAIN, "--suite", "key.yml"), "did you mean 'learning_rate'"),
    ((*TRAIN, "--nonsense"), "unrecognized arguments"),
    ((*TRAIN, "--num-threads", "-1"), "--num-threads must be a whole number of at least 1, got -1"),
    ((*TRAIN, "--num-threads", "0"), "--num-threads must be a whole number of at least 1, got 0"),
    (
        (*TRAIN, "-i", "elsewhere/model.zip", "-params", "gamma:0.5"),
        "-params must not have gamma with -i",
    ),
    (("enjoy", "--play-seed", "-1"), "--play-seed must be a whole number of at least 0, got -1"),
    (("theory", "--seed", "99999999999"), "seed must be below 2**32, got 99999999999"),
    (("enjoy", "--algo", "cpp"), "no trained run at"),
    (("enjoy", "--video", "film.avi"), "must end in .mp4 or .gif"),
    (("enjoy", "--episodes", "0"), "--episodes must be"),
    (("benchmark",), "required: suite"),
    (("benchmark", "clasic"), "did you mean 'classic'"),
    (("benchmark", "classic", "--envs", "CartPole-v2"), "did you mean 'CartPole-v1'"),
    (("benchmark", "classic", "--algos", "dnq"), "did you mean 'dqn'"),
    (("benchmark", "classic", "--seeds", "0"), "--seeds must be"),
    (
        (
            "benchmark",
            "classic",
            "--envs",
            "CartPole-v1",
            "--algos",
            "cpp",
            "-params",
            "temperature:-1",
        ),
        "temperature must be",
    ),
    *(
        ((*command, "-n", "100", "-f", folder), "-f must be a folder, got the file 'bad.yml'")
        for command in (TRAIN, ("benchmark", "classic", "--algos", "dqn"))
        for folder in ("bad.yml", "bad.yml/runs")
    ),
]
TUNE: list[tuple[tuple[str, ...], str]] = [
    (("tune", "--algo", "ppo"), "no search space for 'ppo'"),
    (("tune", "--objective", "fame"), "--objective must be one of"),
    (("tune", "--algo", "mdqn", "--seed", "4294967296"), "--seed must be below 2**32"),
    (("tune", "--trials", "0"), "--trials must be"),
    (("tune", "--storage", "nosuch://x"), "--storage must be a file or a database URL"),
    (("tune", "-params", "alhpa:0.5"), "did you mean 'alpha'"),
    (("tune", "--storage", "bad.yml"), "--storage must be a journal of Optuna, got 'bad.yml'"),
    (
        ("tune", "--storage", "sqlite:///bad.yml"),
        "--storage must be a file or a database URL, got 'sqlite:///bad.yml'",
    ),
]


def check(call: Call, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    (folder / "bad.yml").write_text("envs: [")
    (folder / "text.yml").write_text("envs: {CartPole-v1: {n_timesteps: 10, learning_rate: 1e-3}}")
    (folder / "key.yml").write_text("envs: {CartPole-v1: {n_timesteps: 10, lerning_rate: 0.1}}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    code, _, err = call(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    CASES,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_line(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    check(call, tmp_path, arguments, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    TUNE,
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_in_a_search_is_one_line(
    call: Call, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("optuna", reason="needs the extra tune")
    check(call, tmp_path, arguments, message)


def test_a_missing_wandb_is_one_line(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    check(call, tmp_path, (*TRAIN, "--track"), "pip install 'sb3_cpp[wandb]'")


def test_a_missing_scheduler_is_one_line(call: Call, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="needs the extra cluster")
    grid = (
        "benchmark",
        "classic",
        "--envs",
        "CartPole-v1",
        "--algos",
        "dqn",
        "--seeds",
        "1",
        "-n",
        "100",
    )
    check(call, tmp_path, (*grid, "--dask", "nothing-like-an-address"), "no Dask scheduler at")
