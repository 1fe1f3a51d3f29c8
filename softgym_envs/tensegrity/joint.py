"""Contact of rods that touch each other, mode patch: all rods of a group solved together.

The twists (v_i, w_i) of the rods minimise the sum of every rod's own energy (kinetic, and the pads on the ground, see
`contact`) and of a pad for every two rods that touch, on their relative twist at the contact point: two pads in series, so
2 rho. Convex and once differentiable; Newton's method with a dense Cholesky factorisation of the 6n x 6n second derivative.

Nothing here has a derivative of its own. The kernel evaluates the gradient of the energy at the solution once more, which Warp
differentiates, and takes a last Newton step from it: the implicit function theorem.

Legend: b row, n rods of the group, p pairs. `members`, `pairs`, `matrix`, `moves` are working memory of the row; `moves` holds,
for every member, its twist, the Newton step and the gradient: entries 3i, 3i + 1, 3i + 2.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from typing import Any

import warp as wp

from .contact import (
    CONTACT_MARGIN,
    ITERATIONS,
    Contact,
    Hessian,
    Pad,
    Pads,
    Patch,
    Twist,
    add_pad,
    ground,
    imbalance,
    momentum,
    pad_wrench,
    pair_pad,
    rod_kinetic,
    rod_pads,
    rod_patch,
    skew,
    wrenches,
)
from .rods import Body, Meeting, Rod, meeting_of, twist_of

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))


@wp.struct
class Member:
    """A rod of the group."""

    predicted: Twist
    kinetic: Hessian
    pads: Pads
    patch: Patch


@wp.struct
class Pair:
    """Two members that touch: levers of the contact point, whether each is free (1) or held (0), and the pad between them."""

    first: int
    second: int
    arm1: wp.vec3d
    arm2: wp.vec3d
    free1: wp.float64
    free2: wp.float64
    pad: Pad
    patch: Patch


@wp.func
def relative_twist(t1: Twist, t2: Twist, arm1: wp.vec3d, arm2: wp.vec3d):
    """Twist of rod 1 as seen from rod 2, at the ends of the two levers."""
    out = Twist()
    out.v = t1.v + wp.cross(t1.w, arm1) - t2.v - wp.cross(t2.w, arm2)
    out.w = t1.w - t2.w
    return out


@wp.func
def along(moves: wp.array2d(dtype=Twist), b: int, i: int, length: wp.float64):
    """Twist of member i after part of the Newton step."""
    twist = moves[b, 3 * i]
    step = moves[b, 3 * i + 1]
    out = Twist()
    out.v = twist.v - length * step.v
    out.w = twist.w - length * step.w
    return out


@wp.func
def group_energy(
    members: wp.array2d(dtype=Member),
    pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist),
    b: int,
    n: int,
    p: int,
    length: wp.float64,
):
    """Energy after part of the Newton step."""
    total = wp.float64(0.0)
    for i in range(n):
        member = members[b, i]
        twist = along(moves, b, i, length)
        change = Twist()
        change.v = twist.v - member.predicted.v
        change.w = twist.w - member.predicted.w
        gained = momentum(member.kinetic, change)
        total += _half * (wp.dot(change.v, gained.v) + wp.dot(change.w, gained.w))
        total += wrenches(twist, member.pads, member.patch)
    for k in range(p):
        pair = pairs[b, k]
        t1 = along(moves, b, pair.first, length)
        t2 = along(moves, b, pair.second, length)
        wrench = pad_wrench(relative_twist(t1, t2, pair.arm1, pair.arm2), pair.pad, pair.patch)
        total += wrench.energy
    return total


@wp.func
def group_gradient(
    members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair), moves: wp.array2d(dtype=Twist), b: int, n: int, p: int
):
    """Write the gradient of the energy into `moves`."""
    for i in range(n):
        member = members[b, i]
        moves[b, 3 * i + 2] = imbalance(moves[b, 3 * i], member.predicted, member.kinetic, member.pads, member.patch)
    for k in range(p):
        pair = pairs[b, k]
        rel = relative_twist(moves[b, 3 * pair.first], moves[b, 3 * pair.second], pair.arm1, pair.arm2)
        wrench = pad_wrench(rel, pair.pad, pair.patch)
        g1 = moves[b, 3 * pair.first + 2]
        g2 = moves[b, 3 * pair.second + 2]
        g1.v = g1.v - pair.free1 * wrench.J
        g1.w = g1.w - pair.free1 * (wp.cross(pair.arm1, wrench.J) + wrench.M)
        g2.v = g2.v + pair.free2 * wrench.J
        g2.w = g2.w + pair.free2 * (wp.cross(pair.arm2, wrench.J) + wrench.M)
        moves[b, 3 * pair.first + 2] = g1
        moves[b, 3 * pair.second + 2] = g2


@wp.func_native("""
    double* at = wp::address(matrix, b, row * size + column);
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            at[i * size + j] += block.data[i][j];
""")
def add_block(matrix: wp.array2d(dtype=wp.float64), b: int, size: int, row: int, column: int, block: wp.mat33d):
    """Add a block to the matrix. In C++, as all that follow: Warp's indexing of an array takes most of the time here."""


