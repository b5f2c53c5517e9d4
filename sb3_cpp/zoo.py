"""Our algorithms inside an installed rl_zoo3.

``python -m sb3_cpp.zoo train --algo cpp -conf configs/zoo.yml …`` is rl_zoo3's command line.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stable_baselines3 import SAC

from sb3_cpp import ALGORITHMS

if TYPE_CHECKING:
    import optuna


def register() -> None:
    """Register our algorithms with rl_zoo3's train, enjoy and hyperparameter search.

    Call it before they parse their arguments.
    """
    try:
        import rl_zoo3.enjoy  # noqa: F401 (needs the undeclared `requests`; better to hear it now)
        from rl_zoo3 import ALGOS, hyperparams_opt
    except ImportError as error:
        raise ImportError(
            f"rl_zoo3 cannot be imported ({error}): pip install 'sb3_cpp[zoo]'"
        ) from error
    from sb3_cpp.training.study import sample, search_space
    from sb3_cpp.training.suites import Suite, default_search

    def sampler(name: str) -> Callable[..., dict[str, Any]]:
        """The zoo's search space of DQN or SAC, and the algorithm's own of configs/search.yml."""
        space = search_space(Suite("zoo", search={name: default_search()[name]}), name)

        parent = "sac" if issubclass(ALGORITHMS[name], SAC) else "dqn"
        sample_parent = hyperparams_opt.HYPERPARAMS_SAMPLER[parent]

        def sample_all(trial: "optuna.Trial", *args: Any) -> dict[str, Any]:
            return {**sample_parent(trial, *args), **sample(space, trial)}

        return sample_all

    for name, algorithm in ALGORITHMS.items():
        ALGOS[name] = algorithm
        hyperparams_opt.HYPERPARAMS_SAMPLER[name] = sampler(name)
        # The zoo's converter changes DQN's arguments only
        hyperparams_opt.HYPERPARAMS_CONVERTER[name] = hyperparams_opt.convert_offpolicy_params


def main() -> None:
    """rl_zoo3's own command line (train, enjoy, …) with our algorithms."""
    if len(sys.argv) < 2 or sys.argv[1] not in ("train", "enjoy"):
        print(
            "usage: python -m sb3_cpp.zoo {train,enjoy} … (the arguments of rl_zoo3)",
            file=sys.stderr,
        )
        sys.exit(2)
    try:
        register()
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    from rl_zoo3.cli import main as zoo

    zoo()


if __name__ == "__main__":
    main()
