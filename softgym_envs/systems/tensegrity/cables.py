"""Cables that only pull, and the rods' ends that they pull at, eqs (7)-(8) of [Wang2020] (arXiv 2011.04929)."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .parameters import TensegrityParameters
from .rods import Rod, RodState, rotation_of, z_axis

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
STIFFNESS, DAMPING, REST, MOTOR_GAIN = (_C[name] for name in ("cable_stiffness", "cable_damping", "rest_length", "motor_gain"))

FACTORS = wp.constant(len(TensegrityParameters.names()))
"""Column of the first cable's factor on the stiffness, where cables have their own."""

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))


@wp.struct
class Cable:
    """Parameters of all cables."""

    stiffness: wp.float64
    damping: wp.float64
    rest: wp.float64
    gain: wp.float64


@wp.struct
class CableData:
    """Properties of a cable: nodes, motor or -1, and factors on stiffness (and damping), rest length and motor gain."""

    node0: int
    node1: int
    motor: int
    stiffness: wp.float64
    rest: wp.float64
    gain: wp.float64


@wp.struct
class Node:
    """Position and velocity of a rod's end."""

    p: wp.vec3d
    v: wp.vec3d


@wp.func
def node_at(body: RodState, rod: Rod, axis: wp.vec3d, side: wp.float64):
    """The end of a rod at side h z, side = -1 or 1, h = half length. A held rod has no velocity.

    w x h z = h R (w_y, -w_x, 0), as z is (0, 0, 1) in the rod's frame.
    """
    spin = wp.quat_rotate(rotation_of(body), wp.vec3d(body.w[1], -body.w[0], _zero))
    out = Node()
    out.p = body.p + (side * rod.half) * axis
    out.v = rod.free * (body.v + (side * rod.half) * spin)
    return out


@wp.func
def node_of(row: int, node: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=RodState)):
    """Position and velocity of a node."""
    body = bodies[row, node // 2]
    return node_at(body, rods[node // 2], z_axis(rotation_of(body)), _two * wp.float64(node % 2) - _one)


@wp.func
def cable_constants(parameter_values: wp.array2d(dtype=wp.float64), b: int):
    """Row b's parameters of the cables."""
    cable = Cable()
    cable.stiffness = parameter_values[b, STIFFNESS]
    cable.damping = parameter_values[b, DAMPING]
    cable.rest = parameter_values[b, REST]
    cable.gain = parameter_values[b, MOTOR_GAIN]
    return cable


@wp.func
def own_factor(parameter_values: wp.array2d(dtype=wp.float64), b: int, place: int, own: int):
    """Factor of row b among those behind the parameters; 1 where cables have none of their own."""
    factor = _one
    if own > 0:
        factor = parameter_values[b, FACTORS + place]
    return factor


@wp.func
def link_of(links: wp.array(dtype=CableData), cable: int, own: int, parameter_values: wp.array2d(dtype=wp.float64), b: int):
    """A cable in row b: the structure's factors, times those of its own where there are any (`parameters.factor_names`)."""
    link = links[cable]
    place = wp.min(cable, own - 1)  # padding of a group of four has no stiffness
    out = CableData()
    out.node0 = link.node0
    out.node1 = link.node1
    out.motor = link.motor
    out.stiffness = link.stiffness * own_factor(parameter_values, b, place, own)
    out.rest = link.rest * own_factor(parameter_values, b, own + place, own)
    out.gain = link.gain * own_factor(parameter_values, b, 2 * own + wp.max(link.motor, 0), own)
    return out


@wp.func
def cable_tension(length: wp.float64, rate: wp.float64, rest: wp.float64, stiffness: wp.float64, damping: wp.float64):
    """T = max(0, k (l - l_rest) + c dl/dt): a Kelvin-Voigt cable that only pulls."""
    return wp.max(_zero, stiffness * (length - rest) + damping * rate)


@wp.func
def pull_along(d: wp.vec3d, dv: wp.vec3d, rest: wp.float64, stiffness: wp.float64, damping: wp.float64):
    """T d / l of a cable that spans d and whose ends part at dv: l = |d|, dl/dt = d . dv / l."""
    length = wp.sqrt(wp.dot(d, d))
    inverse = _one / length
    return (inverse * cable_tension(length, inverse * wp.dot(d, dv), rest, stiffness, damping)) * d


@wp.func_grad(pull_along)
def adj_pull_along(d: wp.vec3d, dv: wp.vec3d, rest: wp.float64, stiffness: wp.float64, damping: wp.float64, adjoint: wp.vec3d):
    """With e = d / l: dT = k (e . dd - dl_rest) + c (e . ddv + (dv - dl/dt e) . dd / l), de = (1 - e e') dd / l.

    By hand, because Warp's own divides once per intermediate derivative and cables are most of the backward pass.
    """
    length = wp.sqrt(wp.dot(d, d))
    inverse = _one / length
    e = inverse * d
    rate = wp.dot(e, dv)
    tension = cable_tension(length, rate, rest, stiffness, damping)
    if tension > _zero:
        along = wp.dot(adjoint, e)
        pulled = damping * along
        turning = tension * (adjoint - along * e) + pulled * (dv - rate * e)
        wp.adjoint[d] += (stiffness * along) * e + inverse * turning
        wp.adjoint[dv] += pulled * e
        wp.adjoint[rest] += -stiffness * along
        wp.adjoint[stiffness] += (length - rest) * along
        wp.adjoint[damping] += rate * along


@wp.func
def pull_between(e0: Node, e1: Node, motor: wp.float64, link: CableData, cable: Cable):
    """Pull of a cable on its first node (a vector towards the second), with l_rest = rest_length + b w, eqs (7)-(8)."""
    rest = cable.rest * link.rest + cable.gain * link.gain * motor
    return pull_along(e1.p - e0.p, e1.v - e0.v, rest, cable.stiffness * link.stiffness, cable.damping * link.stiffness)
