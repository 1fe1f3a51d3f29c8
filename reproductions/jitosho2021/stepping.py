"""The model of [Jitosho2021] (arXiv 2011.01917), exactly: its quadratic program of section II-H, solved in O(N).

    minimise 1/2 v' M v - v' (M v_k + h F)        F: springs and dampers at the pins, explicit, eqs (7)-(8)
    c(q_k) / h + J v = 0                          pins and prismatic joints, eq. (12)
    Phi(q_k) / h + L v >= 0                       the distal end of every link against every obstacle, eq. (13)
    (dg/dq h + dg/dv) v = u                       growth speed of every prismatic joint, eq. (14); u alike for all
    q_{k+1} = q_k + h v                           eq. (10)

Per link, the two rows of the prismatic joint and that of growth make the velocity of the distal body affine in that of the
proximal one, and the pin makes the latter affine in the velocity e of the link's near end: one number per link remains, and the
program is that of `chain`, drift feedback included. Contacts act on (e, w) of their link; those whose gap might close form the
dual program, solved by `boxqp`. The result is the program's only solution, to rounding.

Growth is a constraint of unlimited force: head-on into a wall the program is infeasible, and the row is DIVERGED.
Legend: B batch, L links, C contacts.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from softgym_envs.systems.vine.chain import EndMotion, Gain, LinkStage, Value, backward, feedback, forward, record

from .memory import Pair, Tube, Workspace, World, at, turn_left
from .pushes import apply_pushes, find_pushes, push_matrix, solve_pushes

SPEED_LIMIT = 1e4
"""[m/s, rad/s] A robot faster than this has diverged."""

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_limit = wp.constant(wp.float64(SPEED_LIMIT))
_reach = wp.constant(wp.float64(5e-3))
_small_angle = wp.constant(wp.float64(1e-2))
_c6, _c24, _c120, _c720 = (wp.constant(wp.float64(1.0 / n)) for n in (6, 24, 120, 720))
_half = wp.constant(wp.float64(0.5))
MASS, INERTIA, STIFFNESS, DAMPING = (wp.constant(k) for k in range(4))


@wp.func
def turned(t: wp.vec2d, angle: wp.float64):
    """Direction t turned by `angle`: by series where it is small, as the two bodies of a link are in line."""
    y = angle * angle
    c = _one - y * (_half - y * (_c24 - y * _c720))
    s = angle * (_one - y * (_c6 - y * _c120))
    if wp.abs(angle) > _small_angle:
        c = wp.cos(angle)
        s = wp.sin(angle)
    return wp.vec2d(c * t[0] - s * t[1], s * t[0] + c * t[1])


@wp.func
def pair_of(u: wp.float64, h: wp.float64, qa: wp.vec3d, qp: wp.vec3d, dv: wp.vec2d):
    """Rows (12) and (14) of link i's prismatic joint, solved for the distal body; dv is v_p - v_a of the last step."""
    rate = _one / h
    pair = Pair()
    pair.ta = wp.vec2d(wp.cos(qa[2]), wp.sin(qa[2]))
    pair.tp = turned(pair.ta, qp[2] - qa[2])
    na = turn_left(pair.ta)
    np_ = turn_left(pair.tp)
    delta = wp.vec2d(qp[0] - qa[0], qp[1] - qa[1])
    inverse = _one / wp.length(delta)
    e = inverse * delta
    r = e + (h * inverse) * (dv - wp.dot(e, dv) * e)
    # [na; r] dv+ = [(ta . delta) w - (na . delta)/h; u]
    determinant = _one / (na[0] * r[1] - na[1] * r[0])
    across = determinant * wp.vec2d(r[1], -r[0])
    along = determinant * wp.vec2d(-na[1], na[0])
    pair.beta = wp.dot(pair.ta, delta) * across
    pair.alpha = u * along - (rate * wp.dot(na, delta)) * across
    lever = _one / wp.dot(pair.tp, delta)
    pair.gamma = lever * (wp.dot(np_, pair.alpha) + rate * wp.dot(np_, delta))
    pair.delta = lever * wp.dot(np_, pair.beta)
    return pair


