"""Point contacts of rods, modes paper and stick: one impulse per contact, as if alone or coupled; see `contact`.

Numbers of equations: [Wang2020], arXiv 2011.04929, IV-B.
Legend: K is the response of a contact point to an impulse, see `rods`.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .contact import CONTACT_MARGIN, PAPER, ContactData, Footing, GroundPoint
from .rods import Lever, Twist, after_impulse, lever_at, point_velocity, resist, respond

SWEEPS = 4
"""Sweeps of successive over-relaxation over the two ends of a rod when both touch.

The ends of a thin rod are coupled by 1/2 across it, so Gauss-Seidel leaves 1/4 of the error per sweep and the best relaxation,
2 / (1 + sqrt(1 - 1/4)), leaves 0.072."""
RELAXATION = 2.0 / (1.0 + 0.75**0.5)

_relaxation = wp.constant(wp.float64(RELAXATION))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_tenth = wp.constant(wp.float64(0.1))
_one = wp.constant(wp.float64(1.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.func
def target_velocity(v: wp.vec3d, normal: wp.vec3d, gap: wp.float64, contact: ContactData):
    """Target velocity after contact of eqs (1) and (3): -e v_n - beta d/dt along the normal, gamma v_t in the plane.

    d is the signed gap (negative when overlapping); v is the velocity of the contact point, predicted in paper mode and
    before the step in stick mode. e acts only on approaching contacts.
    """
    vn = wp.dot(v, normal)
    bounce = -contact.restitution * wp.min(vn, _zero) - contact.beta * gap / contact.dt
    return bounce * normal + contact.gamma * (v - vn * normal)


@wp.func
def normal_impulse(change: wp.vec3d, normal: wp.vec3d, row: wp.vec3d):
    """Eq. (1): j that brings the normal velocity to its target, as if alone; row = K n, change = target - v."""
    return wp.max(_zero, wp.dot(change, normal) / wp.dot(row, normal))


@wp.func
def slide_direction(v: wp.vec3d, normal: wp.vec3d):
    """t of eq. (3): against the sliding velocity."""
    vt = v - wp.dot(v, normal) * normal
    return -vt / wp.sqrt(wp.dot(vt, vt) + _tiny * _tiny)


@wp.func
def slide_impulse(change: wp.vec3d, t: wp.vec3d, row: wp.vec3d, limit: wp.float64):
    """Eqs (3) and (4): k that brings the sliding velocity to its target, as if alone, at most `limit`; row = K t."""
    return wp.min(wp.max(wp.dot(change, t) / wp.dot(row, t), _zero), limit)


@wp.func
def stick_impulse(sticking: wp.vec3d, row: wp.vec3d, normal: wp.vec3d, change: wp.vec3d, before: wp.vec3d, mu: wp.float64):
    """Impulse J of a contact whose impulse was `before`: the one that reaches the target, if it lies in the friction cone.

    sticking = before + K^-1 change is that impulse, change = target - v, row = K n. Outside the cone the contact slides:
    J = j (n + mu t), t along the tangential part of `sticking`, and j from the normal row only.
    """
    jn = wp.dot(sticking, normal)
    tangential = sticking - jn * normal
    jt = wp.sqrt(wp.dot(tangential, tangential) + _tiny * _tiny)
    impulse = sticking
    if jn < _zero or jt > mu * jn:
        direction = normal + (mu / jt) * tangential
        wanted = wp.dot(change, normal) + wp.dot(row, before)
        # A steep rod under high friction can make the denominator small or negative (Painleve): bounded from below.
        j = wanted / wp.max(wp.dot(row, direction), _tenth * wp.dot(row, normal))
        impulse = wp.max(j, _zero) * direction
    return impulse


@wp.func
def one_contact(lever: Lever, v: wp.vec3d, target: wp.vec3d, surface: GroundPoint, contact: ContactData):
    """Impulse of a single contact of a free rod with the ground, for the predicted velocity v."""
    change = target - v
    row = respond(lever, surface.normal)
    impulse = wp.vec3d(_zero, _zero, _zero)
    if contact.mode != PAPER:
        impulse = stick_impulse(resist(lever, change), row, surface.normal, change, impulse, contact.mu)
    else:
        j = normal_impulse(change, surface.normal, row)
        t = slide_direction(v, surface.normal)
        impulse = j * surface.normal + slide_impulse(change, t, respond(lever, t), contact.mu * j) * t
    return impulse


@wp.func
def two_contacts(
    start: Twist,
    l0: Lever,
    l1: Lever,
    target0: wp.vec3d,
    target1: wp.vec3d,
    s0: GroundPoint,
    s1: GroundPoint,
    contact: ContactData,
):
    """Both ends of a rod on the ground. Paper: each as if alone. Stick: over-relaxation on the impulses."""
    j0 = wp.vec3d(_zero, _zero, _zero)
    j1 = wp.vec3d(_zero, _zero, _zero)
    if contact.mode != PAPER:
        row0 = respond(l0, s0.normal)
        row1 = respond(l1, s1.normal)
        for _sweep in range(wp.static(SWEEPS)):
            change0 = target0 - point_velocity(after_impulse(after_impulse(start, l0, j0), l1, j1), l0)
            j0 = stick_impulse(j0 + _relaxation * resist(l0, change0), row0, s0.normal, change0, j0, contact.mu)
            change1 = target1 - point_velocity(after_impulse(after_impulse(start, l0, j0), l1, j1), l1)
            j1 = stick_impulse(j1 + _relaxation * resist(l1, change1), row1, s1.normal, change1, j1, contact.mu)
    else:
        j0 = one_contact(l0, point_velocity(start, l0), target0, s0, contact)
        j1 = one_contact(l1, point_velocity(start, l1), target1, s1, contact)
    return after_impulse(after_impulse(start, l0, j0), l1, j1)


@wp.func
def damp_spin(twist: Twist, z: wp.vec3d, epsilon: wp.float64):
    """Eq. (5): the spin about the rod's axis becomes epsilon times itself."""
    out = Twist()
    out.v = twist.v
    out.w = twist.w - (_one - epsilon) * wp.dot(twist.w, z) * z
    return out


