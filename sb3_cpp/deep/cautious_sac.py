"""Cautious SAC: caution for continuous actions."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import TanhBijector
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    PyTorchObs,
    ReplayBufferSamples,
    Schedule,
    TensorDict,
)
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.sac import policies as sac
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch.distributions import Normal
from torch.nn import functional as F

from sb3_cpp import checkpointing
from sb3_cpp.checkpointing import state, weights
from sb3_cpp.checks import InvalidArgument, check_number, check_whole_number, sb3_assertions
from sb3_cpp.deep import health
from sb3_cpp.deep.caution import Caution, Rule
from sb3_cpp.deep.saving import check_saved_as, objects_from_names, plain_values, saved_as
from sb3_cpp.regularization import gaussian_kl, gaussian_mixture, l1_bound

SelfCautiousSAC = TypeVar("SelfCautiousSAC", bound="CautiousSAC")


class MlpPolicy(SACPolicy):
    """
    SAC's policy with a second actor, the previous policy, which chooses deterministic actions.

    It is a part of the policy, so ``model.predict``, ``model.policy.predict`` and a policy saved
    alone choose the same actions.
    """

    previous_actor: Actor

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        # Its initial weights are overwritten: the random numbers after it are those of SB3's SAC
        with th.random.fork_rng(devices=[]):
            self.previous_actor = self.make_actor()
        self.previous_actor.load_state_dict(self.actor.state_dict())
        self.previous_actor.requires_grad_(False)
        self.previous_actor.set_training_mode(False)

    @th.no_grad()
    def move_previous_actor(self, zeta: float) -> None:
        """``previous <- previous + zeta (actor - previous)``, in weights and running statistics."""
        actor = self.actor.state_dict()
        for name, value in self.previous_actor.state_dict().items():
            if value.is_floating_point():
                value.lerp_(actor[name], zeta)
            else:
                value.copy_(actor[name])

    def _predict(self, observation: PyTorchObs, deterministic: bool = False) -> th.Tensor:
        actor = self.previous_actor if deterministic else self.actor
        return actor(observation, deterministic)


class CnnPolicy(MlpPolicy, sac.CnnPolicy):
    """The same for images: the Nature CNN."""


class MultiInputPolicy(MlpPolicy, sac.MultiInputPolicy):
    """The same for dictionaries of observations."""


class CautiousSAC(SAC):
    """
    SAC with a KL penalty to the previous policy pi-, which moves by the mixing coefficient zeta.

    Beside its entropy bonus the policy pays ``kl_coef ent_coef KL(pi || pi-)``, in the target of
    the critics and in the loss of the actor. The KL is that of the Gaussians before the tanh,
    whose Jacobian cancels: in closed form, not sampled.

    An *iteration* K ends every ``iteration_interval`` environment steps (those before the first
    gradient step do not count). Then pi- becomes the geometric mixture ``pi^zeta pi-^(1-zeta)``.
    Of tanh-Gaussians it is a tanh-Gaussian in closed form (``regularization.gaussian_mixture``),
    but no single network computes it in every state. So pi- is a copy of the actor that moves in
    weights, ``theta- <- theta- + zeta (theta - theta-)``: one network, no projection loss. Its
    distance to the exact mixture on a batch, a mean KL, is logged as ``cpp/mixture_gap``. The first
    iteration copies the actor, because pi- is a random network until then.

    ``predict(deterministic=True)`` deploys pi-, the interpolated policy. Actions while learning and
    ``deterministic=False`` are the actor's, as in SAC. With ``zeta=1`` and ``kl_coef=0`` the actor
    and the critics are those of SB3's SAC, to the bit.

    The parameters up to ``device`` are SAC's, see :class:`stable_baselines3.SAC`. With
    ``n_steps > 1`` the entropy and KL terms of the skipped steps are left out, as SAC does.

    :param kl_coef: weight of the KL in units of the entropy coefficient, >= 0. It follows an
        automatic ``ent_coef``, and so the scale of the reward; the share of the KL is
        ``alpha = kl_coef / (1 + kl_coef)``
    :param iteration_interval: environment steps of one iteration, which ends with the gradient
        steps after them: with a longer rollout (``train_freq``) an iteration is a rollout
    :param zeta: mixing coefficient of the new policy: "typical" is E-SPI's ``A / (delta * range)``
        measured on batches, with the mean L1 distance of the policies (its bound by the KL) for
        delta and the standard deviation of the advantages for their range; or a function of
        :class:`~sb3_cpp.deep.caution.Estimate`; or a fixed number in [0, 1]
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of the running maximum M_K of its scale, in [0, 1)
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }
    policy: MlpPolicy
    caution: Caution

    def __init__(
        self,
        policy: str | type[SACPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        action_noise: ActionNoise | None = None,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        use_sde_at_warmup: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        *,
        kl_coef: float = 1.0,
        iteration_interval: int = 100,
        zeta: str | float | Rule = "typical",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        _init_setup_model: bool = True,
    ) -> None:
        # Our own state comes before super().__init__(), which builds the model and may need it
        self.kl_coef, self.iteration_interval = kl_coef, iteration_interval
        self.zeta, self.rho1, self.rho2 = zeta, rho1, rho2
        self.iteration = 0
        self.iteration_record: dict[str, float] = {}
        self.callback_states: dict[str, Any] = {}  # what callbacks must find again after a resume
        self.resumed = False  # whether the present learn() continues one that was interrupted
        self.bad_batch_path: Path | None = None  # where a batch with a non-finite loss is saved
        self.saved_as = saved_as(self) if _init_setup_model else None
        self._n_calls = 0
        self._iteration_ends = False  # with the next gradient step
        with sb3_assertions(self, spaces.Box):
            super().__init__(
                policy, env, learning_rate, buffer_size, learning_starts, batch_size, tau, gamma,
                train_freq, gradient_steps, action_noise, replay_buffer_class,
                replay_buffer_kwargs, optimize_memory_usage, n_steps, ent_coef,
                target_update_interval, target_entropy, use_sde, sde_sample_freq,
                use_sde_at_warmup, stats_window_size, tensorboard_log, policy_kwargs, verbose,
                seed, device, _init_setup_model,
            )  # fmt: skip

    def _check_arguments(self) -> None:
        """Refuse bad arguments, whether given to the constructor or to ``load``."""
        self.kl_coef = check_number("kl_coef", self.kl_coef, 0.0)
        interval = check_whole_number("iteration_interval", self.iteration_interval, 1)
        self.iteration_interval = interval
        self.caution = Caution(self.zeta, ("typical",), self.rho1, self.rho2, r_max=1.0)
        self.zeta = self.caution.argument
        check_ent_coef("ent_coef", self.ent_coef)
        if self.target_entropy != "auto":
            check_number("target_entropy", self.target_entropy, -np.inf, low_open=True)
        if not issubclass(self.policy_class, MlpPolicy):
            raise InvalidArgument(
                f"policy must be one of {', '.join(self.policy_aliases)} or a subclass of "
                f"sb3_cpp.deep.cautious_sac.MlpPolicy, got {self.policy_class.__name__}"
            )

    def _setup_model(self) -> None:
        check_saved_as(self)
        objects_from_names(self)
        self._check_arguments()
        super()._setup_model()

    # --- training ---------------------------------------------------------------------------------

    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        # Switch to train mode (this affects batch norm / dropout)
        self.policy.set_training_mode(True)
        # Update the learning rates according to schedule
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimizers += [self.ent_coef_optimizer]
        self._update_learning_rate(optimizers)

        history: dict[str, list[float]] = {}
        for gradient_step in range(gradient_steps):
            # Sample replay buffer
            samples = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)  # type: ignore[union-attr]
            if self.use_sde:
                self.actor.reset_noise()

            with self._refusing_nan(samples):
                # Action by the current actor, and its distance to the previous policy
                actions, log_prob = self.actor.action_log_prob(samples.observations)
                log_prob = log_prob.reshape(-1, 1)
                policy = self.actor.action_dist.distribution
                with th.no_grad():
                    previous = gaussian(self.policy.previous_actor, samples.observations)
                kl = gaussian_kl(policy, previous)

                ent_coef = self._ent_coef()
                with th.no_grad():
                    target = self._target(samples, ent_coef)
                penalty = ent_coef * (log_prob + self.kl_coef * kl)

            # Optimize the critics; stop before their or the actor's weights change if a loss is
            # not finite
            predictions = self.critic(samples.observations, samples.actions)
            critic_loss = 0.5 * sum(F.mse_loss(prediction, target) for prediction in predictions)
            assert isinstance(critic_loss, th.Tensor)
            self._check_finite(critic_loss, penalty.mean(), samples)
            values = {"ent_coef": ent_coef.item(), **self._update_ent_coef(log_prob)}
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()

            # Optimize the actor
            q_values = minimum(self.critic(samples.observations, actions))
            actor_loss = (penalty - q_values).mean()
            self.actor.optimizer.zero_grad()
            actor_loss.backward()
            self.actor.optimizer.step()

            self._measure(samples.observations, actions, q_values, policy, previous, kl)
            # Update the target networks; copy running stats, see SB3's issue #996
            if gradient_step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)

            values |= {"actor_loss": actor_loss.item(), "critic_loss": critic_loss.item()}
            values["kl_to_previous"] = kl.mean().item()
            for name, value in values.items():
                history.setdefault(name, []).append(value)

        self._n_updates += gradient_steps
        if self._iteration_ends:
            self._end_iteration(samples.observations)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, series in history.items():
            self.logger.record(f"train/{name}", np.mean(series))
        for name, quantity in self.iteration_record.items():
            if name != "timesteps":
                self.logger.record(f"cpp/{name}", quantity)

    def _ent_coef(self) -> th.Tensor:
        """The entropy coefficient of this gradient step."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return self.ent_coef_tensor
        return th.exp(self.log_ent_coef.detach())

    def _update_ent_coef(self, log_prob: th.Tensor) -> dict[str, float]:
        """Move a learned entropy coefficient; returns what to log."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            return {}
        assert isinstance(self.target_entropy, float)
        loss = -(self.log_ent_coef * (log_prob + self.target_entropy).detach()).mean()
        self.ent_coef_optimizer.zero_grad()
        loss.backward()
        self.ent_coef_optimizer.step()
        return {"ent_coef_loss": loss.item()}

    def _target(self, samples: ReplayBufferSamples, ent_coef: th.Tensor) -> th.Tensor:
        """``r + gamma (1-d) [ Q-(s',a') - ent_coef (log pi(a'|s') + kl_coef KL(pi || pi-)) ]``."""
        actions, log_prob = self.actor.action_log_prob(samples.next_observations)
        previous = gaussian(self.policy.previous_actor, samples.next_observations)
        kl = gaussian_kl(self.actor.action_dist.distribution, previous)
        values = minimum(self.critic_target(samples.next_observations, actions))
        values = values - ent_coef * (log_prob.reshape(-1, 1) + self.kl_coef * kl)
        # With n-step returns the discount is gamma**n_steps
        discounts = samples.discounts if samples.discounts is not None else self.gamma
        return samples.rewards + (1 - samples.dones) * discounts * values

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        try:
            return super()._sample_action(learning_starts, action_noise, n_envs)
        except ValueError:  # torch's distributions refuse NaN with a page of numbers
            last = self._last_obs
            assert last is not None
            parts = last.values() if isinstance(last, dict) else [last]
            if all(np.isfinite(part).all() for part in parts):
                raise
            where = f"{type(self).__name__} at step {self.num_timesteps}"
            raise health.NonFiniteLoss(f"{where}: no action. {health.BAD_OBSERVATIONS}") from None

    @contextmanager
    def _refusing_nan(self, samples: ReplayBufferSamples) -> Iterator[None]:
        """torch's distributions refuse NaN, from observations or weights, before a loss has it."""
        try:
            yield
        except ValueError:
            nan = th.tensor(math.nan)
            self._check_finite(nan, nan, samples)
            raise

    def _check_finite(
        self, critic_loss: th.Tensor, penalty: th.Tensor, samples: ReplayBufferSamples
    ) -> None:
        loss = (critic_loss + penalty).detach()
        if not loss.isfinite():
            where = f"{type(self).__name__} at update {self._n_updates + 1}"
            losses = {"critic": critic_loss, "entropy and KL": penalty}
            advice = "Try a smaller learning_rate or kl_coef."
            health.refuse(where, loss, losses, [loss], samples, self.bad_batch_path, advice)

    @th.no_grad()
    def _measure(
        self,
        observations: PyTorchObs,
        actions: th.Tensor,
        q_values: th.Tensor,
        policy: Normal,
        previous: Normal,
        kl: th.Tensor,
    ) -> None:
        """Track the mean advantage of the step from pi- to pi, and ``E L1 * std(A)`` as its scale.

        ``A(s) = Q(s, a) - Q(s, a-)``, where a- is the previous policy's action for the same noise:
        no random number is drawn, and most of the sampling error cancels.
        """
        noise = (TanhBijector.inverse(actions) - policy.mean) / policy.stddev
        previous_actions = th.tanh(previous.mean + previous.stddev * noise)
        self.critic.set_training_mode(False)  # running statistics must not see these actions
        advantages = q_values - minimum(self.critic(observations, previous_actions))
        self.critic.set_training_mode(True)
        scale = l1_bound(kl).mean() * advantages.std(correction=0)
        self.caution.observe(advantages.mean(), scale)

    def _on_step(self) -> None:
        self._n_calls += 1
        # Account for multiple environments: each call to step() is n_envs transitions
        if self._n_calls % max(self.iteration_interval // self.n_envs, 1) == 0:
            self._iteration_ends = self._n_updates > 0

    @th.no_grad()
    def _end_iteration(self, observations: PyTorchObs) -> None:
        """Move the previous policy, and measure how far it is from the exact mixture."""
        self._iteration_ends = False
        self.iteration += 1
        quantities = self.caution.update_zeta(self.iteration, self.gamma)
        if self.iteration == 1:  # until now the previous policy was a random network
            quantities["zeta"] = 1.0
        self.policy.set_training_mode(False)
        policy, previous = (
            gaussian(actor, observations) for actor in (self.actor, self.policy.previous_actor)
        )
        exact = gaussian_mixture(policy, previous, quantities["zeta"])
        self.policy.move_previous_actor(quantities["zeta"])
        moved = gaussian(self.policy.previous_actor, observations)
        self.iteration_record = {
            "K": self.iteration,
            "timesteps": self.num_timesteps,
            **quantities,
            "mixture_gap": gaussian_kl(exact, moved).mean().item(),
        }

    # --- learning, saving and loading -------------------------------------------------------------

    def learn(
        self: SelfCautiousSAC,
        total_timesteps: int | None = None,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfCautiousSAC:
        """As SAC's ``learn``; TensorBoard logs go under the class's own name by default.

        Without ``total_timesteps`` a resumed model continues to the end of the interrupted
        ``learn()``.
        """
        if total_timesteps is None:
            if self.num_timesteps == 0:
                raise InvalidArgument("total_timesteps must be a number for a new model, got None")
            total_timesteps = checkpointing.remaining_timesteps(self)
            reset_num_timesteps = False
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
        result = super()._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        self.resumed = state.restore_pending(self)
        return result

    @classmethod
    def resume(
        cls: type[SelfCautiousSAC], path: str | Path, env: GymEnv | None = None
    ) -> SelfCautiousSAC:
        """The model of a checkpoint (see ``CheckpointCallback``): ``resume(path).learn()``
        continues as if it had never been interrupted (gSDE: if it has a ``CheckpointCallback``
        again, which restores the noise drawn before the first rollout).

        :param path: a folder of checkpoints (its newest is taken) or one checkpoint
        :param env: an environment built as in the saved run; without it, one is made from its id
        """
        return checkpointing.resume(cls, path, env)

    def save_weights(self, path: str | Path) -> None:
        """Write the networks only, to share: such a file cannot run code when it is loaded."""
        weights.save_weights(self, path)

    def load_weights(self: SelfCautiousSAC, path: str | Path) -> SelfCautiousSAC:
        """Read what ``save_weights`` wrote, into a model of the same algorithm and sizes."""
        weights.load_weights(self, path)
        return self

    def save(self, path: Any, exclude: Any = None, include: Any = None) -> None:
        """As SB3's ``save``; of what is ours, plain values only: no pickled classes."""
        with plain_values(self):
            super().save(path, exclude, include)

    def set_parameters(
        self,
        load_path_or_dict: str | TensorDict,
        exact_match: bool = True,
        device: th.device | str = "auto",
    ) -> None:
        """As SB3's. Parameters of SB3's SAC (``exact_match=False``) deploy their actor."""
        parts: Any = load_path_or_dict
        if not isinstance(parts, dict):
            parts = load_from_zip_file(parts, device=device, load_data=False)[1]
        saved = parts.get("policy", {})
        if not exact_match and not any(name.startswith("previous_actor.") for name in saved):
            copies = {f"previous_{k}": v for k, v in saved.items() if k.startswith("actor.")}
            parts = {**parts, "policy": {**saved, **copies}}
        super().set_parameters(parts, exact_match, device)

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        modules, variables = super()._get_torch_save_params()
        return [*modules, "caution"], variables

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "bad_batch_path", "resumed"]


def gaussian(actor: Actor, observations: PyTorchObs) -> Normal:
    """The actor's distribution at the observations, before the tanh."""
    mean, log_std, keywords = actor.get_action_dist_params(observations)
    return actor.action_dist.proba_distribution(mean, log_std, **keywords).distribution


def minimum(q_values: tuple[th.Tensor, ...]) -> th.Tensor:
    """The smallest value over the critics, shape (batch, 1)."""
    return th.min(th.cat(q_values, dim=1), dim=1, keepdim=True)[0]


def check_ent_coef(name: str, value: Any) -> None:
    """Refuse what is neither a number nor "auto" nor "auto_<initial value>"."""
    number = value
    if isinstance(value, str):
        text = "1" if value == "auto" else value.removeprefix("auto_")
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if text == value or not 0.0 < number < np.inf:
            raise InvalidArgument(
                f"{name} must be a number >= 0, 'auto' or 'auto_<initial value>', got {value!r}"
            )
    check_number(name, number, 0.0)
