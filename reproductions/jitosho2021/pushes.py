"""Contacts of the paper's model: gaps that might close, and the dual program of their impulses (eq. 13), solved by `boxqp`."""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from softgym_envs.systems.vine.boxqp import HIGH, LINEAR, LOW, X, box_qp
from softgym_envs.systems.vine.chain import MotionCovariance, covary, impulse, respond, spread
from softgym_envs.systems.vine.geometry import CIRCLE

from .memory import Pair, Push, Workspace, World, at, turn_left

TIE = 1e-9
"""Squared distances of two edges that differ by a smaller share are equal, so that rounding does not choose between faces."""

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_clearly = wp.constant(wp.float64(1.0 - TIE))
_endless = wp.constant(wp.float64(1e30))
_tiny = wp.constant(wp.float64(1e-14))
_small_w = wp.constant(wp.float64(1e-12))
_small_x = wp.constant(wp.float64(1e-16))


@wp.func
def face_distance(p: wp.vec2d, first: int, count: int, corners: wp.array(dtype=wp.vec2d)):
    """(signed distance, normal) of a point and a polygon as in [Jitosho2021]'s program: the normal is that of a face.

    The distance is the true one; its gradient is not the normal near a corner, where the first of the two faces is taken.
    """
    nearest = wp.float64(1e30)
    face = wp.float64(-1e30)
    outside = wp.vec2d(_zero, _zero)
    inside = wp.vec2d(_zero, _zero)
    for k in range(count):
        a = corners[first + k]
        following = k + 1
        if following == count:
            following = 0
        edge = corners[first + following] - a
        to = p - a
        squared = wp.dot(edge, edge)
        along = wp.clamp(wp.dot(to, edge) / squared, _zero, _one)
        apart = to - along * edge
        outward = wp.vec2d(edge[1], -edge[0]) / wp.sqrt(squared)
        height = wp.dot(to, outward)
        if wp.dot(apart, apart) < _clearly * nearest:
            nearest = wp.dot(apart, apart)
            outside = outward
        if height > face:
            face = height
            inside = outward
    out = wp.vec3d(face, inside[0], inside[1])
    if face > _zero:
        out = wp.vec3d(wp.sqrt(nearest), outside[0], outside[1])
    return out


@wp.func
def distance_to(m: int, p: wp.vec2d, to: wp.vec2d, world: World):
    """(signed distance, normal) of the point p and obstacle m, whose place it is `to` away from."""
    shape = world.shapes[m]
    found = wp.vec3d(_zero, _zero, _zero)
    if shape.kind == CIRCLE:
        distance = wp.length(to)
        found = wp.vec3d(distance - shape.radius, to[0] / distance, to[1] / distance)
    else:
        found = face_distance(p, shape.first, shape.count, world.corners)
    return found


@wp.func
def push_at(i: int, gap: wp.float64, n: wp.vec2d, pair: Pair, world: World):
    """The row of link i's contact point along the normal n."""
    lever = world.d * wp.dot(n, turn_left(pair.tp))
    push = Push()
    push.link = i
    push.d = n
    push.bn = world.d * wp.dot(n, turn_left(pair.ta)) + wp.dot(n, pair.beta) + lever * pair.delta
    push.bias = gap / world.dt + wp.dot(n, pair.alpha) + lever * pair.gamma
    return push


@wp.func
def find_pushes(row: int, reach: wp.float64, world: World, state: wp.array2d(dtype=wp.float64), work: Workspace):
    """Find contact points nearer than `reach` to an obstacle, in the order of the links. -> their number, stored or not."""
    count = int(0)
    for i in range(world.links):
        pair = work.pairs[row, i]
        q = at(row, 2 * i + 1, state)
        p = wp.vec2d(q[0], q[1]) + world.d * pair.tp
        for m in range(world.shapes.shape[0]):
            to = p - wp.vec2d(world.poses[m][0], world.poses[m][1])
            limit = world.shapes[m].bound + world.radius + reach
            if wp.dot(to, to) < limit * limit:
                found = distance_to(m, p, to, world)
                gap = found[0] - world.radius
                if gap < reach:
                    push = push_at(i, gap, wp.vec2d(found[1], found[2]), pair, world)
                    work.pushes[row, wp.min(count, work.pushes.shape[1] - 1)] = push
                    count += 1
    return count


@wp.func
def push_matrix(row: int, count: int, work: Workspace):
    """W = L M^-1 L' on the constraints' tangent space."""
    covariance = MotionCovariance()
    done = int(0)
    for i in range(work.pushes[row, count - 1].link + 1):
        gain = work.gains[row, i]
        covariance = spread(covariance, gain)
        while done < count and work.pushes[row, wp.min(done, count - 1)].link == i:
            push = work.pushes[row, done]
            r = wp.vec3d(push.d[0], push.d[1], push.bn - wp.dot(push.d, gain.b))
            push.z = covary(covariance, r)
            work.pushes[row, done] = push
            place = i + 0
            for back in range(done + 1):
                c = done - back
                other = work.pushes[row, c]
                while place > other.link:
                    r = respond(r, work.gains[row, place])
                    place -= 1
                value = wp.dot(other.z, r)
                work.qp.matrix[row, c * count + done] = value
                work.qp.matrix[row, done * count + c] = value
            done += 1
    for c in range(count):
        work.qp.matrix[row, c * count + c] = work.qp.matrix[row, c * count + c] * (_one + _tiny)


@wp.func
def apply_pushes(row: int, count: int, work: Workspace):
    """Add impulses to the links' feedback."""
    last = int(count - 1)
    p = wp.vec3d(_zero, _zero, _zero)
    outermost = work.pushes[row, count - 1].link
    for back in range(outermost + 1):
        i = outermost - back
        at_e = wp.vec2d(_zero, _zero)
        at_w = wp.float64(0.0)
        while last >= 0 and work.pushes[row, wp.max(last, 0)].link == i:
            push = work.pushes[row, last]
            n = work.qp.vectors[row, X * count + last]
            at_e = at_e + n * push.d
            at_w += n * push.bn
            last -= 1
        gain = work.gains[row, i]
        before, df = impulse(p, at_e, at_w, gain)
        gain.f = gain.f + df
        work.gains[row, i] = gain
        p = before


@wp.func
def solve_pushes(row: int, count: int, work: Workspace):
    """The dual program: impulses >= 0 of gaps that do not close. -> 1, or 0 if it was not solved."""
    needed = int(0)
    for c in range(count):
        push = work.pushes[row, c]
        value = wp.dot(push.d, work.motions[row, push.link].e) + push.bn * work.motions[row, push.link + 1].w + push.bias
        work.qp.vectors[row, LINEAR * count + c] = value
        work.qp.vectors[row, LOW * count + c] = _zero
        work.qp.vectors[row, HIGH * count + c] = _endless
        work.qp.vectors[row, X * count + c] = _zero
        work.qp.side[row, c] = -1
        if value < _zero:
            work.qp.side[row, c] = 0
            needed = 1
    good = int(1)
    if needed == 1:
        good = 2 * box_qp(row, count, 0, _small_x, _small_w, work.qp)
    return good
