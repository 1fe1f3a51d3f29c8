"""Contact of rods with the ground and with each other: impulses that take the predicted velocity of a step to a target.

Three modes (numbers of equations: [Wang2020], arXiv 2011.04929, IV-B, with the signs of reference: d is the signed gap):

- "paper": an impulse along the normal (eq. 1), one against the sliding direction (eq. 3) capped by Coulomb (eq. 4), and a
  torque against spin (eq. 5), each computed as if alone, on the predicted velocity. There a contact under a steady load
  creeps at gamma / (1 - gamma) times the load's velocity change per step.
- "stick": e and gamma act on the velocity before the step, the step's load is held in full, and the impulse is solved for as a
  vector, with the coupling of normal and tangent and of the two ends of a rod. A contact inside the friction cone comes to
  rest and stays.
- "patch": a soft pad under each cap, which also resists turning. With the rod's predicted twist (v*, w*) and target
  velocities t of the contact point and t_w of the rotation (as above, and t_w = pivot_damping w), the impulses J and
  angular impulses M of a rod's contacts minimise, with the twist (v, w) that they bring about,

      m/2 |v - v*|^2 + 1/2 (w - w*)' I (w - w*) + sum_contacts max over (J, M) in the cone of
          J.(t - v - w x r) + M.(t_w - w) - rho/2 (|J|^2 + mu^2/l^2 |M|^2),   cone: |J_t|^2 / mu^2 + |M|^2 / l^2 <= J_n^2,

  in (v, w): convex and once differentiable, solved by Newton's method for both ends of a rod together (rods that touch each
  other: `joint`). rho, l and pivot_damping extend the paper's five constants: MuJoCo's contact (soft, with torsional and
  rolling friction, whose energy this is) lies outside the class of the other two modes, see docs/contact.md. r ends in the
  middle of the overlap.

Legend of arms: r from the rod's centre to the contact point, z the rod's axis, im = 1/m, it and ia inverse inertia across and
along the rod.
"""

# mypy: disable-error-code="valid-type"
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
ITERATIONS = 30
"""Most Newton steps of a patch; 5 are usual."""
LEAST_FRICTION = 1e-3
"""mu of a patch is at least this, so that its energy has a second derivative."""
MODES = {"paper": 0, "stick": 1, "patch": 2}
"""Contact mode -> its number in the kernel."""

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
BETA, RESTITUTION, GAMMA = _C["contact_bias"], _C["restitution"], _C["sliding_damping"]
FRICTION, SPIN = _C["friction"], _C["spin_damping"]
COMPLIANCE, PIVOT_DAMPING, PIVOT_FRICTION = _C["contact_compliance"], _C["pivot_damping"], _C["pivot_friction"]

_relaxation = wp.constant(wp.float64(RELAXATION))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_least_friction = wp.constant(wp.float64(LEAST_FRICTION))
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
def pad_at(before: Twist, arm: wp.vec3d, gap: wp.float64, normal: wp.vec3d, contact: Contact):
    """The pad at a contact point: eqs (1) and (3) on the velocity before the step; e acts both ways, as a pad's damper."""
    out = Pad()
    if gap < _margin:
        v = before.v + wp.cross(before.w, arm)
        vn = wp.dot(v, normal)
        out.k = _one / contact.rho
        out.r = arm
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


@wp.func
def energy(twist: Twist, predicted: Twist, kinetic: Hessian, pads: Pads, patch: Patch):
    """What the twist after contact minimises, see the module docstring."""
    change = Twist()
    change.v = twist.v - predicted.v
    change.w = twist.w - predicted.w
    gained = momentum(kinetic, change)
    return _half * (wp.dot(change.v, gained.v) + wp.dot(change.w, gained.w)) + wrenches(twist, pads, patch)


@wp.func
def wrenches(twist: Twist, pads: Pads, patch: Patch):
    """Energy of a rod's pads."""
    cap0 = pad_wrench(twist, pads.cap0, patch)
    cap1 = pad_wrench(twist, pads.cap1, patch)
    end0 = pad_wrench(twist, pads.end0, patch)
    end1 = pad_wrench(twist, pads.end1, patch)
    return cap0.energy + cap1.energy + end0.energy + end1.energy


@wp.func
def pull(g: Twist, twist: Twist, pad: Pad, patch: Patch):
    """G minus a pad's impulse and angular impulse about the rod's centre."""
    wrench = pad_wrench(twist, pad, patch)
    out = Twist()
    out.v = g.v - wrench.J
    out.w = g.w - wp.cross(pad.r, wrench.J) - wrench.M
    return out


@wp.func
def imbalance(twist: Twist, predicted: Twist, kinetic: Hessian, pads: Pads, patch: Patch):
    """Gradient of the energy: change of momentum minus the pads' impulses, and that of angular momentum (as v and w)."""
    change = Twist()
    change.v = twist.v - predicted.v
    change.w = twist.w - predicted.w
    caps = pull(pull(momentum(kinetic, change), twist, pads.cap0, patch), twist, pads.cap1, patch)
    return pull(pull(caps, twist, pads.end0, patch), twist, pads.end1, patch)


@wp.func
def newton_step(g: Twist, twist: Twist, kinetic: Hessian, pads: Pads, patch: Patch):
    """The energy's second derivative at `twist`, inverse, times g."""
    hessian = add_pad(add_pad(kinetic, twist, pads.cap0, patch), twist, pads.cap1, patch)
    hessian = add_pad(add_pad(hessian, twist, pads.end0, patch), twist, pads.end1, patch)
    solved = wp.inverse(hessian.vv)
    across = wp.transpose(hessian.vw) * solved
    out = Twist()
    out.w = wp.inverse(hessian.ww - across * hessian.vw) * (g.w - across * g.v)
    out.v = solved * (g.v - hessian.vw * out.w)
    return out


