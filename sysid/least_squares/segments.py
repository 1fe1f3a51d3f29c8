r"""Recordings cut into segments, and the residuals of all segments as one batch: the common core of every shooting method.

A segment of L steps starts from x_0 (measured, or unknown) and predicts x_{k+1} = f(x_k, u_k, theta). L = 1 is one-step
regression, L = T single shooting, in between lies multiple shooting. Residuals r_k = compare(x_k, y_k) / sigma for k = 1 ... L,
and k = 0 too where x_0 is unknown. Derivatives come from the chain

.. math:: S_{k+1} = A_k S_k + C_k, \qquad S_0 = 0 \text{ (parameters)}, \; S_0 = I \text{ (initial state)}

through `Simulator.linearize` where it is exact, or from central differences of whole rollouts, all columns in one batch.
Entries that only commands move (`FitProblem.actuated`: a muscle's pressure) are no unknowns where a segment starts within a
recording, but functions of the parameters: a simulation from the recording's first row gives their values there.
Legend: S segments, L steps, m channels, p parameters, n tangent, K candidates, d actuated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array

from ..problem import deadline
from ..problem.problem import FitProblem
from ..problem.recording_parameters import ACTING, POSE, Commands
from ..problem.stamps import between, slopes_when_seen, when_seen
from .actuator import commanded, followed

MAX_STATES, MAX_NUMBERS = 4_000_000, 1_000_000
"""Largest numbers of state entries, and of entries of derivatives, that one call of the simulator returns."""
MOST_KNOWN = 100  # Approximate number of parameters whose `actuated_starts` are remembered.


NO_EFFECT = 1e-7  # Share of the largest effect of a start below which an effect counts as zero.
SHORTEST_PART, GONE = 100, 1e-3
"""Rows of the part over which effects of starts are computed first, and share of the largest effect below which one has died
out."""
WORTH_A_LOOK = 10
"""Fewest rows of segments for the test which unknowns of a start have an effect; it takes two rows per unknown."""


class Derivative(NamedTuple):
    """Unweighted residuals and their derivatives; zero where nothing was measured."""

    residual: Array  # (S, L', m)
    by_parameters: Array  # (S, L', m, p)
    starts: Array  # (S, L', m, n), or (S, L', m, 0) where the starts are known.


class Predicted(NamedTuple):
    """Predictions of segments (R,)."""

    states: Array  # (R, L+1, nx) at the times of rows.
    seen: Array  # (R, L+1, nx) when values were seen.
    good: NDArray[np.bool_]  # (R,) whether the simulation succeeded.


@dataclass(frozen=True, eq=False)
class Segments:
    """All segments of a set of recordings, padded to one length L; see the module docstring."""

    problem: FitProblem
    starts: Array  # (S, nx): measured states, or guesses where `free`.
    controls: Array  # (S, L parts, nu)
    values: Array  # (S, L+1, ny); NaN where nothing was measured or the segment has ended.
    late: Array  # (S, L+1) rows by which values were seen after their own, within the segment; see `Trajectory.offsets`.
    recording: NDArray[np.intp]  # (S,) index of the segment's recording.
    begins: NDArray[np.intp]  # (S,) first row in that recording.
    commands: tuple[Commands, ...]  # Commands of whole recordings, in parts of rows.
    origins: Array  # Initial states of recordings by `FitProblem.initial_guess`, (recordings, nx).
    actuated: NDArray[np.intp]  # (d,) entries of the state that only commands move; see the module docstring.
    propagated: NDArray[np.intp]
    """Entries of the state that no measurement shows, and that a segment takes over from the prediction before it."""
    free: bool  # Whether the starts are unknowns.
    substeps: int  # Physics steps of a row.
    parts: int  # Parts of a row, each with its own controls.
    exact: bool  # Whether derivatives come from `Simulator.linearize` instead of differences.
    epsilon: float = 1e-5  # Step of the differences [fit coordinate, tangent].
    one_sided: bool = False  # Whether differences along starts are one-sided: half the rollouts.
    _commanded: dict[bytes, tuple[Array, NDArray[np.bool_]]] = field(default_factory=dict, init=False, repr=False)
    """Parameters -> result of `actuated_starts`, as starts are moved one by one at the same parameters."""

    @property
    def first(self) -> int:
        """First row that is compared: 0 if the starts are unknown, else 1."""
        return 0 if self.free else 1

    @property
    def horizon(self) -> int:
        """Length L of the segments [rows]."""
        return int(self.controls.shape[1]) // self.parts

    @property
    def lengths(self) -> tuple[int, ...]:
        """Length T of every recording [rows]."""
        return tuple(len(commands.own) // self.parts for commands in self.commands)

    def cut(self, first: int, last: int) -> Segments:
        """Rows `first` to `last` of every segment, with its starts unchanged."""
        controls, rows = self.controls[:, first * self.parts : last * self.parts], slice(first, last + 1)
        return replace(self, controls=controls, values=self.values[:, rows], late=self.late[:, rows])

    # --- prediction ------------------------------------------------------------------------------------------------

    def rollout(self, theta: Array, starts: Array) -> Predicted:
        """Predictions for parameters (R, p) and starts (R, nx) of rows R = i S + s."""
        count = len(self.starts)
        rows = max(1, MAX_STATES // ((self.controls.shape[1] + 1) * self.problem.simulator.nx))
        if len(self.propagated):
            rows = max(rows // count, 1) * count
        parts = []
        for begin in range(0, len(theta), rows):
            some = slice(begin, min(begin + rows, len(theta)))
            which = np.arange(some.start, some.stop) % count
            predict = self._in_turn if len(self.propagated) else self._at_once
            parts.append(predict(which, theta[some], starts[some]))
        if len(parts) == 1:
            return parts[0]
        states, seen, good = zip(*parts, strict=True)
        rows_of_all = np.concatenate(states)
        return Predicted(rows_of_all, np.concatenate(seen) if self.late.any() else rows_of_all, np.concatenate(good))

    def _at_once(self, which: NDArray[np.intp], theta: Array, starts: Array) -> Predicted:
        """Predictions of segments (R,), as `rollout` gives them."""
        deadline.check()
        begin_at, known = self._begun(which, theta, starts)
        parameter_values: Parameters = type(self.problem.initial_parameters).from_vector(self.problem.vectors(theta))
        acting = self._acting(which, theta)
        substeps = self.substeps // self.parts
        states, status = self.problem.simulator.rollout(begin_at, acting, parameter_values, substeps=substeps)
        rows = states[:, :: self.parts]
        seen = rows if not self.late.any() else when_seen(self.problem, states, self.late[which])
        return Predicted(rows, seen, (status == 0) & known)

    def _in_turn(self, which: NDArray[np.intp], theta: Array, starts: Array) -> Predicted:
        """Predictions of whole recordings; `propagated` entries of a segment start at the end of the prediction before it."""
        turn, starts = self.begins[which] // self.horizon, starts.copy()
        states, good = np.empty((len(which), self.horizon + 1, starts.shape[1])), np.ones(len(which), dtype=np.bool_)
        seen = states.copy() if self.late.any() else states
        for k in range(int(turn.max()) + 1):
            now = np.flatnonzero(turn == k)
            if k > 0:
                good[now] = good[now - 1]
                there = now[good[now]]
                starts[np.ix_(there, self.propagated)] = states[there - 1, -1][:, self.propagated]
            states[now], seen[now], fine = self._at_once(which[now], theta[now], starts[now])
            good[now] &= fine
        return Predicted(states, seen, good)

    def _acting(self, which: NDArray[np.intp], theta: Array) -> Array:
        """Controls of segments (R,) at parameters (R, p), (R, L parts, nu)."""
        problem = self.problem
        if not set(ACTING) & set(problem.free) and problem.view.latency == 0.0 and problem.view.command_gain == 1.0:
            return self.controls[which]
        rows = self.parts * self.begins[which][:, None] + np.arange(self.controls.shape[1])
        return commanded(problem, self.commands, self.recording[which], rows, theta, self.substeps // self.parts)

    def _begun(self, which: NDArray[np.intp], theta: Array, starts: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Starts (R, nx) of segments (R,) with actuator states at parameters (R, p), and whether these are known."""
        later, known = self.begins[which] > 0, np.ones(len(which), dtype=np.bool_)
        if not len(self.actuated) or not later.any():
            return starts, known
        thetas, place = np.unique(theta, axis=0, return_inverse=True)
        found, (values, good) = starts.copy(), self.actuated_starts(thetas)
        found[np.ix_(later, self.actuated)] = values[place[later], which[later]]
        known[later] = good[place[later], which[later]]
        return found, known

    def actuated_starts(self, thetas: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Driven entries at the starts of segments, for candidates (K, p): (K, S, d), success (K, S)."""
        keys = [theta.tobytes() for theta in thetas]
        found = {key: self._commanded[key] for key in keys if key in self._commanded}
        new = [k for k, key in enumerate(keys) if key not in found]
        if new:
            last = int(self.begins.max())
            states, good = followed(self.problem, self.commands, self.origins, thetas[new], last, self.substeps, self.parts)
            entries, fine = states[:, self.recording, self.begins][..., self.actuated], good[:, self.recording]
            found.update((keys[k], (entries[i], fine[i])) for i, k in enumerate(new))
            if len(self._commanded) > MOST_KNOWN:
                self._commanded.clear()
            self._commanded.update(found)
        return np.stack([found[key][0] for key in keys]), np.stack([found[key][1] for key in keys])

    @property
    def unknowns(self) -> int:
        """Number of unknowns in all starts."""
        unknown, later = self.problem.unknown_start, int((self.begins > 0).sum())
        known = np.isin(self.problem.actuated_tangent, unknown).sum() if len(self.actuated) else 0
        return len(unknown) * len(self.starts) - int(known) * later if self.free else 0

    def compare(self, states: Array, theta: Array | None = None) -> Array:
        """Residuals (i S, L', m) of states (i S, L+1, nx), when values were seen; zero where nothing was measured.

        Parameters (i S, p) matter where those of the recordings are free.
        """
        repeats = len(states) // len(self.values)
        values = np.tile(self.values[:, self.first :], (repeats, 1, 1))
        # A row without any measurement is compared with itself, so that quaternions of NaN never occur.
        states = states[:, self.first :]
        if self.problem.full_state:
            values = np.where(np.isnan(values), states, values)
        free = theta is not None and any(name in self.problem.free for name in POSE)
        view = self.problem.views(theta) if theta is not None and free else None
        return np.nan_to_num(self.problem.compare(states, values, view), nan=0.0, posinf=np.inf, neginf=-np.inf)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Mask (S, L', m) of residuals that were measured."""
        seen = np.isfinite(self.values[:, self.first :])
        if self.problem.full_state:
            return np.broadcast_to(seen.all(axis=2, keepdims=True), (*seen.shape[:2], self.problem.simulator.n))
        return seen

    @property
    def measured(self) -> int:
        """Number of independent measured numbers: three of a unit quaternion."""
        present = self.present
        return int(present.sum()) - sum(int(present[..., four].all(axis=2).sum()) for four in self.problem.quaternions)

    def residuals(self, thetas: Array, starts: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Unweighted residuals for candidates (K, p), one set of starts (S, nx): (K, S, L', m), success (K, S)."""
        count = len(starts)
        each = np.repeat(thetas, count, axis=0)
        _, seen, good = self.rollout(each, np.tile(starts, (len(thetas), 1)))
        residual = self.compare(seen, each)
        return residual.reshape(len(thetas), count, *residual.shape[1:]), good.reshape(len(thetas), count)

    def whole(self, theta: Array, starts: Array) -> tuple[Array, ...]:
        """Predicted states of whole recordings, (T+1, nx) each, at theta (p,); where segments meet, those of the later one."""
        predicted = self.rollout(np.repeat(theta[None], len(starts), axis=0), starts).states
        found = [np.empty((length + 1, predicted.shape[-1])) for length in self.lengths]
        for states, index, begin in zip(predicted, self.recording, self.begins, strict=True):
            part = found[index][begin : begin + len(states)]
            part[:] = states[: len(part)]
        return tuple(found)

    # --- derivatives -----------------------------------------------------------------------------------------------

    def derivative(self, theta: Array, starts: Array) -> Derivative:
        """Residuals and their derivatives at parameters (p,) and starts (S, nx).

        Raises:
            DataError: The simulation diverges at this point.
        """
        each = np.repeat(theta[None], len(starts), axis=0)
        states, seen, good = self.rollout(each, starts)
        starts = states[:, 0] if len(self.propagated) else starts
        if not good.all():
            raise DataError(
                f"the simulation diverges in {int((~good).sum())} of {len(good)} segments at {self.problem.decode(theta)}"
            )
        residual = self.compare(seen, each)
        make = self._by_chain if self.exact else self._by_differences
        by_parameters, unknown = make(theta, starts, states, residual)
        if not (np.isfinite(by_parameters).all() and np.isfinite(unknown).all()):
            where = self.problem.decode(theta)
            raise DataError(f"the derivatives of the simulation are not finite at {where}; try `jacobian='differences'`")
        present = self.present[..., None]
        return Derivative(residual, np.where(present, by_parameters, 0.0), np.where(present, unknown, 0.0))

    def _by_differences(self, theta: Array, starts: Array, states: Array, residual: Array) -> tuple[Array, Array]:
        """Central differences of whole rollouts, many columns per call; one-sided where a side diverges or a bound is near.

        Unknowns of a start without effect cost no rollout. For long segments, effects of the start are first computed over a
        part: where they have died out there, the rest is zero.
        """
        p, simulator = len(theta), self.problem.simulator
        apart = replace(self, propagated=np.zeros(0, dtype=np.intp))
        unknown = apart._felt(theta, starts, states) if self.free else np.zeros(0, dtype=np.intp)
        along_starts = np.zeros((*residual.shape, simulator.n if self.free else 0))
        part, lasting = self.horizon // 4, unknown
        if part >= SHORTEST_PART and len(unknown):
            short = apart.cut(0, part)
            seen = short._along_starts(theta, starts, unknown, residual[:, : part + 1 - self.first])
            along_starts[:, : seen.shape[1], :, unknown] = seen
            size = np.abs(seen).max(axis=(0, 2))
            lasting = unknown[size[-part // 5 :].max(axis=0) > GONE * size.max(axis=0)]
        by_parameters = self._along_unknowns(theta, starts, list(range(p)), residual)
        along_starts[..., lasting] = apart._along_starts(theta, starts, lasting, residual)
        size = np.abs(along_starts).max(axis=(0, 1, 2), initial=0.0)
        along_starts[..., size < NO_EFFECT * size.max(initial=0.0)] = 0.0  # rounding, which must not cause a step
        return by_parameters, along_starts

    def _felt(self, theta: Array, starts: Array, states: Array) -> NDArray[np.intp]:
        """Unknowns of the starts that change the seen values there or, bit by bit, the state a row later, which is complete.

        Others, as of a vine's links that are not there yet, have zero derivatives at every horizon.
        """
        unknown, seen = self.problem.unknown_start, self.problem.observe(starts)
        if self.horizon < WORTH_A_LOOK:
            return unknown
        row, count = self.cut(0, 1), max(1, MAX_STATES // states[:, 0].size)
        felt = np.zeros(len(unknown), dtype=np.bool_)
        for sign in (-1.0, 1.0):
            not_given = np.flatnonzero(~felt)
            for places in (not_given[begin : begin + count] for begin in range(0, len(not_given), count)):
                ends = [self._moved(theta, starts, len(theta) + int(j), sign)[1] for j in unknown[places]]
                moved = np.concatenate(ends)
                after = row.rollout(np.repeat(theta[None], len(moved), axis=0), moved).states[:, 1]
                for found, base in ((after, states[:, 1]), (self.problem.observe(moved), seen)):
                    apart = found.reshape(len(places), *base.shape) != base
                    apart &= ~(np.isnan(found).reshape(apart.shape) & np.isnan(base))
                    felt[places] |= apart.any(axis=(1, 2))
        return unknown[felt]

    def _along_starts(self, theta: Array, starts: Array, unknown: NDArray[np.intp], residual: Array) -> Array:
        """Derivatives along some tangent coordinates of the starts, (S, L', m, q)."""
        places = [int(len(theta) + j) for j in unknown]
        return self._along_unknowns(theta, starts, places, residual, (1.0,) if self.one_sided else (-1.0, 1.0))

    def _along_unknowns(
        self, theta: Array, starts: Array, places: list[int], residual: Array, signs: tuple[float, ...] = (-1.0, 1.0)
    ) -> Array:
        """Derivatives along some unknowns, parameters first, (S, L', m, q)."""
        each = max(1, MAX_STATES // (len(signs) * len(starts) * (self.controls.shape[1] + 1) * self.problem.simulator.nx))
        parts = [np.zeros((*residual.shape, 0))]
        for begin in range(0, len(places), each):
            unknowns = places[begin : begin + each]
            parts.append(self._columns([[self._moved(theta, starts, j, sign) for sign in signs] for j in unknowns], residual))
        return np.concatenate(parts, axis=-1)

    def _moved(self, theta: Array, starts: Array, j: int, sign: float) -> tuple[Array, Array, float]:
        """Parameters (p,) and starts (S, nx) with unknown number j moved, parameters first; and the size of the move."""
        if j < len(theta):
            lower, upper = self.problem.theta_bounds
            end = theta.copy()
            end[j] = np.clip(theta[j] + sign * self.epsilon, lower[j], upper[j])
            return end, starts, float(end[j] - theta[j])
        step = np.zeros((len(starts), self.problem.simulator.n))
        step[:, j - len(theta)] = sign * self.epsilon
        return theta, self.problem.simulator.retract(starts, step), sign * self.epsilon

    def _columns(self, moved: list[list[tuple[Array, Array, float]]], centre: Array) -> Array:
        """Derivatives along q unknowns from their moves, to both sides or to one, (S, L', m, q)."""
        count, ends = len(centre), [end for sides in moved for end in sides]
        thetas = np.concatenate([np.repeat(theta[None], count, axis=0) for theta, _, _ in ends])
        _, seen, good = self.rollout(thetas, np.concatenate([starts for _, starts, _ in ends]))
        residual = self.compare(seen, thetas).reshape(len(moved), -1, *centre.shape)
        good = good.reshape(len(moved), -1, count)
        residual = np.where(good[..., None, None], residual, centre)
        width = np.where(good, np.array([offset for _, _, offset in ends]).reshape(len(moved), -1, 1), 0.0)
        low, below = (centre, 0.0) if residual.shape[1] == 1 else (residual[:, 0], width[:, 0])
        apart = width[:, -1] - below
        if (apart == 0.0).any():  # at a bound there is one side only
            raise DataError("the simulation diverges on both sides of the point where it is to be differentiated")
        slope = (residual[:, -1] - low) / apart[..., None, None]
        return np.moveaxis(slope, 0, -1)

    def _by_chain(self, theta: Array, starts: Array, states: Array, residual: Array) -> tuple[Array, Array]:
        """S_{k+1} = A_k S_k + C_k; the residual's derivatives along the columns of S are differences of `compare` only."""
        del starts, residual
        simulator, p = self.problem.simulator, len(theta)
        rows = max(
            1, MAX_NUMBERS // (simulator.n * (simulator.n + simulator.nu + len(self.problem.initial_parameters.names())))
        )
        parts = [self._chain(theta, states, slice(begin, begin + rows)) for begin in range(0, len(states), rows)]
        derivative = np.concatenate(parts)
        return derivative[..., :p], derivative[..., p:]

    def _chain(self, theta: Array, states: Array, some: slice) -> Array:
        """Derivatives of some segments, (S', L', m, p + n)."""
        n, p, which = self.problem.simulator.n, len(theta), np.arange(len(self.starts))[some]
        acting = self._acting(which, np.repeat(theta[None], len(which), axis=0))
        part = replace(self, values=self.values[some], late=self.late[some], controls=acting)
        fine = replace(part, parts=1, substeps=self.substeps // self.parts)
        through = seen = states[some]
        if self.parts > 1:
            through, _ = self.problem.simulator.rollout(
                states[some][:, 0], acting, self.problem.decode(theta), substeps=fine.substeps
            )
        unknown = np.isin(np.arange(n), self.problem.unknown_start).astype(np.float64)
        initial = np.concatenate([np.zeros((n, p)), np.diag(unknown)], axis=1) if self.free else np.zeros((n, p))
        sensitivity = np.repeat(initial[None], len(states[some]), axis=0)
        if len(self.actuated):
            later, places = np.flatnonzero(self.begins[which] > 0), self.problem.actuated_tangent
            sensitivity[np.ix_(later, places)] = 0.0
            sensitivity[np.ix_(later, places, np.arange(p))] = self._actuated_slopes(theta)[which[later]]
        low, share = between(part.late, self.parts)
        late = bool(part.late.any())
        around = np.empty((1 + late, *low.shape, *sensitivity.shape[1:]))
        seen_behind = {int(step): np.nonzero(low == step) for step in np.unique(low)}
        for step, (A, C) in enumerate(fine.linearizations(theta, through)):
            before, sensitivity = sensitivity, A @ sensitivity
            sensitivity[:, :, :p] += C
            if step in seen_behind:
                segment, row = seen_behind[step]
                ended = share[segment, row, None, None] == 1.0
                around[0, segment, row] = np.where(ended, sensitivity[segment], before[segment])
                if late:
                    around[1, segment, row] = sensitivity[segment]
        chain = around[0]
        if late:
            seen = when_seen(self.problem, through, part.late)
            chain = slopes_when_seen(self.problem, through, part.late, around)
        chain = chain[:, self.first :]  # (S', L', n, p + n)
        return np.stack([part._along(seen, chain[..., j]) for j in range(chain.shape[-1])], axis=-1)

    def _actuated_slopes(self, theta: Array) -> Array:
        """Derivatives of `actuated_starts` along the parameters, by central differences, (S, d, p)."""
        ends = [self._moved(theta, self.starts, j, sign) for sign in (-1.0, 1.0) for j in range(len(theta))]
        low, high = np.split(self.actuated_starts(np.stack([end for end, _, _ in ends]))[0], 2)
        width = np.subtract(*np.split(np.array([offset for _, _, offset in ends]), 2)[::-1])
        return np.moveaxis((high - low) / width[:, None, None], 0, -1)

    def _along(self, states: Array, direction: Array) -> Array:
        """Derivative of the residuals when every state (S, L', nx) moves along its tangent direction (S, L', n): (S, L', m)."""
        simulator, size = self.problem.simulator, np.abs(direction).max(axis=-1, keepdims=True)
        step = 1e-6
        unit = direction / np.where(size > 0, size, 1.0) * step
        whole = states.copy()
        ends = []
        for sign in (1.0, -1.0):
            whole[:, self.first :] = simulator.retract(states[:, self.first :], sign * unit)
            ends.append(self.compare(whole))
        return np.asarray((ends[0] - ends[1]) / (2 * step) * size)

    def linearizations(self, theta: Array, states: Array) -> Iterator[tuple[Array, Array]]:
        """A_k (S, n, n) and C_k (S, n, p), in fit coordinates, of k = 0 ... L-1; many steps per call of the simulator."""
        problem = self.problem
        simulator, count = problem.simulator, len(states)
        parameter_values, slopes = problem.decode(theta), problem.slopes(theta)
        size = simulator.n * (simulator.n + simulator.nu + len(parameter_values.names()))
        steps = max(1, MAX_NUMBERS // (size * count))
        for begin in range(0, self.horizon, steps):
            end = min(begin + steps, self.horizon)
            x = np.ascontiguousarray(np.swapaxes(states[:, begin:end], 0, 1).reshape(-1, simulator.nx))
            u = np.ascontiguousarray(np.swapaxes(self.controls[:, begin:end], 0, 1).reshape(-1, simulator.nu))
            found = simulator.linearize(x, u, parameter_values, substeps=self.substeps)
            A = found.A.reshape(end - begin, count, *found.A.shape[1:])
            C = found.C[:, :, problem.columns].reshape(end - begin, count, simulator.n, -1) * slopes
            yield from zip(A, C, strict=True)
