"""The local problem of iLQG: a box QP per time, and the backward pass that solves the linear-quadratic problem with limits.

After Tassa, Mansard and Todorov, "Control-limited differential dynamic programming", ICRA 2014, without second derivatives of
the dynamics. The matrices are small, so kernels do what NumPy would do in some sixty calls for every time.
Legend: M dampings, E ensemble, T control steps, n tangent, nu control; (M, E, ...) first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.simulator import Array
from softgym_envs.engines.numba.engine import inner, kernel

from .cost import Expansion

BoolArray = NDArray[np.bool_]
HALVINGS = 25
"""Fractions 2^-j of a Newton step that are tried."""
NEWTON_STEPS = 50
"""Newton steps of a box QP; 2 to 5 are usual."""
TOLERANCE = 1e-11
"""Tolerance of the largest free gradient of a box QP, relative to the largest of |g| + |Hd|."""


class Trajectories(NamedTuple):
    """The current policy's E runs, one per row of the ensemble; row 0 is the reference of the feedback law."""

    states: Array
    """(E, T+1, nx)"""
    controls: Array
    """(E, T, nu)"""
    values: Array
    """(E, T+1)"""


class LocalModel(NamedTuple):
    """Linear dynamics and quadratic cost along every run; controls in half ranges."""

    A: Array
    """(E, T, n, n)"""
    B: Array
    """(E, T, n, nu)"""
    cost: Expansion
    """Batch axis E."""
    deviation: Array
    """(E, T, n): difference of every run from the reference."""

    @property
    def finite(self) -> bool:
        """Whether every derivative is a number."""
        arrays = (self.A, self.B, *self.cost)
        return all(bool(np.isfinite(array).all()) for array in arrays)

    def with_last_control(self, deviation: Array) -> LocalModel:
        """The model with the last control as a part of the tangent, of n + nu entries.

        Args:
            deviation: (E, T, nu) difference of every run's last controls from those of the reference, in half ranges.
        """
        E, T, n, nu = self.B.shape
        A, B = np.zeros((E, T, n + nu, n + nu)), np.zeros((E, T, n + nu, nu))
        A[..., :n, :n], B[..., :n, :], B[..., n:, :] = self.A, self.B, np.eye(nu)
        x, xx, ux = np.zeros((E, T + 1, n + nu)), np.zeros((E, T + 1, n + nu, n + nu)), np.zeros((E, T, nu, n + nu))
        x[..., :n], xx[..., :n, :n], ux[..., :n] = self.cost.x, self.cost.xx, self.cost.ux
        return LocalModel(A, B, self.cost._replace(x=x, xx=xx, ux=ux), np.concatenate([self.deviation, deviation], axis=-1))


class Step(NamedTuple):
    """New policies, one per damping: du = alpha k + K dx; controls in half ranges."""

    k: Array
    """(M, T, nu)"""
    K: Array
    """(M, T, nu, n)"""
    slope: Array
    """(M,): the cost's first-order change at alpha = 1"""
    curvature: Array
    """(M,): its second-order change at alpha = 1"""

    def expected(self, alpha: Array | float) -> Array:
        """Expected decrease -(alpha slope + alpha^2 curvature) of the local model."""
        return np.asarray(-(alpha * self.slope + alpha**2 * self.curvature))


class Box(NamedTuple):
    """Limits of k, and which of them move with the control before, as those of a rate do."""

    lower: Array
    """(T, nu)"""
    upper: Array
    """(T, nu)"""
    lower_moves: BoolArray
    """(T, nu); where it is true, the last nu entries of the tangent are the change of the control before, in half ranges."""
    upper_moves: BoolArray
    """(T, nu)"""


def backward_pass(model: LocalModel, damping: Array, box: Box, gains: Array) -> Step:
    """Solve the local problem from t = T to 0 for every damping mu.

    With V(t) the cost to go,

        Qx = lx + A'Vx,  Qu = lu + B'Vx,  Qxx = lxx + A'Vxx A,  Qux = lux + B'Vxx A,  Quu = luu + B'Vxx B
        k = argmin 1/2 k'(Quu + mu I)k + Qu'k  in the box,   K = -(Quu + mu I)^-1 Qux  on the free controls;
            at a limit that moves with the control before, K is 1 for that control: both move together
        Vx = Qx + K'Quu k + K'Qu + Qux'k,   Vxx = Qxx + K'Quu K + K'Qux + Qux'K.

    Where Quu + mu I is indefinite, see `positive_definite`. A damping too small for derivatives this rough overflows; its step
    is zero then and promises an infinite decrease, so that it is neither taken nor mistaken for convergence.

    An ensemble shares k and K, computed from the means of Quu, Qux and Qu over its rows, while every row keeps its own V.
    Where a row deviates from the reference by d, changed gains act as well: there k is k + (K - gains) d.

    Args:
        model: Derivatives along the current runs.
        damping: (M,) mu
        box: Limits of k.
        gains: (T, nu, n) of the current policy.
    """
    _, horizon, n, nu = model.B.shape
    count = len(damping)
    step = Step(np.zeros((count, horizon, nu)), np.zeros((count, horizon, nu, n)), np.zeros(count), np.zeros(count))
    arrays = (model.A, model.B, *model.cost[1:], model.deviation, damping, gains)
    _backward(*(np.ascontiguousarray(array, dtype=np.float64) for array in arrays), tuple(box), tuple(step))
    return step


