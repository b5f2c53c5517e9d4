"""A Q-function linear in its features, ``Q(s,a) = phi(s,a) . theta`` (CPP Sec. 4.4, "Linear CPP").

Every feature here is a product ``phi(s,a) = phi(s) x g(a)``: state features times action features. A Gaussian over the joint
``x = [s, a]`` is such a product, and so is "one set of weights per action", whose g(a) is the one-hot vector of a.
Shapes: states (..., dims), state features (..., M), weights (..., groups, F), values (..., actions).
"""

import numpy as np
import torch as th

from sb3_cpp.linear.features import RadialBasis, StateFeatures


class LinearQ:
    """State features crossed with action features: how weights become values, and transitions become rows of a regression.

    :param state_features: maps states (..., dims) to (..., M)
    :param n_state_features: M
    :param n_actions: number of actions
    :param action_centres: None gives every action its own weights (F = M, one group per action). A number puts that many
        Gaussian centres along the action's index, the printed features over ``x = [s, a]`` (F = M * centres, one group)
    :param width: width of the action Gaussians in spacings of their centres
    """

    def __init__(
        self,
        state_features: StateFeatures,
        n_state_features: int,
        n_actions: int,
        action_centres: int | None = None,
        width: float = 0.8,
    ) -> None:
        self.state_features, self.n_actions = state_features, n_actions
        self.action_features: th.Tensor | None = None
        self.groups, self.size = n_actions, n_state_features
        if action_centres is not None:
            axis = RadialBasis([0.0], [max(n_actions - 1.0, 1.0)], [action_centres], width)
            self.action_features = th.from_numpy(
                axis(np.arange(n_actions, dtype=np.float64)[:, np.newaxis])
            )
            self.groups, self.size = 1, n_state_features * action_centres

    def zeros(self, n_trials: int, dtype: th.dtype) -> th.Tensor:
        """Weights of the function Q = 0, shape (trials, groups, F)."""
        return th.zeros(n_trials, self.groups, self.size, dtype=dtype)

    def per_action(self, weights: th.Tensor) -> th.Tensor:
        """Weights (..., groups, F) as one vector of M weights per action, (..., actions, M)."""
        if self.action_features is None:
            return weights
        g = self.action_features.to(weights)
        return g @ weights.squeeze(-2).unflatten(-1, (-1, g.shape[-1])).transpose(-1, -2)

    def values(self, phi: th.Tensor, weights: th.Tensor) -> th.Tensor:
        """``Q(s,a) = phi(s,a) . theta`` of every action: state features (trials, steps, M) -> (trials, steps, actions)."""
        # the few actions as rows of the product: twice as fast as the few as its columns
        return (self.per_action(weights) @ phi.transpose(-1, -2)).transpose(-1, -2).contiguous()

    def normal_equations(
        self, phi: th.Tensor, actions: th.Tensor, targets: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor]:
        """``Phi' Phi`` (trials, groups, F, F) and ``Phi' y`` (trials, groups, F) of the rows phi(s_t, a_t).

        :param phi: state features, shape (trials, steps, M)
        :param actions: shape (trials, steps)
        :param targets: y, shape (trials, steps)
        """
        trials = th.arange(len(phi)).unsqueeze(-1)
        if self.action_features is None:
            rows, group = phi, trials * self.groups + actions
        else:
            g = self.action_features.to(phi)[actions]
            rows, group = (
                (phi.unsqueeze(-1) * g.unsqueeze(-2)).flatten(-2),
                trials.expand_as(actions),
            )
        # each group's rows are laid together, so that no product is spent on the zeros of a block matrix, and group by group,
        # so that they are still in the processor's cache when they are multiplied
        order = group.flatten().argsort()
        counts = th.bincount(group.flatten(), minlength=len(phi) * self.groups).tolist()
        rows, y = rows.flatten(0, 1), targets.flatten()
        gram, right = (
            rows.new_empty(len(counts), self.size, self.size),
            rows.new_empty(len(counts), self.size),
        )
        for i, members in enumerate(order.split(counts)):
            design = rows.index_select(0, members)
            th.mm(design.T, design, out=gram[i])
            th.mv(design.T, y.index_select(0, members), out=right[i])
        return gram.unflatten(0, (-1, self.groups)), right.unflatten(0, (-1, self.groups))
