"""Which caution CautiousMDQN should have: the variants that were tried, side by side.

    python benchmarks/caution_study.py --seeds 5 --jobs 2

The rows are in caution_study.yml. Variants that CautiousMDQN itself does not have are the classes
below. Tuning games only; run the command again to continue. Then `sb3-cpp results
runs/caution_study`.
"""

from pathlib import Path

import torch as th

from sb3_cpp import CautiousMDQN
from sb3_cpp.cli import CommandLine, run_command
from sb3_cpp.deep.batch import Batch
from sb3_cpp.training.algorithms import register

SUITE = Path(__file__).with_suffix(".yml")


class LowerBoundCaution(CautiousMDQN):
    """zeta "typical" from a lower confidence bound of the mean advantage: two standard errors."""

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        advantages, distances = self._step(batch)
        spread = advantages.std(correction=0)
        bound = advantages.mean() - 2.0 * spread / len(advantages) ** 0.5
        return bound, distances.mean() * spread


class SpanCaution(CautiousMDQN):
    """zeta "typical" with the span bound ``L1 <= span(log pi / pi-) / 2`` for the L1 distance."""

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        advantages, _ = self._step(batch)
        log_policy, log_previous = self._policies(batch)
        ratio = log_policy.detach() - log_previous
        span = ratio.amax(-1) - ratio.amin(-1)
        return advantages.mean(), 0.5 * span.mean() * advantages.std(correction=0)


class StatewiseCaution(CautiousMDQN):
    """Keeps ``Psi-(s, a)`` as the target where the advantage of the new policy at s is below its
    error: the mean temporal-difference error of the batch times the L1 distance at s."""

    def _target(self, batch: Batch) -> th.Tensor:
        target = super()._target(batch)
        advantages, distances = self._step(batch)
        error = (target - batch.prediction.detach()).abs().mean()
        let_in = advantages >= error * distances
        return th.where(let_in.unsqueeze(1), target, batch.gather_actions(batch.target_q))


# The worker processes of a grid import this file, too
register("cmdqn_lower_bound", LowerBoundCaution)
register("cmdqn_span", SpanCaution)
register("cmdqn_statewise", StatewiseCaution)


def main() -> int:
    parser = CommandLine(prog="caution_study.py", description=__doc__)
    parser.add_shared("algos", "envs")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_shared("n_timesteps", "root")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one torch thread each")
    arguments = parser.parse()

    from sb3_cpp.training.grid import benchmark

    return benchmark(str(SUITE), **arguments)


if __name__ == "__main__":
    run_command(main)
