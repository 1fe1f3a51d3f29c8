"""Contact of rods that touch each other, mode patch: all rods of a group solved together.

The twists (v_i, w_i) of the rods minimise the sum of every rod's own energy (kinetic, and the pads on the ground, see
`contact_patches`) and of a pad for every two rods that touch, on their relative twist at the contact point: two pads in series,
so 2 rho. Convex and once differentiable; Newton's method with a dense Cholesky factorisation of the 6n x 6n second derivative.

Nothing here has a derivative of its own. `write_slopes` evaluates the gradient of the energy at the solution once more, which
Warp differentiates, and `last_step` takes a Newton step from it: the implicit function theorem.

Legend: b row, n rods of the group, p pairs. In the workspace a rod stands at its place in the group, on the tape at its number.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp.memory import stage
from .contact import CONTACT_MARGIN, ContactData, footing_of, ground
from .contact_pairs import Meeting, are_apart, meeting_of
from .contact_patches import Pair, pad_wrench, pair_pad, relative_twist, rod_patch
from .group import factorise, minimise_group, solve_factored
from .memory import RodWork, RodWorld, Row, Tape
from .patch import Problem, imbalance, problem_of, rod_kinetic
from .rods import Mobility, Twist, in_simulator, rotation_of, twist_of

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))


@stage
def find_touching(now: int, world: RodWorld, tape: Tape):
    """Write the number of rods that every rod touches, then the number of pairs."""
    num_rods = world.rods.shape[0]
    for r in range(num_rods + 1):
        tape.touching[now, r] = 0
    for r1 in range(num_rods):
        for r2 in range(r1 + 1, num_rods):
            if not are_apart(r1, r2, now, world.rods, tape.bodies, tape.axes, _two * world.cap_radius + _margin):
                meeting = meeting_of(r1, r2, now, world, tape)
                if meeting.gap < _margin:
                    tape.touching[now, r1] = tape.touching[now, r1] + 1
                    tape.touching[now, r2] = tape.touching[now, r2] + 1
                    tape.touching[now, num_rods] = tape.touching[now, num_rods] + 1


@wp.func_grad(find_touching)
def adj_find_touching(now: int, world: RodWorld, tape: Tape):
    """Do nothing: a number of contacts has no derivative."""


@wp.func
def member_of(r: int, now: int, row: Row, world: RodWorld, tape: Tape):
    """Rod r as a member of the group; one that is held has unit inertia and nothing that moves it."""
    body = tape.bodies[now, r]
    predicted = in_simulator(tape.predicted[now, r], rotation_of(body))
    out = Problem()
    rod = world.rods[r]
    axis = tape.axes[now, r]
    if rod.free > _zero:
        s0 = ground(body.p - rod.half * axis, world.cap_radius, row.terrain_scale, world.terrain)
        s1 = ground(body.p + rod.half * axis, world.cap_radius, row.terrain_scale, world.terrain)
        foot = footing_of(axis, rod, s0, s1, row.inverse_mass, row.contact)
        out = problem_of(twist_of(body), predicted, foot, row.contact)
    else:
        held = Mobility()
        held.mass = _one
        held.across = _one
        held.along = _one
        out.predicted = predicted
        out.kinetic = rod_kinetic(axis, held)
    return out


@wp.func
def pair_of(r1: int, r2: int, now: int, meeting: Meeting, contact: ContactData, world: RodWorld, tape: Tape):
    """Pair of the touching rods r1 and r2, without their places in the group."""
    before = relative_twist(twist_of(tape.bodies[now, r1]), twist_of(tape.bodies[now, r2]), meeting.to1, meeting.to2)
    out = Pair()
    out.to1 = meeting.to1
    out.to2 = meeting.to2
    out.free1 = world.rods[r1].free
    out.free2 = world.rods[r2].free
    out.pad = pair_pad(before, meeting.gap, meeting.normal, contact)
    out.patch = rod_patch(before.w, contact)
    return out


@wp.func
def place_in_group(r: int, now: int, tape: Tape):
    """Number of rods before rod r that touch others."""
    count = wp.int32(0)
    for q in range(r):
        if tape.touching[now, q] > 0:
            count += 1
    return count


@wp.func
def gather(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Write all members and pairs."""
    num_rods = world.rods.shape[0]
    p = wp.int32(0)
    for r1 in range(num_rods):
        if tape.touching[now, r1] > 0:
            i = place_in_group(r1, now, tape)
            work.members[row.b, i] = member_of(r1, now, row, world, tape)
            for r2 in range(r1 + 1, num_rods):
                meeting = meeting_of(r1, r2, now, world, tape)
                if meeting.gap < _margin:
                    pair = pair_of(r1, r2, now, meeting, row.contact, world, tape)
                    pair.first = i
                    pair.second = place_in_group(r2, now, tape)
                    work.pairs[row.b, p] = pair
                    p += 1


