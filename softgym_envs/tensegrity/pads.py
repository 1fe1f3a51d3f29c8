"""Contact in mode patch: a soft pad under each cap, which also resists turning; its energy, see `contact`.

A rod's twist after contact is that of least energy. Newton's method finds it; the derivative comes from one more Newton step at
the solution, which Warp differentiates: the implicit function theorem.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .contact import CONTACT_MARGIN, Contact, Footing
from .rods import Mobility, Twist

ITERATIONS = 30
"""Most Newton steps of a patch; 5 are usual."""
LEAST_FRICTION = 1e-3
"""mu of a patch is at least this, so that its energy has a second derivative."""

_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_least_friction = wp.constant(wp.float64(LEAST_FRICTION))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.struct
class Pad:
    """One patch as the energy sees it: stiffness k = 1/rho (0: does not touch), lever r, normal, and the target t."""

    k: wp.float64
    r: wp.vec3d
    normal: wp.vec3d
    t: wp.vec3d


@wp.struct
class Pads:
    """Those of a rod: under its caps, and under the ends of the rod itself, which lie within the caps."""

    cap0: Pad
    cap1: Pad
    end0: Pad
    end1: Pad


@wp.struct
class Patch:
    """What both pads of a rod share: mu, l, and the target t_w of the rotation."""

    mu: wp.float64
    reach: wp.float64
    tw: wp.vec3d


@wp.struct
class Wrench:
    """Impulse and angular impulse of one contact on a rod, at the contact point, and the energy of the pad."""

    J: wp.vec3d
    M: wp.vec3d
    energy: wp.float64


@wp.struct
class Hessian:
    """Second derivative of the energy, or of its kinetic part (mass and inertia); symmetric, in blocks of v and w."""

    vv: wp.mat33d
    vw: wp.mat33d
    ww: wp.mat33d


@wp.struct
class Problem:
    """What a rod's twist after contact minimises: kinetic energy of the change by contact, and that of its pads."""

    predicted: Twist
    kinetic: Hessian
    pads: Pads
    patch: Patch


@wp.func
def skew(r: wp.vec3d):
    """[r] with [r] w = r x w."""
    return wp.mat33d(_zero, -r[2], r[1], r[2], _zero, -r[0], -r[1], r[0], _zero)


@wp.func
def diagonal(x: wp.float64):
    """X times the identity."""
    return wp.mat33d(x, _zero, _zero, _zero, x, _zero, _zero, _zero, x)


@wp.func
def momentum(kinetic: Hessian, twist: Twist):
    """Linear and angular momentum of a twist."""
    out = Twist()
    out.v = kinetic.vv * twist.v + kinetic.vw * twist.w
    out.w = wp.transpose(kinetic.vw) * twist.v + kinetic.ww * twist.w
    return out


@wp.func
def descend(twist: Twist, step: Twist, length: wp.float64):
    """The twist after part of a Newton step."""
    out = Twist()
    out.v = twist.v - length * step.v
    out.w = twist.w - length * step.w
    return out


# --- one pad ------------------------------------------------------------------------------------------------------------


@wp.func
def pad_at(before: Twist, r: wp.vec3d, gap: wp.float64, normal: wp.vec3d, contact: Contact):
    """The pad at a contact point: eqs (1) and (3) on the velocity before the step; e acts both ways, as a pad's damper."""
    out = Pad()
    if gap < _margin:
        v = before.v + wp.cross(before.w, r)
        vn = wp.dot(v, normal)
        out.k = _one / contact.rho
        out.r = r
        out.normal = normal
        out.t = (-contact.restitution * vn - contact.beta * gap / contact.dt) * normal + contact.gamma * (v - vn * normal)
    return out


@wp.func
def pad_wrench(twist: Twist, pad: Pad, patch: Patch):
    """The (J, M) in the cone that minimises rho/2 (|J|^2 + mu^2/l^2 |M|^2) - J.e - M.e_w, where (e, e_w) = target - velocity.

    With N = n.e and T^2 = mu^2 |e_t|^2 + l^2 |e_w|^2: the free minimum (J, M) = (e, l^2/mu^2 e_w) / rho lies in the cone if
    T <= mu^2 N; if N + T <= 0 the pad separates; else it slides, J_n = (N + T) / rho (1 + mu^2), J_t = J_n mu^2 e_t / T and
    M = J_n l^2 e_w / T.
    """
    out = Wrench()
    if pad.k > _zero:
        mu2 = patch.mu * patch.mu
        l2 = patch.reach * patch.reach
        e = pad.t - twist.v - wp.cross(twist.w, pad.r)
        ew = patch.tw - twist.w
        N = wp.dot(e, pad.normal)
        et = e - N * pad.normal
        T = wp.sqrt(mu2 * wp.dot(et, et) + l2 * wp.dot(ew, ew) + _tiny * _tiny)
        if T <= mu2 * N:
            out.J = pad.k * e
            out.M = (pad.k * l2 / mu2) * ew
            out.energy = _half * (wp.dot(out.J, e) + wp.dot(out.M, ew))
        elif N + T > _zero:
            j = pad.k * (N + T) / (_one + mu2)
            out.J = j * pad.normal + (j * mu2 / T) * et
            out.M = (j * l2 / T) * ew
            out.energy = _half * j * (N + T)
    return out


