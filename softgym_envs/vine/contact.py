"""Contact of the tube with obstacles: non-penetration, Coulomb friction and force-limited growth as one small program.

Rows are velocities [m/s]; impulses [N s] of a row are its multipliers. For C gaps that may close within a step h:

    normal c    d . e_i + beta w_i + gamma g + phi/h >= 0,   impulse >= 0                  (gamma = d . t at the tip, else 0)
    tangent c   velocity of the skin along the obstacle,     |impulse| <= mu normal impulse
    drive       g - u = 0 as far as                          impulse <= h F                (no lower limit: the reel holds)
    ratchet     g >= 0,                                      impulse >= 0

g is the growth speed, u the one asked for, F the force with which pressure drives the tip. As the drive may give way, the
program is feasible whenever nothing overlaps (everything at rest satisfies it): growth stalls instead. Growth itself rubs
nowhere: what has been laid down stays where it is.

Friction: bounds mu x normal impulse are renewed until they change no more, each program solved exactly (`boxqp`). Where a
contact's friction raises its normal force (mu from 0.5, at a slant) that settles slowly or not at all: from the fifth round on,
every second one is a step of Newton's method (`tie_cones`). No proof says that it ends: at mu = 0.9 one step of some thousands
does not settle.
Legend: C contacts, R = 2 C + 2 rows, in the order normals, tangents, drive, ratchet.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from ..core import warp_engine  # noqa: F401  (sets Warp up)
from .boxqp import HIGH, LINEAR, LOW, WORK, X, box_qp
from .chain import Gain, Motion, Spread, covary, impulse, respond, spread
from .geometry import CIRCLE, POLYGON, Place, Shape, inner_distance, point_distance

FRICTION_ROUNDS = 80

_rounds = wp.constant(FRICTION_ROUNDS)
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_endless = wp.constant(wp.float64(1e30))
_small_x = wp.constant(wp.float64(1e-13))
_small_w = wp.constant(wp.float64(1e-10))
_own = wp.constant(wp.float64(1e-6))
_common = wp.constant(wp.float64(1e-8))
_settled = wp.constant(wp.float64(1e-7))
_singular = wp.constant(wp.float64(1e-9))
_beyond = wp.constant(wp.float64(8.0))
_wide_open = wp.constant(wp.float64(1e4))
_plain = wp.constant(4)
_damped = wp.constant(20)
_reopened = wp.constant(50)


@wp.struct
class Link:
    """A link as it is now: near end, direction, length, and velocity of its centre of mass in the last step."""

    p: wp.vec2d
    t: wp.vec2d
    length: wp.float64
    v: wp.vec2d


@wp.struct
class Contact:
    """A gap that may close: which link and obstacle, gradient d, factors of w_i (normal, tangent) and g, gap, place.

    zn and zt are covariances of the two rows; normal and tangent their impulses [N s].
    """

    link: int
    obstacle: int
    d: wp.vec2d
    bn: wp.float64
    bt: wp.float64
    gamma: wp.float64
    gap: wp.float64
    arm: wp.float64
    zn: wp.vec3d
    zt: wp.vec3d
    normal: wp.float64
    tangent: wp.float64


# --- which gaps there are --------------------------------------------------------------------------------------------


@wp.func
def keep(row: int, count: int, contact: Contact, contacts: wp.array2d(dtype=Contact)):
    """Append; if the list is full, the widest gap goes. -> new count. The list stays in the order of the links."""
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
    link: Link, i: int, obstacle: int, d: wp.vec2d, gap: wp.float64, arm: wp.float64, radius: wp.float64, at_tip: int
):
    """Normal row d . (e + arm w n) + gamma g, tangent row t . (e + arm w n) - radius w with t = d turned left."""
    contact = Contact()
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
def find_contacts(
    row: int,
    num: int,
    radius: wp.float64,
    reach: wp.float64,
    shapes: wp.array(dtype=Shape),
    places: wp.array2d(dtype=Place),
    corners: wp.array2d(dtype=wp.vec2d),
    links: wp.array2d(dtype=Link),
    contacts: wp.array2d(dtype=Contact),
):
    """All gaps below `reach` of the first `num` links, in the order of the links. -> how many."""
    count = int(0)
    for i in range(num):
        link = links[row, i]
        half = _half * link.length
        middle = link.p + half * link.t
        at_tip = int(0)
        if i == num - 1:
            at_tip = 1
        for m in range(shapes.shape[0]):
            shape = shapes[m]
            place = places[row, m]
            limit = shape.bound + radius + reach
            to = middle - place.p
            near = wp.dot(to, to) < (limit + half) * (limit + half)
            if shape.bound > _one / _small_x:
                near = wp.dot(place.n, to) < half + radius + reach
            if near:
                limit = radius + reach
                end = link.p + link.length * link.t
                found = point_distance(row, end, shape, place, corners)
                if found[0] < limit:
                    d = wp.vec2d(found[1], found[2])
                    count = keep(
                        row, count, contact_at(link, i, m, d, found[0] - radius, link.length, radius, at_tip), contacts
                    )
                if shape.kind == CIRCLE:
                    inner = inner_distance(place.p, link.p, link.t, link.length)
                    if inner[0] - shape.radius < limit:
                        d = wp.vec2d(inner[1], inner[2])
                        gap = inner[0] - shape.radius - radius
                        count = keep(row, count, contact_at(link, i, m, d, gap, inner[3], radius, 0), contacts)
                if shape.kind == POLYGON:
                    for k in range(shape.first, shape.first + shape.count):
                        inner = inner_distance(corners[row, k], link.p, link.t, link.length)
                        if inner[0] < limit:
                            d = wp.vec2d(inner[1], inner[2])
                            count = keep(
                                row, count, contact_at(link, i, m, d, inner[0] - radius, inner[3], radius, 0), contacts
                            )
    return count


# --- the small program -----------------------------------------------------------------------------------------------


@wp.func
def row_on_far_end(d: wp.vec2d, beta: wp.float64, gain: Gain):
    """The row d . e_i + beta w_i as a row on x_{i+1} = (e_{i+1}, w_i)."""
    return wp.vec3d(d[0], d[1], beta - wp.dot(d, gain.b))


@wp.func
def build_matrix(
    row: int,
    count: int,
    mobility: wp.float64,
    gains: wp.array2d(dtype=Gain),
    contacts: wp.array2d(dtype=Contact),
    matrix: wp.array2d(dtype=wp.float64),
):
    """W = A M^-1 A' of all rows; `mobility` is 1 / (mass that grows)."""
    size = 2 * count + 2
    covariance = Spread()
    done = int(0)
    for i in range(contacts[row, count - 1].link + 1):
        gain = gains[row, i]
        covariance = spread(covariance, gain)
        while done < count and contacts[row, done].link == i:
            contact = contacts[row, done]
            turned = wp.vec2d(-contact.d[1], contact.d[0])
            rn = row_on_far_end(contact.d, contact.bn, gain)
            rt = row_on_far_end(turned, contact.bt, gain)
            contact.zn = covary(covariance, rn)
            contact.zt = covary(covariance, rt)
            contacts[row, done] = contact
            fill_rows(row, done, count, rn, rt, mobility, gains, contacts, matrix)
            done += 1
    for k in range(2):
        r = 2 * count + k
        for c in range(count):
            value = mobility * contacts[row, c].gamma
            matrix[row, r * size + c] = value
            matrix[row, c * size + r] = value
            matrix[row, r * size + count + c] = _zero
            matrix[row, (count + c) * size + r] = _zero
        for other in range(2):
            matrix[row, r * size + 2 * count + other] = mobility


