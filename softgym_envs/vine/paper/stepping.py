"""The model of [Jitosho2021] (arXiv 2011.01917), exactly: its quadratic program of section II-H, solved in O(N).

    minimise 1/2 v' M v - v' (M v_k + h F)        F: springs and dampers at the pins, explicit, eqs (7)-(8)
    c(q_k) / h + J v = 0                          pins and prismatic joints, eq. (12)
    Phi(q_k) / h + L v >= 0                       the distal end of every link against every obstacle, eq. (13)
    (dg/dq h + dg/dv) v = u                       growth speed of every prismatic joint, eq. (14); u alike for all
    q_{k+1} = q_k + h v                           eq. (10)

Per link, the two rows of the prismatic joint and that of growth make the velocity of the distal body affine in that of the
proximal one, and the pin makes the latter affine in the velocity e of the link's near end: what is left is one number per link,
and the program is that of `chain`, drift feedback included. Contacts act on (e, w) of their link; those whose gap might close
form the dual program, solved by `boxqp`. The result is the program's only solution, to rounding.

Growth is a constraint of unlimited force: head-on into a wall the program is infeasible, and the row is DIVERGED.
Legend: B batch, L links, C contacts.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from ..boxqp import HIGH, LINEAR, LOW, X, box_qp
from ..chain import Gain, Motion, Spread, Stage, Value, backward, covary, feedback, forward, impulse, record, respond, spread
from ..geometry import CIRCLE, Shape, face_distance

SPEED_LIMIT = 1e4
"""[m/s, rad/s] A robot faster than this has diverged."""

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_limit = wp.constant(wp.float64(SPEED_LIMIT))
_reach = wp.constant(wp.float64(5e-3))
_endless = wp.constant(wp.float64(1e30))
_tiny = wp.constant(wp.float64(1e-14))
_small_w = wp.constant(wp.float64(1e-12))
_small_x = wp.constant(wp.float64(1e-16))
_small_angle = wp.constant(wp.float64(1e-2))
_c6, _c24, _c120, _c720 = (wp.constant(wp.float64(1.0 / n)) for n in (6, 24, 120, 720))
_half = wp.constant(wp.float64(0.5))
MASS, INERTIA, STIFFNESS, DAMPING = (wp.constant(k) for k in range(4))


@wp.struct
class Scene:
    """Structure: L, d, tube radius, heading at the base, dt, largest growth speed."""

    links: int
    d: wp.float64
    radius: wp.float64
    heading: wp.float64
    dt: wp.float64
    max_growth: wp.float64


@wp.struct
class Pair:
    """A link: directions of its bodies, and v_p = v_a + alpha + beta w, w_p = gamma + delta w, w = w_a."""

    ta: wp.vec2d
    tp: wp.vec2d
    alpha: wp.vec2d
    beta: wp.vec2d
    gamma: wp.float64
    delta: wp.float64


@wp.struct
class Push:
    """A contact: its link, the row d . e + bn w + bias >= 0 (bias holds Phi/h), and the covariance of the row."""

    link: int
    d: wp.vec2d
    bn: wp.float64
    bias: wp.float64
    z: wp.vec3d


@wp.func
def turn_left(t: wp.vec2d):
    """n = (-sin, cos) of t = (cos, sin)."""
    return wp.vec2d(-t[1], t[0])


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
def at(row: int, place: int, state: wp.array2d(dtype=wp.float64)):
    """x, y, theta of a body, or their rates."""
    return wp.vec3d(state[row, 3 * place], state[row, 3 * place + 1], state[row, 3 * place + 2])


@wp.func
def pair_of(row: int, i: int, u: wp.float64, scene: Scene, qa: wp.vec3d, qp: wp.vec3d, dv: wp.vec2d):
    """Rows (12) and (14) of link i's prismatic joint, solved for the distal body; dv is v_p - v_a of the last step."""
    h = scene.dt
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
def solve_chain(
    row: int,
    u: wp.float64,
    scene: Scene,
    m: wp.float64,
    inertia: wp.float64,
    k: wp.float64,
    c: wp.float64,
    state: wp.array2d(dtype=wp.float64),
    pairs: wp.array2d(dtype=Pair),
    gains: wp.array2d(dtype=Gain),
):
    """Sweep from the tip to the base: feedback of every link; the moment -(k dtheta + c domega) of a pin turns both bodies."""
    h = scene.dt
    d = scene.d
    spin = h / inertia
    per_step = _one / h
    bodies = 2 * scene.links
    value = Value()
    beyond = wp.vec2d(_zero, _zero)  # near end of the next link
    moment = wp.float64(0.0)  # of the pin at the far end
    for back in range(scene.links):
        i = scene.links - 1 - back
        qa = at(row, 2 * i, state)
        qp = at(row, 2 * i + 1, state)
        va = at(row, bodies + 2 * i, state)
        vp = at(row, bodies + 2 * i + 1, state)
        pair = pair_of(row, i, u, scene, qa, qp, wp.vec2d(vp[0] - va[0], vp[1] - va[1]))
        pairs[row, i] = pair
        na = turn_left(pair.ta)
        np_ = turn_left(pair.tp)
        bend = qa[2] - scene.heading
        rate = va[2]
        if i > 0:
            bend = qa[2] - state[row, 3 * (2 * i - 1) + 2]
            rate = va[2] - state[row, 3 * (bodies + 2 * i - 1) + 2]
        near_moment = -(k * bend + c * rate)
        wa = va[2] + spin * near_moment
        w_p = vp[2] - spin * moment
        moment = near_moment
        arm = d * na + pair.beta
        ahead = pair.alpha - wp.vec2d(vp[0], vp[1])
        before = wp.vec2d(va[0], va[1])
        s = Stage()
        s.m = _two * m
        s.g = m * (d * na + arm)
        s.inertia = m * (d * d + wp.dot(arm, arm)) + inertia * (_one + pair.delta * pair.delta)
        s.le = m * (ahead - before)
        s.lw = m * (wp.dot(arm, ahead) - d * wp.dot(na, before)) + inertia * (pair.delta * (pair.gamma - w_p) - wa)
        s.b = arm + (d * pair.delta) * np_
        s.k = pair.alpha + (d * pair.gamma) * np_
        if back > 0:
            s.k = s.k - per_step * (beyond - wp.vec2d(qp[0], qp[1]) - d * pair.tp)
        beyond = wp.vec2d(qa[0], qa[1]) - d * pair.ta
        gain = feedback(value, s)
        gains[row, i] = gain
        value = backward(value, s, gain)
    return beyond


