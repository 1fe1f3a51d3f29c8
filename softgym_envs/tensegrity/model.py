"""Structure of a tensegrity robot: rods, cables, which of them are actuated, the ground; and the layout of its state.

State, one block of 13 numbers per rod, then one motor position per actuated cable:

    rod r:   x y z [m] of the centre | qw qx qy qz (body z axis points from node 2r to node 2r+1)
             | vx vy vz [m/s] in the world frame | wx wy wz [rad/s] in the rod's frame
    motors:  w [-], one per actuated cable

Tangent: per rod 3 position, 3 rotation vector (rod frame), 3 + 3 velocities; then the motors. nx = 13 R + nu, n = 12 R + nu.
Legend: B batch, R rods, N = 2R nodes, C cables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..core import lie
from ..core.errors import StructureError
from .terrain import Terrain

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TensegrityModel:
    """Rods and cables between nodes; rod r joins nodes 2r and 2r+1.

    Use `superball()`, `prism()` or `structure_file.load_structure(path)`.

    Raises:
        StructureError: Dangling, doubled or zero-length cables or rods, wrong shapes, unknown actuated cables.
    """

    name: str
    nodes: Array
    """(N, 3) [m]: where the ends of the rods are in the rest pose."""
    cables: tuple[tuple[int, int], ...]
    """C pairs of nodes."""
    actuated: tuple[int, ...]
    """Cables that have a motor, in the order of the controls."""
    rod_radius: float = 0.031
    """[m]"""
    cap_radius: float = 0.05
    """Radius of the spheres at the rods' ends [m]."""
    stiffness_ratio: tuple[float, ...] = ()
    """Per cable: stiffness and damping over the constants cable_stiffness and cable_damping; empty for all 1."""
    rest_ratio: tuple[float, ...] = ()
    """Per cable: rest length over the constant rest_length; empty for all 1."""
    control_limit: float = 100.0
    """Largest motor command [-]."""
    terrain: Terrain = field(default_factory=Terrain.flat)

    def __post_init__(self) -> None:
        nodes = np.asarray(self.nodes, dtype=np.float64)
        object.__setattr__(self, "nodes", nodes)
        if nodes.ndim != 2 or nodes.shape[1] != 3 or len(nodes) < 2 or len(nodes) % 2 or not np.isfinite(nodes).all():
            raise StructureError(f"nodes has shape {nodes.shape}, expected (2 x number of rods, 3), all finite")
        if not (0 < self.rod_radius <= self.cap_radius):
            raise StructureError(f"rod_radius {self.rod_radius} m and cap_radius {self.cap_radius} m must be 0 < rod <= cap")
        short = np.nonzero(self.rod_lengths < 2 * self.cap_radius)[0]
        if len(short):
            length = self.rod_lengths[short[0]]
            raise StructureError(f"rod {short[0]} is {length:.3g} m long, expected > {2 * self.cap_radius} m")
        self._check_cables()

    def _check_cables(self) -> None:
        seen = set()
        for index, (a, b) in enumerate(self.cables):
            if not (0 <= a < len(self.nodes) and 0 <= b < len(self.nodes)):
                raise StructureError(f"cable {index} joins nodes {a} and {b}; nodes are 0 ... {len(self.nodes) - 1}")
            if a // 2 == b // 2:
                raise StructureError(f"cable {index} joins nodes {a} and {b} of one rod")
            if frozenset((a, b)) in seen:
                raise StructureError(f"cable {index} doubles the cable between nodes {a} and {b}")
            if np.linalg.norm(self.nodes[a] - self.nodes[b]) < 1e-6:
                raise StructureError(f"cable {index} between nodes {a} and {b} has no length")
            seen.add(frozenset((a, b)))
        if not self.control_limit > 0:
            raise StructureError(f"control_limit is {self.control_limit}, expected > 0")
        for index in self.actuated:
            if not isinstance(index, (int, np.integer)):
                raise StructureError(f"actuated holds {index!r}, expected numbers of cables, 0 ... {len(self.cables) - 1}")
            if not 0 <= index < len(self.cables):
                raise StructureError(f"actuated cable {index} does not exist; cables are 0 ... {len(self.cables) - 1}")
        if len(set(self.actuated)) != len(self.actuated):
            raise StructureError(f"actuated cables {self.actuated} name a cable twice")
        for name in ("stiffness_ratio", "rest_ratio"):
            values = getattr(self, name)
            if values and (len(values) != len(self.cables) or min(values) <= 0):
                raise StructureError(f"{name} has {len(values)} entries, expected {len(self.cables)} positive ones")

    # --- sizes and names -------------------------------------------------------------------------------------------

    @property
    def num_rods(self) -> int:
        """R."""
        return len(self.nodes) // 2

    @property
    def num_cables(self) -> int:
        """C."""
        return len(self.cables)

    @property
    def nu(self) -> int:
        """Number of motors."""
        return len(self.actuated)

    @property
    def nx(self) -> int:
        """Length of a state."""
        return 13 * self.num_rods + self.nu

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return 12 * self.num_rods + self.nu

    @cached_property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        entries = ("x", "y", "z", "qw", "qx", "qy", "qz", "vx", "vy", "vz", "wx", "wy", "wz")
        return tuple(f"rod{r}.{e}" for r in range(self.num_rods) for e in entries) + tuple(f"motor{c}" for c in self.actuated)

    @cached_property
    def control_names(self) -> tuple[str, ...]:
        """One name per control: the cable it drives."""
        return tuple(f"cable{c}" for c in self.actuated)

    @cached_property
    def rod_lengths(self) -> Array:
        """Of every rod, (R,) [m]."""
        return np.asarray(np.linalg.norm(self.nodes[1::2] - self.nodes[::2], axis=1))

    # --- states ----------------------------------------------------------------------------------------------------

    def state_from_nodes(self, nodes: Array) -> Array:
        """State at rest, motors at zero, with the rods' ends at `nodes` (N, 3) [m]; -> (nx,)."""
        state = np.zeros(self.nx)
        for r, (a, b) in enumerate(zip(nodes[::2], nodes[1::2], strict=True)):
            state[13 * r : 13 * r + 3] = 0.5 * (a + b)
            state[13 * r + 3 : 13 * r + 7] = lie.from_z_axis(b - a)
        return state

    def split(self, state: Array) -> tuple[Array, Array, Array, Array, Array]:
        """(B, nx) -> positions (B, R, 3), quaternions (B, R, 4), velocities and angular rates (B, R, 3), motors (B, nu)."""
        rods = state[..., : 13 * self.num_rods].reshape(*state.shape[:-1], self.num_rods, 13)
        return rods[..., :3], rods[..., 3:7], rods[..., 7:10], rods[..., 10:13], state[..., 13 * self.num_rods :]

    def node_positions(self, state: Array) -> Array:
        """Ends of the rods in the world frame, (B, nx) -> (B, N, 3) [m]."""
        position, quaternion, *_ = self.split(state)
        half = 0.5 * self.rod_lengths[:, None] * z_axis(quaternion)
        return np.stack([position - half, position + half], axis=-2).reshape(*state.shape[:-1], 2 * self.num_rods, 3)

    def center_of_mass(self, state: Array) -> Array:
        """(B, nx) -> (B, 3) [m]; all rods weigh the same."""
        return np.asarray(self.split(state)[0].mean(axis=-2))

    def com_velocity(self, state: Array) -> Array:
        """(B, nx) -> (B, 3) [m/s]."""
        return np.asarray(self.split(state)[2].mean(axis=-2))

    def cable_lengths(self, state: Array) -> Array:
        """(B, nx) -> (B, C) [m]."""
        ends = self.node_positions(state)[..., np.array(self.cables), :]
        return np.asarray(np.linalg.norm(ends[..., 1, :] - ends[..., 0, :], axis=-1))

    def move(self, state: Array, *, rotation: Array | None = None, translation: Array | None = None) -> Array:
        """Turn a state (nx,) about its centre of mass by a world-frame rotation vector [rad], then shift it [m]."""
        moved = state.copy()
        center = self.center_of_mass(state)
        turn = lie.exp(np.zeros(3) if rotation is None else np.asarray(rotation, dtype=np.float64))
        for r in range(self.num_rods):
            rod = moved[13 * r : 13 * r + 13]
            rod[:3] = center + lie.rotate(turn, rod[:3] - center) + (0.0 if translation is None else translation)
            rod[3:7] = lie.multiply(turn, rod[3:7])
            rod[7:10] = lie.rotate(turn, rod[7:10])
        return moved

    def clearance(self, state: Array, scale: float = 1.0) -> Array:
        """Height of the lowest cap over the ground, (B, nx) -> (B,) [m] (vertical distance; exact on flat ground)."""
        nodes = self.node_positions(state)
        gap = (nodes[..., 2] - self.terrain.height(nodes[..., 0], nodes[..., 1], scale)) - self.cap_radius
        return np.asarray(gap.min(axis=-1))

    def place_on_ground(self, state: Array, *, gap: float = 0.0, scale: float = 1.0) -> Array:
        """Shift a state (nx,) vertically so that its lowest cap is `gap` [m] over the ground."""
        return self.move(state, translation=np.array([0.0, 0.0, gap - float(self.clearance(state, scale))]))

    def retract(self, state: Array, dx: Array) -> Array:
        """See `Simulator.retract`."""
        rods = state[..., : 13 * self.num_rods].reshape(*state.shape[:-1], self.num_rods, 13)
        drods = dx[..., : 12 * self.num_rods].reshape(*dx.shape[:-1], self.num_rods, 12)
        moved = np.concatenate(
            [rods[..., :3] + drods[..., :3], lie.retract(rods[..., 3:7], drods[..., 3:6]), rods[..., 7:] + drods[..., 6:]],
            axis=-1,
        )
        motors = state[..., 13 * self.num_rods :] + dx[..., 12 * self.num_rods :]
        return np.concatenate([moved.reshape(*moved.shape[:-2], 13 * self.num_rods), motors], axis=-1)

    def difference(self, a: Array, b: Array) -> Array:
        """See `Simulator.difference`."""
        ra = a[..., : 13 * self.num_rods].reshape(*a.shape[:-1], self.num_rods, 13)
        rb = b[..., : 13 * self.num_rods].reshape(*b.shape[:-1], self.num_rods, 13)
        rods = np.concatenate(
            [ra[..., :3] - rb[..., :3], lie.difference(ra[..., 3:7], rb[..., 3:7]), ra[..., 7:] - rb[..., 7:]], axis=-1
        )
        motors = a[..., 13 * self.num_rods :] - b[..., 13 * self.num_rods :]
        return np.concatenate([rods.reshape(*rods.shape[:-2], 12 * self.num_rods), motors], axis=-1)

    def retract_jacobian(self, state: Array) -> Array:
        """d retract(state, dx) / d dx at dx = 0, (B, nx) -> (B, nx, n); for a quaternion half of q times the unit vectors."""
        jacobian = np.zeros((len(state), self.nx, self.n))
        for r, (i, j) in enumerate(self._blocks()):
            jacobian[:, i : i + 3, j : j + 3] = np.eye(3)
            jacobian[:, i + 3 : i + 7, j + 3 : j + 6] = 0.5 * right_matrix(self.split(state)[1][:, r])
            jacobian[:, i + 7 : i + 13, j + 6 : j + 12] = np.eye(6)
        jacobian[:, 13 * self.num_rods :, 12 * self.num_rods :] = np.eye(self.nu)
        return jacobian

    def difference_jacobian(self, state: Array) -> Array:
        """d difference(a, state) / d a at a = state, (B, nx) -> (B, n, nx)."""
        jacobian = np.zeros((len(state), self.n, self.nx))
        for r, (i, j) in enumerate(self._blocks()):
            jacobian[:, j : j + 3, i : i + 3] = np.eye(3)
            jacobian[:, j + 3 : j + 6, i + 3 : i + 7] = 2.0 * np.swapaxes(right_matrix(self.split(state)[1][:, r]), 1, 2)
            jacobian[:, j + 6 : j + 12, i + 7 : i + 13] = np.eye(6)
        jacobian[:, 12 * self.num_rods :, 13 * self.num_rods :] = np.eye(self.nu)
        return jacobian

    def _blocks(self) -> list[tuple[int, int]]:
        return [(13 * r, 12 * r) for r in range(self.num_rods)]


