"""The speed benchmark runs and counts right.

No test looks at a time: those mean nothing on a busy machine.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch as th
import yaml
from stable_baselines3 import DQN
from torch import nn

from benchmarks.replay_memory import bytes_in_use, footprints, make_filled
from benchmarks.speed import (
    PARTS,
    TASKS,
    Peer,
    Round,
    SpeedSettings,
    Stopwatch,
    acting_flops,
    gradient_flops,
    peak_rates,
    round_table,
    run_speed,
    summary_table,
    time_parts,
)
from sb3_cpp import CautiousMDQN, DeepCPP, MoDQN
from sb3_cpp.checks import InvalidArgument

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "speed.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tiny = {"rounds": 2, "steps": 200, "eager": True}
    settings = SpeedSettings(tasks=("cartpole",), algos=("plain", "cpp"), **tiny)
    return run_speed(settings, tmp_path_factory.mktemp("runs") / "speed")


def test_a_tiny_benchmark_writes_its_tables(folder):
    names = ("rounds", "summary", "parts", "rates")
    rounds, summary, parts, rates = (pd.read_csv(folder / f"{name}.csv") for name in names)
    columns = "task algo round steps wall_s cpu_s load steps_per_s ratio cpu_ratio"
    assert list(rounds.columns) == columns.split()
    expected = [(r, a) for r in (1, 2) for a in ("cpp", "dqn", "plain")]
    assert sorted(zip(rounds["round"], rounds.algo)) == expected
    assert sorted({(r, a) for r, a in zip(parts["round"], parts.algo)}) == expected
    assert (rounds.steps == 200).all()
    assert list(summary.algo) == ["dqn", "plain", "cpp"]
    columns = "task algo threads rounds steps_per_s ratio ratio_min ratio_max cpu_ratio "
    columns += "mflop_per_step limit_bf16 share_bf16 limit_fp32 share_fp32 hours_5e6 "
    assert list(summary.columns) == [*columns.split(), "parts_over_total"]
    assert set(parts.part) == set(PARTS)
    ran = parts.groupby("part").ms.sum() > 0  # every stopwatch, but for that of compiled steps
    assert set(ran.index[ran]) == set(PARTS) - {"update"}
    best = rates.groupby("precision").gflops.max()
    assert summary.limit_fp32[0] == pytest.approx(1e3 * best["fp32"] / summary.mflop_per_step[0])


def test_a_benchmark_can_be_traced(folder):
    record = yaml.safe_load((folder / "config.yml").read_text())
    assert record["config"]["tasks"] == ["cartpole"]
    assert set(record["provenance"]) == {"command", "commit", "versions", "machine"}
    assert {"processor", "cores", "flags", "load_at_start", "torch"} <= set(
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
    # In parts, DeepCPP's step took 9 + 3 ms where it had taken 10, and 22 + 0 where it had taken 20
    parts = pd.DataFrame(
        [("cpp", 1, "a", 9.0), ("cpp", 1, "b", 3.0), ("cpp", 2, "a", 22.0), ("cpp", 2, "b", 0.0)],
        columns=["algo", "round", "part", "ms"],
    )
    peaks = {"fp32": 1e9, "bf16": 4e9}
    summary = summary_table(table, parts, {"dqn": 1e6, "cpp": 2e6}, peaks, 1).set_index("algo")
    assert summary.ratio["cpp"] == 3.0
    assert summary.limit_fp32["cpp"] == 500.0  # 1e9 / 2e6
    assert summary.share_fp32["cpp"] == 75.0 / 500.0  # median of 100 and 50 steps a second
    assert summary.share_bf16["cpp"] == 75.0 / 2000.0
    assert summary.hours_5e6["cpp"] == pytest.approx(5e6 / 75 / 3600)
    assert summary.parts_over_total["cpp"] == pytest.approx((1.2 + 1.1) / 2)


@pytest.mark.parametrize("algo", ["plain", "cpp", "cmdqn"])
def test_the_parts_are_those_of_the_fast_path(algo, monkeypatch):
    """The path that users run calls neither torch's own step of Adam nor a layer as a module."""
    model = TASKS["cartpole"].make(algo)
    model.learn(model.learning_starts + 40)
    calls = []
    for cls, method in ((th.optim.Adam, "step"), (nn.Linear, "forward")):
        original = getattr(cls, method)

        def counted(*args, original=original, name=f"{cls.__name__}.{method}"):
            calls.append(name)
            return original(*args)

        monkeypatch.setattr(cls, method, counted)
    updates = model._n_updates
    milliseconds = time_parts(model, 400)
    assert model._n_updates == updates + 100
    assert calls == []
    assert min(milliseconds[part] for part in ("target", "losses", "backward", "optimiser")) > 0.0