def control_curvature(model: LocalModel) -> float:
    """The unit of dampings [cost]: median over time of the mean diagonal of Quu; 1 where it is zero everywhere.

    It is that of the means over an ensemble, by the recursion of `backward_pass` without limits, each Quu slightly damped.
    """
    cost = model.cost
    found = np.empty(model.B.shape[1])
    means = (np.ascontiguousarray(array.mean(axis=0)) for array in (model.A, model.B, cost.xx, cost.uu, cost.ux))
    _curvatures(*means, found)
    used = found[(found > 0.0) & np.isfinite(found)]
    return float(np.median(used)) if len(used) else 1.0


@kernel
def _backward(A, B, lx, lu, lxx, luu, lux, deviation, damping, gains, box, step):  # type: ignore[no-untyped-def]
    """See `backward_pass`; `step` is the result."""
    k_all, K_all, slope, curvature = step
    lower, upper, lower_moves, upper_moves = box
    members, horizon, n, nu = B.shape
    Qx, Qu = np.empty((members, n)), np.empty((members, nu))
    Qxx, Qux, Quu = np.empty((members, n, n)), np.empty((members, nu, n)), np.empty((members, nu, nu))
    ke = np.empty(nu)
    for m in range(len(damping)):
        Vx, Vxx = lx[:, horizon].copy(), lxx[:, horizon].copy()
        k = np.zeros(nu)
        for t in range(horizon - 1, -1, -1):
            H, Hx, g = np.zeros((nu, nu)), np.zeros((nu, n)), np.zeros(nu)
            for e in range(members):
                At, Bt, VA = A[e, t].T, B[e, t].T, Vxx[e] @ A[e, t]
                Qx[e], Qu[e] = lx[e, t] + At @ Vx[e], lu[e, t] + Bt @ Vx[e]
                Qxx[e], Qux[e] = lxx[e, t] + At @ VA, lux[e, t] + Bt @ VA
                Quu[e] = luu[e, t] + Bt @ (Vxx[e] @ B[e, t])
                H += Quu[e] / members
                Hx += Qux[e] / members
                g += Qu[e] / members
            for i in range(nu):
                H[i, i] += damping[m]
            H = positive_definite(H, damping[m])
            if members > 1:
                change = -_solve(H, Hx) - gains[t]
                for e in range(members):
                    g += Quu[e] @ (change @ deviation[e, t]) / members
            free = np.ones(nu, dtype=np.bool_)
            box_qp(H, g, lower[t], upper[t], k, free)
            along = np.zeros((nu, n))  # gains of the controls at limits that move
            for i in range(nu):
                if not free[i] and (lower_moves[t, i] if k[i] == lower[t, i] else upper_moves[t, i]):
                    along[i, n - nu + i] = 1.0
                    Hx[:, n - nu + i] += H[:, i]
            K = along - _free_solve(H, free, Hx)
            for e in range(members):
                ke[:] = k
                if members > 1:
                    ke += (K - gains[t]) @ deviation[e, t]
                Quuk = Quu[e] @ ke
                slope[m] += np.sum(ke * Qu[e]) / members
                curvature[m] += 0.5 * np.sum(ke * Quuk) / members
                Vx[e] = Qx[e] + K.T @ (Quuk + Qu[e]) + Qux[e].T @ ke
                cross = K.T @ (Qux[e] + 0.5 * (Quu[e] @ K))
                Vxx[e] = Qxx[e] + cross + cross.T
            k_all[m, t], K_all[m, t] = k, K
            if not (np.isfinite(Vx).all() and np.isfinite(Vxx).all() and np.isfinite(K).all()):
                slope[m] = np.nan
                break
        if not (np.isfinite(curvature[m]) and slope[m] <= 0.0):
            slope[m], curvature[m] = -np.inf, 0.0
            k_all[m] = 0.0
            K_all[m] = 0.0