@wp.func
def pin_moment(row: int, i: int, tube: Tube, world: World, state: wp.array2d(dtype=wp.float64)):
    """-(k dtheta + c domega) of the pin at the near end of link i."""
    bodies = 2 * world.links
    qa = at(row, 2 * i, state)
    va = at(row, bodies + 2 * i, state)
    bend = qa[2] - world.heading
    rate = va[2]
    if i > 0:
        bend = qa[2] - state[row, 3 * (2 * i - 1) + 2]
        rate = va[2] - state[row, 3 * (bodies + 2 * i - 1) + 2]
    return -(tube.k * bend + tube.c * rate)


@wp.func
def stage_of(pair: Pair, va: wp.vec3d, vp: wp.vec3d, wa: wp.float64, w_p: wp.float64, d: wp.float64, tube: Tube):
    """Cost and transition of a link, see `chain.LinkStage`; wa, w_p: rates of its bodies after the pins' moments."""
    na = turn_left(pair.ta)
    np_ = turn_left(pair.tp)
    arm = d * na + pair.beta
    ahead = pair.alpha - wp.vec2d(vp[0], vp[1])
    before = wp.vec2d(va[0], va[1])
    s = LinkStage()
    s.m = _two * tube.m
    s.g = tube.m * (d * na + arm)
    s.inertia = tube.m * (d * d + wp.dot(arm, arm)) + tube.inertia * (_one + pair.delta * pair.delta)
    s.le = tube.m * (ahead - before)
    turning = pair.delta * (pair.gamma - w_p) - wa
    s.lw = tube.m * (wp.dot(arm, ahead) - d * wp.dot(na, before)) + tube.inertia * turning
    s.b = arm + (d * pair.delta) * np_
    s.k = pair.alpha + (d * pair.gamma) * np_
    return s


@wp.func
def solve_chain(row: int, u: wp.float64, tube: Tube, world: World, state: wp.array2d(dtype=wp.float64), work: Workspace):
    """Sweep from the tip to the base: feedback of every link; the moment of a pin turns both bodies. -> gap at the base [m]."""
    d = world.d
    spin = world.dt / tube.inertia
    per_step = _one / world.dt
    bodies = 2 * world.links
    value = Value()
    beyond = wp.vec2d(_zero, _zero)  # near end of the next link
    moment = wp.float64(0.0)  # of the pin at the far end
    for back in range(world.links):
        i = world.links - 1 - back
        qa = at(row, 2 * i, state)
        qp = at(row, 2 * i + 1, state)
        va = at(row, bodies + 2 * i, state)
        vp = at(row, bodies + 2 * i + 1, state)
        pair = pair_of(u, world.dt, qa, qp, wp.vec2d(vp[0] - va[0], vp[1] - va[1]))
        work.pairs[row, i] = pair
        near_moment = pin_moment(row, i, tube, world, state)
        s = stage_of(pair, va, vp, va[2] + spin * near_moment, vp[2] - spin * moment, d, tube)
        moment = near_moment
        if back > 0:
            s.k = s.k - per_step * (beyond - wp.vec2d(qp[0], qp[1]) - d * pair.tp)
        beyond = wp.vec2d(qa[0], qa[1]) - d * pair.ta
        gain = feedback(value, s)
        work.gains[row, i] = gain
        value = backward(value, s, gain)
    return beyond


@wp.func
def sweep_out(row: int, links: int, start: EndMotion, gains: wp.array2d(dtype=Gain), motions: wp.array2d(dtype=EndMotion)):
    """Velocities from the base to the tip. -> largest speed of a link's end, squared."""
    x = start
    motions[row, 0] = x
    fastest = wp.float64(0.0)
    for i in range(links):
        x = forward(x, gains[row, i])
        motions[row, i + 1] = x
        fastest = wp.max(fastest, wp.dot(x.e, x.e))
    return fastest


