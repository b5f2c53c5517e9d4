"""Hundreds of malformed command lines and YAML files: each is answered with one line and exit code 2, and changes no file."""

import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import ROOT, Script

from sb3_cpp.experiments import runner

NOT_WHOLE = ["", "x", "1.5", "nan", "1e3", "[1]", "0x1f", "½", "--5", "1,000", "None", "1 2"]
NAMES = ["", " ", "cp", "CPP!", "../cpp", "dqn2", "\u00e9", "a" * 300, "--", "[]", "None", "0", "%s%n", "{env}", "*"]
VALUES = {
    "batch_size": ["0", "-1", "many", "1.5", "[1]", "null", "true", "{a: 1}", ".nan"],
    "buffer_size": ["0", "-5", "x", "1.5", "[]", "null"],
    "learning_rate": ["-1", "0", "abc", "lin_x", "lin_-1", "[0.1]", "null", ".inf", "true", "1e-3"],
    "gamma": ["2", "-0.1", "two", "null", "[0.9]", ".nan"],
    "tau": ["-1", "1.5", "x"],
    "train_freq": ["0", "-4", "x", "[1, 2, 3]", "[4, week]", "null", "1.5"],
    "gradient_steps": ["-2", "x", "1.5", "null"],
    "learning_starts": ["-1", "x", "1.5", "null"],
    "target_update_interval": ["0", "-1", "x", "null"],
    "exploration_fraction": ["-0.1", "1.1", "x", "null"],
    "exploration_final_eps": ["-0.1", "2", "x"],
    "max_grad_norm": ["0", "-1", "x", "null"],
    "policy": ["NoPolicy", "5", "null", "[MlpPolicy]", "CnnPolicy"],
    "policy_kwargs": ["5", "[1]", "text", "null", "{net_arch: 5}", "{net_arch: [a]}", "{net_arch: [0]}", "{nonsense: 1}"],
    "policy_kwargs.net_arch": ["x", "[-1]", "[1.5]", "null"],
    "policy_kwargs.activation_fn": ["rleu", "5", "[relu]"],
    "policy_kwargs.optimizer_class": ["adamm", "7"],
    "policy_kwargs.features_extractor_class": ["minatari", "1"],
    "replay_buffer_class": ["framez", "frames", "3"],
    "device": ["gpu", "5", "null", "cuda:x"],
    "n_envs": ["0", "-1", "x", "1.5", "null"],
    "env_kwargs": ["5", "[1]", "text", "{nonsense: 1}", "{render_mode: 5}"],
    "env_kwargs.nonsense": ["1"],
    "max_episode_steps": ["0", "-1", "x", "1.5"],
    "eval_episodes": ["0", "-1", "x", "null"],
    "eval_freq": ["x", "1.5", "[1]", ".inf", ".nan"],
    "save_freq": ["x", "1.5", "[1]", ".inf"],
    "keep_checkpoint": ["maybe", "5", "null"],
    "n_timesteps": ["0", "-1", "x", "1.5", "null", ".inf", "[5]"],
    "alpha": ["1", "-0.1", "x", "null", ".nan"],
    "temperature": ["0", "-1", "x", "null", ".nan"],
    "zeta": ["2", "-1", "dcp", "null", "[1]", ".nan", "true"],
    "rho1": ["1", "-1", "x"],
    "r_max": ["0", "-1", "x", ".nan"],
    "error_bound": ["-1", "x"],
    "projection_coef": ["-1", "x", "null"],
    "form": ["explict", "5", "null"],
    "loss": ["l1", "5", "null"],
    "behaviour": ["greedy", "5", "null"],
    "optimize_memory_usage": ["maybe", "5"],
    "fast": ["maybe", "5"],
    "n_steps": ["0", "-1", "3", "x"],
    "stats_window_size": ["0", "x"],
    "seed": ["1"],
    "env": ["CartPole-v1"],
    "verbose": ["1"],
    "nonsense": ["1"],
    "": ["1"],
    ".": ["1"],
    "a.b.c": ["1"],
}
YAMLS = [
    "", "5", "text", "[1, 2]", "null", "---\n---\n", "envs: [", "envs: {", "envs: 5", "envs: [CartPole-v1]", "\t", "a: b: c", "{", "]",
    "envs:\n\tCartPole-v1: {}", "shared: 5", "shared: [1]", "shared: text", "algos: 5", "algos: {cpp: 5}", "algos: {cpp: [1]}",
    "search: 5", "search: {cpp: 5}", "nonsense: {}", "Envs: {}", "envs: {CartPole-v1: 5}", "envs: {CartPole-v1: {nonsense: 1}}",
    "envs: {CartPole-v1: {algos: 5}}", "envs: {CartPole-v1: {algos: {cpp: 5}}}", "envs: {CartPole-v1: {algos: {cpp: {x: 1}}}}",
    "envs: {CartPole-v1: {suite: nonsense}}", "envs: {CartPole-v1: {suite: 5}}", "envs: {CartPole-v1: {suite: [classic]}}",
    "envs: {CartPole-v1: {learning_rate: 1e-3}}", "envs: {CartPole-v1: {n_timesteps: ten}}", "shared: {1: 2}", "shared: {null: 2}",
    "shared: {[1]: 2}", "shared: {batch_size: 2020-13-45}", "shared: {batch_size: 2020-01-01}", "shared: {batch_size: 1:30}",
    "shared: {gamma: !!python/object/apply:os.system ['touch pwned']}", "shared: !!python/name:os.system", "shared: !foo {a: 1}",
    "shared: &a {policy_kwargs: *a}", "shared: &a [*a]", "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]", "shared: *nobody",
    "[" * 3000, "{a: " * 3000, "shared: {gamma: 0.9, gamma: }", "%YAML 9.9\n---\nshared: {}", "\x00", "\ufffe", "shared: \x07",
    "algos: {cpp: {algorithm: nonsense}}", "algos: {cpp: {algorithm: 5}}", "algos: {cpp: {algorithm: [cpp]}}", "? a\n? b\n: c: d",
]  # fmt: skip


