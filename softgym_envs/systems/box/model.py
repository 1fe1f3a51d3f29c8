"""Structure of a box over a table, and the layout of its state.

*In space*: position of the centre [m], z up; attitude as a unit quaternion, body to world; velocity of the centre in the
world's frame [m/s]; angular velocity in the body's frame [rad/s]. Control: a force on the centre [N].

*In a plane* (a plate that falls between two panes): x and z of the centre [m], theta about -y, so that it turns x towards z
[rad], and their velocities. Control: a force on the centre, x and z [N].

Legend: B batch, n corners, nv velocities.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from ...core import lie
from ...core.errors import StructureError
from ...core.layout import QUATERNION, Field, StateLayout
from ...core.simulator import Array, check_number


@dataclass(frozen=True, eq=False)
class BoxModel:
    """A box; see the module docstring.

    Raises:
        StructureError: `half_size` is not two or three lengths.
        OptionError: A number is not allowed.
    """

    half_size: tuple[float, ...] = (0.0524, 0.0524, 0.0524)
    """Half of the edges, along the body's x, y, z [m]; two: x and z, the box moves in a plane. [Pfrommer2020]: 0.1048 m."""
    settle_speed: float = 0.01
    """Corners that come slower than this do not bounce [m/s]."""
    force_limit: float = 10.0
    """Largest control in either direction [N]."""

    def __post_init__(self) -> None:
        if not (isinstance(self.half_size, tuple) and len(self.half_size) in (2, 3)):
            raise StructureError(f"half_size is {self.half_size!r}, expected two or three lengths [m]")
        for length in self.half_size:
            check_number("half_size", length, positive=True, unit="m")
        check_number("settle_speed", self.settle_speed, low=0.0, unit="m/s")
        check_number("force_limit", self.force_limit, positive=True, unit="N")

    @property
    def planar(self) -> bool:
        """Whether the box moves in a plane."""
        return len(self.half_size) == 2

    @cached_property
    def layout(self) -> StateLayout:
        """See the module docstring."""
        if self.planar:
            entries = (("x z", "m"), ("theta", "rad"), ("vx vz", "m/s"), ("omega", "rad/s"))
            return StateLayout(Field("", None, *entries))
        turned = (("x y z", "m"), ("qw qx qy qz", "-", QUATERNION), ("vx vy vz", "m/s"), ("wx wy wz", "rad/s"))
        return StateLayout(Field("", None, *turned))

    @property
    def control_names(self) -> tuple[str, ...]:
        """Force on the centre, in the world's axes."""
        return ("force_x", "force_z") if self.planar else ("force_x", "force_y", "force_z")

    @property
    def control_units(self) -> tuple[str, ...]:
        """Unit of every force, N."""
        return ("N",) * len(self.control_names)

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest force, each (nu,) [N]."""
        limit = np.full(len(self.control_names), float(self.force_limit))
        return -limit, limit

    def rest_state(self) -> Array:
        """At rest on a face, over a table at height 0, (nx,)."""
        state = np.zeros(self.layout.nx)
        state[1 if self.planar else 2] = self.half_size[-1]
        if not self.planar:
            state[3] = 1.0
        return state

    @property
    def measured(self) -> tuple[str, ...]:
        """Entries that cameras measure: the pose."""
        return self.layout.names[: 3 if self.planar else 7]

    @cached_property
    def sizes(self) -> Array:
        """Half edges along x, y, z, (3,) [m]; 0 along y in a plane."""
        x, *y, z = self.half_size
        return np.array([x, *(y or [0.0]), z])

    @cached_property
    def signs(self) -> Array:
        """Signs of the corners along x, y, z, -1 or 1, (n, 3); 0 along y in a plane."""
        return np.array([s for s in product((-1.0, 1.0), (0.0,) if self.planar else (-1.0, 1.0), (-1.0, 1.0))])

    @cached_property
    def uniform_inertia(self) -> Array:
        """Moments of a uniform box over its mass, about the body's axes, (3,) [m^2]; in a plane only about y, (1,)."""
        a, b, c = self.sizes**2
        return np.array([a + c]) / 3.0 if self.planar else np.array([b + c, a + c, a + b]) / 3.0

    def corners(self, state: Array) -> Array:
        """Sharp corners of states (..., nx) in the world's frame, (..., n, 3) [m]."""
        state = np.asarray(state, dtype=np.float64)
        places = self.signs * self.sizes
        if not self.planar:
            return np.asarray(state[..., None, :3] + lie.rotate(state[..., None, 3:7], places))
        c, s = np.cos(state[..., 2, None]), np.sin(state[..., 2, None])
        x = state[..., 0, None] + c * places[:, 0] - s * places[:, 2]
        z = state[..., 1, None] + s * places[:, 0] + c * places[:, 2]
        return np.stack([x, np.zeros_like(x), z], axis=-1)


def cube() -> BoxModel:
    """The cube of [Pfrommer2020]: 0.1048 m."""
    return BoxModel()


def square() -> BoxModel:
    """The square of [Fazeli2017] between two panes: 60 mm."""
    return BoxModel((0.03, 0.03))
