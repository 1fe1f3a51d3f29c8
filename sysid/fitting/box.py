r"""Posterior under bounded noise, the set N of [Berard2008] slide 19: no residual exceeds sqrt(3) standard deviations.

For uniform noise all unknowns d = (theta, initial states) inside the box are equally likely, and all others are
impossible. Residuals are linearised at the posterior's mean, repeatedly, until that stays inside of the true box:

.. math:: | r + J d | \le \sqrt{3}

is a polytope; its mean is estimated by hit-and-run (Smith 1984) from its Chebyshev centre, with many chains in parallel. That
mean is the best estimate in the square sense. It beats least squares for normal noise, as the sides of the box say more.

Legend: n measured numbers, p parameters, d = p + S nx unknowns, C chains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softgym_envs.core.simulator import Array

from ..least_squares.system import ShootingSystem
from ..problem.problem import FitProblem

SIDE = np.sqrt(3.0)  # Half a side of the box [standard deviations of uniform noise].
ROUNDS, CHAINS, STEPS = 8, 100, 40
"""Most linearisations; chains; steps of a chain per unknown, the first half of which is discarded."""
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Box:
    """The posterior under bounded noise."""

    theta: Array  # (p,) mean, fit coordinates.
    starts: Array  # (S, nx) mean.
    samples: Array  # (K, p)


def box_posterior(problem: FitProblem, system: ShootingSystem, theta: Array, starts: Array) -> Box | None:
    """Compute the posterior, from a fit (theta, starts) near it; None if no unknowns with residuals inside are found."""
    rng = np.random.default_rng(0)
    inside = None
    for _ in range(ROUNDS):
        A, b = _sides(problem, system, theta, starts)
        center = _center(A, b)
        if center is None:
            return None
        move, feasible = center
        if feasible:
            chains = _hit_and_run(A, b, move, rng)
            move = chains.mean(axis=0)
            samples = theta + chains[:, : len(theta)]
        theta = np.clip(theta + move[: len(theta)], *problem.theta_bounds)
        starts = system.move(starts, move[len(theta) :].reshape(len(starts), -1))
        if not np.isfinite(system.cost(theta, starts)):
            return None
        if feasible and _largest(system, theta, starts) <= SIDE * (1.0 + TOLERANCE):
            if inside is not None:  # linearise there once more
                return Box(theta, starts, samples)
            inside = theta
    return None


def _largest(system: ShootingSystem, theta: Array, starts: Array) -> float:
    """The largest residual [standard deviations]."""
    residual = system.segments.derivative(theta, starts).residual / system.sigma
    return float(np.abs(residual[system.segments.present]).max())


def _sides(problem: FitProblem, system: ShootingSystem, theta: Array, starts: Array) -> tuple[Array, Array]:
    """A (m, d), b (m,) of A d <= b: the box and the parameters' own bounds, linearised."""
    found = system.segments.derivative(theta, starts)
    count, length, channels, p = found.by_parameters.shape
    n = found.starts.shape[-1]
    J = np.zeros((count, length, channels, p + count * n))
    J[..., :p] = found.by_parameters
    for s in range(count):
        J[s, ..., p + s * n : p + (s + 1) * n] = found.starts[s]
    present = system.segments.present
    J, r = (J / system.sigma[:, None])[present], (found.residual / system.sigma)[present]
    low, high = problem.theta_bounds
    unit = np.eye(p, J.shape[1])
    return np.concatenate([J, -J, unit, -unit]), np.concatenate([SIDE - r, SIDE + r, high - theta, theta - low])


def _center(A: Array, b: Array) -> tuple[Array, bool] | None:
    """The point farthest inside of all sides, each in comparable units, and whether it is inside."""
    size = np.linalg.norm(A, axis=0) + 1e-12
    scaled = A / size
    norms = np.linalg.norm(scaled, axis=1)
    rows = norms > 0.0
    cost = np.zeros(A.shape[1] + 1)
    cost[-1] = -1.0
    bounds = [(None, None)] * A.shape[1] + [(None, 1e3)]
    from scipy.optimize import linprog

    found = linprog(cost, np.column_stack([scaled, norms])[rows], b[rows], bounds=bounds, method="highs")
    return (found.x[:-1] / size, bool(found.x[-1] > 0.0 and (b[~rows] >= 0.0).all())) if found.success else None


def _hit_and_run(A: Array, b: Array, start: Array, rng: np.random.Generator) -> Array:
    """Points (K, d) uniform over A d <= b."""
    root = np.linalg.inv(np.linalg.qr(A, mode="r") + 1e-300 * np.eye(A.shape[1]))  # spread under normal noise
    steps = STEPS * A.shape[1]
    points, kept = np.repeat(start[None], CHAINS, axis=0), []
    slack = b - points @ A.T
    for step in range(steps):
        ways = rng.standard_normal(points.shape) @ root.T
        slopes = ways @ A.T
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = slack / slopes
        last = np.where(slopes > 0.0, reach, np.inf).min(axis=1)
        first = np.where(slopes < 0.0, reach, -np.inf).max(axis=1)
        share = first + rng.random(CHAINS) * (last - first)
        points = points + share[:, None] * ways
        slack = np.maximum(slack - share[:, None] * slopes, 0.0)
        if step >= steps // 2 and step % 4 == 0:
            kept.append(points)
    return np.concatenate(kept)