@stage
def settle(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Write the twists of least energy into `settled`; the search starts from those before the step."""
    b = row.b
    num_rods = world.rods.shape[0]
    gather(now, row, world, tape, work)
    for r in range(num_rods):
        if tape.touching[now, r] > 0:
            work.twists[b, place_in_group(r, now, tape)] = twist_of(tape.bodies[now, r])
    minimise_group(b, place_in_group(num_rods, now, tape), tape.touching[now, num_rods], work)
    for r in range(num_rods):
        if tape.touching[now, r] > 0:
            tape.settled[now, r] = work.twists[b, place_in_group(r, now, tape)]


@wp.func_grad(settle)
def adj_settle(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Do nothing: `last_step` carries the derivative."""


@stage
def write_slopes(now: int, row: Row, world: RodWorld, tape: Tape):
    """Write the energy's gradient at `settled` into `push` and `turn`: of every rod that touches others, then of the pairs."""
    num_rods = world.rods.shape[0]
    for r in range(num_rods):
        if tape.touching[now, r] > 0:
            slope = imbalance(tape.settled[now, r], member_of(r, now, row, world, tape))
            wp.atomic_add(tape.push, now, r, slope.v)
            wp.atomic_add(tape.turn, now, r, slope.w)
    for r1 in range(num_rods):
        for r2 in range(r1 + 1, num_rods):
            meeting = meeting_of(r1, r2, now, world, tape)
            if meeting.gap < _margin:
                pair = pair_of(r1, r2, now, meeting, row.contact, world, tape)
                rel = relative_twist(tape.settled[now, r1], tape.settled[now, r2], pair.to1, pair.to2)
                wrench = pad_wrench(rel, pair.pad, pair.patch)
                wp.atomic_add(tape.push, now, r1, -pair.free1 * wrench.J)
                wp.atomic_add(tape.push, now, r2, pair.free2 * wrench.J)
                wp.atomic_add(tape.turn, now, r1, -pair.free1 * (wp.cross(pair.to1, wrench.J) + wrench.M))
                wp.atomic_add(tape.turn, now, r2, pair.free2 * (wp.cross(pair.to2, wrench.J) + wrench.M))


@wp.func
def solve_group(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Write `steps`: the inverse of the energy's second derivative at `settled` times `slopes`."""
    b = row.b
    num_rods = world.rods.shape[0]
    n = place_in_group(num_rods, now, tape)
    for r in range(num_rods):
        if tape.touching[now, r] > 0:
            work.twists[b, place_in_group(r, now, tape)] = tape.settled[now, r]
    factorise(b, n, tape.touching[now, num_rods], work)
    solve_factored(b, n, work)


@stage
def last_step(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Newton step from `settled` against the slope; members and pairs are those of `settle`."""
    for r in range(world.rods.shape[0]):
        if tape.touching[now, r] > 0:
            slope = Twist()
            slope.v = tape.push[now, r]
            slope.w = tape.turn[now, r]
            work.slopes[row.b, place_in_group(r, now, tape)] = slope
    solve_group(now, row, world, tape, work)
    for r in range(world.rods.shape[0]):
        if tape.touching[now, r] > 0:
            tape.steps[now, r] = work.steps[row.b, place_in_group(r, now, tape)]


@wp.func_native("*wp::address(target, b, i) = wp::index_grad(twists, now, r);")
def copy_gradient(twists: wp.array2d(dtype=Twist), now: int, r: int, target: wp.array2d(dtype=Twist), b: int, i: int):
    """Write the gradient that has come back to an entry of the tape into another array."""


@wp.func_native("wp::index_grad(vectors, now, r) = wp::add(wp::index_grad(vectors, now, r), more);")
def add_gradient(vectors: wp.array2d(dtype=wp.vec3d), now: int, r: int, more: wp.vec3d):
    """Add to the gradient of an entry of the tape."""


@wp.func_grad(last_step)
def adj_last_step(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """The matrix is symmetric; its own derivative is not needed, as the slope is zero where the derivative is taken."""
    gather(now, row, world, tape, work)
    for r in range(world.rods.shape[0]):
        if tape.touching[now, r] > 0:
            copy_gradient(tape.steps, now, r, work.slopes, row.b, place_in_group(r, now, tape))
    solve_group(now, row, world, tape, work)
    for r in range(world.rods.shape[0]):
        if tape.touching[now, r] > 0:
            back = work.steps[row.b, place_in_group(r, now, tape)]
            add_gradient(tape.push, now, r, back.v)
            add_gradient(tape.turn, now, r, back.w)


@stage
def settle_touching(now: int, row: Row, world: RodWorld, tape: Tape, work: RodWork):
    """Rods that touch each other start over, with the ground: their twists are `settled` minus `steps`."""
    find_touching(now, world, tape)
    if tape.touching[now, world.rods.shape[0]] > 0:
        settle(now, row, world, tape, work)
        write_slopes(now, row, world, tape)
        last_step(now, row, world, tape, work)
