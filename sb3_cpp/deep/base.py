"""RegularizedDQN: SB3's DQN, with what regularised algorithms change turned into hooks."""

import math
import sys
from collections import defaultdict
from functools import cache, reduce
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    ReplayBufferSamples,
    Schedule,
    TensorDict,
)
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn
from torch.nn import functional as F

from sb3_cpp import checkpointing
from sb3_cpp.atari.frame_buffer import default_buffer_class
from sb3_cpp.checkpointing import state, weights
from sb3_cpp.checks import InvalidArgument, check_choice, check_whole_number, sb3_assertions
from sb3_cpp.deep import compiled, health, masks
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution, Rule
from sb3_cpp.deep.fast import (
    PRECISIONS,
    NumpyNetwork,
    Preprocessor,
    acts_greedily,
    has_modes,
    must_call,
    run_preprocessed,
    set_precision,
    speed_up,
)
from sb3_cpp.deep.fused_adam import (
    CLEAR_EVERY,
    FusedAdam,
    clear_tiny_moments,
    lay_out_like_parameters,
)
from sb3_cpp.deep.policies import CnnPolicy, MlpPolicy, MultiInputPolicy, q_values
from sb3_cpp.deep.saving import (
    check_quantiles,
    check_saved_as,
    fit_average,
    objects_from_names,
    plain_values,
    refusing_old_files,
    saved_as,
    without_foreign_optimizer,
)
from sb3_cpp.regularization import log_boltzmann
from sb3_cpp.threads import numpy_threads

SelfRegularizedDQN = TypeVar("SelfRegularizedDQN", bound="RegularizedDQN")

PAPER_TIMESTEPS = 5_000_000  # the length of the paper's Atari runs, learn()'s default
DIAGNOSE_EVERY = 100  # gradient steps at least between two diagnostics, which cost about one each
VALUE_LOSSES = {"huber": F.smooth_l1_loss, "mse": F.mse_loss}


@cache
def _say_what_n_steps_leave_out(algorithm: str, n_steps: int) -> None:
    """Once per process."""
    print(
        f"{algorithm} with n_steps={n_steps} leaves out the entropy and KL terms of the skipped "
        "steps",
        file=sys.stderr,
    )


def _batch_length(observations: th.Tensor | dict[str, th.Tensor]) -> int:
    parts = [observations] if isinstance(observations, th.Tensor) else [*observations.values()]
    return len(parts[0])