@wp.func
def add_coupling(
    matrix: wp.array2d(dtype=wp.float64),
    b: int,
    size: int,
    row: int,
    column: int,
    arm_row: wp.vec3d,
    arm_column: wp.vec3d,
    C: Hessian,
    factor: wp.float64,
):
    """Add factor T_r' C T_c, where T = [1, -[arm]; 0, 1] moves a twist to the contact point."""
    A = skew(arm_row)
    to_w = C.vw - C.vv * skew(arm_column)
    add_block(matrix, b, size, row, column, factor * C.vv)
    add_block(matrix, b, size, row, column + 3, factor * to_w)
    add_block(matrix, b, size, row + 3, column, factor * (A * C.vv + wp.transpose(C.vw)))
    add_block(matrix, b, size, row + 3, column + 3, factor * (A * to_w + C.ww - wp.transpose(C.vw) * skew(arm_column)))


@wp.func_native("""
    double* row = wp::address(matrix, b, 0);
    for (int k = 0; k < size * size; ++k)
        row[k] = 0.0;
""")
def clear(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """Zeros."""


@wp.func_native("""
    double* a = wp::address(matrix, b, 0);
    for (int i = 0; i < size; ++i) {
        double* left = a + i * size;
        for (int j = 0; j <= i; ++j) {
            const double* up = a + j * size;
            double sum = left[j];
            for (int k = 0; k < j; ++k)
                sum -= left[k] * up[k];
            left[j] = i == j ? ::sqrt(sum) : sum / up[j];
        }
    }
""")
def cholesky(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """The lower triangle becomes the Cholesky factor."""


@wp.func_native("""
    const double* a = wp::address(matrix, b, 0);
    double* x = wp::address(matrix, b, size * size);
    for (int i = 0; i < size; ++i) {
        double sum = x[i];
        for (int k = 0; k < i; ++k)
            sum -= a[i * size + k] * x[k];
        x[i] = sum / a[i * size + i];
    }
    for (int i = size - 1; i >= 0; --i) {
        x[i] /= a[i * size + i];
        for (int k = 0; k < i; ++k)
            x[k] -= a[i * size + k] * x[i];
    }
""")
def substitute(matrix: wp.array2d(dtype=wp.float64), b: int, size: int):
    """Solve with the factor, in place, for the vector that follows the matrix."""


@wp.func
def factorise(
    members: wp.array2d(dtype=Member),
    pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist),
    matrix: wp.array2d(dtype=wp.float64),
    b: int,
    n: int,
    p: int,
):
    """Second derivative of the energy at the twists in `moves`, as its Cholesky factor (lower, by rows)."""
    size = 6 * n
    clear(matrix, b, size)
    none = wp.vec3d(_zero, _zero, _zero)
    for i in range(n):
        member = members[b, i]
        twist = moves[b, 3 * i]
        H = add_pad(member.kinetic, twist, member.pads.cap0, member.patch)
        H = add_pad(H, twist, member.pads.cap1, member.patch)
        H = add_pad(H, twist, member.pads.end0, member.patch)
        H = add_pad(H, twist, member.pads.end1, member.patch)
        add_coupling(matrix, b, size, 6 * i, 6 * i, none, none, H, _one)
    for k in range(p):
        pair = pairs[b, k]
        i = 6 * pair.first
        j = 6 * pair.second
        rel = relative_twist(moves[b, 3 * pair.first], moves[b, 3 * pair.second], pair.arm1, pair.arm2)
        C = add_pad(Hessian(), rel, pair.pad, pair.patch)
        add_coupling(matrix, b, size, i, i, pair.arm1, pair.arm1, C, pair.free1)
        add_coupling(matrix, b, size, j, j, pair.arm2, pair.arm2, C, pair.free2)
        add_coupling(matrix, b, size, j, i, pair.arm2, pair.arm1, C, -pair.free1 * pair.free2)
    cholesky(matrix, b, size)


@wp.func
def solve_factored(matrix: wp.array2d(dtype=wp.float64), moves: wp.array2d(dtype=Twist), b: int, n: int):
    """The factorised matrix, inverse, times what stands in the gradient's place; written into the step's place.

    The working vector is the last row of `matrix`.
    """
    size = 6 * n
    x = size * size
    for i in range(n):
        g = moves[b, 3 * i + 2]
        for c in range(3):
            matrix[b, x + 6 * i + c] = g.v[c]
            matrix[b, x + 6 * i + 3 + c] = g.w[c]
    substitute(matrix, b, size)
    for i in range(n):
        at = x + 6 * i
        step = Twist()
        step.v = wp.vec3d(matrix[b, at], matrix[b, at + 1], matrix[b, at + 2])
        step.w = wp.vec3d(matrix[b, at + 3], matrix[b, at + 4], matrix[b, at + 5])
        moves[b, 3 * i + 1] = step


@wp.func
def minimise_group(
    members: wp.array2d(dtype=Member),
    pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist),
    matrix: wp.array2d(dtype=wp.float64),
    b: int,
    n: int,
    p: int,
):
    """Newton's method with halved steps from the twists in `moves`, which end there."""
    for i in range(n):
        moves[b, 3 * i + 1] = Twist()
    value = wp.float64(0.0)
    for iteration in range(wp.static(ITERATIONS)):
        group_gradient(members, pairs, moves, b, n, p)
        factorise(members, pairs, moves, matrix, b, n, p)
        solve_factored(matrix, moves, b, n)
        descent = wp.float64(0.0)
        change = wp.float64(0.0)
        size = wp.float64(0.0)
        for i in range(n):
            twist = moves[b, 3 * i]
            step = moves[b, 3 * i + 1]
            g = moves[b, 3 * i + 2]
            descent += wp.dot(g.v, step.v) + wp.dot(g.w, step.w)
            change += wp.dot(step.v, step.v) + wp.dot(step.w, step.w)
            size += wp.dot(twist.v, twist.v) + wp.dot(twist.w, twist.w)
        if change <= wp.float64(1e-12) * size + wp.float64(1e-30):
            for i in range(n):
                moves[b, 3 * i] = along(moves, b, i, _one)
            break
        if iteration == 0:
            value = group_energy(members, pairs, moves, b, n, p, _zero)
        length = wp.float64(1.0)
        reached = group_energy(members, pairs, moves, b, n, p, length)
        while reached > value - wp.float64(1e-4) * length * descent + wp.float64(1e-14) * value and length > wp.float64(1e-6):
            length = _half * length
            reached = group_energy(members, pairs, moves, b, n, p, length)
        for i in range(n):
            moves[b, 3 * i] = along(moves, b, i, length)
        value = reached


