"""Numba kernels of `estimate` and `identify`: beliefs are rows of numbers, predicted and corrected in place.

Structures come as plain tuples (`engines.numba.engine.plain`).
A belief's numbers stand in a row from entry `first` on: theta (k,), P (k, k), x (2 n,), S (2 n, k), lost: `estimate.Belief`.
Noise of angles is independent, so they are taken one after the other: updates of rank one, without linear solves.

Legend: B batch, n coordinates, k estimated parameters, c parameters of the tree that change with them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.simulator import Array, Status
from ...engines.numba.engine import kernel, lean
from ...mechanics.blocks import differentiate_here, new_blocks
from ...mechanics.derivatives import push_forward
from ...mechanics.integrator import go_on, step, still
from ...mechanics.scratch import new_scratch, set_constants, set_forces
from ...mechanics.structure import TreeArrays

_OK = int(Status.OK)


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


@kernel
def predict_rows(believed, first, torques, rows):
    """Predict beliefs in rows (B, .) by `substeps` steps under torques (B, nu); lost where a step or its derivative fails."""
    parts, base, ways, substeps = believed
    s = TreeArrays(*parts)
    n, m, k = len(s.parent), s.row[-1], ways.shape[1]
    w, d, lam, X = new_scratch(s), new_blocks(s, len(base)), np.zeros(m), np.empty((n + m, k))
    path, now, then = np.empty((substeps + 1, 2 * n)), np.empty((2 * n, k)), np.empty((2 * n, k))
    push, parameter_values = np.zeros((len(s.actuated), k)), np.empty(len(base))
    for b in range(len(rows)):
        row = rows[b, first:]
        theta, at = row[:k], k + k * k
        x, S = row[at : at + 2 * n], row[at + 2 * n : at + 2 * n + 2 * n * k].reshape(2 * n, k)
        parameter_values[:] = base
        for i in range(k):
            value = np.exp(theta[i]) if i < 2 else theta[i]
            for c in range(len(base)):
                parameter_values[c] += ways[c, i] * value
        set_constants(s, parameter_values, w)
        set_forces(s, torques[b], w)
        path[0], now[:] = x, S
        lost = at + 2 * n + 2 * n * k
        good = row[lost] == 0.0
        for j in range(substeps):
            if j == 0:
                still(path[0], path[1], lam)
            else:
                go_on(path[j - 1, :n], path[j], path[j + 1])
            good = good and step(s, path[j], w, path[j + 1], lam, j > 0) == _OK
            good = good and differentiate_here(s, path[j, :n], path[j + 1, :n], lam, w, d)
            if good:
                push_forward(s, w, d, now, push, ways, X, then)
                now[:] = then
        if good and np.isfinite(now).all():
            x[:], S[:] = path[substeps], now
        else:
            row[lost] = 1.0


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