@wp.func
def add_pad(hessian: Hessian, twist: Twist, pad: Pad, patch: Patch):
    """Add a pad's second derivative, C = d(J, M) / d(e, e_w), moved to the rod's centre."""
    out = hessian
    if pad.k > _zero:
        mu2 = patch.mu * patch.mu
        l2 = patch.reach * patch.reach
        e = pad.t - twist.v - wp.cross(twist.w, pad.r)
        ew = patch.tw - twist.w
        N = wp.dot(e, pad.normal)
        et = e - N * pad.normal
        T = wp.sqrt(mu2 * wp.dot(et, et) + l2 * wp.dot(ew, ew) + _tiny * _tiny)
        Cvv = wp.mat33d()
        Cvw = wp.mat33d()
        Cww = wp.mat33d()
        if T <= mu2 * N:
            Cvv = diagonal(pad.k)
            Cww = diagonal(pad.k * l2 / mu2)
        elif N + T > _zero:
            k = pad.k / (_one + mu2)
            bend = k * (N + T) / T
            a = (mu2 / T) * et
            b = (l2 / T) * ew
            d = pad.normal + a
            plane = diagonal(_one) - wp.outer(pad.normal, pad.normal)
            Cvv = k * wp.outer(d, d) + bend * (mu2 * plane - wp.outer(a, a))
            Cvw = k * wp.outer(d, b) - bend * wp.outer(a, b)
            Cww = k * wp.outer(b, b) + bend * (diagonal(l2) - wp.outer(b, b))
        R = skew(pad.r)
        cross = R * Cvw
        out.vv = hessian.vv + Cvv
        out.vw = hessian.vw + Cvw - Cvv * R
        out.ww = hessian.ww + Cww + cross + wp.transpose(cross) - R * Cvv * R
    return out


# --- a rod on the ground ------------------------------------------------------------------------------------------------


@wp.func
def rod_kinetic(z: wp.vec3d, mobility: Mobility):
    """Mass and inertia of a rod, world frame."""
    out = Hessian()
    across = _one / mobility.across
    out.vv = diagonal(_one / mobility.mass)
    out.ww = diagonal(across) + (_one / mobility.along - across) * wp.outer(z, z)
    return out


@wp.func
def rod_patch(before: wp.vec3d, contact: Contact):
    """What the pads of a rod (or of a pair of them) share; `before` is the (relative) angular velocity."""
    out = Patch()
    out.mu = wp.max(contact.mu, _least_friction)
    out.reach = contact.reach
    out.tw = contact.pivot * before
    return out


@wp.func
def rod_pads(before: Twist, foot: Footing, contact: Contact):
    """Pads of a rod on the ground."""
    shell = foot.cap_radius - foot.rod_radius
    s0 = foot.s0
    s1 = foot.s1
    near = -foot.h * foot.z
    far = foot.h * foot.z
    in0 = s0.gap + shell
    in1 = s1.gap + shell
    out = Pads()
    out.cap0 = pad_at(before, near - (foot.cap_radius + _half * s0.gap) * s0.normal, s0.gap, s0.normal, contact)
    out.cap1 = pad_at(before, far - (foot.cap_radius + _half * s1.gap) * s1.normal, s1.gap, s1.normal, contact)
    out.end0 = pad_at(before, near - (foot.rod_radius + _half * in0) * s0.normal, in0, s0.normal, contact)
    out.end1 = pad_at(before, far - (foot.rod_radius + _half * in1) * s1.normal, in1, s1.normal, contact)
    return out


@wp.func
def problem_of(before: Twist, predicted: Twist, foot: Footing, contact: Contact):
    """The problem of a rod on the ground."""
    out = Problem()
    out.predicted = predicted
    out.kinetic = rod_kinetic(foot.z, foot.mobility)
    out.pads = rod_pads(before, foot, contact)
    out.patch = rod_patch(before.w, contact)
    return out


@wp.func
def kinetic_energy(twist: Twist, predicted: Twist, kinetic: Hessian):
    """Kinetic energy of the change from the predicted twist."""
    change = Twist()
    change.v = twist.v - predicted.v
    change.w = twist.w - predicted.w
    gained = momentum(kinetic, change)
    return _half * (wp.dot(change.v, gained.v) + wp.dot(change.w, gained.w))


@wp.func
def pad_energy(twist: Twist, pads: Pads, patch: Patch):
    """Energy of a rod's pads."""
    cap0 = pad_wrench(twist, pads.cap0, patch)
    cap1 = pad_wrench(twist, pads.cap1, patch)
    end0 = pad_wrench(twist, pads.end0, patch)
    end1 = pad_wrench(twist, pads.end1, patch)
    return cap0.energy + cap1.energy + end0.energy + end1.energy


@wp.func
def energy(twist: Twist, problem: Problem):
    """What the twist after contact minimises, see `contact`."""
    return kinetic_energy(twist, problem.predicted, problem.kinetic) + pad_energy(twist, problem.pads, problem.patch)


