"""Weighted residuals of all segments as a nonlinear least-squares problem for Levenberg-Marquardt.

Legend: S segments, L steps, m channels, p parameters, n tangent, K candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from softgym_envs.core.base import layout_of
from softgym_envs.core.simulator import Array

from .levenberg import triangle
from .segments import MAX_STATES, Segments

HUBER = 2.0  # Standard deviations beyond which a residual of a robust fit pulls no harder.


@dataclass(frozen=True, eq=False)
class ShootingSystem:
    """Weighted residuals of segments, as `levenberg.System`; priors of parameters are one more block of rows."""

    segments: Segments
    sigma: Array  # (m,) standard deviations; weights are 1 / sigma.
    huber: float = np.inf
    """Residuals r beyond h = `huber` sigma cost h |r| - h^2 / 2 instead of r^2 / 2 (Huber 1964): outliers pull no harder."""

    def cost(self, theta: Array, blocks: Array) -> float:
        """See `levenberg.System`; infinity where a segment diverges."""
        return float(self.costs(theta[None], blocks)[0])

    def costs(self, thetas: Array, blocks: Array) -> Array:
        """Costs of candidates (K, p) with one set of starts, (K,); infinity where a segment diverges."""
        segments = self.segments
        at_once = max(1, MAX_STATES // (len(blocks) * (segments.horizon + 1) * segments.problem.simulator.nx))
        found = [self._costs(thetas[k : k + at_once], blocks) for k in range(0, len(thetas), at_once)]
        return np.concatenate([np.zeros(0), *found])

    def _costs(self, thetas: Array, blocks: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            residual, good = self.segments.residuals(thetas, blocks)
            total = self._loss(residual / self.sigma).sum(axis=(1, 2, 3)) + 0.5 * np.sum(self._prior(thetas) ** 2, axis=1)
        return np.where(good.all(axis=1) & np.isfinite(total), total, np.inf)

    def _loss(self, residual: Array) -> Array:
        """Cost of every weighted residual; see `huber`."""
        if np.isinf(self.huber):
            return np.asarray(0.5 * residual**2)
        size = np.abs(residual)
        return np.where(size <= self.huber, 0.5 * residual**2, self.huber * (size - 0.5 * self.huber))

    def compress(self, theta: Array, blocks: Array) -> Array:
        """See `levenberg.System`; rows beyond `huber` are scaled so that J' r is the gradient of their loss."""
        derivative = self.segments.derivative(theta, blocks)
        size = np.abs(derivative.residual) / self.sigma
        weight = (np.sqrt(self.huber / np.maximum(size, self.huber)) if np.isfinite(self.huber) else 1.0) / self.sigma
        weight = np.broadcast_to(weight, size.shape)[..., None]
        count = len(blocks)
        columns = (derivative.starts * weight, derivative.by_parameters * weight, derivative.residual[..., None] * weight)
        rows = np.concatenate(columns, axis=-1).reshape(count, -1, sum(c.shape[-1] for c in columns))
        prior = self._prior_rows(theta, rows.shape[2])
        if derivative.starts.shape[-1] == 0:
            return triangle(np.concatenate([rows.reshape(1, -1, rows.shape[2]), prior[None]], axis=1))
        spread = np.zeros((count, len(prior), rows.shape[2]))
        spread[0] = prior
        return triangle(np.concatenate([rows, spread], axis=1))

    def move(self, blocks: Array, step: Array) -> Array:
        """See `levenberg.System`."""
        simulator = self.segments.problem.simulator
        if not self.segments.free:
            return blocks
        moved, layout = simulator.retract(blocks, step), layout_of(simulator)
        return moved if layout is None else np.clip(moved, *layout.limits)

    def with_sigma(self, sigma: Array) -> ShootingSystem:
        """Copy with other weights."""
        return replace(self, sigma=sigma)

    def _prior(self, thetas: Array) -> Array:
        mean, std = self.segments.problem.prior_rows
        return np.where(np.isfinite(std), (thetas - np.nan_to_num(mean)) / std, 0.0)

    def _prior_rows(self, theta: Array, width: int) -> Array:
        """[0 J r] of the priors, (number of priors, n + p + 1)."""
        _, std = self.segments.problem.prior_rows
        there = np.flatnonzero(np.isfinite(std))
        rows = np.zeros((len(there), width))
        rows[np.arange(len(there)), width - 1 - len(theta) + there] = 1.0 / std[there]
        rows[:, -1] = self._prior(theta[None])[0, there]
        return rows


def channel_scale(segments: Segments) -> Array:
    """RMS of the predicted motion per channel (m,): its change over a segment (full states) or over the recording."""
    problem, values = segments.problem, segments.values
    if problem.full_state:
        base = np.repeat(segments.starts[:, None], values.shape[1], axis=1)
        change = problem.compare(np.where(np.isnan(values), base, values), base)
        seen = np.isfinite(values).all(axis=2)
        rms = np.sqrt(np.sum(change[seen] ** 2, axis=0) / max(int(seen.sum()) - len(values), 1))
    else:
        rms = np.array([np.nanstd(values[..., j]) for j in range(values.shape[2])])
    moving = rms[rms > 0]
    # A channel at rest must not weigh infinitely: it counts as a thousandth of the typical channel.
    return np.asarray(np.maximum(rms, 1e-3 * float(np.median(moving)) if len(moving) else 1.0))