@wp.func
def sweep_out(row: int, links: int, start: Motion, gains: wp.array2d(dtype=Gain), motions: wp.array2d(dtype=Motion)):
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
def find_pushes(
    row: int,
    reach: wp.float64,
    scene: Scene,
    shapes: wp.array(dtype=Shape),
    poses: wp.array(dtype=wp.vec3d),
    corners: wp.array(dtype=wp.vec2d),
    state: wp.array2d(dtype=wp.float64),
    pairs: wp.array2d(dtype=Pair),
    pushes: wp.array2d(dtype=Push),
):
    """Contact points nearer than `reach` to an obstacle, in the order of the links. -> how many, stored or not."""
    count = int(0)
    for i in range(scene.links):
        pair = pairs[row, i]
        q = at(row, 2 * i + 1, state)
        p = wp.vec2d(q[0], q[1]) + scene.d * pair.tp
        for m in range(shapes.shape[0]):
            shape = shapes[m]
            to = p - wp.vec2d(poses[m][0], poses[m][1])
            limit = shape.bound + scene.radius + reach
            if wp.dot(to, to) < limit * limit:
                found = wp.vec3d(_zero, _zero, _zero)
                if shape.kind == CIRCLE:
                    distance = wp.length(to)
                    found = wp.vec3d(distance - shape.radius, to[0] / distance, to[1] / distance)
                else:
                    found = face_distance(p, shape.first, shape.count, corners)
                gap = found[0] - scene.radius
                if gap < reach:
                    n = wp.vec2d(found[1], found[2])
                    na = turn_left(pair.ta)
                    lever = scene.d * wp.dot(n, turn_left(pair.tp))
                    push = Push()
                    push.link = i
                    push.d = n
                    push.bn = scene.d * wp.dot(n, na) + wp.dot(n, pair.beta) + lever * pair.delta
                    push.bias = gap / scene.dt + wp.dot(n, pair.alpha) + lever * pair.gamma
                    pushes[row, wp.min(count, pushes.shape[1] - 1)] = push
                    count += 1
    return count


