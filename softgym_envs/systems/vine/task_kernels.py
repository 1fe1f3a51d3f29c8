"""Kernels of tasks on every state, one row per thread (`engines.warp.row_kernel.RowKernel`); and the reward.

Legend: N links, K sections, M obstacles, R range readings.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.numba.engine import kernel
from .geometry import CIRCLE, WALL, ObstaclePose, Shape, clearance
from .links import count_links
from .memory import Size

CONTEXT_NAMES = (
    *("goal_x", "goal_y", "reached", "held", "tip_x", "tip_y", "cos", "sin", "v_x", "v_y"),
    *("distance", "approached", "ahead", "aside"),
)
"""Columns of every context: goal; 1 once it has been reached; time it has been held [s]; tip, its heading and velocity;
distance from the goal now and one step ago; the goal in the frame of the tip. Then the range readings."""
GOAL_X, GOAL_Y, REACHED, HELD, TIP_X, TIP_Y, COS, SIN, V_X, V_Y = map(wp.constant, range(10))
DISTANCE, APPROACHED, AHEAD, ASIDE = map(wp.constant, range(10, 14))
RANGES = wp.constant(len(CONTEXT_NAMES))

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.func
def turned_back(v: wp.vec2d, n: wp.vec2d):
    """A vector in a frame whose x axis is n."""
    return wp.vec2d(n[0] * v[0] + n[1] * v[1], n[0] * v[1] - n[1] * v[0])


@wp.func
def enter(offset: wp.float64, slope: wp.float64, interval: wp.vec2d):
    """Part of the interval [near, far] of a ray in which offset + slope s <= 0."""
    near = interval[0]
    far = interval[1]
    if wp.abs(slope) < _tiny:
        if offset > _zero:
            far = near - _one
    elif slope < _zero:
        near = wp.max(near, -offset / slope)
    else:
        far = wp.min(far, -offset / slope)
    return wp.vec2d(near, far)


@wp.func
def ray_hit(p: wp.vec2d, d: wp.vec2d, shape: Shape, local: wp.array2d(dtype=wp.float64), limit: wp.float64):
    """Distance along the ray p + s d to a shape in its own frame, at most `limit`."""
    out = limit + _zero
    if shape.kind == CIRCLE:
        half = wp.dot(p, d)
        root = half * half - wp.dot(p, p) + shape.radius * shape.radius
        if root >= _zero and half < _zero:
            out = wp.min(out, wp.max(_zero, -half - wp.sqrt(root)))
    elif shape.kind == WALL:
        inside = enter(p[0], d[0], wp.vec2d(_zero, limit))
        if inside[0] <= inside[1]:
            out = inside[0]
    else:
        inside = wp.vec2d(_zero, limit)
        for k in range(shape.count):
            a = shape.first + k
            b = shape.first
            if k + 1 < shape.count:
                b = a + 1
            n = wp.vec2d(local[b, 1] - local[a, 1], local[a, 0] - local[b, 0])
            to = p - wp.vec2d(local[a, 0], local[a, 1])
            inside = enter(wp.dot(to, n), wp.dot(d, n), inside)
        if inside[0] <= inside[1]:
            out = inside[0]
    return out


@wp.func
def read_ranges(
    b: int,
    p: wp.vec2d,
    t: wp.vec2d,
    limit: wp.float64,
    size: Size,
    shapes: wp.array(dtype=Shape),
    local: wp.array2d(dtype=wp.float64),
    rays: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
):
    """Distances from p to the nearest obstacle along the rays, at most `limit` [m], into the context; t: the tip's heading."""
    for k in range(rays.shape[0]):
        after[b, RANGES + k] = limit
    poses = 2 * size.links + 2 + 2 * size.sections
    for m in range(shapes.shape[0]):
        shape = shapes[m]
        angle = state[b, poses + 3 * m + 2]
        place = ObstaclePose()
        place.p = wp.vec2d(state[b, poses + 3 * m], state[b, poses + 3 * m + 1])
        place.n = wp.vec2d(wp.cos(angle), wp.sin(angle))
        if clearance(p, shape, place) < limit:
            q = turned_back(p - place.p, place.n)
            ahead = turned_back(t, place.n)
            for k in range(rays.shape[0]):
                d = wp.vec2d(rays[k, 0] * ahead[0] - rays[k, 1] * ahead[1], rays[k, 1] * ahead[0] + rays[k, 0] * ahead[1])
                after[b, RANGES + k] = ray_hit(q, d, shape, local, after[b, RANGES + k])


