"""Weighted residuals at the end of a minimisation, with unknown starts projected out, and their derivatives by the parameters.

Legend: S segments, L' compared rows, m channels, p parameters, n tangent, N measured numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.simulator import Array

from ..least_squares.levenberg import triangle
from ..least_squares.segments import Segments
from ..least_squares.system import ShootingSystem
from .uncertainty import column_lengths

CLUSTERS = 30  # Stretches of time that count as independent with errors="clustered".
WEAK = 1e-4  # Directions with singular values below this times the largest are measured by secants.
UNSURE = 1e-6  # Share of the largest singular value below which those from derivatives alone may be errors of the derivatives.
SECANT = 0.02  # Half length of a secant [fit coordinate].


class WeightedResiduals(NamedTuple):
    """Residuals with unknown starts projected out, as rows."""

    residual: Array  # (N,)
    jacobian: Array  # (N, p)
    cluster: NDArray[np.intp]  # (N,)
    in_time: Array  # (S, L', m) weighted residuals.
    basis: Array  # (S, L' m, k) orthonormal: space that unknown starts can explain.
    dof: int
    present: NDArray[np.bool_]  # (S L' m,) mask of what was measured.

    def project(self, rows: Array) -> Array:
        """Rows (S, L' m, q) without the part that unknown starts can explain."""
        return np.asarray(rows - self.basis @ (np.swapaxes(self.basis, 1, 2) @ rows))

    def left(self, noise: Array, seen: Array) -> Array:
        """Noise (S, L', m, D) without what starts and seen parameters (p, r) explain; zero where nothing is measured."""
        shape = noise.shape
        rows = self.project(noise.reshape(shape[0], -1, shape[-1])).reshape(-1, shape[-1])
        if seen.shape[1]:
            q, _ = np.linalg.qr(self.jacobian @ seen)
            there = self.present
            rows[there] -= q @ (q.T @ rows[there])
        return rows.reshape(shape)


def is_rounding(residual: Array, scale: Array) -> bool:
    """Whether residuals (..., m) are rounding beside what there is to predict (m,): data of the simulator itself."""
    rms = np.sqrt(np.mean(residual.reshape(-1, residual.shape[-1]) ** 2, axis=0))
    return bool((rms < 1e-8 * scale).all())


def estimated_noise(segments: Segments, theta: Array, starts: Array, scale: Array) -> Array:
    """Standard deviation of the residuals per channel (m,), unbiased by the number of unknowns; at least 1e-12 of `scale`.

    Errors of an attitude are across its quaternion, three in four numbers: these have one standard deviation, 4/3 of the mean
    square, with which the four weigh as the three do.
    """
    residual, _ = segments.residuals(theta[None], starts)
    square = np.sum(residual[0] ** 2, axis=(0, 1)) / np.maximum(segments.present.sum(axis=(0, 1)), 1)
    for four in segments.problem.quaternions:
        square[four] = square[four].sum() / 3.0
    correction = segments.measured / max(segments.measured - len(theta) - segments.unknowns, 1)
    return np.asarray(np.maximum(np.sqrt(square * correction), 1e-12 * scale))


def weighted_residuals(system: ShootingSystem, theta: Array, starts: Array) -> WeightedResiduals:
    """Weighted residuals at parameters (p,) and initial states (S, nx)."""
    segments, p = system.segments, len(theta)
    derivative = segments.derivative(theta, starts)
    weight, rows = 1.0 / system.sigma, segments.present.reshape(-1)
    count, length, channels = derivative.residual.shape
    in_time = derivative.residual * weight
    stretch = np.arange(count * length) * CLUSTERS // (count * length)
    cluster = np.repeat(stretch, channels)[rows].astype(np.intp)
    basis, rank = _column_space((derivative.starts * weight[:, None]).reshape(count, length * channels, -1))
    dof = segments.measured - p - rank
    raw = WeightedResiduals(in_time.reshape(-1)[rows], np.zeros((0, p)), cluster, in_time, basis, dof, rows)
    jacobian = raw.project((derivative.by_parameters * weight[:, None]).reshape(count, -1, p))
    jacobian = _refined(system, theta, starts, raw, jacobian)
    return raw._replace(jacobian=jacobian.reshape(-1, p)[rows])


def rank_of_starts(system: ShootingSystem, theta: Array, starts: Array) -> int:
    """Number of unknowns of the starts that have an effect of their own."""
    along = system.segments.derivative(theta, starts).starts / system.sigma[:, None]
    return _column_space(along.reshape(len(along), along.shape[1] * along.shape[2], -1))[1]


def _column_space(columns: Array) -> tuple[Array, int]:
    """Orthonormal basis of the columns (S, N, n) of every block, zero where they are dependent, and the rank of all."""
    if columns.shape[2] == 0:
        return columns, 0
    u, s, _ = np.linalg.svd(columns, full_matrices=False)
    kept = s > 1e-10 * s[:, :1]
    return np.asarray(np.where(kept[:, None, :], u, 0.0)), int(kept.sum())


def _refined(system: ShootingSystem, theta: Array, starts: Array, raw: WeightedResiduals, jacobian: Array) -> Array:
    """Jacobian (S, L' m, p) whose weak directions are measured by long secants.

    Derivatives have an error relative to the strongest direction. Along a direction that the data hardly see, this error hides
    whether they see it at all. A symmetry of the model (all masses and stiffnesses times two) holds for long steps too.
    """
    p = jacobian.shape[2]
    flat = triangle(np.vstack([jacobian.reshape(-1, p), np.zeros((p, p))]))
    lengths = column_lengths(flat)
    _, s, vt = np.linalg.svd(flat / lengths)
    lower, upper = system.segments.problem.theta_bounds
    turned = (jacobian / lengths) @ vt.T
    for i in np.flatnonzero(s < WEAK * s[0]):
        direction = vt[i] / lengths
        size = float(np.linalg.norm(direction))
        ends = [_reach(theta, sign * direction / size, lower, upper) for sign in (-1.0, 1.0)]
        thetas = theta + np.array([[-ends[0]], [ends[1]]]) * direction / size
        residual, good = system.segments.residuals(thetas, starts)
        if good.all() and sum(ends) > 1e-6:
            difference = (residual[1] - residual[0]) / system.sigma / sum(ends) * size
            turned[:, :, i] = raw.project(difference.reshape(len(turned), -1, 1))[:, :, 0]
        elif s[i] < UNSURE * s[0]:
            turned[:, :, i] = 0.0  # bounds leave no space for a secant, and derivatives do not decide
    return np.asarray((turned @ vt) * lengths)


def _reach(theta: Array, direction: Array, lower: Array, upper: Array) -> float:
    """Largest step of theta along a direction within the bounds, at most `SECANT`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        space = np.where(
            direction > 0, (upper - theta) / direction, np.where(direction < 0, (lower - theta) / direction, np.inf)
        )
    return float(np.clip(space.min(), 0.0, SECANT))
