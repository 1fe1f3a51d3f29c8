"""Kernels of the upper body with muscles: the tree's steps, with the muscles' torques at the beginning of each.

A state is (q, v, a): angles, speeds of the step before, activations; controls are excitations of the muscles, then torques of
the joints with motors. Activations are those at the middle of the step. Derivatives of a step by its forces are the tree's,
those of the forces by complex steps, exact to rounding.
Legend: n coordinates, m muscles, nu controls, P parameters; nx = 2 n + m.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...core.simulator import Status
from ...engines.numba.engine import inner, kernel
from ...mechanics.blocks import differentiate, new_blocks
from ...mechanics.derivatives import push_forward
from ...mechanics.integrator import go_on, step
from ...mechanics.scratch import new_scratch, set_constants, set_forces
from ...mechanics.stepping import momentum_slopes, with_momentum
from ...mechanics.structure import TreeArrays
from ...muscles.muscle import activated
from .muscle_kernels import pull
from .muscle_tree import MuscleTree

TINY = 1e-30
_OK, _DIVERGED = int(Status.OK), int(Status.DIVERGED)


class Muscled(NamedTuple):
    """A tree with muscles and motors."""

    tree: TreeArrays
    muscles: MuscleTree
    motors: np.ndarray
    """Coordinates of the joints with motors."""
    rise: float
    """Time constants of activation and deactivation [s]."""
    fall: float


@inner
def forces(g, q, v, a, control, out):
    """Torques (n,) of motors, plus those of muscles with activations a (m,)."""
    m = len(g.muscles.numbers)
    out[:] = 0.0
    for i in range(len(g.motors)):
        out[g.motors[i]] += control[m + i]
    pull(g.muscles, q, v, a, out)


@kernel
def forward(g, state, controls, parameter_values, substeps, states, status):
    """See `engines.numba.engine.NumbaEngine`."""
    s, n, m = g.tree, len(g.tree.parent), len(g.muscles.numbers)
    w, lam, now, then, before = new_scratch(s), np.zeros(s.row[-1]), np.empty(2 * n), np.empty(2 * n), np.empty(n)
    a, middle, v, u = np.empty(m), np.empty(m), np.empty(n), np.zeros(n)
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        states[row, 0] = state[row]
        for t in range(controls.shape[1]):
            states[row, t + 1] = states[row, t]
            if status[row] != _OK:
                continue
            set_forces(s, u, w)
            if not with_momentum(s, states[row, t, : 2 * n], w, now, before):
                status[row] = _DIVERGED
            lam[:], a[:] = 0.0, states[row, t, 2 * n :]
            for k in range(substeps):
                if status[row] == _OK:
                    for i in range(n):
                        v[i] = (now[i] - before[i]) / s.dt
                    for i in range(m):
                        middle[i], a[i] = activated(a[i], controls[row, t, i], g.rise, g.fall, s.dt)
                    forces(g, now[:n], v, middle, controls[row, t], u)
                    set_forces(s, u, w)
                    go_on(before, now, then)
                    status[row] = step(s, now, w, then, lam, k > 0)
                    before[:], now[:] = now[:n], then
            if status[row] == _OK:
                for i in range(n):
                    states[row, t + 1, i] = now[i]
                    states[row, t + 1, n + i] = (now[i] - before[i]) / s.dt
                states[row, t + 1, 2 * n :] = a


@inner
def force_slopes(g, q, v, a, J):
    """J (n, 2 n + m): derivatives of the muscles' torques by (q, v, a)."""
    n, m = len(q), len(a)
    x, torque = np.empty(2 * n + m, dtype=np.complex128), np.empty(n, dtype=np.complex128)
    x[:n], x[n : 2 * n], x[2 * n :] = q, v, a
    J[:] = 0.0
    for j in range(2 * n + m):
        if j >= 2 * n or (g.muscles.coordinate == j % n).any():
            x[j] += TINY * 1j
            torque[:] = 0.0
            pull(g.muscles, x[:n], x[n : 2 * n], x[2 * n :], torque)
            x[j] = x[j].real
            for i in range(n):
                J[i, j] = torque[i].imag / TINY


