"""Section 5.2 of the paper: learn the pendulum swing-up with linear features, in many trials."""

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
from numpy.typing import NDArray

from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_whole_number
from sb3_cpp.linear.algorithms import Iteration, LinearLearner, Settings, iterate
from sb3_cpp.linear.features import LinearQ, RadialBasis, SingularEquations
from sb3_cpp.linear.pendulum import ENV_ID, EPISODE_STEPS, PendulumBatch, Physics
from sb3_cpp.linear.rollout import BadObservation, GymBatch
from sb3_cpp.run_folder import open_run_folder
from sb3_cpp.tabular.bounds import clipped_improvement

# The seeds follow this order: append, never insert
ALGORITHMS: dict[str, dict[str, Any]] = {
    "cpp": {"rule": "adaptive_cpp"},
    "cvi": {"rule": "cvi"},
    "espi": {"rule": "espi"},
    "espi_printed": {"rule": "espi", "printed_delta": True},
    "aspi": {"rule": "aspi"},
    "cpi": {"rule": "cpi"},
    "linear_cpp": {"rule": "linear_cpp"},
    "cpp_1": {"rule": "adaptive_cpp", "scheme": "1"},
    "cpp_geometric": {"rule": "adaptive_cpp", "mixture": "geometric"},
    "span_cpp": {"rule": "span_cpp"},
    "statewise": {"rule": "statewise", "scheme": "1"},
}
# in the scheme of the setting cpp_scheme; the others in that of scheme
CPP_SCHEME = ("cpp", "cpp_geometric")
RIGHT = 2  # the action of positive torque
# Trials in one array program: they fit the cache, and 100 trials make parts for two cores. Fixed,
# because the seed of a trial depends on its part: numbers must not depend on the machine.
PART = 50
LAST_STEPS, UPRIGHT = 200, 0.3  # solved: mean |angle| below 0.3 over the last 200 steps
STOPPED = "stopped"


@dataclass(frozen=True)
class PendulumSettings:
    """Everything that decides the numbers; ``configs/pendulum.yml`` gives the sources.

    ``ent_coef`` and ``kl_coef`` are the weights of entropy and KL. ``action_centres`` 0 means
    weights per action; otherwise the joint features over [s, a] as printed. ``error_scale``: the
    error of Q that the state-wise rule assumes, in root mean squares of the regression's residual.
    """

    trials: int = 100
    seed: int = 0
    algos: tuple[str, ...] = tuple(ALGORITHMS)
    iterations: int = 80
    steps: int = 500
    gamma: float = 0.9
    ent_coef: float = 0.0175
    kl_coef: float = 0.025
    scheme: str = "1"
    cpp_scheme: str = "1b"
    bins: int = 10
    width: float = 0.8
    action_centres: int = 0
    ridge: float = 1.0
    ridge_centre: str = "previous"
    backups: int = 1
    regularized: bool = True
    rho1: float = 0.9
    rho2: float = 0.999
    tracker_start: str = "zero"
    r_max: float = 1.0
    error_scale: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.algos, (list, tuple)) or not self.algos:
            raise InvalidArgument(
                f"algos must be a list of {', '.join(ALGORITHMS)}, got {self.algos!r}"
            )
        for algo in self.algos:
            check_choice("algos", algo, ALGORITHMS)
        object.__setattr__(self, "algos", tuple(dict.fromkeys(self.algos)))  # YAML has lists
        # two trials for a standard deviation, two iterations for an oscillation, and as many steps
        # as is_upright looks at
        least = {"trials": 2, "seed": 0, "iterations": 2, "steps": LAST_STEPS, "bins": 2}
        for name, low in {**least, "action_centres": 0}.items():
            check_whole_number(name, getattr(self, name), low)
        if self.action_centres == 1:
            raise InvalidArgument("action_centres must be 0 or at least 2, got 1")
        check_number("width", self.width, 0.0, low_open=True)
        check_number("ent_coef", self.ent_coef, 0.0)
        # one of the two may be 0, not both: their sum is the temperature
        check_number("kl_coef", self.kl_coef, 0.0, low_open=self.ent_coef == 0.0)
        # no scheme 2: an arithmetic mixture has no linear preferences to go on from
        for name in ("scheme", "cpp_scheme"):
            check_choice(name, getattr(self, name), ("1", "1b"))
        if not isinstance(self.regularized, bool):
            raise InvalidArgument(f"regularized must be true or false, got {self.regularized!r}")
        # their own constructors check the rest
        self.algorithm("cpp")
        self.features()

    @property
    def part_sizes(self) -> list[int]:
        """Trials of each part."""
        return [min(PART, self.trials - first) for first in range(0, self.trials, PART)]

    def algorithm(self, algo: str) -> Settings:
        """The algorithms differ in the coefficient, and CPP in the scheme."""
        temperature = self.ent_coef + self.kl_coef
        shared = "gamma ridge ridge_centre backups regularized rho1 rho2 tracker_start r_max"
        values: dict[str, Any] = {n: getattr(self, n) for n in [*shared.split(), "error_scale"]}
        values["scheme"] = self.cpp_scheme if algo in CPP_SCHEME else self.scheme
        return Settings(
            temperature=temperature, alpha=self.kl_coef / temperature, **(values | ALGORITHMS[algo])
        )

    def basis(self) -> RadialBasis:
        """A grid over angle (periodic) and velocity."""
        speed = Physics().max_speed
        return RadialBasis(
            [-math.pi, -speed], [math.pi, speed], [self.bins, self.bins], self.width, periodic=[0]
        )

    def features(self) -> LinearQ:
        basis = self.basis()
        return LinearQ(
            basis, basis.size, len(Physics().torques), self.action_centres or None, self.width
        )


