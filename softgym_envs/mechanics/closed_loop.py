r"""A mechanism that follows a recording of its motors, as in [Caldwell2014] (IV-C).

The recorded force drives the model, and feedback on the recorded angles b keeps it near the recording:

.. math:: u_t = T^m_t - K_t (b_t - b^m_t)

It starts at rest below the mean of the first angles, wherever the parameters put it.
Legend: T control steps, n coordinates, nu motors, P parameters; x = (q, p), nx = 2 n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.simulator import Array, Status, check_array, check_number
from .mechanism import Mechanism, Motion

REST_DIFFERENCE = 1e-5
"""Relative step of the differences of the rest state, whose error is 1e-10."""


@dataclass(frozen=True, eq=False)
class Following:
    """See the module docstring.

    Raises:
        ShapeError: Arrays whose shapes do not belong together.
        OptionError: `substeps` is below 1, or `still` is not within the recording.
    """

    mechanism: Mechanism
    forces: Array
    """(T, nu) recorded forces of the motors [N m, N]."""
    angles: Array
    """(T + 1, nu) recorded coordinates of the motors [rad, m]."""
    gains: Array
    """(1 or T, nu, nu) K [N m/rad, N/m]."""
    still: int = 1
    """Samples at the beginning during which the mechanism rests."""
    substeps: int = 1
    """Physics steps between samples."""

    def __post_init__(self) -> None:
        nu = self.mechanism.nu
        check_array("forces", self.forces, (None, nu))
        check_array("angles", self.angles, (len(self.forces) + 1, nu))
        check_array("gains", self.gains, (None, nu, nu))
        if len(self.gains) not in (1, len(self.forces)):
            raise ShapeError(f"gains are given for {len(self.gains)} control steps, expected 1 or {len(self.forces)}")
        check_number("still", self.still, low=1, high=len(self.angles), whole=True)
        check_number("substeps", self.substeps, low=1, whole=True)

    @property
    def period(self) -> float:
        """Time between samples [s]."""
        return self.mechanism.dt * self.substeps

    @cached_property
    def motors(self) -> Array:
        """(nu,) indices of b in q."""
        return np.array(self.mechanism.structure.actuated)

    @cached_property
    def feedback(self) -> Array:
        """(1 or T, nu, nx) gains as `Mechanism.simulate` takes them."""
        found = np.zeros((len(self.gains), self.mechanism.nu, self.mechanism.nx))
        found[:, :, self.motors] = self.gains
        return found

    @cached_property
    def controls(self) -> Array:
        """(T, nu): T^m + K b^m."""
        return np.asarray(self.forces + np.einsum("tij,tj->ti", self._every(self.gains), self.angles[:-1]))

    # --- Prediction ---------------------------------------------------------------------------------------------------

    def start(self, parameter_values: Any) -> Array:
        """States (B, nx) at rest for rows of parameters (B, P); NaN where there is no rest."""
        rows, mechanism = np.atleast_2d(np.asarray(parameter_values, dtype=np.float64)), self.mechanism
        q = np.zeros((len(rows), mechanism.n))
        q[:, self.motors] = self.angles[: self.still].mean(axis=0)
        return self._start(q, rows)

    def predict(self, parameter_values: Any) -> Motion:
        """The motion of every row of parameters (B, P); a row without a start has status UNSOLVED."""
        rows = np.atleast_2d(np.asarray(parameter_values, dtype=np.float64))
        state = self.start(rows)
        bad = np.isnan(state).any(axis=1)
        state[bad] = 0.0
        controls = np.repeat(self.controls[None], len(rows), axis=0)
        motion = self.mechanism.simulate(state, controls, rows, substeps=self.substeps, gains=self.feedback)
        motion.status[bad] = Status.UNSOLVED
        return motion

    def start_slopes(self, parameter_values: Array, directions: Array) -> Array:
        """d start / d direction (nx, k), by central differences of the rest."""
        size = REST_DIFFERENCE * np.array(
            [max(np.abs(parameter_values[way != 0]).max(initial=0.0), 1e-2) for way in directions.T]
        )
        length = size / np.maximum(np.abs(directions).max(axis=0, initial=0.0), 1e-300)
        moves = (directions * length).T
        ahead, behind = np.split(self.start(np.concatenate([parameter_values + moves, parameter_values - moves])), 2)
        return np.asarray(((ahead - behind) / (2.0 * length[:, None])).T)

    # --- Parts --------------------------------------------------------------------------------------------------------

    def _every(self, gains: Array) -> Array:
        return np.broadcast_to(gains, (len(self.forces), *gains.shape[1:]))

    def _start(self, q: Array, rows: Array) -> Array:
        mechanism = self.mechanism
        rest = mechanism.rest(q, parameter_values=rows, held=mechanism.tree.actuated)
        good = rest.status == Status.OK
        state = np.full((len(rows), mechanism.nx), np.nan)
        if good.any():
            state[good] = mechanism.rest_state(rest.q[good], rest.needed[good][:, self.motors], rows[good])
        return state

    def start_by_angle(self, parameter_values: Array) -> Array:
        """d start / d mean of the first angles, (nx, nu)."""
        q = np.zeros((2 * len(self.motors), self.mechanism.n))
        mean, eye = self.angles[: self.still].mean(axis=0), REST_DIFFERENCE * np.eye(len(self.motors))
        q[:, self.motors] = np.concatenate([mean + eye, mean - eye])
        ahead, behind = np.split(self._start(q, np.repeat(parameter_values[None], len(q), axis=0)), 2)
        return np.asarray((ahead - behind).T / (2.0 * REST_DIFFERENCE))
