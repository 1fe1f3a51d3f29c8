"""The engine in mode patch: pads under the caps, and rods that touch each other start over together, with the ground.

A step is that of `stepping`, but for 4 to 6: `press_ground`, `settle_touching` (see `joint`), `integrate_settled`. Newton's
method takes as many iterations as a row needs, so that rows run one by one.

Legend: see `stepping`.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ..core.warp_memory import stage
from .contact import CONTACT_MARGIN, Contact, Footing, footing_of, ground
from .joint import settle_touching
from .memory import Row, Tape, Workspace, World
from .parameters import TensegrityParameters
from .patch import pad_contact
from .residual import corrected
from .rods import Body, Twist, in_frame, in_world, rotation_of, twist_of
from .stepping import kinematics, moved, predicted_twist, pull_cables, record, row_of, turn_motors

_count = wp.constant(len(TensegrityParameters.names()))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))


@wp.func(inline=True)
def after_pads(
    free: Twist, body: Body, q: wp.quatd, foot: Footing, contact: Contact, constants: wp.array2d(dtype=wp.float64), b: int
):
    """Twist of a rod whose pads touch the ground, w in its frame, as in `free`, the predicted one."""
    before = twist_of(body)
    predicted = in_world(free, q)
    after = pad_contact(before, predicted, foot, contact)
    if constants.shape[1] > _count:
        after = corrected(before, predicted, after, foot, contact.dt, constants, b)
    return in_frame(after, q)


@stage
def press_ground(now: int, row: Row, world: World, constants: wp.array2d(dtype=wp.float64), tape: Tape):
    """Velocities of the rods without contact, and after contact with the ground."""
    for r in range(world.rods.shape[0]):
        rod = world.rods[r]
        body = tape.bodies[now, r]
        q = rotation_of(body)
        z = tape.axes[now, r]
        free = predicted_twist(body, q, rod, tape.forces[now, 2 * r], tape.forces[now, 2 * r + 1], world.dt, row)
        tape.predicted[now, r] = free
        s0 = ground(body.p - rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
        s1 = ground(body.p + rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
        if wp.min(s0.gap, s1.gap) < _margin and rod.free > _zero:
            foot = footing_of(z, rod, s0, s1, row.inverse_mass, row.contact)
            tape.twists[now, r] = after_pads(free, body, q, foot, row.contact, constants, row.b)
        else:
            tape.twists[now, r] = free


@wp.func
def settled_twist(r: int, now: int, q: wp.quatd, tape: Tape):
    """Velocity of rod r at the end of the step, w in its frame."""
    v = tape.twists[now, r].v
    w = tape.twists[now, r].w
    if tape.touching[now, r] > 0:
        v = tape.settled[now, r].v - tape.steps[now, r].v
        w = wp.quat_rotate_inv(q, tape.settled[now, r].w - tape.steps[now, r].w)
    out = Twist()
    out.v = v
    out.w = w
    return out


@stage
def integrate_settled(now: int, new: int, world: World, tape: Tape):
    """Semi-implicit Euler with the velocities after all contact; a rod that is held has none."""
    for r in range(world.rods.shape[0]):
        body = tape.bodies[now, r]
        q = rotation_of(body)
        free = world.rods[r].free
        twist = settled_twist(r, now, q, tape)
        tape.bodies[new, r] = moved(body, q, free * twist.v, free * twist.w, world.dt)


def patch_kernel(
    world: World,
    constants: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    tape: Tape,
    work: Workspace,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """All substeps of row b; see the module docstring, and `core.warp_engine` for the arguments."""
    b = wp.tid()
    batch = constants.shape[0]
    row = row_of(b, world, constants)
    for t in range(horizon):
        if status[b] == _zero:
            for s in range(substeps):
                now = (t * substeps + s) % slots * batch + b
                new = (t * substeps + s + 1) % slots * batch + b
                kinematics(now, world, tape)
                turn_motors(t, now, new, row, world, controls, state)
                pull_cables(now, row, world, state, tape)
                press_ground(now, row, world, constants, tape)
                settle_touching(now, row, world, tape, work)
                integrate_settled(now, new, world, tape)
        record(b, t, (t + 1) * substeps % slots * batch + b, state, tape, states, status)
