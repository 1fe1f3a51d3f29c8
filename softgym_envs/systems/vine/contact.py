"""Contact of the tube with obstacles: non-penetration, Coulomb friction and force-limited growth as one small program.

Rows are velocities [m/s]; impulses [N s] of a row are its multipliers. For C gaps that may close within a step h:

    normal c    d . e_i + beta w_i + gamma g + phi/h >= 0,   impulse >= 0                  (gamma = d . t at the tip, else 0)
    tangent c   velocity of the skin along the obstacle,     |impulse| <= mu normal impulse
    drive       g - u = 0 as far as                          impulse <= h F                (no lower limit: the reel holds)
    ratchet     g >= 0,                                      impulse >= 0

g is the growth speed, u the commanded one, F the force with which pressure drives the tip. As the drive may give way, the
program is feasible whenever nothing overlaps (everything at rest satisfies it): growth stalls instead. Growth itself causes
no friction: tube that has been laid down stays where it is.

Friction: bounds mu x normal impulse are updated until they no longer change, each program solved exactly (`boxqp`). Where a
contact's friction raises its normal force (mu from 0.5, at a slant) this converges slowly or not at all: from the fifth round
on, every second one is a step of Newton's method (`tie_cones`). Convergence is not proven: at mu = 0.9 one step in some
thousands does not converge.
Legend: C contacts, R = 2 C + 2 rows, in the order normals, tangents, drive, ratchet.
"""

# mypy: disable-error-code="valid-type"
# ruff: noqa: UP018, RUF046
from __future__ import annotations

import warp as wp

from ...engines.warp.precision import tolerance
from .boxqp import HIGH, LINEAR, LOW, WORK, BoxProgram, X, box_qp
from .chain import Gain, MotionCovariance, covary, impulse, respond, spread
from .memory import VineWork

FRICTION_ROUNDS = 80

_rounds = wp.constant(FRICTION_ROUNDS)
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_endless = wp.constant(wp.float64(1e30))
_small_x = wp.constant(wp.float64(tolerance(1e-13)))
_small_w = wp.constant(wp.float64(tolerance(1e-10)))
_own = wp.constant(wp.float64(1e-6))
_common = wp.constant(wp.float64(1e-8))
_settled = wp.constant(wp.float64(tolerance(1e-7)))
_singular = wp.constant(wp.float64(tolerance(1e-9)))
_beyond = wp.constant(wp.float64(8.0))
_wide_open = wp.constant(wp.float64(1e4))
_plain = wp.constant(4)
_damped = wp.constant(20)
_reopened = wp.constant(50)


@wp.func
def row_on_far_end(d: wp.vec2d, beta: wp.float64, gain: Gain):
    """The row d . e_i + beta w_i as a row on x_{i+1} = (e_{i+1}, w_i)."""
    return wp.vec3d(d[0], d[1], beta - wp.dot(d, gain.b))


@wp.func
def build_matrix(row: int, count: int, mobility: wp.float64, work: VineWork):
    """W = A M^-1 A' of all rows; `mobility` is 1 / (mass that grows)."""
    size = 2 * count + 2
    covariance = MotionCovariance()
    done = int(0)
    for i in range(work.contacts[row, count - 1].link + 1):
        gain = work.gains[row, i]
        covariance = spread(covariance, gain)
        while done < count and work.contacts[row, done].link == i:
            contact = work.contacts[row, done]
            turned = wp.vec2d(-contact.d[1], contact.d[0])
            rn = row_on_far_end(contact.d, contact.bn, gain)
            rt = row_on_far_end(turned, contact.bt, gain)
            contact.zn = covary(covariance, rn)
            contact.zt = covary(covariance, rt)
            work.contacts[row, done] = contact
            fill_rows(row, done, count, rn, rt, mobility, work)
            done += 1
    for k in range(2):
        r = 2 * count + k
        for c in range(count):
            value = mobility * work.contacts[row, c].gamma
            work.qp.matrix[row, r * size + c] = value
            work.qp.matrix[row, c * size + r] = value
            work.qp.matrix[row, r * size + count + c] = _zero
            work.qp.matrix[row, (count + c) * size + r] = _zero
        for other in range(2):
            work.qp.matrix[row, r * size + 2 * count + other] = mobility