# --- the group of a row ------------------------------------------------------------------------------------------------


@wp.func
def count_contacts(
    now: int,
    rods: wp.array(dtype=Rod),
    bodies: wp.array2d(dtype=Body),
    work: wp.array2d(dtype=wp.vec3d),
    axes: int,
    rod_radius: wp.float64,
    cap_radius: wp.float64,
    touch: wp.array2d(dtype=int),
):
    """Write how many rods every rod touches into `touch`, and the number of pairs behind them."""
    num_rods = rods.shape[0]
    for r in range(num_rods + 1):
        touch[now, r] = 0
    for r1 in range(num_rods):
        for r2 in range(r1 + 1, num_rods):
            meeting = meeting_of(r1, r2, now, rods, bodies, work, axes, rod_radius, cap_radius)
            if meeting.gap < _margin:
                touch[now, r1] = touch[now, r1] + 1
                touch[now, r2] = touch[now, r2] + 1
                touch[now, num_rods] = touch[now, num_rods] + 1


@wp.func_grad(count_contacts)
def adj_count_contacts(
    now: int,
    rods: wp.array(dtype=Rod),
    bodies: wp.array2d(dtype=Body),
    work: wp.array2d(dtype=wp.vec3d),
    axes: int,
    rod_radius: wp.float64,
    cap_radius: wp.float64,
    touch: wp.array2d(dtype=int),
):
    """Nothing: a number of contacts has no derivative."""


