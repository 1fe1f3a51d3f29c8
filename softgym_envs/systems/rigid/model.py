"""Structure of the rigid system's scenes, and the layout of their states.

*Particles* in a vertical plane over flat ground, x along it and y up; they do not touch each other. State: x, y, vx, vy of each
[m, m/s]. Control: a horizontal force on each [N]. [Berard2008] slides 23-29.

*Block* on a table, seen from above: it slides on three point supports, and may be pulled by a string that runs over a pulley to
a hanging weight; a handle takes forces in the block's own axes. State: x, y, theta, vx, vy, omega of its centre of mass [m,
rad]. Control: force x, y at the handle [N]. [Berard2008] slides 30, 31.

Legend: B batch, d friction directions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.errors import StructureError
from ...core.layout import Field, StateLayout
from ...core.simulator import Array, check_number

Point = tuple[float, float]

LONGEST_LEVER = 10.0
"""Largest distance of handle and string from the centre of mass, over that of the farthest support."""


@dataclass(frozen=True, eq=False)
class ParticleModel:
    """`count` particles over flat ground; see the module docstring.

    Raises:
        OptionError: `count` or a force is not allowed.
    """

    count: int = 1
    force_limit: float = 10.0
    """Largest control [N]."""
    start: Point = (0.0, 3.0)
    """Position at which particles rest before they fall [m]; [Berard2008] slide 27."""

    def __post_init__(self) -> None:
        check_number("count", self.count, low=1, high=1000, whole=True)
        check_number("force_limit", self.force_limit, positive=True, unit="N")

    @cached_property
    def layout(self) -> StateLayout:
        """x, y, vx, vy; "particle0.x", ... if there are several."""
        entries = (("x y", "m"), ("vx vy", "m/s"))
        return StateLayout(Field("", None, *entries) if self.count == 1 else Field("particle", self.count, *entries))

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.count

    @cached_property
    def control_names(self) -> tuple[str, ...]:
        """One force per particle."""
        return ("force",) if self.count == 1 else tuple(f"force{i}" for i in range(self.count))

    @property
    def control_units(self) -> tuple[str, ...]:
        """Unit of every force, N."""
        return ("N",) * self.nu

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest force, each (nu,) [N]."""
        limit = np.full(self.nu, float(self.force_limit))
        return -limit, limit

    def rest_state(self) -> Array:
        """All particles at rest at `start`, (nx,)."""
        return np.tile([*self.start, 0.0, 0.0], self.count)

    @property
    def measured(self) -> tuple[str, ...]:
        """Entries that [Berard2008] slide 15 observes: positions."""
        return tuple(name for name, unit in zip(self.layout.names, self.layout.units, strict=True) if unit == "m")


@dataclass(frozen=True, eq=False)
class BlockModel:
    """The block; see the module docstring. Points are in the block's frame, from its centre of mass.

    Raises:
        StructureError: The centre of mass is not inside the triangle of supports, the string has no length, or a lever is long.
        OptionError: A number is not allowed.
    """

    supports: tuple[Point, Point, Point] = ((0.06, 0.0), (-0.05, 0.06), (-0.05, -0.06))
    """[m]"""
    attachment: Point = (0.1, 0.04)
    """Point of the block at which the string is tied [m]."""
    pulley: Point | None = (1.2, 0.3)
    """Point at which the string leaves the table, in the table's frame [m]; None: no string."""
    handle: Point = (0.1, 0.0)
    """Point of the block at which the control force acts [m]."""
    num_directions: int = 32
    """d: edges of the linearised friction cone, the same at every support, in the table's frame; eight deflect the motion."""
    force_limit: float = 10.0
    """Largest control in either direction [N]."""
    half_size: Point = (0.1, 0.1)
    """Half length and half width [m]; pictures only."""

    def __post_init__(self) -> None:
        check_number("num_directions", self.num_directions, low=4, high=1000, whole=True)
        check_number("force_limit", self.force_limit, positive=True, unit="N")
        if self.num_directions % 2:
            raise StructureError(f"num_directions is {self.num_directions}, expected an even number: friction is symmetric")
        for name in ("supports", "attachment", "pulley", "handle", "half_size"):
            points = getattr(self, name)
            if not (_are_points(points, 3 if name == "supports" else None) or (points is None and name == "pulley")):
                expected = "three points (x, y)" if name == "supports" else "a point (x, y)"
                raise StructureError(f"{name} is {points}, expected {expected} of finite numbers [m]")
        reach = LONGEST_LEVER * max(float(np.hypot(*support)) for support in self.supports)
        for name in ("handle", "attachment"):
            if (far := float(np.hypot(*getattr(self, name)))) > reach:
                raise StructureError(
                    f"{name} is {far:g} m from the centre of mass, allowed is {reach:.3g} m: "
                    f"{LONGEST_LEVER:g} times as far as the supports"
                )
        if not (np.isfinite(self.shares).all() and (self.shares > 0).all()):
            raise StructureError(f"the centre of mass is not inside the triangle of supports {self.supports}")
        if self.pulley is not None and np.hypot(*np.subtract(self.pulley, self.attachment)) < 0.01:
            raise StructureError(f"pulley {self.pulley} is where the string is tied to the block at rest; move it away")

    @cached_property
    def layout(self) -> StateLayout:
        """See the module docstring."""
        return StateLayout(Field("", None, ("x y", "m"), ("theta", "rad"), ("vx vy", "m/s"), ("omega", "rad/s")))

    @property
    def nu(self) -> int:
        """Number of controls."""
        return 2

    @property
    def control_names(self) -> tuple[str, ...]:
        """Force at the handle, in the block's axes."""
        return ("force_x", "force_y")

    @property
    def control_units(self) -> tuple[str, ...]:
        """Unit of every force, N."""
        return ("N",) * self.nu

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest force, each (nu,) [N]."""
        limit = np.full(self.nu, float(self.force_limit))
        return -limit, limit

    def rest_state(self) -> Array:
        """At rest at the origin, (6,)."""
        return np.zeros(self.layout.nx)

    @property
    def measured(self) -> tuple[str, ...]:
        """Entries that an overhead camera measures: the pose."""
        return self.layout.names[:3]

    @cached_property
    def shares(self) -> Array:
        """N_i / (m g): sum N_i = m g, sum N_i r_i = 0, (3,). Statically determinate: the loads never change."""
        balance = np.vstack([np.ones(3), np.array(self.supports, dtype=np.float64).T])
        if abs(np.linalg.det(balance)) < 1e-12:
            return np.full(3, np.nan)
        return np.asarray(np.linalg.solve(balance, np.array([1.0, 0.0, 0.0])))

    @cached_property
    def directions(self) -> Array:
        """Unit vectors of the friction cone's edges, (d, 2)."""
        angle = 2 * np.pi * np.arange(self.num_directions) / self.num_directions
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def to_table(self, state: Array, point: Point) -> Array:
        """A point of the block in the table's frame, (..., nx) -> (..., 2) [m]."""
        x, y, theta = state[..., 0], state[..., 1], state[..., 2]
        c, s = np.cos(theta), np.sin(theta)
        return np.stack([x + c * point[0] - s * point[1], y + s * point[0] + c * point[1]], axis=-1)


def _are_points(value: Any, count: int | None) -> bool:
    """Whether it is `count` finite points (x, y); None: a single point."""
    try:
        points = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return points.shape == ((2,) if count is None else (count, 2)) and bool(np.isfinite(points).all())
