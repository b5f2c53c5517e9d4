"""One gradient step as one compiled graph.

Target, losses, gradients, clipping, Adam, the statistics m_K and M_K and the check for non-finite
numbers are traced once, through the same hooks that the eager loop calls, and compiled by torch's
inductor. Nothing is read from the device per gradient step: losses and norms add up in a tensor
that is read once per ``train()``.

Tracing runs the hooks in Python with symbolic tensors. A Python number that changes between
gradient steps would be frozen into the graph, so those come in as tensors: the learning rate, the
step count, and what ``_coefficients`` returns (zeta).
"""

import inspect
import math
import shutil
import sys
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.type_aliases import ReplayBufferSamples, TrainFrequencyUnit
from torch import nn

from sb3_cpp.coefficients import track
from sb3_cpp.deep import health
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.fast import FunctionalNetwork, convolves_boards_only, must_call
from sb3_cpp.deep.fused_adam import CLEAR_EVERY, FusedAdam, clear_tiny_moments
from sb3_cpp.deep.policies import MlpPolicy

if TYPE_CHECKING:
    from sb3_cpp.deep.base import RegularizedDQN

# Gradient steps from which compiling pays: it takes 13 to 19 s the first time, 4 to 7 s with
# torch's cache on disk, and saves 0.3 to 0.7 ms per step
LONG_RUN = 20_000
# Shapes and strides were checked when the graph was made
OPTIONS = {"size_asserts": False, "alignment_asserts": False}


class CannotCompile(Exception):
    """Why an update is computed eagerly instead."""


