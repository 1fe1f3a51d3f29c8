"""Contact of rods with the ground and with each other: impulses that take the predicted velocity of a step to a target.

Three modes (numbers of equations: [Wang2020], arXiv 2011.04929, IV-B, with the signs of reference: d is the signed gap):

- "paper": an impulse along the normal (eq. 1), one against the sliding direction (eq. 3) capped by Coulomb (eq. 4), and a
  torque against spin (eq. 5), each computed as if alone, on the predicted velocity. There a contact under a steady load
  creeps at gamma / (1 - gamma) times the load's velocity change per step.
- "stick": e and gamma act on the velocity before the step, the step's load is held in full, and the impulse is solved for as a
  vector, with the coupling of normal and tangent and of the two ends of a rod. A contact inside the friction cone comes to
  rest and stays.
- "patch": a soft pad under each cap, which also resists turning. With the rod's predicted twist (v*, w*) and target
  velocities t of the contact point and t_w of the rotation (as above, and t_w = pivot_damping w), the twist after contact
  minimises

      m/2 |v - v*|^2 + 1/2 (w - w*)' I (w - w*) + 1/(2 rho) sum_contacts (|v + w x r - t|^2 + l^2 |w - t_w|^2)

  with impulse J = (t - v - w x r) / rho and angular impulse M = l^2 (t_w - w) / rho. A patch holds while
  |J_t|^2 / mu^2 + |M|^2 / l^2 <= J_n^2; beyond, it slides: (J, M) = j (n + J_t / s, M / s) on that cone, and j minimises
  the same energy along this ray. rho, l and pivot_damping extend the paper's five constants: MuJoCo's contact (soft, with
  torsional and rolling friction) lies outside the class of the other two modes, see docs/contact.md.

Legend of arms: r from the rod's centre to the contact point, z the rod's axis, im = 1/m, it and ia inverse inertia across and
along the rod.
"""

from __future__ import annotations

import warp as wp

from .parameters import TensegrityParameters

CONTACT_MARGIN = 1e-6
"""[m] A gap below this counts as closed, so that rounding does not open a contact at rest."""
SWEEPS = 4
"""Sweeps of successive over-relaxation over the two ends of a rod when both touch.

The ends of a thin rod are coupled by 1/2 across it, so Gauss-Seidel leaves 1/4 of the error per sweep and the best relaxation,
2 / (1 + sqrt(1 - 1/4)), leaves 0.072."""
RELAXATION = 2.0 / (1.0 + 0.75**0.5)
MODES = {"paper": 0, "stick": 1, "patch": 2}
"""Contact mode -> its number in the kernel."""

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
BETA, RESTITUTION, GAMMA = _C["contact_bias"], _C["restitution"], _C["sliding_damping"]
FRICTION, SPIN = _C["friction"], _C["spin_damping"]
COMPLIANCE, PIVOT_DAMPING, PIVOT_FRICTION = _C["contact_compliance"], _C["pivot_damping"], _C["pivot_friction"]

_relaxation = wp.constant(wp.float64(RELAXATION))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_tenth = wp.constant(wp.float64(0.1))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.struct
class Twist:
    """Velocity of a rod, world frame."""

    v: wp.vec3d
    w: wp.vec3d


@wp.struct
class Arm:
    """A point of a rod and how it yields: velocity change of the point = K impulse, K = d 1 - it r r' + c s s'."""

    r: wp.vec3d
    s: wp.vec3d
    z: wp.vec3d
    im: wp.float64
    it: wp.float64
    c: wp.float64
    d: wp.float64


@wp.struct
class Contact:
    """Constants of all contacts."""

    beta: wp.float64
    restitution: wp.float64
    gamma: wp.float64
    mu: wp.float64
    epsilon: wp.float64
    dt: wp.float64
    mode: int
    rho: wp.float64
    pivot: wp.float64
    reach: wp.float64


@wp.struct
class Surface:
    """Ground under a point."""

    gap: wp.float64
    normal: wp.vec3d


