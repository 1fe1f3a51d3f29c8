r"""Loops as Cosserat rods of PyElastica, one per row in one block of its memory; both ends of every rod are in a gripper.

PyElastica computes strains, internal forces and accelerations, and steps by its position Verlet scheme. Added are gravity, the
gripper and the clamp, contact with a peg, and damping: joints have dampers between their links, and stretching speeds decay.

PyElastica's strain of a joint is the rotation vector phi between its links, with a at rest; the model's angles (theta, psi,
phi) turn the farther link from the gripper. To first order they are J (phi - a), with the right or left Jacobian of a on the
left or right side, and the bend matrix is J^T diag(k) J times the joint's length.

A ring of 2 J links is an open rod from the gripper's middle around to it again: nodes 0, the left joints 0 .. J-1, the right
joints J-1 .. 0, and 2J+1; elements 0 and 2J are halves of the gripper's link, J is the link at the clamp. Voronoi domain v is
the joint between the elements v and v + 1. Directors are rows: x, y, z of a link, z along it, x normal to the regular loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, exp, pi, sin
from typing import Any, NamedTuple

import elastica as ea
import numpy as np
from elastica.memory_block import MemoryBlockCosseratRod

from ...core.simulator import Array
from ...engines.numba.engine import inner, kernel
from .links import BALLS

STRETCH_DECAY = 1000.0
"""[1/s] Rate at which stretching speeds of elements decay."""


class Material(NamedTuple):
    """Numbers of every row."""

    mass: Array
    """(B,) mass of a link [kg]."""
    radius: float
    """Of the tube [m]."""
    stiffness: Array
    """(B, 2J, 3) of every joint about x, y, z [N m/rad]."""
    damping: Array
    """(B, 2J) [N m s/rad]."""
    stretch: float
    """EA [N] and GA [N]."""
    shear: float
    gravity: Array
    """(B,) [m/s^2]"""


class Motion(NamedTuple):
    """Positions of nodes (B, N, 3), directors of elements (B, M, 3, 3), speeds (B, N, 3), rates in links' frames (B, M, 3)."""

    x: Array
    Q: Array
    v: Array
    w: Array


class Path(NamedTuple):
    """The gripper during a physics step: place and rotation at its beginning, speed, and rotation rate in the world."""

    place: Array
    turn: Array
    speed: Array
    rate: Array


@dataclass(frozen=True)
class Peg:
    """Pegs of all rows: places (B, 3) and axes (B, 3), with the numbers of `mechanics.tree.Peg`."""

    place: Array
    axis: Array
    numbers: Array
    """(5,) length, radius, stiffness, softness, and the balls' radius."""


