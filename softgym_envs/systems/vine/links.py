"""Links of the vine robot: their places, and each one's cost and transition in the step's quadratic program.

A link of mass m = rho l at half its length; the joint at its near end has the bending moment, the muscles' moment and, in a
`viscoelastic` body, springs with dashpots. A damper below h x the spring's slope / 2 would not be stable: see `IMPLICIT`.
Dry friction, M_d w / |w| of a joint that bends at w, is a damper of M_d / (|w| + `DRY_RATE` x spacing) with w of the last step:
it holds, except for a slow creep, and takes energy at any step.
The whole step stands in `stepping`. Legend: B batch, N links.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from math import factorial

import warp as wp

from .chain import LinkStage
from .memory import LinkState, Size
from .tube import TubeData, bending_moment, muscle_moment

IMPLICIT = 0.6
"""Least damper of a joint over h x its spring's slope: 1/2 is stable but lets the fastest modes ring, 1 is implicit Euler."""

DRY_RATE = 0.01
"""[1/(m s)] Rate of a curvature at which dry friction has half its moment."""

_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_quarter = wp.constant(wp.float64(0.25))
_twelfth = wp.constant(wp.float64(1.0 / 12.0))
_slack = wp.constant(wp.float64(1e-9))
_implicit = wp.constant(wp.float64(IMPLICIT))
_slow = wp.constant(wp.float64(DRY_RATE))
_c2, _c3, _c4, _c5, _c6, _c7, _c8, _c9 = (wp.constant(wp.float64(1.0 / factorial(n))) for n in range(2, 10))


@wp.func
def tip_link(length: wp.float64, size: Size):
    """n - 1 for n = floor(L / l) in 1 ... N, as a number: rows that run together differ in it."""
    return wp.clamp(wp.floor(length / size.link + _slack), _one, wp.float64(size.links)) - _one


@wp.func_native(
    """
#ifdef SOFTGYM_LANES
    return wp::largest(tip) + 1;
#else
    return int32_t(tip) + 1;
#endif
    """
)
def links_up_to(tip: wp.float64) -> int:  # type: ignore[empty-body]
    """n for the tip link n - 1; the largest among rows that run together."""


@wp.func_native(
    """
#ifdef SOFTGYM_LANES
    return wp::float64(i) <= tip;
#else
    return true;
#endif
    """
)
def is_there(i: int, tip: wp.float64) -> bool:  # type: ignore[empty-body]
    """Whether link i of the first `links_up_to(tip)` is the row's: always true for a row that runs alone, without a test."""


@wp.func
def count_links(length: wp.float64, size: Size):
    """n = floor(L / l) in 1 ... N, of one row."""
    return links_up_to(tip_link(length, size))


@wp.func
def turned(t: wp.vec2d, angle: wp.float64):
    """A vector turned by an angle; by Taylor series where that is small."""
    y = angle * angle
    c = _one
    s = angle + _zero
    if y < wp.float64(2.5e-3):  # the first term left out is below 1e-20
        c = _one - y * (_c2 - y * (_c4 - y * (_c6 - y * _c8)))
        s = angle * (_one - y * (_c3 - y * (_c5 - y * (_c7 - y * _c9))))
    else:
        c = wp.cos(angle)
        s = wp.sin(angle)
    return wp.vec2d(c * t[0] - s * t[1], s * t[0] + c * t[1])


@wp.func
def read_links(
    row: int,
    tip: wp.float64,
    lag: wp.float64,
    size: Size,
    body: TubeData,
    state: wp.array2d(dtype=wp.float64),
    links: wp.array2d(dtype=LinkState),
):
    """Places of the links; V of each centre of mass with the directions of one `lag` [s] earlier. -> sum of |bends| [rad]."""
    p = size.base
    e = wp.vec2d(_zero, _zero)
    before = size.heading + body.turn
    bends = wp.float64(0.0)
    for i in range(links_up_to(tip)):
        theta = state[row, i]
        omega = state[row, size.links + i]
        length = size.link
        if wp.float64(i) == tip:
            length = state[row, 2 * size.links] - tip * size.link
        link = LinkState()
        link.p = p
        link.t = wp.vec2d(wp.cos(theta), wp.sin(theta))
        link.length = length
        earlier = turned(link.t, -lag * omega)
        across = wp.vec2d(-earlier[1], earlier[0])
        arm = (length * omega) * across
        link.v = e + _half * arm
        link.u = e + (length + body.tip_offset) * omega * across
        links[row, i] = link
        p = p + length * link.t
        e = e + arm
        if is_there(i, tip):
            bends = bends + wp.abs(theta - before)
        before = theta
    return bends


