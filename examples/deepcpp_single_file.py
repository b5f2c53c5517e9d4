"""DeepCPP in one file, in CleanRL's manner: Algorithm 2 of Cautious Policy Programming to read
beside the paper (Zhu, Kitamura, Matsubara 2022). It needs torch, gymnasium and numpy only.

With the same settings and seed its weights equal those of `sb3_cpp.DeepCPP(..., fast=False)` to the
bit: random numbers are drawn in the order of Stable-Baselines3, and formulas are rounded as there.
Equation names are those of docs/theory/deviations.md, which lists where the print was corrected.
Try it with `--timesteps 2000`.
"""

import argparse
import math
import random
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch as th
from torch import nn
from torch.nn import functional as F


@dataclass
class Settings:
    env: str = "CartPole-v1"
    timesteps: int = 20_000
    seed: int = 0
    learning_rate: float = 1e-3
    buffer_size: int = 50_000
    learning_starts: int = 100
    batch_size: int = 64
    gamma: float = 0.99
    train_freq: int = 4  # environment steps per gradient step
    target_update_interval: int = 32  # one iteration K, about timesteps / 600
    exploration_fraction: float = 0.1  # of the run, over which epsilon falls
    exploration_initial_eps: float = 1.0
    exploration_final_eps: float = 0.05
    max_grad_norm: float = 10.0
    alpha: float = 0.9254  # share of the KL weight: sigma / (tau + sigma)
    temperature: float = 0.0134  # 1/beta = tau + sigma, entropy weight plus KL weight
    rho1: float = 0.99  # decay of m_K
    rho2: float = 0.9999  # decay of M_K
    r_max: float = 1.0  # bound of the absolute reward


# --- the formulas: actions in the last dimension, policies as log-probabilities -------------------


def log_softmax(q: th.Tensor, temperature: float, offset: th.Tensor | float = 0.0) -> th.Tensor:
    """``log softmax(q / temperature + offset)``, which cannot overflow at a small temperature."""
    top = q.detach().amax(-1, keepdim=True)
    return th.log_softmax((q - top) / temperature + offset, dim=-1)


def previous_policy(target_q: th.Tensor, s: Settings) -> th.Tensor:
    """``pi- = softmax(Q- / tau)`` of the target network, with the entropy weight tau."""
    return log_softmax(target_q, (1.0 - s.alpha) * s.temperature)


def greedy_policy(q: th.Tensor, log_previous: th.Tensor, s: Settings) -> th.Tensor:
    """``G Q ∝ pi-^alpha exp(beta Q)`` (Eq. boltzmann_greedy)."""
    return log_softmax(q, s.temperature, s.alpha * log_previous)


def regularized_value(
    log_policy: th.Tensor, q: th.Tensor, log_previous: th.Tensor, s: Settings
) -> th.Tensor:
    """``sum_a p [Q - tau log p - sigma log(p / pi-)]`` (Eq. sys_DPPbellman), shape (batch, 1)."""
    bonus = s.temperature * (s.alpha * log_previous - log_policy)  # the last two terms
    return (log_policy.exp() * (q + bonus)).sum(-1, keepdim=True)


def mixture(log_new: th.Tensor, log_old: th.Tensor, zeta: float) -> th.Tensor:
    """``zeta new + (1 - zeta) old`` (Eq. mixture_cvi)."""
    log_zeta, log_rest = (math.log(x) if x > 0.0 else -math.inf for x in (zeta, 1.0 - zeta))
    return th.logaddexp(log_new + log_zeta, log_old + log_rest)


def policy_loss(log_policy: th.Tensor, log_mix: th.Tensor) -> th.Tensor:
    """``E KL( G Q || stopgrad[mixture] )`` (Eq. policy_loss).

    The gradient through the logarithm, ``sum_a grad p = 0``, is left out.
    """
    return (log_policy.exp() * (log_policy - log_mix).detach()).sum(-1).mean()


def advantage(q: th.Tensor, log_previous: th.Tensor) -> th.Tensor:
    """``A(s) = max_a Q(s,a) - sum_a pi-(a|s) Q(s,a)``, a mean of action gaps, shape (batch,)."""
    return (log_previous.exp() * (q.amax(-1, keepdim=True) - q)).sum(-1)


def log_policy_change_bound(K: int, s: Settings) -> float:
    """log of ``C_K = (r_max / temperature) sum_{k<K} alpha^k gamma^(K-k-1)`` (Lemma 3).

    The sum is ``high^(K-1) (1 - x^K) / (1 - x)`` with ``x = low / high``; C_K may underflow.
    """
    high, low = max(s.alpha, s.gamma), min(s.alpha, s.gamma)
    log_x = math.log1p((low - high) / high) if low > 0.0 else -math.inf
    terms = K if log_x == 0.0 else math.expm1(K * log_x) / math.expm1(log_x)
    log_sum = (K - 1) * math.log(high) + math.log(terms)
    return math.log(s.r_max) - math.log(s.temperature) + log_sum


def mixing_coefficient(m: th.Tensor, M: th.Tensor, K: int, s: Settings) -> float:
    """``zeta = clip(1/C_K m_K/M_K, 0, 1)`` (Eq. cpp_zeta), through logs."""
    ratio = float((m / M).clamp(0.0, 1.0)) if M > 0.0 else 0.0
    if ratio == 0.0:
        return 0.0
    return math.exp(min(math.log(ratio) - log_policy_change_bound(K, s), 0.0))


# --- replay ---------------------------------------------------------------------------------------


