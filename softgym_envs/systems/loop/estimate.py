r"""Recursive estimation of the loop while the arm moves: stiffness and torque offsets from its own torques and angles.

A Kalman filter of parameters [Ljung1979]: our own integrator predicts the motion from rest on, with the parameters that are
estimated at that time, and its forward sensitivities S = dx/dc. An angle measured with noise sigma corrects parameters
theta and motion alike,

.. math::
   H = S_b \, \partial c / \partial \theta, \quad L = P H^T (H P H^T + \sigma^2)^{-1}, \quad
   \theta \mathrel{+}= L (b - \hat b), \quad \hat x \mathrel{+}= S \, \Delta c, \quad P \mathrel{-}= L H P

so P^-1 is the prior's information plus the Fisher information of all angles so far. theta are the logarithms of both
stiffnesses and the seven offsets of the torque sensors, which are a nuisance that would bias the stiffness. The cost of a step
does not depend on the length of the recording. All other parameters are taken to be at their defaults.

Legend: B batch, n coordinates, p = 9 parameters; x = (q, p) of `mechanics.integrator`, length 2 n.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...core.simulator import Array
from ...engines.numba.engine import plain, spread
from ...engines.numba.lanes import LANES
from ...mechanics.mechanism import Mechanism
from ...mechanics.structure import with_numbers
from .estimator_kernels import Believed, Gauge, correct_rows, predict_rows
from .model import ARM, LOOP, PARAMETERS, LoopModel

STIFFNESS = LOOP[:2]
OFFSETS = tuple(f"offset_{name}" for name in ARM)
COLUMNS = [PARAMETERS.index(name) for name in (*STIFFNESS, *OFFSETS)]
"""Indices in `LoopParameters`, which begin as `PARAMETERS` do."""
NUM_FREE = len(COLUMNS)
MAX_PREDICTION_STEP = 0.01
"""Step of the prediction [s], unless the control period is shorter."""
START_DIFFERENCE = 1e-5
"""Finite difference of log stiffness and of offsets [N m] for the slopes of the first state."""


LINEARIZED = 3
"""Cost of a step with its derivatives, in plain steps."""


class Belief(NamedTuple):
    """Estimate of every row of a batch."""

    theta: Array
    """(B, 9) log stiffness [N m/rad], offsets [N m]."""
    covariance: Array
    """(B, 9, 9) P."""
    state: Array
    """(B, 2 n) predicted x."""
    slopes: Array
    """(B, 2 n, 9) S."""
    lost: Array
    """(B,) 1 where the prediction failed; nothing is learned from there on."""

    @property
    def stiffness(self) -> Array:
        """Stiffness theta, psi (B, 2) [N m/rad]."""
        return np.exp(self.theta[:, :2])

    @property
    def deviation(self) -> Array:
        """Standard deviations of log stiffness (B, 2)."""
        return np.sqrt(np.stack([self.covariance[:, 0, 0], self.covariance[:, 1, 1]], axis=1))

    @property
    def information(self) -> Array:
        """Minus half the log determinant of the stiffnesses' covariance, offsets marginalised (B,) [nat]."""
        P = self.covariance
        return np.asarray(-0.5 * np.log(P[:, 0, 0] * P[:, 1, 1] - P[:, 0, 1] * P[:, 1, 0]))


