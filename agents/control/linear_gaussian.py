"""Linear-Gaussian controllers on linear dynamics that are fitted to samples, and their KL-bounded improvement.

The parts of guided policy search (Levine and Abbeel, NeurIPS 2014) that need no simulator; `gps` samples with them.
Legend: N rollouts, T control steps, n tangent, nu control, d = n + nu.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from softgym_envs.core.simulator import Array

from .cost import Expansion

RIDGES = 10.0 ** np.arange(-4.0, 5.0)
LEAST_VARIANCE = 1e-6
"""Least variance of a direction over the widest one's; narrower ones are raised to it: no slope is fitted to rounding."""
NEIGHBOUR_WINDOWS = (2, 5, 15, 10**9)
"""Half widths [control steps] of the neighbourhoods to choose the prior from."""
ETA_RANGE = (1e-6, 1e12)


class FittedDynamics(NamedTuple):
    """dx' = A dx + B du + offset + noise around a reference trajectory."""

    A: Array
    """(T, n, n)"""
    B: Array
    """(T, n, nu)"""
    offset: Array
    """(T, n)"""
    noise: Array
    """(T, n, n) covariance of the residual"""
    ridge: float
    """Chosen strength of the pooled prior, in samples"""


def fit_dynamics(dx: Array, du: Array, after: Array) -> FittedDynamics:
    """Time-varying linear regression after_i = W_t z_i + offset_t, z = (dx, du), shrunk towards W0_t of neighbouring times.

        W_t = argmin sum_i |y_i - W z_i|^2 + ridge |(W - W0_t) C^1/2|^2,    C = pooled covariance of z,

    with z and y = `after` taken from their means at that time. Ridge and neighbourhood minimise the
    leave-one-out error of all times.

    Args:
        dx: (N, T, n) samples before the step.
        du: (N, T, nu)
        after: (N, T, n) samples after the step.
    """
    samples, horizon, n = dx.shape
    z = np.concatenate([dx, du], axis=-1)
    z_mean, y_mean = z.mean(axis=0), after.mean(axis=0)
    z, y = np.swapaxes(z - z_mean, 0, 1), np.swapaxes(after - y_mean, 0, 1)  # (T, N, d), (T, N, n)
    d = z.shape[-1]
    scale = np.maximum(z.std(axis=(0, 1)), 1e-12)  # units must not decide which directions count as not sampled
    size, axes = np.linalg.eigh(np.einsum("tni,tnj->ij", z / scale, z / scale) / (horizon * samples))
    whiten = axes / np.sqrt(np.maximum(size, LEAST_VARIANCE * size[-1])) / scale[:, None]  # z @ whiten: unit covariance
    v, y_scale = z @ whiten, np.maximum(y.std(axis=(0, 1)), 1e-12)
    weight, basis = np.linalg.eigh(v @ np.swapaxes(v, 1, 2))  # Gram matrices (T, N, N)
    weight = np.maximum(weight, 0.0)
    best, ridge, W0, projected = np.inf, RIDGES[-1], np.zeros((horizon, d, n)), y
    for window in sorted({min(w, horizon) for w in NEIGHBOUR_WINDOWS}):
        prior = _neighbours(v, y, window)
        rest = np.swapaxes(basis, 1, 2) @ (y - v @ prior)
        for candidate in RIDGES:
            shrink = candidate / (weight + candidate)
            left = np.einsum("tij,tj,tij->ti", basis, shrink, basis) - 1.0 / samples  # 1 - leverage; the mean takes 1/N
            misses = (basis @ (shrink[..., None] * rest)) / np.maximum(left, 1e-9)[..., None]
            error = float(np.sum((misses / y_scale) ** 2))
            if error < best:
                best, ridge, W0, projected = error, float(candidate), prior, rest
    dual = basis @ (projected / (weight + ridge)[..., None])
    W = np.swapaxes(whiten @ (W0 + np.swapaxes(v, 1, 2) @ dual), 1, 2)  # (T, n, d)
    residual = ridge * dual
    noise = np.swapaxes(residual, 1, 2) @ residual / samples
    offset = y_mean - (W @ z_mean[..., None])[..., 0]
    return FittedDynamics(W[:, :, :n], W[:, :, n:], offset, noise, ridge)


def _neighbours(v: Array, y: Array, window: int) -> Array:
    """Prior of every time, (T, d, n): regression y = v W0 on the samples of the times t' with 0 < |t - t'| <= window."""
    horizon, samples, d = v.shape
    near = np.abs(np.subtract.outer(np.arange(horizon), np.arange(horizon)))
    near = ((near > 0) & (near <= window)).astype(np.float64)
    vt = np.swapaxes(v, 1, 2)
    second, cross = ((near @ array.reshape(horizon, -1)).reshape(array.shape) for array in (vt @ v, vt @ y))
    return np.asarray(np.linalg.solve(second + 1e-6 * samples * np.eye(d), cross))


class Controller(NamedTuple):
    """u ~ N(k + K dx, covariance) around the reference trajectory, in half ranges."""

    k: Array
    """(T, nu)"""
    K: Array
    """(T, nu, n)"""
    covariance: Array
    """(T, nu, nu)"""


