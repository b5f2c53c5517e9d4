"""The table of algorithms that the tests run through, and a small MDP with one-hot observations."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from sb3_cpp import CVI, MDQN, CautiousMDQN, DeepCPI, DeepCPP, MoDQN, RegularizedDQN
from sb3_cpp.deep.batch import Batch


class Case(NamedTuple):
    cls: type[RegularizedDQN]
    kwargs: dict[str, Any]
    frozen: dict[str, Any] = {"tau": 0.0}  # what keeps the target network from following  # noqa: RUF012

    def make(
        self, policy: Any = "MlpPolicy", env: Any = "CartPole-v1", **kwargs: Any
    ) -> RegularizedDQN:
        small = {
            "buffer_size": 1000,
            "learning_starts": 50,
            "target_update_interval": 50,
            "seed": 0,
            "device": "cpu",
        }
        arguments = {**small, **self.kwargs, **kwargs}
        if self.cls is CautiousMDQN and "zeta" not in arguments:
            # It moves the target network every 0.3 intervals; the tests say how often
            arguments["target_update_interval"] = round(arguments["target_update_interval"] / 0.3)
        return self.cls(policy, env, **arguments)


CASES = {
    "cpp": Case(DeepCPP, {}),
    "cpp_weighted": Case(DeepCPP, {"projection_coef": 50.0, "averaging": 20}),
    "cmdqn": Case(CautiousMDQN, {}, frozen={"zeta": 0.0}),
    "cvi": Case(CVI, {}),
    "mdqn": Case(MDQN, {}),
    "modqn": Case(MoDQN, {}),
    "cpi": Case(DeepCPI, {}),
    "cpp_quantiles": Case(DeepCPP, {"n_quantiles": 5}),
    "cmdqn_quantiles": Case(CautiousMDQN, {"n_quantiles": 5}, frozen={"zeta": 0.0}),
    "cvi_quantiles": Case(CVI, {"n_quantiles": 5}),
    "mdqn_quantiles": Case(MDQN, {"n_quantiles": 5}),
    "modqn_quantiles": Case(MoDQN, {"n_quantiles": 5}),
    "cpi_quantiles": Case(DeepCPI, {"n_quantiles": 5}),
}
ALGORITHMS = ["cpp", "cmdqn", "cvi", "mdqn", "modqn", "cpi"]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


class OneHotMDP:
    """Three states, two actions, deterministic moves; those of the last state are terminal.

    A batch holds every (s, a) one time.
    """

    n_states, n_actions, gamma = 3, 2, 0.9

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.next_state = np.array([[1, 2], [2, 0], [0, 1]])
        self.reward = rng.uniform(-1, 1, (3, 2))
        self.done = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
        self.online, self.target, self.acting, self.acting_target = (
            rng.normal(size=(3, 2)) for _ in range(4)
        )

    @property
    def samples(self) -> ReplayBufferSamples:
        states, actions = np.divmod(np.arange(6), 2)
        column = lambda x: th.as_tensor(x.reshape(-1, 1), dtype=th.float32)  # noqa: E731
        one_hot = lambda s: th.as_tensor(np.eye(3)[s], dtype=th.float32)  # noqa: E731
        return ReplayBufferSamples(
            one_hot(states),
            th.as_tensor(actions.reshape(-1, 1)),
            one_hot(self.next_state.ravel()),
            column(self.done),
            column(self.reward),
        )

    def backup(self, next_value: np.ndarray) -> np.ndarray:
        """Tabular ``r + gamma (1-d) V(s')``, shape (states, actions)."""
        return self.reward + self.gamma * (1 - self.done) * next_value[self.next_state]

    def load_into(self, model: RegularizedDQN) -> Batch:
        tables = {"q_net": self.online, "q_net_target": self.target}
        if hasattr(model, "acting_net"):
            tables |= {"acting_net": self.acting, "acting_net_target": self.acting_target}
        for name, values in tables.items():
            with th.no_grad():
                getattr(model, name).q_net[0].weight.copy_(th.as_tensor(values.T))
                getattr(model, name).q_net[0].bias.zero_()
        networks = (model.q_net, model.q_net_target)
        return Batch(self.samples, self.gamma, *networks, coefficients=model._coefficients())


@pytest.fixture
def mdp() -> OneHotMDP:
    return OneHotMDP()


@pytest.fixture
def one_hot_env() -> Any:
    """An environment with the MDP's spaces, to build models from."""
    import gymnasium as gym

    class Spaces(gym.Env):
        observation_space = spaces.Box(0, 1, (3,), np.float32)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return np.eye(3, dtype=np.float32)[0], {}

        def step(self, action: Any) -> Any:
            return np.eye(3, dtype=np.float32)[0], 0.0, False, True, {}

    return Spaces()
