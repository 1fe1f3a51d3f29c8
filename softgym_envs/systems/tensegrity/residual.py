"""A learned correction of the contact with the ground: what the contact law cannot express, fitted to recordings.

After the contact law has turned a rod's predicted twist (v*, w*) into (v', w'), every cap that touches gets a further impulse
that would, alone, change the velocity of its contact point by du and the rotation of the rod by dw:

    du = g (|D| (c_0 u_t + c_1 a w x n + c_2 u_n n) / s + c_3 D_t + c_4 D_n n)
    dw = g |D| (c_5 w_t + c_6 w_n n) / s                          (n the normal, s^2 = |u|^2 + (a |w|)^2, a = LEVER)

u is the velocity of the contact point and w the rotation before the step, D the change of the point's velocity by the contact
law, t and n their parts along and across the ground. The coefficients c = C tanh(W_2 tanh(W_1 x + b_1) + b_2), C = BOUND, are
a small network of numbers x that do not change when the scene is turned (`features`): no direction is learned twice. So the
correction stays a fraction of what the contact law does.

The gate g = s^2 / (s^2 + s_0^2) makes it vanish at rest: a state of rest of the contact law stays one, with the same
stability. Rods that touch each other (`joint`) are not corrected. [Wang2020] (arXiv 2011.04929) IV-B adds a network of 3 x
100 units to the contact model instead, without a gate.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from ...core.errors import OptionError
from ...core.simulator import Array
from .contact import CONTACT_MARGIN, Footing, GroundPoint
from .impulses import lever_of_end
from .rods import Lever, Twist, point_velocity, resist, spin_up

FEATURES, UNITS, COEFFICIENTS = 10, 12, 7
NUM_WEIGHTS = UNITS * (FEATURES + 1 + COEFFICIENTS) + COEFFICIENTS
"""W_1 and b_1 unit by unit, then W_2 unit by unit, then b_2."""
BOUND = 0.3
"""C: no correction may outweigh the contact law."""
RESIDUAL_LEVER = 0.3
"""a [m]"""
GATE_SPEED = 0.02
"""s_0 [m/s]"""
GAP_UNIT = 0.01
"""[m] unit of the gap among the features."""

_bound, _lever, _depth = (wp.constant(wp.float64(value)) for value in (BOUND, RESIDUAL_LEVER, GAP_UNIT))
_gate2 = wp.constant(wp.float64(GATE_SPEED**2))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero, _one, _two, _ten = (wp.constant(wp.float64(value)) for value in (0.0, 1.0, 2.0, 10.0))
_tiny2 = wp.constant(wp.float64(1e-20))
_small2 = wp.constant(wp.float64(1e-8))
_vector_x: Any = wp.types.vector(length=FEATURES, dtype=wp.float64)
_vector_c: Any = wp.types.vector(length=COEFFICIENTS, dtype=wp.float64)


def random_weights(rng: np.random.Generator) -> Array:
    """Weights to start from, (NUM_WEIGHTS,): W_1 ~ N(0, 1/FEATURES), b_1 ~ N(0, 1/4), no correction yet (W_2 = b_2 = 0)."""
    weights = np.zeros(NUM_WEIGHTS)
    inner = np.concatenate(
        [rng.normal(0.0, FEATURES**-0.5, (UNITS, FEATURES)), rng.normal(0.0, 0.5, (UNITS, 1))], axis=1
    )  # fmt: skip
    weights[: inner.size] = inner.ravel()
    return weights


def check_weights(weights: object) -> tuple[float, ...]:
    """Weights as a tuple; () stands for no correction.

    Raises:
        OptionError: Not NUM_WEIGHTS finite numbers.
    """
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.full(1, np.nan)
    if values.shape == (0,):
        return ()
    if values.shape != (NUM_WEIGHTS,) or not np.isfinite(values).all():
        raise OptionError(f"residual has shape {values.shape}, expected {NUM_WEIGHTS} finite weights, or none")
    return tuple(float(value) for value in values)


@wp.func
def features(
    u: wp.vec3d,
    w: wp.vec3d,
    load: wp.vec3d,
    change: wp.vec3d,
    outwards: wp.vec3d,
    surface: GroundPoint,
    dt: wp.float64,
    both: wp.float64,
):
    """x: depth, speeds, load, impulse of a contact; `outwards`: the rod's direction at this end, `both`: the other touches."""
    n = surface.normal
    un = wp.dot(u, n)
    wn = wp.dot(w, n)
    ut = u - un * n
    wt = w - wn * n
    return _vector_x(
        surface.gap / _depth,
        _two * un,
        _two * wp.sqrt(wp.dot(ut, ut) + _small2),
        wn,
        wp.sqrt(wp.dot(wt, wt) + _small2),
        _two * wp.dot(ut, wp.cross(w, n)),
        _two * wp.dot(outwards, n),
        wp.dot(load, n) / (_ten * dt),
        wp.dot(change, n) / (_ten * dt),
        both,
    )


