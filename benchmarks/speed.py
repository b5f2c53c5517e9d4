"""Measure the speed of SB3's DQN, of our algorithms and of SBX's DQN, in interleaved rounds of the
real `learn()`.

Every algorithm has the same network, batch, train frequency and number of environments. Example:
`python benchmarks/speed.py --tasks cartpole updates --peers sbx --rounds 5`. It needs a machine
that does nothing else.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import pandas as pd
import torch as th
import yaml
from stable_baselines3 import DQN
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPP, MoDQN, RegularizedDQN
from sb3_cpp.analysis.tables import markdown_table
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checks import InvalidArgument, check_choice, check_seed, check_whole_number
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.deep.fast import PRECISIONS
from sb3_cpp.run_folder import machine, open_run_folder
from sb3_cpp.threads import torch_threads
from sb3_cpp.training.environments import MinAtarCNN, find_environment, make_environment

BATCH_SIZE = 64
LONG_RUN = 5_000_000  # steps of the paper's Atari runs
ROOT = Path(__file__).parents[1]

# --- tasks and algorithms -------------------------------------------------------------------------

SB3 = "dqn"  # the reference of every ratio


def _sbx_dqn(*args: Any, **kwargs: Any) -> DQN:
    from sbx import DQN as SBXDQN  # type: ignore[import-not-found]

    return SBXDQN(*args, **kwargs)


# "plain" is DQN's own arithmetic on the fast path
OURS: dict[str, Callable[..., DQN]] = {
    "plain": lambda *args, **kwargs: RegularizedDQN(*args, fast=True, **kwargs),
    "mdqn": MDQN,
    "cvi": CVI,
    "modqn": MoDQN,
    "cpp": DeepCPP,
    "cmdqn": CautiousMDQN,
}
PEERS: dict[str, Callable[..., DQN]] = {"sbx": _sbx_dqn}
PEER_PACKAGES = {"sbx": "sbx-rl"}
ALGORITHMS: dict[str, Callable[..., DQN]] = {SB3: DQN, **OURS, **PEERS}
TITLES = {
    "plain": "plain DQN",
    "mdqn": "MDQN",
    "cvi": "CVI",
    "modqn": "MoDQN",
    "cpp": "DeepCPP",
    "cmdqn": "CautiousMDQN",
    "sbx": "SBX's DQN",
}


@dataclass(frozen=True)
class Task:
    """An environment with a network and a ratio of gradient steps to environment steps.

    Exploration is at 0.05 throughout: acting costs what it costs during most of a long run.
    """

    name: str
    env: str
    n_envs: int
    threads: int  # of torch
    steps: int  # environment steps of one measurement
    warm_up: int  # gradient steps before the first measurement
    policy: str
    train_freq: int = 4  # environment steps between two calls of `train`
    gradient_steps: int = 1  # of one call of `train`
    settings: dict[str, Any] = field(default_factory=dict)  # of every constructor

    def make(self, algo: str, same_env: bool = False, seed: int = 0, **own: Any) -> DQN:
        """A model as its users have it.

        :param algo: a name of ALGORITHMS
        :param same_env: give SB3's DQN our Atari environment and buffer
        :param seed: of the model and the environment
        :param own: arguments that only our algorithms have
        """
        ours = algo in OURS or same_env
        settings = {**self.settings, **(own if algo in OURS else {})}
        if self.is_atari and ours:
            settings["replay_buffer_class"] = FrameReplayBuffer
        return ALGORITHMS[algo](
            self.policy,
            self._environment(ours, seed),
            batch_size=BATCH_SIZE,
            train_freq=self.train_freq // self.n_envs,  # SB3 counts steps of the whole vector
            gradient_steps=self.gradient_steps,
            learning_starts=10 * BATCH_SIZE,
            exploration_initial_eps=0.05,
            exploration_final_eps=0.05,
            seed=seed,
            device="cpu",
            **settings,
        )

    @property
    def is_atari(self) -> bool:
        return self.name == "atari"

    def check(self) -> None:
        """Refuse an unknown game, or one that would skip frames twice in SB3's environment."""
        if self.is_atari and importlib.util.find_spec("ale_py") is None:
            raise InvalidArgument("the task atari needs a package: pip install 'sb3_cpp[atari]'")
        find_environment(self.env)
        if self.is_atari:
            from sb3_cpp.atari import check_frame_skip

            check_frame_skip(self.env)

    def _environment(self, ours: bool, seed: int) -> VecEnv:
        if not self.is_atari:
            return make_environment(self.env, self.n_envs, seed)
        self.check()  # also registers the games
        if ours:
            from sb3_cpp.atari import make_atari_vec_env

            return make_atari_vec_env(self.env, self.n_envs, seed)
        envs = make_atari_env(self.env, self.n_envs, seed, vec_env_cls=DummyVecEnv)
        return VecFrameStack(envs, n_stack=4)