@wp.func
def ground(
    p: wp.vec3d,
    radius: wp.float64,
    scale: wp.float64,
    plane: wp.vec3d,
    cell: wp.float64,
    rough: int,
    heights: wp.array2d(dtype=wp.float64),
):
    """Signed gap between a sphere at p and the ground, and the ground's normal (bilinear in a height field)."""
    out = Surface()
    out.normal = plane
    if rough == 0:
        out.gap = wp.dot(p, plane) - radius
    else:
        tangent = -plane[0] / plane[2]
        z = p[0] * tangent
        gx = tangent
        gy = _zero
        last_i = heights.shape[0] - 1
        last_j = heights.shape[1] - 1
        fi = p[0] / cell + _half * wp.float64(last_i)
        fj = p[1] / cell + _half * wp.float64(last_j)
        ci = wp.clamp(fi, _zero, wp.float64(last_i))
        cj = wp.clamp(fj, _zero, wp.float64(last_j))
        i = wp.min(int(ci), last_i - 1)
        j = wp.min(int(cj), last_j - 1)
        s = ci - wp.float64(i)
        t = cj - wp.float64(j)
        h00 = heights[i, j]
        h10 = heights[i + 1, j]
        h01 = heights[i, j + 1]
        h11 = heights[i + 1, j + 1]
        z = z + scale * ((_one - t) * ((_one - s) * h00 + s * h10) + t * ((_one - s) * h01 + s * h11))
        if ci == fi:
            gx = gx + scale * ((_one - t) * (h10 - h00) + t * (h11 - h01)) / cell
        if cj == fj:
            gy = gy + scale * ((_one - s) * (h01 - h00) + s * (h11 - h10)) / cell
        nz = _one / wp.sqrt(_one + gx * gx + gy * gy)
        out.gap = (p[2] - z) * nz - radius
        out.normal = wp.vec3d(-gx * nz, -gy * nz, nz)
    return out


@wp.func
def arm_at(r: wp.vec3d, z: wp.vec3d, im: wp.float64, it: wp.float64, ia: wp.float64):
    """The point of a rod at r from its centre, with inverse mass and inverse inertia across (it) and along (ia) the rod.

    K = im 1 - [r] I^-1 [r] with I^-1 = it 1 + (ia - it) z z', so K = (im + it r^2) 1 - it r r' + (ia - it) s s', s = r x z.
    """
    arm = Arm()
    arm.r = r
    arm.z = z
    arm.s = wp.cross(r, z)
    arm.im = im
    arm.it = it
    arm.c = ia - it
    arm.d = im + it * wp.dot(r, r)
    return arm


@wp.func
def respond(arm: Arm, impulse: wp.vec3d):
    """K J."""
    return arm.d * impulse - arm.it * wp.dot(arm.r, impulse) * arm.r + arm.c * wp.dot(arm.s, impulse) * arm.s


@wp.func
def resist(arm: Arm, dv: wp.vec3d):
    """K^-1 dv: as r and s are orthogonal, both are eigenvectors of K."""
    along = arm.it / arm.im * wp.dot(arm.r, dv)
    across = arm.c * wp.dot(arm.s, dv) / (arm.d + arm.c * wp.dot(arm.s, arm.s))
    return (_one / arm.d) * (dv + along * arm.r - across * arm.s)


@wp.func
def spin_up(arm: Arm, impulse: wp.vec3d):
    """Change of the rod's angular velocity, I^-1 (r x J), world frame."""
    torque = wp.cross(arm.r, impulse)
    return arm.it * torque + arm.c * wp.dot(arm.z, torque) * arm.z


@wp.func
def target_velocity(v: wp.vec3d, normal: wp.vec3d, gap: wp.float64, contact: Contact):
    """Velocity after contact that eqs (1) and (3) ask for: -e v_n - beta d/dt along the normal, gamma v_t in the plane.

    d is the signed gap (negative when overlapping); v is the velocity of the contact point, predicted in paper mode and
    before the step in stick mode. e acts on approaching contacts only.
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
    """The impulse J of a contact that so far gave `before`: the one that reaches the target if it lies in the friction cone.

    sticking = before + K^-1 change is that impulse, change = target - v, row = K n. Outside the cone the contact slides:
    J = j (n + mu t), t along the tangential part of `sticking`, and j from the normal row alone.
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
def one_contact(arm: Arm, v: wp.vec3d, target: wp.vec3d, surface: Surface, contact: Contact):
    """Impulse of a single contact of a free rod with the ground, for the predicted velocity v."""
    change = target - v
    row = respond(arm, surface.normal)
    impulse = wp.vec3d(_zero, _zero, _zero)
    if contact.mode != 0:
        impulse = stick_impulse(resist(arm, change), row, surface.normal, change, impulse, contact.mu)
    else:
        j = normal_impulse(change, surface.normal, row)
        t = slide_direction(v, surface.normal)
        impulse = j * surface.normal + slide_impulse(change, t, respond(arm, t), contact.mu * j) * t
    return impulse