@wp.func_grad(newton_step)
def adj_newton_step(g: Twist, twist: Twist, kinetic: Hessian, pads: Pads, patch: Patch, adjoint: Twist):
    """The matrix is symmetric; its own derivative is not needed, as g is zero where the derivative is taken."""
    back = newton_step(adjoint, twist, kinetic, pads, patch)
    wp.adjoint[g].v += back.v
    wp.adjoint[g].w += back.w


@wp.func
def minimise(start: Twist, predicted: Twist, kinetic: Hessian, pads: Pads, patch: Patch):
    """The twist of least energy, by Newton's method with halved steps; convex, so the start decides only how long it takes."""
    twist = start
    value = wp.float64(0.0)
    for iteration in range(wp.static(ITERATIONS)):
        g = imbalance(twist, predicted, kinetic, pads, patch)
        step = newton_step(g, twist, kinetic, pads, patch)
        size = wp.dot(step.v, step.v) + wp.dot(step.w, step.w)
        trial = Twist()
        trial.v = twist.v - step.v
        trial.w = twist.w - step.w
        if size <= wp.float64(1e-12) * (wp.dot(twist.v, twist.v) + wp.dot(twist.w, twist.w)) + wp.float64(1e-30):
            twist = trial
            break
        if iteration == 0:
            value = energy(twist, predicted, kinetic, pads, patch)
        descent = wp.dot(g.v, step.v) + wp.dot(g.w, step.w)
        length = _one
        reached = energy(trial, predicted, kinetic, pads, patch)
        while reached > value - wp.float64(1e-4) * length * descent + wp.float64(1e-14) * value and length > wp.float64(1e-6):
            length = _half * length
            trial.v = twist.v - length * step.v
            trial.w = twist.w - length * step.w
            reached = energy(trial, predicted, kinetic, pads, patch)
        twist = trial
        value = reached
    return twist


@wp.func_grad(minimise)
def adj_minimise(start: Twist, predicted: Twist, kinetic: Hessian, pads: Pads, patch: Patch, adjoint: Twist):
    """Nothing: the Newton step that follows in `pad_contact` carries the derivative, by the implicit function theorem."""


@wp.func
def pad_contact(before: Twist, predicted: Twist, kinetic: Hessian, pads: Pads, patch: Patch):
    """Twist of a rod after its pads."""
    least = minimise(before, predicted, kinetic, pads, patch)
    step = newton_step(imbalance(least, predicted, kinetic, pads, patch), least, kinetic, pads, patch)
    out = Twist()
    out.v = least.v - step.v
    out.w = least.w - step.w
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
def pair_pad(before: Twist, gap: wp.float64, normal: wp.vec3d, contact: Contact):
    """The pad between two rods, for the relative twist at their contact point: two in series, so 2 rho."""
    out = pad_at(before, wp.vec3d(_zero, _zero, _zero), gap, normal, contact)
    out.k = _half * out.k
    return out


@wp.func
def rod_impulse(a1: Arm, a2: Arm, before: wp.vec3d, slip: wp.vec3d, normal: wp.vec3d, gap: wp.float64, contact: Contact):
    """Modes paper and stick: impulse on rod 1 from rod 2 (the normal points from 2 to 1).

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
def rod_kinetic(z: wp.vec3d, im: wp.float64, it: wp.float64, ia: wp.float64):
    """Mass and inertia of a rod, world frame."""
    out = Hessian()
    out.vv = diagonal(_one / im)
    out.ww = diagonal(_one / it) + (_one / ia - _one / it) * wp.outer(z, z)
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
def rod_pads(
    before: Twist,
    z: wp.vec3d,
    h: wp.float64,
    s0: Surface,
    s1: Surface,
    radius: wp.float64,
    rod_radius: wp.float64,
    contact: Contact,
):
    """Pads of a rod on the ground."""
    shell = radius - rod_radius
    in0 = s0.gap + shell
    in1 = s1.gap + shell
    out = Pads()
    out.cap0 = pad_at(before, -h * z - (radius + _half * s0.gap) * s0.normal, s0.gap, s0.normal, contact)
    out.cap1 = pad_at(before, h * z - (radius + _half * s1.gap) * s1.normal, s1.gap, s1.normal, contact)
    out.end0 = pad_at(before, -h * z - (rod_radius + _half * in0) * s0.normal, in0, s0.normal, contact)
    out.end1 = pad_at(before, h * z - (rod_radius + _half * in1) * s1.normal, in1, s1.normal, contact)
    return out


@wp.func
def ground_contact(
    before: Twist,
    predicted: Twist,
    z: wp.vec3d,
    h: wp.float64,
    s0: Surface,
    s1: Surface,
    radius: wp.float64,
    rod_radius: wp.float64,
    im: wp.float64,
    it: wp.float64,
    ia: wp.float64,
    contact: Contact,
):
    """Twist of a rod after the impulses at its caps, of `radius`; a patch also takes the rod's own ends into account."""
    out = Twist()
    if contact.mode == 2:
        pads = rod_pads(before, z, h, s0, s1, radius, rod_radius, contact)
        out = pad_contact(before, predicted, rod_kinetic(z, im, it, ia), pads, rod_patch(before.w, contact))
    else:
        out = point_contact(before, predicted, z, h, s0, s1, radius, im, it, ia, contact)
    return out