@wp.func
def push_matrix(
    row: int,
    count: int,
    gains: wp.array2d(dtype=Gain),
    pushes: wp.array2d(dtype=Push),
    matrix: wp.array2d(dtype=wp.float64),
):
    """W = L M^-1 L' on the constraints' tangent space."""
    covariance = Spread()
    done = int(0)
    for i in range(pushes[row, count - 1].link + 1):
        gain = gains[row, i]
        covariance = spread(covariance, gain)
        while done < count and pushes[row, wp.min(done, count - 1)].link == i:
            push = pushes[row, done]
            r = wp.vec3d(push.d[0], push.d[1], push.bn - wp.dot(push.d, gain.b))
            push.z = covary(covariance, r)
            pushes[row, done] = push
            place = i + 0
            for back in range(done + 1):
                c = done - back
                other = pushes[row, c]
                while place > other.link:
                    r = respond(r, gains[row, place])
                    place -= 1
                value = wp.dot(other.z, r)
                matrix[row, c * count + done] = value
                matrix[row, done * count + c] = value
            done += 1
    for c in range(count):
        matrix[row, c * count + c] = matrix[row, c * count + c] * (_one + _tiny)


@wp.func
def apply_pushes(
    row: int,
    count: int,
    gains: wp.array2d(dtype=Gain),
    pushes: wp.array2d(dtype=Push),
    vectors: wp.array2d(dtype=wp.float64),
):
    """Impulses into the links' feedback."""
    last = int(count - 1)
    p = wp.vec3d(_zero, _zero, _zero)
    outermost = pushes[row, count - 1].link
    for back in range(outermost + 1):
        i = outermost - back
        at_e = wp.vec2d(_zero, _zero)
        at_w = wp.float64(0.0)
        while last >= 0 and pushes[row, wp.max(last, 0)].link == i:
            push = pushes[row, last]
            n = vectors[row, X * count + last]
            at_e = at_e + n * push.d
            at_w += n * push.bn
            last -= 1
        gain = gains[row, i]
        before, df = impulse(p, at_e, at_w, gain)
        gain.f = gain.f + df
        gains[row, i] = gain
        p = before


@wp.func
def solve_pushes(
    row: int,
    count: int,
    motions: wp.array2d(dtype=Motion),
    pushes: wp.array2d(dtype=Push),
    matrix: wp.array2d(dtype=wp.float64),
    factor: wp.array2d(dtype=wp.float64),
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
):
    """The dual program: impulses >= 0 of gaps that do not close. -> 1, or 0 if it was not solved."""
    needed = int(0)
    for c in range(count):
        push = pushes[row, c]
        value = wp.dot(push.d, motions[row, push.link].e) + push.bn * motions[row, push.link + 1].w + push.bias
        vectors[row, LINEAR * count + c] = value
        vectors[row, LOW * count + c] = _zero
        vectors[row, HIGH * count + c] = _endless
        vectors[row, X * count + c] = _zero
        side[row, c] = -1
        if value < _zero:
            side[row, c] = 0
            needed = 1
    good = int(1)
    if needed == 1:
        good = 2 * box_qp(row, count, matrix, factor, vectors, side, _small_x, _small_w)
    return good