@wp.func
def after_impulse(twist: Twist, arm: Arm, impulse: wp.vec3d):
    """The rod's velocity after an impulse at the point."""
    out = Twist()
    out.v = twist.v + arm.im * impulse
    out.w = twist.w + spin_up(arm, impulse)
    return out


@wp.func
def point_velocity(twist: Twist, arm: Arm):
    """v + w x r."""
    return twist.v + wp.cross(twist.w, arm.r)


@wp.func
def two_contacts(
    start: Twist, a0: Arm, a1: Arm, target0: wp.vec3d, target1: wp.vec3d, s0: Surface, s1: Surface, contact: Contact
):
    """Both ends of a rod on the ground. Paper: each as if alone. Stick: over-relaxation on the impulses."""
    j0 = wp.vec3d(_zero, _zero, _zero)
    j1 = wp.vec3d(_zero, _zero, _zero)
    if contact.mode != 0:
        row0 = respond(a0, s0.normal)
        row1 = respond(a1, s1.normal)
        for _sweep in range(wp.static(SWEEPS)):
            change0 = target0 - point_velocity(after_impulse(after_impulse(start, a0, j0), a1, j1), a0)
            j0 = stick_impulse(j0 + _relaxation * resist(a0, change0), row0, s0.normal, change0, j0, contact.mu)
            change1 = target1 - point_velocity(after_impulse(after_impulse(start, a0, j0), a1, j1), a1)
            j1 = stick_impulse(j1 + _relaxation * resist(a1, change1), row1, s1.normal, change1, j1, contact.mu)
    else:
        j0 = one_contact(a0, point_velocity(start, a0), target0, s0, contact)
        j1 = one_contact(a1, point_velocity(start, a1), target1, s1, contact)
    return after_impulse(after_impulse(start, a0, j0), a1, j1)


# --- patch -----------------------------------------------------------------------------------------------------------


@wp.struct
class Wrench:
    """Impulse and angular impulse of one contact on a rod, at the contact point."""

    J: wp.vec3d
    M: wp.vec3d


@wp.func
def skew(r: wp.vec3d):
    """[r] with [r] w = r x w."""
    return wp.mat33d(_zero, -r[2], r[1], r[2], _zero, -r[0], -r[1], r[0], _zero)


@wp.func
def pad_target(before: Twist, arm: Arm, surface: Surface, contact: Contact):
    """t: eqs (1) and (3) on the velocity before the step; e acts in both directions, as the damper of a pad."""
    v = point_velocity(before, arm)
    n = surface.normal
    vn = wp.dot(v, n)
    return (-contact.restitution * vn - contact.beta * surface.gap / contact.dt) * n + contact.gamma * (v - vn * n)


@wp.func
def pads_hold(
    predicted: Twist,
    a0: Arm,
    a1: Arm,
    on0: wp.float64,
    on1: wp.float64,
    t0: wp.vec3d,
    t1: wp.vec3d,
    tw: wp.vec3d,
    contact: Contact,
):
    """The twist that minimises the energy in the module docstring over contacts with on = 1.

    Its gradient is zero; v is eliminated, which leaves a 3 x 3 system for w:

        v = (m v* + k (sum t - w x sum r)) / (m + n k),   k = 1/rho, n contacts
        (I + n k l^2 - k sum [r][r] + k^2/(m + n k) [sum r]^2) w
            = I w* + n k l^2 t_w + k sum r x t - k (sum r) x (m v* + k sum t) / (m + n k)
    """
    k = _one / contact.rho
    count = on0 + on1
    m = _one / a0.im
    total = m + count * k
    r = on0 * a0.r + on1 * a1.r
    t = on0 * t0 + on1 * t1
    turn = count * k * contact.reach * contact.reach
    across = _one / a0.it
    along = _one / (a0.it + a0.c)
    base = across + turn
    R0 = skew(a0.r)
    R1 = skew(a1.r)
    R = skew(r)
    A = (
        wp.mat33d(base, _zero, _zero, _zero, base, _zero, _zero, _zero, base)
        + (along - across) * wp.outer(a0.z, a0.z)
        - k * (on0 * (R0 * R0) + on1 * (R1 * R1))
        + (k * k / total) * (R * R)
    )
    momentum = (_one / total) * (m * predicted.v + k * t)
    w = predicted.w
    out = Twist()
    out.w = wp.inverse(A) * (
        across * w
        + ((along - across) * wp.dot(a0.z, w)) * a0.z
        + turn * tw
        + k * (on0 * wp.cross(a0.r, t0) + on1 * wp.cross(a1.r, t1))
        - k * wp.cross(r, momentum)
    )
    out.v = momentum - (k / total) * wp.cross(out.w, r)
    return out