@wp.func
def fill_rows(
    row: int,
    last: int,
    count: int,
    rn: wp.vec3d,
    rt: wp.vec3d,
    mobility: wp.float64,
    gains: wp.array2d(dtype=Gain),
    contacts: wp.array2d(dtype=Contact),
    matrix: wp.array2d(dtype=wp.float64),
):
    """Entries of contact `last` with itself and all before it, which are nearer to the base."""
    size = 2 * count + 2
    gamma = contacts[row, last].gamma
    at = contacts[row, last].link
    n = rn
    t = rt
    for back in range(last + 1):
        c = last - back
        other = contacts[row, c]
        while at > other.link:
            n = respond(n, gains[row, at])
            t = respond(t, gains[row, at])
            at -= 1
        nn = wp.dot(other.zn, n) + mobility * gamma * other.gamma
        nt = wp.dot(other.zn, t)
        tn = wp.dot(other.zt, n)
        tt = wp.dot(other.zt, t)
        matrix[row, c * size + last] = nn
        matrix[row, last * size + c] = nn
        matrix[row, c * size + count + last] = nt
        matrix[row, (count + last) * size + c] = nt
        matrix[row, (count + c) * size + last] = tn
        matrix[row, last * size + count + c] = tn
        matrix[row, (count + c) * size + count + last] = tt
        matrix[row, (count + last) * size + count + c] = tt


