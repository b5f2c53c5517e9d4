"""Diagnostics: Q range, entropy, KL, gradient norms. A non-finite loss ends the run with advice."""

import math
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch as th
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from torch import nn

from sb3_cpp.regularization import entropy, kl_divergence


class NonFiniteLoss(ValueError):
    """A loss or gradient is NaN or infinite; the weights are those before it."""


def read(
    loss: th.Tensor, losses: dict[str, th.Tensor], norms: list[th.Tensor]
) -> tuple[dict[str, float], list[float], bool]:
    """Losses and total gradient norm by name, the norm per network, and whether all are finite.

    One read from the device for all of them.
    """
    parts = {"loss": loss}
    if len(losses) > 1:
        parts |= {f"{name}_loss": value for name, value in losses.items()}
    # One transfer: on a GPU each .item() would wait for the device
    values = th.stack([tensor.detach() for tensor in (*parts.values(), *norms)]).tolist()
    lengths = values[len(parts) :]
    return (
        {**dict(zip(parts, values)), "grad_norm": math.hypot(*lengths)},
        lengths,
        all(map(math.isfinite, values)),
    )


def refuse(
    where: str,
    loss: th.Tensor,
    losses: dict[str, th.Tensor],
    norms: list[th.Tensor],
    samples: ReplayBufferSamples,
    path: Path | None,
    advice: str = "Try a smaller learning_rate or max_grad_norm, or loss='huber'.",
) -> NoReturn:
    """Raise one line that says what is not finite and what to try.

    :param path: where the batch is saved for inspection, if anywhere
    :param advice: what to try if the batch itself is in order
    """
    # The first of these with a non-finite part names the cause: single losses, their sum, gradients
    broken: list[str] = []
    for parts in (losses, {"sum": loss}, {"gradient norm": reduce(th.add, norms)}):
        broken = broken or [
            f"{name} = {part.item()}"
            for name, part in parts.items()
            if not math.isfinite(part.item())
        ]
    saved = ""
    if path is not None:
        save_batch(path, samples)
        saved = f" The batch is in {path}."
    raise NonFiniteLoss(
        f"{where}: non-finite loss ({', '.join(broken)}); the weights are unchanged. "
        f"{_fault(samples) or advice}{saved}"
    )


BAD_OBSERVATIONS = (
    "The observations hold NaN or infinity: repair the environment, "
    "or wrap it in VecCheckNan to see where."
)


def _fault(samples: ReplayBufferSamples) -> str | None:
    observations = [
        *_tensors(samples.observations).values(),
        *_tensors(samples.next_observations).values(),
    ]
    # From the cause furthest upstream to the mere symptom
    if not samples.rewards.isfinite().all():
        return "The rewards hold NaN or infinity: repair the environment."
    if not all(value.isfinite().all() for value in observations if value.is_floating_point()):
        return BAD_OBSERVATIONS
    largest = samples.rewards.abs().max().item()
    if largest > 1e6:
        return f"Rewards reach {largest:.3g}: scale or clip them."
    return None


def _tensors(value: "th.Tensor | dict[str, th.Tensor]") -> dict[str, th.Tensor]:
    return (
        {"": value}
        if isinstance(value, th.Tensor)
        else {f".{key}": entry for key, entry in value.items()}
    )


def save_batch(path: Path, samples: ReplayBufferSamples) -> None:
    """Write a batch as .npz; dictionary observations become ``observations.key``."""
    arrays: dict[str, np.ndarray] = {}
    for name, value in samples._asdict().items():
        if value is not None:
            arrays.update(
                {f"{name}{key}": tensor.cpu().numpy() for key, tensor in _tensors(value).items()}
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)  # type: ignore[arg-type]


def figures(
    values: th.Tensor,
    log_policy: th.Tensor,
    log_previous: th.Tensor,
    mask: th.Tensor | None = None,
) -> dict[str, float]:
    """Q range, mean entropy of the policy, and its mean KL from the previous one, on a batch."""
    kl = kl_divergence(log_policy, log_previous).mean()
    # Invalid actions have a constant, very low value
    valid = values if mask is None else values[mask]
    numbers = th.stack([valid.min(), valid.max(), entropy(log_policy).mean(), kl]).tolist()
    return dict(zip(("q_min", "q_max", "entropy", "kl_to_previous"), numbers))


def gradient_norms(
    losses: dict[str, th.Tensor], parameters: Sequence[th.Tensor]
) -> dict[str, float]:
    """The norm of each loss's own gradient, to see which one dominates."""
    norms = {}
    for name, value in losses.items():
        # retain_graph: the training step goes through the same graph afterwards
        gradients = th.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        norms[name] = nn.utils.get_total_norm([g for g in gradients if g is not None]).item()
    return norms