class ReplayBuffer:
    """The last transitions (s, a, r, s', d); d is 0 where an episode was cut by a time limit."""

    def __init__(self, size: int, shape: tuple[int, ...]) -> None:
        self.size, self.count = size, 0
        self.observations = np.zeros((size, *shape), np.float32)
        self.next_observations = np.zeros((size, *shape), np.float32)
        self.actions = np.zeros((size, 1), np.int64)
        self.rewards = np.zeros((size, 1), np.float32)
        self.dones = np.zeros((size, 1), np.float32)

    def add(
        self, obs: np.ndarray, action: int, reward: float, next_obs: np.ndarray, done: bool
    ) -> None:
        i = self.count % self.size
        self.observations[i], self.next_observations[i] = obs, next_obs
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, done
        self.count += 1

    def sample(self, batch_size: int) -> list[th.Tensor]:
        i = np.random.randint(0, min(self.count, self.size), size=batch_size)
        columns = (self.actions, self.rewards, self.next_observations, self.dones)
        return [th.as_tensor(column[i]) for column in (self.observations, *columns)]


# --- Algorithm 2 ----------------------------------------------------------------------------------


@dataclass
class Trained:
    q_net: nn.Module
    target_net: nn.Module
    zeta: float
    returns: list[float]


def make_network(n_inputs: int, n_actions: int) -> nn.Sequential:
    return nn.Sequential(
        *(nn.Flatten(), nn.Linear(n_inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, n_actions),
    )


def epsilon_at(step: int, s: Settings) -> float:
    """Epsilon of the exploration, which falls linearly; rounded as in Stable-Baselines3."""
    progress = 1 - (1.0 - step / s.timesteps)
    if progress > s.exploration_fraction:
        return s.exploration_final_eps
    fall = s.exploration_final_eps - s.exploration_initial_eps
    return s.exploration_initial_eps + progress * fall / s.exploration_fraction


def train(s: Settings) -> Trained:
    random.seed(s.seed)
    np.random.seed(s.seed)
    th.manual_seed(s.seed)
    env = gym.make(s.env)
    assert isinstance(env.observation_space, gym.spaces.Box)
    assert isinstance(env.action_space, gym.spaces.Discrete)
    env.action_space.seed(s.seed)
    shape, n_actions = env.observation_space.shape, int(env.action_space.n)

    buffer = ReplayBuffer(s.buffer_size, shape)
    q_net = make_network(math.prod(shape), n_actions)
    target_net = make_network(math.prod(shape), n_actions)
    target_net.load_state_dict(q_net.state_dict())
    optimizer = th.optim.Adam(q_net.parameters(), lr=s.learning_rate)

    # Until the first target update pi- is a random network: nothing to be cautious about
    zeta, K = 1.0, 0
    m: th.Tensor | None = None  # running mean of the advantage; None before the first gradient step
    M = th.zeros(())  # running maximum of the advantage
    epsilon, episode_return = 0.0, 0.0
    returns: list[float] = []
    obs, _ = env.reset(seed=s.seed)
    for step in range(1, s.timesteps + 1):
        # Act: at random at first, then epsilon-greedily
        if step <= s.learning_starts or np.random.rand() < epsilon:
            action = int(env.action_space.sample())
        else:
            with th.no_grad():
                action = int(q_net(th.as_tensor(obs[None], dtype=th.float32)).argmax())
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, float(reward), next_obs, terminated)
        episode_return += float(reward)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
            returns.append(episode_return)
            episode_return = 0.0

        # An iteration ends: zeta for the next one, then the target network becomes the online one
        if step % s.target_update_interval == 0:
            if m is not None:
                K += 1
                zeta = mixing_coefficient(m, M, K, s)
            target_net.load_state_dict(q_net.state_dict())
        epsilon = epsilon_at(step, s)
        if step % 2_000 == 0 and returns:
            print(f"step {step}  K {K}  zeta {zeta:.4f}  return {np.mean(returns[-20:]):.0f}")

        if step % s.train_freq or step <= s.learning_starts:
            continue
        observations, actions, rewards, next_observations, dones = buffer.sample(s.batch_size)
        with th.no_grad():
            # y: the policy is the online network's, the values are the target network's
            next_target_q = target_net(next_observations)
            log_previous = previous_policy(next_target_q, s)
            log_policy = greedy_policy(q_net(next_observations), log_previous, s)
            value = regularized_value(log_policy, next_target_q, log_previous, s)
            target = rewards + (1 - dones) * s.gamma * value
            log_previous = previous_policy(target_net(observations), s)
        q = q_net(observations)
        log_policy = greedy_policy(q, log_previous, s)
        log_mix = mixture(log_policy.detach(), log_previous, zeta)
        # Eq. value_loss plus Eq. policy_loss
        loss = F.mse_loss(q.gather(1, actions), target) + policy_loss(log_policy, log_mix)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q_net.parameters(), s.max_grad_norm)
        optimizer.step()

        # m <- rho1 m + (1-rho1) mean A and M <- max(rho2 M, max A) (Eq. adaptive_zeta)
        A = advantage(q.detach(), log_previous)
        m = A.mean() if m is None else th.lerp(A.mean(), m, s.rho1)
        M = th.maximum(s.rho2 * M, A.max())
    env.close()
    return Trained(q_net, target_net, zeta, returns)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for field in fields(Settings):
        option = "--" + field.name.replace("_", "-")
        parser.add_argument(option, type=type(field.default), default=field.default)
    th.set_num_threads(1)  # a small network is slower with more
    train(Settings(**vars(parser.parse_args())))
