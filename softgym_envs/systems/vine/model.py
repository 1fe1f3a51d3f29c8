"""Structure of a vine robot (lengths, links, muscles, obstacles), and the layout of its state.

The body is a chain of straight links. A robot of length L has n = floor(L / l) links, l = max_length / N: n - 1 of length l,
and the tip link with the rest, l <= L - (n - 1) l < 2 l. Only the tip link lengthens (eversion); when it is 2 l long it becomes
two links in line, so that positions and velocities are continuous. Links beyond n copy the angle and rate of the tip link.

State, 2 N + 2 + 2 K + 3 M numbers, and 2 N of a viscoelastic body, and 2 per marker (`VineModel.layout`):

    theta0 ... N-1 [rad]      heading of every link in the world
    omega0 ... N-1 [rad/s]    their rates
    length [m], growth [m/s]  L and dL/dt
    left0, right0, ...  [Pa]  pressure of the left and right muscle of every section; the left one bends to +theta
    obstacle0.x, .y, .angle   [m, m, rad] pose of every obstacle
    fast0, slow0, ...   [rad] bend of every joint to which the fast and the slow dashpot have relaxed: their memory
    marker0.along, .across    [m] place of every marker, ahead of the tip and to its left, in the tip link's frame

Control: growth speed [m/s], commanded pressures of the muscles [Pa], and the load at the tip [kg] of a robot that carries one.
The state is a vector space.
Legend: B batch, N links, K sections, M obstacles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.errors import StructureError
from ...core.layout import Field, StateLayout
from ...core.simulator import Array
from .obstacles import Obstacle, segment_distance, to_local

IntArray = NDArray[np.int64]

MAX_VINE_LINKS = 2000


class Split(NamedTuple):
    """Views of the parts of a state (..., nx)."""

    theta: Array
    """(..., N) [rad]"""
    omega: Array
    """(..., N) [rad/s]"""
    length: Array
    """(...) [m]"""
    growth: Array
    """(...) [m/s]"""
    pressure: Array
    """(..., 2 K) [Pa]"""
    obstacles: Array
    """(..., M, 3) [m, m, rad]"""
    memory: Array
    """(..., N, 2) [rad], or (..., 0, 2)"""
    markers: Array
    """(..., number of markers, 2) [m]"""


class ContactForces(NamedTuple):
    """Contacts that push, (B, C) each; `active` says which entries are contacts."""

    active: NDArray[np.bool_]
    link: IntArray
    obstacle: IntArray
    position: Array
    """(B, C, 2) of the skin [m]"""
    force: Array
    """(B, C, 2) on the robot [N]"""
    normal: Array
    """[N]"""
    tangent: Array
    """[N], to the left of the normal"""
    gap: Array
    """[m]"""


def contact_table(table: Array) -> ContactForces:
    """Columns link, obstacle, x, y, force x, force y, normal, tangent, gap, (B, C, 9); without normal force, no contact."""
    link, obstacle = (table[:, :, k].astype(np.int64) for k in (0, 1))
    parts = (table[:, :, 2:4], table[:, :, 4:6], table[:, :, 6], table[:, :, 7], table[:, :, 8])
    return ContactForces(table[:, :, 6] > 0, link, obstacle, *parts)


@dataclass(frozen=True, eq=False)
class VineModel:
    """See the module docstring.

    >>> VineModel(num_links=10, max_length=1.0).layout.nx
    26

    Raises:
        StructureError: A size that is not positive or not finite, or links shorter than the tube is thin.
    """

    num_links: int = 40
    """Number of links N of a robot of full length."""
    max_length: float = 1.2
    """[m]"""
    radius: float = 0.012
    """Radius of the tube [m]."""
    initial_length: float = 0.3
    """[m], at least max_length / N."""
    num_sections: int = 2
    """K sections of equal length along the full robot, each with a pair of muscles."""
    max_growth: float = 0.1
    """Largest growth speed command [m/s]."""
    max_steering: float = 2e4
    """Largest pressure of a muscle [Pa]."""
    base: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Pose (x, y, angle) [m, m, rad] at which the robot leaves its reel; it is clamped there."""
    obstacles: tuple[Obstacle, ...] = ()
    viscoelastic: bool = False
    """Whether the body remembers how it was bent: parameters relaxation and creep."""
    max_load: float = 0.0
    """Largest load that may hang at the tip [kg]; 0: there is no such control."""
    num_markers: int = 0
    """Markers on the tip that a camera sees."""

    def __post_init__(self) -> None:
        limits = (("num_links", 1, MAX_VINE_LINKS), ("num_sections", 0, self.num_links), ("num_markers", 0, MAX_VINE_LINKS))
        for name, low, high in limits:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
                raise StructureError(f"{name} is {value!r}, expected a whole number in [{low}, {high}]")
        for name in ("max_length", "radius", "initial_length", "max_growth", "max_steering"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float, np.number)) and np.isfinite(value) and value > 0):
                raise StructureError(f"{name} is {value!r}, expected a number > 0")
        if not (isinstance(self.max_load, (int, float, np.number)) and np.isfinite(self.max_load) and self.max_load >= 0):
            raise StructureError(f"max_load is {self.max_load!r}, expected a number >= 0")
        if not isinstance(self.viscoelastic, bool):
            raise StructureError(f"viscoelastic is {self.viscoelastic!r}, expected True or False")
        if len(self.base) != 3 or not np.isfinite(self.base).all():
            raise StructureError(f"base is {self.base!r}, expected finite (x, y, angle) [m, m, rad]")
        if not self.link_length <= self.initial_length <= self.max_length:
            given = f"initial_length is {self.initial_length} m"
            raise StructureError(f"{given}, expected one link to max_length: [{self.link_length:g}, {self.max_length:g}] m")
        for obstacle in self.obstacles:
            if not isinstance(obstacle, Obstacle):
                raise StructureError(f"obstacles holds {obstacle!r}, expected Obstacle; see systems.vine.obstacles")

    # --- sizes and names -------------------------------------------------------------------------------------------

    @property
    def link_length(self) -> float:
        """l [m]."""
        return self.max_length / self.num_links

    @cached_property
    def layout(self) -> StateLayout:
        """Layout of a state; see the module docstring."""
        return StateLayout(
            Field("", self.num_links, ("theta", "rad")),
            Field("", self.num_links, ("omega", "rad/s")),
            Field("", None, ("length", "m"), ("growth", "m/s")),
            Field("", self.num_sections, ("left right", "Pa")),
            Field("obstacle", len(self.obstacles), ("x y", "m"), ("angle", "rad")),
            Field("", self.num_links if self.viscoelastic else 0, ("fast slow", "rad")),
            Field("marker", self.num_markers, ("along across", "m")),
        )

    @property
    def nu(self) -> int:
        """Number of controls."""
        return 1 + 2 * self.num_sections + self.has_load

    @property
    def has_load(self) -> bool:
        """Whether the last control is a load."""
        return self.max_load > 0

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        high = [self.max_growth, *[self.max_steering] * (2 * self.num_sections), *[self.max_load] * self.has_load]
        return np.zeros(self.nu), np.array(high)

    @cached_property
    def state_bounds(self) -> tuple[Array, Array]:
        """Ranges of length and pressures, each (nx,); other entries have none."""
        low, high = np.full((2, self.layout.nx), [[-np.inf], [np.inf]])
        first, last = self.split(low), self.split(high)
        first.length[...], last.length[...] = self.link_length, self.max_length
        first.pressure[...], last.pressure[...] = 0.0, self.max_steering
        return low, high

    @cached_property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        muscles = (f"{side}{k}" for k in range(self.num_sections) for side in ("left", "right"))
        return ("growth", *muscles, *("load",) * self.has_load)

    @property
    def control_units(self) -> tuple[str, ...]:
        """One unit per control."""
        return ("m/s", *["Pa"] * (2 * self.num_sections), *("kg",) * self.has_load)

    @cached_property
    def section_of_joint(self) -> IntArray:
        """(N,): the section whose muscles bend the joint at the near end of link i."""
        return np.arange(self.num_links) * self.num_sections // self.num_links

    # --- states ----------------------------------------------------------------------------------------------------

    @cached_property
    def poses(self) -> Array:
        """First poses of the obstacles, (M, 3) [m, m, rad]."""
        return np.array([(o.x, o.y, o.angle) for o in self.obstacles], dtype=np.float64).reshape(-1, 3)

    def split(self, state: Array) -> Split:
        """Views of the parts of a state (..., nx)."""
        theta, omega, lone, pressure, poses, memory, markers = [state[..., field] for field in self.layout.slices]
        obstacles = poses.reshape(*state.shape[:-1], len(self.obstacles), 3)
        memory, markers = (part.reshape(*state.shape[:-1], part.shape[-1] // 2, 2) for part in (memory, markers))
        return Split(theta, omega, lone[..., 0], lone[..., 1], pressure, obstacles, memory, markers)

    def rest_state(self) -> Array:
        """Straight, at rest, without pressure in the muscles, (nx,)."""
        return self.straight_state()

    def straight_state(self, length: float | None = None, curvature: float = 0.0) -> Array:
        """At rest, obstacles at their first places, (nx,); headings follow an arc of `curvature` [1/m]."""
        state = np.zeros(self.layout.nx)
        parts = self.split(state)
        length = self.initial_length if length is None else length
        if not self.link_length <= length <= self.max_length:
            raise StructureError(f"length is {length!r} m, expected a number in [{self.link_length:g}, {self.max_length:g}]")
        parts.length[...] = length
        middles = (np.arange(self.num_links) + 0.5) * self.link_length
        parts.theta[...] = self.base[2] + curvature * middles
        parts.obstacles[...] = self.poses
        return self.tidy(state)

    def tidy(self, state: Array) -> Array:
        """A copy of the state with the links beyond the tip as copies of the tip link."""
        state = state.copy()
        parts = self.split(state)
        tip = self.num_active(parts.length)[..., None] - 1
        for values in (parts.theta, parts.omega):
            values[...] = np.where(np.arange(self.num_links) > tip, np.take_along_axis(values, tip, axis=-1), values)
        return state

    def num_active(self, length: Array) -> IntArray:
        """n = floor(L / l), in 1 ... N."""
        count = np.floor(np.asarray(length) / self.link_length + 1e-9)
        return np.clip(count, 1, self.num_links).astype(np.int64)

    def link_lengths(self, length: Array) -> Array:
        """(...) -> (..., N) [m]; zero beyond the tip."""
        length = np.asarray(length)
        tip = self.num_active(length) - 1
        index = np.arange(self.num_links)
        rest = length - tip * self.link_length
        full = np.where(index < tip[..., None], self.link_length, 0.0)
        return np.asarray(np.where(index == tip[..., None], rest[..., None], full))

    def points(self, state: Array) -> Array:
        """Base, joints and tip, (..., nx) -> (..., N+1, 2) [m]; beyond the tip all are the tip."""
        parts = self.split(state)
        step = self.link_lengths(parts.length)[..., None] * np.stack([np.cos(parts.theta), np.sin(parts.theta)], axis=-1)
        start = np.broadcast_to(np.array(self.base[:2]), (*step.shape[:-2], 1, 2))
        return np.concatenate([start, start + np.cumsum(step, axis=-2)], axis=-2)

    def tip(self, state: Array) -> Array:
        """Position and heading of the tip, (..., nx) -> (..., 3) [m, m, rad]."""
        parts = self.split(state)
        heading = np.take_along_axis(parts.theta, self.num_active(parts.length)[..., None] - 1, axis=-1)
        return np.concatenate([self.points(state)[..., -1, :], heading], axis=-1)

    def marker_places(self, state: Array) -> Array:
        """Positions of the markers, (..., nx) -> (..., number of markers, 2) [m]."""
        tip, fixed = self.tip(state), self.split(state).markers
        along = np.stack([np.cos(tip[..., 2]), np.sin(tip[..., 2])], axis=-1)[..., None, :]
        left = np.stack([-along[..., 1], along[..., 0]], axis=-1)
        return np.asarray(tip[..., None, :2] + fixed[..., :1] * along + fixed[..., 1:] * left)

    def points_along(self, state: Array, stations: Array) -> Array:
        """Points of the body's axis at `stations` (k,) or (..., k) from the base [m], (..., nx) -> (..., k, 2) [m].

        Stations beyond the tip give the tip.
        """
        parts = self.split(state)
        distance = np.minimum(np.asarray(stations, dtype=np.float64), parts.length[..., None])
        last = self.num_active(parts.length)[..., None] - 1
        link = np.clip(np.floor(distance / self.link_length).astype(np.int64), 0, last)
        theta = parts.theta[..., : int(last.max(initial=0)) + 1]  # of links that are there: growing robots have few
        along = np.stack([np.cos(theta), np.sin(theta)])
        joints = np.zeros_like(along)
        np.cumsum(self.link_length * along[..., :-1], axis=-1, out=joints[..., 1:])
        start, direction = (np.take_along_axis(each, link[None], axis=-1) for each in (joints, along))
        base = np.array(self.base[:2]).reshape(2, *[1] * link.ndim)
        return np.moveaxis(base + start + (distance - link * self.link_length) * direction, 0, -1)

    def clearance(self, state: Array) -> Array:
        """Smallest distance between the tube and an obstacle, (..., nx) -> (...) [m]; negative where they overlap."""
        joints, poses = self.points(state), self.split(state).obstacles
        gap = np.full(state.shape[:-1], np.inf)
        for index, obstacle in enumerate(self.obstacles):
            local = to_local(joints, poses[..., None, index, :])
            apart = segment_distance(obstacle.shape, local[..., :-1, :], local[..., 1:, :])
            gap = np.minimum(gap, apart.min(axis=-1) - self.radius)
        return gap


def with_obstacles(model: VineModel, obstacles: tuple[Obstacle, ...]) -> VineModel:
    """A copy of the robot among other obstacles."""
    return replace(model, obstacles=obstacles)
