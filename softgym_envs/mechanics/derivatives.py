r"""Exact derivatives of steps and motions by the implicit function theorem, forward and adjoint.

With K = d(r, h)/d(q^+, lambda) of `integrator`, the partial derivatives of `blocks`, and y any of q, p, u and the parameters c:

.. math::
   K \, d(q^+, \lambda) = -(r_y, h_y) \, dy, \qquad dp^+ = p_y \, dy + p_+ \, dq^+

This is eq. (7) of [Caldwell2014] with the multipliers' change, which eq. (7b) leaves out. The adjoint of its lemma 1 takes the
*partial* derivative by the parameters at a fixed state; eq. (8) as printed is the total one, which would count the past twice.

Legend: B batch, T control steps, K substeps, n coordinates, m rows, nu controls, P parameters; state x = (q, p), length 2 n.
"""

from __future__ import annotations

import numpy as np

from ..core.simulator import Status
from ..engines.numba.engine import kernel, lean
from ..engines.numba.lanes import some
from .blocks import differentiate, differentiate_here, new_blocks
from .integrator import step, still
from .linear import solve_columns, solve_transposed
from .scratch import new_scratch, set_constants, set_forces

_OK = int(Status.OK)


@lean
def push_forward(s, w, d, dx, du, dc, X, dx1):
    """dx1 = A dx + B du + C dc, matrices (2 n, k), (nu, k), (P, k); X (n + m, k) is memory. -> dx1 (2 n, k)."""
    n, m, columns, h = len(s.parent), len(w.h), dx.shape[1], w.length[0]
    X[:] = 0.0
    dx1[:] = 0.0
    for i in range(n):
        for k in range(columns):
            X[s.slot[i], k] = -dx[n + i, k]
        add_row(d.rq[i], dx, -1.0, X[s.slot[i]])
        add_row(d.rc[i], dc, -1.0, X[s.slot[i]])
        add_row(d.pq[i], dx, 1.0, dx1[n + i])
        add_row(d.pc[i], dc, 1.0, dx1[n + i])
    for r in range(m):
        add_row(d.hc[r], dc, -1.0, X[s.slot[n + r]])
    for c in range(len(s.actuated)):
        i = s.actuated[c]
        for k in range(columns):
            X[s.slot[i], k] -= s.early * h * du[c, k]
            dx1[n + i, k] += (1.0 - s.early) * h * du[c, k]
    solve_columns(w.K, w.order, X)
    for i in range(n):
        for k in range(columns):
            dx1[i, k] = X[s.slot[i], k]
    for i in range(n):
        add_row(d.pn[i], dx1, 1.0, dx1[n + i])


@lean
def add_row(row, X, factor, out):
    """Out (k,) += factor row (N,) X (N, k), where X may be longer."""
    for j in range(len(row)):
        f = factor * row[j]
        if some(f != 0.0):
            for k in range(len(out)):
                out[k] += f * X[j, k]


@lean
def pull_back(s, w, d, mu, nu, gradient):
    """mu (2 n,) <- A' mu; nu (nu,) += B' mu; gradient (P,) += C' mu."""
    n, m, b, h = len(s.parent), len(w.h), w.b, w.length[0]
    for i in range(n):
        w.q[i] = mu[i]
    for i in range(n):
        add_scaled(d.pn[i], mu[n + i], w.q)
        mu[i] = 0.0
    for i in range(n):
        add_scaled(d.pq[i], mu[n + i], mu)
        add_scaled(d.pc[i], mu[n + i], gradient)
    for c in range(len(s.actuated)):
        nu[c] += (1.0 - s.early) * h * mu[n + s.actuated[c]]
    for i in range(n):
        b[s.slot[i]] = w.q[i]
    for r in range(m):
        b[s.slot[n + r]] = 0.0
    solve_transposed(w.K, w.order, b)
    for i in range(n):
        z = -b[s.slot[i]]
        add_scaled(d.rq[i], z, mu)
        add_scaled(d.rc[i], z, gradient)
        mu[n + i] = z
    for r in range(m):
        add_scaled(d.hc[r], -b[s.slot[n + r]], gradient)
    for c in range(len(s.actuated)):
        nu[c] += s.early * h * mu[n + s.actuated[c]]


@lean
def add_scaled(row, factor, out):
    """Out[: len(row)] += factor row."""
    for j in range(len(row)):
        out[j] += factor * row[j]