def _cartpole(name: str, net_arch: list[int], **kwargs: Any) -> Task:
    return Task(
        name=name,
        env="CartPole-v1",
        n_envs=1,
        threads=1,
        warm_up=200,
        policy="MlpPolicy",
        settings={
            "policy_kwargs": {"net_arch": net_arch},
            "buffer_size": 50_000,
            "learning_rate": 1e-3,
            "target_update_interval": 500,
        },
        **kwargs,
    )


_TASKS = (
    Task(
        name="atari",
        env="BreakoutNoFrameskip-v4",
        n_envs=4,
        threads=2,
        steps=800,
        warm_up=20,
        policy="CnnPolicy",
        settings={"buffer_size": 10_000, "learning_rate": 1e-4, "target_update_interval": 8000},
    ),
    Task(
        name="minatar",
        env="MinAtar/Breakout-v1",
        n_envs=1,
        threads=1,
        steps=4000,
        warm_up=200,
        policy="CnnPolicy",
        settings={
            "policy_kwargs": {"features_extractor_class": MinAtarCNN, "net_arch": []},
            "buffer_size": 100_000,
            "learning_rate": 2.5e-4,
            "target_update_interval": 1000,
        },
    ),
    _cartpole("cartpole", [64, 64], steps=8000),
    # The updates per step that tuned DQN agents have on small tasks
    _cartpole("updates", [64, 64], steps=2400, train_freq=8, gradient_steps=8),
    _cartpole("updates256", [256, 256], steps=1600, train_freq=8, gradient_steps=8),
    _cartpole("bursts", [256, 256], steps=2560, train_freq=256, gradient_steps=128),
)
TASKS = {task.name: task for task in _TASKS}
# SBX knows no feature extractors but its own
PEER_TASKS = {"sbx": ("atari", "cartpole", "updates", "updates256", "bursts")}


@dataclass(frozen=True)
class SpeedSettings:
    """What is measured; the command line explains each argument."""

    tasks: tuple[str, ...] = ("atari", "minatar", "cartpole")
    algos: tuple[str, ...] = tuple(OURS)
    peers: tuple[str, ...] = ()
    rounds: int = 5
    # None: the task's own number
    steps: int | None = None
    threads: int | None = None
    atari_env: str = TASKS["atari"].env
    same_env: bool = False
    eager: bool = False
    precision: str = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("tasks", TASKS), ("algos", OURS), ("peers", PEERS)):
            values = getattr(self, name)
            for value in values:
                check_choice(name, value, choices)
            if len(set(values)) < max(len(values), name != "peers"):
                given = " ".join(values) or "none"
                raise InvalidArgument(f"{name} must be different names, at least one, got {given}")
        check_whole_number("rounds", self.rounds, 1)
        check_seed("seed", self.seed)
        check_choice("precision", self.precision, PRECISIONS)
        for name, low in (("steps", 40), ("threads", 1)):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), low)

    def task(self, name: str) -> Task:
        given = {"steps": self.steps, "threads": self.threads}
        changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        if TASKS[name].is_atari:
            changes["env"] = self.atari_env
        return replace(TASKS[name], **changes)


# --- peers: the same measurements in a process of another Python environment ----------------------


