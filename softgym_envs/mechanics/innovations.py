r"""Whitened prediction errors of a `Following`: the effect of noise in the recorded forces and angles on them is known.

The model is driven by what was recorded, T^m and b^m, so the noise of both moves it, and its errors r = b - b^m last in
time. The error of its state obeys, to first order, with known feedback f = K (b - b^f) and white noise e of forces (Q) and
angles (R),

.. math::
   \delta_{t+1} = A_t \delta_t + B_t (e^T_t - f_t), \qquad r_t = H \delta_t - e^b_t

A Kalman filter predicts the errors; the residual nu_t = r_t - H E[delta_t | r_0 .. r_{t-1}] is white with covariance
S_t if model, parameters and noise are right (innovations: Kailath 1968). Least squares of S^{-1/2} nu is then maximum
likelihood, its curvature the Fisher information, and its size a test of the model. The feedback drops out: it only keeps the
model near, and may pull to smoothed angles b^f. The forces should be smoothed, too (`smoothed`): their noise would bias the
damping, as errors in variables do.

Legend: T control steps, n coordinates, nx = 2 n, nu motors, P parameters, K candidates, k directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from ..core.errors import DataError
from ..core.simulator import Array, Status
from .closed_loop import Following
from .mechanism import Motion

AVERAGED = 45
"""Neighbouring frequencies whose mean power counts as that of the one in the middle."""


@dataclass(frozen=True, eq=False)
class Innovations:
    """See the module docstring; the filter is that of one motion."""

    following: Following
    """Model that follows the smoothed recordings."""
    angles: Array
    """(T + 1, nu) b^m as measured."""
    A: Array
    """(T, nx, nx)"""
    B: Array
    """(T, nx, nu)"""
    gains: Array
    """(T + 1, nx, nu) gains of the filter."""
    roots: Array
    """(T + 1, nu, nu) S^{-1/2}."""
    _latest: dict[bytes, Motion] = field(default_factory=dict, init=False, repr=False)

    def errors(self, parameter_values: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Errors (K, T + 1, nu) of unit variance of rows of parameters (K, P), and whether the model follows (K,)."""
        motion = self._motion(parameter_values)
        found = np.moveaxis(motion.states[:, :, self.following.motors], 0, -1)
        white = self.whiten(found - self.angles[..., None], found - self.following.angles[..., None])
        return np.moveaxis(white, -1, 0), motion.status == Status.OK

    def slopes(self, parameter_values: Array, directions: Array, pushes: Array | None = None) -> Array:
        """Derivatives (T + 1, nu, k) of the errors at parameters (P,) along directions (P, k), by forward sensitivities.

        Along them the forces change by `pushes` (T, nu, k).

        Raises:
            DataError: The derivative of the rest at the start is not defined there.
        """
        follow = self.following
        motion = self._motion(parameter_values[None])
        start = follow.start_slopes(motion.parameter_values[0], directions)
        if not np.isfinite(start).all():
            raise DataError("the model does not come to rest with these parameters as the recording does at its start")
        found = follow.mechanism.sensitivities(motion, start[None], directions, pushes)[0]
        return self.whiten(found[:, follow.motors], found[:, follow.motors])

    def _motion(self, parameter_values: Array) -> Motion:
        """Motion of rows of parameters; the latest is cached, as errors are evaluated before slopes."""
        key = parameter_values.tobytes()
        if key not in self._latest:
            motion = self.following.predict(parameter_values)
            self._latest.clear()
            self._latest[key] = motion
        return self._latest[key]

    def whiten(self, raw: Array, fed: Array) -> Array:
        """Errors r and b - b^f (T + 1, nu, k), or derivatives of them, as innovations of unit variance."""
        follow = self.following
        motors, feedback = follow.motors, np.broadcast_to(follow.gains, (len(self.A), *follow.gains.shape[1:]))
        found, error = np.empty_like(raw), np.zeros((self.A.shape[1], raw.shape[2]))
        for t, seen in enumerate(raw):
            new = seen - error[motors]
            found[t] = self.roots[t] @ new
            if t < len(self.A):
                error = self.A[t] @ (error + self.gains[t] @ new) - self.B[t] @ (feedback[t] @ fed[t])
        return found


def innovations(following: Following, angles: Array, parameter_values: Array, *, force: Array, angle: Array) -> Innovations:
    """The filter about the motion of parameters (P,).

    Args:
        following: The recording, smoothed or not.
        angles: (T + 1, nu) as measured.
        parameter_values: Parameters of the mechanism.
        force: (nu,) standard deviations of the recorded forces [N m, N].
        angle: (nu,) standard deviations of the recorded coordinates [rad, m].

    Raises:
        DataError: The model with these parameters does not follow the recording.
    """
    motion = following.predict(parameter_values)
    if motion.status[0] != Status.OK:
        raise DataError("the model with these parameters does not follow the recording: start nearer, or see the units")
    mechanism = following.mechanism
    rows = np.repeat(motion.parameter_values, len(following.forces), axis=0)
    A, B, _ = mechanism.linearize(motion.states[0, :-1], motion.applied[0], rows, substeps=following.substeps)
    gains, roots = _filter(A, B, following.motors, _first(following, motion, angle), force**2, angle**2)
    return Innovations(following, angles, A, B, gains, roots)


def smoothed(values: Array, noise: Array) -> Array:
    r"""Remove from signals (T, k) what does not exceed the spectrum of white noise (k,).

    Every frequency is multiplied by 1 - 2 sigma^2 / S, S the power about it, and by 0 where that is negative: Wiener's
    filter, but reliably 0 where S is that of noise. Ends are continued by reflection.
    """
    count = len(values)
    whole = np.concatenate([values[:0:-1], values, values[-2::-1]])
    found = np.fft.rfft(whole, axis=0)
    power = uniform_filter1d(np.abs(found) ** 2 / len(whole), AVERAGED, axis=0, mode="nearest")
    kept = np.clip(1.0 - 2.0 * noise**2 / np.maximum(power, 1e-300), 0.0, 1.0)
    return np.asarray(np.fft.irfft(found * kept, len(whole), axis=0)[count - 1 : 2 * count - 1])


def _first(following: Following, motion: Motion, angle: Array) -> Array:
    """Covariance (nx, nx) of the start: at rest, below angles that are known as exactly as one sample."""
    slopes = following.start_by_angle(motion.parameter_values[0]) * angle
    return np.asarray(slopes @ slopes.T)


def _filter(A: Array, B: Array, motors: Array, P: Array, Q: Array, R: Array) -> tuple[Array, Array]:
    """Gains (T + 1, nx, nu) and roots (T + 1, nu, nu) of the Kalman filter from covariance P (nx, nx)."""
    gains, roots = np.empty((len(A) + 1, len(P), len(motors))), np.empty((len(A) + 1, len(motors), len(motors)))
    for t in range(len(A) + 1):
        S = P[np.ix_(motors, motors)] + np.diag(R)
        gains[t] = np.linalg.solve(S, P[motors]).T
        roots[t] = np.linalg.inv(np.linalg.cholesky(S))
        if t < len(A):
            P = A[t] @ (P - gains[t] @ P[motors]) @ A[t].T + (B[t] * Q) @ B[t].T
            P = 0.5 * (P + P.T)
    return gains, roots
