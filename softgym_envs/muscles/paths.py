"""Muscle paths, from origin to insertion around surfaces, in closed form around a cylinder or a sphere. Legend: S surfaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import StructureError
from ..mechanics.checks import check_known, check_name, check_unique, check_values
from ..mechanics.tree import Triple
from .muscle import blend, both_ways, switch, symbols
from .surfaces import Surface

NEAR_ACTIVATIONS = (-0.1, 1.1)
"""Activations that a fit may begin from: those of noisy recordings lie a little outside of 0 and 1, far ones diverge."""
KINDS: dict[str, tuple[str, ...]] = {"hill": ("force", "optimal"), "pneumatic": ("thread", "turns", "pressure")}
"""Kind of a muscle -> the numbers that only it has; see `muscle`, and `pneumatic` in the system `arm`."""


@dataclass(frozen=True)
class Muscle:
    """A muscle's path, and its numbers unless the parameters of the system have them.

    Raises:
        StructureError: Not as many sides as surfaces, a piece that the path has not, or numbers of another kind of muscle.
    """

    name: str
    origin_body: str
    origin: Triple
    insertion_body: str
    insertion: Triple
    surfaces: tuple[str, ...] = ()
    """Surfaces that it wraps around, in their order along the muscle."""
    sides: tuple[Triple, ...] = ()
    """For every surface a point in its frame [m] on the side where the muscle passes."""
    via: tuple[tuple[str, float, float, float], ...] = ()
    """Points that the muscle always passes from origin to insertion: a body and a point in its frame [m]."""
    spans: tuple[int, ...] = ()
    """For every surface the piece of the path that goes around it, 0: from the origin to the first via point; (): the last."""
    force: float | None = None
    """Largest isometric force [N]; None: not given."""
    optimal: float | None = None
    """Optimal length of the fibres [m]; None: not given."""
    slack: float | None = None
    """Length of the tendon, which does not stretch [m]; None: not given, for a body's muscle 0."""
    kind: str = "hill"
    """One of `KINDS`."""
    thread: float | None = None
    """Length of a thread of the braid [m]; None: not given."""
    turns: float | None = None
    """Turns of a thread around the muscle [-]; None: not given."""
    pressure: float = 0.0
    """Supply pressure, above the air's [Pa]."""

    def __post_init__(self) -> None:
        where = f"muscle {self.name!r}"
        check_name(where, self.name)
        for passed in self.via:
            if len(passed) != 4 or not isinstance(passed[0], str):
                raise StructureError(f"{where}: via has {passed!r}, expected a body and three numbers")
            check_values(where, "via", *passed[1:], count=3)
        self._check_kind(where)
        for name, point in (("origin", self.origin), ("insertion", self.insertion), *(("side", side) for side in self.sides)):
            check_values(where, name, *point, count=3)
        if len(self.sides) != len(self.surfaces):
            raise StructureError(f"{where}: has {len(self.sides)} sides for {len(self.surfaces)} surfaces")
        if self.spans and (len(self.spans) != len(self.surfaces) or not set(self.spans) <= set(range(len(self.via) + 1))):
            raise StructureError(f"{where}: spans is {self.spans}, expected a piece, 0 to {len(self.via)}, for every surface")

    def _check_kind(self, where: str) -> None:
        """Raises a StructureError for an unknown kind, and for numbers that do not belong to it or are missing."""
        if self.kind not in KINDS:
            raise StructureError(f"{where}: kind is {self.kind!r}, expected one of {', '.join(KINDS)}")
        for kind, name in [(self.kind, "slack"), *((kind, name) for kind, names in KINDS.items() for name in names)]:
            value = getattr(self, name)
            if value is None:
                continue
            check_values(where, name, value)
            if value < 0:
                raise StructureError(f"{where}: {name} is below 0")
            if kind != self.kind and value != 0:
                raise StructureError(f"{where}: {name} is of {kind} muscles, this one is {self.kind}")
            if value == 0 and name not in ("slack", "pressure"):
                raise StructureError(f"{where}: {name} is 0, expected a number > 0, or no entry")
        if self.kind == "pneumatic" and self.pressure == 0:
            raise StructureError(f"{where}: is pneumatic, but says no pressure of its supply [Pa]")

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Force, optimal length and slack length of a hill muscle, 0 where not given."""
        return self.force or 0.0, self.optimal or 0.0, self.slack or 0.0

    @property
    def points(self) -> tuple[tuple[str, Triple], ...]:
        """Bodies and points in their frames from origin to insertion."""
        between = ((body, (x, y, z)) for body, x, y, z in self.via)
        return ((self.origin_body, self.origin), *between, (self.insertion_body, self.insertion))

    def around(self, piece: int) -> tuple[int, ...]:
        """Indices of the muscle's surfaces that a piece of its path goes around."""
        spans = self.spans or (len(self.via),) * len(self.surfaces)
        return tuple(i for i, span in enumerate(spans) if span == piece)


@dataclass(frozen=True)
class Muscles:
    """Muscles and the surfaces that they wrap around.

    Raises:
        StructureError: Names that are unknown or repeated.
    """

    surfaces: tuple[Surface, ...]
    muscles: tuple[Muscle, ...]

    def __post_init__(self) -> None:
        check_unique("surface", [surface.name for surface in self.surfaces])
        check_unique("muscle", [muscle.name for muscle in self.muscles])
        for muscle in self.muscles:
            for name in muscle.surfaces:
                check_known(f"surface of muscle {muscle.name!r}", name, [surface.name for surface in self.surfaces])

    def surface(self, name: str) -> Surface:
        """The surface of that name."""
        check_known("surface", name, [surface.name for surface in self.surfaces])
        return next(surface for surface in self.surfaces if surface.name == name)


def around_cylinder(a: Any, b: Any, side: Sequence[float], radius: Any, rounding: float = 0.0) -> Any:
    """Length of the shortest path from a to b (3,) that passes a cylinder along z on the side of the point `side` (3,).

    Unrolled, it is straight: sqrt(planar length^2 + dz^2). Points in the cylinder's frame, outside of it, as numbers or
    casadi expressions; which way around is decided by `side` and the first point: the muscle must not turn over the axis.
    """
    with symbols():
        far, near = np.sqrt(a[0] ** 2 + a[1] ** 2), np.sqrt(b[0] ** 2 + b[1] ** 2)
        turn = switch(a[0] * side[1] - a[1] * side[0], 1.0, -1.0)
        along = a[0] * b[0] + a[1] * b[1]
        # in (0, 2 pi): a muscle that passes a joint goes by pi, where atan2 jumps
        angle = np.pi - 2 * np.arctan(turn * (a[0] * b[1] - a[1] * b[0]) / (far * near - along))
        planar = _around(far, near, angle, radius, rounding)
        return np.sqrt(planar**2 + (b[2] - a[2]) ** 2)


def around_sphere(a: Any, b: Any, radius: Any, rounding: float = 0.0) -> Any:
    """Length of the shortest path from a to b (3,) around a sphere about the origin; the other way round may not be shorter."""
    with symbols():
        far, near = (np.sqrt(x[0] ** 2 + x[1] ** 2 + x[2] ** 2) for x in (a, b))
        u, v, w = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
        along = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
        angle = np.pi - 2 * np.arctan(np.sqrt(u * u + v * v + w * w) / (far * near - along))
        return _around(far, near, angle, radius, rounding)


def _around(far: Any, near: Any, angle: Any, radius: Any, rounding: float) -> Any:
    """Length in the plane; see `routes.Routes.rounding`."""
    straight, wrapped, touching = both_ways(far, near, angle, radius)
    return blend(touching, wrapped, straight, rounding)