class RegularizedDQN(DQN):
    """
    The training loop of all algorithms here. With its own hooks it is SB3's DQN, to the bit; with
    ``n_quantiles`` it is sb3-contrib's QR-DQN.

    A subclass states only what makes it different, in hooks: ``_target`` (regression target of
    the Q-values), ``_losses`` (what is minimised), ``_coefficients`` (scalars in them that change),
    ``_statistics`` (what is measured at every gradient step), ``_on_iteration_end`` (what happens
    at a target update), ``_target_interval`` and ``_target_rate`` (how often and how far the target
    network moves).
    An *iteration* K, the paper's K, ends with a target update; those before the first gradient
    step do not count.

    Environments may mask invalid actions, by a method ``action_masks()`` (sb3-contrib's protocol)
    or by ``info["action_mask"]``: they are then neither chosen nor bootstrapped from.

    The parameters up to ``device`` are DQN's, see :class:`stable_baselines3.DQN`;
    ``max_grad_norm=None`` does not clip, as in QR-DQN. On the fast path the default of
    ``replay_buffer_class`` is :class:`sb3_cpp.atari.FrameReplayBuffer` for an environment that
    guarantees stacked frames, which stores each frame once: the same samples in an eighth of the
    memory.

    :param loss: of the Q-values: "huber" (SB3's DQN) or "mse"
    :param behaviour: policy while learning and of ``predict(deterministic=False)``:
        "epsilon_greedy" as in DQN, or "boltzmann", which samples the algorithm's own policy
        (epsilon is then unused)
    :param averaging: EMA horizon (gradient steps) of the weights used by
        ``predict(deterministic=True)``; 0 = off. Learning does not depend on it
    :param n_quantiles: quantiles of the return that the network learns for each action, by the
        quantile Huber loss instead of ``loss`` (Dabney et al. 2018, "Distributional Reinforcement
        Learning with Quantile Regression"); 0 = none. Policies and Q-values are those of their
        mean
    :param fast: use the fast path (see ``deep/fast.py``), which changes results by float rounding
        only. None: off for this class, for parity with SB3, and on for every algorithm
    :param compile: compile the gradient step (see ``deep/compiled.py``), which needs the fast path
        and a C++ compiler. None: for networks without convolutions and those of small boards
        (MinAtar), in runs long enough to repay the compilation
    :param precision: of the features extractor of image networks, on the fast path: "fp32", "bf16",
        or "auto", which is "bf16" for images where the hardware has it. The rest is float32
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    # Whether the target has entropy or KL terms, which n-step returns have for one step only
    has_regularized_target: ClassVar[bool] = False
    # Names of the rules that ``zeta`` may have, in algorithms with a mixing coefficient
    zeta_rules: ClassVar[tuple[str, ...]] = ()
    caution: Caution | None = None

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10_000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float | None = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        loss: str = "huber",
        behaviour: str = "epsilon_greedy",
        averaging: int = 0,
        n_quantiles: int = 0,
        fast: bool | None = None,
        compile: bool | None = None,
        precision: str = "fp32",
        _init_setup_model: bool = True,
    ) -> None:
        # Our own state comes before super().__init__(), which builds the model and may need it
        self.loss, self.behaviour, self.averaging = loss, behaviour, averaging
        self.n_quantiles = n_quantiles
        self.fast, self.compile, self.precision = fast, compile, precision
        self.iteration = 0
        self.iteration_record: dict[str, float] = {}
        self.callback_states: dict[str, Any] = {}  # what callbacks must find again after a resume
        self.resumed = False  # whether the present learn() continues one that was interrupted
        self.bad_batch_path: Path | None = None  # where a batch with a non-finite loss is saved
        self.saved_as = saved_as(self) if _init_setup_model else None
        self._loading = not _init_setup_model
        self._diagnose, self._diagnosed = True, 0
        self._compiled: compiled.CompiledUpdate | None = None
        self._compile_now = False
        self._mask_source: masks.MaskSource | None = None
        self._last_masks: np.ndarray | None = None
        with sb3_assertions(self, spaces.Discrete):
            super().__init__(
                policy, env, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma,
                train_freq, gradient_steps, replay_buffer_class, replay_buffer_kwargs,
                optimize_memory_usage, n_steps, target_update_interval, exploration_fraction,
                exploration_initial_eps, exploration_final_eps, max_grad_norm, stats_window_size,  # type: ignore[arg-type]
                tensorboard_log, policy_kwargs, verbose, seed, device, _init_setup_model,
            )  # fmt: skip

    def _check_arguments(self) -> None:
        """Refuse bad arguments, whether given to the constructor or to ``load``."""
        self.loss = check_choice("loss", self.loss, VALUE_LOSSES)
        self.behaviour = check_choice("behaviour", self.behaviour, ("epsilon_greedy", "boltzmann"))
        self.averaging = check_whole_number("averaging", self.averaging, 0)
        self.n_quantiles = check_whole_number("n_quantiles", self.n_quantiles, 0)
        if self.max_grad_norm is None:  # as QR-DQN says it
            self.max_grad_norm = math.inf
        self.fast = type(self) is not RegularizedDQN if self.fast is None else bool(self.fast)
        self.precision = check_choice("precision", self.precision, PRECISIONS)
        if self.compile is not None:
            self.compile = bool(self.compile)
        if not issubclass(self.policy_class, DQNPolicy):
            raise InvalidArgument(
                f"policy must be one of {', '.join(self.policy_aliases)} or a subclass of "
                f"DQNPolicy, got {self.policy_class.__name__}"
            )
        for option in ("averaging", "n_quantiles"):
            if getattr(self, option) and not issubclass(self.policy_class, MlpPolicy):
                raise InvalidArgument(
                    f"policy must be one of {', '.join(self.policy_aliases)} or a subclass of "
                    f"sb3_cpp.deep.policies.MlpPolicy for {option}, "
                    f"got {self.policy_class.__name__}"
                )
            if option in self.policy_kwargs:
                raise InvalidArgument(
                    f"{option} must be an argument of {type(self).__name__} itself, "
                    f"got policy_kwargs={{{option!r}: {self.policy_kwargs[option]!r}}}"
                )

    def _make_caution(
        self, zeta: str | float | Rule, rho1: float, rho2: float, r_max: float = 1.0
    ) -> None:
        """For algorithms with a mixing coefficient, in ``_check_arguments``."""
        self.caution = Caution(zeta, self.zeta_rules, rho1, rho2, r_max)
        self.zeta = self.caution.argument

    def _setup_model(self) -> None:
        check_saved_as(self)
        objects_from_names(self)
        self._check_arguments()
        if self.fast and self._uses_default_buffer():
            self.replay_buffer_class = default_buffer_class(self)
        policy_kwargs = self.policy_kwargs
        if self.n_quantiles:
            self.policy_kwargs = {**policy_kwargs, "n_quantiles": self.n_quantiles}
        super()._setup_model()
        self.policy_kwargs = policy_kwargs
        self._check_n_steps()
        self._has_modes = has_modes(self.q_net)
        # Walking through the modules for their parameters takes as long as a small layer
        self._online_parameters = [list(online.parameters()) for online, _ in self._network_pairs()]
        self._preprocessor: Preprocessor | None = None
        self._fused_adam: FusedAdam | None = None
        self._compiled = None
        self._acts_fast = False
        self._numpy_network: NumpyNetwork | None = None
        if self.fast:
            speed_up(self.policy)
            set_precision(self.policy, self.precision)
            if all(Preprocessor.supports(network) for network in chain(*self._network_pairs())):
                self._preprocessor = Preprocessor(self.q_net)
                unchanged = type(self).predict is RegularizedDQN.predict and not self._has_modes
                self._acts_fast = unchanged and acts_greedily(self.policy, self._acting_network())
            self._make_numpy_network()
        if isinstance(self.policy, MlpPolicy):  # after the layout in memory is settled
            self.policy.start_average(self.averaging)

    def _make_numpy_network(self) -> None:
        """Let a small network act in numpy."""
        acting = self._acting_network()
        possible = self._acts_fast and NumpyNetwork.supports(acting, self.n_envs)
        if possible and self._numpy_network is None:
            self._numpy_network = NumpyNetwork(acting)

    def _uses_default_buffer(self) -> bool:
        one_tensor = not isinstance(self.observation_space, spaces.Dict)
        return self.replay_buffer_class is None and self.n_steps == 1 and one_tensor

    def _check_n_steps(self) -> None:
        # Asks the buffer itself, which may have n steps by its own default
        n_steps = max(self.n_steps, getattr(self.replay_buffer, "n_steps", 1))
        if n_steps > 1 and self.has_regularized_target:
            _say_what_n_steps_leave_out(type(self).__name__, n_steps)
        discount = getattr(self.replay_buffer, "gamma", self.gamma)
        if n_steps > 1 and discount != self.gamma:
            raise InvalidArgument(
                f"the gamma of replay_buffer_kwargs must be the model's, {self.gamma}, "
                f"for n-step returns, got {discount}"
            )

    # --- hooks ------------------------------------------------------------------------------------

    def _target(self, batch: Batch) -> th.Tensor:
        """Regression target of Q(s, a), without gradient, shape (batch, 1), or
        (batch, n_quantiles). Here: DQN's."""
        greedy = batch.next_target_q.argmax(dim=1, keepdim=True)
        return batch.bootstrap(batch.next_target_of(greedy))

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        """Losses by name; the optimiser minimises their sum."""
        if not self.n_quantiles:
            return {"value": self._value_loss(batch.prediction, target)}
        if target.shape != batch.prediction.shape:  # of a subclass that does not know quantiles
            raise InvalidArgument(
                f"n_quantiles must be 0 for {type(self).__name__}, got {self.n_quantiles}"
            )
        return {"value": quantile_huber_loss(batch.prediction, target)}

    def _coefficients(self) -> dict[str, float]:
        """Scalars in the losses that change while learning, by name; read from the batch there."""
        return {}

    def _statistics(self, batch: Batch) -> tuple[th.Tensor, th.Tensor] | None:
        """Mean and maximum (or scale) of the advantages on a batch, from which m_K and M_K are
        tracked; without gradient, before the gradient step."""
        return None

    def _on_iteration_end(self) -> dict[str, float]:
        """Called just before a target update (online network K+1, target network K); returns the
        quantities of K to log."""
        return {}

    def _target_interval(self) -> int:
        """Environment steps from one target update to the next."""
        return self.target_update_interval

    def _target_rate(self) -> float:
        """How far a target update moves the target networks towards the online networks."""
        return self.tau

    def _joint_networks(self) -> list[nn.Module]:
        """Target networks that are needed at s and at s'."""
        return []

    def _network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """The online networks, each with its target network."""
        return [(self.q_net, self.q_net_target)]

    def _acting_network(self) -> nn.Module:
        """The online network whose largest output is the action."""
        return self.q_net

    @property
    def behaviour_temperature(self) -> float:
        """Temperature of the algorithm's Boltzmann policy over the acting network's outputs."""
        return 1.0

    def _policies(self, batch: Batch) -> tuple[th.Tensor, th.Tensor]:
        """Log-probabilities at s of the online and the target policy, for the diagnostics."""
        temperature = self.behaviour_temperature
        return log_boltzmann(batch.q, temperature), log_boltzmann(batch.target_q, temperature)

    def _value_loss(self, prediction: th.Tensor, target: th.Tensor) -> th.Tensor:
        return VALUE_LOSSES[self.loss](prediction, target)

    # --- training ---------------------------------------------------------------------------------

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        # Switch to train mode (this affects batch norm / dropout)
        if self._has_modes or not self.fast:
            self.policy.set_training_mode(True)
        # Update learning rate according to schedule
        self._update_learning_rate(self.policy.optimizer)

        means = compiled.gradient_steps(self, gradient_steps, batch_size)
        if means is None:
            means = self._eager_gradient_steps(gradient_steps, batch_size)
        # Increase update counter
        self._n_updates += gradient_steps

        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, mean in means.items():
            self.logger.record(f"train/{name}", mean)
        self._log_iteration()

    def _eager_gradient_steps(self, gradient_steps: int, batch_size: int) -> dict[str, float]:
        """Returns the mean losses and gradient norm."""
        optimizer = self._get_optimizer()
        average = self.policy.average if isinstance(self.policy, MlpPolicy) else None
        history: dict[str, list[float]] = defaultdict(list)
        for step in range(self._n_updates + 1, self._n_updates + gradient_steps + 1):
            # Sample replay buffer
            samples = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            batch = self._make_batch(samples)
            with th.no_grad():
                target = self._target(batch)

            losses = self._losses(batch, target)
            loss = reduce(th.add, losses.values())
            if self._diagnose:
                self._record_diagnostics(batch, losses)

            # Compute the gradients; stop before the weights change if anything is not finite
            optimizer.zero_grad()
            loss.backward()
            norms = self._gradient_norms()
            values, lengths, finite = health.read(loss, losses, norms)
            if not finite:
                where = f"{type(self).__name__} at update {step}"
                health.refuse(where, loss, losses, norms, samples, self.bad_batch_path)
            with th.no_grad():
                statistics = self._statistics(batch)
            if self.caution is not None and statistics is not None:
                self.caution.observe(*statistics)

            # Clip the gradient norm of each network and take the step
            for parameters, norm, length in zip(self._online_parameters, norms, lengths):
                # Below the maximum, clipping is a pass over all gradients that multiplies by 1
                if not length < 0.999 * self.max_grad_norm:
                    nn.utils.clip_grads_with_norm_(parameters, self.max_grad_norm, norm)
            optimizer.step()
            if self.fast and step % CLEAR_EVERY == 0:
                clear_tiny_moments(self.policy.optimizer)
            if average is not None:
                average.update(step)
            for name, value in values.items():
                history[name].append(value)

        return {name: fmean(series) for name, series in history.items()}

    def _gradient_norms(self) -> list[th.Tensor]:
        return [
            nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            for parameters in self._online_parameters
        ]

    def _log_iteration(self) -> None:
        """``cpp/zeta, m_K, M_K, C_K, K`` for algorithms with a mixing coefficient, else K alone."""
        if self.caution is None:
            self.logger.record("train/iteration", self.iteration)
            return
        for name, quantity in self.iteration_record.items():
            if name != "timesteps":
                self.logger.record(f"cpp/{name}", quantity)

    def _get_optimizer(self) -> th.optim.Optimizer | FusedAdam:
        if not self.fast:
            return self.policy.optimizer
        if self._fused_adam is None or self._fused_adam.optimizer is not self.policy.optimizer:
            self._fused_adam = FusedAdam(self.policy.optimizer)
        return self._fused_adam

    def _make_batch(self, samples: ReplayBufferSamples) -> Batch:
        arguments: dict[str, Any] = {
            "has_modes": self._has_modes,
            "n_actions": self._n_actions,
            "coefficients": self._coefficients(),
        }
        if self._preprocessor is not None and not must_call(*chain(*self._network_pairs())):
            arguments["forward"] = run_preprocessed
            arguments["stacked"] = self._preprocessor(samples)
            arguments["joint"] = self._joint_networks()
        return Batch(samples, self.gamma, self.q_net, self.q_net_target, **arguments)

    @property
    def _n_actions(self) -> int:
        assert isinstance(self.action_space, spaces.Discrete)
        return int(self.action_space.n)

    def _on_step(self) -> None:
        """
        Update the exploration rate, and the target networks if needed.
        This method is called in ``collect_rollouts()`` after each step in the environment.
        """
        self._n_calls += 1
        # Account for multiple environments: each call to step() is n_envs transitions
        if self._n_calls % max(self._target_interval() // self.n_envs, 1) == 0:
            if self._n_updates > 0:
                self._end_iteration()
            for online, target in self._network_pairs():
                polyak_update(online.parameters(), target.parameters(), self._target_rate())
            # Copy running stats, see SB3's issue #996
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def _end_iteration(self) -> None:
        self.iteration += 1
        self._diagnose = self._n_updates - self._diagnosed >= DIAGNOSE_EVERY
        quantities = self._on_iteration_end()
        self.iteration_record = {
            "K": self.iteration,
            "timesteps": self.num_timesteps,
            **quantities,
        }

    def _record_diagnostics(self, batch: Batch, losses: dict[str, th.Tensor]) -> None:
        """Q range, entropy, KL, and the gradient norm per loss."""
        self._diagnose, self._diagnosed = False, self._n_updates
        with th.no_grad():
            figures = health.figures(batch.q.detach(), *self._policies(batch), batch.mask)
        for name, figure in figures.items():
            self.logger.record(f"health/{name}", figure)
        if len(losses) > 1:
            parameters = [p for p in chain(*self._online_parameters) if p.requires_grad]
            for name, norm in health.gradient_norms(losses, parameters).items():
                self.logger.record(f"train/{name}_grad_norm", norm)

    # --- acting -----------------------------------------------------------------------------------

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """
        As DQN's ``predict``. Deterministic actions are the policy's; others are epsilon-greedy, or
        sampled with ``behaviour="boltzmann"``.

        :param action_masks: True for valid actions, shape (n_actions,) for all observations or
            (n_envs, n_actions)
        """
        sample = self.behaviour == "boltzmann" and not deterministic
        if not sample and action_masks is None:
            return super().predict(observation, state, episode_start, deterministic)
        explore = not sample and not deterministic and np.random.rand() < self.exploration_rate
        obs, is_vectorized = self.policy.obs_to_tensor(observation)
        rows = None
        if action_masks is not None:
            rows = masks.broadcast(action_masks, _batch_length(obs), self._n_actions)
        if explore and rows is not None:
            actions = masks.sample(self.action_space, rows)
            return actions if is_vectorized else actions[0], state
        self.policy.set_training_mode(False)
        with th.no_grad():
            values = q_values(self._network(deterministic)(obs))
            if rows is not None:
                values = masks.apply(values, th.as_tensor(rows, device=self.device))
            if sample:
                policy = log_boltzmann(values, self.behaviour_temperature).exp()
                actions = th.multinomial(policy, 1).flatten().cpu().numpy()
            else:
                actions = values.argmax(dim=1).cpu().numpy()
        return actions if is_vectorized else actions.squeeze(axis=0), state

    def _network(self, deployed: bool) -> nn.Module:
        if deployed and isinstance(self.policy, MlpPolicy):
            return self.policy.deployed_network
        return self._acting_network()

    def q_values(self, observation: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
        """Q-values at an observation, shape (actions,), or at a batch, shape (batch, actions).

        With ``averaging``, those of the averaged network, from which deterministic actions come.
        """
        return self._evaluate(observation, self._q_network())

    def _q_network(self) -> nn.Module:
        return self._network(deployed=True)

    def action_probabilities(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        action_masks: np.ndarray | None = None,
        deployed: bool = True,
    ) -> np.ndarray:
        """Probabilities of the actions under the algorithm's own policy, shaped as ``q_values``.

        This is the Boltzmann policy that the algorithm learns, of the network from which
        deterministic actions come. For :class:`RegularizedDQN` itself, which has no policy but
        the greedy one, it is that: 1 for the best action.

        :param action_masks: True for valid actions
        :param deployed: ask the network of deterministic actions, or else the online network
        """
        values = np.atleast_2d(self._evaluate(observation, self._network(deployed)))
        given = th.as_tensor(values)
        if action_masks is not None:
            rows = masks.broadcast(action_masks, len(given), self._n_actions)
            given = masks.apply(given, th.as_tensor(rows))
        if type(self).behaviour_temperature is RegularizedDQN.behaviour_temperature:
            policy = F.one_hot(given.argmax(-1), self._n_actions).to(given)
        else:
            policy = log_boltzmann(given, self.behaviour_temperature).exp()
        single = not self.policy.is_vectorized_observation(observation)
        return policy[0].numpy() if single else policy.numpy()

    def _evaluate(
        self, observation: np.ndarray | dict[str, np.ndarray], network: nn.Module
    ) -> np.ndarray:
        self.policy.set_training_mode(False)
        obs, is_vectorized = self.policy.obs_to_tensor(observation)
        with th.no_grad():
            values = q_values(network(obs)).cpu().numpy()
        return values if is_vectorized else values[0]

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """As SB3's, with the same random numbers; greedy actions skip the checks of ``predict``,
        which take longer than a small network."""
        if self._last_masks is not None:
            if self.num_timesteps < learning_starts:
                actions = masks.sample(self.action_space, self._last_masks)
            else:
                assert self._last_obs is not None
                actions, _ = self.predict(self._last_obs, action_masks=self._last_masks)
            return actions, actions
        fast = self._acts_fast and self.behaviour == "epsilon_greedy"
        fast = fast and not must_call(self._acting_network())
        if not fast or self.num_timesteps < learning_starts:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        if np.random.rand() < self.exploration_rate:
            actions = np.array([self.action_space.sample() for _ in range(n_envs)])
        else:
            assert self._preprocessor is not None
            assert isinstance(self._last_obs, np.ndarray)
            if self._numpy_network is not None and self._numpy_network.is_current():
                actions = self._numpy_network(self._last_obs).argmax(axis=1)
                return actions, actions
            with th.no_grad():
                last_obs = th.as_tensor(self._last_obs, device=self.device)
                observations = self._preprocessor.for_acting(last_obs)
                values = q_values(run_preprocessed(self._acting_network(), observations))
                actions = values.argmax(dim=1).cpu().numpy()
        return actions, actions

    # --- action masks -----------------------------------------------------------------------------

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        if self._mask_source is not None:
            assert self._last_masks is not None
            before = self._last_masks
            following, self._last_masks = self._mask_source.after_step(dones, infos, before)
            columns = (buffer_action.reshape(-1, 1), masks.pack(before), masks.pack(following))
            buffer_action = np.concatenate(columns, axis=1)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    # --- learning, saving and loading -------------------------------------------------------------

    def learn(
        self: SelfRegularizedDQN,
        total_timesteps: int | None = None,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfRegularizedDQN:
        """As DQN's ``learn``; TensorBoard logs go under the class's own name by default.

        Without ``total_timesteps`` a resumed model continues to the end of the interrupted
        ``learn()``, and a fresh one trains for the paper's 5,000,000 steps.
        """
        if total_timesteps is None and self.num_timesteps == 0:
            total_timesteps = PAPER_TIMESTEPS
        elif total_timesteps is None:
            total_timesteps = checkpointing.remaining_timesteps(self)
            reset_num_timesteps = False
        # Acting in numpy obeys torch.set_num_threads, too
        with numpy_threads(th.get_num_threads()):
            return super().learn(
                total_timesteps=total_timesteps,
                callback=callback,
                log_interval=log_interval,
                tb_log_name=tb_log_name or type(self).__name__,
                reset_num_timesteps=reset_num_timesteps,
                progress_bar=progress_bar,
            )

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        env_was_reset = reset_num_timesteps or self._last_obs is None
        result = super()._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        self._make_numpy_network()  # a copied model has none
        self._mask_source = masks.start(self, env_was_reset)
        self._compile_now = compiled.wanted(self)
        if self._compiled is not None and self._compiled.is_outdated():
            self._compiled = None
        self.resumed = state.restore_pending(self)
        return result

    @classmethod
    def resume(
        cls: type[SelfRegularizedDQN], path: str | Path, env: GymEnv | None = None
    ) -> SelfRegularizedDQN:
        """The model of a checkpoint (see ``CheckpointCallback``): ``resume(path).learn()``
        continues as if it had never been interrupted.

        :param path: a folder of checkpoints (its newest is taken) or one checkpoint
        :param env: an environment built as in the saved run; without it, one is made from its id
        """
        return checkpointing.resume(cls, path, env)

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: what holds tensors of this very model is made again."""
        own = ("_compiled", "_fused_adam", "_numpy_network")
        return {**self.__dict__, **{name: None for name in own if name in self.__dict__}}

    def save_weights(self, path: str | Path) -> None:
        """Write the networks only, to share: such a file cannot run code when it is loaded."""
        weights.save_weights(self, path)

    def load_weights(self: SelfRegularizedDQN, path: str | Path) -> SelfRegularizedDQN:
        """Read what ``save_weights`` wrote, into a model of the same algorithm and sizes."""
        weights.load_weights(self, path)
        return self

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """As SB3's ``save``; of what is ours, plain values only: no pickled classes."""
        with plain_values(self):
            super().save(path, exclude, include)

    @classmethod
    def load(
        cls: type[SelfRegularizedDQN], path: Any, *args: Any, **kwargs: Any
    ) -> SelfRegularizedDQN:
        """As SB3's ``load``; a file of version 0.1 is refused in one line."""
        with refusing_old_files(cls):
            return super().load(path, *args, **kwargs)

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: th.device | str = "auto",
    ) -> None:
        """As SB3's. ``load(path, averaging=...)`` starts or drops the average as asked for."""
        parts: Any = load_path_or_dict
        if not isinstance(parts, dict):
            parts = load_from_zip_file(parts, device=device, load_data=False)[1]
        if self._loading:
            check_quantiles(self, parts)
        if self._loading or not exact_match:
            parts = fit_average(self, parts)
        self._loading = False
        if not exact_match:
            parts = without_foreign_optimizer(self, parts)
        fused = [group.get("fused") for group in self.policy.optimizer.param_groups]
        super().set_parameters(parts, exact_match, device)
        # The fast path belongs to this model, not to the one that was saved
        for group, setting in zip(self.policy.optimizer.param_groups, fused):
            if setting is not None or "fused" in group:
                group["fused"] = setting
        lay_out_like_parameters(self.policy.optimizer)

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, variables = super()._get_torch_save_params()
        return [*modules, *(["caution"] if self.caution is not None else [])], variables

    def _excluded_save_params(self) -> list[str]:
        ours = [
            "_numpy_network",
            "_preprocessor",
            "_fused_adam",
            "_online_parameters",
            "_mask_source",
        ]
        ours += ["bad_batch_path", "resumed", "_loading", "_compiled", "_compile_now"]
        return [*super()._excluded_save_params(), *ours]