@dataclass
class Record:
    """What one algorithm did so far, in all trials or in those of a part.

    Each list has one entry per iteration, of shape (trials,).
    """

    algo: str
    part: int = 0
    error: str = ""  # why it ended before the last iteration
    returns: list[NDArray[np.float64]] = field(default_factory=list)
    zeta: list[NDArray[np.float64]] = field(default_factory=list)
    advantage: list[NDArray[np.float64]] = field(default_factory=list)
    delta: list[NDArray[np.float64]] = field(default_factory=list)
    # of the first trial at every step it took
    probability_right: list[NDArray[np.float64]] = field(default_factory=list)
    upright: list[NDArray[np.bool_]] = field(default_factory=list)
    # weights of the newest policy of the chain, (trials, actions, M)
    preferences: th.Tensor = field(default_factory=lambda: th.zeros(0))
    # whether each trial's final weights hold the gymnasium pendulum up
    solved_greedily: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    seconds: float = 0.0

    def add(self, iteration: Iteration) -> None:
        update, rollout = iteration.update, iteration.rollout
        self.returns.append(rollout.returns.double().numpy())
        self.zeta.append(update.zeta.double().numpy())
        self.advantage.append(update.evidence.advantage.double().numpy())
        self.delta.append(update.evidence.delta.double().numpy())
        self.upright.append(is_upright(rollout.states[..., 0]).numpy())
        # of one trial: the figure shows one, and a mixture's probabilities cost more than acting
        log_policy = iteration.acted.of_trial(0).log_policy(rollout.buffer.phi[:1])
        self.probability_right.append(log_policy[0, :, RIGHT].exp().double().numpy())

    @classmethod
    def joined(cls, parts: Sequence["Record"]) -> "Record":
        """The record of all trials from those of the parts, which learned side by side."""
        parts = sorted(parts, key=lambda part: part.part)  # they ended in any order
        whole = cls(parts[0].algo, probability_right=parts[0].probability_right)
        for name in ("returns", "zeta", "advantage", "delta", "upright"):
            steps = zip(*(getattr(part, name) for part in parts), strict=True)
            setattr(whole, name, [np.concatenate(step) for step in steps])
        whole.preferences = th.cat([part.preferences for part in parts])
        whole.solved_greedily = np.concatenate([part.solved_greedily for part in parts])
        whole.seconds = max(part.seconds for part in parts)  # they ran side by side
        return whole

    def curves(self, name: str) -> NDArray[np.float64]:
        """One of the lists as an array (trials, iterations)."""
        return np.stack(getattr(self, name), axis=-1)

    def guaranteed_improvement(self) -> float:
        """Mean of what A-SPI's bound promises, ``(1-gamma)^3 A^2 / (8 gamma)`` (Sec. 5.2)."""
        # written as A zeta / 2, because zeta was clipped at 1 where the formula is out of reach
        advantage, zeta = (th.from_numpy(self.curves(name)) for name in ("advantage", "zeta"))
        return float(clipped_improvement(advantage.clamp(min=0.0), zeta).mean())


def is_upright(angles: th.Tensor) -> th.Tensor:
    """Whether each trial ends up holding the pendulum up: angles (trials, steps) -> (trials,).

    Judged at the end of the last whole episode, since the next one begins hanging; of fewer steps
    than an episode has, at their end.
    """
    end = angles.shape[-1] // EPISODE_STEPS * EPISODE_STEPS or angles.shape[-1]
    return angles[:, end - LAST_STEPS : end].abs().mean(-1) < UPRIGHT


