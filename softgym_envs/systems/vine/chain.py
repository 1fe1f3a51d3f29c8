"""The quadratic program of a planar chain in O(N): a linear-quadratic regulator along the body, in Warp functions.

Link i starts at a point that moves with e_i and turns at w_i; the next one starts at a point that moves with

    e_{i+1} = e_i + k_i + b_i w_i,          e_0 and w_{-1} given at the base

(b_i = length x normal; k_i a drift feedback, zero in minimal coordinates). The velocities minimise a sum of stages

    1/2 m |e_i|^2 + w_i g_i . e_i + 1/2 I w_i^2 + l_i . e_i + q_i w_i + 1/2 s_i (w_i - w_{i-1})^2 + t_i (w_i - w_{i-1}):

mass, momentum and forces of the link, implicit spring and damper s and moment t of the joint at its near end. With x_i = (e_i,
w_{i-1}) that is a regulator with three states and one control: `backward` (Riccati) from the tip to the base gives the feedback
w_i = -ke . e_i - kw w_{i-1} + f, `forward` the velocities. No matrix is built, and there is no iteration.

A row d . e_i + beta w_i (a contact, in any direction) has as its response to impulses the covariance of this regulator driven
by noise of variance 1/H on every control: `spread` carries the covariance of x forwards, `respond` a row's sensitivity
backwards, so that the small matrix W = A M^-1 A' of all rows costs O(N) per row.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))


@wp.struct
class LinkStage:
    """Cost and transition of one link; see the module docstring."""

    m: wp.float64
    """Mass [kg]."""
    g: wp.vec2d
    """First moment of mass along the normal [kg m]."""
    inertia: wp.float64
    """Moment of inertia about the near end [kg m^2]."""
    le: wp.vec2d
    """Minus linear momentum [kg m/s]."""
    lw: wp.float64
    """Minus angular momentum about the near end [kg m^2/s]."""
    stiff: wp.float64
    """Joint: h^2 stiffness + h damping [N m s^2]."""
    turn: wp.float64
    """Joint: h moment that resists w_i - w_{i-1} [N m s]."""
    b: wp.vec2d
    """[m]"""
    k: wp.vec2d
    """[m/s]"""


@wp.struct
class Value:
    """Cost to go 1/2 x' P x + p' x, x = (e, w): P = [[ee, ew], [ew', ww]]."""

    xx: wp.float64
    xy: wp.float64
    yy: wp.float64
    ew: wp.vec2d
    ww: wp.float64
    pe: wp.vec2d
    pw: wp.float64


@wp.struct
class Gain:
    """Feedback of one link: w = -ke . e - kw w_before + f; h is H, inverse is 1/H; b and k as in `LinkStage`."""

    ke: wp.vec2d
    kw: wp.float64
    f: wp.float64
    h: wp.float64
    inverse: wp.float64
    b: wp.vec2d
    k: wp.vec2d


@wp.struct
class EndMotion:
    """x = (e, w): velocity of a link's near end, and rate of the link before."""

    e: wp.vec2d
    w: wp.float64


@wp.struct
class MotionCovariance:
    """Covariance of x = (e, w): ee by its entries xx, xy, yy."""

    xx: wp.float64
    xy: wp.float64
    yy: wp.float64
    ew: wp.vec2d
    ww: wp.float64


@wp.func
def times(xx: wp.float64, xy: wp.float64, yy: wp.float64, v: wp.vec2d):
    """Symmetric 2 x 2 matrix times a vector."""
    return wp.vec2d(xx * v[0] + xy * v[1], xy * v[0] + yy * v[1])


@wp.func
def feedback(v: Value, s: LinkStage):
    """H = d^2 cost / dw^2, ke = H_ew / H, kw = -s / H, f = -(p_w + ...) / H, with v the cost to go after the link."""
    pb = times(v.xx, v.xy, v.yy, s.b)
    pk = times(v.xx, v.xy, v.yy, s.k) + v.pe
    h = wp.dot(s.b, pb) + _two * wp.dot(s.b, v.ew) + v.ww + s.inertia + s.stiff
    linear = wp.dot(s.b, pk) + v.pw + wp.dot(v.ew, s.k) + s.lw + s.turn
    gain = Gain()
    gain.h = h
    gain.inverse = _one / h
    gain.ke = (pb + v.ew + s.g) * gain.inverse
    gain.kw = -s.stiff * gain.inverse
    gain.f = -linear * gain.inverse
    gain.b = s.b
    gain.k = s.k
    return gain


@wp.func
def backward(v: Value, s: LinkStage, gain: Gain):
    """Cost to go before: P_ee = H_ee - H ke ke', P_ew = s ke, P_ww = s (1 + kw), p_e = h_e + H ke f, p_w = -t - s f."""
    h = gain.h
    out = Value()
    out.xx = v.xx + s.m - h * gain.ke[0] * gain.ke[0]
    out.xy = v.xy - h * gain.ke[0] * gain.ke[1]
    out.yy = v.yy + s.m - h * gain.ke[1] * gain.ke[1]
    out.ew = s.stiff * gain.ke
    out.ww = s.stiff * (_one + gain.kw)
    out.pe = v.pe + times(v.xx, v.xy, v.yy, s.k) + s.le + (h * gain.f) * gain.ke
    out.pw = -s.turn - s.stiff * gain.f
    return out


@wp.func
def forward(x: EndMotion, gain: Gain):
    """x_{i+1} = (e + k + b w, w)."""
    w = gain.f - wp.dot(gain.ke, x.e) - gain.kw * x.w
    out = EndMotion()
    out.e = x.e + gain.k + w * gain.b
    out.w = w
    return out


@wp.func
def spread(c: MotionCovariance, gain: Gain):
    """Covariance of x_{i+1} from that of x_i: control noise of variance 1/H, closed loop."""
    a = -times(c.xx, c.xy, c.yy, gain.ke) - gain.kw * c.ew
    variance = gain.inverse - wp.dot(gain.ke, a) + gain.kw * (wp.dot(gain.ke, c.ew) + gain.kw * c.ww)
    b = gain.b
    out = MotionCovariance()
    out.xx = c.xx + _two * a[0] * b[0] + variance * b[0] * b[0]
    out.xy = c.xy + a[0] * b[1] + a[1] * b[0] + variance * b[0] * b[1]
    out.yy = c.yy + _two * a[1] * b[1] + variance * b[1] * b[1]
    out.ew = a + variance * b
    out.ww = variance
    return out


@wp.func
def covary(c: MotionCovariance, r: wp.vec3d):
    """Covariance times a row r = (d, beta) on x."""
    d = wp.vec2d(r[0], r[1])
    e = times(c.xx, c.xy, c.yy, d) + r[2] * c.ew
    return wp.vec3d(e[0], e[1], wp.dot(c.ew, d) + r[2] * c.ww)


@wp.func
def respond(r: wp.vec3d, gain: Gain):
    """Row on x_i that equals row r on x_{i+1}, in closed loop."""
    q = r[0] * gain.b[0] + r[1] * gain.b[1] + r[2]
    return wp.vec3d(r[0] - q * gain.ke[0], r[1] - q * gain.ke[1], -q * gain.kw)


@wp.func
def impulse(p: wp.vec3d, at_e: wp.vec2d, at_w: wp.float64, gain: Gain):
    """Linear cost (pe, pw) before a link, and the change of its f, from p after it and impulses (at_e, at_w) on the link."""
    linear = gain.b[0] * p[0] + gain.b[1] * p[1] + p[2] - at_w
    df = -linear * gain.inverse
    return wp.vec3d(p[0] - at_e[0] - gain.ke[0] * linear, p[1] - at_e[1] - gain.ke[1] * linear, -gain.kw * linear), df


@wp.func
def mark_diverged(
    b: int, first: int, last: int, limit: wp.float64, state: wp.array2d(dtype=wp.float64), status: wp.array(dtype=wp.float64)
):
    """Row b has diverged if an entry first ... last - 1 is not below `limit`."""
    for x in range(first, last):
        status[b] = wp.where(wp.abs(state[b, x]) < limit, status[b], _one)


@wp.func
def record(
    b: int,
    t: int,
    first: int,
    last: int,
    limit: wp.float64,
    state: wp.array2d(dtype=wp.float64),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """Write the end of control step t of row b: the state, or the last good one if the row has diverged, now or before."""
    mark_diverged(b, first, last, limit, state, status)
    for x in range(state.shape[1]):
        states[b, t + 1, x] = wp.where(status[b] == _zero, state[b, x], states[b, t, x])