@wp.func
def lever_of_end(side: wp.float64, surface: GroundPoint, foot: Footing, axial: wp.float64):
    """The contact point of the cap at side h z, side = -1 or 1."""
    r = (side * foot.h) * foot.z - foot.cap_radius * surface.normal
    return lever_at(r, foot.z, foot.mobility.mass, foot.mobility.across, axial)


@wp.func
def point_contact(before: Twist, predicted: Twist, foot: Footing, contact: ContactData):
    """Twist of a rod after the impulses at its caps; eq. (5), w_z' = epsilon w_z, is applied first.

    In stick mode the spin that an impulse brings is damped alike, which makes the axial inertia I_z / epsilon.
    """
    damped = damp_spin(predicted, foot.z, contact.epsilon)
    reference = damped
    axial = foot.mobility.along
    if contact.mode != PAPER:
        reference = damp_spin(before, foot.z, contact.epsilon)
        axial = contact.epsilon * foot.mobility.along
    s0 = foot.s0
    s1 = foot.s1
    out = Twist()
    if s0.gap < _margin and s1.gap < _margin:
        l0 = lever_of_end(-_one, s0, foot, axial)
        l1 = lever_of_end(_one, s1, foot, axial)
        target0 = target_velocity(point_velocity(reference, l0), s0.normal, s0.gap, contact)
        target1 = target_velocity(point_velocity(reference, l1), s1.normal, s1.gap, contact)
        out = two_contacts(damped, l0, l1, target0, target1, s0, s1, contact)
    else:
        side = -_one
        touched = s0
        if s1.gap < s0.gap:
            side = _one
            touched = s1
        lever = lever_of_end(side, touched, foot, axial)
        target = target_velocity(point_velocity(reference, lever), touched.normal, touched.gap, contact)
        out = after_impulse(damped, lever, one_contact(lever, point_velocity(damped, lever), target, touched, contact))
    return out


@wp.func
def rod_impulse(
    l1: Lever, l2: Lever, before: wp.vec3d, slip: wp.vec3d, normal: wp.vec3d, gap: wp.float64, contact: ContactData
):
    """Impulse on rod 1 from rod 2 (the normal points from 2 to 1).

    K = K1 + K2; the relative velocity is `before` the step and predicted `slip`.
    """
    reference = slip
    if contact.mode != PAPER:
        reference = before
    change = target_velocity(reference, normal, gap, contact) - slip
    row = respond(l1, normal) + respond(l2, normal)
    none = wp.vec3d(_zero, _zero, _zero)
    impulse = none
    if contact.mode != PAPER:
        ex = wp.vec3d(_one, _zero, _zero)
        ey = wp.vec3d(_zero, _one, _zero)
        ez = wp.vec3d(_zero, _zero, _one)
        K = wp.matrix_from_cols(
            respond(l1, ex) + respond(l2, ex), respond(l1, ey) + respond(l2, ey), respond(l1, ez) + respond(l2, ez)
        )
        impulse = stick_impulse(wp.inverse(K) * change, row, normal, change, none, contact.mu)
    else:
        j = normal_impulse(change, normal, row)
        t = slide_direction(slip, normal)
        impulse = j * normal + slide_impulse(change, t, respond(l1, t) + respond(l2, t), contact.mu * j) * t
    return impulse