class Ring:
    """A block of rods; also what PyElastica calls a system collection, to whose stages its stepper turns."""

    def __init__(self, rows: int, links: int, link_length: float, radius: float):
        self.half, self.length = links // 2, link_length
        self.stepper: Any = ea.PositionVerlet()
        rods = [_regular(links, link_length, radius) for _ in range(rows)]
        self.block: Any = MemoryBlockCosseratRod(rods, list(range(rows)))
        starts = (self.block.start_idx_in_rod_nodes, self.block.start_idx_in_rod_elems, self.block.start_idx_in_rod_voronoi)
        counts = (2 * self.half + 2, 2 * self.half + 1, 2 * self.half)
        self.nodes, self.elements, self.joints = (
            np.asarray(start)[:rows, None] + np.arange(count) for start, count in zip(starts, counts, strict=True)
        )
        self.block.rest_kappa[:, self.joints] = self.block.kappa[:, self.joints]
        left = _left_jacobian(2 * pi / links)
        self.turns = np.array([left.T] * self.half + [left] * self.half)
        self.wrench = np.zeros((rows, 6))
        self.peg: Peg | None = None
        self.clamp: tuple[Array, Array] | None = None

    # --- a physics step -----------------------------------------------------------------------------------------------

    def load(self, material: Material, motion: Motion, clamp: tuple[Array, Array] | None, peg: Peg | None) -> None:
        """Take material and motion; `clamp`: place (B, 3) and rotation (B, 3, 3) of the bottom link, None: free."""
        block, m, r, J = self.block, material.mass, material.radius, self.half
        self.clamp, self.peg, self.material = clamp, peg, material
        share = np.ones(2 * J + 1)
        share[[0, -1]] = 0.5
        masses = np.zeros((len(m), 2 * J + 2))
        masses[:, 1:] += 0.5 * m[:, None] * share
        masses[:, :-1] += 0.5 * m[:, None] * share
        block.mass[self.nodes] = masses
        inertia = 0.5 * r * r * m[:, None] * share
        self.inertia = inertia.copy()
        self.inertia[:, [0, 2 * J] + ([] if clamp is None else [J])] = np.inf
        self.lifted = 1.0 / masses
        self.lifted[:, [0, 1, 2 * J, 2 * J + 1] + ([] if clamp is None else [J, J + 1])] = 0.0
        lengths = block.rest_voronoi_lengths[self.joints]
        for i in range(3):
            block.mass_second_moment_of_inertia[i, i, self.elements] = inertia
            block.inv_mass_second_moment_of_inertia[i, i, self.elements] = 1.0 / inertia
            for k in range(3):
                both = self.turns[:, :, i] * self.turns[:, :, k]
                block.bend_matrix[i, k, self.joints] = np.einsum("vl,bvl->bv", both, material.stiffness) * lengths
            block.shear_matrix[i, i, self.elements] = material.stretch if i == 2 else material.shear
        block.position_collection[:, self.nodes] = np.moveaxis(motion.x, 2, 0)
        block.velocity_collection[:, self.nodes] = np.moveaxis(motion.v, 2, 0)
        block.director_collection[:, :, self.elements] = np.moveaxis(motion.Q, (2, 3), (0, 1))
        block.omega_collection[:, self.elements] = np.moveaxis(motion.w, 2, 0)

    def motion(self) -> Motion:
        """Positions and speeds now."""
        block = self.block
        return Motion(
            np.moveaxis(block.position_collection[:, self.nodes], 0, 2).copy(),
            np.moveaxis(block.director_collection[:, :, self.elements], (0, 1), (2, 3)).copy(),
            np.moveaxis(block.velocity_collection[:, self.nodes], 0, 2).copy(),
            np.moveaxis(block.omega_collection[:, self.elements], 0, 2).copy(),
        )

    def advance(self, path: Path, dt: float, steps: int) -> Array:
        """Step `steps` times in dt [s] along the gripper's path; -> mean force and moment about the origin on it (B, 6)."""
        self.path, self.step, self.wrench[:] = path, dt / steps, 0.0
        time = 0.0
        for _ in range(steps):
            time = float(self.stepper.step(self, time, self.step))
        return self.wrench / steps

    # --- stages of PyElastica's stepper ---------------------------------------------------------------------------------

    def final_systems(self) -> list[Any]:
        """The block."""
        return [self.block]

    def constrain_values(self, time: float) -> None:
        """Place what the gripper and the clamp hold."""
        block, clamp = self.block, self.clamp or _NOWHERE
        hold(
            block.position_collection, block.director_collection, self.nodes, self.elements, self.half, self.length,
            float(time), *self.path, *clamp,
        )  # fmt: skip

    def synchronize(self, time: float) -> None:
        """Add gravity and contact, and the pull on the gripper."""
        block = self.block
        block.external_forces[2, self.nodes] = -block.mass[self.nodes] * self.material.gravity[:, None]
        block.external_forces[2, self.nodes[:, [0, 1, -2, -1]]] = 0.0  # the gripper's link belongs to the arm
        if self.peg is not None:
            touch(
                block.position_collection, block.external_forces, self.nodes, self.half, self.peg.place, self.peg.axis,
                self.peg.numbers,
            )  # fmt: skip
        pull(
            block.position_collection, block.director_collection, block.internal_forces, block.external_forces,
            block.internal_torques, self.nodes, self.elements, self.wrench,
        )  # fmt: skip

    def constrain_rates(self, time: float) -> None:
        """Damp, then move what the gripper and the clamp hold."""
        block, h = self.block, self.step
        move(
            block.position_collection, block.director_collection, block.velocity_collection, block.omega_collection,
            self.nodes, self.elements, self.half, self.clamp is not None, float(time), *self.path,
        )  # fmt: skip
        damp(
            block.position_collection, block.director_collection, block.velocity_collection, block.omega_collection,
            self.nodes, self.elements, self.inertia, self.lifted, self.material.damping, 1.0 - exp(-STRETCH_DECAY * h), h,
            self.wrench,
        )  # fmt: skip

    def apply_callbacks(self, time: float, step: int) -> None:
        """Nothing to record."""


_NOWHERE = (np.zeros((0, 3)), np.zeros((0, 3, 3)))


def _left_jacobian(a: float) -> Array:
    """Left Jacobian of the rotation vector (a, 0, 0): its change -> the rotation that comes after, (3, 3)."""
    s, c = sin(a) / a, (1.0 - cos(a)) / a
    return np.array([[1.0, 0.0, 0.0], [0.0, s, -c], [0.0, c, s]])