def right_matrix(q: Array) -> Array:
    """Matrix M (..., 4, 3) with q * (0, v) = M v; its columns are orthonormal."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    rows = [[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def z_axis(q: Array) -> Array:
    """Third column of the rotation matrix of q, (..., 4) -> (..., 3)."""
    w, x, y, z = np.moveaxis(q, -1, 0)
    return np.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)], axis=-1)


def superball(*, rod_length: float = 1.684, terrain: Terrain | None = None) -> TensegrityModel:
    """The 6-bar SUPERball: an expanded octahedron of six rods and 24 cables, all actuated.

    Nodes at (±s, ±h, 0), (0, ±s, ±h), (±h, 0, ±s) with h = L/2, s = L/4; cables are the 24 shortest node pairs of
    non-parallel rods (length sqrt(6) L/4), so each node holds four. It lies with an all-cable triangle down.
    """
    h, s = rod_length / 2, rod_length / 4
    ends = []
    for a in (-s, s):
        ends += [[a, -h, 0.0], [a, h, 0.0]]
    for a in (-s, s):
        ends += [[0.0, a, -h], [0.0, a, h]]
    for a in (-s, s):
        ends += [[-h, 0.0, a], [h, 0.0, a]]
    nodes = np.array(ends)
    target = np.sqrt(6.0) * rod_length / 4
    cables = tuple(
        (a, b)
        for a in range(12)
        for b in range(a + 1, 12)
        if a // 2 != b // 2 and abs(np.linalg.norm(nodes[a] - nodes[b]) - target) < 1e-9 * rod_length
    )
    up = lie.from_z_axis(np.array([1.0, 1.0, 1.0]))
    nodes = lie.rotate(lie.conjugate(up), nodes)  # the face with normal (-1, -1, -1) points down
    nodes[:, 2] += 0.05 - nodes[:, 2].min()
    return TensegrityModel("superball", nodes, cables, tuple(range(24)), terrain=terrain or Terrain.flat())


def prism(
    *,
    rod_length: float = 1.684,
    twist: float = np.deg2rad(150.0),
    actuated: tuple[int, ...] = (6, 7, 8),
    terrain: Terrain | None = None,
) -> TensegrityModel:
    """The 3-bar prism: cables 0-2 bottom triangle, 3-5 top triangle, 6-8 the long "saddle" cables.

    Paper 001 actuates three cables and does not say which: by symmetry the saddles (the default) or one triangle.
    Radius and height are those at which all nine cables have one length (0.6624 m and 1.0948 m for a rod of 1.684 m).
    """
    # Triangle sides have length sqrt(3) rho; a rod turns by `twist` about the axis, a saddle by twist - 120 degrees.
    rod2 = 2 - 2 * np.cos(twist)
    saddle2 = 2 - 2 * np.cos(twist - 2 * np.pi / 3)
    rho = rod_length / np.sqrt(3 + rod2 - saddle2)
    height = np.sqrt(rod_length**2 - rod2 * rho**2)
    angles = 2 * np.pi / 3 * np.arange(3)
    bottom = np.stack([rho * np.cos(angles), rho * np.sin(angles), np.zeros(3)], axis=1)
    top = np.stack([rho * np.cos(angles + twist), rho * np.sin(angles + twist), np.full(3, height)], axis=1)
    nodes = np.stack([bottom, top], axis=1).reshape(6, 3) + np.array([0.0, 0.0, 0.05])
    saddles = ((2, 1), (4, 3), (0, 5))
    cables = ((0, 2), (2, 4), (0, 4), (1, 3), (3, 5), (1, 5), *saddles)
    return TensegrityModel("prism", nodes, cables, actuated, terrain=terrain or Terrain.flat())


def with_terrain(model: TensegrityModel, terrain: Terrain) -> TensegrityModel:
    """The same robot on other ground."""
    return replace(model, terrain=terrain)
