"""Kernels that tasks run on every state, one row of the batch per thread, by `engines.warp.row_kernel.RowKernel`.

The contexts of all tasks begin with the columns FRAME_NAMES: the commanded horizontal direction h, terrain scale;
motion of the centre of mass along and across h (relative to start and target), its position, its velocity upwards, its
height over the ground.

Legend: R rods.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .model import ROD_WIDTH

SUCCESS_TIME = 2.0
"""[s] Time for which a commanded velocity must be kept."""
SUCCESS_SHARE = 0.5
"""Largest deviation from the commanded displacement, along it and across, over that displacement."""
SUCCESS_WAY = 0.1
"""[m] Deviation that is always allowed, so that a commanded velocity of zero can be kept."""

FRAME_NAMES = (
    *("heading_x", "heading_y", "terrain_scale", "along", "v_along", "across", "v_across"),
    *("com_x", "com_y", "com_z", "v_up", "height"),
)
HX, HY, SCALE, ALONG, V_ALONG, ACROSS, V_ACROSS, COM_X, COM_Y, COM_Z, V_UP, HEIGHT = map(wp.constant, range(12))

NODE = wp.constant(6)
"""Numbers of a node in an observation: position and velocity."""
ROD = wp.constant(ROD_WIDTH)
"""Numbers of a rod in a state."""

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_share = wp.constant(wp.float64(SUCCESS_SHARE))
_way = wp.constant(wp.float64(SUCCESS_WAY))
_tiny = wp.constant(wp.float64(1e-9))
_enough = wp.constant(wp.float64(SUCCESS_TIME - 1e-9))


# --- what both tasks need ----------------------------------------------------------------------------------------------


@wp.func
def mean_over_rods(state: wp.array2d(dtype=wp.float64), b: int, first: int, num_rods: int):
    """Mean of entries first ... first + 2 of the rods' blocks: 0 for positions, 7 for velocities."""
    total = wp.vec3d(_zero, _zero, _zero)
    for r in range(num_rods):
        i = ROD * r + first
        total += wp.vec3d(state[b, i], state[b, i + 1], state[b, i + 2])
    return total / wp.float64(num_rods)


@wp.func
def write_motion(
    position: wp.vec3d, velocity: wp.vec3d, hx: wp.float64, hy: wp.float64, b: int, out: wp.array2d(dtype=wp.float64)
):
    """Motion of the centre of mass in the frame of h, into columns HX ... HEIGHT but SCALE of row b."""
    out[b, HX] = hx
    out[b, HY] = hy
    out[b, ALONG] = hx * position[0] + hy * position[1]
    out[b, V_ALONG] = hx * velocity[0] + hy * velocity[1]
    out[b, ACROSS] = hx * position[1] - hy * position[0]
    out[b, V_ACROSS] = hx * velocity[1] - hy * velocity[0]
    out[b, COM_X] = position[0]
    out[b, COM_Y] = position[1]
    out[b, COM_Z] = position[2]
    out[b, V_UP] = velocity[2]
    out[b, HEIGHT] = position[2]


def observe_kernel(
    half: wp.array(dtype=wp.float64),
    motor_scale: wp.float64,
    columns: wp.array(dtype=int),
    state: wp.array2d(dtype=wp.float64),
    context: wp.array2d(dtype=wp.float64),
    out: wp.array2d(dtype=wp.float64),
):
    """Nodes, motors over their range, then some columns of the context. half (R,): L/2 [m].

    A node is at p - c + a and moves with v + da/dt, where a = -+ L/2 R e_z and da/dt = -+ L/2 R (omega x e_z)
    = -+ L/2 R (omega_y, -omega_x, 0) with omega in the rod's frame.
    """
    b = wp.tid()
    num_rods = half.shape[0]
    hx = context[b, HX]
    hy = context[b, HY]
    center = wp.vec3d(context[b, COM_X], context[b, COM_Y], context[b, COM_Z])
    for r in range(num_rods):
        i = ROD * r
        turn = wp.quatd(state[b, i + 4], state[b, i + 5], state[b, i + 6], state[b, i + 3])
        position = wp.vec3d(state[b, i], state[b, i + 1], state[b, i + 2]) - center
        velocity = wp.vec3d(state[b, i + 7], state[b, i + 8], state[b, i + 9])
        arm = half[r] * wp.quat_rotate(turn, wp.vec3d(_zero, _zero, _one))
        rate = half[r] * wp.quat_rotate(turn, wp.vec3d(state[b, i + 11], -state[b, i + 10], _zero))
        for side in range(2):
            sign = wp.float64(2 * side - 1)
            p = position + sign * arm
            v = velocity + sign * rate
            o = NODE * (2 * r + side)
            out[b, o] = hx * p[0] + hy * p[1]
            out[b, o + 1] = hx * p[1] - hy * p[0]
            out[b, o + 2] = p[2]
            out[b, o + 3] = hx * v[0] + hy * v[1]
            out[b, o + 4] = hx * v[1] - hy * v[0]
            out[b, o + 5] = v[2]
    first_motor = 2 * NODE * num_rods
    first_column = out.shape[1] - columns.shape[0]
    for m in range(first_column - first_motor):
        out[b, first_motor + m] = motor_scale * state[b, ROD * num_rods + m]
    for c in range(columns.shape[0]):
        out[b, first_column + c] = context[b, columns[c]]