@kernel
def linearization(s, state, control, parameter_values, substeps, A, B, C):
    """See `engines.numba.engine.NumbaEngine`; NaN in a row that fails."""
    n, m, nu, count = len(s.parent), s.row[-1], control.shape[1], parameter_values.shape[1]
    w, d, lam, x, x1 = new_scratch(s), new_blocks(s, count), np.zeros(m), np.empty(2 * n), np.empty(2 * n)
    columns = 2 * n + nu + count
    dx, dx1, X = np.empty((2 * n, columns)), np.empty((2 * n, columns)), np.empty((n + m, columns))
    du, dc = np.zeros((nu, columns)), np.zeros((count, columns))
    for i in range(nu):
        du[i, 2 * n + i] = 1.0
    for i in range(count):
        dc[i, 2 * n + nu + i] = 1.0
    for row in range(len(state)):
        set_constants(s, parameter_values[row], w)
        set_forces(s, control[row], w)
        dx[:] = 0.0
        for i in range(2 * n):
            dx[i, i] = 1.0
        x[:] = state[row]
        good = True
        for _ in range(substeps):
            still(x, x1, lam)
            good = good and step(s, x, w, x1, lam, False) == _OK and differentiate_here(s, x[:n], x1[:n], lam, w, d)
            if good:
                push_forward(s, w, d, dx, du, dc, X, dx1)
                x[:], dx[:] = x1, dx1
        if not good:
            dx[:] = np.nan
        A[row], B[row], C[row] = dx[:, : 2 * n], dx[:, 2 * n : 2 * n + nu], dx[:, 2 * n + nu :]


@kernel
def sensitivities(s, path, multipliers, applied, gains, parameter_values, substeps, directions, pushes, dx0, dx, good):
    """dx / dc D along paths that `simulate` found, D = directions (P, k): dx0 (B, 2 n, k) at the start, dx (B, T + 1, 2 n, k).

    With du = pushes_t - gain dx, pushes (0 or T, nu, k). good (B,): whether all steps could be differentiated.
    """
    n, m, nu, count = len(s.parent), s.row[-1], applied.shape[2], directions.shape[1]
    w, d = new_scratch(s), new_blocks(s, parameter_values.shape[1])
    now, then, X = np.empty((2 * n, count)), np.empty((2 * n, count)), np.empty((n + m, count))
    du = np.zeros((nu, count))
    for row in range(len(path)):
        set_constants(s, parameter_values[row], w)
        dx[row, 0] = dx0[row]
        for t in range(applied.shape[1]):
            set_forces(s, applied[row, t], w)
            now[:] = dx[row, t]
            du[:] = 0.0
            if len(pushes) > 0:
                du[:] = pushes[t]
            for c in range(nu if len(gains) > 0 else 0):
                add_row(gains[t if len(gains) > 1 else 0, c], now, -1.0, du[c])
            for k in range(t * substeps, (t + 1) * substeps):
                q, q1 = path[row, k, :n], path[row, k + 1, :n]
                good[row] = good[row] and differentiate(s, q, q1, multipliers[row, k], w, d)
                push_forward(s, w, d, now, du, directions, X, then)
                now[:] = then
            dx[row, t + 1] = now


@kernel
def adjoint(s, path, multipliers, applied, gains, parameter_values, substeps, slopes, mu, nu, gradient, good):
    """Lemma 1 of [Caldwell2014]: gradients of J(x_0 .. x_T) whose partial derivatives are slopes (B, T + 1, 2 n).

    Fills dJ/dx_0 mu (B, 2 n), dJ/du_t nu (B, T, nu) and the gradient dJ/dc (B, P) by
    mu_t = A_t' mu_{t+1} + dJ/dx_t and dJ/dc = sum_t C_t' mu_{t+1}; A_t includes the feedback, C_t is partial.
    """
    n, count = len(s.parent), parameter_values.shape[1]
    w, d = new_scratch(s), new_blocks(s, count)
    for row in range(len(path)):
        set_constants(s, parameter_values[row], w)
        mu[row] = slopes[row, -1]
        gradient[row] = 0.0
        for t in range(applied.shape[1] - 1, -1, -1):
            set_forces(s, applied[row, t], w)
            nu[row, t] = 0.0
            for k in range((t + 1) * substeps - 1, t * substeps - 1, -1):
                q, q1 = path[row, k, :n], path[row, k + 1, :n]
                good[row] = good[row] and differentiate(s, q, q1, multipliers[row, k], w, d)
                pull_back(s, w, d, mu[row], nu[row, t], gradient[row])
            for c in range(applied.shape[2] if len(gains) > 0 else 0):
                add_scaled(gains[t if len(gains) > 1 else 0, c], -nu[row, t, c], mu[row])
            add_scaled(slopes[row, t], 1.0, mu[row])