def _regular(links: int, length: float, radius: float) -> Any:
    """A rod of PyElastica along the regular polygon; its numbers are replaced by `load`, but for lengths and curvature."""
    count, way = links + 1, np.array([0.0, 1.0, 0.0])
    x, Q = np.zeros((3, count + 1)), np.zeros((3, 3, count))
    for e in range(count):
        angle = 2 * pi * e / links
        way = np.array([0.0, cos(angle), sin(angle)])
        Q[0, 0, e], Q[1, :, e], Q[2, :, e] = 1.0, np.cross(way, [1.0, 0.0, 0.0]), way
        x[:, e + 1] = x[:, e] + (0.5 if e in (0, links) else 1.0) * length * way
    return ea.CosseratRod.straight_rod(
        count, x[:, 0], way, np.array([1.0, 0.0, 0.0]), links * length, radius, 1000.0, youngs_modulus=1e6, position=x,
        directors=Q,
    )  # fmt: skip


# --- kernels ------------------------------------------------------------------------------------------------------------


@inner
def turned(rate, time, turn):
    """exp(time rate) turn, (3, 3)."""
    size = np.sqrt(rate[0] ** 2 + rate[1] ** 2 + rate[2] ** 2)
    angle = size * time
    a = np.sin(angle) / size if size > 1e-12 else time
    b = (1.0 - np.cos(angle)) / size**2 if size > 1e-12 else 0.5 * time * time
    found = np.empty((3, 3))
    for c in range(3):
        u0, u1, u2 = turn[0, c], turn[1, c], turn[2, c]
        p0, p1, p2 = rate[1] * u2 - rate[2] * u1, rate[2] * u0 - rate[0] * u2, rate[0] * u1 - rate[1] * u0
        found[0, c] = u0 + a * p0 + b * (rate[1] * p2 - rate[2] * p1)
        found[1, c] = u1 + a * p1 + b * (rate[2] * p0 - rate[0] * p2)
        found[2, c] = u2 + a * p2 + b * (rate[0] * p1 - rate[1] * p0)
    return found


@kernel
def hold(x, Q, nodes, elements, half, length, time, place, turn, speed, rate, clamp_place, clamp_turn):
    """Write positions and directors of what gripper and clamp hold."""
    last = 2 * half + 1
    for b in range(len(nodes)):
        R = turned(rate[b], time, turn[b])
        for i in range(3):
            p = place[b, i] + time * speed[b, i]
            x[i, nodes[b, 0]], x[i, nodes[b, last]] = p, p
            x[i, nodes[b, 1]], x[i, nodes[b, last - 1]] = p + 0.5 * length * R[i, 1], p - 0.5 * length * R[i, 1]
            for e in (elements[b, 0], elements[b, last - 1]):  # turned by -90 degrees about x: z is the gripper's y
                Q[0, i, e], Q[1, i, e], Q[2, i, e] = R[i, 0], -R[i, 2], R[i, 1]
            if len(clamp_place) > 0:
                z = clamp_turn[b, i, 2]
                x[i, nodes[b, half]] = clamp_place[b, i] - 0.5 * length * z
                x[i, nodes[b, half + 1]] = clamp_place[b, i] + 0.5 * length * z
                for k in range(3):
                    Q[k, i, elements[b, half]] = clamp_turn[b, i, k]


@kernel
def move(x, Q, v, w, nodes, elements, half, clamped, time, place, turn, speed, rate):
    """Write speeds and rotation rates of what gripper and clamp hold."""
    last = 2 * half + 1
    for b in range(len(nodes)):
        u = rate[b]
        for n in (nodes[b, 0], nodes[b, 1], nodes[b, last - 1], nodes[b, last]):
            d0 = x[0, n] - place[b, 0] - time * speed[b, 0]
            d1 = x[1, n] - place[b, 1] - time * speed[b, 1]
            d2 = x[2, n] - place[b, 2] - time * speed[b, 2]
            v[0, n] = speed[b, 0] + u[1] * d2 - u[2] * d1
            v[1, n] = speed[b, 1] + u[2] * d0 - u[0] * d2
            v[2, n] = speed[b, 2] + u[0] * d1 - u[1] * d0
        for e in (elements[b, 0], elements[b, last - 1]):
            for k in range(3):
                w[k, e] = Q[k, 0, e] * u[0] + Q[k, 1, e] * u[1] + Q[k, 2, e] * u[2]
        if clamped:
            for k in range(3):
                v[k, nodes[b, half]], v[k, nodes[b, half + 1]], w[k, elements[b, half]] = 0.0, 0.0, 0.0