@wp.struct
class Ground:
    """The ground as a rod of the row meets it, and the rod's shape."""

    cell: wp.float64
    plane: wp.vec3d
    rough: int
    scale: wp.float64
    rod_radius: wp.float64
    cap_radius: wp.float64


@wp.func
def member_of(
    body: Body, rod: Rod, predicted: Twist, z: wp.vec3d, inverse: wp.float64, soil: Ground,
    heights: wp.array2d(dtype=wp.float64), contact: Contact,
):  # fmt: skip
    """A rod as a member of the group; one that is held has unit inertia and nothing that moves it."""
    out = Member()
    out.predicted = predicted
    if rod.free > _zero:
        h = rod.half
        before = twist_of(body)
        s0 = ground(body.p - h * z, soil.cap_radius, soil.scale, soil.plane, soil.cell, soil.rough, heights)
        s1 = ground(body.p + h * z, soil.cap_radius, soil.scale, soil.plane, soil.cell, soil.rough, heights)
        out.kinetic = rod_kinetic(z, inverse, rod.across * inverse, rod.along * inverse)
        out.pads = rod_pads(before, z, h, s0, s1, soil.cap_radius, soil.rod_radius, contact)
        out.patch = rod_patch(before.w, contact)
    else:
        out.kinetic = rod_kinetic(z, _one, _one, _one)
    return out


@wp.func
def pair_of(
    i: int, j: int, rod1: Rod, rod2: Rod, body1: Body, body2: Body, meeting: Meeting, contact: Contact
):  # fmt: skip
    """Members i and j, which meet."""
    before = relative_twist(twist_of(body1), twist_of(body2), meeting.arm1, meeting.arm2)
    out = Pair()
    out.first = i
    out.second = j
    out.arm1 = meeting.arm1
    out.arm2 = meeting.arm2
    out.free1 = rod1.free
    out.free2 = rod2.free
    out.pad = pair_pad(before, meeting.gap, meeting.normal, contact)
    out.patch = rod_patch(before.w, contact)
    return out


@wp.func
def place_in_group(touch: wp.array2d(dtype=int), now: int, r: int):
    """Number of rods before rod r that touch others."""
    count = wp.int32(0)
    for q in range(r):
        if touch[now, q] > 0:
            count += 1
    return count


@wp.func
def gather(
    b: int, now: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body), free: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d), axes: int, inverse: wp.float64, soil: Ground, heights: wp.array2d(dtype=wp.float64),
    contact: Contact, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair),
):  # fmt: skip
    """Write all members and pairs of row b."""
    p = wp.int32(0)
    for r1 in range(rods.shape[0]):
        if touch[now, r1] > 0:
            i = place_in_group(touch, now, r1)
            members[b, i] = member_of(
                bodies[now, r1], rods[r1], free[now, r1], work[now, axes + r1], inverse, soil, heights, contact
            )
            for r2 in range(r1 + 1, rods.shape[0]):
                meeting = meeting_of(r1, r2, now, rods, bodies, work, axes, soil.rod_radius, soil.cap_radius)
                if meeting.gap < _margin:
                    j = place_in_group(touch, now, r2)
                    pairs[b, p] = pair_of(i, j, rods[r1], rods[r2], bodies[now, r1], bodies[now, r2], meeting, contact)
                    p += 1


@wp.func
def settle(
    b: int, now: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body), free: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d), axes: int, inverse: wp.float64, soil: Ground, heights: wp.array2d(dtype=wp.float64),
    contact: Contact, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist), matrix: wp.array2d(dtype=wp.float64), settled: wp.array2d(dtype=Twist),
):  # fmt: skip
    """Write the twists of least energy into `settled`; the search starts from those before the step."""
    gather(b, now, rods, bodies, free, work, axes, inverse, soil, heights, contact, touch, members, pairs)
    num_rods = rods.shape[0]
    for r in range(num_rods):
        if touch[now, r] > 0:
            moves[b, 3 * place_in_group(touch, now, r)] = twist_of(bodies[now, r])
    minimise_group(members, pairs, moves, matrix, b, place_in_group(touch, now, num_rods), touch[now, num_rods])
    for r in range(num_rods):
        if touch[now, r] > 0:
            settled[now, r] = moves[b, 3 * place_in_group(touch, now, r)]


