"""Forces of the obstacles on the vine robot, as computed by the next step. Legend: B batch, C contacts."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .memory import LinkState, Size, VineContact, VineWork, VineWorld
from .stepping import place_world, solve_velocities
from .tube import read_body

_zero = wp.constant(wp.float64(0.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.func
def write_force(
    b: int, c: int, force: wp.float64, contact: VineContact, link: LinkState, size: Size, out: wp.array3d(dtype=wp.float64)
):
    """Row c of the table of contacts; `force` is the normal one [N]."""
    place = link.p + contact.arm * link.t - size.radius * contact.d
    rub = contact.tangent / size.dt
    out[b, c, 0] = wp.float64(contact.link)
    out[b, c, 1] = wp.float64(contact.obstacle)
    out[b, c, 2] = place[0]
    out[b, c, 3] = place[1]
    out[b, c, 4] = force * contact.d[0] - rub * contact.d[1]
    out[b, c, 5] = force * contact.d[1] + rub * contact.d[0]
    out[b, c, 6] = force
    out[b, c, 7] = rub
    out[b, c, 8] = contact.gap


def force_kernel(
    world: VineWorld,
    parameter_values: wp.array2d(dtype=wp.float64),
    growth: wp.array(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    work: VineWork,
    out: wp.array3d(dtype=wp.float64),
):
    """Contacts in a step of dt from the state: columns of `contact_table`, of the contacts that push; other rows stay zero."""
    b = wp.tid()
    size = world.size
    body = read_body(parameter_values, b, size.radius)
    place_world(b, world, state, work)
    asked = wp.clamp(growth[b], _zero, size.max_growth)
    _growth, _fastest, count = solve_velocities(b, size.dt, size.dt, asked, 0, _zero, body, world, state, work)
    for c in range(count):
        contact = work.contacts[b, c]
        force = contact.normal / size.dt
        if force > _tiny:
            write_force(b, c, force, contact, work.links[b, contact.link], size, out)
