"""Contact points of two rods, each a capsule with a sphere at either end.

Legend: r1, r2 numbers of the two rods; s, t places on their axes [m].
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .contact import CONTACT_MARGIN
from .memory import RodWorld, Tape
from .rods import Rod, RodState

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.func
def closest_parameters(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h1: wp.float64, h2: wp.float64):
    """Closest points (s, t) of two segments c1 + s u1, |s| <= h1, and c2 + t u2, |t| <= h2, w = c1 - c2."""
    a = wp.dot(u1, u2)
    d = wp.dot(u1, w)
    e = wp.dot(u2, w)
    denominator = _one - a * a
    s = _zero
    if denominator > wp.float64(1e-9):
        s = wp.clamp((a * e - d) / denominator, -h1, h1)
    t = wp.clamp(e + a * s, -h2, h2)
    s = wp.clamp(a * t - d, -h1, h1)
    return wp.vec2d(s, t)


@wp.func
def far_apart(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h: wp.float64, reach: wp.float64):
    """Cheap proof that two rods of half length <= h are more than `reach` apart, w = c1 - c2.

    Either the planes that hold one rod and are parallel to the other are that far apart, or the second rod's distance
    from the first one's line, at least |w x u1| - h |u1 x u2|, is.
    """
    n = wp.cross(u1, u2)
    n2 = wp.dot(n, n)
    wn = wp.dot(w, n)
    apart = wn * wn > reach * reach * n2
    if not apart:
        off = wp.cross(w, u1)
        bound = reach + h * wp.sqrt(n2 + _tiny * _tiny)
        apart = wp.dot(off, off) > bound * bound
    return apart


@wp.func
def feature_gap(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, s: wp.float64, t: wp.float64, radii: wp.float64):
    """Gap between spheres about the points s u1 and t u2 of two rods, w = c1 - c2."""
    return wp.length(w + s * u1 - t * u2) - radii


@wp.func
def closest_features(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h1: wp.float64, h2: wp.float64, rod: wp.float64, cap: wp.float64):
    """Deepest overlap of two rods, each a capsule with a sphere at either end: (s, t, sum of radii).

    Rod against rod, the four caps against the other rod, and the four pairs of caps.
    """
    best = wp.vec3d(_zero, _zero, _two * rod)
    st = closest_parameters(w, u1, u2, h1, h2)
    best = wp.vec3d(st[0], st[1], _two * rod)
    gap = feature_gap(w, u1, u2, st[0], st[1], _two * rod)
    for side in range(2):
        sign = _two * wp.float64(side) - _one
        s = sign * h1
        t = wp.clamp(wp.dot(u2, w + s * u1), -h2, h2)
        g = feature_gap(w, u1, u2, s, t, rod + cap)
        if g < gap:
            best = wp.vec3d(s, t, rod + cap)
            gap = g
        t2 = sign * h2
        s2 = wp.clamp(wp.dot(u1, t2 * u2 - w), -h1, h1)
        g2 = feature_gap(w, u1, u2, s2, t2, rod + cap)
        if g2 < gap:
            best = wp.vec3d(s2, t2, rod + cap)
            gap = g2
        for other in range(2):
            t3 = (_two * wp.float64(other) - _one) * h2
            g3 = feature_gap(w, u1, u2, s, t3, _two * cap)
            if g3 < gap:
                best = wp.vec3d(s, t3, _two * cap)
                gap = g3
    return best


@wp.func
def are_apart(
    r1: int,
    r2: int,
    now: int,
    rods: wp.array(dtype=Rod),
    bodies: wp.array2d(dtype=RodState),
    axes: wp.array2d(dtype=wp.vec3d),
    reach: wp.float64,
):
    """`far_apart` for two rods of the row."""
    w = bodies[now, r1].p - bodies[now, r2].p
    return far_apart(w, axes[now, r1], axes[now, r2], rods[r2].half, reach)


@wp.func_grad(are_apart)
def adj_are_apart(
    r1: int,
    r2: int,
    now: int,
    rods: wp.array(dtype=Rod),
    bodies: wp.array2d(dtype=RodState),
    axes: wp.array2d(dtype=wp.vec3d),
    reach: wp.float64,
    adjoint: bool,
):
    """Do nothing: a decision has no derivative."""


@wp.struct
class Meeting:
    """Closest points of two rods: gap (1 if far apart), normal from rod 2 to rod 1, and the contact point from each centre."""

    gap: wp.float64
    normal: wp.vec3d
    to1: wp.vec3d
    to2: wp.vec3d


@wp.func
def meeting_at(feature: wp.vec3d, between: wp.vec3d, distance: wp.float64, u1: wp.vec3d, u2: wp.vec3d):
    """Contact point of two rods, from their closest features."""
    out = Meeting()
    out.gap = distance - feature[2]
    share = _half * (feature[2] + out.gap)
    out.normal = between / distance
    out.to1 = feature[0] * u1 - share * out.normal
    out.to2 = feature[1] * u2 + share * out.normal
    return out


@wp.func
def closest_meeting(
    apart: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h1: wp.float64, h2: wp.float64, rod: wp.float64, cap: wp.float64
):
    """The deepest overlap of two rods with axes u1, u2 whose centres are `apart`, if there is one."""
    feature = closest_features(apart, u1, u2, h1, h2, rod, cap)
    between = apart + feature[0] * u1 - feature[1] * u2
    distance = wp.length(between)
    out = Meeting()
    out.gap = _one
    if distance - feature[2] < _margin and distance > _tiny:
        out = meeting_at(feature, between, distance, u1, u2)
    return out


@wp.func
def meeting_of(r1: int, r2: int, now: int, world: RodWorld, tape: Tape):
    """The deepest overlap of two rods; the contact point lies in its middle."""
    out = Meeting()
    out.gap = _one
    if not are_apart(r1, r2, now, world.rods, tape.bodies, tape.axes, _two * world.cap_radius + _margin):
        apart = tape.bodies[now, r1].p - tape.bodies[now, r2].p
        u1 = tape.axes[now, r1]
        u2 = tape.axes[now, r2]
        out = closest_meeting(apart, u1, u2, world.rods[r1].half, world.rods[r2].half, world.rod_radius, world.cap_radius)
    return out