@kernel
def _curvatures(A, B, lxx, luu, lux, found):  # type: ignore[no-untyped-def]
    """Mean diagonal of every Quu, (T,); see `control_curvature`."""
    horizon, nu = found.shape[0], B.shape[-1]
    V = lxx[horizon].copy()
    for t in range(horizon - 1, -1, -1):
        VA, Bt = V @ A[t], B[t].T
        Quu, Qux = luu[t] + Bt @ (V @ B[t]), lux[t] + Bt @ VA
        found[t] = np.mean(np.abs(np.diag(Quu)))
        V = lxx[t] + A[t].T @ VA
        if 0.0 < found[t] < np.inf:
            H = Quu.copy()
            for i in range(nu):
                H[i, i] += 1e-3 * found[t]
            K = -_solve(positive_definite(H, 1e-3 * found[t]), Qux)
            cross = K.T @ (Qux + 0.5 * (Quu @ K))
            V += cross + cross.T


@kernel
def box_qp(H, g, lower, upper, d, free):  # type: ignore[no-untyped-def]
    """min_d 1/2 d'Hd + g'd,  lower <= d <= upper, by projected Newton steps, into d (nu,), its start; and which are free.

    Entries at a bound whose gradient points outwards are clamped; a Newton step in the others is projected on the box
    with the first step size 2^-j that satisfies Armijo's rule. [Tassa2014] II-C. H (nu, nu) is positive definite.
    """
    newton = -_solve(H, g.reshape(-1, 1))[:, 0]
    free[:] = True
    if ((lower <= newton) & (newton <= upper)).all():
        d[:] = newton
        return
    d[:] = np.minimum(np.maximum(d, lower), upper)
    for iteration in range(NEWTON_STEPS + 1):
        Hd = H @ d
        gradient = g + Hd
        free[:] = ~(((d <= lower) & (gradient > 0)) | ((d >= upper) & (gradient < 0)))
        inside = np.where(free, gradient, 0.0)
        if iteration == NEWTON_STEPS or not np.abs(inside).max() > TOLERANCE * (np.abs(g).max() + np.abs(Hd).max()):
            return
        newton = -_free_solve(H, free, gradient.reshape(-1, 1))[:, 0]
        moved, fraction = False, 1.0
        for _ in range(HALVINGS):
            trial = np.minimum(np.maximum(d + fraction * newton, lower), upper)
            move = trial - d
            first = np.sum(move * gradient)  # the objective's change, written with `move`: no cancellation near the minimum
            if first + 0.5 * np.sum(move * (H @ move)) <= 0.1 * first and np.abs(move).max() > 0.0:
                d[:] = trial
                moved = True
                break
            fraction *= 0.5
        if not moved:
            return


@kernel
def positive_definite(H, least):  # type: ignore[no-untyped-def]
    """H (nu, nu), or if it is indefinite, with its eigenvalues replaced by max(|w|, least): so steps go downhill everywhere."""
    if _cholesky(H)[1] or not np.isfinite(H).all():
        return H
    w, V = np.linalg.eigh(H)
    if w[0] > 0.0:
        return H
    return (V * np.maximum(np.abs(w), least)) @ V.T


@inner
def _cholesky(H):  # type: ignore[no-untyped-def]
    """Lower factor of H, and whether H is positive definite."""
    nu = len(H)
    L = np.zeros_like(H)
    for j in range(nu):
        for i in range(j, nu):
            rest = H[i, j]
            for s in range(j):
                rest -= L[i, s] * L[j, s]
            if i > j:
                L[i, j] = rest / L[j, j]
            elif rest > 0.0:
                L[j, j] = np.sqrt(rest)
            else:
                return L, False
    return L, True


@inner
def _solve(H, right):  # type: ignore[no-untyped-def]
    """H^-1 right (nu, k), H positive definite; NaN where it is not."""
    L, good = _cholesky(H)
    x = right.copy()
    if not good:
        x[:] = np.nan
        return x
    nu = len(H)
    for i in range(nu):
        for s in range(i):
            x[i] -= L[i, s] * x[s]
        x[i] /= L[i, i]
    for i in range(nu - 1, -1, -1):
        for s in range(i + 1, nu):
            x[i] -= L[s, i] * x[s]
        x[i] /= L[i, i]
    return x


@inner
def _free_solve(H, free, right):  # type: ignore[no-untyped-def]
    """The free entries' H^-1 right (nu, k), zero in the clamped ones."""
    block, inside = H.copy(), right.copy()
    for i in range(len(H)):
        if not free[i]:
            block[i, :], block[:, i], inside[i, :] = 0.0, 0.0, 0.0
            block[i, i] = 1.0
    return _solve(block, inside)
