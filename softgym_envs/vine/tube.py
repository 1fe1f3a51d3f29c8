"""The tube: its constants, bending moments, and the force that drives its growth.

Bending of an inflated beam that wrinkles: [Comer1963]; eversion force: [Blumenschein2017].
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from math import pi

import warp as wp

from .parameters import VineParameters

_C = {name: wp.constant(VineParameters.index(name)) for name in VineParameters.names()}
EI, BEND_DAMP, DENSITY, DRAG, PRESSURE = (
    _C[name] for name in ("bending_stiffness", "bending_damping", "linear_density", "drag", "pressure")
)
YIELD, TAIL_DRAG, TAIL_FRICTION, FRICTION = (_C[name] for name in ("yield_pressure", "tail_drag", "tail_friction", "friction"))
GAIN, FULL, GRAVITY = (_C[name] for name in ("steering_gain", "steering_curvature", "gravity"))
GRAVITY_ANGLE, TURN, CLAMP = (_C[name] for name in ("gravity_angle", "base_turn", "clamp_length"))
TIP_MASS, TIP_OFFSET = (_C[name] for name in ("tip_mass", "tip_offset"))
RELAX, RELAX_TIME, CREEP, CREEP_TIME = (_C[name] for name in ("relaxation", "relaxation_time", "creep", "creep_time"))
DRY = _C["bending_friction"]

_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_pi = wp.constant(wp.float64(pi))


@wp.struct
class Body:
    """Constants of one row."""

    ei: wp.float64
    damp: wp.float64
    rho: wp.float64
    drag: wp.float64
    wrinkle: wp.float64
    """Moment at which the tube begins to wrinkle, pi P R^3 / 2 [N m]."""
    head: wp.float64
    """Force of the pressure that is available for growth, A max(0, P - P_y) [N]."""
    tail_drag: wp.float64
    tail_friction: wp.float64
    mu: wp.float64
    gain: wp.float64
    full: wp.float64
    gravity: wp.vec2d
    turn: wp.float64
    clamp: wp.float64
    tip_mass: wp.float64
    """Mass at the tip, with the load [kg]."""
    tip_offset: wp.float64
    share: wp.vec2d
    """Stiffness of the fast and of the slow memory, over EI; 0 where the body has none."""
    time: wp.vec2d
    """Their time constants [s]."""
    dry: wp.float64
    """Moment of dry friction [N m]."""


@wp.func
def read_body(constants: wp.array2d(dtype=wp.float64), b: int, radius: wp.float64):
    """Row b's constants."""
    body = Body()
    body.ei = constants[b, EI]
    body.damp = constants[b, BEND_DAMP]
    body.rho = constants[b, DENSITY]
    body.drag = constants[b, DRAG]
    body.wrinkle = _half * _pi * constants[b, PRESSURE] * radius * radius * radius
    body.head = _pi * radius * radius * wp.max(_zero, constants[b, PRESSURE] - constants[b, YIELD])
    body.tail_drag = constants[b, TAIL_DRAG]
    body.tail_friction = constants[b, TAIL_FRICTION]
    body.mu = constants[b, FRICTION]
    body.gain = constants[b, GAIN]
    body.full = constants[b, FULL]
    angle = constants[b, GRAVITY_ANGLE]
    body.gravity = constants[b, GRAVITY] * wp.vec2d(wp.sin(angle), -wp.cos(angle))
    body.turn = constants[b, TURN]
    body.clamp = constants[b, CLAMP]
    body.tip_mass = constants[b, TIP_MASS]
    body.tip_offset = constants[b, TIP_OFFSET]
    body.share = wp.vec2d(constants[b, RELAX], constants[b, CREEP])
    body.time = wp.vec2d(constants[b, RELAX_TIME], constants[b, CREEP_TIME])
    body.dry = constants[b, DRY]
    return body


@wp.func
def bending_moment(curvature: wp.float64, body: Body, wrinkling: int):
    """EI kappa up to M_w = pi P R^3 / 2; beyond, M(g) of [Comer1963] with the wrinkled angle g, cos g = 2 kappa_w / kappa - 1.

    M(g) = M_w (sin 2g + 2 pi - 2g) / (2 (sin g + (pi - g) cos g)), which rises from M_w to 2 M_w.
    """
    out = body.ei * curvature
    size = wp.abs(curvature)
    onset = body.wrinkle / body.ei
    if wrinkling == 1 and size > onset:
        c = _two * onset / size - _one
        s = wp.sqrt(wp.max(_zero, _one - c * c))
        rest = wp.atan2(s, -c)  # pi - g
        below = s + rest * c
        moment = _two * body.wrinkle
        if rest > wp.float64(1e-3):  # below ~ rest^3 / 3 loses its digits
            moment = body.wrinkle * (_two * s * c + _two * rest) / (_two * below)
        out = wp.sign(curvature) * moment
    return out


@wp.func
def muscle_moment(curvature: wp.float64, left: wp.float64, right: wp.float64, body: Body):
    """G p max(0, 1 - kappa / kappa_full) of the left muscle minus the same of the right one at -kappa."""
    return body.gain * (
        left * wp.max(_zero, _one - curvature / body.full) - right * wp.max(_zero, _one + curvature / body.full)
    )


@wp.func
def growth_force(bends: wp.float64, length: wp.float64, body: Body):
    """F = max(0, A (P - P_y) - q L exp(mu_c sum |dtheta|)): pressure minus the tail's drag, which grows around bends."""
    return wp.max(_zero, body.head - body.tail_drag * length * wp.exp(body.tail_friction * bends))
