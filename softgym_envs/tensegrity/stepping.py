"""The engine of [Wang2020] (arXiv 2011.04929): rods as rigid bodies, pull-only cables, motors, contact impulses.

One substep of dt, in the order of the functions below:

1. kinematics       ends of the rods and their velocities
2. `pull_between`   T = max(0, k (l - l_rest) + c dl/dt), l_rest = rest_length + b w, and the motors, eqs (6)-(8)
3. predicted        velocities after cable forces and gravity, without contact
4. `ground_contact` impulses between caps and ground, eqs (1), (3)-(5) or softer: see `contact`
5. `rod_impulse`    impulses between rods; in mode patch, rods that touch each other start over, with the ground: `joint`
6. `rotation_step`  semi-implicit Euler: the new velocity moves the pose

Legend: B batch, R rods, N nodes, C cables. A rod's frame has z along the rod; its inertia is that of a solid cylinder.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from math import factorial

import warp as wp

from ..core import warp_engine  # noqa: F401  (sets Warp up)
from .contact import (
    CONTACT_MARGIN,
    Twist,
    arm_at,
    contact_constants,
    ground,
    ground_contact,
    imbalance,
    pad_wrench,
    rod_impulse,
    spin_up,
)
from .joint import Ground, Member, Pair, count_contacts, last_step, member_of, pair_of, relative_twist, settle
from .parameters import TensegrityParameters
from .residual import corrected
from .rods import Body, Rod, are_apart, meeting_of, rotation_of, velocity_at, z_axis

SPEED_LIMIT = 1e3
"""[m/s, rad/s] A rod faster than this has diverged."""

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
MASS, STIFFNESS, DAMPING, REST = _C["rod_mass"], _C["cable_stiffness"], _C["cable_damping"], _C["rest_length"]
MOTOR_SPEED, MOTOR_GAIN, GRAVITY = _C["motor_speed"], _C["motor_gain"], _C["gravity"]
TERRAIN_SCALE = _C["terrain_scale"]

_count = wp.constant(len(TensegrityParameters.names()))
_limit = wp.constant(wp.float64(SPEED_LIMIT))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_tiny = wp.constant(wp.float64(1e-12))
_c2, _c3, _c4, _c5, _c6, _c7, _c8, _c9 = (wp.constant(wp.float64(1.0 / factorial(n))) for n in range(2, 10))


@wp.struct
class Cable:
    """Constants of all cables."""

    stiffness: wp.float64
    damping: wp.float64
    rest: wp.float64
    gain: wp.float64


@wp.struct
class Node:
    """Position and velocity of a rod's end."""

    p: wp.vec3d
    v: wp.vec3d


@wp.struct
class Link:
    """What a cable is: its nodes, its motor or -1, and its factors on stiffness (and damping) and on rest length."""

    node0: int
    node1: int
    motor: int
    stiffness: wp.float64
    rest: wp.float64


@wp.func
def node_at(body: Body, rod: Rod, axis: wp.vec3d, side: wp.float64):
    """The end of a rod at side h z, side = -1 or 1, h = half length. A held rod has no velocity.

    w x h z = h R (w_y, -w_x, 0), as z is (0, 0, 1) in the rod's frame.
    """
    spin = wp.quat_rotate(rotation_of(body), wp.vec3d(body.w[1], -body.w[0], _zero))
    out = Node()
    out.p = body.p + (side * rod.half) * axis
    out.v = rod.free * (body.v + (side * rod.half) * spin)
    return out


