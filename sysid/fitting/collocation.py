r"""States, contact forces and parameters as unknowns at once: the smoothed complementarity problem of whole recordings.

Unknowns are parameters theta, all states x_0 ... x_K and all pairs z_1 ... z_K; every physics step is a constraint, with pairs
smoothed by Fischer and Burmeister's function [Fischer 1992; Kanzow 1996]:

.. math::
   \min \sum_k \| (y_k - h(x_k)) / \sigma \|^2 \quad\text{subject to}\quad g(x_k, u_k, \theta, x_{k+1}, z_{k+1}) = 0, \;
   z + f - \sqrt{z^2 + f^2 + 2 \tau} = 0 \;\Leftrightarrow\; z, f > 0, \; z f = \tau

Each iteration linearises the constraints at states and forces that need not satisfy them yet, eliminates these step by step,

.. math:: dx_{k+1} = A_k dx_k + C_k d\theta + c_k

and solves the remaining damped least-squares problem in (theta, x_0): the lifted Gauss-Newton method [Albersmeyer, Diehl
2010]. It combines infeasible starts (observed positions, no forces) with few unknowns per solve, which a general NLP solver
does not; with exact second derivatives IPOPT needed most of its iterations to repair the curvature of the square root.

Legend: K physics steps, nx state, nz pairs, p free parameters, ny measured columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.errors import OptionError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.core.transcription import evaluated_steps, linearized_steps

from ..problem.problem import FitProblem

SMALLEST_STEP = 2.0**-12  # Smallest step of the line search.


class Window(NamedTuple):
    """One recording, on the grid of physics steps."""

    controls: Array  # (K, nu)
    values: Array  # (K+1, ny); NaN where nothing was measured.


class Point(NamedTuple):
    """All unknowns of all recordings."""

    theta: Array  # (p,) fit coordinates.
    states: tuple[Array, ...]  # (K+1, nx) each.
    pairs: tuple[Array, ...]  # (K, nz) each.


class _Local(NamedTuple):
    """One recording's constraints, linearised: d states = columns @ d(theta, x_0) + drift, and so for pairs."""

    columns: Array  # (K+1, nx, p + nx)
    drift: Array  # (K+1, nx)
    pairs: Array  # (K, nz, p + nx)
    pair_drift: Array  # (K, nz)


