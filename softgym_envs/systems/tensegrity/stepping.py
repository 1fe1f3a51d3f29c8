"""The engine of [Wang2020] (arXiv 2011.04929): rods as rigid bodies, pull-only cables, motors, contact impulses.

One substep of dt, in the order of the functions below:

1. `kinematics`     ends of the rods and their velocities
2. `turn_motors`    w' = w + motor_speed dt (u - w), eq. (6)
3. `pull_cables`    T = max(0, k (l - l_rest) + c dl/dt), l_rest = rest_length + b w, eqs (7)-(8): `cables`
4. `move_alone`     velocities after cable forces and gravity, then impulses between caps and ground, eqs (1), (3)-(5)
5. `touch_rods`     impulses between rods
6. `moved`          semi-implicit Euler: the new velocity, `last_twist`, moves the pose

After the substeps of a control step, `record` writes the state, or marks the row as diverged. Mode patch has its own steps 4, 5
and last twist (`patch_stepping`); `step_kernel` makes the kernel of either. The other modes run four rows at once and
keep to the rules of `engines.warp.lanes`.

Legend: B batch, R rods, N nodes, C cables. A rod's frame has z along the rod; its inertia is that of a solid cylinder.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import warp as wp

from ...engines.warp.memory import stage
from .cables import Cable, CableData, Node, cable_constants, link_of, node_at, node_of, pull_between
from .contact import CONTACT_MARGIN, ContactData, Footing, contact_constants, footing_of, ground
from .contact_pairs import Meeting, are_apart, meeting_of
from .impulses import point_contact, rod_impulse
from .memory import RodWork, RodWorld, Row, Tape
from .model import ROD_WIDTH
from .parameters import TensegrityParameters
from .residual import corrected
from .rods import (
    Rod,
    RodState,
    Twist,
    in_frame,
    in_simulator,
    lever_at,
    mobility_of,
    moved,
    rotation_of,
    spin_up,
    twist_of,
    velocity_at,
    z_axis,
)

SPEED_LIMIT = 1e3
"""[m/s, rad/s] A rod faster than this has diverged."""

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
MASS, MOTOR_SPEED, GRAVITY, TERRAIN_SCALE = (_C[name] for name in ("rod_mass", "motor_speed", "gravity", "terrain_scale"))

ROD = wp.constant(ROD_WIDTH)
_limit = wp.constant(wp.float64(SPEED_LIMIT))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))


@wp.func
def row_of(b: int, world: RodWorld, parameter_values: wp.array2d(dtype=wp.float64)):
    """Parameters of row b."""
    row = Row()
    row.b = b
    row.cable = cable_constants(parameter_values, b)
    row.contact = contact_constants(
        parameter_values, b, world.dt, world.mode, world.cap_radius, world.rod_radius, world.learned
    )
    row.inverse_mass = _one / parameter_values[b, MASS]
    row.motor_rate = parameter_values[b, MOTOR_SPEED] * world.dt
    row.terrain_scale = parameter_values[b, TERRAIN_SCALE]
    row.fall = wp.vec3d(_zero, _zero, -world.dt * parameter_values[b, GRAVITY])
    return row


@stage
def kinematics(now: int, world: RodWorld, tape: Tape):
    """Write directions of the rods and motion of their ends; set forces and pushes to zero."""
    none = wp.vec3d(_zero, _zero, _zero)
    for r in range(world.rods.shape[0]):
        rod = world.rods[r]
        body = tape.bodies[now, r]
        axis = z_axis(rotation_of(body))
        tape.nodes[now, 2 * r] = node_at(body, rod, axis, -_one)
        tape.nodes[now, 2 * r + 1] = node_at(body, rod, axis, _one)
        tape.forces[now, 2 * r] = none
        tape.forces[now, 2 * r + 1] = none
        tape.axes[now, r] = axis
        tape.push[now, r] = none
        tape.turn[now, r] = none


@stage
def turn_motors(
    t: int,
    now: int,
    new: int,
    row: Row,
    world: RodWorld,
    controls: wp.array3d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
):
    """w' = w + a (u - w), a = motor_speed dt, eq. (6)."""
    first = ROD * world.rods.shape[0]
    for m in range(controls.shape[2]):
        w = state[now, first + m]
        command = wp.clamp(controls[row.b, t, m], -world.control_limit, world.control_limit)
        state[new, first + m] = w + row.motor_rate * (command - w)


