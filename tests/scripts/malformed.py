"""Command lines and YAML files that nobody should accept."""

from collections.abc import Iterator
from pathlib import Path

NOT_WHOLE = ["", "x", "1.5", "nan", "1e3", "[1]", "0x1f", "½", "--5", "1,000", "None", "1 2"]
NAMES = [
    "",
    " ",
    "cp",
    "CPP!",
    "../cpp",
    "dqn2",
    "\u00e9",
    "a" * 300,
    "--",
    "[]",
    "None",
    "0",
    "%s%n",
    "{env}",
    "*",
    "no_such_package:Env-v0",
    "gymnasium:Nonsense-v0",
    ":",
]
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
    "max_grad_norm": ["0", "-1", "x"],
    "policy": ["NoPolicy", "5", "null", "[MlpPolicy]", "CnnPolicy"],
    "policy_kwargs": [
        "5",
        "[1]",
        "text",
        "null",
        "{net_arch: 5}",
        "{net_arch: [a]}",
        "{net_arch: [0]}",
        "{nonsense: 1}",
    ],
    "policy_kwargs.net_arch": ["x", "[-1]", "[1.5]", "null"],
    "policy_kwargs.activation_fn": ["rleu", "5", "[relu]"],
    "policy_kwargs.optimizer_class": ["adamm", "7"],
    "policy_kwargs.features_extractor_class": ["minatari", "1"],
    "replay_buffer_class": ["framez", "frames", "3"],
    "device": ["gpu", "5", "null", "cuda:x"],
    "n_envs": ["0", "-1", "x", "1.5", "null"],
    "env_kwargs": ["5", "[1]", "text", "{nonsense: 1}", "{render_mode: 5}"],
    "env_kwargs.nonsense": ["1"],
    "vec_env": ["threads", "5", "null"],
    "env_wrapper": ["5", "no_such.Wrapper", "gymnasium.Nonsense", "[{a.B: 5}]", "[[a.B]]"],
    "normalize": ["5", "please", "{norm_ob: true}", "{clip_obs: x}", "null"],
    "frame_stack": ["0", "-1", "x", "1.5"],
    "gym_packages": ["5", "no_such_package", "[no_such_package]", "['']", "null"],
    "max_episode_steps": ["0", "-1", "x", "1.5"],
    "eval_episodes": ["0", "-1", "x", "null"],
    "eval_envs": ["0", "-1", "x", "1.5", "null"],
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
    "projection_coef": ["-1", "x"],
    "loss": ["l1", "5", "null"],
    "behaviour": ["greedy", "5", "null"],
    "optimize_memory_usage": ["maybe", "5"],
    "fast": ["maybe", "5"],
    "n_steps": ["0", "-1", "x"],
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
    "",
    "5",
    "text",
    "[1, 2]",
    "null",
    "---\n---\n",
    "envs: [",
    "envs: {",
    "envs: 5",
    "envs: [CartPole-v1]",
    "\t",
    "a: b: c",
    "{",
    "]",
    "envs:\n\tCartPole-v1: {}",
    "shared: 5",
    "shared: [1]",
    "shared: text",
    "algos: 5",
    "algos: {cpp: 5}",
    "algos: {cpp: [1]}",
    "search: 5",
    "search: {cpp: 5}",
    "nonsense: {}",
    "Envs: {}",
    "envs: {CartPole-v1: 5}",
    "envs: {CartPole-v1: {nonsense: 1}}",
    "envs: {CartPole-v1: {algos: 5}}",
    "envs: {CartPole-v1: {algos: {cpp: 5}}}",
    "envs: {CartPole-v1: {algos: {cpp: {x: 1}}}}",
    "envs: {CartPole-v1: {suite: nonsense}}",
    "envs: {CartPole-v1: {suite: 5}}",
    "envs: {CartPole-v1: {suite: [classic]}}",
    "envs: {CartPole-v1: {learning_rate: 1e-3}}",
    "envs: {CartPole-v1: {eval_freq: ten}}",
    "shared: {1: 2}",
    "shared: {null: 2}",
    "shared: {[1]: 2}",
    "shared: {batch_size: 2020-13-45}",
    "shared: {batch_size: 2020-01-01}",
    "shared: {gamma: !!python/object/apply:os.system ['touch pwned']}",
    "shared: !!python/name:os.system",
    "shared: !foo {a: 1}",
    "shared: &a {policy_kwargs: *a}",
    "shared: &a [*a]",
    "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]",
    "shared: *nobody",
    "[" * 3000,
    "{a: " * 3000,
    "shared: {gamma: 0.9, gamma: }",
    "%YAML 9.9\n---\nshared: {}",
    "\x00",
    "\ufffe",
    "shared: \x07",
    "algos: {cpp: {algorithm: nonsense}}",
    "algos: {cpp: {algorithm: 5}}",
    "algos: {cpp: {algorithm: [cpp]}}",
    "? a\n? b\n: c: d",
]


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
        [*train, "-i", path]
        for path in ["nowhere", "", ".", "text.zip", "empty.zip", "text.txt", "garbage", "a" * 300]
    )
    yield from (
        [*train, "-params", f"{key}:{value}"] for key, values in VALUES.items() for value in values
    )
    yield from (
        [*train, "-params", text]
        for text in [
            "",
            ":",
            "gamma",
            "gamma=0.9",
            "gamma:[",
            "gamma:{",
            "gamma:!!python/x",
            "[" * 2000,
        ]
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
        [
            "benchmark",
            "classic",
            "--envs",
            "CartPole-v1",
            "--algos",
            "cpp",
            "-params",
            f"{key}:{values[0]}",
        ]
        for key, values in VALUES.items()
    )
    for flag in ("--episodes", "--seed", "--play-seed"):
        yield from (["enjoy", "--run", "garbage", flag, value] for value in NOT_WHOLE[:6])
    yield from (
        ["enjoy", "--run", name] for name in ["garbage", "nowhere", "", "text.txt", "damaged"]
    )
    yield from (["enjoy", "--video", name] for name in ["film.avi", "film", "", ".mp4.txt"])
    for flag in (
        "--trials",
        "-n",
        "--seeds-per-trial",
        "--seed",
        "--top",
        "--top-seeds",
        "--heartbeat",
    ):
        yield from (["tune", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["tune", "--env", name] for name in NAMES[:6])
    yield from (["tune", "--algo", name] for name in NAMES[:6])
    yield from (
        ["tune", "--trials", "1", "-params", f"{key}:{values[0]}"] for key, values in VALUES.items()
    )
    yield from (["tune", "--storage", url] for url in ["x://y", "postgresql://", "://"])
    yield from (["tune", flag, "nonsense"] for flag in ("--objective", "--pruner", "--suite"))
    for script in ("gridworld", "pendulum", "theory"):
        yield from ([script, "--seed", value] for value in NOT_WHOLE[:6])
        yield from ([script, flag] for flag in ("--nonsense", "extra", "--seed"))
    for flag in ("--kills", "--seed", "-n", "--write-kills"):
        yield from (["faults", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (["faults", flag, "nonsense"] for flag in ("--tasks", "--algos"))
    for flag in ("--steps", "--save-freq", "--frames", "--new-frames"):
        yield from (["checkpoint_costs", flag, value] for value in [*NOT_WHOLE[:6], "-1"])
    yield from (
        ["stress", flag, value] for flag in ("-n", "--seed") for value in [*NOT_WHOLE[:6], "-1"]
    )
    yield from (["stress", flag, "nonsense"] for flag in ("--worlds", "--algos", "--out"))
