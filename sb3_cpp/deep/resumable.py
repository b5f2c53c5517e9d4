"""DQN that can go on where it was interrupted, and whose networks can be shared without pickles."""

from pathlib import Path
from typing import Any, TypeVar

from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback

from sb3_cpp import checkpointing
from sb3_cpp.checkpointing import state, weights
from sb3_cpp.checks import InvalidArgument

SelfResumable = TypeVar("SelfResumable", bound="Resumable")


class Resumable(DQN):
    """What exact resume needs of an algorithm; how checkpoints are made is the matter of ``sb3_cpp.checkpointing``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.callback_states: dict[
            str, Any
        ] = {}  # what callbacks must find again in a run that goes on
        self.goes_on = False  # whether the present learn() is the rest of one that was interrupted
        super().__init__(*args, **kwargs)

    def learn(
        self: SelfResumable,
        total_timesteps: int | None = None,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfResumable:
        """As DQN's ``learn``; TensorBoard logs go under the class's own name unless ``tb_log_name`` is given.

        Without ``total_timesteps`` a resumed model goes on to the end of the ``learn()`` that was interrupted.
        """
        if total_timesteps is None:
            if self.num_timesteps == 0:
                raise InvalidArgument("total_timesteps must be given: nothing was interrupted")
            total_timesteps, reset_num_timesteps = self._total_timesteps - self.num_timesteps, False
        return super().learn(
            total_timesteps=total_timesteps,
            callback=callback,
            log_interval=log_interval,
            tb_log_name=tb_log_name or type(self).__name__,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
        )

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        result = super()._setup_learn(*args, **kwargs)
        self.goes_on = state.restore_pending(self)
        return result

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "goes_on"]

    @classmethod
    def resume(
        cls: type[SelfResumable], path: str | Path, env: GymEnv | None = None
    ) -> SelfResumable:
        """The model of a checkpoint (see ``CheckpointCallback``): ``resume(path).learn()`` goes on as if nothing had happened.

        :param path: a folder of checkpoints (its newest is taken) or one checkpoint
        :param env: an environment built as in the saved run; without it, one is made from its id
        """
        return checkpointing.resume(cls, path, env)

    def save_weights(self, path: str | Path) -> None:
        """Write the networks only, to share: such a file cannot run code when it is loaded."""
        weights.save_weights(self, path)

    def load_weights(self: SelfResumable, path: str | Path) -> SelfResumable:
        """Read what ``save_weights`` wrote, into a model of the same algorithm and sizes; returns that model."""
        weights.load_weights(self, path)
        return self