def has_compiler() -> bool:
    """Whether inductor finds a C++ compiler."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++", "cl"))


class CompiledUpdate:
    """The gradient step of a model, compiled for one batch size.

    Weights, Adam's moments and step count are changed in place, in the tensors of the policy and
    its optimiser: saving, loading and eager steps see them as ever.

    :param model: the model
    :param samples: a batch, for its shapes
    """

    def __init__(self, model: "RegularizedDQN", samples: ReplayBufferSamples) -> None:
        optimizer = model._get_optimizer()
        groups = optimizer.plain_groups() if isinstance(optimizer, FusedAdam) else None
        if groups is None:
            raise CannotCompile("its optimiser is not a plain Adam")
        if len(groups) != len(model._network_pairs()):
            raise CannotCompile("its optimiser has parameter groups of its own")
        self._model = model
        pairs = model._network_pairs()
        self._networks = {network: FunctionalNetwork(network) for network in chain(*pairs)}  # type: ignore[arg-type]
        self._settings = [group.settings for group in groups]
        # What the graph reads and, up to the targets, changes. The order is that of ``_update``
        self._online = [[p.detach() for p in online.parameters()] for online, _ in pairs]
        self._means = [group.means for group in groups]
        self._squares = [group.squares for group in groups]
        self._counters = [group.counter for group in groups]
        self._targets = [[p.detach() for p in target.parameters()] for _, target in pairs]
        self._optimizer_state = model.policy.optimizer.state
        self._constants = constants(model)
        if not all(p.requires_grad for part in model._online_parameters for p in part):
            raise CannotCompile("some of its weights are frozen")
        device = self._online[0][0].device
        self._m, self._M = th.zeros((), device=device), th.zeros((), device=device)
        self._shapes = _shapes(samples)
        self.totals = th.zeros(0, device=device)  # sums of losses and norms
        self.finite = th.ones((), dtype=th.bool, device=device)
        self._coefficients = th.zeros(len(model._coefficients()), device=device)
        self._coefficient_values: list[float] = []
        self._scales: list[th.Tensor] = []  # of Adam's updates, by gradient step
        self.loss_names: list[str] = []
        self._compiled = self._compile(samples)

    def fits(self, samples: ReplayBufferSamples) -> bool:
        """Whether the graph is for batches of this shape and for the tensors the model has now."""
        same_state = self._optimizer_state is self._model.policy.optimizer.state
        return same_state and _shapes(samples) == self._shapes

    def is_outdated(self) -> bool:
        """Whether numbers of the model that are constants of the graph have changed."""
        return constants(self._model) != self._constants

    def start(self, gradient_steps: int) -> None:
        """Before the gradient steps of one ``train()``. Copies only what has changed."""
        values = list(self._model._coefficients().values())
        if values != self._coefficient_values:
            self._coefficient_values = values
            self._coefficients.copy_(th.tensor(values))
        self._scales = self._adam_scales(gradient_steps)
        caution = self._model.caution
        if caution is not None and caution.tracker.mean is not self._m:
            assert caution.tracker.mean is not None
            assert caution.tracker.maximum is not None
            self._m.copy_(caution.tracker.mean)
            self._M.copy_(caution.tracker.maximum)
            # From here on the tracker's numbers are the graph's
            caution.tracker.mean, caution.tracker.maximum = self._m, self._M
        self.totals.zero_()

    def read(self, gradient_steps: int) -> dict[str, float] | None:
        """Mean losses and gradient norm since ``start``; None if one was not finite."""
        totals = self.totals.tolist()
        if not all(map(math.isfinite, totals)):
            self.finite.fill_(True)
            return None
        means = [total / gradient_steps for total in totals]
        losses, norms = means[: 1 + len(self.loss_names)], means[1 + len(self.loss_names) :]
        named = {"loss": losses[0]}
        if len(self.loss_names) > 1:
            named |= {f"{name}_loss": mean for name, mean in zip(self.loss_names, losses[1:])}
        return {**named, "grad_norm": math.hypot(*norms)}

    def __call__(self, samples: ReplayBufferSamples, index: int = 0) -> None:
        """One gradient step; no weight changes once a loss or gradient was not finite.

        :param samples: the batch
        :param index: of the step since ``start``
        """
        self._compiled(*self._state, self._scales[index], *_tensors(samples))

    def _adam_scales(self, gradient_steps: int) -> list[th.Tensor]:
        """Per gradient step a row for each optimiser group: learning rate and 1 over the root of
        the second moment's bias correction, both with Adam's bias corrections.

        Computed here because inductor would compute them again for every 16 weights.
        """
        scales = np.empty((gradient_steps, len(self._settings), 2))
        for i, (settings, counter) in enumerate(zip(self._settings, self._counters)):
            steps = counter[0].item() + np.arange(1, gradient_steps + 1)
            beta1, beta2 = settings["betas"]
            scales[:, i, 0] = settings["lr"] / (1 - beta1**steps)
            scales[:, i, 1] = 1 / np.sqrt(1 - beta2**steps)
        table = th.as_tensor(scales.astype(np.float32)).to(self.finite.device)
        return list(table.unbind())

    # --- the graph --------------------------------------------------------------------------------

    def _compile(self, samples: ReplayBufferSamples) -> Any:
        # Imported when needed: it takes a second
        from torch import _inductor as inductor
        from torch.fx.experimental.proxy_tensor import make_fx

        lists = (self._online, self._means, self._squares, self._targets)
        self._lengths = [[len(part) for part in nested] for nested in lists]
        batch = _tensors(samples)
        # The number of losses is known after a first trace
        with th.no_grad():
            probe = self._model._make_batch(samples)
            self.loss_names = list(self._model._losses(probe, self._model._target(probe)))
        self.totals = th.zeros(1 + len(self.loss_names) + len(self._online))
        self.totals = self.totals.to(self.finite.device)
        self._state = [
            *chain(*(chain(*nested) for nested in lists)),
            *self._counters,
            self._m,
            self._M,
            self.totals,
            self.finite,
            self._coefficients,
        ]
        scales = self._adam_scales(1)
        example: list[Any] = [tensor.clone() for tensor in (*self._state, *scales, *batch)]
        try:
            graph = make_fx(self._update)(*example)
            # Tracing must not have changed the model; the examples were copies
            return inductor.compile(graph, example, options=OPTIONS)
        except Exception as error:  # whatever a foreign network or a missing compiler raises
            reason = " ".join(str(error).split())[:200]
            raise CannotCompile(f"{type(error).__name__}: {reason}") from error

    def _update(self, *flat: th.Tensor) -> th.Tensor:
        """The gradient step as a function of tensors; changes its arguments in place."""
        model, rest = self._model, list(flat)

        def take(count: int) -> list[th.Tensor]:
            taken, rest[:] = rest[:count], rest[count:]
            return taken

        online, means, squares, targets = (
            [take(length) for length in lengths] for lengths in self._lengths
        )
        counters = take(len(self._counters))
        m_K, M_K, totals, finite, coefficients, scales, *batch = rest

        leaves = [[p.detach().requires_grad_() for p in part] for part in online]
        weights = dict(zip(self._networks, chain(*zip(leaves, targets))))

        def forward(network: nn.Module, observations: Any) -> th.Tensor:
            return self._networks[network].call(weights[network], observations)

        with th.enable_grad():
            observations, next_observations, actions, rewards, dones, *discounts = batch
            columns = (observations, actions, next_observations, dones, rewards, *discounts)
            data = Batch(
                ReplayBufferSamples(*columns),
                model.gamma,
                model.q_net,
                model.q_net_target,
                forward,
                th.cat((observations, next_observations)),
                model._joint_networks(),
                has_modes=False,
                n_actions=model._n_actions,
                coefficients=dict(zip(model._coefficients(), coefficients.unbind())),
            )
            with th.no_grad():
                target = model._target(data)
            losses = model._losses(data, target)
            loss = th.stack(list(losses.values())).sum()
            gradients = th.autograd.grad(loss, list(chain(*leaves)), allow_unused=True)
        parts, start = [], 0
        for part in leaves:
            given = gradients[start : start + len(part)]
            parts.append([th.zeros_like(p) if g is None else g for p, g in zip(part, given)])
            start += len(part)

        norms = [th.stack([(g * g).sum() for g in part]).sum().sqrt() for part in parts]
        values = th.stack([loss.detach(), *(x.detach() for x in losses.values()), *norms])
        ok = finite & values.isfinite().all()
        statistics = model._statistics(data)
        if statistics is not None:
            mean, maximum = statistics
            rho1, rho2 = model.caution.tracker.rho1, model.caution.tracker.rho2  # type: ignore[union-attr]
            m_new, M_new = track(m_K, M_K, mean.detach(), maximum.detach(), rho1, rho2)
            m_K.copy_(th.where(ok, m_new, m_K))
            M_K.copy_(th.where(ok, M_new, M_K))

        for i, settings in enumerate(self._settings):
            ratio = model.max_grad_norm / (norms[i] + 1e-6)
            # The least of two numbers as a reduction, whose result inductor keeps; a clamp it would
            # compute again for every 16 weights
            clip = th.stack([ratio, th.ones_like(ratio)]).amin()
            beta1, beta2 = settings["betas"]
            rate, inverse_root = scales[i].unbind()
            for p, m, v, g in zip(online[i], means[i], squares[i], parts[i]):
                g = g * clip
                m_new = m + (1 - beta1) * (g - m)
                v_new = v + (1 - beta2) * (g * g - v)
                p_new = p - rate * m_new / (v_new.sqrt() * inverse_root + settings["eps"])
                p.copy_(th.where(ok, p_new, p))
                m.copy_(th.where(ok, m_new, m))
                v.copy_(th.where(ok, v_new, v))
            counters[i].add_(ok.to(counters[i]))
        totals.add_(values)
        finite.copy_(ok)
        return ok


# Arguments of ours that the graph does not contain, or gets as tensors
_OUTSIDE = {"zeta", "averaging", "behaviour", "fast", "precision", "compile"}


@cache
def _names_of_constants(kind: type) -> tuple[str, ...]:
    """Arguments of an algorithm's class that its targets and losses may read as numbers."""
    own = chain(
        *(
            inspect.signature(parent).parameters
            for parent in kind.__mro__[:-1]
            if issubclass(parent, DQN)
        )
    )
    ours = dict.fromkeys(own).keys() - inspect.signature(DQN).parameters.keys() - _OUTSIDE
    return ("gamma", "max_grad_norm", *sorted(ours))


