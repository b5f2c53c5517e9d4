"""Deep conservative policy iteration (CPI)."""

from typing import Any

import torch as th
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_cpp.deep.acting import ActingDQN
from sb3_cpp.deep.batch import Batch
from sb3_cpp.deep.caution import Caution
from sb3_cpp.deep.cautious import CautiousDQN
from sb3_cpp.regularization import greedy_advantage, log_mixture, log_one_hot, projection_loss


class DeepCPI(CautiousDQN, ActingDQN):
    """
    Deep conservative policy iteration: a Q-network and a policy network that moves towards the greedy policy only as far as
    zeta allows (Vieillard, Pietquin, Geist 2020, "Deep Conservative Policy Iteration").

    ``y = r + gamma (1-d) sum_a pi-(a|s') Q-(s',a)``, and the policy network minimises
    ``KL( pi || stopgrad[(1-zeta) pi- + zeta greedy(Q)] )``.
    Acts epsilon-greedily on the most probable action of the policy network.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy or a class)
    :param env: The environment to learn from (if registered in Gym, can be str)
    :param dqn_args: further positional arguments, in the order of ``stable_baselines3.DQN``
    :param zeta: how far the greedy policy is let in: a rule ("dcpi", "cpi", "spi" = approximate SPI), recomputed at every
        target update, or a fixed number in [0, 1] (the paper's ablation: 0.01 and 0.5)
    :param rho1: decay of the running mean m_K of the advantage, in [0, 1)
    :param rho2: decay of its running maximum M_K, in [0, 1)
    :param r_max: bound of the absolute reward, > 0, for the rules "cpi" and "spi"
    :param loss: of the Q-values: "mse" or "huber"
    :param kwargs: ``behaviour`` (see :class:`RegularizedDQN`) and further arguments of ``stable_baselines3.DQN``
    """

    rules = ("dcpi", "cpi", "spi")

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        *dqn_args: Any,
        zeta: str | float = "dcpi",
        rho1: float = 0.99,
        rho2: float = 0.9999,
        r_max: float = 1.0,
        loss: str = "mse",
        **kwargs: Any,
    ) -> None:
        self.caution = Caution(zeta, self.rules, rho1, rho2, r_max)
        super().__init__(policy, env, *dqn_args, loss=loss, **kwargs)

    def _target(self, batch: Batch) -> th.Tensor:
        previous = th.softmax(batch.frozen_next(self.acting_net_target), dim=1)
        return batch.bootstrap((previous * batch.next_target_q).sum(dim=1, keepdim=True))

    def _log_previous(self, batch: Batch) -> th.Tensor:
        """The target policy pi- at s."""
        return batch.once(
            "log_previous", lambda: th.log_softmax(batch.frozen(self.acting_net_target), dim=1)
        )

    def _losses(self, batch: Batch, target: th.Tensor) -> dict[str, th.Tensor]:
        log_policy = th.log_softmax(self._acting_values(batch), dim=1)
        log_mix = log_mixture(log_one_hot(batch.q.detach()), self._log_previous(batch), self.zeta)
        return {**super()._losses(batch, target), "policy": projection_loss(log_policy, log_mix)}

    def _update_statistics(self, batch: Batch) -> None:
        self.caution.observe(greedy_advantage(batch.q.detach(), self._log_previous(batch)))

    def _on_iteration_end(self) -> dict[str, float]:
        return self.caution.refresh(self.gamma)
