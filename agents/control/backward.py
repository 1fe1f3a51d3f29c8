"""The local problem of iLQG: a box QP per time, and the backward pass that solves the linear-quadratic problem with limits.

After Tassa, Mansard and Todorov, "Control-limited differential dynamic programming", ICRA 2014, without second derivatives of
the dynamics. Legend: M dampings, E ensemble, T control steps, n tangent, nu control; (M, E, ...) first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.simulator import Array

from .cost import Expansion

BoolArray = NDArray[np.bool_]
STEPS = 0.5 ** np.arange(25)
"""Fractions of a Newton step that are tried."""


def box_qp(
    H: Array, g: Array, lower: Array, upper: Array, start: Array, *, max_iterations: int = 50, tolerance: float = 1e-11
) -> tuple[Array, BoolArray]:
    """min_d 1/2 d'Hd + g'd,  lower <= d <= upper, by projected Newton steps; M problems at once.

    Entries at a bound whose gradient points outwards are clamped; a Newton step in the others is projected on the box
    with the first step size 2^-j that satisfies Armijo's rule. [Tassa2014] II-C.

    Args:
        H: (M, nu, nu), positive definite.
        g: (M, nu)
        lower: (M, nu) or (nu,); `upper` likewise, lower <= upper.
        upper: See `lower`.
        start: (M, nu) warm start; projected on the box.
        max_iterations: Newton steps; 2-5 are usual.
        tolerance: Tolerance of the largest free gradient, relative to the largest of |g| + |Hd|.

    Returns:
        Minimiser d (M, nu) and which entries are free, (M, nu).
    """
    inside = -_solve(H, g[..., None])[..., 0]
    if ((lower <= inside) & (inside <= upper)).all():
        return inside, np.ones(inside.shape, dtype=np.bool_)
    d = np.clip(start, lower, upper)
    for iteration in range(max_iterations + 1):
        Hd = _apply(H, d)
        gradient = g + Hd
        scale = np.abs(g).max(axis=-1) + np.abs(Hd).max(axis=-1)
        free = ~(((d <= lower) & (gradient > 0)) | ((d >= upper) & (gradient < 0)))
        unsolved = np.abs(np.where(free, gradient, 0.0)).max(axis=-1) > tolerance * scale
        if iteration == max_iterations or not unsolved.any():
            break
        newton = -_solve(_free_block(H, free), np.where(free, gradient, 0.0)[..., None])[..., 0]
        found, downhill = _projected(H, gradient, d, newton[:, None], lower, upper)
        if not (downhill[:, 0] | ~unsolved).all():
            found, downhill = _projected(H, gradient, d, STEPS[:, None] * newton[:, None], lower, upper)
        moves = downhill.any(axis=1) & unsolved
        if not moves.any():
            break
        d = np.where(moves[:, None], found[np.arange(len(d)), np.argmax(downhill, axis=1)], d)
    return d, free


def _projected(H: Array, gradient: Array, d: Array, moves: Array, lower: Array, upper: Array) -> tuple[Array, BoolArray]:
    """Projections (M, J, nu) on the box of d + moves (M, J, nu), and which lower the objective by Armijo's rule, (M, J)."""
    trial = np.clip(d[:, None] + moves, lower[..., None, :], upper[..., None, :])
    move = trial - d[:, None]
    # Change of the objective, written with `move`: no cancellation close to the minimum.
    first = (move @ gradient[..., None])[..., 0]
    return trial, first + 0.5 * np.sum(move @ H * move, axis=-1) <= 0.1 * first


def _apply(H: Array, d: Array) -> Array:
    return np.asarray((H @ d[..., None])[..., 0])


def _solve(H: Array, right: Array) -> Array:
    """Solve H^-1 right for every row (M, ...); NaN where H is singular."""
    try:
        return np.asarray(np.linalg.solve(H, right))
    except np.linalg.LinAlgError:
        if len(H) == 1:
            return np.full(right.shape, np.nan)
        return np.concatenate([_solve(H[i : i + 1], right[i : i + 1]) for i in range(len(H))])


def _free_block(H: Array, free: BoolArray) -> Array:
    """H with the rows and columns of clamped entries replaced by those of the identity."""
    both = free[..., :, None] & free[..., None, :]
    return np.where(both, H, np.eye(H.shape[-1]))


def positive_definite(H: Array, least: Array) -> Array:
    """H (M, nu, nu) with the eigenvalues of indefinite ones replaced by max(|w|, least); `least` is (M,), positive.

    So a step goes downhill also where the cost is concave.
    """
    try:
        np.linalg.cholesky(H)
    except np.linalg.LinAlgError:
        finite = np.asarray(np.isfinite(H).all(axis=(1, 2)))
        w, V = np.linalg.eigh(np.where(finite[:, None, None], H, np.eye(H.shape[-1])))
        turned = (V * np.maximum(np.abs(w), least[:, None])[:, None]) @ np.swapaxes(V, -1, -2)
        return np.where(_like(finite & (w[:, 0] <= 0.0), H), turned, H)
    return H


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