class Peer:
    """An algorithm in an environment of its own: a process that learns when asked and times itself.

    The environment sees this one's packages, so that SB3, torch and gymnasium are the same.
    """

    def __init__(self, name: str, task: Task, seed: int) -> None:
        python = _peer_python(name)
        command = f"from benchmarks.speed import serve_peer; serve_peer({name!r})"
        settings = {"task": task.name, "env": task.env, "threads": task.threads, "seed": seed}
        # XLA has no switch for the number of its threads but this one
        flags = f"--xla_cpu_multi_thread_eigen={'true' if task.threads > 1 else 'false'}"
        self._process = subprocess.Popen(
            [str(python), "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        )
        self._ask(settings)

    def learn(self, steps: int) -> "Timing":
        return Timing(**self._ask(steps))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the process of a peer ended; its error stands above")
        return json.loads(answer)


def serve_peer(name: str) -> None:
    """The other side of Peer: the first line holds the settings, each further one a step count."""
    requests, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers
    settings = json.loads(requests.readline())
    threads = settings["threads"]
    if hasattr(os, "sched_setaffinity"):
        # JAX takes every core it sees, whatever the number of torch's threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:])
    task = replace(TASKS[settings["task"]], env=settings["env"])
    with torch_threads(threads):
        model = task.make(name, seed=settings["seed"])
        warm_up(model, task)
        print("true", file=answers, flush=True)
        for line in requests:
            print(json.dumps(time_learning(model, int(line))._asdict()), file=answers, flush=True)


def _peer_python(name: str) -> Path:
    """Interpreter of the peer's environment, which is made when it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sb3_cpp"
    folder = cache / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"installing {PEER_PACKAGES[name]} into {folder}", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
    paths = [path for path in sys.path if path.endswith("site-packages")]
    (target,) = folder.glob("lib/python*/site-packages")
    (target / "parent.pth").write_text("\n".join(paths), encoding="utf-8")
    if not ready.exists():
        install = [str(python), "-m", "pip", "install", "--quiet", PEER_PACKAGES[name]]
        if subprocess.run(install, check=False).returncode != 0:
            raise InvalidArgument(f"peers: {PEER_PACKAGES[name]} could not be installed, see above")
        ready.touch()
    return python


# --- timing ---------------------------------------------------------------------------------------


class Timing(NamedTuple):
    """One call of `learn`."""

    steps: int
    wall_s: float
    cpu_s: float


class Round(NamedTuple):
    """One measurement: how long one model's `learn` took in one round."""

    algo: str
    round: int
    steps: int
    wall_s: float
    cpu_s: float
    load: float  # processes that wanted to run, on average over the last minute


def warm_up(model: DQN, task: Task) -> None:
    """Learn past the random start and the first gradient steps, which allocate and compile."""
    model.learn(model.learning_starts + task.warm_up * task.train_freq // task.gradient_steps)


def time_learning(model: DQN, steps: int) -> Timing:
    before = model.num_timesteps
    wall, cpu = time.perf_counter(), time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Timing(model.num_timesteps - before, wall, cpu)


class Stopwatch:
    """Adds up time by name; a nested measurement counts for the inner name only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    def start(self, name: str) -> None:
        self._turn()
        self._open.append(name)

    def stop(self) -> None:
        self._turn()
        self._open.pop()

    def _turn(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed; what runs while acting counts as acting."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if "acting" in self._open:
                return function(*args, **kwargs)
            self.start(name)
            try:
                return function(*args, **kwargs)
            finally:
                self.stop()

        return timed


PARTS = (
    "environment",
    "acting",
    "storing",
    "sampling",
    "update",  # the compiled gradient step, in place of the next five
    "target",
    "losses",
    "backward",
    "optimiser",
    "statistics",
    "rest",
)


def timed_calls(model: DQN) -> list[tuple[Any, str, str]]:
    """(owner, method, part) of what is timed."""
    # Only methods of the model, of its environment and of its buffer are wrapped: a hook on a
    # network or a changed `step` of torch's optimiser would switch off the fast path of our
    # algorithms, and the parts would describe a run that no user has. SB3's DQN has no other path.
    optimizer: Any = model.policy.optimizer
    calls: list[tuple[Any, str, str]] = [
        (model.env, "step", "environment"),
        (model, "_sample_action", "acting"),
        (model, "_store_transition", "storing"),
        (model.replay_buffer, "sample", "sampling"),
        (th.Tensor, "backward", "backward"),
        (nn.utils, "clip_grad_norm_", "optimiser"),
        (nn.utils, "get_total_norm", "optimiser"),
        (nn.utils, "clip_grads_with_norm_", "optimiser"),
    ]
    if isinstance(model, RegularizedDQN):
        optimizer = model._get_optimizer()
        calls += [
            (model, "_make_batch", "sampling"),
            (model, "_target", "target"),
            (model, "_losses", "losses"),
            (model, "_statistics", "statistics"),
        ]
        if model._compiled is not None:
            calls += [(model._compiled, name, "update") for name in ("start", "_compiled", "read")]
    else:
        calls += [(model.q_net_target, "forward", "target"), (model.q_net, "forward", "losses")]
    return [*calls, (optimizer, "step", "optimiser"), (optimizer, "zero_grad", "optimiser")]


def time_parts(model: DQN, steps: int) -> dict[str, float]:
    """Milliseconds of one environment step by part, from a run of its own."""
    watch = Stopwatch()
    with ExitStack() as stack:
        for owner, method, part in timed_calls(model):
            timed = watch.around(part, getattr(owner, method))
            stack.enter_context(patch.object(owner, method, timed))
        before = model.num_timesteps
        watch.start("rest")
        model.learn(steps, reset_num_timesteps=False)
        watch.stop()
    steps = model.num_timesteps - before
    return {part: 1000.0 * watch.seconds[part] / steps for part in PARTS}


def time_rounds(
    models: Mapping[str, DQN | Peer], steps: int, rounds: int
) -> tuple[list[Round], pd.DataFrame]:
    """In each round each model learns for `steps` steps, then for a quarter of them in parts.

    :return: the measurements, and a row (algo, round, part, ms) per part
    """
    results, parts = [], []
    names = list(models)
    for r in range(rounds):
        # the order rotates, so that a drift of the machine favours no algorithm
        first = r % len(names)
        for name in names[first:] + names[:first]:
            model = models[name]
            if isinstance(model, Peer):
                timing = model.learn(steps)
            else:
                timing = time_learning(model, steps)
                milliseconds = time_parts(model, max(steps // 4, 40))
                parts += [(name, r + 1, part, ms) for part, ms in milliseconds.items()]
            results.append(Round(name, r + 1, *timing, os.getloadavg()[0]))
        print(f"round {r + 1} of {rounds}", file=sys.stderr)
    return results, pd.DataFrame(parts, columns=["algo", "round", "part", "ms"])


# --- the start: what compiling costs --------------------------------------------------------------


def first_updates(task: str, algo: str, compile: bool) -> float:
    """Seconds from the constructor to the first compiled update (which is the second one)."""
    chosen = TASKS[task]
    with torch_threads(chosen.threads):
        start = time.perf_counter()
        model = chosen.make(algo, compile=compile)
        model.learn(model.learning_starts + 2 * chosen.train_freq)
        return time.perf_counter() - start


def markdown_start(table: pd.DataFrame) -> str:
    """The seconds to the first updates."""
    rows = [
        [row.task, TITLES[str(row.algo)], *(f"{s:.1f}" for s in (row.eager, row.cold, row.warm))]
        for row in table.itertuples()
    ]
    return markdown_table(["task", "algorithm", "eager", "empty cache", "warm cache"], rows, text=2)


def run_start(settings: "SpeedSettings", out: str | Path, force: bool) -> Path:
    """Measure the start of all tasks and algorithms; write and print the table."""
    folder = open_run_folder(out, {**asdict(settings), "start": True}, force)
    table = start_table(settings)
    table.to_csv(folder / "start.csv", index=False)
    (folder / "table.md").write_text(markdown_start(table) + "\n", encoding="utf-8")
    print(table.to_string(index=False, float_format=_significant))
    return folder


def start_table(settings: SpeedSettings) -> pd.DataFrame:
    """Seconds to the first updates, each in a process of its own: eager, compiled with an empty
    cache on disk, and compiled once more."""
    rows = []
    for task in settings.tasks:
        for algo in settings.algos:
            row: dict[str, Any] = {"task": task, "algo": algo}
            with TemporaryDirectory() as cache:
                for name in ("eager", "cold", "warm"):
                    call = f"first_updates({task!r}, {algo!r}, {name != 'eager'})"
                    command = f"from benchmarks.speed import first_updates; print({call})"
                    done = subprocess.run(
                        [sys.executable, "-c", command],
                        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache},
                        cwd=ROOT,
                        check=True,
                        capture_output=True,
                        text=True,
                    )
                    row[name] = float(done.stdout.split()[-1])
            rows.append(row)
    return pd.DataFrame(rows)


# --- the limit: the arithmetic of a step against the best rate of the machine ---------------------


def gradient_flops(model: DQN, batch_size: int = BATCH_SIZE) -> int:
    """Operations of the matrix products and convolutions of one gradient step of a learnt model."""
    # Counted by torch during an eager step, extra forwards of an algorithm included. The model must
    # have learnt before, because the first step of an iteration also measures gradients.
    with (
        FlopCounterMode(display=False) as counter,
        patch.object(model, "_compile_now", False, create=True),
    ):
        model.train(1, batch_size)
    return counter.get_total_flops()


def acting_flops(model: DQN) -> int:
    """Operations of choosing the greedy actions for all environments once."""
    with FlopCounterMode(display=False) as counter:
        model.policy.predict(model._last_obs, deterministic=True)  # type: ignore[arg-type]
    return counter.get_total_flops()


def flops_per_step(model: DQN, task: Task) -> float:
    """Operations of one environment step: its share of gradient steps and of acting."""
    updates = task.gradient_steps / task.train_freq
    return gradient_flops(model) * updates + acting_flops(model) / model.n_envs


def peak_rates(seconds: float = 0.2) -> dict[str, dict[str, float]]:
    """Operations a second by precision and kernel, at the present number of threads."""
    # torch multiplies float32 matrices by MKL, which may run at half width on processors of another
    # make, and convolves by oneDNN, which can also multiply: the limit is the best of all.
    rates: dict[str, dict[str, float]] = {}
    for precision, dtype in (("fp32", th.float32), ("bf16", th.bfloat16)):
        a, b = th.randn(1024, 1024).to(dtype), th.randn(1024, 1024).to(dtype)
        x, w = th.randn(64, 64, 28, 28).to(dtype), th.randn(64, 64, 3, 3).to(dtype)
        x, w = (t.contiguous(memory_format=th.channels_last) for t in (x, w))
        calls = {
            "matrix product": (2 * 1024**3, partial(th.mm, a, b)),
            "convolution": (2 * 64 * 28 * 28 * w.numel(), partial(F.conv2d, x, w, padding=1)),
        }
        if precision == "fp32" and th.backends.mkldnn.is_available():
            linear = partial(th.ops.aten.mkldnn_linear, a.to_mkldnn(), b.to_mkldnn(), None)
            calls["matrix product (oneDNN)"] = (2 * 1024**3, linear)
        with th.no_grad():
            rates[precision] = {
                name: flops / _best_time(call, seconds) for name, (flops, call) in calls.items()
            }
    return rates


def _best_time(call: Callable[[], object], seconds: float) -> float:
    call()  # the first call allocates and chooses a kernel
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def processor_flags() -> list[str]:
    """Vector instructions of the processor, on which speeds and their ratios depend."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                kinds = ("avx", "amx", "fma", "f16c", "sse4_2", "asimd", "sve", "bf16")
                return sorted(flag for flag in line.split() if flag.startswith(kinds))
    return [th.backends.cpu.get_cpu_capability()]


# --- tables ---------------------------------------------------------------------------------------


# A task's tables: a row per measurement, per algorithm, per part of a step, per kernel
TABLES = ("rounds", "summary", "parts", "rates")


def measure_task(task: Task, settings: SpeedSettings) -> dict[str, pd.DataFrame]:
    """All models in this process, and peers beside it; warmed up, then timed round by round."""
    peers = [name for name in settings.peers if task.name in PEER_TASKS[name]]
    names = [SB3, *settings.algos, *peers]
    # As in long runs by default: networks of images are not compiled
    compile = not settings.eager and not task.is_atari
    own = {"compile": compile, "precision": settings.precision}
    with torch_threads(task.threads):
        models: dict[str, Any] = {}
        for name in names:
            if name in PEERS:
                models[name] = Peer(name, task, settings.seed)
            else:
                models[name] = task.make(name, settings.same_env, settings.seed, **own)
                warm_up(models[name], task)
        # before and after: the clock of a busy or hot machine falls, and the limit is its best rate
        before = peak_rates()
        timed, parts = time_rounds(models, task.steps, settings.rounds)
        after = peak_rates()
        flops = {n: flops_per_step(m, task) for n, m in models.items() if n not in PEERS}
    for model in models.values():
        (model if isinstance(model, Peer) else model.get_env()).close()
    flops |= dict.fromkeys(peers, flops[SB3])  # a peer's DQN has the same arithmetic
    best = [
        (task.name, precision, kernel, max(rate, after[precision][kernel]) / 1e9)
        for precision, kernels in before.items()
        for kernel, rate in kernels.items()
    ]
    rates = pd.DataFrame(best, columns=["task", "precision", "kernel", "gflops"])
    peaks = {str(name): 1e9 * group.gflops.max() for name, group in rates.groupby("precision")}
    rounds = round_table(task.name, timed)
    summary = summary_table(rounds, parts, flops, peaks, task.threads)
    parts.insert(0, "task", task.name)
    return dict(zip(TABLES, (rounds, summary, parts, rates)))


def round_table(task: str, timed: Sequence[Round]) -> pd.DataFrame:
    """One row per measurement, with its ratio to SB3's DQN of the same round: above 1 is faster."""
    table = pd.DataFrame(timed)
    table.insert(0, "task", task)
    table["steps_per_s"] = table.steps / table.wall_s
    reference = table[table.algo == SB3].set_index("round")
    for name, clock in (("ratio", "wall_s"), ("cpu_ratio", "cpu_s")):
        per_step = table[clock] / table.steps
        table[name] = table["round"].map(reference[clock] / reference.steps) / per_step
    return table


def summary_table(
    rounds: pd.DataFrame,
    parts: pd.DataFrame,
    flops: Mapping[str, float],
    peaks: Mapping[str, float],
    threads: int,
) -> pd.DataFrame:
    """One row per algorithm: medians over rounds, and their share of the machine's limit.

    :param parts: rows (algo, round, part, ms)
    :param flops: of one environment step, by algorithm
    :param peaks: best rate of the machine, operations a second, by precision
    """
    totals = parts.groupby(["algo", "round"]).ms.sum() if len(parts) else pd.Series(dtype=float)
    rows = []
    for algo, group in rounds.groupby("algo", sort=False):
        speed = statistics.median(group.steps_per_s)
        sums = [
            totals[algo, r] * s / 1000.0
            for r, s in zip(group["round"], group.steps_per_s)
            if (algo, r) in totals.index
        ]
        row = {
            "task": group.task.iloc[0],
            "algo": algo,
            "threads": threads,
            "rounds": len(group),
            "steps_per_s": speed,
            "ratio": group.ratio.median(),
            "ratio_min": group.ratio.min(),
            "ratio_max": group.ratio.max(),
            "cpu_ratio": group.cpu_ratio.median(),
            "mflop_per_step": flops[str(algo)] / 1e6,
        }
        for precision, peak in peaks.items():
            row[f"limit_{precision}"] = peak / flops[str(algo)]
            row[f"share_{precision}"] = speed / row[f"limit_{precision}"]
        row["hours_5e6"] = LONG_RUN / speed / 3600
        row["parts_over_total"] = statistics.median(sums) if sums else float("nan")
        rows.append(row)
    return pd.DataFrame(rows)


def markdown_summary(summary: pd.DataFrame) -> str:
    """A row per task: SB3's steps a second, and the ratio of every other algorithm to it."""
    names = [name for name in dict.fromkeys(summary.algo) if name != SB3]
    cells = summary.set_index(["task", "algo"])
    rows = []
    for task in dict.fromkeys(summary.task):
        row = [task, f"{cells.steps_per_s[task, SB3]:.0f}"]
        for name in names:
            if (task, name) in cells.index:
                found = cells.loc[(task, name)]
                row.append(f"{found.ratio:.2f} ({found.ratio_min:.2f}-{found.ratio_max:.2f})")
            else:
                row.append("-")
        rows.append(row)
    return markdown_table(["task", "SB3's DQN, steps/s", *(TITLES[n] for n in names)], rows)


def parts_by_algo(parts: pd.DataFrame) -> pd.DataFrame:
    """Median milliseconds over rounds: a row per part, a column per algorithm."""
    wide = parts.pivot_table(index="part", columns="algo", values="ms", aggfunc="median")
    return wide.loc[list(PARTS), list(dict.fromkeys(parts.algo))]


def print_report(result: dict[str, pd.DataFrame]) -> None:
    """The rates of the machine, the speeds, every round, and where the time of a step goes."""
    summary = result["summary"].set_index("algo")
    task, threads = summary.task.iloc[0], summary.threads.iloc[0]
    rates = [f"{r.precision} {r.kernel} {r.gflops:.0f}" for r in result["rates"].itertuples()]
    print(f"\n=== {task}, threads {threads} ===\nGFLOP/s: {'; '.join(rates)}")
    print("\nMedians; ratio to SB3's DQN of the same round, above 1 is faster:")
    columns = ["steps_per_s", "ratio", "ratio_min", "ratio_max", "cpu_ratio", "mflop_per_step"]
    columns += ["share_fp32", "share_bf16", "hours_5e6"]
    print(summary[columns].to_string(float_format=_significant))

    print("\nRatio by round:")
    rounds = result["rounds"]
    ratios = rounds.pivot(index="algo", columns="round", values="ratio").loc[summary.index]
    ratios.loc["load"] = rounds.groupby("round").load.mean()
    print(ratios.to_string(float_format=_significant))

    print("\nWhere the time of a step goes, %:")
    parts = parts_by_algo(result["parts"])
    shares = 100.0 * parts / parts.sum()
    shares.loc["ms per step"] = parts.sum()
    shares.loc["% of the time without stopwatches"] = 100.0 * summary.parts_over_total
    print(shares.to_string(float_format=_significant))


def _significant(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# --- the program ----------------------------------------------------------------------------------


def run_speed(settings: SpeedSettings, out: str | Path, force: bool = False) -> Path:
    """Measure all tasks; write the tables as CSV into a folder and print them."""
    # everything that can fail for a reason known beforehand, before the first measurement
    for name in settings.tasks:
        settings.task(name).check()
    for name in settings.peers:
        _peer_python(name)
    folder = open_run_folder(out, asdict(settings), force)
    load = round(os.getloadavg()[0], 2)
    facts = {**machine(), "flags": processor_flags(), "load_at_start": load}
    facts["torch"] = str(th.__version__)
    (folder / "machine.yml").write_text(yaml.safe_dump(facts, sort_keys=False), encoding="utf-8")
    print(f"{facts['processor']}, {facts['cores']} cores: {' '.join(facts['flags'])}")
    if load > 0.5:
        print(f"The machine is busy (load {load}): ratios mean little.")
    results = []
    for name in settings.tasks:
        print(name, file=sys.stderr)
        results.append(measure_task(settings.task(name), settings))
    for name in TABLES:
        table = pd.concat([result[name] for result in results])
        table.to_csv(folder / f"{name}.csv", index=False)
    summary = pd.concat([result["summary"] for result in results])
    (folder / "table.md").write_text(markdown_summary(summary) + "\n", encoding="utf-8")
    for result in results:
        print_report(result)
    print(f"written: {folder}")
    return folder


def main() -> int:
    defaults = SpeedSettings()
    parser = CommandLine(prog="speed.py", description=__doc__)
    for name, choices in (("tasks", TASKS), ("algos", OURS), ("peers", PEERS)):
        default = getattr(defaults, name)
        parser.add_argument(f"--{name}", nargs="+", default=default, help=", ".join(choices))
    parser.add_argument("--rounds", type=int, default=5, help="measurements of every algorithm")
    parser.add_argument("--steps", type=int, help="of one measurement (default: by task)")
    parser.add_argument("--threads", type=int, help="of torch (default: 2 for atari, else 1)")
    parser.add_argument("--atari-env", default=defaults.atari_env, help="the game")
    parser.add_argument(
        "--same-env",
        action="store_true",
        help="give SB3's DQN our Atari environment and buffer, so that only the learners differ; "
        "without it, SB3's has make_atari_env, VecFrameStack and ReplayBuffer, ours the native "
        "environment and the frame buffer, as their users have",
    )
    parser.add_argument("--eager", action="store_true", help="compile none of our gradient steps")
    parser.add_argument(
        "--precision", default="fp32", help=f"of our image networks: {', '.join(PRECISIONS)}"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start",
        action="store_true",
        help="measure the seconds to the first updates only: eager, with an empty and a warm cache",
    )
    parser.add_output("runs/speed")
    args = vars(parser.parse_args())
    out, force, start = args.pop("out") or "runs/speed", args.pop("force"), args.pop("start")
    for name in ("tasks", "algos", "peers"):
        args[name] = tuple(args[name])
    settings = SpeedSettings(**args)
    if start:
        run_start(settings, out, force)
    else:
        run_speed(settings, out, force)
    return 0


if __name__ == "__main__":
    run_command(main)
