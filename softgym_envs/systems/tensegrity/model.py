"""Structure of a tensegrity robot: rods, cables, which of them are actuated, the ground; and the layout of its state.

State, one block per rod, then one motor position per actuated cable (`rod_field`, `TensegrityModel.layout`):

    rod r:   x y z [m] of the centre | qw qx qy qz (body z axis points from node 2r to node 2r+1)
             | vx vy vz [m/s] in the world frame | wx wy wz [rad/s] in the rod's frame
    motors:  w [-], one per actuated cable

Tangent: per rod 3 position, 3 rotation vector (rod frame), 3 + 3 velocities; then the motors.
Legend: B batch, R rods, N = 2R nodes, C cables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...core import lie
from ...core.errors import StructureError
from ...core.layout import QUATERNION, Field, StateLayout
from ...core.simulator import Array
from .terrain import Terrain


def rod_field(count: int) -> Field:
    """The entries of `count` rods in a state."""
    return Field("rod", count, ("x y z", "m"), ("qw qx qy qz", "-", QUATERNION), ("vx vy vz", "m/s"), ("wx wy wz", "rad/s"))


ROD_WIDTH: int = rod_field(1).width
"""Numbers of one rod in a state, for kernels."""


@dataclass(frozen=True, eq=False)
class TensegrityModel:
    """Rods and cables between nodes; rod r joins nodes 2r and 2r+1.

    Use `superball()`, `prism()` or `structure_file.load_structure(path)`.

    Raises:
        StructureError: Dangling, doubled or zero-length cables or rods, wrong shapes, unknown actuated cables.
    """

    name: str
    nodes: Array
    """Ends of the rods in the rest pose, (N, 3) [m]."""
    cables: tuple[tuple[int, int], ...]
    """C pairs of nodes."""
    actuated: tuple[int, ...]
    """Cables that have a motor, in the order of the controls."""
    rod_radius: float = 0.031
    """[m]"""
    cap_radius: float = 0.05
    """Radius of the spheres at the rods' ends [m]."""
    stiffness_ratio: tuple[float, ...] = ()
    """Per cable: stiffness and damping over the parameters cable_stiffness and cable_damping; empty for all 1."""
    rest_ratio: tuple[float, ...] = ()
    """Per cable: rest length over the parameter rest_length; empty for all 1."""
    control_limit: float = 100.0
    """Largest motor command [-]."""
    terrain: Terrain = field(default_factory=Terrain.flat)
    parameter_values: Mapping[str, float] = field(default_factory=dict)
    """Parameters of the body (`TensegrityBody`) that this robot has instead of the defaults."""
    rods: tuple[float, ...] = field(init=False)
    """Length of every rod, to a micrometre [m]: identified parameters belong to these, wherever the nodes are."""

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
        object.__setattr__(self, "rods", tuple(np.round(self.rod_lengths, 6).tolist()))
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
            if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
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
        """Number of rods, R."""
        return len(self.nodes) // 2

    @property
    def num_cables(self) -> int:
        """Number of cables, C."""
        return len(self.cables)

    @property
    def nu(self) -> int:
        """Number of motors."""
        return len(self.actuated)

    @cached_property
    def layout(self) -> StateLayout:
        """Layout of a state; see the module docstring."""
        return StateLayout(rod_field(self.num_rods), Field("", self.actuated, ("motor", "-")))

    @cached_property
    def control_names(self) -> tuple[str, ...]:
        """One name per control: the cable it drives."""
        return tuple(f"cable{c}" for c in self.actuated)

    @property
    def control_units(self) -> tuple[str, ...]:
        """One unit per control."""
        return ("-",) * self.nu

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest motor command, each (nu,)."""
        return -self.control_limit * np.ones(self.nu), self.control_limit * np.ones(self.nu)

    @cached_property
    def state_bounds(self) -> tuple[Array, Array]:
        """Ranges of the motors, each (nx,); other entries have none."""
        high = np.full(self.layout.nx, np.inf)
        self.split(high)[-1][...] = self.control_limit
        return -high, high

    @cached_property
    def rod_lengths(self) -> Array:
        """Length of every rod, (R,) [m]."""
        return np.asarray(np.linalg.norm(self.nodes[1::2] - self.nodes[::2], axis=1))

    # --- states ----------------------------------------------------------------------------------------------------

    def state_from_nodes(self, nodes: Array) -> Array:
        """State at rest, motors at zero, with the rods' ends at `nodes` (N, 3) [m]; -> (nx,)."""
        state = np.zeros(self.layout.nx)
        position, quaternion, *_ = self.split(state)
        for r, (a, b) in enumerate(zip(nodes[::2], nodes[1::2], strict=True)):
            position[r], quaternion[r] = 0.5 * (a + b), lie.from_z_axis(b - a)
        return state

    def rest_state(self) -> Array:
        """State at rest with the nodes of the structure, (nx,)."""
        return self.state_from_nodes(self.nodes)

    def split(self, state: Array) -> tuple[Array, ...]:
        """(B, nx) -> positions (B, R, 3), quaternions (B, R, 4), velocities and angular rates (B, R, 3), motors (B, nu)."""
        return self.layout.split(state)

    def node_positions(self, state: Array) -> Array:
        """Ends of the rods in the world frame, (B, nx) -> (B, N, 3) [m]."""
        position, quaternion, *_ = self.split(state)
        half = 0.5 * self.rod_lengths[:, None] * lie.z_axis(quaternion)
        return np.stack([position - half, position + half], axis=-2).reshape(*state.shape[:-1], 2 * self.num_rods, 3)

    def node_velocities(self, state: Array) -> Array:
        """Velocities of the rods' ends in the world frame, (B, nx) -> (B, N, 3) [m/s]."""
        _, quaternion, velocity, spin, _ = self.split(state)
        turning = 0.5 * self.rod_lengths[:, None] * lie.rotate(quaternion, np.cross(spin, [0.0, 0.0, 1.0]))
        return np.stack([velocity - turning, velocity + turning], axis=-2).reshape(*state.shape[:-1], 2 * self.num_rods, 3)

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

    def stability_limits(self, parameters: Any, dt: float) -> dict[str, float]:
        """Largest stiffness and damping at which semi-implicit Euler is stable; see `core.simulator.HasStabilityLimit`.

        A motion that cables damp at the rate a per N s/m, and pull back at a per N/m, has in a step eigenvalues with the sum
        2 - a (c dt + k dt^2) and the product 1 - a c dt: none is below -1 if a (2 c dt + k dt^2) <= 4. The largest a is the
        largest eigenvalue of M^-1 J' R J in the rest pose, all cables taut and no rod held; J: rates of the cables' lengths,
        R: their damping over the parameter. Cables that are slack there however their motors turn have no largest values.
        """
        taut = np.array(self.rest_ratio or (1.0,) * self.num_cables) * float(parameters.rest_length)
        taut *= [getattr(parameters, f"rest_factor{cable}", 1.0) for cable in range(self.num_cables)]
        for motor, cable in enumerate(self.actuated):
            taut[cable] -= float(parameters.motor_gain) * getattr(parameters, f"gain_factor{motor}", 1.0) * self.control_limit
        if not self.cables or (taut >= self.cable_lengths(self.rest_state())).all():
            return {}
        ends = np.array(self.cables)
        line = self.nodes[ends[:, 1]] - self.nodes[ends[:, 0]]
        along = line / np.linalg.norm(line, axis=1, keepdims=True)
        middle = 0.5 * (self.nodes[::2] + self.nodes[1::2])
        rates = np.zeros((self.num_cables, self.num_rods, 6))
        for side, sign in ((0, -1.0), (1, 1.0)):
            rod = ends[:, side] // 2
            pull = np.concatenate([along, np.cross(self.nodes[ends[:, side]] - middle[rod], along)], axis=1)
            rates += sign * pull[:, None] * (rod[:, None] == np.arange(self.num_rods))[..., None]
        rates[..., 3:] *= np.sqrt(12 / (3 * self.rod_radius**2 + self.rod_lengths**2))[:, None]
        factors = [getattr(parameters, f"stiffness_factor{cable}", 1.0) for cable in range(self.num_cables)]
        ratio = np.array(self.stiffness_ratio or (1.0,) * self.num_cables) * factors
        scaled = (np.sqrt(ratio)[:, None, None] * rates).reshape(self.num_cables, -1)
        quickest = float(np.linalg.norm(scaled, 2) ** 2) / float(parameters.rod_mass)
        damping = 2.0 / (quickest * dt) - 0.5 * float(parameters.cable_stiffness) * dt
        return {"cable_stiffness": 4.0 / (quickest * dt**2), "cable_damping": max(damping, 0.0)}

    def move(self, state: Array, *, rotation: Array | None = None, translation: Array | None = None) -> Array:
        """Turn a state (nx,) about its centre of mass by a world-frame rotation vector [rad], then shift it [m]."""
        moved = state.copy()
        center = self.center_of_mass(state)
        turn = lie.exp(np.zeros(3) if rotation is None else np.asarray(rotation, dtype=np.float64))
        position, quaternion, velocity, *_ = self.split(moved)
        for r in range(self.num_rods):
            position[r] = center + lie.rotate(turn, position[r] - center) + (0.0 if translation is None else translation)
            quaternion[r] = lie.multiply(turn, quaternion[r])
            velocity[r] = lie.rotate(turn, velocity[r])
        return moved

    def clearance(self, state: Array, scale: float = 1.0) -> Array:
        """Height of the lowest cap over the ground, (B, nx) -> (B,) [m] (vertical distance; exact on flat ground)."""
        nodes = self.node_positions(state)
        gap = (nodes[..., 2] - self.terrain.height(nodes[..., 0], nodes[..., 1], scale)) - self.cap_radius
        return np.asarray(gap.min(axis=-1))

    def place_on_ground(self, state: Array, *, gap: float = 0.0, scale: float = 1.0) -> Array:
        """Shift a state (nx,) vertically so that its lowest cap is `gap` [m] over the ground."""
        return self.move(state, translation=np.array([0.0, 0.0, gap - float(self.clearance(state, scale))]))


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
    """A copy of the robot on other ground."""
    return replace(model, terrain=terrain)
