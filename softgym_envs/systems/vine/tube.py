"""The tube: its parameters, bending moments, and the force that drives its growth.

Bending of an inflated beam that wrinkles: `bending`, [Comer1963].

Growth at speed v of a robot of length L takes, as in [Blumenschein2017], the pressure

    P A = [P_y + (v / phi)^(1/n)] A + q L + C (exp(mu_c Theta) - 1),    Theta = sum |dtheta|

with A = pi R^2, q the tail's friction per length and mu_c its friction around bends. What P A exceeds this by accelerates wall
and tail, 2 rho L dv/dt, and pushes obstacles at the tip. Two things differ from the source. All bends count as one, where it
adds C exp(mu_c Theta_i) of every bend i. C of a straight robot is a part of P_y A, so that the first bend costs no jump.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from math import pi

import warp as wp

from .bending import SERIES
from .parameters import RATE_SPEED, VineParameters

_C = {name: wp.constant(VineParameters.index(name)) for name in VineParameters.names()}
EI, BEND_DAMP, DENSITY, DRAG, PRESSURE = (
    _C[name] for name in ("bending_stiffness", "bending_damping", "linear_density", "drag", "pressure")
)
YIELD, RATE, RATE_POWER = (_C[name] for name in ("yield_pressure", "rate_pressure", "rate_power"))
TAIL_DRAG, BEND_DRAG, TAIL_FRICTION, FRICTION = (_C[name] for name in ("tail_drag", "bend_drag", "tail_friction", "friction"))
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
_three_halves = wp.constant(wp.float64(1.5))
_s0, _s1, _s2, _s3, _s4, _s5, _s6, _s7, _s8, _s9, _s10, _s11, _s12 = (wp.constant(wp.float64(c)) for c in SERIES)
_rate_speed = wp.constant(wp.float64(RATE_SPEED))
_least_speed = wp.constant(wp.float64(1e-2 * RATE_SPEED))
_least_force = wp.constant(wp.float64(1e-9))


@wp.struct
class TubeData:
    """Parameters of one row."""

    ei: wp.float64
    damp: wp.float64
    rho: wp.float64
    drag: wp.float64
    wrinkle: wp.float64
    """Moment at which the tube begins to wrinkle, pi P R^3 / 2 [N m]."""
    head: wp.float64
    """Force of the pressure that is available for growth, A max(0, P - P_y) [N]."""
    rate: wp.float64
    """Force that growth at RATE_SPEED takes beyond the least one [N]."""
    power: wp.float64
    """n"""
    tail_drag: wp.float64
    bend_drag: wp.float64
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
def read_body(parameter_values: wp.array2d(dtype=wp.float64), b: int, radius: wp.float64):
    """Row b's parameters."""
    body = TubeData()
    body.ei = parameter_values[b, EI]
    body.damp = parameter_values[b, BEND_DAMP]
    body.rho = parameter_values[b, DENSITY]
    body.drag = parameter_values[b, DRAG]
    body.wrinkle = _half * _pi * parameter_values[b, PRESSURE] * radius * radius * radius
    body.head = _pi * radius * radius * wp.max(_zero, parameter_values[b, PRESSURE] - parameter_values[b, YIELD])
    body.rate = _pi * radius * radius * parameter_values[b, RATE]
    body.power = parameter_values[b, RATE_POWER]
    body.tail_drag = parameter_values[b, TAIL_DRAG]
    body.bend_drag = parameter_values[b, BEND_DRAG]
    body.tail_friction = parameter_values[b, TAIL_FRICTION]
    body.mu = parameter_values[b, FRICTION]
    body.gain = parameter_values[b, GAIN]
    body.full = parameter_values[b, FULL]
    angle = parameter_values[b, GRAVITY_ANGLE]
    body.gravity = parameter_values[b, GRAVITY] * wp.vec2d(wp.sin(angle), -wp.cos(angle))
    body.turn = parameter_values[b, TURN]
    body.clamp = parameter_values[b, CLAMP]
    body.tip_mass = parameter_values[b, TIP_MASS]
    body.tip_offset = parameter_values[b, TIP_OFFSET]
    body.share = wp.vec2d(parameter_values[b, RELAX], parameter_values[b, CREEP])
    body.time = wp.vec2d(parameter_values[b, RELAX_TIME], parameter_values[b, CREEP_TIME])
    body.dry = parameter_values[b, DRY]
    return body


@wp.func
def bending_moment(curvature: wp.float64, body: TubeData, wrinkling: int):
    """EI kappa up to M_w = pi P R^3 / 2; beyond, the moment of `bending`."""
    out = body.ei * curvature
    linear = wp.abs(out)
    if wrinkling == 1 and linear > body.wrinkle:
        third = wp.cbrt(body.wrinkle / wp.max(linear, body.wrinkle))
        y = _one - third * third
        s = wp.sqrt(y)
        even = _s0 + y * (_s2 + y * (_s4 + y * (_s6 + y * (_s8 + y * (_s10 + y * _s12)))))
        odd = _s1 + y * (_s3 + y * (_s5 + y * (_s7 + y * (_s9 + y * _s11))))
        out = wp.sign(curvature) * (body.wrinkle * (_one + y * (_three_halves + s * (even + s * odd))))
    return out


@wp.func
def muscle_moment(curvature: wp.float64, left: wp.float64, right: wp.float64, body: TubeData):
    """G p max(0, 1 - kappa / kappa_full) of the left muscle minus the same of the right one at -kappa."""
    return body.gain * (
        left * wp.max(_zero, _one - curvature / body.full) - right * wp.max(_zero, _one + curvature / body.full)
    )


@wp.func
def growth_force(bends: wp.float64, length: wp.float64, body: TubeData):
    """max(0, A (P - P_y) - q L - C (exp(mu_c Theta) - 1)): what is left for growth at no speed [N]."""
    around = body.bend_drag * (wp.exp(body.tail_friction * bends) - _one)
    return wp.max(_zero, body.head - body.tail_drag * length - around)


@wp.func
def growth_inertia(growth: wp.float64, force: wp.float64, length: wp.float64, h: wp.float64, body: TubeData):
    """2 rho L + h c [kg], c v = A (v / phi)^(1/n): the force of the speed, implicit, with c of the last step's speed.

    At rest, c is that of the speed that the force reaches.
    """
    damper = body.rate / _rate_speed
    if body.power != _one:
        reached = wp.pow(force / wp.max(body.rate, _least_force), body.power) * _rate_speed
        speed = wp.max(_least_speed, wp.where(growth > _least_speed, growth, reached))
        damper = damper * wp.pow(speed / _rate_speed, _one / body.power - _one)
    return _two * body.rho * length + h * damper
