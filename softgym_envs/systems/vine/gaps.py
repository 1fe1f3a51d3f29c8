"""Gaps between links and obstacles that may close in a step."""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from .geometry import CIRCLE, POLYGON, ObstaclePose, Shape, clearance, inner_distance, point_distance
from .memory import LinkState, Size, VineContact, VineWork, VineWorld

_half = wp.constant(wp.float64(0.5))
_most = wp.constant(wp.float64(1e6))


@wp.func
def keep(row: int, count: int, contact: VineContact, contacts: wp.array2d(dtype=VineContact)):
    """Append a contact; a full list drops its widest gap. -> new count. The list stays in the order of the links."""
    out = count
    if count < contacts.shape[1]:
        contacts[row, count] = contact
        out = count + 1
    else:
        widest = int(0)
        for c in range(1, count):
            if contacts[row, c].gap > contacts[row, widest].gap:
                widest = c
        if contacts[row, widest].gap > contact.gap:
            for c in range(widest, count - 1):
                contacts[row, c] = contacts[row, c + 1]
            contacts[row, count - 1] = contact
    return out


@wp.func
def contact_at(
    link: LinkState, i: int, obstacle: int, d: wp.vec2d, gap: wp.float64, arm: wp.float64, radius: wp.float64, at_tip: int
):
    """Normal row d . (e + arm w n) + gamma g, tangent row t . (e + arm w n) - radius w with t = d turned left."""
    contact = VineContact()
    contact.link = i
    contact.obstacle = obstacle
    contact.d = d
    contact.gap = gap
    contact.arm = arm
    contact.bn = arm * (d[1] * link.t[0] - d[0] * link.t[1])
    contact.bt = arm * wp.dot(d, link.t) - radius
    if at_tip == 1:
        contact.gamma = wp.dot(d, link.t)
    return contact


@wp.func
def links_beyond(link: LinkState, reach: wp.float64, size: Size, shape: Shape, place: ObstaclePose):
    """Number of links from this one on that have no gap below `reach` with the obstacle; 0: this one may have.

    From one link's middle to the next one's it is at most a link's length, half a length more to the last one's, whose own
    half is at most a whole length.
    """
    half = _half * link.length
    clear = clearance(link.p + half * link.t, shape, place) - reach
    out = int(0)
    if clear >= half:
        out = wp.max(1, int(wp.floor(wp.min(clear / size.link - _half, _most))))
    return out


@wp.func
def gaps_of_inside(row: int, i: int, m: int, count: int, reach: wp.float64, world: VineWorld, work: VineWork):
    """Gaps between the inside of link i and a circle, or the corners of a polygon. -> new count."""
    link = work.links[row, i]
    shape = world.shapes[m]
    radius = world.size.radius
    if shape.kind == CIRCLE:
        inner = inner_distance(work.places[row, m].p, link.p, link.t, link.length)
        if inner[0] - shape.radius < reach:
            d = wp.vec2d(inner[1], inner[2])
            gap = inner[0] - shape.radius - radius
            count = keep(row, count, contact_at(link, i, m, d, gap, inner[3], radius, 0), work.contacts)
    if shape.kind == POLYGON:
        for k in range(shape.first, shape.first + shape.count):
            inner = inner_distance(work.corners[row, k], link.p, link.t, link.length)
            if inner[0] < reach:
                d = wp.vec2d(inner[1], inner[2])
                gap = inner[0] - radius
                count = keep(row, count, contact_at(link, i, m, d, gap, inner[3], radius, 0), work.contacts)
    return count


@wp.func
def gaps_of_link(
    row: int,
    i: int,
    m: int,
    at_tip: int,
    count: int,
    reach: wp.float64,
    shape: Shape,
    place: ObstaclePose,
    world: VineWorld,
    work: VineWork,
):
    """Gaps between link i and obstacle m. -> new count."""
    link = work.links[row, i]
    radius = world.size.radius
    found = point_distance(row, link.p + link.length * link.t, shape, place, work.corners)
    if found[0] < reach:
        d = wp.vec2d(found[1], found[2])
        gap = found[0] - radius
        count = keep(row, count, contact_at(link, i, m, d, gap, link.length, radius, at_tip), work.contacts)
    return gaps_of_inside(row, i, m, count, reach, world, work)


@wp.func
def find_contacts(row: int, num: int, reach: wp.float64, world: VineWorld, work: VineWork):
    """Find all gaps below `reach` of the first `num` links, in the order of the links. -> their number."""
    limit = world.size.radius + reach
    count = int(0)
    for m in range(world.shapes.shape[0]):
        work.asleep[row, m] = 0
    for i in range(num):
        link = work.links[row, i]
        at_tip = int(0)
        if i == num - 1:
            at_tip = 1
        for m in range(world.shapes.shape[0]):
            if work.asleep[row, m] > 0:
                work.asleep[row, m] = work.asleep[row, m] - 1
            else:
                shape = world.shapes[m]
                place = work.places[row, m]
                beyond = links_beyond(link, limit, world.size, shape, place)
                if beyond > 0:
                    work.asleep[row, m] = beyond - 1
                else:
                    count = gaps_of_link(row, i, m, at_tip, count, limit, shape, place, world, work)
    return count
