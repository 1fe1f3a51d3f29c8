"""A policy of one task as a policy of another one with the same actions: the same network on other observations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from stable_baselines3 import PPO

from softgym_envs.core.errors import OptionError

from .policy import load_policy

Told = tuple[str, float] | tuple[str, float, float]
"""Entry, offset added to it, and factor applied before that; see `carried`."""


def carried(path: Path, source: Any, target: Any, told: Mapping[str, Told] | None = None) -> PPO:
    """A PPO model of `target` that acts like the policy of `path` does in `source`; its critic is untrained.

    An entry that the policy observes is the target's of the same name, or told[name] = (entry of the target, offset added to
    it, factor applied before that, 1 if left out). The policy ignores further observations of the target. Previous actions
    follow the entries in both.

    Args:
        path: Policy of `source`, an MLP with tanh.
        source: Vector environment of the policy, as it observes it.
        target: Vector environment of the new one, with as many previous actions.
        told: See above.

    Raises:
        OptionError: The target lacks an observed name, or the actions or the activation differ.
    """
    network = load_policy(path)
    if network.squashed or network.activation != "Tanh":
        raise OptionError(f"{path} is no policy of PPO with tanh")
    if source.single_action_space != target.single_action_space:
        raise OptionError(f"the actions differ: {source.single_action_space} and {target.single_action_space}")
    columns, added, factors = _read(_names(source), _names(target), told or {})
    (weight, bias), *others = ((torch.as_tensor(weight), torch.as_tensor(bias)) for weight, bias in network.layers)
    first = torch.zeros(len(weight), len(_names(target)))
    first[:, columns] = weight * torch.as_tensor(factors, dtype=torch.float32)
    layers = [(first, bias + weight @ torch.as_tensor(added, dtype=torch.float32)), *others]
    widths = [len(bias) for _, bias in layers[:-1]]
    keywords = {"net_arch": {"pi": widths, "vf": [128, 128]}, "ortho_init": False, "log_std_init": -2.0}
    model = PPO("MlpPolicy", None, policy_kwargs=keywords, device="cpu", seed=0, _init_setup_model=False)  # type: ignore[arg-type]
    model.observation_space, model.action_space = target.single_observation_space, target.single_action_space
    model.n_envs = 1
    model._setup_model()
    own: Any = model.policy
    linear = [part for part in own.mlp_extractor.policy_net if isinstance(part, torch.nn.Linear)]
    with torch.no_grad():
        for part, (weight, bias) in zip([*linear, own.action_net], layers, strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
    return model


def _names(envs: Any) -> list[str]:
    """Names of all observations: entries, then the previous actions."""
    names = [entry.name for entry in envs.task.entries]
    return names + [f"action given {k}" for k in range(envs.single_observation_space.shape[0] - len(names))]


def _read(source: list[str], target: list[str], told: Mapping[str, Told]) -> tuple[list[int], list[float], list[float]]:
    """Columns of the target, their offsets, and the factors applied before."""
    read = [(*told.get(name, (name, 0.0)), 1.0)[:3] for name in source]
    missing = [name for name, *_ in read if name not in target]
    if missing:
        raise OptionError(f"the target does not observe {', '.join(missing[:4])}")
    return [target.index(name) for name, *_ in read], [added for _, added, _ in read], [factor for *_, factor in read]
