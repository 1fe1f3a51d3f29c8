"""A policy for many equal actuators: one network serves all of them, each with its own view.

    a_i = mean_p  w . phi(o[views[p, i]]) + b

The task gives the entries of an observation that actuator i sees, `views` (P, na, F), in P equivalent ways (a cable
seen from either end). Twenty-four motors then learn from each other's experience: far fewer steps than a network that has to
learn each of them separately. The critic sees the whole observation.

Legend: B batch, na actuators, P ways to look, F entries that an actuator sees.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from softgym_envs.core.errors import OptionError, ShapeError
from softgym_envs.core.task import LooksFromActuators

FIRST_GAIN = 0.01
"""Size of the last layer's initial weights: the first actions are small."""


class SharedNetwork(nn.Module):
    """Actor and critic of a `SharedPolicy`; an mlp_extractor in stable-baselines3.

    Args:
        size: Length of an observation.
        views: (P, na, F) indices into it.
        actor: Widths of the actor's hidden layers.
        critic: Widths of the critic's hidden layers.

    Raises:
        ShapeError: `views` has another shape, or points outside of the observation.
    """

    index: torch.Tensor

    def __init__(self, size: int, views: NDArray[np.int64], actor: list[int], critic: list[int]) -> None:
        super().__init__()
        if views.ndim != 3 or views.min(initial=0) < 0 or views.max(initial=0) >= size:
            raise ShapeError(f"views has shape {views.shape}, expected (P, na, F) indices below {size}")
        self.register_buffer("index", torch.as_tensor(views), persistent=False)
        self.actor = nn.Sequential(*_layers(views.shape[2], actor), nn.Linear(actor[-1], 1))
        self.critic = nn.Sequential(*_layers(size, critic))
        self.latent_dim_pi, self.latent_dim_vf = views.shape[1], critic[-1]

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps (B, size) to mean actions (B, na) and features of the value (B, critic[-1])."""
        return self.forward_actor(observation), self.forward_critic(observation)

    def forward_actor(self, observation: torch.Tensor) -> torch.Tensor:
        """Maps (B, size) to mean actions (B, na)."""
        seen: torch.Tensor = self.actor(observation[:, self.index])
        return seen.mean(dim=1).squeeze(-1)

    def forward_critic(self, observation: torch.Tensor) -> torch.Tensor:
        """Maps (B, size) to features of the value (B, critic[-1])."""
        features: torch.Tensor = self.critic(observation)
        return features


def views_of(envs: Any) -> NDArray[np.int64]:
    """Views (P, na, F) that the task of vector environments gives its actuators, with the previous actions of each.

    Raises:
        OptionError: The task gives none.
    """
    task = envs.task
    views = task.actuator_views if isinstance(task, LooksFromActuators) else None
    if views is None:
        raise OptionError(f"a shared network needs a task that says what its actuators look at; {type(task).__name__} does not")
    ways, na, _ = views.shape
    given = np.arange(len(task.entries), envs.single_observation_space.shape[0]).reshape(-1, na).T
    return np.concatenate([views, np.broadcast_to(given, (ways, *given.shape))], axis=2)


def _layers(size: int, widths: list[int]) -> list[nn.Module]:
    sizes = [size, *widths]
    return [layer for a, b in zip(sizes, widths, strict=False) for layer in (nn.Linear(a, b), nn.Tanh())]


class SharedPolicy(ActorCriticPolicy):
    """Policy class for PPO; further keywords are those of stable-baselines3's ActorCriticPolicy.

    Args:
        views: (P, na, F), see the module docstring.
        net_arch: {"pi": widths of the actor, "vf": widths of the critic}
    """

    def __init__(self, *args: Any, views: NDArray[np.int64], **keywords: Any) -> None:
        self.views = np.asarray(views, dtype=np.int64)
        super().__init__(*args, **keywords)

    def _build_mlp_extractor(self) -> None:
        assert isinstance(self.net_arch, dict)
        self.mlp_extractor: Any = SharedNetwork(self.features_dim, self.views, self.net_arch["pi"], self.net_arch["vf"])

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net = nn.Identity()  # the network ends in actions
        nn.init.orthogonal_(self.mlp_extractor.actor[-1].weight, gain=FIRST_GAIN)
        kind: Any = self.optimizer_class
        self.optimizer = kind(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)


def plain_settings(policy: SharedPolicy, keywords: dict[str, Any]) -> dict[str, Any]:
    """Keywords of stable-baselines3's ActorCriticPolicy for the network that `plain_weights` fills."""
    copies, arch = policy.views.shape[0] * policy.views.shape[1], keywords["net_arch"]
    rest = {name: value for name, value in keywords.items() if name != "views"}
    return {**rest, "net_arch": {"pi": [copies * width for width in arch["pi"]], "vf": list(arch["vf"])}}


def plain_weights(policy: SharedPolicy) -> dict[str, torch.Tensor]:
    """The shared network as one MLP of blocks, one for every actuator and view: W = diag(W, ..., W), a_i = mean_p.

    Its first layer picks each block's entries: W[:, views[p, i]] = phi's first layer. The result is a state of
    stable-baselines3's ActorCriticPolicy, and acts alike up to rounding.
    """
    network, state = policy.mlp_extractor, policy.state_dict()
    ways, motors, _ = policy.views.shape
    views, size = torch.as_tensor(policy.views.reshape(ways * motors, -1)), network.critic[0].in_features
    *hidden, head = [layer for layer in network.actor if isinstance(layer, nn.Linear)]
    found = {}
    for place, layer in enumerate(hidden):
        weight = layer.weight.detach().cpu()
        if place == 0:
            blocks = [torch.zeros(len(weight), size).index_add_(1, view, weight) for view in views]
            whole = torch.cat(blocks)
        else:
            whole = torch.block_diag(*[weight] * len(views))  # type: ignore[no-untyped-call]
        found[f"mlp_extractor.policy_net.{2 * place}.weight"] = whole
        found[f"mlp_extractor.policy_net.{2 * place}.bias"] = layer.bias.detach().cpu().repeat(len(views))
    picked = torch.block_diag(*[head.weight.detach().cpu() / ways] * motors)  # type: ignore[no-untyped-call]
    found["action_net.weight"] = picked.repeat(1, ways)
    found["action_net.bias"] = head.bias.detach().cpu().repeat(motors)
    critic = {name: value for name, value in state.items() if name.startswith("mlp_extractor.critic.")}
    found.update({name.replace("critic", "value_net"): value for name, value in critic.items()})
    found.update({name: state[name] for name in ("log_std", "value_net.weight", "value_net.bias")})
    found.update({name: value for name, value in state.items() if "features_extractor." in name})
    return found