@kernel
def pull(x, Q, inside, outside, torque, nodes, elements, wrench):
    """wrench (B, 6) += force, and moment about the origin, of the rods on their grippers."""
    last = nodes.shape[1] - 1
    for b in range(len(nodes)):
        for n in (nodes[b, 0], nodes[b, 1], nodes[b, last - 1], nodes[b, last]):
            f0, f1, f2 = inside[0, n] + outside[0, n], inside[1, n] + outside[1, n], inside[2, n] + outside[2, n]
            wrench[b, 0] += f0
            wrench[b, 1] += f1
            wrench[b, 2] += f2
            wrench[b, 3] += x[1, n] * f2 - x[2, n] * f1
            wrench[b, 4] += x[2, n] * f0 - x[0, n] * f2
            wrench[b, 5] += x[0, n] * f1 - x[1, n] * f0
        for e in (elements[b, 0], elements[b, last - 1]):
            for i in range(3):
                wrench[b, 3 + i] += Q[0, i, e] * torque[0, e] + Q[1, i, e] * torque[1, e] + Q[2, i, e] * torque[2, e]


@kernel
def damp(x, Q, v, w, nodes, elements, inertia, lifted, damping, decay, h, wrench):
    """Damp bending and twist of joints by a backward Euler step, and stretching of elements by a decay of its speed.

    Inertia (B, M) of elements and inverse masses `lifted` (B, N) of nodes; inertia of elements that are held is infinite, and
    `lifted` of nodes that are is 0. Torques on the gripper are added to the wrench (B, 6).
    """
    count = damping.shape[1]
    u, upper = np.empty((count + 1, 3)), np.empty(count + 1)
    for b in range(len(nodes)):
        for j in range(count + 1):
            e = elements[b, j]
            for i in range(3):  # in the world; then Thomas' algorithm
                u[j, i] = Q[0, i, e] * w[0, e] + Q[1, i, e] * w[1, e] + Q[2, i, e] * w[2, e]
            before = h / inertia[b, j] * damping[b, j - 1] if j > 0 else 0.0
            after = h / inertia[b, j] * damping[b, j] if j < count else 0.0
            pivot = 1.0 + before + after - (before * upper[j - 1] if j > 0 else 0.0)
            upper[j] = after / pivot
            for i in range(3):
                u[j, i] = (u[j, i] + (before * u[j - 1, i] if j > 0 else 0.0)) / pivot
        for j in range(count - 1, -1, -1):
            e = elements[b, j]
            for i in range(3):
                u[j, i] += upper[j] * u[j + 1, i]
            for i in range(3):
                w[i, e] = Q[i, 0, e] * u[j, 0] + Q[i, 1, e] * u[j, 1] + Q[i, 2, e] * u[j, 2]
        for i in range(3):
            wrench[b, 3 + i] += damping[b, 0] * (u[1, i] - u[0, i]) + damping[b, count - 1] * (u[count - 1, i] - u[count, i])
        for j in range(1, count):
            n, m = nodes[b, j], nodes[b, j + 1]
            t0, t1, t2 = x[0, m] - x[0, n], x[1, m] - x[1, n], x[2, m] - x[2, n]
            speed = (v[0, m] - v[0, n]) * t0 + (v[1, m] - v[1, n]) * t1 + (v[2, m] - v[2, n]) * t2
            light = lifted[b, j] + lifted[b, j + 1]
            p = decay * speed / (t0 * t0 + t1 * t1 + t2 * t2) / light if light > 0.0 else 0.0
            for i, t in ((0, t0), (1, t1), (2, t2)):
                v[i, m] -= lifted[b, j + 1] * p * t
                v[i, n] += lifted[b, j] * p * t


@kernel
def touch(x, force, nodes, half, place, axis, numbers):
    """force += contact of all balls with the pegs, shared between an element's nodes; see `mechanics.contact`."""
    length, radius, stiffness, softness, ball = numbers
    d, r = np.empty(3), np.empty(3)
    for b in range(len(nodes)):
        for e in range(2 * half + 1):
            n, m = nodes[b, e], nodes[b, e + 1]
            count = BALLS // 2 if e in (0, 2 * half) else BALLS
            for k in range(count):
                share, along = (k + 0.5) / count, 0.0
                for i in range(3):
                    d[i] = (1.0 - share) * x[i, n] + share * x[i, m] - place[b, i]
                    along += d[i] * axis[b, i]
                along = min(max(along, 0.0), length)
                distance = 0.0
                for i in range(3):
                    r[i] = d[i] - along * axis[b, i]
                    distance += r[i] * r[i]
                distance = max(np.sqrt(distance), 1e-9)
                depth = ball + radius - distance
                if depth > 0.0:
                    pushed = depth * depth / (2.0 * softness) if depth < softness else depth - 0.5 * softness
                    for i in range(3):
                        f = stiffness * pushed * r[i] / distance
                        force[i, n] += (1.0 - share) * f
                        force[i, m] += share * f
