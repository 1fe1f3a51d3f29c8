r"""Least squares of a mechanism that follows a recording, as [Caldwell2014] (IV-C) identifies parameters with it.

.. math::
   J(c) = \sum_{t=1}^{T} w_t \, \epsilon_t^T \epsilon_t, \quad
   \epsilon = \bigl(r(b) - r(b^m), \; \alpha \, (b - b^m)\bigr)

with r the origin of a frame that only the motors move, w = 1 and at the end 2 (the paper's terminal cost repeats the last
sample). Derivatives are exact: forward sensitivities for Gauss and Newton, the adjoint of lemma 1 for gradients and for the
effect of noise on a fit.

Legend: T control steps, n coordinates, nu motors, P parameters, p free ones, ny = 3 or 3 + nu; x = (q, p), nx = 2 n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from softgym_envs.core.errors import OptionError, StructureError
from softgym_envs.core.simulator import Array, Status, check_array, check_number
from softgym_envs.mechanics.closed_loop import Following
from softgym_envs.mechanics.mechanism import Motion


@dataclass(frozen=True, eq=False)
class FollowingErrors(Following):
    """`Following` with the errors of the module docstring, and their derivatives.

    Raises:
        OptionError: A weight is negative.
    """

    frame: str = "H"
    """Frame whose origin is r."""
    angle_weight: float = 0.0
    """alpha [m/rad]; 0 in the paper."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("angle_weight", self.angle_weight, low=0.0)

    @cached_property
    def measured(self) -> Array:
        """(T, ny) r(b^m) and alpha b^m of samples 1 .. T."""
        q = np.zeros((len(self.forces), self.mechanism.n))
        q[:, self.motors] = self.angles[1:]
        return self._outputs(q)

    @cached_property
    def root_weights(self) -> Array:
        """(T, 1) square roots of w."""
        found = np.ones((len(self.forces), 1))
        found[-1] = np.sqrt(2.0)
        return found

    def residuals(self, motion: Motion) -> Array:
        """Root-weighted epsilon (B, T, ny)."""
        states = motion.states[:, 1:]
        outputs = self._outputs(states[..., : self.mechanism.n].reshape(-1, self.mechanism.n))
        return np.asarray(self.root_weights * (outputs.reshape(*states.shape[:2], -1) - self.measured))

    def regulated(self, parameter_values: Array, *, ratio: float) -> FollowingErrors:
        """Copy with gains of a finite-horizon linear-quadratic regulator about the motion that `predict` finds, eq. IV-C.

        It weighs the motors' coordinates by `ratio` [(N m / rad)^2] and their forces by 1. Only its gains on the motors'
        coordinates are kept, since only these are measured.

        Raises:
            StructureError: The model does not follow the recording with its present gains.
        """
        motion = self.predict(parameter_values)
        if motion.status[0] != Status.OK:
            raise StructureError("the model does not follow the recording at these parameters; take other gains or parameters")
        A, B, _ = self.mechanism.linearize(motion.states[0, :-1], motion.applied[0], parameter_values, substeps=self.substeps)
        weight = np.zeros(A.shape[1:])
        weight[self.motors, self.motors] = ratio
        found, cost = np.empty((len(A), self.mechanism.nu, self.mechanism.nu)), weight
        for t in reversed(range(len(A))):
            pushed = cost @ B[t]
            gain = np.linalg.solve(np.eye(self.mechanism.nu) + B[t].T @ pushed, pushed.T @ A[t])
            found[t] = gain[:, self.motors]
            cost = weight + A[t].T @ cost @ (A[t] - B[t] @ gain)
            cost = 0.5 * (cost + cost.T)
        return replace(self, gains=found)

    # --- Derivatives --------------------------------------------------------------------------------------------------

    def slopes(self, motion: Motion, directions: Array) -> Array:
        """Derivatives (T, ny, k) of the residuals of a motion of one row along directions (P, k), by forward sensitivities."""
        start = self.start_slopes(motion.parameter_values[0], directions)
        dx = self.mechanism.sensitivities(motion, start[None], directions)[0, 1:, : self.mechanism.n]
        return np.asarray(np.einsum("tyn,tnk->tyk", self._output_slopes(motion), dx))

    def gradient(self, motion: Motion, directions: Array) -> Array:
        """Slopes (k,) of J along directions (P, k), by the adjoint."""
        found = self.mechanism.gradient(motion, self._pull(motion, 2.0 * self.residuals(motion)))
        return np.asarray(
            found.parameter_values[0] @ directions + found.state[0] @ self.start_slopes(motion.parameter_values[0], directions)
        )

    def score_covariance(self, motion: Motion, jacobian: Array, *, force: float, angle: float) -> Array:
        """Covariance (k, k) of J' epsilon under white noise of recorded forces and angles, to first order and exactly.

        Noise of the forces and angles drives the model too, so residuals are correlated in time; its effect on every
        component of the score comes from one adjoint run each.

        Args:
            motion: Motion of one row of parameters.
            jacobian: (T, ny, k) from `slopes`.
            force: Standard deviation of the recorded forces [N m, N].
            angle: Standard deviation of the recorded angles [rad, m].
        """
        count = jacobian.shape[-1]
        many = _repeat(motion, count)
        found = self.mechanism.gradient(many, self._pull(many, np.moveaxis(jacobian, -1, 0)))
        by_angle = np.zeros((count, *self.angles.shape))
        by_angle[:, :-1] = np.einsum("tij,kti->ktj", self._every(self.gains), found.controls)
        by_angle[:, 1:] -= np.einsum("tyn,tyk->ktn", self._output_slopes(motion)[:, :, self.motors], jacobian)
        by_angle[:, : self.still] += (found.state @ self.start_by_angle(motion.parameter_values[0]) / self.still)[:, None]
        by_force, by_angle = found.controls.reshape(count, -1), by_angle.reshape(count, -1)
        return np.asarray(force**2 * by_force @ by_force.T + angle**2 * by_angle @ by_angle.T)

    def _outputs(self, q: Array) -> Array:
        """Outputs (N, ny) of rows q (N, n)."""
        r = self.mechanism.pose(self.frame, q)[1]
        return np.hstack([r, self.angle_weight * q[:, self.motors]]) if self.angle_weight > 0 else r

    def _output_slopes(self, motion: Motion) -> Array:
        """Root-weighted derivatives of outputs by q, (T, ny, n), of the motion's first row."""
        q = motion.states[0, 1:, : self.mechanism.n]
        found = self.mechanism.point_slopes(self.frame, q)
        if self.angle_weight > 0:
            angle = np.zeros((len(q), len(self.motors), self.mechanism.n))
            angle[:, np.arange(len(self.motors)), self.motors] = self.angle_weight
            found = np.concatenate([found, angle], axis=1)
        return np.asarray(found * self.root_weights[:, :, None])

    def _pull(self, motion: Motion, cotangents: Array) -> Array:
        """Slopes (B, T + 1, nx) by the state of sum(cotangents (B, T, ny) * residuals); all rows move like the first."""
        found = np.zeros(motion.states.shape)
        found[:, 1:, : self.mechanism.n] = np.einsum("bty,tyn->btn", cotangents, self._output_slopes(motion))
        return found