def kl_lqr(model: FittedDynamics, cost: Expansion, old: Controller, eta: float) -> Controller:
    """Minimise E[cost] / eta + sum_t KL(new || old) over linear-Gaussian controllers by a backward pass.

    With the cost to go V in units of eta, and P = inverse of the old covariance,

        Quu = luu / eta + P + B'Vxx B,   Qux = lux / eta - P K_old + B'Vxx A,   Qu = lu / eta - P k_old + B'(Vx + Vxx offset),
        Qxx = lxx / eta + K_old'P K_old + A'Vxx A,   Qx = lx / eta + K_old'P k_old + A'(Vx + Vxx offset),

    and the new controller is k = -Quu^-1 Qu, K = -Quu^-1 Qux with covariance Quu^-1.

    Args:
        model: Fitted dynamics.
        cost: Expansion along the reference, batch of 1.
        old: Controller of the last iteration.
        eta: Weight of the KL divergence [cost].

    Raises:
        numpy.linalg.LinAlgError: Quu is not positive definite: eta is too small for this cost.
    """
    horizon, n, nu = model.B.shape
    k, K, covariance = np.zeros((horizon, nu)), np.zeros((horizon, nu, n)), np.zeros((horizon, nu, nu))
    Vx, Vxx = cost.x[0, -1] / eta, cost.xx[0, -1] / eta
    for t in reversed(range(horizon)):
        A, B = model.A[t], model.B[t]
        P = np.linalg.inv(old.covariance[t])
        PK, Pk = P @ old.K[t], P @ old.k[t]
        ahead = Vx + Vxx @ model.offset[t]
        Quu = cost.uu[0, t] / eta + P + B.T @ Vxx @ B
        Qux = cost.ux[0, t] / eta - PK + B.T @ Vxx @ A
        Qu = cost.u[0, t] / eta - Pk + B.T @ ahead
        np.linalg.cholesky(Quu)
        covariance[t] = np.linalg.inv(Quu)
        k[t], K[t] = -covariance[t] @ Qu, -covariance[t] @ Qux
        Vx = cost.x[0, t] / eta + old.K[t].T @ Pk + A.T @ ahead + Qux.T @ k[t]
        Vxx = cost.xx[0, t] / eta + old.K[t].T @ PK + A.T @ Vxx @ A + Qux.T @ K[t]
        Vxx = 0.5 * (Vxx + Vxx.T)
    return Controller(k, K, covariance)


def predict(model: FittedDynamics, cost: Expansion, new: Controller, old: Controller) -> tuple[float, float]:
    """Expected cost under `new`, and KL(new || old) summed over time [nat], both in the fitted model."""
    horizon, n, nu = model.B.shape
    mean, spread = np.zeros(n), np.zeros((n, n))
    total, kl = float(cost.value.sum()), 0.0
    for t in range(horizon):
        K = new.K[t]
        u, cross = new.k[t] + K @ mean, K @ spread
        uu = cross @ K.T + new.covariance[t]
        total += float(cost.x[0, t] @ mean + cost.u[0, t] @ u + u @ cost.ux[0, t] @ mean + np.sum(cost.ux[0, t] * cross))
        total += 0.5 * float(mean @ cost.xx[0, t] @ mean + np.sum(cost.xx[0, t] * spread))
        total += 0.5 * float(u @ cost.uu[0, t] @ u + np.sum(cost.uu[0, t] * uu))
        P, dK = np.linalg.inv(old.covariance[t]), K - old.K[t]
        du = new.k[t] - old.k[t] + dK @ mean
        quadratic = np.sum(P * (new.covariance[t] + np.outer(du, du) + dK @ spread @ dK.T))
        ratio = np.linalg.slogdet(old.covariance[t])[1] - np.linalg.slogdet(new.covariance[t])[1]
        kl += 0.5 * float(quadratic - nu + ratio)
        A, B = model.A[t], model.B[t]
        mixed = A @ cross.T @ B.T
        mean, spread = A @ mean + B @ u + model.offset[t], A @ spread @ A.T + mixed + mixed.T + B @ uu @ B.T + model.noise[t]
    total += float(cost.x[0, -1] @ mean) + 0.5 * float(mean @ cost.xx[0, -1] @ mean + np.sum(cost.xx[0, -1] * spread))
    return total, kl


def kl_bounded_step(model: FittedDynamics, cost: Expansion, old: Controller, bound: float) -> tuple[Controller, float]:
    """Best controller with KL(new || old) <= bound [nat], and its eta: bisection on log eta (the KL falls with eta)."""
    low, high = np.log(ETA_RANGE)
    best, best_eta = old, float(ETA_RANGE[1])
    for _ in range(40):
        eta = float(np.exp(0.5 * (low + high)))
        try:
            new = kl_lqr(model, cost, old, eta)
            kl = predict(model, cost, new, old)[1]
        except np.linalg.LinAlgError:
            kl = np.inf
        if not kl <= bound:  # NaN too
            low = np.log(eta)
            continue
        best, best_eta, high = new, eta, np.log(eta)
        if kl > 0.95 * bound or high - low < 1e-2:
            break
    return best, best_eta