@wp.func
def node_of(row: int, node: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body)):
    """Position and velocity of a node."""
    body = bodies[row, node // 2]
    return node_at(body, rods[node // 2], z_axis(rotation_of(body)), _two * wp.float64(node % 2) - _one)


# --- cables ----------------------------------------------------------------------------------------------------------


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
def pull_between(e0: Node, e1: Node, motor: wp.float64, link: Link, cable: Cable):
    """Pull of a cable on its first node (a vector towards the second), with l_rest = rest_length + b w, eqs (7)-(8)."""
    rest = cable.rest * link.rest + cable.gain * motor
    return pull_along(e1.p - e0.p, e1.v - e0.v, rest, cable.stiffness * link.stiffness, cable.damping * link.stiffness)


@wp.func
def pull_of(
    link: Link,
    now: int,
    state: wp.array2d(dtype=wp.float64),
    nodes: wp.array2d(dtype=Node),
    first_motor: int,
    cable: Cable,
):
    """Pull of one cable on its first node."""
    motor = _zero
    if link.motor >= 0:
        motor = state[now, first_motor + link.motor]
    return pull_between(nodes[now, link.node0], nodes[now, link.node1], motor, link, cable)


@wp.func
def cable_constants(constants: wp.array2d(dtype=wp.float64), b: int):
    """Row b's constants of the cables."""
    cable = Cable()
    cable.stiffness = constants[b, STIFFNESS]
    cable.damping = constants[b, DAMPING]
    cable.rest = constants[b, REST]
    cable.gain = constants[b, MOTOR_GAIN]
    return cable


# --- integration -----------------------------------------------------------------------------------------------------


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


# --- one row of the batch --------------------------------------------------------------------------------------------


def rollout_kernel(
    links: wp.array(dtype=Link),
    rods: wp.array(dtype=Rod),
    heights: wp.array2d(dtype=wp.float64),
    cell: wp.float64,
    plane: wp.vec3d,
    rough: int,
    rod_radius: wp.float64,
    cap_radius: wp.float64,
    control_limit: wp.float64,
    mode: int,
    dt: wp.float64,
    constants: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    bodies: wp.array2d(dtype=Body),
    nodes: wp.array2d(dtype=Node),
    twists: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d),
    free: wp.array2d(dtype=Twist),
    settled: wp.array2d(dtype=Twist),
    step: wp.array2d(dtype=Twist),
    touch: wp.array2d(dtype=int),
    members: wp.array2d(dtype=Member),
    pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist),
    matrix: wp.array2d(dtype=wp.float64),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=int),
):
    """All substeps of row b; see the module docstring and `core.warp_engine` for the arguments.

    `bodies` is the rods' part of `state`. For one substep, `nodes` holds the motion of the rods' ends, `twists` the velocity
    of the rods after ground contact (w in the rod's frame), and `work` the forces on the nodes, then per rod its axis
    and the changes of both velocities by contact between rods.
    """
    b = wp.tid()
    batch = constants.shape[0]
    num_rods = rods.shape[0]
    num_groups = links.shape[0] // 4
    first_motor = 13 * num_rods
    axes = 2 * num_rods
    dlinear = 3 * num_rods
    dangular = 4 * num_rods
    none = wp.vec3d(_zero, _zero, _zero)
    cable = cable_constants(constants, b)
    contact = contact_constants(constants, b, dt, mode)
    inverse = _one / constants[b, MASS]
    motor_rate = constants[b, MOTOR_SPEED] * dt
    scale = constants[b, TERRAIN_SCALE]
    soil = Ground()
    soil.cell = cell
    soil.plane = plane
    soil.rough = rough
    soil.scale = scale
    soil.rod_radius = rod_radius
    soil.cap_radius = cap_radius
    fall = wp.vec3d(_zero, _zero, -dt * constants[b, GRAVITY])
    for t in range(horizon):
        if status[b] == 0:
            for s in range(substeps):
                now = (t * substeps + s) % slots * batch + b
                new = (t * substeps + s + 1) % slots * batch + b

                # kinematics
                for r in range(num_rods):
                    rod = rods[r]
                    body = bodies[now, r]
                    axis = z_axis(rotation_of(body))
                    nodes[now, 2 * r] = node_at(body, rod, axis, -_one)
                    nodes[now, 2 * r + 1] = node_at(body, rod, axis, _one)
                    work[now, 2 * r] = none
                    work[now, 2 * r + 1] = none
                    work[now, axes + r] = axis
                    work[now, dlinear + r] = none
                    work[now, dangular + r] = none

                # motors: w' = w + a (u - w), a = motor_speed dt, eq. (6)
                for m in range(controls.shape[2]):
                    w_motor = state[now, first_motor + m]
                    command = wp.clamp(controls[b, t, m], -control_limit, control_limit)
                    state[new, first_motor + m] = w_motor + motor_rate * (command - w_motor)

                # cables, four at a time so that the processor can overlap them
                for group in range(num_groups):
                    l0 = links[4 * group]
                    l1 = links[4 * group + 1]
                    l2 = links[4 * group + 2]
                    l3 = links[4 * group + 3]
                    pull0 = pull_of(l0, now, state, nodes, first_motor, cable)
                    pull1 = pull_of(l1, now, state, nodes, first_motor, cable)
                    pull2 = pull_of(l2, now, state, nodes, first_motor, cable)
                    pull3 = pull_of(l3, now, state, nodes, first_motor, cable)
                    wp.atomic_add(work, now, l0.node0, pull0)
                    wp.atomic_add(work, now, l0.node1, -pull0)
                    wp.atomic_add(work, now, l1.node0, pull1)
                    wp.atomic_add(work, now, l1.node1, -pull1)
                    wp.atomic_add(work, now, l2.node0, pull2)
                    wp.atomic_add(work, now, l2.node1, -pull2)
                    wp.atomic_add(work, now, l3.node0, pull3)
                    wp.atomic_add(work, now, l3.node1, -pull3)

                # predicted velocity, and contact with the ground
                for r in range(num_rods):
                    rod = rods[r]
                    body = bodies[now, r]
                    q = rotation_of(body)
                    w = body.w
                    z = work[now, axes + r]
                    f0 = work[now, 2 * r]
                    f1 = work[now, 2 * r + 1]
                    h = rod.half
                    im = rod.free * inverse
                    it = rod.across * im
                    ia = rod.along * im
                    velocity = body.v + dt * im * (f0 + f1) + rod.free * fall
                    # I w' = I w + dt (tau - w x I w) in the rod's frame: I = diag(1/it, 1/it, 1/ia), tau = (0, 0, h) x f
                    f = wp.quat_rotate_inv(q, f1 - f0)
                    lever = dt * it * h
                    gyro = dt * rod.free * rod.gyro * w[2]
                    rotation = wp.vec3d(w[0] - lever * f[1] - gyro * w[1], w[1] + lever * f[0] + gyro * w[0], w[2])
                    if mode == 2:
                        unhindered = Twist()
                        unhindered.v = velocity
                        unhindered.w = wp.quat_rotate(q, rotation)
                        free[now, r] = unhindered
                    s0 = ground(body.p - h * z, cap_radius, scale, plane, cell, rough, heights)
                    s1 = ground(body.p + h * z, cap_radius, scale, plane, cell, rough, heights)
                    if wp.min(s0.gap, s1.gap) < _margin and im > _zero:
                        before = Twist()
                        before.v = body.v
                        before.w = wp.quat_rotate(q, w)
                        predicted = Twist()
                        predicted.v = velocity
                        predicted.w = wp.quat_rotate(q, rotation)
                        after = ground_contact(before, predicted, z, h, s0, s1, cap_radius, rod_radius, im, it, ia, contact)
                        if constants.shape[1] > _count:
                            after = corrected(before, predicted, after, z, h, s0, s1, cap_radius, im, it, ia, dt, constants, b)
                        velocity = after.v
                        rotation = wp.quat_rotate_inv(q, after.w)
                    twist = Twist()
                    twist.v = velocity
                    twist.w = rotation
                    twists[now, r] = twist

                # contact between rods
                if mode == 2:
                    count_contacts(now, rods, bodies, work, axes, rod_radius, cap_radius, touch)
                    if touch[now, num_rods] > 0:
                        settle(
                            b, now, rods, bodies, free, work, axes, inverse, soil, heights, contact, touch, members, pairs,
                            moves, matrix, settled,
                        )  # fmt: skip
                        for r in range(num_rods):
                            if touch[now, r] > 0:
                                z = work[now, axes + r]
                                own = member_of(bodies[now, r], rods[r], free[now, r], z, inverse, soil, heights, contact)
                                slope = imbalance(settled[now, r], own.predicted, own.kinetic, own.pads, own.patch)
                                wp.atomic_add(work, now, dlinear + r, slope.v)
                                wp.atomic_add(work, now, dangular + r, slope.w)
                        for r1 in range(num_rods):
                            for r2 in range(r1 + 1, num_rods):
                                meeting = meeting_of(r1, r2, now, rods, bodies, work, axes, rod_radius, cap_radius)
                                if meeting.gap < _margin:
                                    pair = pair_of(0, 1, rods[r1], rods[r2], bodies[now, r1], bodies[now, r2], meeting, contact)
                                    rel = relative_twist(settled[now, r1], settled[now, r2], pair.arm1, pair.arm2)
                                    wrench = pad_wrench(rel, pair.pad, pair.patch)
                                    about1 = wp.cross(pair.arm1, wrench.J) + wrench.M
                                    about2 = wp.cross(pair.arm2, wrench.J) + wrench.M
                                    wp.atomic_add(work, now, dlinear + r1, -pair.free1 * wrench.J)
                                    wp.atomic_add(work, now, dlinear + r2, pair.free2 * wrench.J)
                                    wp.atomic_add(work, now, dangular + r1, -pair.free1 * about1)
                                    wp.atomic_add(work, now, dangular + r2, pair.free2 * about2)
                        last_step(
                            b, now, rods, bodies, free, work, axes, inverse, soil, heights, contact, touch, members, pairs,
                            moves, matrix, settled, step,
                        )  # fmt: skip
                else:
                    for r1 in range(num_rods):
                        for r2 in range(r1 + 1, num_rods):
                            if not are_apart(r1, r2, now, rods, bodies, work, axes, _two * cap_radius + _margin):
                                meeting = meeting_of(r1, r2, now, rods, bodies, work, axes, rod_radius, cap_radius)
                                if meeting.gap < _margin:
                                    body1 = bodies[now, r1]
                                    body2 = bodies[now, r2]
                                    im1 = rods[r1].free * inverse
                                    im2 = rods[r2].free * inverse
                                    a1 = arm_at(
                                        meeting.arm1, work[now, axes + r1], im1, rods[r1].across * im1, rods[r1].along * im1
                                    )
                                    a2 = arm_at(
                                        meeting.arm2, work[now, axes + r2], im2, rods[r2].across * im2, rods[r2].along * im2
                                    )
                                    t1 = twists[now, r1]
                                    t2 = twists[now, r2]
                                    slip = velocity_at(t1.v, t1.w, body1, a1.r) - velocity_at(t2.v, t2.w, body2, a2.r)
                                    was = velocity_at(body1.v, body1.w, body1, a1.r) - velocity_at(
                                        body2.v, body2.w, body2, a2.r
                                    )
                                    impulse = rod_impulse(a1, a2, was, slip, meeting.normal, meeting.gap, contact)
                                    wp.atomic_add(work, now, dlinear + r1, im1 * impulse)
                                    wp.atomic_add(work, now, dlinear + r2, -im2 * impulse)
                                    wp.atomic_add(work, now, dangular + r1, spin_up(a1, impulse))
                                    wp.atomic_add(work, now, dangular + r2, -spin_up(a2, impulse))

                # integrate
                for r in range(num_rods):
                    rod = rods[r]
                    body = bodies[now, r]
                    twist = twists[now, r]
                    q = rotation_of(body)
                    v = twist.v
                    w = twist.w
                    if mode == 2:
                        if touch[now, r] > 0:
                            v = settled[now, r].v - step[now, r].v
                            w = wp.quat_rotate_inv(q, settled[now, r].w - step[now, r].w)
                    else:
                        v = v + work[now, dlinear + r]
                        dw = work[now, dangular + r]
                        if wp.dot(dw, dw) > _zero:
                            w = w + wp.quat_rotate_inv(q, dw)
                    v = rod.free * v
                    w = rod.free * w
                    turned = wp.normalize(q * rotation_step(w, dt))
                    moved = Body()
                    moved.p = body.p + dt * v
                    moved.q = wp.vec4d(turned[3], turned[0], turned[1], turned[2])
                    moved.v = v
                    moved.w = w
                    bodies[new, r] = moved

            end = (t + 1) * substeps % slots * batch + b
            for r in range(num_rods):
                fast = wp.max(wp.length(bodies[end, r].v), wp.length(bodies[end, r].w))
                if not (fast < _limit):
                    status[b] = 1
        for x in range(state.shape[1]):
            if status[b] == 0:
                states[b, t + 1, x] = state[(t + 1) * substeps % slots * batch + b, x]
            else:
                states[b, t + 1, x] = states[b, t, x]


def tension_kernel(
    links: wp.array(dtype=Link),
    rods: wp.array(dtype=Rod),
    constants: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    bodies: wp.array2d(dtype=Body),
    tension: wp.array2d(dtype=wp.float64),
):
    """Tension of cable c in row b; `bodies` is the rods' part of `state`."""
    b, c = wp.tid()
    link = links[c]
    motor = _zero
    if link.motor >= 0:
        motor = state[b, 13 * rods.shape[0] + link.motor]
    e0 = node_of(b, link.node0, rods, bodies)
    e1 = node_of(b, link.node1, rods, bodies)
    tension[b, c] = wp.length(pull_between(e0, e1, motor, link, cable_constants(constants, b)))