@wp.func
def soften(row: int, size: int, matrix: wp.array2d(dtype=wp.float64)):
    """A little compliance on the diagonal, so that W is positive definite where rows are parallel."""
    largest = wp.float64(0.0)
    for i in range(size):
        largest = wp.max(largest, matrix[row, i * size + i])
    for i in range(size):
        matrix[row, i * size + i] = matrix[row, i * size + i] * (_one + _own) + _common * largest


@wp.func
def set_row(
    row: int,
    size: int,
    i: int,
    linear: wp.float64,
    low: wp.float64,
    high: wp.float64,
    at: int,
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
):
    """Linear term, bounds and first side of one row."""
    vectors[row, LINEAR * size + i] = linear
    vectors[row, LOW * size + i] = low
    vectors[row, HIGH * size + i] = high
    side[row, i] = at


@wp.func
def set_rows(
    row: int,
    count: int,
    inverse_h: wp.float64,
    growth: wp.float64,
    asked: wp.float64,
    push: wp.float64,
    motions: wp.array2d(dtype=Motion),
    contacts: wp.array2d(dtype=Contact),
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
):
    """Rows at the free velocities; tangents have no force at first. An overlap is taken back by half in a step."""
    size = 2 * count + 2
    for c in range(count):
        contact = contacts[row, c]
        e = motions[row, contact.link].e
        w = motions[row, contact.link + 1].w
        gap = contact.gap * inverse_h
        if contact.gap < _zero:
            gap = _half * gap
        vn = wp.dot(contact.d, e) + contact.bn * w + contact.gamma * growth + gap
        at = int(-1)
        if vn < _zero:
            at = 0
        set_row(row, size, c, vn, _zero, _endless, at, vectors, side)
        vt = contact.d[0] * e[1] - contact.d[1] * e[0] + contact.bt * w
        set_row(row, size, count + c, vt, _zero, _zero, -1, vectors, side)
    set_row(row, size, 2 * count, growth - asked, -_endless, push, 0, vectors, side)
    set_row(row, size, 2 * count + 1, growth, _zero, _endless, -1, vectors, side)


@wp.func
def widen_cones(
    row: int, count: int, mu: wp.float64, blend: wp.float64, vectors: wp.array2d(dtype=wp.float64), side: wp.array2d(dtype=int)
):
    """Bounds of the tangents <- mu x normal impulse, blended with those before; they overshoot (blend > 1) upwards only.

    -> largest change over largest bound.
    """
    size = 2 * count + 2
    change = wp.float64(0.0)
    largest = wp.float64(0.0)
    for c in range(count):
        t = count + c
        before = vectors[row, HIGH * size + t]
        bound = mu * wp.max(vectors[row, X * size + c], _zero)
        share = blend
        if bound < before:
            share = wp.min(blend, _one)
        bound = before + share * (bound - before)
        change = wp.max(change, wp.abs(bound - before))
        largest = wp.max(largest, bound)
        vectors[row, LOW * size + t] = -bound
        vectors[row, HIGH * size + t] = bound
        if before == _zero and bound > _zero:
            side[row, t] = 0
    return change / wp.max(largest, _small_x)