@wp.func
def fill_rows(row: int, last: int, count: int, rn: wp.vec3d, rt: wp.vec3d, mobility: wp.float64, work: VineWork):
    """Entries of contact `last` with itself and all before it, which are nearer to the base."""
    size = 2 * count + 2
    gamma = work.contacts[row, last].gamma
    at = work.contacts[row, last].link
    n = rn
    t = rt
    for back in range(last + 1):
        c = last - back
        other = work.contacts[row, c]
        while at > other.link:
            n = respond(n, work.gains[row, at])
            t = respond(t, work.gains[row, at])
            at -= 1
        nn = wp.dot(other.zn, n) + mobility * gamma * other.gamma
        nt = wp.dot(other.zn, t)
        tn = wp.dot(other.zt, n)
        tt = wp.dot(other.zt, t)
        work.qp.matrix[row, c * size + last] = nn
        work.qp.matrix[row, last * size + c] = nn
        work.qp.matrix[row, c * size + count + last] = nt
        work.qp.matrix[row, (count + last) * size + c] = nt
        work.qp.matrix[row, (count + c) * size + last] = tn
        work.qp.matrix[row, last * size + count + c] = tn
        work.qp.matrix[row, (count + c) * size + count + last] = tt
        work.qp.matrix[row, (count + last) * size + count + c] = tt


@wp.func
def soften(row: int, size: int, qp: BoxProgram):
    """A little compliance on the diagonal, so that W is positive definite where rows are parallel."""
    largest = wp.float64(0.0)
    for i in range(size):
        largest = wp.max(largest, qp.matrix[row, i * size + i])
    for i in range(size):
        qp.matrix[row, i * size + i] = qp.matrix[row, i * size + i] * (_one + _own) + _common * largest


@wp.func
def set_row(row: int, size: int, i: int, linear: wp.float64, low: wp.float64, high: wp.float64, at: int, qp: BoxProgram):
    """Linear term, bounds and first side of one row."""
    qp.vectors[row, LINEAR * size + i] = linear
    qp.vectors[row, LOW * size + i] = low
    qp.vectors[row, HIGH * size + i] = high
    qp.side[row, i] = at


@wp.func
def set_rows(
    row: int, count: int, inverse_h: wp.float64, growth: wp.float64, asked: wp.float64, push: wp.float64, work: VineWork
):
    """Set rows at the free velocities; tangents have no force at first. A step removes half of an overlap."""
    size = 2 * count + 2
    for c in range(count):
        contact = work.contacts[row, c]
        e = work.motions[row, contact.link].e
        w = work.motions[row, contact.link + 1].w
        gap = contact.gap * inverse_h
        if contact.gap < _zero:
            gap = _half * gap
        vn = wp.dot(contact.d, e) + contact.bn * w + contact.gamma * growth + gap
        at = int(-1)
        if vn < _zero:
            at = 0
        set_row(row, size, c, vn, _zero, _endless, at, work.qp)
        vt = contact.d[0] * e[1] - contact.d[1] * e[0] + contact.bt * w
        set_row(row, size, count + c, vt, _zero, _zero, -1, work.qp)
    set_row(row, size, 2 * count, growth - asked, -_endless, push, 0, work.qp)
    set_row(row, size, 2 * count + 1, growth, _zero, _endless, -1, work.qp)


@wp.func
def widen_cones(row: int, count: int, mu: wp.float64, blend: wp.float64, qp: BoxProgram):
    """Bounds of the tangents <- mu x normal impulse, blended with those before; they overshoot (blend > 1) upwards only.

    -> largest change over largest bound, number of tangents that are free from now on.
    """
    size = 2 * count + 2
    change = wp.float64(0.0)
    largest = wp.float64(0.0)
    freed = int(0)
    for c in range(count):
        t = count + c
        before = qp.vectors[row, HIGH * size + t]
        bound = mu * wp.max(qp.vectors[row, X * size + c], _zero)
        share = blend
        if bound < before:
            share = wp.min(blend, _one)
        bound = before + share * (bound - before)
        change = wp.max(change, wp.abs(bound - before))
        largest = wp.max(largest, bound)
        qp.vectors[row, LOW * size + t] = -bound
        qp.vectors[row, HIGH * size + t] = bound
        if before == _zero and bound > _zero:
            qp.side[row, t] = 0
            freed += 1
    return change / wp.max(largest, _small_x), freed