@pytest.mark.slow
def test_the_parts_are_those_of_the_compiled_step():
    model = TASKS["updates"].make("plain", compile=True)
    model.learn(model.learning_starts + 80)
    flops = gradient_flops(model)
    eager = TASKS["updates"].make("plain")
    eager.learn(eager.learning_starts + 80)
    assert flops == gradient_flops(eager) > 0
    milliseconds = time_parts(model, 400)
    assert model._compiled is not None
    assert milliseconds["update"] > 0.0
    eager_parts = ("target", "losses", "backward", "optimiser", "statistics")
    assert sum(milliseconds[part] for part in eager_parts) < 0.1 * milliseconds["update"]


def test_time_parts_leaves_the_model_as_it_was():
    model = TASKS["cartpole"].make("plain")
    model.learn(model.learning_starts + 40)
    methods = set(vars(model)), set(vars(model.env)), set(vars(model._get_optimizer()))
    time_parts(model, 40)
    assert (set(vars(model)), set(vars(model.env)), set(vars(model._get_optimizer()))) == methods


def test_a_peer_learns_in_a_process_of_another_interpreter(monkeypatch):
    monkeypatch.setattr("benchmarks.speed._peer_python", lambda name: Path(sys.executable))
    peer = Peer("dqn", TASKS["updates"], seed=0)
    timings = [peer.learn(80) for _ in range(2)]
    peer.close()
    assert [timing.steps for timing in timings] == [80, 80]
    assert all(timing.wall_s > 0.0 and timing.cpu_s > 0.0 for timing in timings)
    assert peer._process.returncode == 0


def test_the_limit_is_measured_for_both_libraries_and_precisions():
    rates = peak_rates(seconds=0.01)
    assert set(rates["fp32"]) == {"matrix product", "matrix product (oneDNN)", "convolution"}
    assert set(rates["bf16"]) == {"matrix product", "convolution"}
    assert min(rate for kernels in rates.values() for rate in kernels.values()) > 0.0


# CartPole, one hidden layer of 8: a forward of one state is 2 (4*8 + 8*2) = 96 operations.
# Backwards, the weights of both layers take as much again and the hidden units 2 * 8*2 = 32; nobody
# needs the gradient of the observation.
FORWARD, BACKWARD = 96, 96 + 32


@pytest.mark.parametrize(
    ("cls", "forwards", "backwards"),
    # DQN: Q(s), Q-(s'); CPP: and Q-(s); its explicit form: and Q(s'); MoDQN: H(s), H-(s), H-(s')
    [(DQN, 2, 1), (CautiousMDQN, 3, 1), (DeepCPP, 4, 1), (MoDQN, 5, 2)],
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
        ({"seed": 99999999999}, r"seed must be below 2\*\*32, got 99999999999"),
        ({"tasks": ("chess",)}, "tasks must be one of 'atari', 'minatar', 'cartpole', 'updates', "),
        ({"algos": ("dqn",)}, "algos must be one of"),
        ({"algos": ("cpp", "cpp")}, "algos must be different names"),
        ({"precision": "int8"}, "precision must be one of 'fp32', 'bf16', 'auto', got 'int8'"),
        ({"peers": ("rllib",)}, "peers must be one of 'sbx', got 'rllib'"),
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
        ["--seed", "99999999999"],
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
