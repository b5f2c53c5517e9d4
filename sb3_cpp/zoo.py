"""Our algorithms inside an installed rl_zoo3: ``python -m sb3_cpp.zoo train --algo cpp -conf configs/zoo.yml …``."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sb3_cpp import ALGORITHMS

if TYPE_CHECKING:
    import optuna

Sampler = Callable[["optuna.Trial", int, int, dict[str, Any]], dict[str, Any]]


def _suggest_regularisation(trial: "optuna.Trial") -> dict[str, Any]:
    return {
        "temperature": trial.suggest_float("temperature", 0.001, 1.0, log=True),
        "alpha": trial.suggest_float("alpha", 0.0, 0.95),
    }


def _suggest_cpp(trial: "optuna.Trial") -> dict[str, Any]:
    projection = {"projection_coef": trial.suggest_float("projection_coef", 0.5, 200.0, log=True)}
    return {**_suggest_regularisation(trial), **projection}


def _suggest_modqn(trial: "optuna.Trial") -> dict[str, Any]:
    return {
        "kappa": trial.suggest_float("kappa", 1.0, 1000.0, log=True),
        "momentum_floor": trial.suggest_float("momentum_floor", 0.001, 0.5, log=True),
    }


def _suggest_cpi(trial: "optuna.Trial") -> dict[str, Any]:
    return {"zeta": trial.suggest_categorical("zeta", ["dcpi", "cpi", "spi", 0.01, 0.5])}


# What each algorithm adds to the zoo's own search of DQN's hyperparameters
_SUGGESTIONS: dict[str, Callable[["optuna.Trial"], dict[str, Any]]] = {
    "cpp": _suggest_cpp,
    "cmdqn": _suggest_cpp,
    "cvi": _suggest_regularisation,
    "mdqn": _suggest_regularisation,
    "modqn": _suggest_modqn,
    "cpi": _suggest_cpi,
}


def register() -> None:
    """Make rl_zoo3's train, enjoy and hyperparameter search know our algorithms; call it before they parse their arguments."""
    try:
        import rl_zoo3.enjoy  # noqa: F401 (needs the undeclared `requests`; better to hear it now)
        from rl_zoo3 import ALGOS, hyperparams_opt
    except ImportError as error:
        raise ImportError(
            f"rl_zoo3 cannot be imported ({error}): pip install 'sb3_cpp[zoo]'"
        ) from error
    for name, algorithm in ALGORITHMS.items():
        ALGOS[name] = algorithm
        hyperparams_opt.HYPERPARAMS_SAMPLER[name] = _sampler(
            hyperparams_opt.sample_dqn_params, _SUGGESTIONS[name]
        )
        # What is ours goes through the zoo's converter unchanged
        hyperparams_opt.HYPERPARAMS_CONVERTER[name] = hyperparams_opt.convert_offpolicy_params


def _sampler(sample_dqn: Sampler, suggest: Callable[["optuna.Trial"], dict[str, Any]]) -> Sampler:
    def sample(
        trial: "optuna.Trial", n_actions: int, n_envs: int, additional_args: dict[str, Any]
    ) -> dict[str, Any]:
        return {**sample_dqn(trial, n_actions, n_envs, additional_args), **suggest(trial)}

    return sample


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