@np.errstate(all="ignore")
def backward_pass(model: LocalModel, damping: Array, lower: Array, upper: Array, gains: Array) -> Step:
    """Solve the local problem from t = T to 0 for every damping mu.

    With V(t) the cost to go,

        Qx = lx + A'Vx,  Qu = lu + B'Vx,  Qxx = lxx + A'Vxx A,  Qux = lux + B'Vxx A,  Quu = luu + B'Vxx B
        k = argmin 1/2 k'(Quu + mu I)k + Qu'k  in the box,   K = -(Quu + mu I)^-1 Qux  on the free controls
        Vx = Qx + K'Quu k + K'Qu + Qux'k,   Vxx = Qxx + K'Quu K + K'Qux + Qux'K.

    Where Quu + mu I is indefinite, see `positive_definite`. A damping too small for derivatives this rough overflows; its step
    is zero then and promises an infinite decrease, so that it is neither taken nor mistaken for convergence.

    An ensemble shares k and K, computed from the means of Quu, Qux and Qu over its rows, while every row keeps its own V.
    Where a row deviates from the reference by d, changed gains act as well: there k is k + (K - gains) d.

    Args:
        model: Derivatives along the current runs.
        damping: (M,) mu
        lower: (T, nu) box of k; `upper` likewise.
        upper: See `lower`.
        gains: (T, nu, n) of the current policy.
    """
    A, B, cost, deviation = model
    members, horizon, n, nu = B.shape
    mus = damping[:, None, None] * np.eye(nu)
    shape = (len(damping), members)
    Vx = np.broadcast_to(cost.x[:, -1], (*shape, n))
    Vxx = np.broadcast_to(cost.xx[:, -1], (*shape, n, n))
    k_all, K_all = np.zeros((len(damping), horizon, nu)), np.zeros((len(damping), horizon, nu, n))
    slope, curvature = np.zeros(len(damping)), np.zeros(len(damping))
    k = np.zeros((len(damping), nu))
    alone = members == 1
    mean = _first if alone else _mean
    dead = np.zeros(len(damping), dtype=bool)
    for t in reversed(range(horizon)):
        At, Bt = np.swapaxes(A[:, t], -1, -2), np.swapaxes(B[:, t], -1, -2)
        VA, VB = Vxx @ A[:, t], Vxx @ B[:, t]
        Qx, Qu = cost.x[:, t] + _apply(At, Vx), cost.u[:, t] + _apply(Bt, Vx)
        Qxx, Qux, Quu = cost.xx[:, t] + At @ VA, cost.ux[:, t] + Bt @ VA, cost.uu[:, t] + Bt @ VB
        H, Hx, g = positive_definite(mean(Quu) + mus, damping), mean(Qux), mean(Qu)
        if not alone:
            change = -_solve(H, Hx) - gains[t]
            g = g + _apply(Quu, np.einsum("mij,ej->mei", change, deviation[:, t])).mean(axis=1)
        k, free = box_qp(H, g, lower[t], upper[t], k)
        K = -_solve(_free_block(H, free), np.where(free[..., None], Hx, 0.0))
        ke = k[:, None] if alone else k[:, None] + np.einsum("mij,ej->mei", K - gains[t], deviation[:, t])
        Kt = np.swapaxes(K, -1, -2)[:, None]
        Quuk = _apply(Quu, np.broadcast_to(ke, Qu.shape))
        slope += mean(np.sum(ke * Qu, axis=-1))
        curvature += 0.5 * mean(np.sum(ke * Quuk, axis=-1))
        Vx = Qx + _apply(Kt, Quuk + Qu) + _apply(np.swapaxes(Qux, -1, -2), ke)
        cross = Kt @ (Qux + 0.5 * Quu @ K[:, None])
        Vxx = Qxx + cross + np.swapaxes(cross, -1, -2)
        k_all[:, t], K_all[:, t] = k, K
        failed = ~(np.isfinite(Vxx).all(axis=(1, 2, 3)) & np.isfinite(Vx).all(axis=(1, 2)) & np.isfinite(K).all(axis=(1, 2)))
        if failed.any():
            dead |= failed
            k, Vx, Vxx = (np.where(_like(dead, array), 0.0, array) for array in (k, Vx, Vxx))
    dead |= ~np.isfinite(curvature) | ~(slope <= 0)
    slope[dead] = -np.inf
    return Step(np.where(_like(dead, k_all), 0.0, k_all), np.where(_like(dead, K_all), 0.0, K_all), slope, curvature)


@np.errstate(all="ignore")
def control_curvature(model: LocalModel) -> float:
    """The unit of dampings [cost]: median over time of the mean diagonal of Quu; 1 where it is zero everywhere.

    It is that of the means over an ensemble, by the recursion of `backward_pass` without limits, each Quu slightly damped.
    """
    A, B, xx, uu, ux = (array.mean(axis=0) for array in (model.A, model.B, model.cost.xx, model.cost.uu, model.cost.ux))
    nu, V, found = B.shape[-1], xx[-1], []
    for t in reversed(range(len(B))):
        Quu, Qux = uu[t] + B[t].T @ V @ B[t], ux[t] + B[t].T @ V @ A[t]
        found.append(np.abs(np.diag(Quu)).mean())
        if not 0.0 < found[-1] < np.inf:
            V = xx[t] + A[t].T @ V @ A[t]
            continue
        damping = 1e-3 * found[-1]
        K = -_solve(positive_definite((Quu + damping * np.eye(nu))[None], np.array([damping])), Qux[None])[0]
        cross = K.T @ (Qux + 0.5 * Quu @ K)
        V = xx[t] + A[t].T @ V @ A[t] + cross + cross.T
    used = [value for value in found if 0.0 < value < np.inf]
    return float(np.median(used)) if used else 1.0


def _first(array: Array) -> Array:
    return np.asarray(array[:, 0])


def _mean(array: Array) -> Array:
    return np.asarray(array.mean(axis=1))


def _like(mask: BoolArray, array: Array) -> BoolArray:
    """Mask (M,) with as many axes as the array has."""
    return mask.reshape(-1, *(1,) * (array.ndim - 1))