def learn(settings: PendulumSettings, algo: str, record: Record, part: int = 0) -> Iterator[int]:
    """Run one algorithm for the trials of a part, yielding K after each iteration is recorded.

    The result depends only on the settings, the algorithm and the part, not on which others run.
    """
    # by the position in ALGORITHMS, not in the settings: leaving one out must not change the others
    seed = np.random.SeedSequence([settings.seed, list(ALGORITHMS).index(algo), part])
    entropy, trials = seed.generate_state(1, np.uint64)[0], settings.part_sizes[part]
    learner = LinearLearner(settings.features(), settings.algorithm(algo), trials)
    start = time.perf_counter()
    env = PendulumBatch(trials)  # float32, like the learner's weights
    # torch's generators take signed 64 bits, so the highest bit is dropped
    for iteration in iterate(learner, env, settings.iterations, settings.steps, int(entropy >> 1)):
        record.add(iteration)
        record.preferences = learner.q.per_action(learner.next_preferences)
        record.seconds = time.perf_counter() - start
        yield iteration.update.K


def drive(settings: PendulumSettings, preferences: th.Tensor) -> th.Tensor:
    """Angles (trials, steps) of the gymnasium environment under the most probable actions."""
    # the gymnasium environment, not the batch that was learned on: it is what a user will run
    env, features = GymBatch(ENV_ID, len(preferences)), settings.basis()
    weights = preferences.numpy()
    states, angles = env.reset(), []
    for _ in range(settings.steps):
        transition = env.step(np.einsum("nam,nm->na", weights, features(states)).argmax(1))
        angles.append(transition.arrived[:, 0])
        states = transition.states
    return th.from_numpy(np.stack(angles, axis=-1))


# --- the trials in parts, each learned by a process of its own ------------------------------------

# in a worker: the iteration each part has reached, and whether all should stop
_shared: Any = None


def _enter_worker(reached: Any, stop: Any) -> None:
    global _shared
    _shared = reached, stop
    # Ctrl-C reaches the parent, which stops every worker after its iteration
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    th.set_num_threads(1)  # with small tables, more threads wait for each other


def _learn_part(settings: PendulumSettings, algo: str, part: int, place: int) -> Record:
    """The record of a part; with an error, of what was seen until then."""
    reached, stop = _shared
    record = Record(algo, part)
    try:
        for K in learn(settings, algo, record, part):
            reached[place] = K
            if stop.is_set():
                record.error = STOPPED
                return record
    except (BadObservation, SingularEquations) as error:
        record.error = str(error)
        return record
    # in the worker, so that the parts are tried side by side too
    record.solved_greedily = is_upright(drive(settings, record.preferences)).numpy()
    return record


class Learners:
    """The processes, ended on leaving the context; ``follow`` gives each part when it is learned.

    :param settings: of the study
    :param jobs: processes at once
    """

    def __init__(self, settings: PendulumSettings, jobs: int | None = None) -> None:
        n_parts = len(settings.part_sizes)
        self.parts = [(algo, part) for algo in settings.algos for part in range(n_parts)]
        # A fork starts at once, with everything imported. macOS frameworks do not survive one.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
        self.reached: Any = context.Array("i", len(self.parts))
        self.stop = context.Event()
        workers = min(jobs or os.cpu_count() or 1, len(self.parts))
        self.pool = ProcessPoolExecutor(workers, context, _enter_worker, (self.reached, self.stop))
        self.futures = [
            self.pool.submit(_learn_part, settings, *part, i) for i, part in enumerate(self.parts)
        ]

    def __enter__(self) -> "Learners":
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.pool.shutdown(cancel_futures=True)

    def progress(self, algo: str) -> int:
        """Iterations that an algorithm has finished, summed over its parts."""
        return sum(K for K, (name, _) in zip(self.reached, self.parts) if name == algo)

    def follow(self, on_moment: Callable[[], None]) -> Iterator[Record]:
        """Yield the parts as they end; ``on_moment`` is called several times a second."""
        waiting = set(self.futures)
        while waiting:
            # the timeout lets the bars move, and Ctrl-C through, between two results
            done, waiting = wait(waiting, timeout=0.1, return_when="FIRST_COMPLETED")
            on_moment()
            yield from (future.result() for future in done)

    def finish_early(self) -> Iterator[Record]:
        """Stop every part after its iteration and give what it learned."""
        self.stop.set()
        # those that wait in the queue have nothing to give
        started = [future for future in self.futures if not future.cancel()]
        yield from (future.result() for future in started)


def run_pendulum(
    settings: PendulumSettings, out: str | Path, force: bool = False, jobs: int | None = None
) -> int:
    """The whole study; returns 0, or 1 if learning failed, with the curves until then on disk.

    :param jobs: processes, each with a part of the trials of an algorithm (default: one per core);
        the numbers do not depend on it
    """
    if jobs is not None:
        check_whole_number("jobs", jobs, 1)
    folder = open_run_folder(out, asdict(settings), force)
    with Learners(settings, jobs) as team:
        # imported only now, because matplotlib and pandas take a second, in which they learn
        from sb3_cpp.studies.pendulum_report import write_results

        return write_results(settings, team, folder)
