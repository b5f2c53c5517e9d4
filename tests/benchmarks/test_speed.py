"""The speed benchmark runs and counts right. No test looks at a time: those mean nothing on a busy machine."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from stable_baselines3 import DQN

from sb3_cpp import DeepCPP, MoDQN
from sb3_cpp.benchmarks.speed import SpeedSettings, round_table, run_speed, summary_table
from sb3_cpp.benchmarks.speed_limits import acting_flops, gradient_flops
from sb3_cpp.benchmarks.speed_memory import bytes_in_use, footprints, make_filled
from sb3_cpp.benchmarks.speed_tasks import OURS, TASKS
from sb3_cpp.benchmarks.speed_timing import PARTS, Round, Stopwatch
from sb3_cpp.checks import InvalidArgument

SCRIPT = Path(__file__).parents[2] / "scripts" / "speed.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    settings = SpeedSettings(tasks=("cartpole",), algos=("plain", "cpp"), rounds=2, steps=200)
    return run_speed(settings, tmp_path_factory.mktemp("runs") / "speed")


def test_a_tiny_benchmark_writes_its_tables_and_its_picture(folder):
    rounds, summary, parts = (
        pd.read_csv(folder / f"{name}.csv") for name in ("rounds", "summary", "parts")
    )
    assert list(rounds.columns) == [
        *(
            "task",
            "algo",
            "round",
            "steps",
            "wall_s",
            "cpu_s",
            "load",
            "steps_per_s",
            "ratio",
            "cpu_ratio",
        )
    ]
    assert sorted(zip(rounds["round"], rounds.algo)) == [
        (r, a) for r in (1, 2) for a in ("cpp", "dqn", "plain")
    ]
    assert (rounds.steps == 200).all()
    assert list(summary.algo) == ["dqn", "plain", "cpp"]
    expected = "threads rounds steps_per_s ratio ratio_min ratio_max cpu_ratio mflop_per_step peak_gflops limit_steps_per_s"
    assert list(summary.columns) == [
        "task",
        "algo",
        *expected.split(),
        "share_of_limit",
        "hours_5e6",
    ]
    assert set(parts.part) == set(PARTS)
    assert (parts.groupby("part").ms.sum() > 0).all()  # every stopwatch ran
    assert (folder / "speed.png").stat().st_size > 10_000
    assert not (folder / "memory.csv").exists()


def test_a_benchmark_can_be_traced(folder):
    record = yaml.safe_load((folder / "config.yml").read_text())
    assert record["config"]["tasks"] == ["cartpole"]
    assert set(record["provenance"]) == {"command", "commit", "versions", "machine"}
    assert {"processor", "cores", "load_at_start", "torch"} <= set(
        yaml.safe_load((folder / "machine.yml").read_text())
    )


def test_ratios_compare_within_a_round():
    timed = [Round("dqn", 1, 100, 2.0, 2.0, 0.0), Round("cpp", 1, 100, 1.0, 4.0, 0.0)]
    timed += [
        Round("dqn", 2, 100, 8.0, 3.0, 0.0),
        Round("cpp", 2, 200, 4.0, 6.0, 0.0),
    ]  # a slow round, and twice the steps
    table = round_table("cartpole", timed)
    assert table[table.algo == "cpp"].ratio.tolist() == [2.0, 4.0]
    assert table[table.algo == "cpp"].cpu_ratio.tolist() == [0.5, 1.0]
    summary = summary_table(table, {"dqn": 1e6, "cpp": 2e6}, peak=1e9, threads=1).set_index("algo")
    assert summary.ratio["cpp"] == 3.0
    assert summary.limit_steps_per_s["cpp"] == 500.0  # 1e9 / 2e6
    assert summary.share_of_limit["cpp"] == 75.0 / 500.0  # median of 100 and 50 steps a second
    assert summary.hours_5e6["cpp"] == pytest.approx(5e6 / 75 / 3600)


# CartPole, one hidden layer of 8: a forward of one state is 2 (4*8 + 8*2) = 96 operations. Backwards, the weights of both
# layers take as much again and the hidden units 2 * 8*2 = 32; nobody needs the gradient of the observation.
FORWARD, BACKWARD = 96, 96 + 32


@pytest.mark.parametrize(
    ("cls", "forwards", "backwards"),
    # DQN: Q(s), Q-(s'); CPP: and Q-(s); its explicit form: and Q(s'); MoDQN: H(s), H-(s), H-(s')
    [(DQN, 2, 1), (DeepCPP, 3, 1), (OURS["cpp_explicit"], 4, 1), (MoDQN, 5, 2)],
)
def test_operations_of_a_gradient_step_are_those_counted_by_hand(cls, forwards, backwards):
    kwargs = {"policy_kwargs": {"net_arch": [8]}, "learning_starts": 20, "device": "cpu"}
    model = cls("MlpPolicy", "CartPole-v1", buffer_size=100, **kwargs).learn(40)
    assert gradient_flops(model, batch_size=16) == 16 * (forwards * FORWARD + backwards * BACKWARD)
    assert acting_flops(model) == FORWARD


def test_the_nature_network_takes_what_its_layers_say():
    pytest.importorskip("ale_py")
    model = TASKS["atari"].make("plain")
    model.learn(model.learning_starts + 4)
    n_actions = model.action_space.n
    layers = [
        20 * 20 * 32 * 4 * 8 * 8,
        9 * 9 * 64 * 32 * 4 * 4,
        7 * 7 * 64 * 64 * 3 * 3,
        3136 * 512,
        512 * n_actions,
    ]
    forward = 2 * sum(layers)
    assert gradient_flops(model) == 64 * (2 * forward + 2 * forward - 2 * layers[0])
    assert model.train_freq.frequency * model.n_envs == 4
    model.get_env().close()


def test_a_stopwatch_counts_the_inner_of_two(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 7.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    watch = Stopwatch()
    watch.start("outer")
    watch.start("inner")
    watch.stop()
    watch.stop()
    assert watch.seconds == {"outer": 1.0 + 4.0, "inner": 2.0}


def test_memory_is_that_of_the_stored_frames():
    small = 8 + 4 + 4 + 4  # action, reward, done, time-out
    assert bytes_in_use(make_filled("SB3", 400)) == 400 * (8 * 84 * 84 + small)
    frames = (
        1 + 400 + 4
    )  # the black one, one a transition, and the first of each of the 4 episodes of 100 steps
    assert bytes_in_use(make_filled("frames", 400)) == frames * 84 * 84 + 400 * (5 * 4 + small)
    rows = footprints(size=400)
    assert all(row.stream_ms > 0.0 for row in rows)
    sizes = {row.buffer: row.computed_gb for row in rows}
    assert sizes["SB3"] == pytest.approx(1e6 * (8 * 84 * 84 + small) / 1e9)
    assert np.isclose(sizes["frames"], 7.1, atol=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"steps": 3}, "steps must be a whole number of at least 40, got 3"),
        ({"threads": 0}, "threads must be"),
        ({"tasks": ("chess",)}, "tasks must be one of 'atari', 'minatar', 'cartpole', got 'chess'"),
        ({"algos": ("dqn",)}, "algos must be one of"),
        ({"algos": ("cpp", "cpp")}, "algos must be different names"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line(change, message):
    with pytest.raises(InvalidArgument, match=message) as error:
        SpeedSettings(**change)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "flags",
    [
        ["--rounds", "many"],
        ["--tasks", "chess"],
        ["--steps", "-1"],
        ["--fast"],
        ["--atari-env", "Chess-v4"],
    ],
)
def test_a_bad_flag_is_one_line_and_exit_code_2(flags, tmp_path):
    command = [sys.executable, str(SCRIPT), "--out", str(tmp_path / "out"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
