"""Contact of rods with the ground and with each other: impulses that bring the predicted velocity of a step to a target.

Three modes (numbers of equations: [Wang2020], arXiv 2011.04929, IV-B, with the signs of reference: d is the signed gap):

- "paper": an impulse along the normal (eq. 1), one against the sliding direction (eq. 3) capped by Coulomb (eq. 4), and a
  torque against spin (eq. 5), each computed as if alone, on the predicted velocity. There a contact under a steady load
  creeps at gamma / (1 - gamma) times the load's velocity change per step.
- "stick": e and gamma act on the velocity before the step, the step's load is resisted in full, and the impulse is solved as a
  vector, with the coupling of normal and tangent and of the two ends of a rod. A contact inside the friction cone comes to
  rest and stays.
- "patch": a soft pad under each cap, which also resists turning. With the rod's predicted twist (v*, w*) and target
  velocities t of the contact point and t_w of the rotation (as above, and t_w = pivot_damping w), the impulses J and
  angular impulses M of a rod's contacts minimise, with the twist (v, w) that they bring about,

      m/2 |v - v*|^2 + 1/2 (w - w*)' I (w - w*) + sum_contacts max over (J, M) in the cone of
          J.(t - v - w x r) + M.(t_w - w) - rho/2 (|J|^2 + mu^2/l^2 |M|^2),   cone: |J_t|^2 / mu^2 + |M|^2 / l^2 <= J_n^2,

  in (v, w): convex and once differentiable, solved by Newton's method for both ends of a rod together (rods that touch each
  other: `joint`). rho, l and pivot_damping extend the paper's five parameters: MuJoCo's contact (soft, with torsional and
  rolling friction, whose energy this is) is not of the class of the other two modes: docs/explanation/contact.md. r ends in
  the middle of the overlap.

Modes paper and stick are in `impulses`, mode patch in `contact_patches` and `patch` (and `joint`, for rods that touch each
other); here is what they share: parameters, the ground, and a rod over it.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from .parameters import TensegrityParameters
from .rods import Mobility, Rod, mobility_of

CONTACT_MARGIN = 1e-6
"""[m] A gap below this counts as closed, so that rounding does not open a contact at rest."""
MODES = {"paper": 0, "stick": 1, "patch": 2}
"""Contact mode -> its number in the kernel."""
PAPER, STICK, PATCH = (wp.constant(MODES[name]) for name in MODES)

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
BETA, RESTITUTION, GAMMA = _C["contact_bias"], _C["restitution"], _C["sliding_damping"]
FRICTION, SPIN = _C["friction"], _C["spin_damping"]
COMPLIANCE, PIVOT_DAMPING, PIVOT_FRICTION = _C["contact_compliance"], _C["pivot_damping"], _C["pivot_friction"]

_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))


@wp.struct
class ContactData:
    """Parameters of all contacts; the weights of a learned correction begin in column `learned`, 0: there is none."""

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
    cap_radius: wp.float64
    rod_radius: wp.float64
    learned: int


@wp.struct
class Ground:
    """The ground: a plane with this normal, or heights over it (rough = 1) on a grid of square cells."""

    heights: wp.array2d(dtype=wp.float64)
    cell: wp.float64
    plane: wp.vec3d
    rough: int


@wp.struct
class GroundPoint:
    """Ground under a point."""

    gap: wp.float64
    normal: wp.vec3d


@wp.struct
class Footing:
    """A rod over the ground: its axis, half length, radii and mobility, and the ground under its two ends."""

    z: wp.vec3d
    h: wp.float64
    cap_radius: wp.float64
    rod_radius: wp.float64
    mobility: Mobility
    s0: GroundPoint
    s1: GroundPoint


@wp.func
def contact_constants(
    parameter_values: wp.array2d(dtype=wp.float64),
    b: int,
    dt: wp.float64,
    mode: int,
    cap: wp.float64,
    rod: wp.float64,
    learned: int,
):
    """Row b's parameters of the contacts."""
    contact = ContactData()
    contact.beta = parameter_values[b, BETA]
    contact.restitution = parameter_values[b, RESTITUTION]
    contact.gamma = parameter_values[b, GAMMA]
    contact.mu = parameter_values[b, FRICTION]
    contact.epsilon = parameter_values[b, SPIN]
    contact.dt = dt
    contact.mode = mode
    contact.rho = parameter_values[b, COMPLIANCE]
    contact.pivot = parameter_values[b, PIVOT_DAMPING]
    contact.reach = parameter_values[b, PIVOT_FRICTION]
    contact.cap_radius = cap
    contact.rod_radius = rod
    contact.learned = learned
    return contact