@wp.func
def spacing_of(i: int, length: wp.float64, size: Size, body: TubeData):
    """Length of body that the joint at the near end of link i represents [m]."""
    if i == 0:
        return _half * length + body.clamp
    return _half * (length + size.link)


@wp.func
def bear(s: LinkStage, link: LinkState, h: wp.float64, body: TubeData):
    """The stage of the tip link with a point mass ahead of its end."""
    normal = wp.vec2d(-link.t[1], link.t[0])
    arm = link.length + body.tip_offset
    momentum = body.tip_mass * (link.u + h * body.gravity)
    s.m = s.m + body.tip_mass
    s.g = s.g + (arm * body.tip_mass) * normal
    s.inertia = s.inertia + body.tip_mass * arm * arm
    s.le = s.le - momentum
    s.lw = s.lw - arm * wp.dot(normal, momentum)
    return s


@wp.func
def remembered(row: int, i: int, bend: wp.float64, size: Size, body: TubeData, state: wp.array2d(dtype=wp.float64)):
    """Bend of joint i that its springs with dashpots still feel, times their shares of EI [rad]."""
    if size.memory < 0:
        return _zero
    x = size.memory + 2 * i
    return body.share[0] * (bend - state[row, x]) + body.share[1] * (bend - state[row, x + 1])


@wp.func
def stage_of(
    row: int,
    i: int,
    tip: wp.float64,
    h: wp.float64,
    size: Size,
    body: TubeData,
    state: wp.array2d(dtype=wp.float64),
    links: wp.array2d(dtype=LinkState),
):
    """Cost and transition of link i; see `chain.LinkStage` and `stepping`."""
    link = links[row, i]
    theta = state[row, i]
    omega = state[row, size.links + i]
    before = size.heading + body.turn
    bending = omega
    if i > 0:
        before = state[row, i - 1]
        bending = omega - state[row, size.links + i - 1]
    spacing = spacing_of(i, link.length, size, body)
    m = body.rho * link.length
    heavy = m + h * body.drag * link.length
    normal = wp.vec2d(-link.t[1], link.t[0])
    spin = link.length * link.length * _twelfth + _half * size.radius * size.radius
    momentum = m * (link.v + h * body.gravity)
    s = LinkStage()
    s.m = heavy
    s.g = (_half * link.length * heavy) * normal
    s.inertia = heavy * (_quarter * link.length * link.length + spin)
    s.le = -momentum
    s.lw = -_half * link.length * wp.dot(normal, momentum) - m * spin * omega
    s.b = link.length * normal
    curvature = (theta - before) / spacing
    left = wp.float64(0.0)
    right = wp.float64(0.0)
    if size.sections > 0:
        pressures = 2 * size.links + 2 + 2 * (i * size.sections // size.links)
        left = state[row, pressures]
        right = state[row, pressures + 1]
    lasting = bending_moment(curvature, body, size.wrinkling) - muscle_moment(curvature, left, right, body)
    s.turn = h * (lasting + body.ei * remembered(row, i, theta - before, size, body, state) / spacing)
    slope = body.ei + body.gain * (left + right) / body.full
    if size.memory >= 0:
        slope += body.ei * (body.share[0] + body.share[1])
    s.stiff = h * wp.max(body.damp, _implicit * h * slope) / spacing
    s.stiff += h * body.dry / (wp.abs(bending) + _slow * spacing)
    if wp.float64(i) == tip:
        s = bear(s, link, h, body)
    return s