@inner
def activate(g, a, control, middle, da, dmiddle):
    """Activations a (m,) a step later and at its middle, with derivatives (m, k); excitation i has column 2 n + m + i."""
    m, first = len(a), 2 * len(g.tree.parent) + len(a)
    for i in range(m):
        by_a, then_a = activated(a[i] + TINY * 1j, control[i] + 0j, g.rise, g.fall, g.tree.dt)
        by_e, then_e = activated(a[i] + 0j, control[i] + TINY * 1j, g.rise, g.fall, g.tree.dt)
        for k in range(da.shape[1]):
            dmiddle[i, k] = by_a.imag / TINY * da[i, k]
            da[i, k] *= then_a.imag / TINY
        dmiddle[i, first + i] += by_e.imag / TINY
        da[i, first + i] += then_e.imag / TINY
        middle[i], a[i] = by_a.real, then_a.real


@kernel
def derivative(g, state, control, parameter_values, substeps, A, B, C):
    """See `engines.numba.engine.NumbaEngine`; NaN in a row that fails."""
    s, n, m, nu, count = g.tree, len(g.tree.parent), len(g.muscles.numbers), control.shape[1], parameter_values.shape[1]
    w, d, lam, x, x1 = new_scratch(s), new_blocks(s, count), np.zeros(s.row[-1]), np.empty(2 * n), np.empty(2 * n)
    nx = 2 * n + m
    columns = nx + nu + count
    dx, dx1, X = np.empty((2 * n, columns)), np.empty((2 * n, columns)), np.empty((n + len(lam), columns))
    da, dmiddle, du, dc = np.empty((m, columns)), np.empty((m, columns)), np.empty((n, columns)), np.zeros((count, columns))
    old, moved, J = np.empty((n, columns)), np.empty((nx, columns)), np.empty((n, nx))
    v, u, before, a, middle = np.empty(n), np.zeros(n), np.empty(n), np.empty(m), np.empty(m)
    for i in range(count):
        dc[i, nx + nu + i] = 1.0
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        u[:] = 0.0
        set_forces(s, u, w)
        dx[:], da[:], lam[:], a[:] = 0.0, 0.0, 0.0, state[row, 2 * n :]
        for i in range(2 * n):
            dx[i, i] = 1.0
        for i in range(m):
            da[i, 2 * n + i] = 1.0
        good = with_momentum(s, state[row, : 2 * n], w, x, before) and differentiate(s, before, x[:n], lam, w, d)
        old[:] = dx[:n] - s.dt * dx[n:]  # derivatives of `before`
        if good:
            momentum_slopes(s, d, dx, dc)
        for _ in range(substeps):
            for i in range(n):
                v[i] = (x[i] - before[i]) / s.dt
            activate(g, a, control[row], middle, da, dmiddle)
            forces(g, x[:n], v, middle, control[row], u)
            force_slopes(g, x[:n], v, middle, J)
            moved[:n], moved[n : 2 * n], moved[2 * n :] = dx[:n], (dx[:n] - old) / s.dt, dmiddle
            du[:] = J @ moved
            for i in range(len(g.motors)):
                du[g.motors[i], nx + m + i] += 1.0
            set_forces(s, u, w)
            go_on(before, x, x1)
            good = good and step(s, x, w, x1, lam, False) == _OK and differentiate(s, x[:n], x1[:n], lam, w, d)
            if good:
                push_forward(s, w, d, dx, du, dc, X, dx1)
                old[:], before[:] = dx[:n], x[:n]
                x[:], dx[:] = x1, dx1
        if good:
            dx[n:] = (dx[:n] - old) / s.dt
        else:
            dx[:], da[:] = np.nan, np.nan
        A[row, : 2 * n], B[row, : 2 * n], C[row, : 2 * n] = dx[:, :nx], dx[:, nx : nx + nu], dx[:, nx + nu :]
        A[row, 2 * n :], B[row, 2 * n :], C[row, 2 * n :] = da[:, :nx], da[:, nx : nx + nu], da[:, nx + nu :]
