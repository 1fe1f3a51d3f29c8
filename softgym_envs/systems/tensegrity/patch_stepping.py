"""The engine in mode patch: pads under the caps, and rods that touch each other start over together, with the ground.

A step is that of `stepping`, but for `meet` and `last_twist`. Newton's method takes as many iterations as a row needs, so that
rows run one by one.

Legend: see `stepping`.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp.memory import stage
from .contact import CONTACT_MARGIN, footing_of, ground
from .joint import settle_touching
from .memory import RodWork, RodWorld, Row, Tape
from .patch import pad_contact
from .rods import Twist, rotation_of
from .stepping import after_contact, predicted_twist, step_kernel

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))

after_pads = after_contact(pad_contact)


@stage
def press_ground(now: int, row: Row, world: RodWorld, parameter_values: wp.array2d(dtype=wp.float64), tape: Tape):
    """Velocities of the rods without contact, and after contact with the ground: Newton's iterations are not run again."""
    for r in range(world.rods.shape[0]):
        rod = world.rods[r]
        body = tape.bodies[now, r]
        q = rotation_of(body)
        free = predicted_twist(body, q, rod, tape.forces[now, 2 * r], tape.forces[now, 2 * r + 1], world.dt, row)
        tape.predicted[now, r] = free
        z = tape.axes[now, r]
        s0 = ground(body.p - rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
        s1 = ground(body.p + rod.half * z, world.cap_radius, row.terrain_scale, world.terrain)
        if wp.min(s0.gap, s1.gap) < _margin and rod.free > _zero:
            foot = footing_of(z, rod, s0, s1, row.inverse_mass, row.contact)
            tape.twists[now, r] = after_pads(free, body, q, foot, row.contact, parameter_values, row.b)
        else:
            tape.twists[now, r] = free


@stage
def meet(now: int, row: Row, world: RodWorld, parameter_values: wp.array2d(dtype=wp.float64), tape: Tape, work: RodWork):
    """Steps 4 and 5 of `stepping`."""
    press_ground(now, row, world, parameter_values, tape)
    settle_touching(now, row, world, tape, work)


@wp.func
def last_twist(r: int, now: int, q: wp.quatd, tape: Tape):
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


patch_kernel = step_kernel("patch_kernel", meet, last_twist)