@dataclass(frozen=True, eq=False)
class Estimator:
    """See the module docstring."""

    model: LoopModel
    period: float
    """Time between measurements [s]."""
    noise: float
    """Standard deviation sigma of an angle [rad]."""
    stiffness: tuple[tuple[float, float], tuple[float, float]]
    """Lowest and highest theta and psi stiffness [N m/rad]: the prior is log-uniform between them."""
    offset: float
    """Largest offset [N m]: the prior is uniform."""

    @cached_property
    def substeps(self) -> int:
        """Integrator steps between measurements."""
        return max(round(self.period / MAX_PREDICTION_STEP), 1)

    @cached_property
    def mechanism(self) -> Mechanism:
        """Our model."""
        return Mechanism(self.model.tree, self.period / self.substeps, self.model.parameter_names)

    @cached_property
    def prior(self) -> Belief:
        """Estimate before any measurement, one row: at rest under the torques that hold the start."""
        low, high = np.log(np.array(self.stiffness)).T
        theta = np.concatenate([0.5 * (low + high), np.zeros(len(OFFSETS))])
        width = np.concatenate([high - low, np.full(len(OFFSETS), 2.0 * self.offset)])
        moves = START_DIFFERENCE * np.eye(NUM_FREE)
        states = self._rest(theta + np.concatenate([np.zeros((1, NUM_FREE)), moves, -moves]))
        by_theta = (states[1 : NUM_FREE + 1] - states[NUM_FREE + 1 :]).T / (2.0 * START_DIFFERENCE)
        slopes = by_theta / self._scales(theta[None])[0]
        covariance = np.diag(np.maximum(width**2 / 12.0, 1e-12))
        return Belief(theta[None], covariance[None], states[:1], slopes[None], np.zeros(1))

    @cached_property
    def size(self) -> int:
        """Length of a row of `pack`."""
        return self.pack(self.prior).shape[1]

    def pack(self, belief: Belief) -> Array:
        """Pack the arrays into rows (B, size)."""
        return np.concatenate([part.reshape(len(part), -1) for part in belief], axis=1)

    def unpack(self, rows: Array) -> Belief:
        """Inverse of `pack`."""
        return Belief(*(rows[:, place].reshape(len(rows), *shape) for place, shape in self._places))

    @cached_property
    def _places(self) -> list[tuple[slice, tuple[int, ...]]]:
        """Slices of the parts of a belief in a row, and their shapes for one row."""
        shapes = [part.shape[1:] for part in self.prior]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes]).tolist()
        return [(slice(a, b), shape) for a, b, shape in zip([0, *ends], ends, shapes, strict=False)]

    def parameter_values(self, theta: Array) -> Array:
        """Parameters of the tree, (B, P)."""
        found = np.tile(self._default, (len(theta), 1))
        found[:, COLUMNS] = np.concatenate([np.exp(theta[:, :2]), theta[:, 2:]], axis=1)
        return self.model.tree_constants(found)

    @cached_property
    def _default(self) -> Array:
        """Default vector of `LoopParameters`."""
        return self.model.parameters_class().to_vector()

    @cached_property
    def _ways(self) -> Array:
        """Derivatives of the tree's parameters by the estimated ones (P, 9)."""
        return np.asarray(self.model.tree_slopes(self._default[None])[0][:, COLUMNS])

    def predict(self, belief: Belief, torques: Array) -> Belief:
        """Predict one period ahead under torques (B, 7) [N m] as the arm measures them."""
        rows = self.pack(belief)
        self.predict_rows(rows, 0, torques)
        return self.unpack(rows)

    def predict_rows(self, rows: Array, first: int, torques: Array) -> None:
        """`predict` of beliefs that are packed in rows (B, .) from column `first` on, in place."""
        torques = np.ascontiguousarray(torques)
        work = LINEARIZED * self.substeps
        spread(lambda part: predict_rows(self._believed, first, torques[part], rows[part]), len(rows), work, lanes=LANES)

    def correct(self, belief: Belief, angles: Array) -> Belief:
        """Correct with measured angles (B, 7) [rad]."""
        rows = self.pack(belief)
        correct_rows(self.gauge, 0, NUM_FREE, np.ascontiguousarray(angles), rows)
        return self.unpack(rows)

    @cached_property
    def _believed(self) -> Any:
        """The mechanism as a function of the estimated parameters only; all others are numbers."""
        parameter_values, used = self.model.tree_constants(self._default[None])[0], np.flatnonzero(self._ways.any(axis=1))
        ways = self._ways[used]
        structure = with_numbers(self.mechanism.structure, parameter_values, used)
        return plain(Believed(structure, parameter_values[used] - ways @ self._default[COLUMNS], ways, self.substeps))

    @cached_property
    def gauge(self) -> Any:
        """Measurement of the angles: an `estimator_kernels.Gauge`, as kernels take it."""
        return plain(Gauge(float(self.noise), self._range[0], self._range[1], len(ARM)))

    @cached_property
    def _range(self) -> Array:
        """Bounds of the estimated log stiffness (2, 2): a factor of two beyond the prior's ends."""
        return np.log(np.array(self.stiffness)).T + np.log([[0.5], [2.0]])

    def _scales(self, theta: Array) -> Array:
        """Derivatives d c / d theta (B, 9)."""
        return np.concatenate([np.exp(theta[:, :2]), np.ones((len(theta), len(OFFSETS)))], axis=1)

    def _rest(self, theta: Array) -> Array:
        """States (B, 2 n) at rest under the torques that hold the start."""
        rows, hold = self.parameter_values(theta), np.tile(self.model.hold, (len(theta), 1))
        first = np.tile(self.model.rest_state()[: self.model.n], (len(theta), 1))
        return self.mechanism.rest_state(self.mechanism.rest(first, hold, rows).q, hold, rows)