def track_kernel(
    size: Size,
    shapes: wp.array(dtype=Shape),
    local: wp.array2d(dtype=wp.float64),
    rays: wp.array2d(dtype=wp.float64),
    limit: wp.float64,
    tolerance: wp.float64,
    slow: wp.float64,
    period: wp.float64,
    hold: wp.float64,
    state: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
):
    """Context of a state: tip, goal, ranges. rays (R, 2): cosine and sine of the range readings' angles from the tip's heading.

    The goal is reached within `tolerance` [m] at a speed of at most `slow` [m/s], one `period` after the other for `hold` [s].
    """
    b = wp.tid()
    for x in range(before.shape[1]):
        after[b, x] = before[b, x]
    length = state[b, 2 * size.links]
    growth = state[b, 2 * size.links + 1]
    num = count_links(length, size)
    p = size.base
    v = wp.vec2d(_zero, _zero)
    t = wp.vec2d(_one, _zero)
    for i in range(num):
        part = size.link + _zero
        if i == num - 1:
            part = length - wp.float64(num - 1) * size.link
        theta = state[b, i]
        t = wp.vec2d(wp.cos(theta), wp.sin(theta))
        p = p + part * t
        v = v + (part * state[b, size.links + i]) * wp.vec2d(-t[1], t[0])
    v = v + growth * t
    way = wp.vec2d(before[b, GOAL_X] - p[0], before[b, GOAL_Y] - p[1])
    distance = wp.length(way)
    after[b, TIP_X] = p[0]
    after[b, TIP_Y] = p[1]
    after[b, COS] = t[0]
    after[b, SIN] = t[1]
    after[b, V_X] = v[0]
    after[b, V_Y] = v[1]
    after[b, APPROACHED] = before[b, DISTANCE]
    after[b, DISTANCE] = distance
    after[b, AHEAD] = wp.dot(way, t)
    after[b, ASIDE] = way[1] * t[0] - way[0] * t[1]
    after[b, HELD] = _zero
    if distance <= tolerance and wp.length(v) <= slow:
        after[b, HELD] = before[b, HELD] + period
        if after[b, HELD] > hold - _tiny:
            after[b, REACHED] = _one
    read_ranges(b, p, t, limit, size, shapes, local, rays, state, after)


TRACK = wp.kernel(track_kernel, enable_backward=False)


def observe_kernel(
    size: Size,
    columns: wp.array(dtype=int),
    state: wp.array2d(dtype=wp.float64),
    context: wp.array2d(dtype=wp.float64),
    out: wp.array2d(dtype=wp.float64),
):
    """Length, growth, pressures over their range; then some columns of the context."""
    b = wp.tid()
    first = 2 * size.links
    out[b, 0] = state[b, first]
    out[b, 1] = state[b, first + 1]
    for k in range(2 * size.sections):
        out[b, 2 + k] = state[b, first + 2 + k] / size.max_steering
    for c in range(columns.shape[0]):
        out[b, 2 + 2 * size.sections + c] = context[b, columns[c]]


OBSERVE = wp.kernel(observe_kernel, enable_backward=False)


def reward_kernel(
    bonus: wp.float64,
    weight: wp.float64,
    action: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
    terms: wp.array2d(dtype=wp.float64),
):
    """`reward_terms` for a device, bit for bit."""
    b = wp.tid()
    terms[b, 0] = after[b, APPROACHED] - after[b, DISTANCE]
    terms[b, 1] = bonus * (after[b, REACHED] - before[b, REACHED])
    total = wp.float64(0.0)
    for k in range(action.shape[1]):
        total += action[b, k] * action[b, k]
    terms[b, 2] = weight * total


REWARD = wp.kernel(reward_kernel, enable_backward=False)


@kernel
def reward_terms(action, before, after, bonus, weight, found):  # type: ignore[no-untyped-def]
    """Progress, bonus for the goal and weight |action|^2, (3, B)."""
    for b in range(len(action)):
        found[0, b] = after[b, APPROACHED] - after[b, DISTANCE]
        found[1, b] = bonus * (after[b, REACHED] - before[b, REACHED])
        total = 0.0
        for k in range(action.shape[1]):
            total += action[b, k] * action[b, k]
        found[2, b] = weight * total


@kernel
def drive(action, columns, scale, control):  # type: ignore[no-untyped-def]
    """Control u = max(0, scale_u a), a = action[columns_u], (B, nu)."""
    for b in range(len(action)):
        for u in range(len(columns)):
            control[b, u] = max(0.0, scale[u] * action[b, columns[u]])