def constants(model: "RegularizedDQN") -> list[Any]:
    """What a graph traced now contains as constants, and which weights it would train."""
    numbers = [getattr(model, name, None) for name in _names_of_constants(type(model))]
    settings = [
        (group["betas"], group["eps"], group["weight_decay"])
        for group in model.policy.optimizer.param_groups
    ]
    trained = [p.requires_grad for part in model._online_parameters for p in part]
    return [*(n for n in numbers if isinstance(n, (int, float, str))), *settings, *trained]


def wanted(model: "RegularizedDQN") -> bool:
    """Whether the gradient steps of a ``learn()`` that begins now are compiled."""
    frequency, unit = model.train_freq  # type: ignore[misc]
    steps_per_rollout = frequency * model.n_envs if unit == TrainFrequencyUnit.STEP else 1
    gradient_steps = model.gradient_steps if model.gradient_steps > 0 else steps_per_rollout
    expected = model._total_timesteps / steps_per_rollout * gradient_steps
    able = bool(model.fast) and not model._has_modes and model._preprocessor is not None
    able = able and model._vec_normalize_env is None
    if model.compile is None:
        # Inductor's convolutions are slower than torch's own; those of small boards are products
        able = able and all(map(convolves_boards_only, chain(*model._network_pairs())))
        return able and has_compiler() and expected >= LONG_RUN
    if model.compile and not (able and has_compiler()):
        needed = "the fast path, a network without modes and an environment without VecNormalize"
        needed = "a C++ compiler" if able else needed
        print(f"{type(model).__name__} is not compiled: it needs {needed}", file=sys.stderr)
    return model.compile and able and has_compiler()


