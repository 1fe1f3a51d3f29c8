"""Recordings that a model follows under feedback, as least squares: innovations in place of `Segments`.

Also the same recordings followed by other models: with another amount of a choice, or with parts no longer assumed alike.
Legend: T rows of all recordings, m channels, p parameters, P of the model, K candidates, F factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..diagnostics.model_form import Heterogeneity, Varied
from ..least_squares.segments import Derivative, Segments
from ..least_squares.system import ShootingSystem
from ..problem.noise import noise_of
from ..problem.problem import FitProblem

CONTROL = "control:"  # Prefix of names of the controls' noise.


class Whitened(Protocol):
    """Prediction errors that are white and of unit variance if model, parameters and noise are right."""

    def errors(self, parameter_values: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Errors (K, T, m) at rows of parameters (K, P), and whether the model follows (K,)."""
        ...

    def slopes(self, parameter_values: Array, directions: Array) -> Array:
        """Derivatives (T, m, k) at parameters (P,) along directions (P, k)."""
        ...


class Tracker(Protocol):
    """One recording, and a model that follows it."""

    @property
    def sensed(self) -> Trajectory:
        """Sensor readings with noise: measured columns (the m channels), and controls."""
        ...

    def anchored(self, parameter_values: Array, noise: Mapping[str, float]) -> Whitened:
        """Whiten the recording's errors about the motion of parameters (P,), with the noise of columns and controls.

        Raises:
            DataError: The model with these parameters does not follow the recording.
        """
        ...


@dataclass(frozen=True, eq=False)
class Followed:
    """All recordings with their filters: stands in for `Segments` in `ShootingSystem` and `diagnose`, with one known start."""

    problem: FitProblem
    values: Array  # (1, T, m) measured values, recording after recording.
    whitened: tuple[Whitened, ...]
    free = False
    unknowns = 0
    starts = np.zeros((1, 0))

    @property
    def horizon(self) -> int:
        """Number of rows T."""
        return int(self.values.shape[1])

    @property
    def present(self) -> NDArray[np.bool_]:
        """Mask (1, T, m) of measured values: all of them."""
        return np.ones(self.values.shape, dtype=np.bool_)

    @property
    def measured(self) -> int:
        """Number of measured values."""
        return self.values.size

    @property
    def sigma(self) -> Array:
        """(m,) noise of the columns."""
        assert self.problem.known_noise is not None
        return self.problem.known_noise

    def residuals(self, thetas: Array, starts: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Innovations of candidates (K, p) in units of their columns: (K, 1, T, m), success (K, 1)."""
        del starts
        vectors = self.problem.vectors(thetas)
        found = [part.errors(vectors) for part in self.whitened]
        errors = np.concatenate([errors for errors, _ in found], axis=1) * self.sigma
        good = np.all([good for _, good in found], axis=0)
        return errors[:, None], good[:, None]

    def derivative(self, theta: Array, starts: Array) -> Derivative:
        """Innovations and their derivatives at parameters (p,).

        Raises:
            DataError: The model does not follow the recordings there.
        """
        residual, good = self.residuals(theta[None], starts)
        if not good.all():
            raise DataError(f"the model does not follow the recordings at {self.problem.decode(theta)}")
        vector = self.problem.vectors(theta[None])[0]
        directions = np.zeros((len(vector), len(theta)))
        directions[self.problem.columns, np.arange(len(theta))] = self.problem.slopes(theta)
        slopes = np.concatenate([part.slopes(vector, directions) for part in self.whitened]) * self.sigma[:, None]
        return Derivative(residual[0], slopes[None], np.zeros((*residual[0].shape, 0)))


Choices = Mapping[str, tuple[float, Callable[[Any], Any]]]
"""Cause -> (share, simulator -> simulator); see `Procedure.choices`."""


Homogeneous = Mapping[str, tuple[float, Callable[[Any], Any]]]
"""Cause -> (spread, simulator -> simulator); see `MethodData.homogeneous`."""


def control_noise(trackers: list[Tracker]) -> dict[str, float]:
    """Estimate the standard deviation of every control, as `control:name`, from third differences."""
    found = []
    for tracker in trackers:
        sensed = tracker.sensed
        values = np.concatenate([sensed.controls, sensed.controls[-1:]])
        names = tuple(f"{CONTROL}{name}" for name in sensed.control_names)
        found.append(Trajectory(sensed.times, np.zeros((sensed.num_steps, 0)), values, names, sensed.control_units))
    return noise_of(TrajectorySet(tuple(found)), found[0].names)


def anchored(problem: FitProblem, trackers: list[Tracker], theta: Array, noise: Mapping[str, float]) -> ShootingSystem:
    """Least squares of the innovations, with the filter that belongs to the motion at theta (p,)."""
    vector = problem.vectors(theta[None])[0]
    values = np.concatenate([problem.on_grid(tracker.sensed) for tracker in trackers])[None]
    followed = Followed(problem, values, tuple(tracker.anchored(vector, noise) for tracker in trackers))
    return ShootingSystem(cast(Segments, followed), followed.sigma)


def with_others(
    problem: FitProblem,
    follow: Callable[[Any, Trajectory], Tracker],
    choices: Choices,
    theta: Array,
    noise: Mapping[str, float],
) -> tuple[dict[str, Varied], tuple[str, ...]]:
    """Models with other amounts of choices, whitened about their own motion at theta (p,), and choices that cannot follow."""
    found: dict[str, Varied] = {}
    lost = []
    for cause, (share, law) in choices.items():
        trackers = [follow(law(problem.simulator), recording) for recording in problem.split.train]
        try:
            found[cause] = Varied(share, anchored(problem, trackers, theta, noise).segments)
        except DataError:
            lost.append(cause)
    return found, tuple(lost)


def set_apart(
    problem: FitProblem,
    follow: Callable[[Any, Trajectory], Tracker],
    homogeneous: Homogeneous,
    theta: Array,
    noise: Mapping[str, float],
) -> dict[str, Heterogeneity]:
    """Cause -> derivatives of the innovations at theta (p,) by differences between parts that are assumed to be alike."""
    found: dict[str, Heterogeneity] = {}
    for cause, (spread, own) in homogeneous.items():
        simulator = own(problem.simulator)
        if simulator is None:
            continue
        fitted = problem.decode(theta)
        start = simulator.default_parameters.replace(**{name: getattr(fitted, name) for name in fitted.names()})
        names = tuple(name for name in start.names() if name not in fitted.names())
        wide = problem.replace(simulator=simulator, start=start, free=names, prior={})
        trackers = [follow(simulator, recording) for recording in problem.split.train]
        ones = wide.encode(start)
        segments = anchored(wide, trackers, ones, noise).segments
        found[cause] = Heterogeneity(spread, segments.derivative(ones, segments.starts).by_parameters)
    return found