@wp.func_grad(settle)
def adj_settle(
    b: int, now: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body), free: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d), axes: int, inverse: wp.float64, soil: Ground, heights: wp.array2d(dtype=wp.float64),
    contact: Contact, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist), matrix: wp.array2d(dtype=wp.float64), settled: wp.array2d(dtype=Twist),
):  # fmt: skip
    """Nothing: `last_step` carries the derivative."""


@wp.func
def solve_group(
    b: int, now: int, num_rods: int, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member),
    pairs: wp.array2d(dtype=Pair), moves: wp.array2d(dtype=Twist), matrix: wp.array2d(dtype=wp.float64),
    settled: wp.array2d(dtype=Twist),
):  # fmt: skip
    """Second derivative of the energy at `settled`, inverse, times what stands in the gradient's place of `moves`."""
    n = place_in_group(touch, now, num_rods)
    for r in range(num_rods):
        if touch[now, r] > 0:
            moves[b, 3 * place_in_group(touch, now, r)] = settled[now, r]
    factorise(members, pairs, moves, matrix, b, n, touch[now, num_rods])
    solve_factored(matrix, moves, b, n)


@wp.func
def last_step(
    b: int, now: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body), free: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d), axes: int, inverse: wp.float64, soil: Ground, heights: wp.array2d(dtype=wp.float64),
    contact: Contact, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist), matrix: wp.array2d(dtype=wp.float64), settled: wp.array2d(dtype=Twist),
    step: wp.array2d(dtype=Twist),
):  # fmt: skip
    """Newton step from `settled` against the gradient, whose two parts stand in `work` behind the axes."""
    num_rods = rods.shape[0]
    for r in range(num_rods):
        if touch[now, r] > 0:
            slope = Twist()
            slope.v = work[now, axes + num_rods + r]
            slope.w = work[now, axes + 2 * num_rods + r]
            moves[b, 3 * place_in_group(touch, now, r) + 2] = slope
    solve_group(b, now, num_rods, touch, members, pairs, moves, matrix, settled)
    for r in range(num_rods):
        if touch[now, r] > 0:
            step[now, r] = moves[b, 3 * place_in_group(touch, now, r) + 1]


@wp.func_grad(last_step)
def adj_last_step(
    b: int, now: int, rods: wp.array(dtype=Rod), bodies: wp.array2d(dtype=Body), free: wp.array2d(dtype=Twist),
    work: wp.array2d(dtype=wp.vec3d), axes: int, inverse: wp.float64, soil: Ground, heights: wp.array2d(dtype=wp.float64),
    contact: Contact, touch: wp.array2d(dtype=int), members: wp.array2d(dtype=Member), pairs: wp.array2d(dtype=Pair),
    moves: wp.array2d(dtype=Twist), matrix: wp.array2d(dtype=wp.float64), settled: wp.array2d(dtype=Twist),
    step: wp.array2d(dtype=Twist),
):  # fmt: skip
    """The matrix is symmetric; its own derivative is not needed, as the slope is zero where the derivative is taken."""
    gather(b, now, rods, bodies, free, work, axes, inverse, soil, heights, contact, touch, members, pairs)
    num_rods = rods.shape[0]
    for r in range(num_rods):
        if touch[now, r] > 0:
            moves[b, 3 * place_in_group(touch, now, r) + 2] = wp.adjoint[step][now, r]
    solve_group(b, now, num_rods, touch, members, pairs, moves, matrix, settled)
    for r in range(num_rods):
        if touch[now, r] > 0:
            back = moves[b, 3 * place_in_group(touch, now, r) + 1]
            wp.adjoint[work][now, axes + num_rods + r] += back.v
            wp.adjoint[work][now, axes + 2 * num_rods + r] += back.w


def working_memory(num_rods: int) -> tuple[tuple[Any, int], ...]:
    """(dtype, count) of `members`, `pairs`, `moves` and `matrix` of one row."""
    size = 6 * num_rods
    pairs = max(num_rods * (num_rods - 1) // 2, 1)
    return ((Member, num_rods), (Pair, pairs), (Twist, 3 * num_rods), (wp.float64, size * size + size))