@wp.func
def pull(g: Twist, twist: Twist, pad: Pad, patch: Patch):
    """G minus a pad's impulse and angular impulse about the rod's centre."""
    wrench = pad_wrench(twist, pad, patch)
    out = Twist()
    out.v = g.v - wrench.J
    out.w = g.w - wp.cross(pad.r, wrench.J) - wrench.M
    return out


@wp.func
def imbalance(twist: Twist, problem: Problem):
    """Gradient of the energy: change of momentum minus the pads' impulses, and that of angular momentum (as v and w)."""
    change = Twist()
    change.v = twist.v - problem.predicted.v
    change.w = twist.w - problem.predicted.w
    pads = problem.pads
    patch = problem.patch
    caps = pull(pull(momentum(problem.kinetic, change), twist, pads.cap0, patch), twist, pads.cap1, patch)
    return pull(pull(caps, twist, pads.end0, patch), twist, pads.end1, patch)


@wp.func
def curvature(twist: Twist, problem: Problem):
    """Second derivative of the energy."""
    pads = problem.pads
    patch = problem.patch
    caps = add_pad(add_pad(problem.kinetic, twist, pads.cap0, patch), twist, pads.cap1, patch)
    return add_pad(add_pad(caps, twist, pads.end0, patch), twist, pads.end1, patch)


@wp.func
def newton_step(g: Twist, twist: Twist, problem: Problem):
    """The energy's second derivative at `twist`, inverse, times g."""
    hessian = curvature(twist, problem)
    solved = wp.inverse(hessian.vv)
    across = wp.transpose(hessian.vw) * solved
    out = Twist()
    out.w = wp.inverse(hessian.ww - across * hessian.vw) * (g.w - across * g.v)
    out.v = solved * (g.v - hessian.vw * out.w)
    return out


@wp.func_grad(newton_step)
def adj_newton_step(g: Twist, twist: Twist, problem: Problem, adjoint: Twist):
    """The matrix is symmetric; its own derivative is not needed, as g is zero where the derivative is taken."""
    back = newton_step(adjoint, twist, problem)
    wp.adjoint[g].v += back.v
    wp.adjoint[g].w += back.w


@wp.func
def minimise(start: Twist, problem: Problem):
    """The twist of least energy, by Newton's method with halved steps; convex, so the start decides only how long it takes."""
    twist = start
    value = wp.float64(0.0)
    for iteration in range(wp.static(ITERATIONS)):
        g = imbalance(twist, problem)
        step = newton_step(g, twist, problem)
        size = wp.dot(step.v, step.v) + wp.dot(step.w, step.w)
        trial = Twist()
        trial.v = twist.v - step.v
        trial.w = twist.w - step.w
        if size <= wp.float64(1e-12) * (wp.dot(twist.v, twist.v) + wp.dot(twist.w, twist.w)) + wp.float64(1e-30):
            twist = trial
            break
        if iteration == 0:
            value = energy(twist, problem)
        descent = wp.dot(g.v, step.v) + wp.dot(g.w, step.w)
        length = _one
        reached = energy(trial, problem)
        while reached > value - wp.float64(1e-4) * length * descent + wp.float64(1e-14) * value and length > wp.float64(1e-6):
            length = _half * length
            trial.v = twist.v - length * step.v
            trial.w = twist.w - length * step.w
            reached = energy(trial, problem)
        twist = trial
        value = reached
    return twist


@wp.func_grad(minimise)
def adj_minimise(start: Twist, problem: Problem, adjoint: Twist):
    """Nothing: the Newton step that follows in `pad_contact` carries the derivative, by the implicit function theorem."""


@wp.func
def pad_contact(before: Twist, predicted: Twist, foot: Footing, contact: Contact):
    """Twist of a rod after its pads."""
    problem = problem_of(before, predicted, foot, contact)
    least = minimise(before, problem)
    return descend(least, newton_step(imbalance(least, problem), least, problem), _one)


# --- two rods that touch ------------------------------------------------------------------------------------------------


@wp.struct
class Pair:
    """Two rods that touch: their places in the group, the contact point from each centre, free (1) or held (0), and the pad."""

    first: int
    second: int
    to1: wp.vec3d
    to2: wp.vec3d
    free1: wp.float64
    free2: wp.float64
    pad: Pad
    patch: Patch


@wp.func
def relative_twist(t1: Twist, t2: Twist, to1: wp.vec3d, to2: wp.vec3d):
    """Twist of rod 1 as seen from rod 2, at the contact point."""
    out = Twist()
    out.v = t1.v + wp.cross(t1.w, to1) - t2.v - wp.cross(t2.w, to2)
    out.w = t1.w - t2.w
    return out


@wp.func
def pair_pad(before: Twist, gap: wp.float64, normal: wp.vec3d, contact: Contact):
    """The pad between two rods, for the relative twist at their contact point: two in series, so 2 rho."""
    out = pad_at(before, wp.vec3d(_zero, _zero, _zero), gap, normal, contact)
    out.k = _half * out.k
    return out
