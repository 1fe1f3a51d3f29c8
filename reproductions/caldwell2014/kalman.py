r"""Parameters of a mechanism while it moves: recursive Gauss-Newton, row by row, as fast as the rows come.

State and parameters are estimated together by an extended Kalman filter of (x, theta), which is recursive prediction-error
identification (Ljung 1979), with the integrator's exact derivatives A, B, C of every step:

.. math::
   \begin{pmatrix} x \\ \theta \end{pmatrix}^+ = \begin{pmatrix} f(x, T, \theta) \\ \theta \end{pmatrix}, \qquad
   F = \begin{pmatrix} A & C D \\ 0 & 1 \end{pmatrix}, \qquad
   P^+ = F P F^T + B Q B^T + W

T are measured forces with noise Q, the motors' coordinates b are measured with noise R, and D = d c / d theta: theta is log c,
or c itself for the names in `linear`. Legend: n coordinates, nx = 2 n, nu motors, P parameters, p free ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array, Status, check_array
from softgym_envs.mechanics.closed_loop import Following
from softgym_envs.mechanics.mechanism import Mechanism

LONGEST = 0.3
"""Largest change of theta by one row."""


class Belief(NamedTuple):
    """Estimate before the next row."""

    state: Array
    """(nx,)"""
    theta: Array
    """(p,)"""
    covariance: Array
    """(nx + p, nx + p)"""


@dataclass(frozen=True, eq=False)
class OnlineEstimator:
    """See the module docstring.

    Raises:
        OptionError: An unknown free parameter, or none.
    """

    mechanism: Mechanism
    parameter_values: Array
    """(P,) first guess; parameters that are not free keep it."""
    spread: Mapping[str, float]
    """Free constant -> standard deviation of the guess: of its logarithm, or of itself where it is in `linear`."""
    linear: tuple[str, ...]
    force: Array
    """(nu,) standard deviations of measured forces [N m, N]."""
    angle: Array
    """(nu,) standard deviations of the motors' coordinates [rad, m]."""
    walk: float = 0.0
    """Standard deviation of the drift of theta from row to row."""

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.spread, *self.linear) if name not in self.mechanism.parameter_names]
        if unknown or not self.spread:
            raise OptionError(f"spread has {unknown or 'nothing'}; parameters are {', '.join(self.mechanism.parameter_names)}")

    @cached_property
    def columns(self) -> list[int]:
        """(p,) indices of the free parameters."""
        return [self.mechanism.parameter_names.index(name) for name in self.spread]

    @cached_property
    def logarithmic(self) -> Array:
        """(p,) whether theta is a logarithm."""
        return np.array([name not in self.linear for name in self.spread])

    @cached_property
    def motors(self) -> Array:
        """(nu,) indices of b in q."""
        return np.array(self.mechanism.structure.actuated)

    def start(self, angles: Array) -> Belief:
        """Start from rows (T, nu) of the mechanism at rest.

        Raises:
            DataError: There is no rest there.
        """
        angles = check_array("angles", angles, (None, self.mechanism.nu))
        nu = self.mechanism.nu
        resting = Following(
            self.mechanism, np.zeros((len(angles) - 1, nu)), angles, np.zeros((1, nu, nu)),
            still=len(angles),
        )  # fmt: skip
        state = resting.start(self.parameter_values)[0]
        if np.isnan(state).any():
            raise DataError("the mechanism finds no rest at these angles with the parameters that are guessed")
        values = np.asarray(self.parameter_values)[self.columns]
        theta = np.where(self.logarithmic, np.log(np.where(self.logarithmic, values, 1.0)), values)
        prior = np.diag(np.array(list(self.spread.values())) ** 2)
        by_theta = resting.start_slopes(np.asarray(self.parameter_values), self._directions(theta))
        by_angle = resting.start_by_angle(np.asarray(self.parameter_values)) * self.angle
        own = by_theta @ prior @ by_theta.T + by_angle @ by_angle.T
        return Belief(state, theta, np.block([[own, by_theta @ prior], [prior @ by_theta.T, prior]]))

    def update(self, belief: Belief, force: Array, angle: Array) -> Belief:
        """Update by a row: coordinates b (nu,) as measured, and the forces (nu,) that act until the next.

        Raises:
            DataError: The model breaks down: the rows do not belong to it.
        """
        nx, P = len(belief.state), belief.covariance
        S = P[np.ix_(self.motors, self.motors)] + np.diag(self.angle**2)
        gain = np.linalg.solve(S, P[self.motors]).T
        step = gain @ (angle - belief.state[self.motors])
        P = P - gain @ P[self.motors]
        state, theta = belief.state + step[:nx], belief.theta + np.clip(step[nx:], -LONGEST, LONGEST)
        parameter_values = self._vector(theta)
        motion = self.mechanism.simulate(state[None], force[None, None], parameter_values)
        if motion.status[0] != Status.OK:
            raise DataError("the model breaks down under these rows; guess nearer, or see their units")
        A, B, C = (part[0] for part in self.mechanism.linearize(state[None], force[None], parameter_values[None]))
        F = np.block([[A, C @ self._directions(theta)], [np.zeros((len(theta), nx)), np.eye(len(theta))]])
        P = F @ P @ F.T
        P[:nx, :nx] += (B * self.force**2) @ B.T
        P[nx:, nx:] += self.walk**2 * np.eye(len(theta))
        return Belief(motion.states[0, -1], theta, 0.5 * (P + P.T))

    def estimates(self, belief: Belief) -> dict[str, tuple[float, float]]:
        """Free constant -> value and standard deviation, in its unit."""
        values = self._vector(belief.theta)[self.columns]
        std = np.sqrt(np.diag(belief.covariance)[len(belief.state) :]) * np.where(self.logarithmic, values, 1.0)
        return {name: (float(v), float(s)) for name, v, s in zip(self.spread, values, std, strict=True)}

    def _vector(self, theta: Array) -> Array:
        """All parameters (P,)."""
        found = np.array(self.parameter_values, dtype=np.float64)
        found[self.columns] = np.where(self.logarithmic, np.exp(np.where(self.logarithmic, theta, 0.0)), theta)
        return found

    def _directions(self, theta: Array) -> Array:
        """D (P, p)."""
        found = np.zeros((len(self.parameter_values), len(theta)))
        found[self.columns, np.arange(len(theta))] = np.where(self.logarithmic, self._vector(theta)[self.columns], 1.0)
        return found
