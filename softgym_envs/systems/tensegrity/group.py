"""Newton's method on the twists of rods that touch each other: their common energy, see `joint`.

Legend: b row, n rods of the group, p pairs.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp.precision import tolerance
from .contact_patches import Hessian, add_pad, pad_wrench, relative_twist, skew
from .dense import add_block, cholesky, clear, substitute
from .memory import RodWork
from .patch import ITERATIONS, curvature, descend, imbalance, kinetic_energy, pad_energy
from .rods import Twist

_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_stop = wp.constant(wp.float64(tolerance(1e-12)))
_slack = wp.constant(wp.float64(tolerance(1e-14)))


@wp.func
def group_energy(b: int, n: int, p: int, length: wp.float64, work: RodWork):
    """Energy after part of the Newton step."""
    total = wp.float64(0.0)
    for i in range(n):
        member = work.members[b, i]
        twist = descend(work.twists[b, i], work.steps[b, i], length)
        total += kinetic_energy(twist, member.predicted, member.kinetic) + pad_energy(twist, member.pads, member.patch)
    for k in range(p):
        pair = work.pairs[b, k]
        t1 = descend(work.twists[b, pair.first], work.steps[b, pair.first], length)
        t2 = descend(work.twists[b, pair.second], work.steps[b, pair.second], length)
        wrench = pad_wrench(relative_twist(t1, t2, pair.to1, pair.to2), pair.pad, pair.patch)
        total += wrench.energy
    return total


@wp.func
def group_slope(b: int, n: int, p: int, work: RodWork):
    """Write the gradient of the energy into `slopes`."""
    for i in range(n):
        work.slopes[b, i] = imbalance(work.twists[b, i], work.members[b, i])
    for k in range(p):
        pair = work.pairs[b, k]
        rel = relative_twist(work.twists[b, pair.first], work.twists[b, pair.second], pair.to1, pair.to2)
        wrench = pad_wrench(rel, pair.pad, pair.patch)
        g1 = work.slopes[b, pair.first]
        g2 = work.slopes[b, pair.second]
        g1.v = g1.v - pair.free1 * wrench.J
        g1.w = g1.w - pair.free1 * (wp.cross(pair.to1, wrench.J) + wrench.M)
        g2.v = g2.v + pair.free2 * wrench.J
        g2.w = g2.w + pair.free2 * (wp.cross(pair.to2, wrench.J) + wrench.M)
        work.slopes[b, pair.first] = g1
        work.slopes[b, pair.second] = g2


@wp.func
def add_coupling(
    matrix: wp.array2d(dtype=wp.float64),
    b: int,
    size: int,
    place: int,
    other: int,
    r_place: wp.vec3d,
    r_other: wp.vec3d,
    C: Hessian,
    factor: wp.float64,
):
    """Add factor T_r' C T_o at the blocks of two places, where T = [1, -[r]; 0, 1] moves a twist to the contact point."""
    row = 6 * place
    column = 6 * other
    A = skew(r_place)
    to_w = C.vw - C.vv * skew(r_other)
    add_block(matrix, b, size, row, column, factor * C.vv)
    add_block(matrix, b, size, row, column + 3, factor * to_w)
    add_block(matrix, b, size, row + 3, column, factor * (A * C.vv + wp.transpose(C.vw)))
    add_block(matrix, b, size, row + 3, column + 3, factor * (A * to_w + C.ww - wp.transpose(C.vw) * skew(r_other)))


@wp.func
def factorise(b: int, n: int, p: int, work: RodWork):
    """Second derivative of the energy at `twists`, as its Cholesky factor (upper, by rows): a pair has its first rod first."""
    size = 6 * n
    clear(work.matrix, b, size)
    none = wp.vec3d(_zero, _zero, _zero)
    for i in range(n):
        H = curvature(work.twists[b, i], work.members[b, i])
        add_coupling(work.matrix, b, size, i, i, none, none, H, _one)
    for k in range(p):
        pair = work.pairs[b, k]
        i = pair.first
        j = pair.second
        rel = relative_twist(work.twists[b, i], work.twists[b, j], pair.to1, pair.to2)
        C = add_pad(Hessian(), rel, pair.pad, pair.patch)
        add_coupling(work.matrix, b, size, i, i, pair.to1, pair.to1, C, pair.free1)
        add_coupling(work.matrix, b, size, j, j, pair.to2, pair.to2, C, pair.free2)
        add_coupling(work.matrix, b, size, i, j, pair.to1, pair.to2, C, -pair.free1 * pair.free2)
    cholesky(work.matrix, b, size)


@wp.func
def solve_factored(b: int, n: int, work: RodWork):
    """Write `steps`: the inverse of the factorised matrix times `slopes`."""
    for i in range(n):
        g = work.slopes[b, i]
        for c in range(3):
            work.vector[b, 6 * i + c] = g.v[c]
            work.vector[b, 6 * i + 3 + c] = g.w[c]
    substitute(work.matrix, work.vector, b, 6 * n)
    for i in range(n):
        at = 6 * i
        step = Twist()
        step.v = wp.vec3d(work.vector[b, at], work.vector[b, at + 1], work.vector[b, at + 2])
        step.w = wp.vec3d(work.vector[b, at + 3], work.vector[b, at + 4], work.vector[b, at + 5])
        work.steps[b, i] = step


@wp.func
def along_step(b: int, n: int, work: RodWork):
    """(slope . step, |step|^2, |twist|^2), summed over the group."""
    out = wp.vec3d(_zero, _zero, _zero)
    for i in range(n):
        twist = work.twists[b, i]
        step = work.steps[b, i]
        g = work.slopes[b, i]
        out += wp.vec3d(
            wp.dot(g.v, step.v) + wp.dot(g.w, step.w),
            wp.dot(step.v, step.v) + wp.dot(step.w, step.w),
            wp.dot(twist.v, twist.v) + wp.dot(twist.w, twist.w),
        )
    return out


@wp.func
def move_group(b: int, n: int, length: wp.float64, work: RodWork):
    """Move `twists` by part of the Newton step."""
    for i in range(n):
        work.twists[b, i] = descend(work.twists[b, i], work.steps[b, i], length)


@wp.func
def minimise_group(b: int, n: int, p: int, work: RodWork):
    """Minimise the energy by Newton's method with halved steps, from `twists`, which receive the result."""
    for i in range(n):
        work.steps[b, i] = Twist()
    value = wp.float64(0.0)
    for iteration in range(wp.static(ITERATIONS)):
        group_slope(b, n, p, work)
        factorise(b, n, p, work)
        solve_factored(b, n, work)
        sums = along_step(b, n, work)
        if sums[1] <= _stop * sums[2] + wp.float64(1e-30):
            move_group(b, n, _one, work)
            break
        if iteration == 0:
            value = group_energy(b, n, p, _zero, work)
        length = wp.float64(1.0)
        reached = group_energy(b, n, p, length, work)
        while reached > value - wp.float64(1e-4) * length * sums[0] + _slack * value and length > wp.float64(1e-6):
            length = _half * length
            reached = group_energy(b, n, p, length, work)
        move_group(b, n, length, work)
        value = reached
