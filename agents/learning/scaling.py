"""Observations and values of order 1 for networks: running means and deviations.

    o' = (o - mean) / deviation,   V = value_mean + value_deviation V'

The critic's last layer changes with its scale so that no value does: H. van Hasselt et al., "Learning values across many orders
of magnitude", arXiv:1602.07714, 2016. A finished policy has the scales in its layers (`.policy.folded`).

Legend: n rows, no observation.
"""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

LEAST = 1e-3
"""Least deviation: an entry that hardly changes is left small."""
LONGEST = 100
"""Collections over which means are taken: later ones replace the first."""


class Scaling(BaseFeaturesExtractor):
    """Scales of observations and values, as the part of a policy that stable-baselines3 calls its features extractor."""

    mean: torch.Tensor
    deviation: torch.Tensor
    value_mean: torch.Tensor
    value_deviation: torch.Tensor
    collections: torch.Tensor

    def __init__(self, observation_space: Any) -> None:
        size = observation_space.shape[0]
        super().__init__(observation_space, size)
        for name, count in (("mean", size), ("value_mean", 1), ("collections", 1)):
            self.register_buffer(name, torch.zeros(count))
        for name, count in (("deviation", size), ("value_deviation", 1)):
            self.register_buffer(name, torch.ones(count))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Scale observations (n, no)."""
        return (observations - self.mean) / self.deviation

    @torch.no_grad()
    def update(self, observations: torch.Tensor, returns: torch.Tensor, head: nn.Linear) -> None:
        """Count a collection of observations (n, no) and returns (n,); `head` is the critic's last layer."""
        share = 1.0 / min(int(self.collections) + 1, LONGEST)
        _mix(self.mean, self.deviation, observations, share)
        before = self.value_mean.clone(), self.value_deviation.clone()
        _mix(self.value_mean, self.value_deviation, returns.unsqueeze(1), share)
        head.weight *= before[1] / self.value_deviation
        head.bias.copy_((head.bias * before[1] + before[0] - self.value_mean) / self.value_deviation)
        self.collections += 1


def _mix(mean: torch.Tensor, deviation: torch.Tensor, values: torch.Tensor, share: float) -> None:
    """Mean and deviation (k,) of old and new values, (n, k), which have a share of them; in place."""
    off = values.mean(0) - mean
    variance = (1.0 - share) * deviation.square() + share * values.var(0, correction=0) + share * (1.0 - share) * off.square()
    mean += share * off
    deviation.copy_(variance.sqrt().clamp(min=LEAST))