def gradient_steps(model: "RegularizedDQN", count: int, batch_size: int) -> dict[str, float] | None:
    """Compiled gradient steps, on batches drawn at once; returns mean losses and gradient norm.

    None where the eager way is to be taken: the first time, which makes Adam's state and measures
    the first advantages, with hooks on the networks, or where this model cannot be compiled.
    """
    if not model._compile_now or not model.policy.optimizer.state:
        return None
    if model.caution is not None and model.caution.tracker.mean is None:
        return None
    if must_call(*chain(*model._network_pairs())):
        return None
    if model._compiled is not None and model._compiled.is_outdated():
        name = type(model).__name__
        print(
            f"{name} goes on without its compiled gradient step: its arguments or frozen weights "
            "have changed since learn() began",
            file=sys.stderr,
        )
        model._compile_now, model._compiled = False, None
        return None
    assert model.replay_buffer is not None
    generator: Any = np.random.get_state()
    samples = model.replay_buffer.sample(batch_size * count)
    batches = [samples] if count == 1 else split(samples, batch_size)
    if model._compiled is None or not model._compiled.fits(batches[0]):
        try:
            model._compiled = CompiledUpdate(model, batches[0])
        except CannotCompile as reason:
            print(f"{type(model).__name__} is not compiled: {reason}", file=sys.stderr)
            model._compile_now = False
            np.random.set_state(generator)  # the eager way draws these batches again
            return None
    if model._diagnose:  # outside the graph: rarely, on the first batch
        batch = model._make_batch(batches[0])
        with th.no_grad():
            target = model._target(batch)
        model._record_diagnostics(batch, model._losses(batch, target))

    update = model._compiled
    update.start(count)
    average = model.policy.average if isinstance(model.policy, MlpPolicy) else None
    for index, batch_samples in enumerate(batches):
        update(batch_samples, index)
        step = model._n_updates + 1 + index
        if step % CLEAR_EVERY == 0:
            clear_tiny_moments(model.policy.optimizer)
        if average is not None:
            average.update(step)
    means = update.read(count)
    if means is None:
        _refuse_non_finite(model, batches)
    return means


def _refuse_non_finite(model: "RegularizedDQN", batches: list[ReplayBufferSamples]) -> NoReturn:
    """Find the batch with the non-finite loss or gradient, eagerly, and raise."""
    for step, samples in enumerate(batches, start=model._n_updates + 1):
        batch = model._make_batch(samples)
        with th.no_grad():
            target = model._target(batch)
        losses = model._losses(batch, target)
        loss = th.stack(list(losses.values())).sum()
        model.policy.optimizer.zero_grad()
        loss.backward()
        norms = model._gradient_norms()
        if not health.read(loss, losses, norms)[2]:
            where = f"{type(model).__name__} at update {step}"
            health.refuse(where, loss, losses, norms, samples, model.bad_batch_path)
    raise health.NonFiniteLoss(f"{type(model).__name__}: non-finite loss in a compiled update")


def split(samples: ReplayBufferSamples, batch_size: int) -> list[ReplayBufferSamples]:
    """Batches that were drawn at once."""
    parts = [None if part is None else part.split(batch_size) for part in samples]
    count = len(samples.rewards) // batch_size
    return [
        ReplayBufferSamples(*(None if part is None else part[i] for part in parts))  # type: ignore[arg-type]
        for i in range(count)
    ]


def _shapes(samples: ReplayBufferSamples) -> list[tuple[th.Size, th.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in _tensors(samples)]


def _tensors(samples: ReplayBufferSamples) -> list[th.Tensor]:
    now, later = samples.observations, samples.next_observations
    assert isinstance(now, th.Tensor)
    assert isinstance(later, th.Tensor)
    if now.dtype is th.bool:  # inductor loads these one by one
        now, later = now.view(th.uint8), later.view(th.uint8)
    tensors = [now, later, samples.actions, samples.rewards, samples.dones]
    # n-step replay has a discount per transition
    return tensors if samples.discounts is None else [*tensors, samples.discounts]
