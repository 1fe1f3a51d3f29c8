"""The robot of [Jitosho2021] (arXiv 2011.01917) II-B: rigid bodies with alternating pin and prismatic joints; and its state.

Link i is body 2i (proximal) and body 2i + 1 (distal), each of length 2 d, with a prismatic joint between them; a pin holds
every link to the one before, the first to the world's origin. The paper's "growth" lengthens all links alike.

State: x, y [m] and theta [rad] of every body (its centre of mass, world frame), then vx, vy [m/s] and omega
[rad/s] of every body. Control: growth speed of the whole robot [m/s]. Legend: L links, nb = 2 L bodies, M obstacles.

The authors' program is in mm, with torques in 1e-6 N m; here everything is SI.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import StructureError
from softgym_envs.core.layout import Field, StateLayout
from softgym_envs.systems.vine.layouts import paper_obstacles
from softgym_envs.systems.vine.obstacles import Obstacle, Polygon, Wall, circle, outline, to_local

from .parameters import PaperParameters

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PaperModel:
    """See the module docstring.

    Raises:
        StructureError: A size that is not positive, bodies that do not fit the initial length, or walls.
    """

    num_links: int = 15
    """L, half the number of bodies."""
    half_length: float = 0.1 / 15
    """d, half the length of a body [m]."""
    diameter: float = 0.024
    """[m]"""
    initial_length: float = 0.4
    """[m]; spread over all links."""
    heading: float = 0.0
    """theta0, heading of the spring at the base [rad]."""
    max_growth: float = 1.0
    """Largest growth speed command [m/s]."""
    obstacles: tuple[Obstacle, ...] = ()
    """Circles and convex polygons, which do not move."""

    def __post_init__(self) -> None:
        if isinstance(self.num_links, bool) or not isinstance(self.num_links, (int, np.integer)) or self.num_links < 1:
            raise StructureError(f"num_links is {self.num_links!r}, expected a whole number >= 1")
        for name in ("half_length", "diameter", "initial_length", "max_growth"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float, np.number)) and np.isfinite(value) and value > 0):
                raise StructureError(f"{name} is {value!r}, expected a number > 0")
        if not self.initial_length > 2 * self.half_length * self.num_links:
            least = 2 * self.half_length * self.num_links
            raise StructureError(
                f"initial_length is {self.initial_length} m, expected > {least:g} m, or the joints are singular"
            )
        if any(isinstance(o.shape, Wall) for o in self.obstacles):
            raise StructureError("the paper's obstacles are circles and polygons; use a rectangle in place of a wall")

    @property
    def num_bodies(self) -> int:
        """Number of bodies, nb."""
        return 2 * self.num_links

    @cached_property
    def layout(self) -> StateLayout:
        """Layout of a state; see the module docstring."""
        return StateLayout(
            Field("body", self.num_bodies, ("x y", "m"), ("theta", "rad")),
            Field("body", self.num_bodies, ("vx vy", "m/s"), ("omega", "rad/s")),
        )

    @property
    def nu(self) -> int:
        """Number of controls: one, the growth speed."""
        return 1

    @property
    def control_names(self) -> tuple[str, ...]:
        """Name of the growth speed."""
        return ("growth",)

    @property
    def control_units(self) -> tuple[str, ...]:
        """Unit of the growth speed."""
        return ("m/s",)

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest growth speed, each (1,)."""
        return np.zeros(1), np.array([self.max_growth])

    @cached_property
    def poses(self) -> Array:
        """Poses of the obstacles, (M, 3) [m, m, rad]."""
        return np.array([(o.x, o.y, o.angle) for o in self.obstacles], dtype=np.float64).reshape(-1, 3)

    @cached_property
    def corners(self) -> Array:
        """Corners of all polygons in the world, in the order of the obstacles, (at least 1, 2) [m]."""
        placed = [
            outline(o.shape, pose) for o, pose in zip(self.obstacles, self.poses, strict=True) if isinstance(o.shape, Polygon)
        ]
        return np.concatenate(placed) if placed else np.zeros((1, 2))

    def split(self, state: Array) -> tuple[Array, Array]:
        """q and v as views (..., nb, 3) of a state (..., nx)."""
        q, v = self.layout.blocks(state)
        return q, v

    def rest_state(self) -> Array:
        """`straight_state`, (nx,)."""
        return self.straight_state()

    def straight_state(self) -> Array:
        """At rest along the heading, all links equally long, (nx,)."""
        link, d = self.initial_length / self.num_links, self.half_length
        along = (np.arange(self.num_links) * link)[:, None] + np.array([d, link - d])
        state = np.zeros(self.layout.nx)
        q, _ = self.split(state)
        q[:, 0], q[:, 1] = along.ravel() * np.cos(self.heading), along.ravel() * np.sin(self.heading)
        q[:, 2] = self.heading
        return state

    def ends(self, state: Array) -> tuple[Array, Array]:
        """Proximal and distal ends of the bodies, (..., nx) -> (..., nb, 2) each [m]."""
        q, _ = self.split(state)
        arm = self.half_length * np.stack([np.cos(q[..., 2]), np.sin(q[..., 2])], axis=-1)
        return q[..., :2] - arm, q[..., :2] + arm

    def contact_points(self, state: Array) -> Array:
        """Distal ends of the links, (..., nx) -> (..., L, 2) [m]; the last one is the tip."""
        return self.ends(state)[1][..., 1::2, :]

    def joint_errors(self, state: Array) -> Array:
        """c(q) of eqs (2) and (3): pins [m], then the two rows of the prismatic joints [m], (..., nx) -> (..., 4 L)."""
        q, _ = self.split(state)
        proximal, distal = self.ends(state)
        before = np.concatenate([np.zeros_like(distal[..., :1, :]), distal[..., 1:-1:2, :]], axis=-2)
        pins = proximal[..., ::2, :] - before
        delta = q[..., 1::2, :2] - q[..., ::2, :2]
        normal = np.stack([-np.sin(q[..., 2]), np.cos(q[..., 2])], axis=-1)
        slides = np.stack([(normal[..., k::2, :] * delta).sum(axis=-1) for k in (0, 1)], axis=-1)
        return np.concatenate([part.reshape(*state.shape[:-1], -1) for part in (pins, slides)], axis=-1)

    def gaps(self, state: Array) -> Array:
        """Phi of every contact point and obstacle, (..., nx) -> (..., L, M) [m]."""
        points = self.contact_points(state)
        columns = [o.shape.distance(to_local(points, pose)) for o, pose in zip(self.obstacles, self.poses, strict=True)]
        stacked = np.stack(columns, axis=-1) if columns else np.zeros((*points.shape[:-1], 0))
        return stacked - 0.5 * self.diameter


def runtime_scene(num_bodies: int = 30) -> PaperModel:
    """The paper's scene of section IV-A: a straight robot of 0.4 m grows past a circle; dt 10 ms, 40 mm/s, 400 steps."""
    links = num_bodies // 2
    return PaperModel(num_links=links, half_length=0.1 / links, obstacles=(circle(0.470, 0.025, 0.060),))


def cluttered_scene(num_links: int = 25) -> PaperModel:
    """The paper's scene of section IV-C: six rectangles; dt 1/90 s, 205 mm/s, 270 steps, with `CLUTTERED` as parameters."""
    return PaperModel(num_links, 0.003, 0.015, 0.3, float(np.deg2rad(-52.0)), obstacles=paper_obstacles())


CLUTTERED = PaperParameters(body_mass=2e-3, body_inertia=5e-6, joint_stiffness=0.03, joint_damping=1e-5)
"""Parameters of `cluttered_scene`."""