OBSERVE = wp.kernel(observe_kernel, enable_backward=False)


# --- follow a velocity -------------------------------------------------------------------------------------------------

# Further columns of the context.
START_ALONG, TARGET_ALONG, START_ACROSS, TARGET_ACROSS, ELAPSED, SUCCESS = map(wp.constant, range(12, 18))
MEAN_ALONG, MEAN_ACROSS, MEAN_UP, GROUND = map(wp.constant, range(18, 22))


def follow_kernel(
    num_rods: int,
    seconds: wp.float64,
    gain: wp.float64,
    state: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
):
    """Context after `seconds`: motion relative to start and target, and whether `FollowVelocity.success_definition` holds.

    The averaged error of the velocity becomes (1 - gain) of itself + gain of the error.
    """
    b = wp.tid()
    for c in range(before.shape[1]):
        after[b, c] = before[b, c]
    position = mean_over_rods(state, b, 0, num_rods)
    velocity = mean_over_rods(state, b, 7, num_rods)
    write_motion(position, velocity, before[b, HX], before[b, HY], b, after)
    along = after[b, ALONG] - before[b, START_ALONG]
    across = after[b, ACROSS] - before[b, START_ACROSS]
    elapsed = before[b, ELAPSED] + seconds
    after[b, ALONG] = along
    after[b, ACROSS] = across
    after[b, V_ALONG] = after[b, V_ALONG] - before[b, TARGET_ALONG]
    after[b, V_ACROSS] = after[b, V_ACROSS] - before[b, TARGET_ACROSS]
    keep = _one - gain
    after[b, MEAN_ALONG] = keep * before[b, MEAN_ALONG] + gain * after[b, V_ALONG]
    after[b, MEAN_ACROSS] = keep * before[b, MEAN_ACROSS] + gain * after[b, V_ACROSS]
    after[b, MEAN_UP] = keep * before[b, MEAN_UP] + gain * after[b, V_UP]
    after[b, ELAPSED] = elapsed
    after[b, SUCCESS] = _zero
    asked = elapsed * before[b, TARGET_ALONG]
    allowed = wp.max(_share * asked, _way)
    if elapsed >= _enough and wp.abs(along - asked) <= allowed and wp.abs(across) <= allowed:
        after[b, SUCCESS] = _one


FOLLOW = wp.kernel(follow_kernel, enable_backward=False)


# --- visit waypoints ---------------------------------------------------------------------------------------------------

# Further columns of the context; "approached" is the distance from the waypoint that was next before the step.
DISTANCE, APPROACHED, GOAL_X, GOAL_Y, REACHED, COUNT, POINTS = map(wp.constant, range(12, 19))


def visit_kernel(
    num_rods: int,
    radius: wp.float64,
    state: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
):
    """Context after a step: a waypoint within the radius hands over to the next (the last one stays), and h points there."""
    b = wp.tid()
    for c in range(before.shape[1]):
        after[b, c] = before[b, c]
    position = mean_over_rods(state, b, 0, num_rods)
    way = wp.vec2d(before[b, GOAL_X] - position[0], before[b, GOAL_Y] - position[1])
    after[b, APPROACHED] = wp.length(way)
    if wp.length(way) <= radius and before[b, REACHED] < before[b, COUNT]:
        after[b, REACHED] = before[b, REACHED] + _one
        following = POINTS + 2 * int(wp.min(after[b, REACHED], before[b, COUNT] - _one))
        after[b, GOAL_X] = before[b, following]
        after[b, GOAL_Y] = before[b, following + 1]
        way = wp.vec2d(after[b, GOAL_X] - position[0], after[b, GOAL_Y] - position[1])
    distance = wp.length(way)
    after[b, DISTANCE] = distance
    h = way / wp.max(distance, _tiny)
    write_motion(position, mean_over_rods(state, b, 7, num_rods), h[0], h[1], b, after)