@dataclass(frozen=True, eq=False)
class Collocation:
    """The smoothed problem; see the module docstring.

    Raises:
        OptionError: Measured quantities are no state entries, states are not flat, or steps have modes.
        MissingDependencyError: CasADi is not installed.
    """

    problem: FitProblem
    form: ComplementarityForm
    windows: tuple[Window, ...]
    sigma: Array  # (ny,)

    def __post_init__(self) -> None:
        simulator = self.problem.simulator
        if self.problem.measurement is not None:
            raise OptionError("measurement is a function; complementarity needs measured columns that are state entries")
        if self.form.mode is not None:
            raise OptionError("the step has modes (links are born); use sysid.fitting.simultaneous")
        if simulator.n != simulator.nx:
            raise OptionError(f"{type(simulator).__name__} has states on a manifold; complementarity needs flat states")

    def first_guess(self, theta: Array, tau: float) -> Point:
        """Guess of [Berard2008] slide 27: measured entries as observed, the others as guessed; but z = sqrt(tau), not zero."""
        states = []
        for window, recording in zip(self.windows, self.problem.split.train, strict=True):
            x = np.tile(self.problem.initial_guess(recording), (len(window.values), 1))
            rows = np.arange(len(x))
            for place, column in enumerate(self.problem.state_columns):
                seen = np.isfinite(window.values[:, place])
                x[:, column] = np.interp(rows, rows[seen], window.values[seen, place])
            states.append(x)
        pairs = tuple(np.full((len(w.controls), self.form.nz), np.sqrt(tau)) for w in self.windows)
        return Point(theta.copy(), tuple(states), pairs)

    def objective(self, point: Point) -> float:
        """Squared weighted residuals, priors included."""
        return float(sum(np.sum(r * r) for r in self._residuals(point)))

    def relax(self, point: Point, tau: float, *, iterations: int, tolerance: float = 1e-3) -> tuple[Point, int]:
        """Lifted Gauss-Newton at one tau, until steps in theta and infeasibility are small; -> the point, iterations used."""
        damping, weight = 1e-3, 0.0
        defects, now = self._defects(point, tau), self.objective(point)
        for iteration in range(iterations):
            found = self._direction(point, defects, damping)
            if found is None:
                return point, iteration
            step, predicted = found
            infeasible = _size(value for value, _ in defects)
            weight = max(weight, 2.0 * (predicted - now) / max(infeasible, 1e-300), 1e-3 * now / max(infeasible, 1e-300))
            length, point, defects, reached = self._search(point, step, tau, now + weight * infeasible, predicted, weight)
            change = float(np.abs(length * step.theta).max(initial=0.0))
            gained, now = abs(reached - now), reached
            damping = max(0.3 * damping, 1e-12) if length == 1.0 else min(2.0 * damping, 1e3)
            feasible = _size(value for value, _ in defects) < tolerance
            if length == 1.0 and feasible and (change < 1e-6 or gained < tolerance * now):
                return point, iteration + 1
        return point, iterations

    # --- one iteration -------------------------------------------------------------------------------------------------

    def _search(
        self, point: Point, step: Point, tau: float, merit: float, predicted: float, weight: float
    ) -> tuple[float, Point, list[tuple[Array, Array]], float]:
        """Line search by Armijo's rule on objective + weight |defects|_1; falls back to the shortest step; objective last."""
        length = 1.0
        while True:
            moved = Point(
                point.theta + length * step.theta,
                tuple(x + length * dx for x, dx in zip(point.states, step.states, strict=True)),
                tuple(z + length * dz for z, dz in zip(point.pairs, step.pairs, strict=True)),
            )
            reached = self.objective(moved)
            promised = merit - 1e-4 * length * (merit - predicted)
            if length <= SMALLEST_STEP or reached + weight * _size(self._values(moved, tau)) <= promised:
                return length, moved, self._defects(moved, tau), reached
            length *= 0.5

    def _direction(self, point: Point, defects: list[tuple[Array, Array]], damping: float) -> tuple[Point, float] | None:
        """Step of all unknowns and the objective it predicts; None where the linearisation is singular.

        Raises:
            LinAlgError: The linearised trajectories diverge.
        """
        p, nx = len(point.theta), self.problem.simulator.nx
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                local = [self._eliminate(value, jacobian, p) for value, jacobian in defects]
            except np.linalg.LinAlgError:
                return None
            stacked = self._stacked(point, local)
            if not np.isfinite(np.vdot(stacked, stacked)):
                raise np.linalg.LinAlgError("the linearised trajectories run away")
        d = self._damped(stacked, point.theta, damping)
        own = [np.concatenate([d[:p], d[p + i * nx : p + (i + 1) * nx]]) for i in range(len(local))]
        step = Point(
            d[:p],
            tuple(part.columns @ e + part.drift for part, e in zip(local, own, strict=True)),
            tuple(part.pairs @ e + part.pair_drift for part, e in zip(local, own, strict=True)),
        )
        predicted = stacked[:, :-1] @ d + stacked[:, -1]
        return step, float(predicted @ predicted)

    def _stacked(self, point: Point, local: list[_Local]) -> Array:
        """Rows [J r] over (theta, x_0 of every recording), priors last."""
        p, nx, columns = len(point.theta), self.problem.simulator.nx, self.problem.state_columns
        residuals, rows, unknowns = self._residuals(point), [], p + nx * len(local)
        for index, (part, (_, weight)) in enumerate(zip(local, self._measured, strict=True)):
            J = part.columns[:, columns] * weight[..., None]
            wide = np.zeros((J.shape[0] * J.shape[1], unknowns + 1))
            wide[:, :p] = J[..., :p].reshape(len(wide), p)
            wide[:, p + index * nx : p + (index + 1) * nx] = J[..., p:].reshape(len(wide), nx)
            wide[:, -1] = (residuals[index] + part.drift[:, columns] * weight).ravel()
            rows.append(wide)
        return np.vstack([*rows, np.column_stack([self._prior_jacobian(unknowns), residuals[-1]])])

    def _damped(self, stacked: Array, theta: Array, damping: float) -> Array:
        """min |J d + r|^2 + damping |D d|^2 with theta + d inside its bounds; components that would leave them end at them."""
        J, r = stacked[:, :-1], stacked[:, -1]
        size = np.linalg.norm(J, axis=0) + 1e-12
        J, r = np.vstack([J / size, np.sqrt(damping) * np.eye(len(size))]), np.concatenate([r, np.zeros(len(size))])
        low, high = ((b - theta) * size[: len(theta)] for b in self.problem.theta_bounds)
        d = -np.linalg.lstsq(J, r, rcond=None)[0]
        held = np.zeros(len(size), dtype=np.bool_)
        held[: len(theta)] = (d[: len(theta)] < low) | (d[: len(theta)] > high)
        if held.any():
            d[: len(theta)] = np.clip(d[: len(theta)], low, high)
            d[~held] = -np.linalg.lstsq(J[:, ~held], r + J[:, held] @ d[held], rcond=None)[0]
            d[: len(theta)] = np.clip(d[: len(theta)], low, high)
        return np.asarray(d / size)

    def _eliminate(self, value: Array, jacobian: Array, p: int) -> _Local:
        """Solve the linearised constraints for dx_{k+1} = A_k dx_k + C_k d theta + c_k, and propagate it from x_0."""
        nx = self.problem.simulator.nx
        inner = jacobian[:, :, nx : jacobian.shape[2] - p]
        outer = np.concatenate([jacobian[:, :, -p:], jacobian[:, :, :nx], value[..., None]], axis=2)
        solved = -np.linalg.solve(inner, outer)
        through, forced = _accumulate(solved[:, :nx, p : p + nx], np.delete(solved[:, :nx], np.s_[p : p + nx], axis=2))
        columns = np.zeros((len(value) + 1, nx, p + nx))
        columns[0, :, p:] = np.eye(nx)
        columns[1:, :, :p], columns[1:, :, p:] = forced[..., :p], through
        drift = np.concatenate([np.zeros((1, nx)), forced[..., -1]])
        below = solved[:, nx:]
        pairs = below[:, :, p : p + nx] @ columns[:-1]
        pairs[:, :, :p] += below[:, :, :p]
        return _Local(columns, drift, pairs, np.einsum("kij,kj->ki", below[:, :, p : p + nx], drift[:-1]) + below[:, :, -1])

    # --- residuals and constraints -------------------------------------------------------------------------------------

    @cached_property
    def _measured(self) -> list[tuple[Array, Array]]:
        """Per recording the measured values and 1 / sigma, (K+1, ny) each; zero where nothing was measured."""
        return [(np.nan_to_num(w.values), np.where(np.isfinite(w.values), 1.0 / self.sigma, 0.0)) for w in self.windows]

    @cached_property
    def _believed(self) -> tuple[Array, Array]:
        """Means of the parameters' priors and 1 / standard deviation, (p,) each; zero without one."""
        mean, std = self.problem.prior_rows
        return np.nan_to_num(mean), 1.0 / std

    def _residuals(self, point: Point) -> list[Array]:
        """Weighted residuals per recording, zero where nothing was measured; then the priors'."""
        columns = self.problem.state_columns
        found = [(x[:, columns] - y) * weight for x, (y, weight) in zip(point.states, self._measured, strict=True)]
        mean, weight = self._believed
        return [*found, (point.theta - mean) * weight]

    def _prior_jacobian(self, unknowns: int) -> Array:
        weight = self._believed[1]
        rows = np.zeros((len(weight), unknowns))
        rows[:, : len(weight)] = np.diag(weight)
        return rows

    def _values(self, point: Point, tau: float) -> list[Array]:
        """Per recording: constraint values (K, nx + nz)."""
        found = [evaluated_steps(self.form, inputs) for inputs in self._inputs(point)]
        return [_smoothed(value, z, tau)[0] for value, z in zip(found, point.pairs, strict=True)]

    def _defects(self, point: Point, tau: float) -> list[tuple[Array, Array]]:
        """Per recording: constraint values (K, nx + nz), and their derivatives by (x, x+, z, theta)."""
        nx, nz = self.problem.simulator.nx, self.form.nz
        known, slopes, along = 2 * nx + nz, self.problem.slopes(point.theta), np.arange(nz)
        found = []
        for inputs, z in zip(self._inputs(point), point.pairs, strict=True):
            value, jacobian = linearized_steps(self.form, inputs)
            smoothed, root = _smoothed(value, z, tau)
            inner = np.empty((len(value), nx + nz, known + len(slopes)))
            inner[:, :, :known] = jacobian[:, :, :known]
            inner[:, :, known:] = jacobian[:, :, known + self.problem.columns] * slopes
            inner[:, nx:] *= (1.0 - value[:, nx:] / root)[..., None]
            inner[:, nx + along, 2 * nx + along] += 1.0 - z / root
            found.append((smoothed, inner))
        return found

    def _inputs(self, point: Point) -> Iterator[tuple[Array, ...]]:
        """Inputs of a recording's steps, per recording: x, u, all parameters, x+ and pairs."""
        parameter_values = self.problem.vectors(point.theta[None])[0]
        for window, x, z in zip(self.windows, point.states, point.pairs, strict=True):
            yield x[:-1], window.controls, np.repeat(parameter_values[None], len(window.controls), axis=0), x[1:], z