@wp.func
def pad_wrench(after: Twist, arm: Arm, t: wp.vec3d, tw: wp.vec3d, contact: Contact):
    """J = (t - v - w x r) / rho, M = l^2 (t_w - w) / rho."""
    out = Wrench()
    out.J = (_one / contact.rho) * (t - point_velocity(after, arm))
    out.M = (contact.reach * contact.reach / contact.rho) * (tw - after.w)
    return out


@wp.func
def cone_radius(wrench: Wrench, normal: wp.vec3d, contact: Contact):
    """mu l s, with s^2 = |J_t|^2 / mu^2 + |M|^2 / l^2."""
    jt = wrench.J - wp.dot(wrench.J, normal) * normal
    return wp.sqrt(
        contact.reach * contact.reach * wp.dot(jt, jt) + contact.mu * contact.mu * wp.dot(wrench.M, wrench.M) + _tiny * _tiny
    )


@wp.func
def respond_twist(arm: Arm, J: wp.vec3d, M: wp.vec3d):
    """Change of the rod's twist by an impulse and an angular impulse at the contact point."""
    torque = wp.cross(arm.r, J) + M
    out = Twist()
    out.v = arm.im * J
    out.w = arm.it * torque + arm.c * wp.dot(arm.z, torque) * arm.z
    return out


@wp.func
def pad_slides(wrench: Wrench, predicted: Twist, arm: Arm, normal: wp.vec3d, t: wp.vec3d, tw: wp.vec3d, contact: Contact):
    """Change of the rod's twist by a sliding pad: (J, M) = j (n + J_t/s, M/s), j = d.y / d.(K + rho) d, but not negative.

    d is that direction, y = (t, t_w) minus the predicted velocities, K the rod's response at the contact point.
    """
    inverse = contact.mu * contact.reach / cone_radius(wrench, normal, contact)
    dJ = normal + inverse * (wrench.J - wp.dot(wrench.J, normal) * normal)
    dM = inverse * wrench.M
    change = respond_twist(arm, dJ, dM)
    stiffness = (
        wp.dot(dJ, point_velocity(change, arm) + contact.rho * dJ)
        + wp.dot(dM, change.w)
        + contact.rho / (contact.reach * contact.reach) * wp.dot(dM, dM)
    )
    work = wp.dot(dJ, t - point_velocity(predicted, arm)) + wp.dot(dM, tw - predicted.w)
    j = wp.max(work / stiffness, _zero)
    out = Twist()
    out.v = j * change.v
    out.w = j * change.w
    return out


@wp.func
def pad_contact(before: Twist, predicted: Twist, a0: Arm, a1: Arm, s0: Surface, s1: Surface, contact: Contact):
    """Twist of a rod after its pads; if one slides where both touch, each is taken as if alone with half its effect."""
    on0 = _zero
    on1 = _zero
    if s0.gap < _margin:
        on0 = _one
    if s1.gap < _margin:
        on1 = _one
    t0 = pad_target(before, a0, s0, contact)
    t1 = pad_target(before, a1, s1, contact)
    tw = contact.pivot * before.w
    held = pads_hold(predicted, a0, a1, on0, on1, t0, t1, tw, contact)
    wrench0 = pad_wrench(held, a0, t0, tw, contact)
    wrench1 = pad_wrench(held, a1, t1, tw, contact)
    limit = contact.mu * contact.reach
    out = held
    slides0 = on0 > _zero and cone_radius(wrench0, s0.normal, contact) > limit * wp.dot(wrench0.J, s0.normal)
    slides1 = on1 > _zero and cone_radius(wrench1, s1.normal, contact) > limit * wp.dot(wrench1.J, s1.normal)
    if slides0 or slides1:
        share = _one / (on0 + on1)
        change0 = pad_slides(wrench0, predicted, a0, s0.normal, t0, tw, contact)
        change1 = pad_slides(wrench1, predicted, a1, s1.normal, t1, tw, contact)
        out = Twist()
        out.v = predicted.v + share * (on0 * change0.v + on1 * change1.v)
        out.w = predicted.w + share * (on0 * change0.w + on1 * change1.w)
    return out