@wp.func
def tie_cones(row: int, count: int, mu: wp.float64, qp: BoxProgram):
    """Normal impulses if every row stays free or at its bound as it is, with sliding friction t = side mu n: Newton's step.

    (W_ff + mu W_ft side) x_f = -b_f - W_fb x_b, f free, t tangents at a bound, b drive and ratchet at a bound; by elimination.
    -> 1; or 0, and nothing changes, at a pivot that is not positive: friction of a sliding contact then raises its normal force
    faster than this friction grows.
    """
    size = 2 * count + 2
    regular = int(1)
    for i in range(size):
        if qp.side[row, i] == 0 and regular == 1:
            total = -qp.vectors[row, LINEAR * size + i]
            for j in range(2 * count, size):
                if qp.side[row, j] != 0:
                    total -= qp.matrix[row, i * size + j] * qp.vectors[row, X * size + j]
            for j in range(size):
                if qp.side[row, j] == 0:
                    value = qp.matrix[row, i * size + j]
                    if j < count:
                        value += mu * wp.float64(qp.side[row, count + j]) * qp.matrix[row, i * size + count + j]
                    for k in range(wp.min(i, j)):
                        if qp.side[row, k] == 0:
                            value -= qp.factor[row, i * size + k] * qp.factor[row, k * size + j]
                    if j < i:
                        value = value / qp.factor[row, j * size + j]
                        total -= value * qp.vectors[row, WORK * size + j]
                    qp.factor[row, i * size + j] = value
            qp.vectors[row, WORK * size + i] = total
            if qp.factor[row, i * size + i] <= _singular * qp.matrix[row, i * size + i]:
                regular = 0
    if regular == 1:
        for back in range(size):
            i = size - 1 - back
            if qp.side[row, i] == 0:
                total = qp.vectors[row, WORK * size + i]
                for k in range(i + 1, size):
                    if qp.side[row, k] == 0:
                        total -= qp.factor[row, i * size + k] * qp.vectors[row, WORK * size + k]
                qp.vectors[row, WORK * size + i] = total / qp.factor[row, i * size + i]
        for c in range(count):
            if qp.side[row, c] == 0:
                qp.vectors[row, X * size + c] = qp.vectors[row, WORK * size + c]
    return regular


@wp.func
def solve_contacts(row: int, count: int, mu: wp.float64, qp: BoxProgram):
    """Impulses of all rows into qp.vectors[X]. -> 1, or 0 at the first program that is not solved.

    Rounds of friction: plain ones; then Newton steps in turn with plain, later damped ones. Where a Newton step is refused the
    bounds overshoot, as the contact then jams and sticks. Late, once, cones are so wide that all contacts that push stick.
    """
    size = 2 * count + 2
    soften(row, size, qp)
    good = box_qp(row, size, 0, _small_x, _small_w, qp)
    if mu > _zero:
        round = int(0)
        while round < _rounds and good == 1:
            known = int(1)
            blend = wp.float64(1.0)
            if round >= _damped:
                blend = _half
            if round >= _plain and round % 2 == 0:
                known = 0
                if tie_cones(row, count, mu, qp) == 0:
                    blend = _beyond
            if round == _reopened:
                blend = _wide_open
            change, freed = widen_cones(row, count, mu, blend, qp)
            if freed > 0:
                known = 0
            if change < _settled:
                round = _rounds
            else:
                good = good * box_qp(row, size, known, _small_x, _small_w, qp)
                round += 1
    return good


@wp.func
def apply_impulses(row: int, count: int, work: VineWork):
    """Add impulses to the links' feedback (a sweep from the tip to the base), store them in contacts. -> total on g [N s]."""
    size = 2 * count + 2
    last = int(count - 1)
    p = wp.vec3d(_zero, _zero, _zero)
    total = work.qp.vectors[row, X * size + 2 * count] + work.qp.vectors[row, X * size + 2 * count + 1]
    outermost = work.contacts[row, count - 1].link
    for back in range(outermost + 1):
        i = outermost - back
        at_e = wp.vec2d(_zero, _zero)
        at_w = wp.float64(0.0)
        while last >= 0 and work.contacts[row, wp.max(last, 0)].link == i:
            contact = work.contacts[row, last]
            n = work.qp.vectors[row, X * size + last]
            t = work.qp.vectors[row, X * size + count + last]
            at_e = at_e + n * contact.d + t * wp.vec2d(-contact.d[1], contact.d[0])
            at_w += n * contact.bn + t * contact.bt
            total += n * contact.gamma
            contact.normal = n
            contact.tangent = t
            work.contacts[row, last] = contact
            last -= 1
        gain = work.gains[row, i]
        before, df = impulse(p, at_e, at_w, gain)
        gain.f = gain.f + df
        work.gains[row, i] = gain
        p = before
    return total