@wp.func_native(
    """
#ifdef SOFTGYM_LANES
    return wp::entry(heights, i, j);
#else
    return *wp::address(heights, int32_t(i), int32_t(j));
#endif
    """
)
def height_at(heights: wp.array2d(dtype=wp.float64), i: wp.float64, j: wp.float64) -> wp.float64:
    """heights[i, j] for whole numbers i, j, which differ from row to row; no derivative."""


@wp.func
def rough_ground(
    p: wp.vec3d, radius: wp.float64, scale: wp.float64, plane: wp.vec3d, cell: wp.float64, heights: wp.array2d(dtype=wp.float64)
):
    """Signed gap between a sphere at p and a height field over a plane, and its normal; bilinear in a cell."""
    tangent = -plane[0] / plane[2]
    z = p[0] * tangent
    gx = tangent
    gy = _zero
    last_i = wp.float64(heights.shape[0] - 1)
    last_j = wp.float64(heights.shape[1] - 1)
    fi = p[0] / cell + _half * last_i
    fj = p[1] / cell + _half * last_j
    ci = wp.clamp(fi, _zero, last_i)
    cj = wp.clamp(fj, _zero, last_j)
    i = wp.min(wp.floor(ci), last_i - _one)
    j = wp.min(wp.floor(cj), last_j - _one)
    s = ci - i
    t = cj - j
    h00 = height_at(heights, i, j)
    h10 = height_at(heights, i + _one, j)
    h01 = height_at(heights, i, j + _one)
    h11 = height_at(heights, i + _one, j + _one)
    z = z + scale * ((_one - t) * ((_one - s) * h00 + s * h10) + t * ((_one - s) * h01 + s * h11))
    if ci == fi:
        gx = gx + scale * ((_one - t) * (h10 - h00) + t * (h11 - h01)) / cell
    if cj == fj:
        gy = gy + scale * ((_one - s) * (h01 - h00) + s * (h11 - h10)) / cell
    nz = _one / wp.sqrt(_one + gx * gx + gy * gy)
    out = GroundPoint()
    out.gap = (p[2] - z) * nz - radius
    out.normal = wp.vec3d(-gx * nz, -gy * nz, nz)
    return out


@wp.func(inline=True)
def ground(p: wp.vec3d, radius: wp.float64, scale: wp.float64, terrain: Ground):
    """Signed gap between a sphere at p and the ground, and the ground's normal."""
    normal = terrain.plane
    gap = wp.dot(p, normal) - radius
    if terrain.rough != 0:
        rough = rough_ground(p, radius, scale, terrain.plane, terrain.cell, terrain.heights)
        normal = rough.normal
        gap = rough.gap
    out = GroundPoint()
    out.gap = gap
    out.normal = normal
    return out


@wp.func
def footing_of(z: wp.vec3d, rod: Rod, s0: GroundPoint, s1: GroundPoint, inverse_mass: wp.float64, contact: ContactData):
    """A rod with axis z over the ground."""
    foot = Footing()
    foot.z = z
    foot.h = rod.half
    foot.cap_radius = contact.cap_radius
    foot.rod_radius = contact.rod_radius
    foot.mobility = mobility_of(rod, inverse_mass)
    foot.s0 = s0
    foot.s1 = s1
    return foot