def _smoothed(value: Array, z: Array, tau: float) -> tuple[Array, Array]:
    """[g; z + f - sqrt(z^2 + f^2 + 2 tau)] of [g; f], and the root."""
    nx = value.shape[1] - z.shape[1]
    f = value[:, nx:]
    with np.errstate(over="ignore", invalid="ignore"):  # such steps are then rejected
        root = np.sqrt(z * z + f * f + 2.0 * tau)
        return np.concatenate([value[:, :nx], z + f - root], axis=1), root


def window_of(problem: FitProblem, recording: Trajectory, form: ComplementarityForm) -> Window:
    """A recording on the grid of the form's steps: controls held, nothing measured in between."""
    controls, values = problem.controls(recording), problem.on_grid(recording)
    steps = recording.substeps // form.substeps
    spread = np.full((len(controls) * steps + 1, values.shape[1]), np.nan)
    spread[::steps] = values
    return Window(np.repeat(controls, steps, axis=0), spread)


def _size(values: Iterable[Array]) -> float:
    return float(sum(np.abs(value).sum() for value in values))


def _accumulate(A: Array, D: Array) -> tuple[Array, Array]:
    """X_{k+1} = A_k X_k + D_k as X_{k+1} = through_k X_0 + forced_k, for all k (K,) at once by doubling."""
    through, forced, stride = A.copy(), D.copy(), 1
    while stride < len(A):
        forced[stride:] += through[stride:] @ forced[:-stride]
        through[stride:] = through[stride:] @ through[:-stride]
        stride *= 2
    return through, forced
