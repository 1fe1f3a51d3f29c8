"""Numba kernels of `estimate` and `identify`: beliefs are rows of numbers, predicted and corrected in place.

Structures come as plain tuples (`engines.numba.engine.plain`).
A belief's numbers stand in a row from entry `first` on: theta (k,), P (k, k), x (2 n,), S (2 n, k), lost: `estimate.Belief`.
Noise of angles is independent, so they are taken one after the other: updates of rank one, without linear solves.

Legend: B batch, n coordinates, k estimated parameters, c parameters of the tree that change with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.simulator import Array
from ...engines.numba.engine import kernel, lean
from ...engines.numba.lanes import WIDE, like, rows_of, select, size, some, spread, zeros
from ...mechanics.blocks import differentiate_here, new_blocks
from ...mechanics.derivatives import push_forward
from ...mechanics.integrator import go_on, solved, still
from ...mechanics.scratch import new_scratch, set_constants, set_forces
from ...mechanics.structure import TreeArrays


class Believed(NamedTuple):
    """The mechanism as a function of the estimated parameters."""

    structure: Any
    """Structure with c parameters; all its other parameters are numbers."""
    base: Array
    """(c,) parameters where stiffness and offsets are 0."""
    ways: Array
    """(c, k) their derivatives by stiffness and offsets."""
    substeps: int


class Gauge(NamedTuple):
    """Measurement of the angles, and bounds of the estimate."""

    noise: float
    """[rad]"""
    low: Array
    """(2,) lowest log stiffness."""
    high: Array
    """(2,) highest log stiffness."""
    arm: int
    """Number of measured angles, which come first in x."""


@lean
def scale(theta, i):
    """Derivative d c / d theta: the first two are logarithms."""
    return np.exp(theta[i]) if i < 2 else 1.0


def predict_rows(believed: Any, first: int, torques: Array, rows: Array) -> None:
    """Predict beliefs in rows (B, .) by `substeps` steps under torques (B, nu); lost where a step or its derivative fails."""
    alone = np.zeros(len(rows), dtype=np.bool_)
    if len(rows) == 1:
        return predict(believed, first, torques, rows, alone, 0.0)
    predict(believed, first, torques, rows, alone, WIDE)
    for row in np.flatnonzero(alone):
        mine = slice(row, row + 1)
        predict(believed, first, torques[mine], rows[mine], alone[mine], 0.0)


@kernel
def predict(believed, first, torques, rows, alone, zero):
    """`predict_rows` of as many rows at a time as `zero` has; of several, rows that fail are `alone` (B,), and as they were."""
    parts, base, ways, substeps = believed
    s = TreeArrays(*parts)
    n, m, k, lanes, count = len(s.parent), s.row[-1], ways.shape[1], rows_of(zero), len(base)
    w, d, lam, X = new_scratch(s, zero), new_blocks(s, count, zero), zeros(m, zero), zeros((n + m, k), zero)
    path, now, then = zeros((substeps + 1, 2 * n), zero), zeros((2 * n, k), zero), zeros((2 * n, k), zero)
    at, push, on = k + k * k, np.zeros((len(s.actuated), k)), np.zeros((1, lanes))
    lost = at + 2 * n + 2 * n * k
    R, U, C = np.zeros((lost + 1, lanes)), np.zeros((torques.shape[1], lanes)), np.zeros((count, lanes))
    row, beliefs = like(R, zero), rows[:, first : first + lost + 1]
    for b in range(0, len(rows), lanes):
        mine = slice(b, min(b + lanes, len(rows)))
        spread(beliefs[mine], R)
        spread(torques[mine], U)
        for c in range(count):
            for lane in range(lanes):
                C[c, lane] = base[c]
                for i in range(k):
                    C[c, lane] += ways[c, i] * (np.exp(R[i, lane]) if i < 2 else R[i, lane])
        set_constants(s, like(C, zero), w)
        set_forces(s, like(U, zero), w)
        for i in range(2 * n):
            path[0, i] = row[at + i]
            for c in range(k):
                now[i, c] = row[at + 2 * n + i * k + c]
        good = row[lost] == 0.0
        for j in range(substeps):
            if j == 0:
                still(path[0], path[1], lam)
            else:
                go_on(path[j - 1, :n], path[j], path[j + 1])
            good = good & solved(s, path[j], w, path[j + 1], lam, j > 0, good)
            if some(good):
                good = good & differentiate_here(s, path[j, :n], path[j + 1, :n], lam, w, d)
                push_forward(s, w, d, now, push, ways, X, then)
                now[:] = then
        for i in range(2 * n):
            row[at + i] = path[substeps, i]
            for c in range(k):
                good = good & (size(now[i, c]) < np.inf)
                row[at + 2 * n + i * k + c] = now[i, c]
        like(on, zero)[0] = select(good, 1.0, 0.0)
        for lane in range(len(beliefs[mine])):
            if on[0, lane] > 0.0:
                beliefs[b + lane] = R[:, lane]
            elif lanes > 1:
                alone[b + lane] = beliefs[b + lane, lost] == 0.0
            else:
                beliefs[b, lost] = 1.0


@lean
def _correct(gauge, angles, theta, P, x, S, h, Ph, change):
    """Correct one belief with angles (7,) [rad]; h, Ph, change (k,) are scratch memory."""
    k = len(theta)
    change[:] = 0.0
    for i in range(gauge.arm):
        size, off = gauge.noise * gauge.noise, angles[i] - x[i]
        for a in range(k):
            h[a] = S[i, a] * scale(theta, a)
            off -= h[a] * change[a]
        for a in range(k):
            total = 0.0
            for c in range(k):
                total += P[a, c] * h[c]
            Ph[a] = total
            size += h[a] * total
        for a in range(k):
            change[a] += Ph[a] * off / size
            for c in range(k):
                P[a, c] -= Ph[a] * Ph[c] / size
    for a in range(k):
        wanted = theta[a] + change[a]
        if a < 2:
            wanted = min(max(wanted, gauge.low[a]), gauge.high[a])
        change[a], h[a] = wanted, scale(theta, a) * (wanted - theta[a])
    for a in range(k):
        theta[a] = change[a]
    for i in range(len(x)):
        total = 0.0
        for a in range(k):
            total += S[i, a] * h[a]
        x[i] += total


@kernel
def correct_rows(gauge, first, k, angles, rows):
    """Correct beliefs in rows (B, .) with angles (B, 7) [rad]; lost ones stay as they are."""
    gauging = Gauge(*gauge)
    h, Ph, change = np.empty(k), np.empty(k), np.empty(k)
    for b in range(len(rows)):
        row, at = rows[b, first:], k + k * k
        n = (len(row) - at - 1) // (1 + k)
        if row[at + n + n * k] == 0.0:
            x, S = row[at : at + n], row[at + n : at + n + n * k].reshape(n, k)
            _correct(gauging, angles[b], row[:k], row[k:at].reshape(k, k), x, S, h, Ph, change)


# --- Contexts of `systems.loop.identify`
# ---------------------------------------------------------------------------------------

TIME, TORQUE, MEASURED, GROUND_TRUTH, INFORMATION, KNOWN, MOMENT, BELIEF = 0, 1, 8, 15, 17, 18, 19, 21
"""First columns in the context; MOMENT: largest true moments so far, over the loop's limits. The noise follows the belief."""
WIDTH = 1.96
"""Half width of a 95 % interval in standard deviations."""