@dataclass(frozen=True, eq=False)
class LogFit:
    """Free parameters of a `FollowingErrors` as fit coordinates theta (p,): log c, or c itself for the names in `linear`.

    Has the methods of `sysid.least_squares.levenberg.System`, whose cost is J / 2; it has no block unknowns.

    Raises:
        OptionError: A parameter that is linear but not free.
        StructureError: An unknown parameter.
    """

    following: FollowingErrors
    parameter_values: Array
    """(P,) parameters; those that are not free keep these values."""
    free: tuple[str, ...]
    linear: tuple[str, ...] = ()
    _latest: dict[bytes, Motion] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in self.free:
            if name not in self.following.mechanism.parameter_names:
                known = ", ".join(self.following.mechanism.parameter_names)
                raise StructureError(f"constant {name!r} is unknown; there are {known}")
        for name in self.linear:
            if name not in self.free:
                raise OptionError(f"constant {name!r} is in linear but not in free")

    @cached_property
    def columns(self) -> list[int]:
        """(p,) indices of the free parameters."""
        return [self.following.mechanism.parameter_names.index(name) for name in self.free]

    @cached_property
    def logarithmic(self) -> Array:
        """(p,) whether theta is a logarithm."""
        return np.array([name not in self.linear for name in self.free])

    def encode(self, values: Sequence[float]) -> Array:
        """Theta (p,) of values of the free parameters."""
        array = check_array("values", values, (len(self.free),))
        return np.where(self.logarithmic, np.log(np.where(self.logarithmic, array, 1.0)), array)

    def decode(self, theta: Array) -> Array:
        """Values (p,) of the free parameters."""
        return np.where(self.logarithmic, np.exp(np.where(self.logarithmic, theta, 0.0)), theta)

    def vector(self, theta: Array) -> Array:
        """All parameters (P,)."""
        found = np.array(self.parameter_values, dtype=np.float64)
        found[self.columns] = self.decode(theta)
        return found

    def directions(self, theta: Array) -> Array:
        """d parameters / d theta, (P, p)."""
        found = np.zeros((len(self.parameter_values), len(self.free)))
        found[self.columns, np.arange(len(self.free))] = np.where(self.logarithmic, self.decode(theta), 1.0)
        return found

    def cost(self, theta: Array, blocks: Array) -> float:
        """J / 2; infinity where the model fails."""
        del blocks
        motion = self.predict(theta)
        if motion.status[0] != Status.OK:
            return float("inf")
        with np.errstate(over="ignore"):
            return 0.5 * float(np.sum(self.following.residuals(motion) ** 2))

    def compress(self, theta: Array, blocks: Array) -> Array:
        """Triangle of [Jacobian, residual], (1, p + 1, p + 1)."""
        del blocks
        residual, jacobian = self.linearization(theta)[1:]
        rows = np.concatenate([jacobian, residual[..., None]], axis=-1).reshape(-1, len(theta) + 1)
        return np.asarray(np.linalg.qr(rows, mode="r"))[None]

    def move(self, blocks: Array, step: Array) -> Array:
        """Return `blocks`: there are no block unknowns."""
        del step
        return blocks

    def predict(self, theta: Array) -> Motion:
        """The motion at theta; the latest one is cached, as a solver evaluates its cost and then its slopes."""
        key = theta.tobytes()
        if key not in self._latest:
            motion = self.following.predict(self.vector(theta))
            self._latest.clear()
            self._latest[key] = motion
        return self._latest[key]

    def linearization(self, theta: Array) -> tuple[Motion, Array, Array]:
        """The motion, its residuals (T, ny) and their Jacobian (T, ny, p)."""
        motion = self.predict(theta)
        return motion, self.following.residuals(motion)[0], self.following.slopes(motion, self.directions(theta))

    def value_and_slopes(self, theta: Array) -> tuple[float, Array]:
        """J and dJ / dtheta (p,) by the adjoint; infinity and zeros where the model fails."""
        motion = self.predict(theta)
        if motion.status[0] != Status.OK:
            return float("inf"), np.zeros(len(theta))
        value = float(np.sum(self.following.residuals(motion) ** 2))
        return value, self.following.gradient(motion, self.directions(theta))

    def covariance(self, theta: Array, *, force: float, angle: float) -> Array:
        """Covariance (p, p) of a least-squares theta under white noise of recorded forces and angles."""
        motion, _, jacobian = self.linearization(theta)
        inverse = np.linalg.inv(np.einsum("tyi,tyj->ij", jacobian, jacobian))
        return np.asarray(inverse @ self.following.score_covariance(motion, jacobian, force=force, angle=angle) @ inverse)


def _repeat(motion: Motion, count: int) -> Motion:
    """`count` rows like the first."""
    arrays: dict[str, Any] = {
        name: np.repeat(getattr(motion, name)[:1], count, axis=0)
        for name in ("path", "multipliers", "applied", "status", "parameter_values")
    }
    return replace(motion, **arrays)