@wp.func
def coefficients(x: Any, weights: wp.array2d(dtype=wp.float64), first: int, b: int):
    """C = BOUND tanh(W_2 tanh(W_1 x + b_1) + b_2)."""
    last = first + wp.static(UNITS * (FEATURES + 1 + COEFFICIENTS))
    total = _vector_c(
        weights[b, last], weights[b, last + 1], weights[b, last + 2], weights[b, last + 3], weights[b, last + 4],
        weights[b, last + 5], weights[b, last + 6],
    )  # fmt: skip
    for j in range(wp.static(UNITS)):
        at = first + j * wp.static(FEATURES + 1)
        out = first + wp.static(UNITS * (FEATURES + 1)) + j * wp.static(COEFFICIENTS)
        inner = _vector_x(
            weights[b, at], weights[b, at + 1], weights[b, at + 2], weights[b, at + 3], weights[b, at + 4],
            weights[b, at + 5], weights[b, at + 6], weights[b, at + 7], weights[b, at + 8], weights[b, at + 9],
        )  # fmt: skip
        hidden = wp.tanh(wp.dot(inner, x) + weights[b, at + 10])
        total = total + hidden * _vector_c(
            weights[b, out], weights[b, out + 1], weights[b, out + 2], weights[b, out + 3], weights[b, out + 4],
            weights[b, out + 5], weights[b, out + 6],
        )  # fmt: skip
    return _vector_c(
        _bound * wp.tanh(total[0]), _bound * wp.tanh(total[1]), _bound * wp.tanh(total[2]), _bound * wp.tanh(total[3]),
        _bound * wp.tanh(total[4]), _bound * wp.tanh(total[5]), _bound * wp.tanh(total[6]),
    )  # fmt: skip


@wp.func
def correction_at(
    before: Twist,
    predicted: Twist,
    after: Twist,
    lever: Lever,
    outward: wp.vec3d,
    surface: GroundPoint,
    both: wp.float64,
    dt: wp.float64,
    weights: wp.array2d(dtype=wp.float64),
    first: int,
    b: int,
):
    """Change of the rod's twist by the correction at a cap that touches; `outward` points along the rod."""
    n = surface.normal
    u = point_velocity(before, lever)
    w = before.w
    start = point_velocity(predicted, lever)
    change = point_velocity(after, lever) - start
    c = coefficients(features(u, w, start - u, change, outward, surface, dt, both), weights, first, b)
    s2 = wp.dot(u, u) + _lever * _lever * wp.dot(w, w)
    gate = s2 / (s2 + _gate2)
    share = gate * wp.sqrt(wp.dot(change, change) / (s2 + _tiny2) + _tiny2)
    un = wp.dot(u, n)
    wn = wp.dot(w, n)
    dn = wp.dot(change, n)
    slip = share * (c[0] * (u - un * n) + (c[1] * _lever) * wp.cross(w, n)) + (gate * c[3]) * (change - dn * n)
    impulse = resist(lever, slip + (share * c[2] * un + gate * c[4] * dn) * n)
    out = Twist()
    out.v = lever.im * impulse
    out.w = spin_up(lever, impulse) + share * (c[5] * (w - wn * n) + (c[6] * wn) * n)
    return out


@wp.func
def cap_correction(
    before: Twist,
    predicted: Twist,
    after: Twist,
    side: wp.float64,
    surface: GroundPoint,
    both: wp.float64,
    foot: Footing,
    dt: wp.float64,
    weights: wp.array2d(dtype=wp.float64),
    first: int,
    b: int,
):
    """Change of the rod's twist by the correction at the cap at side h z; zero where it does not touch."""
    out = Twist()
    if surface.gap < _margin:
        lever = lever_of_end(side, surface, foot, foot.mobility.along)
        out = correction_at(before, predicted, after, lever, side * foot.z, surface, both, dt, weights, first, b)
    return out


@wp.func
def corrected(
    before: Twist,
    predicted: Twist,
    after: Twist,
    foot: Footing,
    dt: wp.float64,
    weights: wp.array2d(dtype=wp.float64),
    first: int,
    b: int,
):
    """Twist of a rod after the contact law and the correction; its weights are columns of `weights` from `first` on."""
    both = _zero
    if foot.s0.gap < _margin and foot.s1.gap < _margin:
        both = _one
    d0 = cap_correction(before, predicted, after, -_one, foot.s0, both, foot, dt, weights, first, b)
    d1 = cap_correction(before, predicted, after, _one, foot.s1, both, foot, dt, weights, first, b)
    out = Twist()
    out.v = after.v + d0.v + d1.v
    out.w = after.w + d0.w + d1.w
    return out
