"""Rods as rigid bodies: their state, their frames, how a point of one yields to an impulse, and how they move.

Legend: r from the rod's centre to the point, z the rod's axis.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from math import factorial

import warp as wp

from ...engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_half = wp.constant(wp.float64(0.5))
_c2, _c3, _c4, _c5, _c6, _c7, _c8, _c9 = (wp.constant(wp.float64(1.0 / factorial(n))) for n in range(2, 10))


@wp.struct
class Rod:
    """Properties of a rod: half length, free (1, or 0 if held), m I^-1 across and along the rod, and I_z / I_x - 1."""

    half: wp.float64
    free: wp.float64
    across: wp.float64
    along: wp.float64
    gyro: wp.float64


@wp.struct
class RodState:
    """A rod's 13 entries of the state, in their order: position, quaternion (w, x, y, z), v (world), w (rod frame)."""

    p: wp.vec3d
    q: wp.vec4d
    v: wp.vec3d
    w: wp.vec3d


@wp.struct
class Twist:
    """Velocity of a rod, world frame."""

    v: wp.vec3d
    w: wp.vec3d


@wp.struct
class Mobility:
    """Inverse mass, and inverse inertia across and along the rod; zeros for a rod that is held."""

    mass: wp.float64
    across: wp.float64
    along: wp.float64


@wp.struct
class Lever:
    """A point of a rod and its response: velocity change of the point = K impulse, K = d 1 - it r r' + c s s'."""

    r: wp.vec3d
    s: wp.vec3d
    z: wp.vec3d
    im: wp.float64
    it: wp.float64
    c: wp.float64
    d: wp.float64


# --- frames ------------------------------------------------------------------------------------------------------------


@wp.func
def rotation_of(body: RodState):
    """Quaternion of a rod in Warp's order (x, y, z, w)."""
    return wp.quatd(body.q[1], body.q[2], body.q[3], body.q[0])


@wp.func
def z_axis(q: wp.quatd):
    """Direction of the rod, R (0, 0, 1)."""
    return wp.vec3d(
        _two * (q[0] * q[2] + q[3] * q[1]), _two * (q[1] * q[2] - q[3] * q[0]), _one - _two * (q[0] * q[0] + q[1] * q[1])
    )


@wp.func
def velocity_at(v: wp.vec3d, w: wp.vec3d, body: RodState, r: wp.vec3d):
    """Velocity of a rod's point, from its w in its own frame."""
    return v + wp.cross(wp.quat_rotate(rotation_of(body), w), r)


@wp.func
def twist_of(body: RodState):
    """A rod's twist in the world frame."""
    out = Twist()
    out.v = body.v
    out.w = wp.quat_rotate(rotation_of(body), body.w)
    return out


@wp.func
def in_simulator(twist: Twist, q: wp.quatd):
    """A twist whose w is in the rod's frame, in the world frame."""
    out = Twist()
    out.v = twist.v
    out.w = wp.quat_rotate(q, twist.w)
    return out


@wp.func
def in_frame(twist: Twist, q: wp.quatd):
    """A twist whose w is in the world frame, with w in the rod's."""
    out = Twist()
    out.v = twist.v
    out.w = wp.quat_rotate_inv(q, twist.w)
    return out


# --- levers ------------------------------------------------------------------------------------------------------------


@wp.func
def mobility_of(rod: Rod, inverse_mass: wp.float64):
    """Mobility of a rod: inverse mass and inertia."""
    out = Mobility()
    out.mass = rod.free * inverse_mass
    out.across = rod.across * out.mass
    out.along = rod.along * out.mass
    return out


@wp.func
def lever_at(r: wp.vec3d, z: wp.vec3d, im: wp.float64, it: wp.float64, ia: wp.float64):
    """The point of a rod at r from its centre, with inverse mass and inverse inertia across (it) and along (ia) the rod.

    K = im 1 - [r] I^-1 [r] with I^-1 = it 1 + (ia - it) z z', so K = (im + it r^2) 1 - it r r' + (ia - it) s s', s = r x z.
    """
    lever = Lever()
    lever.r = r
    lever.z = z
    lever.s = wp.cross(r, z)
    lever.im = im
    lever.it = it
    lever.c = ia - it
    lever.d = im + it * wp.dot(r, r)
    return lever


@wp.func
def respond(lever: Lever, impulse: wp.vec3d):
    """K J."""
    return lever.d * impulse - lever.it * wp.dot(lever.r, impulse) * lever.r + lever.c * wp.dot(lever.s, impulse) * lever.s


@wp.func
def resist(lever: Lever, dv: wp.vec3d):
    """K^-1 dv: as r and s are orthogonal, both are eigenvectors of K."""
    along = lever.it / lever.im * wp.dot(lever.r, dv)
    across = lever.c * wp.dot(lever.s, dv) / (lever.d + lever.c * wp.dot(lever.s, lever.s))
    return (_one / lever.d) * (dv + along * lever.r - across * lever.s)


@wp.func
def spin_up(lever: Lever, impulse: wp.vec3d):
    """Change of the rod's angular velocity, I^-1 (r x J), world frame."""
    torque = wp.cross(lever.r, impulse)
    return lever.it * torque + lever.c * wp.dot(lever.z, torque) * lever.z


@wp.func
def after_impulse(twist: Twist, lever: Lever, impulse: wp.vec3d):
    """The rod's velocity after an impulse at the point."""
    out = Twist()
    out.v = twist.v + lever.im * impulse
    out.w = twist.w + spin_up(lever, impulse)
    return out


@wp.func
def point_velocity(twist: Twist, lever: Lever):
    """v + w x r."""
    return twist.v + wp.cross(twist.w, lever.r)


@wp.func
def rotation_step(w: wp.vec3d, dt: wp.float64):
    """exp(dt w / 2) as a quaternion: (cos(x), dt w sin(x) / 2x), x = dt |w| / 2, by Taylor series where x < 0.05."""
    y = wp.float64(0.25) * dt * dt * wp.dot(w, w)
    cosine = _one
    sinc = _one
    if y < wp.float64(2.5e-3):  # the first term left out is below 1e-19
        cosine = _one - y * (_c2 - y * (_c4 - y * (_c6 - y * _c8)))
        sinc = _one - y * (_c3 - y * (_c5 - y * (_c7 - y * _c9)))
    else:
        x = wp.sqrt(y)
        cosine = wp.cos(x)
        sinc = wp.sin(x) / x
    scaled = _half * dt * sinc
    return wp.quatd(scaled * w[0], scaled * w[1], scaled * w[2], cosine)


@wp.func
def moved(body: RodState, q: wp.quatd, v: wp.vec3d, w: wp.vec3d, dt: wp.float64):
    """A rod after the step: q' = q exp(dt w / 2), p' = p + dt v."""
    turned = wp.normalize(q * rotation_step(w, dt))
    out = RodState()
    out.p = body.p + dt * v
    out.q = wp.vec4d(turned[3], turned[0], turned[1], turned[2])
    out.v = v
    out.w = w
    return out
