"""Unit quaternions (w, x, y, z) and their tangent space: exp, log, product, retract, difference.

Tangent vectors are rotation vectors in the body frame: retract(q, phi) = q * exp(phi / 2). All functions work on
arrays of shape (..., 4) and (..., 3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def multiply(p: Array, q: Array) -> Array:
    """Hamilton product p q, shape (..., 4)."""
    pw, px, py, pz = np.moveaxis(p, -1, 0)
    qw, qx, qy, qz = np.moveaxis(q, -1, 0)
    product: Array = np.stack(
        [
            pw * qw - px * qx - py * qy - pz * qz,
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
        ],
        axis=-1,
    )
    return product


def conjugate(q: Array) -> Array:
    """Inverse rotation, shape (..., 4)."""
    inverse: Array = q * np.array([1.0, -1.0, -1.0, -1.0])
    return inverse


def exp(phi: Array) -> Array:
    """Rotation vector [rad] (..., 3) -> unit quaternion (..., 4): (cos |phi|/2, sin(|phi|/2) phi/|phi|)."""
    angle = np.linalg.norm(phi, axis=-1, keepdims=True)
    small = angle < 1e-8
    ratio = np.where(small, 0.5 - angle**2 / 48.0, np.sin(0.5 * angle) / np.where(small, 1.0, angle))
    return np.concatenate([np.cos(0.5 * angle), ratio * phi], axis=-1)


def log(q: Array) -> Array:
    """Unit quaternion (..., 4) -> rotation vector [rad] (..., 3) of length <= pi; q and -q give the same."""
    q = np.where(q[..., :1] < 0, -q, q)
    w, v = q[..., :1], q[..., 1:]
    norm = np.linalg.norm(v, axis=-1, keepdims=True)
    small = norm < 1e-8
    ratio = np.where(small, 2.0 / np.maximum(w, 1e-300), 2.0 * np.arctan2(norm, w) / np.where(small, 1.0, norm))
    return ratio * v


def retract(q: Array, phi: Array) -> Array:
    """q * exp(phi), normalised, shape (..., 4)."""
    moved = multiply(q, exp(phi))
    unit: Array = moved / np.linalg.norm(moved, axis=-1, keepdims=True)
    return unit


def difference(p: Array, q: Array) -> Array:
    """phi with retract(q, phi) = p, shape (..., 3)."""
    return log(multiply(conjugate(q), p))


def rotate(q: Array, v: Array) -> Array:
    """Vector v (..., 3) of the body frame, in the world frame: v + 2 w (u x v) + 2 u x (u x v)."""
    w, u = q[..., :1], q[..., 1:]
    uv = np.cross(u, v)
    return v + 2.0 * (w * uv + np.cross(u, uv))


def from_matrix(R: Array) -> Array:
    """Rotation matrices (..., 3, 3) -> unit quaternions (..., 4)."""
    from scipy.spatial.transform import Rotation

    return np.roll(Rotation.from_matrix(R).as_quat(), 1, axis=-1)


def from_z_axis(z: Array) -> Array:
    """Shortest rotation that takes (0, 0, 1) to the direction z, (..., 3) -> (..., 4)."""
    z = z / np.linalg.norm(z, axis=-1, keepdims=True)
    opposite = z[..., 2:] < -1.0 + 1e-12
    q = np.concatenate([1.0 + z[..., 2:], -z[..., 1:2], z[..., :1], np.zeros_like(z[..., :1])], axis=-1)
    q = np.where(opposite, np.array([0.0, 1.0, 0.0, 0.0]), q)
    unit: Array = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return unit


def right_matrix(q: Array) -> Array:
    """Matrix M (..., 4, 3) with q * (0, v) = M v; its columns are orthonormal."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = [[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def z_axis(q: Array) -> Array:
    """Third column of the rotation matrix of q, (..., 4) -> (..., 3)."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=-1)
