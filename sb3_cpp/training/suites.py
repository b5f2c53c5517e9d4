"""Suites: one YAML file states what is compared, environment first.

Later over earlier: class defaults, ``shared:``, ``envs:``, ``algos:``, ``algos:`` inside an
environment, command line. Only ``algos:`` must fit its algorithm exactly; elsewhere a key that an
algorithm does not have (PPO has no ``buffer_size``) is left out for it. An environment with
``suite: minatar`` starts from that suite's settings; a variant with ``algorithm: cpp`` starts from
the suite's ``cpp``. ``default: true`` makes a suite the default of its environments. ``search:``
replaces sections of ``configs/search.yml``. Plain YAML: nothing is evaluated, nothing unknown is
accepted.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml
from stable_baselines3.common.vec_env import VecNormalize

import sb3_cpp
from sb3_cpp.checks import InvalidArgument, check_choice, check_number, check_seed, suggestion
from sb3_cpp.run_folder import folder_name
from sb3_cpp.training.algorithms import (
    algorithm_names,
    check_hyperparameters,
    get_algorithm,
    hyperparameter_defaults,
)
from sb3_cpp.training.environments import find_environment

Settings = TypeVar("Settings")

CUSTOM = "custom"  # runs of environments that are in no suite
SECTIONS = ("default", "shared", "envs", "algos", "search")
_PACKAGE = Path(sb3_cpp.__file__).parent
# A user's own folder comes first; a wheel has the files inside the package, a clone beside it
_PLACES = (Path("configs"), _PACKAGE / "configs", _PACKAGE.parent / "configs")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides one run.

    :param algo: the name in the suite and of the run's folder
    :param algorithm: the registered algorithm behind it (the same, unless the suite says otherwise)
    :param n_envs: environments stepped together
    :param vec_env: "dummy" steps them one after the other, "subproc" in a process each
    :param env_kwargs: arguments of the environment
    :param gym_packages: packages to import because they register environments
    :param env_wrapper: wrappers around each environment: ``module.Class``, ``{module.Class:
        arguments}``, or a list of these
    :param normalize: whether to wrap the environments in VecNormalize, or its arguments
    :param frame_stack: number of observations to stack
    :param max_episode_steps: time limit; None is the environment's own
    :param eval_freq: steps between evaluations; None for 20 in the run, a number below 1 for none
    :param eval_episodes: episodes of one evaluation
    :param eval_envs: environments that play them side by side
    :param save_freq: steps between checkpoints; None for 10 in the run, a number below 1 for none
    :param keep_checkpoint: whether a finished run keeps its checkpoint (with the replay buffer),
        from which it can be extended
    :param start_from: the checkpoint or model of another run that this one starts from
    :param hyperparameters: of the constructor, as in the file; the others have their defaults
    """

    suite: str
    algo: str
    env: str
    seed: int
    n_timesteps: int
    algorithm: str
    n_envs: int = 1
    vec_env: str = "dummy"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    gym_packages: list[str] = field(default_factory=list)
    env_wrapper: list[str | dict[str, Any]] = field(default_factory=list)
    normalize: bool | dict[str, Any] = False
    frame_stack: int | None = None
    max_episode_steps: int | None = None
    eval_freq: int | None = None
    eval_episodes: int = 5
    eval_envs: int = 1
    save_freq: int | None = None
    keep_checkpoint: bool = True
    start_from: str | None = None
    hyperparameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_whole("seed", 0)
        for name in (
            *("n_timesteps", "n_envs", "eval_episodes", "eval_envs"),
            *("max_episode_steps", "frame_stack"),
        ):
            self._check_whole(name, 1)
        for name in ("eval_freq", "save_freq"):
            self._check_whole(name, -1e18)
        check_seed("seed", self.seed)
        if not isinstance(self.keep_checkpoint, bool):
            raise InvalidArgument(
                f"keep_checkpoint must be true or false, got {self.keep_checkpoint!r}"
            )
        for name in ("env_kwargs", "hyperparameters"):
            if not isinstance(getattr(self, name), Mapping):
                raise InvalidArgument(
                    f"{name} must be a mapping of names to values, got {getattr(self, name)!r}"
                )
        self._check_layers()
        if "render_mode" in self.env_kwargs:
            raise InvalidArgument(
                "env_kwargs must not have a render_mode: nobody watches while a run trains"
            )

    def _check_layers(self) -> None:
        """Check the packages, wrappers and vector around the environments."""
        check_choice("vec_env", self.vec_env, ("dummy", "subproc"))
        if not isinstance(self.gym_packages, list) or not all(
            isinstance(package, str) for package in self.gym_packages
        ):
            raise InvalidArgument(
                f"gym_packages must be a list of package names, got {self.gym_packages!r}"
            )
        given = self.env_wrapper
        wrappers = given if isinstance(given, list) else [] if given is None else [given]
        for entry in wrappers:
            ((path, arguments),) = (
                entry.items() if isinstance(entry, dict) and len(entry) == 1 else [(entry, {})]
            )
            if not isinstance(path, str) or not isinstance(arguments or {}, Mapping):
                raise InvalidArgument(
                    f"env_wrapper must be module.Class, {{module.Class: arguments}} or a list of "
                    f"these, got {entry!r}"
                )
        object.__setattr__(self, "env_wrapper", wrappers)
        if not isinstance(self.normalize, bool):
            if not isinstance(self.normalize, Mapping):
                raise InvalidArgument(
                    f"normalize must be true, false or arguments of VecNormalize, "
                    f"got {self.normalize!r}"
                )
            known = list(inspect.signature(VecNormalize).parameters)[2:]
            for name, value in self.normalize.items():
                if name not in known:
                    raise InvalidArgument(
                        f"normalize: VecNormalize has no argument {name!r}"
                        f"{suggestion(str(name), known)}"
                    )
                if name in ("clip_obs", "clip_reward", "gamma", "epsilon"):
                    check_number(f"normalize.{name}", value, 0.0, low_open=True)

    def _check_whole(self, name: str, low: float) -> None:
        value = getattr(self, name)
        if value is None and name in ("max_episode_steps", "frame_stack", "eval_freq", "save_freq"):
            return
        number = check_number(name, value, low)
        if number != int(number):
            raise InvalidArgument(f"{name} must be a whole number, got {value!r}")
        object.__setattr__(self, name, int(number))

    @property
    def evaluate_every(self) -> int:
        """Steps between evaluations; 0 for none."""
        return max(self.n_timesteps // 20, 1) if self.eval_freq is None else max(self.eval_freq, 0)

    @property
    def save_every(self) -> int:
        """Steps between checkpoints; 0 for none."""
        return max(self.n_timesteps // 10, 1) if self.save_freq is None else max(self.save_freq, 0)

    def folder(self, root: str | Path) -> Path:
        return Path(root) / self.suite / self.algo / folder_name(self.env) / f"seed_{self.seed}"

    def plain(self) -> dict[str, Any]:
        """For config.yml."""
        return asdict(self)

    def name(self) -> str:
        return f"{self.algo} {self.env} seed {self.seed}"


# Settings that every run has without saying so
DEFAULTS: dict[str, Any] = {
    f.name: f.default_factory() if callable(f.default_factory) else f.default
    for f in fields(RunConfig)
    if f.default is not MISSING or f.default_factory is not MISSING
}
RUN_KEYS = tuple(
    f.name
    for f in fields(RunConfig)
    if f.name not in ("suite", "algo", "env", "seed", "algorithm", "start_from", "hyperparameters")
)


@dataclass(frozen=True)
class Suite:
    """The content of one suite file."""

    name: str
    shared: dict[str, Any] = field(default_factory=dict)
    envs: dict[str, dict[str, Any]] = field(default_factory=dict)
    algos: dict[str, dict[str, Any]] = field(default_factory=dict)
    search: dict[str, dict[str, Any]] = field(default_factory=dict)
    default: bool = False

    def check_environment(self, env: str, overrides: Mapping[str, Any]) -> None:
        """Refuse an unknown environment, after the import of packages that register some."""
        stated = (overrides, self.envs.get(env) or {}, self.shared)
        packages: Any = next(
            (place["gym_packages"] for place in stated if "gym_packages" in place), []
        )
        find_environment(env, packages if isinstance(packages, list) else [])

    def run_config(
        self, algo: str, env: str, seed: int, overrides: Mapping[str, Any] | None = None
    ) -> RunConfig:
        """The settings of one run, merged and checked."""
        own = dict(self.algos.get(algo) or {})
        name = own.pop("algorithm", algo)
        if algo not in self.algos and algo not in algorithm_names():
            known = list(dict.fromkeys([*self.algos, *algorithm_names()]))
            raise InvalidArgument(f"unknown algorithm {algo!r}{suggestion(algo, known)}")
        algorithm = get_algorithm(name)
        place = f"suite {self.name}"
        shared, env_block = self.shared, dict(self.envs.get(env) or {})
        base = self.algos.get(name) or {}
        if "suite" in env_block:
            origin = load_suite(str(env_block.pop("suite")))
            shared = merge(origin.shared, shared)
            env_block = merge(origin.envs.get(env) or {}, env_block)
            base = merge(origin.algos.get(name) or {}, base)
        pairs = _mapping(env_block.pop("algos", None), f"{place}, envs, {env}, algos")
        pair = _mapping(pairs.get(algo), f"{place}, envs, {env}, algos, {algo}")
        if algo != name:  # a variant starts from all that is stated about its algorithm
            of_name = _mapping(pairs.get(name), f"{place}, envs, {env}, algos, {name}")
            base = merge(base, of_name)
        own = merge({k: v for k, v in base.items() if k != "algorithm"}, own)
        loose = merge(
            self._fitting(algorithm, shared, f"{place}, shared"),
            self._fitting(algorithm, env_block, f"{place}, envs, {env}"),
        )
        strict = [(own, f"{place}, algos, {algo}"), (pair, f"{place}, envs, {env}, algos, {algo}")]
        strict.append((dict(overrides or {}), "command line"))
        merged = loose
        for values, where in strict:
            check_hyperparameters(algorithm, [key for key in values if key not in RUN_KEYS], where)
            merged = merge(merged, values)
        run = {key: merged.pop(key) for key in RUN_KEYS if key in merged}
        if "n_timesteps" not in run:
            raise InvalidArgument(
                f"{env} is in no suite, so the number of steps must be given: -n STEPS"
            )
        return RunConfig(
            suite=self.name,
            algo=algo,
            env=env,
            seed=seed,
            algorithm=name,
            hyperparameters=merged,
            **run,
        )

    def _fitting(self, algorithm: type, values: Mapping[str, Any], place: str) -> dict[str, Any]:
        """The values that the algorithm has; a key that no algorithm has is refused."""
        own = hyperparameter_defaults(algorithm)
        everyone = {
            key
            for name in algorithm_names()
            for key in hyperparameter_defaults(get_algorithm(name))
        }
        for key in values:
            if key not in RUN_KEYS and key not in everyone:
                known = [*RUN_KEYS, *sorted(everyone)]
                raise InvalidArgument(
                    f"{place}: no algorithm has a hyperparameter {key!r}"
                    f"{suggestion(str(key), known)}"
                )
        return {key: value for key, value in values.items() if key in RUN_KEYS or key in own}


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """The later value wins; mappings (policy_kwargs) are merged, not replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = (
            merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
        )
    return merged


def find_config(name: str) -> Path:
    """``<name>.yml`` of the user's own ``configs/``, or else of this package."""
    for place in _PLACES:
        if (path := place / f"{name}.yml").is_file():
            return path
    raise InvalidArgument(f"unknown suite {name!r}{suggestion(name, suite_names())}")


def suite_names() -> list[str]:
    """All suites that can be loaded by name."""
    return sorted({path.stem for place in _PLACES for path in _suite_files(place)})


def _suite_files(place: Path) -> list[Path]:
    """A folder's YAML files that are suites: settings of other kinds have no environments."""
    return [path for path in sorted(place.glob("*.yml")) if _has_key(path, "envs")]


def _has_key(path: Path, key: str) -> bool:
    """Whether a file states this at its top. A user's folder may also hold what cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    return any(line.startswith(f"{key}:") for line in lines)


def load_suite(name: str | Path) -> Suite:
    """A suite by its name or by the path of its file."""
    path = Path(name) if Path(name).suffix in (".yml", ".yaml") else find_config(str(name))
    content = load_yaml(path)
    for key in content:
        if key not in SECTIONS:
            raise InvalidArgument(
                f"{path}: unknown section {key!r}{suggestion(str(key), SECTIONS)}"
            )
    if not isinstance(default := content.pop("default", False), bool):
        raise InvalidArgument(f"{path}: default must be true or false, got {default!r}")
    sections = {key: _section(content, key, path) for key in SECTIONS if key != "default"}
    for key in ("envs", "algos", "search"):
        for entry in sections[key]:
            sections[key][entry] = _section(sections[key], entry, path)
    sections["search"] = {**default_search(), **sections["search"]}
    return Suite(name=path.stem, default=default, **sections)


def default_search() -> dict[str, dict[str, Any]]:
    """The search spaces of ``configs/search.yml``, by algorithm, and the ``shared`` one."""
    return load_yaml(find_config("search"))


def _section(content: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    return _mapping(content.get(key), f"{path}: {key}")


def _mapping(value: Any, place: str) -> dict[str, Any]:
    """What may be left empty, but must not be anything else than names and values."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{place} must be a mapping of names to values, got {value!r}")
    for name in value:
        if not isinstance(name, str):  # YAML reads 0.1 and no as other things
            raise InvalidArgument(
                f"{place}: a name must be text, in quotes if need be, got {name!r}"
            )
    return value


def suite_of(env: str) -> Suite:
    """The default suite of an environment; an empty one if it has none."""
    for place in _PLACES:
        # Other files need not be right: nobody has asked for them
        suites = [load_suite(path) for path in _suite_files(place) if _has_key(path, "default")]
        found = [suite for suite in suites if suite.default and env in suite.envs]
        if len(found) > 1:
            names = " and ".join(suite.name for suite in found)
            raise InvalidArgument(f"{env} has several default suites, {names}: choose with --suite")
        if found:
            return found[0]
    return Suite(CUSTOM, search=default_search())


def choose_suite(env: str, name: str | None, overrides: Mapping[str, Any]) -> Suite:
    """The suite of a command, by name or the environment's default."""
    suite = load_suite(name) if name is not None else suite_of(env)
    suite.check_environment(env, overrides)
    return suite


def note_unlisted(suite: Suite, env: str) -> None:
    """Say that an environment is trained with settings that nobody chose for it."""
    if env not in suite.envs:
        settings = "the shared settings of the suite and " if suite.shared else ""
        place = "any suite" if suite.name == CUSTOM else f"suite {suite.name}"
        print(f"note: {env} is not in {place}: {settings}class defaults are used", flush=True)


def parse_overrides(pairs: list[str], flags: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings from ``-params key:value …``, with values in YAML.

    :param pairs: the texts; ``policy_kwargs.net_arch:[64]`` sets a key of a mapping
    :param flags: settings that have a flag of their own, None where it was not given
    """
    overrides: dict[str, Any] = {}
    for pair in pairs:
        key, colon, text = pair.partition(":")
        if not key or not colon:
            raise InvalidArgument(f"-params must be key:value, got {pair!r}")
        try:
            value = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise InvalidArgument(
                f"-params {key}: the value must be YAML, got {text!r} ({error.__class__.__name__})"
            ) from None
        refuse_text_numbers(value, f"-params {key}")
        for part in reversed(key.split(".")):
            value = {part: value}
        overrides = merge(overrides, value)
    for key, value in (flags or {}).items():
        if value is not None and key in overrides:
            raise InvalidArgument(f"{key} must be given once, by its flag or in -params")
    return merge(
        overrides, {key: value for key, value in (flags or {}).items() if value is not None}
    )


def load_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file; refuses text that was meant as a number.

    YAML 1.1 reads ``1e-3`` as text (a number needs the point: ``1.0e-3``), which would be a type
    error much later.
    """
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(
            f"config must be a readable file, got {str(path)!r} ({error.strerror})"
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: date 2020-13-45
        raise InvalidArgument(
            f"config must be YAML, got {str(path)!r} ({' '.join(str(error).split())})"
        ) from error
    if not isinstance(content, dict):
        raise InvalidArgument(
            f"config must be a mapping of names to values, got {str(path)!r} with {content!r}"
        )
    refuse_text_numbers(content, str(path))
    return content


def refuse_text_numbers(
    value: Any,
    place: str,
    above: tuple[int, ...] = (),
    seen: frozenset[int] | set[int] = frozenset(),
) -> None:
    """Raise for text such as ``1e-3`` at any depth, and for a value that contains itself.

    :param above: ids of the containers around the value
    :param seen: ids of containers that were checked; YAML can repeat them by reference
    """
    seen = seen if isinstance(seen, set) else set()
    if isinstance(value, (Mapping, list)):
        if id(value) in above:
            raise InvalidArgument(f"{place} must not contain itself")
        if id(value) in seen:
            return
        seen.add(id(value))
        above = (*above, id(value))
    if isinstance(value, Mapping):
        for key, entry in value.items():
            refuse_text_numbers(entry, f"{place}: {key}", above, seen)
    elif isinstance(value, list):
        for entry in value:
            refuse_text_numbers(entry, place, above, seen)
    elif isinstance(value, str) and "e" in value.lower():
        try:
            number = float(value)
        except ValueError:
            return
        if math.isfinite(number):
            raise InvalidArgument(
                f"{place} must be a number written with a point, as in 1.0e-3, "
                f"got the text {value!r}"
            )


def settings_from(cls: type[Settings], values: Mapping[str, Any], source: str) -> Settings:
    """An instance of a dataclass of settings; a name it does not have is an error, not ignored."""
    known = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise InvalidArgument(
                f"{source}: unknown name {name!r}, must be one of {', '.join(known)}"
            )
    return cls(**values)
