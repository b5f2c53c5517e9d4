"""SB3's DQN, with what regularised algorithms change turned into hooks."""

import inspect
from collections import defaultdict
from functools import reduce
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.type_aliases import GymEnv, ReplayBufferSamples
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn
from torch.nn import functional as F

from sb3_cpp.checks import InvalidArgument, check_choice
from sb3_cpp.deep import health
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.deployed import DeployedDQN
from sb3_cpp.deep.fast import (
    Preprocessor,
    acts_plainly,
    has_modes,
    must_be_called,
    run_preprocessed,
    speed_up,
)
from sb3_cpp.deep.quick_adam import CLEAR_EVERY, QuickAdam, clear_tiny_moments
from sb3_cpp.quick_replay import QuickReplayBuffer
from sb3_cpp.regularization import log_boltzmann

MEASURE_EVERY = (
    100  # updates at least between two measurements of health, which cost about one update each
)
VALUE_LOSSES = {"huber": F.smooth_l1_loss, "mse": F.mse_loss}


class RegularizedDQN(DeployedDQN):
    """
    The training loop of all algorithms here. With its own hooks it is SB3's DQN, bit for bit.

    A subclass states only what makes it different, in up to four hooks: ``_target`` (the regression target of the Q-values),
    ``_losses`` (what is minimised), ``_update_statistics`` (what is measured at every gradient step) and
    ``_on_iteration_end`` (what happens at a target update). An *iteration* K, the paper's K, ends with a target update;
    those before the first gradient step do not count.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param loss: of the Q-values: "huber" (SB3's DQN) or "mse"
    :param behaviour: how actions are chosen while learning and by ``predict(deterministic=False)``: "epsilon_greedy"
        as DQN does, or "boltzmann", which samples the algorithm's own policy instead (epsilon is then unused)
    :param averaging: gradient steps over which the weights are averaged of the network that ``predict(deterministic=True)``
        asks; 0 asks the newest. What is learned and how actions are chosen while learning do not depend on it
    :param fast: rearrange the arithmetic for speed (see ``deep/fast.py``), which changes results by float rounding only;
        None leaves it to the class: off here, for the parity with SB3, and on for every algorithm
    :param dqn_kwargs: further keyword arguments of ``stable_baselines3.DQN``
    """

    _preprocessor: Preprocessor | None = None
    # Whether an n-step return says the same as n steps of this algorithm's own target
    supports_n_steps: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the full signature, DQN's arguments in DQN's order and then our own, to help() and to editors."""
        super().__init_subclass__(**kwargs)
        inherited = [
            p for p in inspect.signature(DQN.__init__).parameters.values() if p.name != "self"
        ]
        own: dict[str, inspect.Parameter] = {}
        for base in reversed([base for base in cls.__mro__ if issubclass(base, RegularizedDQN)]):
            signature = inspect.signature(base.__init__)
            own.update(
                {
                    n: p
                    for n, p in signature.parameters.items()
                    if p.kind is inspect.Parameter.KEYWORD_ONLY
                }
            )
        setup = inherited.pop().replace(
            kind=inspect.Parameter.KEYWORD_ONLY
        )  # _init_setup_model stays last
        cls.__signature__ = inspect.Signature([*inherited, *own.values(), setup])  # type: ignore[attr-defined]

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *dqn_args: Any,
        loss: str = "huber",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        fast: bool | None = None,
        **dqn_kwargs: Any,
    ) -> None:
        # Our own state is set before super().__init__(), which builds the model and may need it; load() writes it afterwards
        self.loss, self.fast = loss, fast
        self.iteration = 0
        self.iteration_record: dict[str, float] = {}
        self.bad_batch_path: Path | None = None  # where a batch with a non-finite loss is saved
        self._measure, self._measured = True, 0
        try:
            super().__init__(
                policy, env, *dqn_args, behaviour=behaviour, averaging=averaging, **dqn_kwargs
            )
        except InvalidArgument:
            raise
        except AssertionError as error:  # SB3's own checks, which say what is wrong
            action_space = getattr(self, "action_space", None)
            if action_space is not None and not isinstance(action_space, spaces.Discrete):
                raise InvalidArgument(
                    f"env must have a Discrete action space, got {action_space}"
                ) from None
            if not str(error):
                raise
            raise InvalidArgument(str(error)) from error

    def _check_arguments(self) -> None:
        super()._check_arguments()
        self.loss = check_choice("loss", self.loss, VALUE_LOSSES)
        self.fast = type(self) is not RegularizedDQN if self.fast is None else bool(self.fast)

    def _setup_model(self) -> None:
        self._check_arguments()
        if (
            self.fast
            and self.replay_buffer_class is None
            and self.n_steps == 1
            and not isinstance(self.observation_space, spaces.Dict)
        ):
            self.replay_buffer_class = QuickReplayBuffer
        super()._setup_model()
        self._check_n_steps()
        self._has_modes = has_modes(self.q_net)
        # Walking through the modules for their parameters takes as long as a layer of a small network
        self._online_parameters = [list(online.parameters()) for online, _ in self._network_pairs()]
        self._preprocessor = None
        self._quick_adam: QuickAdam | None = None
        self._acts_plainly = False
        if self.fast:
            speed_up(self.policy)
            if all(
                Preprocessor.supports(network) for pair in self._network_pairs() for network in pair
            ):
                self._preprocessor = Preprocessor(self.q_net)
                own = type(self).predict is RegularizedDQN.predict and not self._has_modes
                self._acts_plainly = own and acts_plainly(self.policy, self._acting_network())
        self._start_average()

    def _check_n_steps(self) -> None:
        """Of the buffer itself, which may have n steps by its own default."""
        n_steps = max(self.n_steps, getattr(self.replay_buffer, "n_steps", 1))
        if n_steps > 1 and not self.supports_n_steps:
            raise InvalidArgument(
                f"n_steps must be 1 for {type(self).__name__}, got {n_steps}: "
                "n-step returns leave out the entropy and KL terms of the skipped steps"
            )
        discount = getattr(self.replay_buffer, "gamma", self.gamma)
        if n_steps > 1 and discount != self.gamma:
            raise InvalidArgument(
                f"the gamma of replay_buffer_kwargs must be the model's, {self.gamma}, for n-step returns, got {discount}"
            )

    # --- hooks ------------------------------------------------------------------------------------------------------------

    def _target(self, batch: Batch) -> th.Tensor:
        """Regression target of Q(s, a), shape (batch, 1), without gradient. Here: the largest target value at s'."""
        return batch.bootstrap(batch.next_target_q.max(dim=1, keepdim=True).values)

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        """What is minimised, by name; the sum is what the optimiser sees."""
        return {"value": self._value_loss(batch.taken(batch.q), target)}

    def _update_statistics(self, batch: Batch) -> None:
        """Measure what the next target update needs; called without gradient, for the values before the gradient step."""

    def _on_iteration_end(self) -> dict[str, float]:
        """Just before a target update (the online network is K+1, the target network still K): the quantities of K."""
        return {}

    def _joint_networks(self) -> list[nn.Module]:
        """Target networks whose values at s and at s' are both used."""
        return []

    def _network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """The learning networks, each with its target copy."""
        return [(self.q_net, self.q_net_target)]

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """Log-probabilities at s of the learning policy and of the previous one, for the health figures."""
        return log_boltzmann(batch.q, self.behaviour_temperature), log_boltzmann(
            batch.target_q, self.behaviour_temperature
        )

    # --- the loop ---------------------------------------------------------------------------------------------------------

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        # Switch to train mode (this affects batch norm / dropout)
        if self._has_modes or not self.fast:
            self.policy.set_training_mode(True)
        # Update learning rate according to schedule
        self._update_learning_rate(self.policy.optimizer)

        optimizer = self._get_optimizer()
        history: dict[str, list[float]] = defaultdict(list)
        for step in range(gradient_steps):
            # Sample replay buffer
            samples = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            batch = self._make_batch(samples)
            with th.no_grad():
                target = self._target(batch)

            losses = self._losses(batch, target)
            loss = reduce(th.add, losses.values())
            if self._measure:
                self._record_health(batch, losses)

            # Optimize the policy, each network's gradient clipped by itself
            optimizer.zero_grad()
            loss.backward()
            norms = [
                nn.utils.get_total_norm([p.grad for p in ps if p.grad is not None])
                for ps in self._online_parameters
            ]
            values, lengths, finite = health.read(loss, losses, norms)
            if not finite:  # before the weights change
                where = f"{type(self).__name__} at update {self._n_updates + step + 1}"
                health.refuse(where, loss, losses, norms, samples, self.bad_batch_path)
            with th.no_grad():
                self._update_statistics(batch)
            for parameters, norm, length in zip(self._online_parameters, norms, lengths):
                if (
                    not length < 0.999 * self.max_grad_norm
                ):  # else clipping is a pass over all gradients, times exactly 1
                    nn.utils.clip_grads_with_norm_(parameters, self.max_grad_norm, norm)
            optimizer.step()
            if self.fast and (self._n_updates + step + 1) % CLEAR_EVERY == 0:
                clear_tiny_moments(self.policy.optimizer)
            if self._average is not None:
                self._average.update(self._n_updates + step + 1)
            for name, value in values.items():
                history[name].append(value)

        # Increase update counter
        self._n_updates += gradient_steps

        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, series in history.items():
            self.logger.record(f"train/{name}", fmean(series))
        for name, quantity in self.iteration_record.items():
            if name != "timesteps":
                self.logger.record(f"cpp/{name}", quantity)

    def _get_optimizer(self) -> th.optim.Optimizer | QuickAdam:
        if not self.fast:
            return self.policy.optimizer
        if self._quick_adam is None or self._quick_adam.optimizer is not self.policy.optimizer:
            self._quick_adam = QuickAdam(self.policy.optimizer)
        return self._quick_adam

    def _make_batch(self, samples: ReplayBufferSamples) -> Batch:
        networks = (self.q_net, self.q_net_target)
        if self._preprocessor is None or must_be_called(
            *chain.from_iterable(self._network_pairs())
        ):
            return Batch(samples, self.gamma, *networks, has_modes=self._has_modes)
        stacked = self._preprocessor(samples)
        return Batch(
            samples,
            self.gamma,
            *networks,
            run_preprocessed,
            stacked,
            self._joint_networks(),
            self._has_modes,
        )

    def _on_step(self) -> None:
        """
        Update the exploration rate, and the target networks if needed.
        This method is called in ``collect_rollouts()`` after each step in the environment.
        """
        self._n_calls += 1
        # Account for multiple environments: each call to step() corresponds to n_envs transitions
        if self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            if self._n_updates > 0:
                self._end_iteration()
            for online, target in self._network_pairs():
                polyak_update(online.parameters(), target.parameters(), self.tau)
            # Copy running stats, see SB3's issue #996
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def _end_iteration(self) -> None:
        self.iteration += 1
        self._measure = self._n_updates - self._measured >= MEASURE_EVERY
        self.iteration_record = {
            "K": self.iteration,
            "timesteps": self.num_timesteps,
            **self._on_iteration_end(),
        }

    def _value_loss(self, prediction: th.Tensor, target: th.Tensor) -> th.Tensor:
        return VALUE_LOSSES[self.loss](prediction, target)

    def _record_health(self, batch: Batch, losses: dict[str, th.Tensor]) -> None:
        """Once per iteration (with soft target updates, where each step is one: every so often): what shows that numbers are
        about to leave their range, and which loss leads."""
        self._measure, self._measured = False, self._n_updates
        with th.no_grad():
            figures = health.figures(batch.q.detach(), *self._policies(batch))
        for name, figure in figures.items():
            self.logger.record(f"health/{name}", figure)
        if len(losses) > 1:
            parameters = [
                p for online in self._online_parameters for p in online if p.requires_grad
            ]
            for name, norm in health.gradient_norms(losses, parameters).items():
                self.logger.record(f"train/{name}_grad_norm", norm)

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "_preprocessor",
            "_quick_adam",
            "_online_parameters",
            "bad_batch_path",
        ]

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """As SB3's, with the same random numbers; the greedy actions come without the checks that ``predict`` makes each
        time because an observation may come from anywhere, which take longer than a small network does."""
        plainly = (
            self._acts_plainly
            and self.behaviour == "epsilon_greedy"
            and not must_be_called(self._acting_network())
        )
        if not plainly or self.num_timesteps < learning_starts:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        if np.random.rand() < self.exploration_rate:
            actions = np.array([self.action_space.sample() for _ in range(n_envs)])
        else:
            assert self._preprocessor is not None
            assert isinstance(self._last_obs, np.ndarray)
            with th.no_grad():
                observations = self._preprocessor.alone(
                    th.as_tensor(self._last_obs, device=self.device)
                )
                actions = (
                    run_preprocessed(self._acting_network(), observations)
                    .argmax(dim=1)
                    .cpu()
                    .numpy()
                )
        return actions, actions