@wp.func
def damp_spin(twist: Twist, z: wp.vec3d, epsilon: wp.float64):
    """Eq. (5): the spin about the rod's axis becomes epsilon times itself."""
    out = Twist()
    out.v = twist.v
    out.w = twist.w - (_one - epsilon) * wp.dot(twist.w, z) * z
    return out


@wp.func
def point_contact(
    before: Twist,
    predicted: Twist,
    z: wp.vec3d,
    h: wp.float64,
    s0: Surface,
    s1: Surface,
    radius: wp.float64,
    im: wp.float64,
    it: wp.float64,
    ia: wp.float64,
    contact: Contact,
):
    """Modes paper and stick: eq. (5), w_z' = epsilon w_z, is applied first.

    In stick mode the spin that an impulse brings is damped alike, which makes the axial inertia I_z / epsilon.
    """
    damped = damp_spin(predicted, z, contact.epsilon)
    reference = damped
    axial = ia
    if contact.mode != 0:
        reference = damp_spin(before, z, contact.epsilon)
        axial = contact.epsilon * ia
    out = Twist()
    if s0.gap < _margin and s1.gap < _margin:
        b0 = arm_at(-h * z - radius * s0.normal, z, im, it, axial)
        b1 = arm_at(h * z - radius * s1.normal, z, im, it, axial)
        target0 = target_velocity(point_velocity(reference, b0), s0.normal, s0.gap, contact)
        target1 = target_velocity(point_velocity(reference, b1), s1.normal, s1.gap, contact)
        out = two_contacts(damped, b0, b1, target0, target1, s0, s1, contact)
    else:
        side = -h
        touched = s0
        if s1.gap < s0.gap:
            side = h
            touched = s1
        arm = arm_at(side * z - radius * touched.normal, z, im, it, axial)
        target = target_velocity(point_velocity(reference, arm), touched.normal, touched.gap, contact)
        out = after_impulse(damped, arm, one_contact(arm, point_velocity(damped, arm), target, touched, contact))
    return out


@wp.func
def rod_impulse(a1: Arm, a2: Arm, before: wp.vec3d, slip: wp.vec3d, normal: wp.vec3d, gap: wp.float64, contact: Contact):
    """Impulse on rod 1 from rod 2 (the normal points from 2 to 1).

    K = K1 + K2; the relative velocity is `before` the step and predicted `slip`.
    """
    reference = slip
    if contact.mode != 0:
        reference = before
    change = target_velocity(reference, normal, gap, contact) - slip
    row = respond(a1, normal) + respond(a2, normal)
    none = wp.vec3d(_zero, _zero, _zero)
    impulse = none
    if contact.mode != 0:
        ex = wp.vec3d(_one, _zero, _zero)
        ey = wp.vec3d(_zero, _one, _zero)
        ez = wp.vec3d(_zero, _zero, _one)
        K = wp.matrix_from_cols(
            respond(a1, ex) + respond(a2, ex), respond(a1, ey) + respond(a2, ey), respond(a1, ez) + respond(a2, ez)
        )
        impulse = stick_impulse(wp.inverse(K) * change, row, normal, change, none, contact.mu)
    else:
        j = normal_impulse(change, normal, row)
        t = slide_direction(slip, normal)
        impulse = j * normal + slide_impulse(change, t, respond(a1, t) + respond(a2, t), contact.mu * j) * t
    return impulse


@wp.func
def contact_constants(constants: wp.array2d(dtype=wp.float64), b: int, dt: wp.float64, mode: int):
    """Row b's constants of the contacts."""
    contact = Contact()
    contact.beta = constants[b, BETA]
    contact.restitution = constants[b, RESTITUTION]
    contact.gamma = constants[b, GAMMA]
    contact.mu = constants[b, FRICTION]
    contact.epsilon = constants[b, SPIN]
    contact.dt = dt
    contact.mode = mode
    contact.rho = constants[b, COMPLIANCE]
    contact.pivot = constants[b, PIVOT_DAMPING]
    contact.reach = constants[b, PIVOT_FRICTION]
    return contact


