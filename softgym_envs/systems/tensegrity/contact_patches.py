"""One soft pad of mode patch: its impulse and angular impulse, its energy and the second derivative of that; see `contact`."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .contact import CONTACT_MARGIN, ContactData
from .rods import Twist

LEAST_FRICTION = 1e-3
"""mu of a patch is at least this, so that its energy has a second derivative."""

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_least_friction = wp.constant(wp.float64(LEAST_FRICTION))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.struct
class Pad:
    """One pad in the energy: stiffness k = 1/rho (0: does not touch), lever r, normal, and the target t."""

    k: wp.float64
    r: wp.vec3d
    normal: wp.vec3d
    t: wp.vec3d


@wp.struct
class Patch:
    """Data that both pads of a rod share: mu, l, and the target t_w of the rotation."""

    mu: wp.float64
    reach: wp.float64
    tw: wp.vec3d


@wp.struct
class Wrench:
    """Impulse and angular impulse of one contact on a rod, at the contact point, and the energy of the pad."""

    J: wp.vec3d
    M: wp.vec3d
    energy: wp.float64


@wp.struct
class Hessian:
    """Second derivative of the energy, or of its kinetic part (mass and inertia); symmetric, in blocks of v and w."""

    vv: wp.mat33d
    vw: wp.mat33d
    ww: wp.mat33d


@wp.func
def skew(r: wp.vec3d):
    """[r] with [r] w = r x w."""
    return wp.mat33d(_zero, -r[2], r[1], r[2], _zero, -r[0], -r[1], r[0], _zero)


@wp.func
def diagonal(x: wp.float64):
    """X times the identity."""
    return wp.mat33d(x, _zero, _zero, _zero, x, _zero, _zero, _zero, x)


@wp.func
def pad_at(before: Twist, r: wp.vec3d, gap: wp.float64, normal: wp.vec3d, contact: ContactData):
    """The pad at a contact point: eqs (1) and (3) on the velocity before the step; e acts both ways, as a pad's damper."""
    out = Pad()
    if gap < _margin:
        v = before.v + wp.cross(before.w, r)
        vn = wp.dot(v, normal)
        out.k = _one / contact.rho
        out.r = r
        out.normal = normal
        out.t = (-contact.restitution * vn - contact.beta * gap / contact.dt) * normal + contact.gamma * (v - vn * normal)
    return out


@wp.func
def pad_wrench(twist: Twist, pad: Pad, patch: Patch):
    """The (J, M) in the cone that minimises rho/2 (|J|^2 + mu^2/l^2 |M|^2) - J.e - M.e_w, where (e, e_w) = target - velocity.

    With N = n.e and T^2 = mu^2 |e_t|^2 + l^2 |e_w|^2: the free minimum (J, M) = (e, l^2/mu^2 e_w) / rho lies in the cone if
    T <= mu^2 N; if N + T <= 0 the pad separates; else it slides, J_n = (N + T) / rho (1 + mu^2), J_t = J_n mu^2 e_t / T and
    M = J_n l^2 e_w / T.
    """
    out = Wrench()
    if pad.k > _zero:
        mu2 = patch.mu * patch.mu
        l2 = patch.reach * patch.reach
        e = pad.t - twist.v - wp.cross(twist.w, pad.r)
        ew = patch.tw - twist.w
        N = wp.dot(e, pad.normal)
        et = e - N * pad.normal
        T = wp.sqrt(mu2 * wp.dot(et, et) + l2 * wp.dot(ew, ew) + _tiny * _tiny)
        if T <= mu2 * N:
            out.J = pad.k * e
            out.M = (pad.k * l2 / mu2) * ew
            out.energy = _half * (wp.dot(out.J, e) + wp.dot(out.M, ew))
        elif N + T > _zero:
            j = pad.k * (N + T) / (_one + mu2)
            out.J = j * pad.normal + (j * mu2 / T) * et
            out.M = (j * l2 / T) * ew
            out.energy = _half * j * (N + T)
    return out


@wp.func
def add_pad(hessian: Hessian, twist: Twist, pad: Pad, patch: Patch):
    """Add a pad's second derivative, C = d(J, M) / d(e, e_w), moved to the rod's centre."""
    out = hessian
    if pad.k > _zero:
        mu2 = patch.mu * patch.mu
        l2 = patch.reach * patch.reach
        e = pad.t - twist.v - wp.cross(twist.w, pad.r)
        ew = patch.tw - twist.w
        N = wp.dot(e, pad.normal)
        et = e - N * pad.normal
        T = wp.sqrt(mu2 * wp.dot(et, et) + l2 * wp.dot(ew, ew) + _tiny * _tiny)
        Cvv = wp.mat33d()
        Cvw = wp.mat33d()
        Cww = wp.mat33d()
        if T <= mu2 * N:
            Cvv = diagonal(pad.k)
            Cww = diagonal(pad.k * l2 / mu2)
        elif N + T > _zero:
            k = pad.k / (_one + mu2)
            bend = k * (N + T) / T
            a = (mu2 / T) * et
            b = (l2 / T) * ew
            d = pad.normal + a
            plane = diagonal(_one) - wp.outer(pad.normal, pad.normal)
            Cvv = k * wp.outer(d, d) + bend * (mu2 * plane - wp.outer(a, a))
            Cvw = k * wp.outer(d, b) - bend * wp.outer(a, b)
            Cww = k * wp.outer(b, b) + bend * (diagonal(l2) - wp.outer(b, b))
        R = skew(pad.r)
        cross = R * Cvw
        out.vv = hessian.vv + Cvv
        out.vw = hessian.vw + Cvw - Cvv * R
        out.ww = hessian.ww + Cww + cross + wp.transpose(cross) - R * Cvv * R
    return out


@wp.func
def rod_patch(before: wp.vec3d, contact: ContactData):
    """Data that the pads of a rod (or of a pair) share; `before` is the (relative) angular velocity."""
    out = Patch()
    out.mu = wp.max(contact.mu, _least_friction)
    out.reach = contact.reach
    out.tw = contact.pivot * before
    return out


@wp.struct
class Pair:
    """Two rods that touch: their places in the group, the contact point from each centre, free (1) or held (0), and the pad."""

    first: int
    second: int
    to1: wp.vec3d
    to2: wp.vec3d
    free1: wp.float64
    free2: wp.float64
    pad: Pad
    patch: Patch


@wp.func
def relative_twist(t1: Twist, t2: Twist, to1: wp.vec3d, to2: wp.vec3d):
    """Twist of rod 1 as seen from rod 2, at the contact point."""
    out = Twist()
    out.v = t1.v + wp.cross(t1.w, to1) - t2.v - wp.cross(t2.w, to2)
    out.w = t1.w - t2.w
    return out


@wp.func
def pair_pad(before: Twist, gap: wp.float64, normal: wp.vec3d, contact: ContactData):
    """The pad between two rods, for the relative twist at their contact point: two in series, so 2 rho."""
    out = pad_at(before, wp.vec3d(_zero, _zero, _zero), gap, normal, contact)
    out.k = _half * out.k
    return out
