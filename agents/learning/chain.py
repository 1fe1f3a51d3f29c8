"""Chains of linear layers and activations with gradients in memory that is used again: fresh memory costs more than arithmetic.

    h_k = s(W_k h_(k-1) + b_k),   dL/dW_k = g_k' h_(k-1),   dL/db_k = g_k' 1,   g_(k-1) = (g_k W_k) s'(h_(k-1))

Legend: n rows, P ways to look, na actuators, F inputs that an actuator sees.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from softgym_envs.core.errors import OptionError

ACTIVATIONS: dict[type[nn.Module], tuple[Any, Any]] = {
    nn.Tanh: (torch.tanh_, lambda g, h: torch.ops.aten.tanh_backward.grad_input(g, h, grad_input=g)),
    nn.ReLU: (torch.relu_, lambda g, h: torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)),
}
"""Activation -> itself, and the product of a gradient with its derivative at a result; both in place."""


class Chain:
    """Linear layers with activations between them; a call overwrites the result of the last one.

    >>> chain = Chain(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 1))
    >>> chain(torch.zeros(5, 3)).shape
    torch.Size([5, 1])

    Args:
        modules: Linear layers, `ACTIVATIONS` and sequences of them; identities are left out.
        views: (P, na, F) indices into the inputs: each of the P na choices of F inputs is mapped to one number, and the result
            is their mean over P, (n, na); None: the chain maps the inputs themselves.

    Raises:
        OptionError: There is another module.
    """

    def __init__(self, *modules: nn.Module, views: torch.Tensor | None = None) -> None:
        parts = [part for module in modules for part in module.modules() if not isinstance(part, (nn.Sequential, nn.Identity))]
        self.layers: Any = parts[::2]
        for k, part in enumerate(parts):
            allowed: tuple[type[nn.Module], ...] = tuple(ACTIVATIONS) if k % 2 else (nn.Linear,)
            if not isinstance(part, allowed):
                names = ", ".join(kind.__name__ for kind in allowed)
                raise OptionError(f"a network holds {type(part).__name__}, allowed there is {names}")
        self.activations = [ACTIVATIONS[type(part)] for part in parts[1::2]]
        self.views = views
        self._memory: dict[tuple[str, int], torch.Tensor] = {}
        self._results: list[torch.Tensor] = []

    @torch.no_grad()
    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (n, inputs) to (n, outputs)."""
        if self.views is not None:
            index = self.views.flatten()
            seen = torch.index_select(inputs, 1, index, out=self._of("view", 0, len(inputs), len(index), inputs))
            inputs = seen.view(-1, self.views.shape[2])
        self._results = [inputs]
        for k, layer in enumerate(self.layers):
            out = self._of("result", k, len(inputs), len(layer.bias), inputs)
            torch.addmm(layer.bias, self._results[-1], layer.weight.t(), out=out)
            self._results.append(self.activations[k][0](out) if k < len(self.activations) else out)
        result = self._results[-1]
        return result if self.views is None else result.view(-1, *self.views.shape[:2]).mean(dim=1)

    @torch.no_grad()
    def backward(self, gradient: torch.Tensor) -> None:
        """Overwrite the weights' `grad` by the gradient of a loss, given that by the latest result, (n, outputs)."""
        if self.views is not None:
            ways = self.views.shape[0]
            gradient = (gradient / ways).unsqueeze(1).expand(-1, ways, -1).reshape(-1, 1)
        ones = self._of("ones", 0, len(gradient), 1, gradient).fill_(1.0).squeeze(1)
        for k in range(len(self.layers) - 1, -1, -1):
            weight, bias = self.layers[k].weight, self.layers[k].bias
            if weight.requires_grad:
                torch.mm(gradient.t(), self._results[k], out=weight.grad)
                torch.mv(gradient.t(), ones, out=bias.grad)
            if k:
                out = self._of("gradient", k, len(gradient), weight.shape[1], gradient)
                gradient = self.activations[k - 1][1](torch.mm(gradient, weight, out=out), self._results[k])

    def _of(self, kind: str, k: int, rows: int, width: int, like: torch.Tensor) -> torch.Tensor:
        """Memory (rows, width) of one kind for one layer."""
        found = self._memory.get((kind, k))
        if found is None or len(found) < rows:
            found = self._memory[kind, k] = like.new_empty(rows, width)
        return found[:rows]


def flat_gradients(weights: list[nn.Parameter]) -> torch.Tensor:
    """Zero gradients of weights, side by side in one vector: each `grad` is a part of it."""
    sizes = [weight.numel() for weight in weights]
    flat = weights[0].new_zeros(sum(sizes))
    for weight, part in zip(weights, torch.split(flat, sizes), strict=True):
        weight.grad = part.view_as(weight)
    return flat