VISIT = wp.kernel(visit_kernel, enable_backward=False)


# --- on a device: what Numba computes elsewhere, bit for bit -----------------------------------------------------------


@wp.func
def squares(action: wp.array2d(dtype=wp.float64), b: int):
    """|action|^2 of row b."""
    total = wp.float64(0.0)
    for k in range(action.shape[1]):
        total += action[b, k] * action[b, k]
    return total


def follow_reward_kernel(
    along: wp.float64,
    across: wp.float64,
    up: wp.float64,
    effort: wp.float64,
    action: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
    terms: wp.array2d(dtype=wp.float64),
):
    """See `reward_kernels.follow_terms`."""
    b = wp.tid()
    terms[b, 0] = -along * (after[b, MEAN_ALONG] * after[b, MEAN_ALONG])
    terms[b, 1] = -across * (after[b, MEAN_ACROSS] * after[b, MEAN_ACROSS])
    terms[b, 2] = -up * (after[b, MEAN_UP] * after[b, MEAN_UP])
    terms[b, 3] = effort * squares(action, b)


FOLLOW_REWARD = wp.kernel(follow_reward_kernel, enable_backward=False)


def visit_reward_kernel(
    bonus: wp.float64,
    effort: wp.float64,
    action: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
    terms: wp.array2d(dtype=wp.float64),
):
    """See `reward_kernels.visit_terms`."""
    b = wp.tid()
    terms[b, 0] = before[b, DISTANCE] - after[b, APPROACHED]
    terms[b, 1] = bonus * (after[b, REACHED] - before[b, REACHED])
    terms[b, 2] = effort * squares(action, b)


VISIT_REWARD = wp.kernel(visit_reward_kernel, enable_backward=False)


@wp.func
def height_at(
    rise: wp.float64,
    per_cell: wp.float64,
    last_x: int,
    last_y: int,
    cells: wp.array2d(dtype=wp.float64),
    x: wp.float64,
    y: wp.float64,
    scale: wp.float64,
):
    """See `heights.height_at`; not for NaN."""
    half = wp.float64(0.5)
    s = x * per_cell + half * (wp.float64(last_x) + _one)
    t = y * per_cell + half * (wp.float64(last_y) + _one)
    s = wp.min(wp.max(s, _zero), wp.float64(last_x) + _one)
    t = wp.min(wp.max(t, _zero), wp.float64(last_y) + _one)
    i = wp.min(int(s), last_x)
    j = wp.min(int(t), last_y)
    k = i * (last_y + 1) + j
    s = s - wp.float64(i)
    t = t - wp.float64(j)
    return x * rise + scale * (cells[k, 0] + cells[k, 1] * s + (cells[k, 2] + cells[k, 3] * s) * t)


def feel_kernel(
    rise: wp.float64,
    per_cell: wp.float64,
    last_x: int,
    last_y: int,
    cells: wp.array2d(dtype=wp.float64),
    patch: wp.array2d(dtype=wp.float64),
    before: wp.array2d(dtype=wp.float64),
    after: wp.array2d(dtype=wp.float64),
):
    """See `features.feel`; `before` and `after` may be one array."""
    b = wp.tid()
    for c in range(before.shape[1]):
        after[b, c] = before[b, c]
    hx = after[b, HX]
    hy = after[b, HY]
    for k in range(patch.shape[0]):
        x = after[b, COM_X] + (hx * patch[k, 0] - hy * patch[k, 1])
        y = after[b, COM_Y] + (hy * patch[k, 0] + hx * patch[k, 1])
        height = height_at(rise, per_cell, last_x, last_y, cells, x, y, after[b, SCALE])
        if k > 0:
            height = height - after[b, GROUND]
        after[b, GROUND + k] = height
    after[b, HEIGHT] = after[b, HEIGHT] - after[b, GROUND]


FEEL = wp.kernel(feel_kernel, enable_backward=False)
