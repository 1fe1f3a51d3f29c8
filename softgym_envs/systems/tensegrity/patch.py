"""A rod on its pads, mode patch: the twist of least energy, see `contact`.

Newton's method finds it; the derivative comes from one more Newton step at the solution, which Warp differentiates: the
implicit function theorem.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from ...engines.warp.precision import tolerance
from .contact import ContactData, Footing
from .contact_patches import Hessian, Pad, Patch, add_pad, diagonal, pad_at, pad_wrench, rod_patch
from .rods import Mobility, Twist

ITERATIONS = 30
"""Most Newton steps; 5 are usual."""

_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_stop = wp.constant(wp.float64(tolerance(1e-12)))
_slack = wp.constant(wp.float64(tolerance(1e-14)))


@wp.struct
class Pads:
    """Pads of a rod: under its caps, and under the ends of the rod itself, which lie within the caps."""

    cap0: Pad
    cap1: Pad
    end0: Pad
    end1: Pad


@wp.struct
class Problem:
    """Energy that a rod's twist after contact minimises: kinetic energy of the change by contact, and that of its pads."""

    predicted: Twist
    kinetic: Hessian
    pads: Pads
    patch: Patch


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


@wp.func
def rod_kinetic(z: wp.vec3d, mobility: Mobility):
    """Mass and inertia of a rod, world frame."""
    out = Hessian()
    across = _one / mobility.across
    out.vv = diagonal(_one / mobility.mass)
    out.ww = diagonal(across) + (_one / mobility.along - across) * wp.outer(z, z)
    return out


@wp.func
def rod_pads(before: Twist, foot: Footing, contact: ContactData):
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
def problem_of(before: Twist, predicted: Twist, foot: Footing, contact: ContactData):
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
    """Energy that the twist after contact minimises, see `contact`."""
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
    """Inverse of the energy's second derivative at `twist`, times g."""
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
        if size <= _stop * (wp.dot(twist.v, twist.v) + wp.dot(twist.w, twist.w)) + wp.float64(1e-30):
            twist = trial
            break
        if iteration == 0:
            value = energy(twist, problem)
        descent = wp.dot(g.v, step.v) + wp.dot(g.w, step.w)
        length = _one
        reached = energy(trial, problem)
        while reached > value - wp.float64(1e-4) * length * descent + _slack * value and length > wp.float64(1e-6):
            length = _half * length
            trial.v = twist.v - length * step.v
            trial.w = twist.w - length * step.w
            reached = energy(trial, problem)
        twist = trial
        value = reached
    return twist


@wp.func_grad(minimise)
def adj_minimise(start: Twist, problem: Problem, adjoint: Twist):
    """Do nothing: the Newton step that follows in `pad_contact` carries the derivative, by the implicit function theorem."""


@wp.func
def pad_contact(before: Twist, predicted: Twist, foot: Footing, contact: ContactData):
    """Twist of a rod after its pads."""
    problem = problem_of(before, predicted, foot, contact)
    least = minimise(before, problem)
    return descend(least, newton_step(imbalance(least, problem), least, problem), _one)