@wp.func
def tie_cones(
    row: int,
    count: int,
    mu: wp.float64,
    matrix: wp.array2d(dtype=wp.float64),
    factor: wp.array2d(dtype=wp.float64),
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
):
    """Normal impulses if every row stays free or at its bound as it is, with sliding friction t = side mu n: Newton's step.

    (W_ff + mu W_ft side) x_f = -b_f - W_fb x_b, f free, t tangents at a bound, b drive and ratchet at a bound; by elimination.
    -> 1; or 0, and nothing changes, at a pivot that is not positive: a normal force that grows with the friction that it causes
    faster than this friction, as long as the contact slides.
    """
    size = 2 * count + 2
    regular = int(1)
    for i in range(size):
        if side[row, i] == 0 and regular == 1:
            total = -vectors[row, LINEAR * size + i]
            for j in range(2 * count, size):
                if side[row, j] != 0:
                    total -= matrix[row, i * size + j] * vectors[row, X * size + j]
            for j in range(size):
                if side[row, j] == 0:
                    value = matrix[row, i * size + j]
                    if j < count:
                        value += mu * wp.float64(side[row, count + j]) * matrix[row, i * size + count + j]
                    for k in range(wp.min(i, j)):
                        if side[row, k] == 0:
                            value -= factor[row, i * size + k] * factor[row, k * size + j]
                    if j < i:
                        value = value / factor[row, j * size + j]
                        total -= value * vectors[row, WORK * size + j]
                    factor[row, i * size + j] = value
            vectors[row, WORK * size + i] = total
            if factor[row, i * size + i] <= _singular * matrix[row, i * size + i]:
                regular = 0
    if regular == 1:
        for back in range(size):
            i = size - 1 - back
            if side[row, i] == 0:
                total = vectors[row, WORK * size + i]
                for k in range(i + 1, size):
                    if side[row, k] == 0:
                        total -= factor[row, i * size + k] * vectors[row, WORK * size + k]
                vectors[row, WORK * size + i] = total / factor[row, i * size + i]
        for c in range(count):
            if side[row, c] == 0:
                vectors[row, X * size + c] = vectors[row, WORK * size + c]
    return regular


@wp.func
def solve_contacts(
    row: int,
    count: int,
    mu: wp.float64,
    matrix: wp.array2d(dtype=wp.float64),
    factor: wp.array2d(dtype=wp.float64),
    vectors: wp.array2d(dtype=wp.float64),
    side: wp.array2d(dtype=int),
):
    """Impulses of all rows into vectors[X]. -> 1, or 0 if a program was not solved.

    Rounds of friction: plain ones; then Newton's in turn with plain, later damped ones. Where Newton's is refused the bounds
    overshoot, for then the contact jams and sticks. Late, once, cones so wide that all that pushes sticks.
    """
    size = 2 * count + 2
    soften(row, size, matrix)
    good = box_qp(row, size, matrix, factor, vectors, side, _small_x, _small_w)
    if mu > _zero:
        round = int(0)
        while round < _rounds:
            blend = wp.float64(1.0)
            if round >= _damped:
                blend = _half
            if round >= _plain and round % 2 == 0:
                if tie_cones(row, count, mu, matrix, factor, vectors, side) == 0:
                    blend = _beyond
            if round == _reopened:
                blend = _wide_open
            change = widen_cones(row, count, mu, blend, vectors, side)
            if change < _settled:
                round = _rounds
            else:
                good = good * box_qp(row, size, matrix, factor, vectors, side, _small_x, _small_w)
                round += 1
    return good


@wp.func
def apply_impulses(
    row: int,
    count: int,
    gains: wp.array2d(dtype=Gain),
    contacts: wp.array2d(dtype=Contact),
    vectors: wp.array2d(dtype=wp.float64),
):
    """Impulses into the links' feedback (a sweep from the tip to the base), and into the contacts. -> total on g [N s]."""
    size = 2 * count + 2
    last = int(count - 1)
    p = wp.vec3d(_zero, _zero, _zero)
    total = vectors[row, X * size + 2 * count] + vectors[row, X * size + 2 * count + 1]
    outermost = contacts[row, count - 1].link
    for back in range(outermost + 1):
        i = outermost - back
        at_e = wp.vec2d(_zero, _zero)
        at_w = wp.float64(0.0)
        while last >= 0 and contacts[row, wp.max(last, 0)].link == i:
            contact = contacts[row, last]
            n = vectors[row, X * size + last]
            t = vectors[row, X * size + count + last]
            at_e = at_e + n * contact.d + t * wp.vec2d(-contact.d[1], contact.d[0])
            at_w += n * contact.bn + t * contact.bt
            total += n * contact.gamma
            contact.normal = n
            contact.tangent = t
            contacts[row, last] = contact
            last -= 1
        gain = gains[row, i]
        before, df = impulse(p, at_e, at_w, gain)
        gain.f = gain.f + df
        gains[row, i] = gain
        p = before
    return total