@wp.func
def move_bodies(
    row: int,
    scene: Scene,
    pairs: wp.array2d(dtype=Pair),
    motions: wp.array2d(dtype=Motion),
    state: wp.array2d(dtype=wp.float64),
):
    """v of both bodies of every link, and q += h v."""
    first = 6 * scene.links
    for i in range(scene.links):
        pair = pairs[row, i]
        w = motions[row, i + 1].w
        va = motions[row, i].e + (scene.d * w) * turn_left(pair.ta)
        vp = va + pair.alpha + w * pair.beta
        wp_ = pair.gamma + w * pair.delta
        x = 6 * i
        state[row, first + x] = va[0]
        state[row, first + x + 1] = va[1]
        state[row, first + x + 2] = w
        state[row, first + x + 3] = vp[0]
        state[row, first + x + 4] = vp[1]
        state[row, first + x + 5] = wp_
        state[row, x] = state[row, x] + scene.dt * va[0]
        state[row, x + 1] = state[row, x + 1] + scene.dt * va[1]
        state[row, x + 2] = state[row, x + 2] + scene.dt * w
        state[row, x + 3] = state[row, x + 3] + scene.dt * vp[0]
        state[row, x + 4] = state[row, x + 4] + scene.dt * vp[1]
        state[row, x + 5] = state[row, x + 5] + scene.dt * wp_


def rollout_kernel(
    scene: Scene,
    shapes: wp.array(dtype=Shape),
    poses: wp.array(dtype=wp.vec3d),
    corners: wp.array(dtype=wp.vec2d),
    constants: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    pairs: wp.array2d(dtype=Pair),
    gains: wp.array2d(dtype=Gain),
    motions: wp.array2d(dtype=Motion),
    pushes: wp.array2d(dtype=Push),
    matrix: wp.array2d(dtype=wp.float64),
    factor: wp.array2d(dtype=wp.float64),
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=int),
):
    """All substeps of row b, in the first slot of `state`; see `core.warp_engine` for the arguments. Forward only."""
    b = wp.tid()
    m = constants[b, MASS]
    inertia = constants[b, INERTIA]
    k = constants[b, STIFFNESS]
    c = constants[b, DAMPING]
    for t in range(horizon):
        u = wp.clamp(controls[b, t, 0], _zero, scene.max_growth) / wp.float64(scene.links)
        for _s in range(substeps):
            if status[b] == 0:
                start = Motion()
                start.e = -solve_chain(b, u, scene, m, inertia, k, c, state, pairs, gains) / scene.dt
                fastest = wp.sqrt(sweep_out(b, scene.links, start, gains, motions))
                reach = _reach + _two * scene.dt * fastest
                searching = int(1)
                while searching == 1 and shapes.shape[0] > 0:
                    searching = 0
                    count = find_pushes(b, reach, scene, shapes, poses, corners, state, pairs, pushes)
                    if count > pushes.shape[1]:
                        status[b] = 1
                        count = 0
                    if count > 0:
                        push_matrix(b, count, gains, pushes, matrix)
                        good = solve_pushes(b, count, motions, pushes, matrix, factor, vectors, side)
                        if good == 0:
                            status[b] = 1
                        if good == 2:
                            apply_pushes(b, count, gains, pushes, vectors)
                            fastest = wp.sqrt(sweep_out(b, scene.links, start, gains, motions))
                            if scene.dt * fastest > reach:  # a gap beyond reach might have closed
                                reach = _two * scene.dt * fastest
                                if fastest < _limit:
                                    solve_chain(b, u, scene, m, inertia, k, c, state, pairs, gains)
                                    sweep_out(b, scene.links, start, gains, motions)
                                    searching = 1
                                else:
                                    status[b] = 1
                move_bodies(b, scene, pairs, motions, state)
        record(b, t, 6 * scene.links, 12 * scene.links, _limit, state, states, status)
