"""The first thing a new user sees: one run with its evaluation and its picture."""

from pathlib import Path

from stable_baselines3.common.evaluation import evaluate_policy

from sb3_cpp.analysis.plots import plot_run
from sb3_cpp.threads import torch_threads
from sb3_cpp.training.enjoy import load_run
from sb3_cpp.training.environments import make_environment
from sb3_cpp.training.run import train_run
from sb3_cpp.training.suites import load_suite


def demo(seed: int = 3, root: str | Path = "runs", n_eval_episodes: int = 20) -> int:
    """Train DeepCPP with the settings of configs/classic.yml, evaluate it on fresh episodes and draw its picture."""
    config = load_suite("classic").run_config("cpp", "CartPole-v1", seed)
    print(
        f"DeepCPP on CartPole-v1, {config.n_timesteps:,} steps, into {config.folder(root)}",
        flush=True,
    )
    with torch_threads(1):
        outcome = train_run(config, root, show="bar")
    if outcome.state == "interrupted":
        print(f"stopped and saved at step {outcome.timesteps:,}; run the same command to resume")
        return outcome.exit_code
    if outcome.state == "kept":
        print(f"trained before; remove {outcome.folder} to train again")
    for name, best in (("last model", False), ("best model", True)):
        _, model = load_run(outcome.folder, best)
        env = make_environment(config.env, 1, seed=10_000 + seed, training=False)
        mean, spread = evaluate_policy(model, env, n_eval_episodes)
        env.close()
        print(
            f"evaluation of the {name}: {mean:.1f} ± {spread:.1f} over {n_eval_episodes} fresh episodes (500 is perfect)"
        )
    print(f"picture: {plot_run(outcome.folder, title='DeepCPP on CartPole-v1')}")
    return 0