@wp.func
def ground_contact(
    before: Twist,
    predicted: Twist,
    z: wp.vec3d,
    h: wp.float64,
    s0: Surface,
    s1: Surface,
    radius: wp.float64,
    im: wp.float64,
    it: wp.float64,
    ia: wp.float64,
    contact: Contact,
):
    """Twist of a rod after the impulses at its caps."""
    out = Twist()
    if contact.mode == 2:
        b0 = arm_at(-h * z - radius * s0.normal, z, im, it, ia)
        b1 = arm_at(h * z - radius * s1.normal, z, im, it, ia)
        out = pad_contact(before, predicted, b0, b1, s0, s1, contact)
    else:
        out = point_contact(before, predicted, z, h, s0, s1, radius, im, it, ia, contact)
    return out


@wp.func
def closest_parameters(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h1: wp.float64, h2: wp.float64):
    """Where two segments c1 + s u1, |s| <= h1, and c2 + t u2, |t| <= h2, w = c1 - c2, come closest: (s, t)."""
    a = wp.dot(u1, u2)
    d = wp.dot(u1, w)
    e = wp.dot(u2, w)
    denominator = _one - a * a
    s = _zero
    if denominator > wp.float64(1e-9):
        s = wp.clamp((a * e - d) / denominator, -h1, h1)
    t = wp.clamp(e + a * s, -h2, h2)
    s = wp.clamp(a * t - d, -h1, h1)
    return wp.vec2d(s, t)


@wp.func
def far_apart(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h: wp.float64, reach: wp.float64):
    """Cheap proof that two rods of half length <= h are more than `reach` apart, w = c1 - c2.

    Either the planes that hold one rod and are parallel to the other are that far apart, or the second rod's distance
    from the first one's line, at least |w x u1| - h |u1 x u2|, is.
    """
    n = wp.cross(u1, u2)
    n2 = wp.dot(n, n)
    wn = wp.dot(w, n)
    apart = wn * wn > reach * reach * n2
    if not apart:
        off = wp.cross(w, u1)
        bound = reach + h * wp.sqrt(n2 + _tiny * _tiny)
        apart = wp.dot(off, off) > bound * bound
    return apart


@wp.func
def feature_gap(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, s: wp.float64, t: wp.float64, radii: wp.float64):
    """Gap between spheres about the points s u1 and t u2 of two rods, w = c1 - c2."""
    return wp.length(w + s * u1 - t * u2) - radii


@wp.func
def closest_features(w: wp.vec3d, u1: wp.vec3d, u2: wp.vec3d, h1: wp.float64, h2: wp.float64, rod: wp.float64, cap: wp.float64):
    """Deepest overlap of two rods, each a capsule with a sphere at either end: (s, t, sum of radii).

    Rod against rod, the four caps against the other rod, and the four pairs of caps.
    """
    best = wp.vec3d(_zero, _zero, _two * rod)
    st = closest_parameters(w, u1, u2, h1, h2)
    best = wp.vec3d(st[0], st[1], _two * rod)
    gap = feature_gap(w, u1, u2, st[0], st[1], _two * rod)
    for side in range(2):
        sign = _two * wp.float64(side) - _one
        s = sign * h1
        t = wp.clamp(wp.dot(u2, w + s * u1), -h2, h2)
        g = feature_gap(w, u1, u2, s, t, rod + cap)
        if g < gap:
            best = wp.vec3d(s, t, rod + cap)
            gap = g
        t2 = sign * h2
        s2 = wp.clamp(wp.dot(u1, t2 * u2 - w), -h1, h1)
        g2 = feature_gap(w, u1, u2, s2, t2, rod + cap)
        if g2 < gap:
            best = wp.vec3d(s2, t2, rod + cap)
            gap = g2
        for other in range(2):
            t3 = (_two * wp.float64(other) - _one) * h2
            g3 = feature_gap(w, u1, u2, s, t3, _two * cap)
            if g3 < gap:
                best = wp.vec3d(s, t3, _two * cap)
                gap = g3
    return best