class Course(NamedTuple):
    """Settings of an episode."""

    period: float
    """[s]"""
    steps: int
    duration: float
    """[s]"""
    tolerance: float
    """Relative error of either stiffness up to which it counts as known, and half width of its 95 % interval."""
    limit: Array
    """(2,) moments that the loop withstands [N m]."""
    proof: float
    """Share of them that moments must have reached."""
    turns: int
    """Angles per joint of the loop."""
    noise: int
    """First column of the noise to come."""


@lean
def bent(x, first, end, turns):
    """Largest angle of the loop's joints about an axis, in x from `first` to `end`."""
    found = 0.0
    for i in range(first, end, turns):
        found = max(found, abs(x[i]))
    return found


@kernel
def measure(gauge, course, k, state, context, period):
    """Update contexts (B, .) with the angles measured `period` [s] later, at states (B, nx), and the new estimate, in place."""
    gauging, episode = Gauge(*gauge), Course(*course)
    h, Ph, change, arm, at = np.empty(k), np.empty(k), np.empty(k), gauging.arm, BELIEF + k + k * k
    n = (episode.noise - at - 1) // (1 + k)
    for b in range(len(context)):
        row = context[b]
        row[TIME] += period
        index = episode.noise + arm * min(int(np.rint(row[TIME] / episode.period)), episode.steps)
        angles = row[MEASURED : MEASURED + arm]
        for i in range(arm):
            angles[i] = state[b, i] + gauging.noise * row[index + i]
        theta, P, lost = row[BELIEF : BELIEF + k], row[BELIEF + k : at].reshape(k, k), row[episode.noise - 1] != 0.0
        if not lost:
            S = row[at + n : at + n + n * k].reshape(n, k)
            _correct(gauging, angles, theta, P, row[at : at + n], S, h, Ph, change)
        row[INFORMATION] = -0.5 * np.log(P[0, 0] * P[1, 1] - P[0, 1] * P[1, 0])
        known = row[TIME] >= episode.duration - 1e-9 and not lost
        for i in range(2):
            half_width = WIDTH * np.sqrt(P[i, i])
            error = abs(np.exp(theta[i]) / row[GROUND_TRUTH + i] - 1.0)
            known = known and error <= episode.tolerance and half_width <= episode.tolerance
            moment = row[GROUND_TRUTH + i] * bent(state[b], arm + i, n // 2, episode.turns)
            row[MOMENT + i] = max(row[MOMENT + i], moment / episode.limit[i])
            known = known and episode.proof <= row[MOMENT + i] <= 1.0
        row[KNOWN] = 1.0 if known else 0.0


@kernel
def gains(action, before, after, bonus, weight, found):
    """Reward terms (3, B): information gained, bonus where the stiffness is known, weight |action|^2."""
    for b in range(len(action)):
        total = 0.0
        for k in range(action.shape[1]):
            total += action[b, k] * action[b, k]
        found[0, b], found[1, b] = after[b, INFORMATION] - before[b, INFORMATION], bonus * after[b, KNOWN]
        found[2, b] = weight * total


@kernel
def sense(start, stiffness, damping, course, k, state, context, found):
    """Observations (B, no) of `systems.loop.identify` by an arm of springs (7,) and a damping, cut to what fits."""
    arm, episode = len(start), Course(*course)
    behind, at = 2 * arm + 7, BELIEF + k + k * k
    n = (episode.noise - at - 1) // (1 + k) // 2
    for b in range(len(context)):
        row, seen = context[b], found[b]
        for i in range(arm):
            off = row[MEASURED + i] - start[i]
            seen[i], seen[arm + i] = off, row[TORQUE + i] - stiffness[i] * off - damping * state[b, n + i]
        for i in range(2):
            seen[2 * arm + i], seen[2 * arm + 2 + i] = row[BELIEF + i], np.sqrt(row[BELIEF + k + i * (k + 1)])
            moment = np.exp(row[BELIEF + i]) * bent(row[at : at + n], arm + i, n, episode.turns)
            seen[2 * arm + 4 + i] = moment / episode.limit[i]
        seen[behind - 1] = episode.duration - row[TIME]
        for i in range(len(seen) - behind):
            seen[behind + i] = state[b, i] - start[i] if i < arm else state[b, i]