@wp.func
def move_bodies(row: int, world: World, state: wp.array2d(dtype=wp.float64), work: Workspace):
    """v of both bodies of every link, and q += h v."""
    first = 6 * world.links
    for i in range(world.links):
        pair = work.pairs[row, i]
        w = work.motions[row, i + 1].w
        va = work.motions[row, i].e + (world.d * w) * turn_left(pair.ta)
        vp = va + pair.alpha + w * pair.beta
        wp_ = pair.gamma + w * pair.delta
        x = 6 * i
        state[row, first + x] = va[0]
        state[row, first + x + 1] = va[1]
        state[row, first + x + 2] = w
        state[row, first + x + 3] = vp[0]
        state[row, first + x + 4] = vp[1]
        state[row, first + x + 5] = wp_
        state[row, x] = state[row, x] + world.dt * va[0]
        state[row, x + 1] = state[row, x + 1] + world.dt * va[1]
        state[row, x + 2] = state[row, x + 2] + world.dt * w
        state[row, x + 3] = state[row, x + 3] + world.dt * vp[0]
        state[row, x + 4] = state[row, x + 4] + world.dt * vp[1]
        state[row, x + 5] = state[row, x + 5] + world.dt * wp_


@wp.func
def resolve_pushes(
    row: int,
    u: wp.float64,
    start: EndMotion,
    reached: wp.float64,
    tube: Tube,
    world: World,
    state: wp.array2d(dtype=wp.float64),
    work: Workspace,
):
    """Velocities of the step with contacts; `reached` is the largest speed without. -> 1, or 0 if there is no solution.

    Only gaps that might close are rows of the program; if its solution moves further than assumed, all starts over.
    """
    good = int(1)
    reach = _reach + _two * world.dt * reached
    searching = int(1)
    while searching == 1 and world.shapes.shape[0] > 0:
        searching = 0
        count = find_pushes(row, reach, world, state, work)
        if count > work.pushes.shape[1]:
            good = 0
            count = 0
        if count > 0:
            push_matrix(row, count, work)
            solved = solve_pushes(row, count, work)
            if solved == 0:
                good = 0
            if solved == 2:
                apply_pushes(row, count, work)
                fastest = wp.sqrt(sweep_out(row, world.links, start, work.gains, work.motions))
                if world.dt * fastest > reach:  # a gap beyond reach might have closed
                    reach = _two * world.dt * fastest
                    if fastest < _limit:
                        solve_chain(row, u, tube, world, state, work)
                        sweep_out(row, world.links, start, work.gains, work.motions)
                        searching = 1
                    else:
                        good = 0
    return good


def rollout_kernel(
    world: World,
    parameter_values: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    work: Workspace,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """All substeps of row b, in the first slot of `state`; see `engines.warp.engine` for the arguments. Forward only."""
    b = wp.tid()
    tube = Tube()
    tube.m = parameter_values[b, MASS]
    tube.inertia = parameter_values[b, INERTIA]
    tube.k = parameter_values[b, STIFFNESS]
    tube.c = parameter_values[b, DAMPING]
    for t in range(horizon):
        u = wp.clamp(controls[b, t, 0], _zero, world.max_growth) / wp.float64(world.links)
        for _s in range(substeps):
            if status[b] == _zero:
                start = EndMotion()
                start.e = -solve_chain(b, u, tube, world, state, work) / world.dt
                fastest = wp.sqrt(sweep_out(b, world.links, start, work.gains, work.motions))
                if resolve_pushes(b, u, start, fastest, tube, world, state, work) == 0:
                    status[b] = _one
                move_bodies(b, world, state, work)
        record(b, t, 6 * world.links, 12 * world.links, _limit, state, states, status)