class Accepted(Exception):
    """Training would begin: the input is not malformed."""


def commands(folder: Path) -> Iterator[list[str]]:
    """Malformed command lines; those of random mutations may turn out to be well-formed."""
    train = ["train", "--env", "CartPole-v1", "-n", "10"]
    for flag in ("--seed", "-n", "--eval-freq", "--eval-episodes", "--save-freq"):
        yield from ([*train, flag, value] for value in NOT_WHOLE)
        yield [*train, flag]
    yield from ([*train, "--seed", value] for value in ("-1", "99999999999999999999"))
    yield from ([*train, "-n", value] for value in ("0", "-1"))
    yield from ([*train, "--eval-episodes", value] for value in ("0", "-3"))
    yield from ([*train, "--algo", name] for name in NAMES)
    yield from (["train", "-n", "10", "--env", name] for name in NAMES)
    yield from ([*train, "--suite", name] for name in [*NAMES, "nothing.yml", "."])
    yield from (
        [*train, "-i", path] for path in ["nowhere", "", ".", "text.zip", "empty.zip", "text.txt", "garbage", "a" * 300]
    )
    yield from ([*train, "-params", f"{key}:{value}"] for key, values in VALUES.items() for value in values)
    yield from (
        [*train, "-params", text]
        for text in ["", ":", "gamma", "gamma=0.9", "gamma:[", "gamma:{", "gamma:!!python/x", "[" * 2000]
    )
    yield from ([*train, flag] for flag in ["--nonsense", "-z", "extra", "--algo=", "-params"])
    for number, text in enumerate(YAMLS):
        (folder / f"bad{number}.yml").write_text(text, encoding="utf-8")
        yield [*train, "--suite", f"bad{number}.yml"]
        if number % 4 == 0:
            yield ["benchmark", f"bad{number}.yml", "--seeds", "1"]
            yield ["gridworld", "--config", f"bad{number}.yml"]
            yield ["pendulum", "--config", f"bad{number}.yml"]
    (folder / "bytes.yml").write_bytes(b"\xff\xfe\x00\x80")
    yield [*train, "--suite", "bytes.yml"]
    for flag in ("--seeds", "--first-seed", "--jobs", "-n"):
        yield from (["benchmark", "classic", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["benchmark", name] for name in NAMES)
    yield from (["benchmark", "classic", "--envs", name] for name in NAMES[:8])
    yield from (["benchmark", "classic", "--algos", name] for name in NAMES[:8])
    yield from (
        ["benchmark", "classic", "--envs", "CartPole-v1", "--algos", "cpp", "-params", f"{key}:{values[0]}"]
        for key, values in VALUES.items()
    )
    for flag in ("--episodes", "--seed", "--play-seed"):
        yield from (["enjoy", "--run", "garbage", flag, value] for value in NOT_WHOLE[:6])
    yield from (["enjoy", "--run", name] for name in ["garbage", "nowhere", "", "text.txt", "damaged"])
    yield from (["enjoy", "--video", name] for name in ["film.avi", "film", "", ".mp4.txt"])
    for flag in ("--trials", "-n", "--seeds-per-trial", "--seed", "--top", "--top-seeds", "--heartbeat"):
        yield from (["tune", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["tune", "--env", name] for name in NAMES[:6])
    yield from (["tune", "--algo", name] for name in NAMES[:6])
    yield from (["tune", "--trials", "1", "-params", f"{key}:{values[0]}"] for key, values in VALUES.items())
    yield from (["tune", "--storage", url] for url in ["x://y", "sqlite://", "postgresql://", "://"])
    yield from (["tune", flag, "nonsense"] for flag in ("--objective", "--pruner", "--suite"))
    for script in ("gridworld", "pendulum", "theory"):
        yield from ([script, "--seed", value] for value in NOT_WHOLE[:6])
        yield from ([script, flag] for flag in ("--nonsense", "extra", "--seed"))
    for flag in ("--kills", "--seed", "-n", "--write-kills"):
        yield from (["faults", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["faults", flag, "nonsense"] for flag in ("--tasks", "--algos"))
    yield from (["stress", flag, value] for flag in ("-n", "--seed") for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["stress", flag, "nonsense"] for flag in ("--worlds", "--algos", "--out"))


def mutations(folder: Path, n: int) -> Iterator[list[str]]:
    """A suite of this package with some characters changed, cut out or repeated."""
    rng = np.random.default_rng(0)
    original = (ROOT / "configs" / "classic.yml").read_text(encoding="utf-8")
    for number in range(n):
        text = original
        for _ in range(rng.integers(1, 6)):
            at = int(rng.integers(0, len(text)))
            text = text[:at] + str(rng.choice(list("{}[]:,#-&*!|>'\"%@` \n\tx0"))) + text[at + int(rng.integers(0, 4)) :]
        (folder / f"mutation{number}.yml").write_text(text, encoding="utf-8")
        yield ["train", "--env", "CartPole-v1", "-n", "10", "--suite", f"mutation{number}.yml"]


def garbage(folder: Path) -> None:
    """Files and folders that are not what they seem."""
    (folder / "text.txt").write_text("text")
    (folder / "text.zip").write_text("text")
    (folder / "empty.zip").write_bytes(b"")
    for name, config in {"garbage": "text", "damaged": "config: {suite: a, algo: cpp, env: CartPole-v1}"}.items():
        (folder / name).mkdir()
        (folder / name / "config.yml").write_text(config)
        (folder / name / "model.zip").write_bytes(b"PK\x03\x04 nonsense")


def snapshot(folder: Path) -> dict[str, Any]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def run_here(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    path = str(ROOT / "scripts" / f"{arguments[0]}.py")
    monkeypatch.setattr(sys, "argv", [path, *arguments[1:]])
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        return end.code
    except Accepted:
        return "accepted"
    return "no exit"


@pytest.mark.slow
def test_malformed_input_is_answered_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("optuna", "gymnasium"):
        pytest.importorskip(module)

    def accept(*args: Any, **kwargs: Any) -> None:
        raise Accepted

    monkeypatch.setattr(runner, "_Run", accept)
    monkeypatch.chdir(tmp_path)
    garbage(tmp_path)
    certain, mutated = list(commands(tmp_path)), list(mutations(tmp_path, 120))
    before, refused, wrong = snapshot(tmp_path), 0, []
    for number, arguments in enumerate([*certain, *mutated]):
        try:
            code = run_here(arguments, monkeypatch)
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
        err = capsys.readouterr().err
        after = snapshot(tmp_path)
        if code == "accepted" and number >= len(certain):
            before = after
            continue
        refused += 1
        if code != 2 or len(err.strip().splitlines()) != 1 or "Traceback" in err or after != before:
            changed = sorted(set(after.items()) ^ set(before.items()))[:2]
            wrong.append((arguments, code, err[-300:], changed))
            before = after
    assert not wrong, f"{len(wrong)} of {refused}:\n" + "\n".join(map(str, wrong))
    assert refused >= 500


SAMPLE = [
    ["train", "--env", "CartPole-v1", "-n", "10", "-params", "batch_size:many"],
    ["train", "--suite", "bad.yml"],
    ["enjoy", "--run", "garbage"],
    ["tune", "--trials", "1", "-params", "gamma:2"],
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", SAMPLE, ids=" ".join)
def test_malformed_input_of_a_real_process_is_answered_with_one_line(
    script: Script, tmp_path: Path, arguments: list[str]
) -> None:
    garbage(tmp_path)
    (tmp_path / "bad.yml").write_text("shared: &a [*a]")
    before = snapshot(tmp_path)
    done = script.run(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert snapshot(tmp_path) == before