# --- cables ------------------------------------------------------------------------------------------------------------


@wp.func
def pull_of(
    link: CableData, now: int, first: int, cable: Cable, state: wp.array2d(dtype=wp.float64), nodes: wp.array2d(dtype=Node)
):
    """Pull of one cable on its first node; the motors stand in the state from column `first` on."""
    motor = _zero
    if link.motor >= 0:
        motor = state[now, first + link.motor]
    return pull_between(nodes[now, link.node0], nodes[now, link.node1], motor, link, cable)


@stage
def pull_ends(link: CableData, pull: wp.vec3d, now: int, forces: wp.array2d(dtype=wp.vec3d)):
    """Add a cable's pull to the forces on its two nodes."""
    wp.atomic_add(forces, now, link.node0, pull)
    wp.atomic_add(forces, now, link.node1, -pull)


@stage
def pull_cables(
    now: int,
    row: Row,
    world: RodWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    tape: Tape,
):
    """Forces of all cables, four at a time so that the processor can overlap them."""
    first = ROD * world.rods.shape[0]
    for group in range(world.links.shape[0] // 4):
        l0 = link_of(world.links, 4 * group, world.own_cables, parameter_values, row.b)
        l1 = link_of(world.links, 4 * group + 1, world.own_cables, parameter_values, row.b)
        l2 = link_of(world.links, 4 * group + 2, world.own_cables, parameter_values, row.b)
        l3 = link_of(world.links, 4 * group + 3, world.own_cables, parameter_values, row.b)
        pull0 = pull_of(l0, now, first, row.cable, state, tape.nodes)
        pull1 = pull_of(l1, now, first, row.cable, state, tape.nodes)
        pull2 = pull_of(l2, now, first, row.cable, state, tape.nodes)
        pull3 = pull_of(l3, now, first, row.cable, state, tape.nodes)
        pull_ends(l0, pull0, now, tape.forces)
        pull_ends(l1, pull1, now, tape.forces)
        pull_ends(l2, pull2, now, tape.forces)
        pull_ends(l3, pull3, now, tape.forces)


# --- velocities --------------------------------------------------------------------------------------------------------


@wp.func
def predicted_twist(body: RodState, q: wp.quatd, rod: Rod, f0: wp.vec3d, f1: wp.vec3d, dt: wp.float64, row: Row):
    """v* = v + dt (f0 + f1) / m + dt g, and w* in the rod's frame after torques (0, 0, h) x f and gyroscopic ones.

    I w* = I w + dt (tau - w x I w), I = diag(1/it, 1/it, 1/ia).
    """
    w = body.w
    mobility = mobility_of(rod, row.inverse_mass)
    f = wp.quat_rotate_inv(q, f1 - f0)
    lever = dt * mobility.across * rod.half
    gyro = dt * rod.free * rod.gyro * w[2]
    out = Twist()
    out.v = body.v + dt * mobility.mass * (f0 + f1) + rod.free * row.fall
    out.w = wp.vec3d(w[0] - lever * f[1] - gyro * w[1], w[1] + lever * f[0] + gyro * w[0], w[2])
    return out


def after_contact(law: Any) -> Any:
    """Make a function: twist of a rod that touches the ground; w in its frame, as in the predicted twist `free`.

    Args:
        law: Function of the twists before and predicted (world frame), the footing and its parameters -> twist after.
    """

    @wp.func(inline=True)
    def after(
        free: Twist,
        body: RodState,
        q: wp.quatd,
        foot: Footing,
        contact: ContactData,
        parameter_values: wp.array2d(dtype=wp.float64),
        b: int,
    ):
        before = twist_of(body)
        predicted = in_simulator(free, q)
        twist = law(before, predicted, foot, contact)
        if contact.learned > 0:
            twist = corrected(before, predicted, twist, foot, contact.dt, parameter_values, contact.learned, b)
        return in_frame(twist, q)

    return after


after_caps = after_contact(point_contact)


@wp.func(inline=True)
def beside_ground(
    free: Twist,
    body: RodState,
    q: wp.quatd,
    z: wp.vec3d,
    rod: Rod,
    row: Row,
    world: RodWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
):
    """Twist of a rod after contact with the ground, if there is any, w in its frame."""
    s0 = ground(body.p - rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
    s1 = ground(body.p + rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
    v = free.v
    w = free.w
    if wp.min(s0.gap, s1.gap) < _margin and rod.free > _zero:
        foot = footing_of(z, rod, s0, s1, row.inverse_mass, row.contact)
        after = after_caps(free, body, q, foot, row.contact, parameter_values, row.b)
        v = after.v
        w = after.w
    out = Twist()
    out.v = v
    out.w = w
    return out


@stage
def move_alone(now: int, row: Row, world: RodWorld, parameter_values: wp.array2d(dtype=wp.float64), tape: Tape):
    """Velocities of the rods without contact, and after contact with the ground."""
    for r in range(world.rods.shape[0]):
        rod = world.rods[r]
        body = tape.bodies[now, r]
        q = rotation_of(body)
        free = predicted_twist(body, q, rod, tape.forces[now, 2 * r], tape.forces[now, 2 * r + 1], world.dt, row)
        tape.twists[now, r] = beside_ground(free, body, q, tape.axes[now, r], rod, row, world, parameter_values)


@wp.struct
class Shove:
    """Changes of two rods' velocities by the contact between them, world frame."""

    v1: wp.vec3d
    w1: wp.vec3d
    v2: wp.vec3d
    w2: wp.vec3d


@wp.func
def shove_at(meeting: Meeting, r1: int, r2: int, now: int, row: Row, world: RodWorld, tape: Tape):
    """Shove of two rods that touch, from the velocities after contact with the ground."""
    body1 = tape.bodies[now, r1]
    body2 = tape.bodies[now, r2]
    m1 = mobility_of(world.rods[r1], row.inverse_mass)
    m2 = mobility_of(world.rods[r2], row.inverse_mass)
    l1 = lever_at(meeting.to1, tape.axes[now, r1], m1.mass, m1.across, m1.along)
    l2 = lever_at(meeting.to2, tape.axes[now, r2], m2.mass, m2.across, m2.along)
    t1 = tape.twists[now, r1]
    t2 = tape.twists[now, r2]
    slip = velocity_at(t1.v, t1.w, body1, l1.r) - velocity_at(t2.v, t2.w, body2, l2.r)
    was = velocity_at(body1.v, body1.w, body1, l1.r) - velocity_at(body2.v, body2.w, body2, l2.r)
    impulse = rod_impulse(l1, l2, was, slip, meeting.normal, meeting.gap, row.contact)
    out = Shove()
    out.v1 = m1.mass * impulse
    out.v2 = -m2.mass * impulse
    out.w1 = spin_up(l1, impulse)
    out.w2 = -spin_up(l2, impulse)
    return out


@wp.func
def shove_of(r1: int, r2: int, now: int, row: Row, world: RodWorld, tape: Tape):
    """Shove of two rods, zero unless they touch."""
    meeting = meeting_of(r1, r2, now, world, tape)
    out = Shove()
    if meeting.gap < _margin:
        out = shove_at(meeting, r1, r2, now, row, world, tape)
    return out


@stage
def collide(r1: int, r2: int, now: int, row: Row, world: RodWorld, tape: Tape):
    """Add velocity changes by the impulse between two rods, if they touch."""
    shove = shove_of(r1, r2, now, row, world, tape)
    wp.atomic_add(tape.push, now, r1, shove.v1)
    wp.atomic_add(tape.push, now, r2, shove.v2)
    wp.atomic_add(tape.turn, now, r1, shove.w1)
    wp.atomic_add(tape.turn, now, r2, shove.w2)


@stage
def touch_rods(now: int, row: Row, world: RodWorld, tape: Tape):
    """Contact between rods: changes of their velocities; rods that are far apart, to which `collide` adds zero, are skipped."""
    num_rods = world.rods.shape[0]
    for r1 in range(num_rods):
        for r2 in range(r1 + 1, num_rods):
            if not are_apart(r1, r2, now, world.rods, tape.bodies, tape.axes, _two * world.cap_radius + _margin):
                collide(r1, r2, now, row, world, tape)


@stage
def meet(now: int, row: Row, world: RodWorld, parameter_values: wp.array2d(dtype=wp.float64), tape: Tape, work: RodWork):
    """Steps 4 and 5 of the module docstring."""
    move_alone(now, row, world, parameter_values, tape)
    touch_rods(now, row, world, tape)


@wp.func
def last_twist(r: int, now: int, q: wp.quatd, tape: Tape):
    """Velocity of rod r at the end of the step, w in its frame."""
    dw = tape.turn[now, r]
    w = tape.twists[now, r].w
    if wp.dot(dw, dw) > _zero:
        w = w + wp.quat_rotate_inv(q, dw)
    out = Twist()
    out.v = tape.twists[now, r].v + tape.push[now, r]
    out.w = w
    return out


@stage
def record(
    b: int,
    t: int,
    end: int,
    state: wp.array2d(dtype=wp.float64),
    tape: Tape,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """Write the end of control step t: the state, or the last good one if a rod is, or was, too fast."""
    for r in range(tape.axes.shape[1]):
        fast = wp.max(wp.length(tape.bodies[end, r].v), wp.length(tape.bodies[end, r].w))
        status[b] = wp.where(fast < _limit, status[b], _one)
    for x in range(state.shape[1]):
        states[b, t + 1, x] = wp.where(status[b] == _zero, state[end, x], states[b, t, x])


# --- one row of the batch ----------------------------------------------------------------------------------------------


def step_kernel(name: str, meet: Any, last_twist: Any) -> Callable[..., None]:
    """The kernel of one row's rollout.

    Args:
        name: Name in Warp's cache.
        meet: Stage of steps 4 and 5, see `meet`.
        last_twist: Function, see `last_twist`.
    """

    @stage
    def integrate(now: int, new: int, world: RodWorld, tape: Tape):  # type: ignore[no-untyped-def]
        for r in range(world.rods.shape[0]):
            body = tape.bodies[now, r]
            q = rotation_of(body)
            free = world.rods[r].free  # a rod that is held does not move
            twist = last_twist(r, now, q, tape)
            tape.bodies[new, r] = moved(body, q, free * twist.v, free * twist.w, world.dt)

    def kernel(
        world: RodWorld,
        parameter_values: wp.array2d(dtype=wp.float64),
        controls: wp.array3d(dtype=wp.float64),
        horizon: int,
        substeps: int,
        slots: int,
        state: wp.array2d(dtype=wp.float64),
        tape: Tape,
        work: RodWork,
        states: wp.array3d(dtype=wp.float64),
        status: wp.array(dtype=wp.float64),
    ) -> None:
        b = wp.tid()
        batch = parameter_values.shape[0]
        row = row_of(b, world, parameter_values)
        for t in range(horizon):
            if status[b] == _zero:
                for s in range(substeps):
                    now = (t * substeps + s) % slots * batch + b
                    new = (t * substeps + s + 1) % slots * batch + b
                    kinematics(now, world, tape)
                    turn_motors(t, now, new, row, world, controls, state)
                    pull_cables(now, row, world, parameter_values, state, tape)
                    meet(now, row, world, parameter_values, tape, work)
                    integrate(now, new, world, tape)
            record(b, t, (t + 1) * substeps % slots * batch + b, state, tape, states, status)

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


rollout_kernel = step_kernel("rollout_kernel", meet, last_twist)


def tension_kernel(
    world: RodWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    bodies: wp.array2d(dtype=RodState),
    tension: wp.array2d(dtype=wp.float64),
):
    """Tension of cable c in row b; `bodies` is the rods' part of `state`."""
    b, c = wp.tid()
    link = link_of(world.links, c, world.own_cables, parameter_values, b)
    motor = _zero
    if link.motor >= 0:
        motor = state[b, ROD * world.rods.shape[0] + link.motor]
    e0 = node_of(b, link.node0, world.rods, bodies)
    e1 = node_of(b, link.node1, world.rods, bodies)
    tension[b, c] = wp.length(pull_between(e0, e1, motor, link, cable_constants(parameter_values, b)))
