"""Smooth surfaces that muscles wrap around: phi(x) > 0 outside, 0 on them, as casadi expressions of points in their frame.

|grad phi| is 1 on the surface (of an ellipsoid: near 1), so that phi is about the distance [m].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.errors import StructureError
from ..core.transcription import casadi
from ..mechanics.checks import check_name, check_values
from ..mechanics.tree import ORIGIN, Triple

SIZES: dict[str, int] = {"sphere": 1, "cylinder": 1, "capsule": 2, "ellipsoid": 3}
"""Kind -> number of sizes: radius; radius; radius and half length; three half axes [m]."""


@dataclass(frozen=True)
class Surface:
    """A surface on a body. Cylinders (endless) and capsules lie along their z axis.

    >>> round(float(Surface("ball", "sphere", "world", (0.1,)).phi([0.0, 0.3, 0.0])), 12)
    0.2

    Raises:
        StructureError: Unknown kind, or sizes that are not positive.
    """

    name: str
    kind: str
    body: str
    size: tuple[float, ...]
    xyz: Triple = ORIGIN
    rpy: Triple = ORIGIN

    def __post_init__(self) -> None:
        where = f"surface {self.name!r}"
        check_name(where, self.name)
        if self.kind not in SIZES:
            raise StructureError(f"{where}: kind is {self.kind!r}, expected one of {', '.join(SIZES)}")
        check_values(where, "size", *self.size, count=SIZES[self.kind])
        check_values(where, "xyz", *self.xyz, count=3)
        check_values(where, "rpy", *self.rpy, count=3)
        if not all(value > 0 for value in self.size):
            raise StructureError(f"{where}: size is {self.size}, expected numbers > 0")

    def phi(self, x: Any) -> Any:
        """Approximate distance of a point x (3,) in the surface's frame from it."""
        ca = casadi()
        return _FORMULAS[self.kind](ca, ca.vertcat(*x) if isinstance(x, (list, tuple)) else x, self.size)


def _sphere(ca: Any, x: Any, size: tuple[float, ...]) -> Any:
    return ca.norm_2(x) - size[0]


def _cylinder(ca: Any, x: Any, size: tuple[float, ...]) -> Any:
    return ca.sqrt(x[0] ** 2 + x[1] ** 2) - size[0]


def _capsule(ca: Any, x: Any, size: tuple[float, ...]) -> Any:
    """Distance from the segment |z| <= half length: C1."""
    beyond = ca.fmax(ca.fabs(x[2]) - size[1], 0)
    return ca.sqrt(x[0] ** 2 + x[1] ** 2 + beyond**2) - size[0]


def _ellipsoid(ca: Any, x: Any, size: tuple[float, ...]) -> Any:
    """Approximate distance w (w - 1) / |grad w / 2| with w^2 = sum (x_i / a_i)^2, accurate close to the surface."""
    axes = ca.DM(list(size))
    w = ca.norm_2(x / axes)
    return w * (w - 1) / ca.norm_2(x / axes**2)


_FORMULAS: dict[str, Callable[[Any, Any, tuple[float, ...]], Any]] = {
    "sphere": _sphere,
    "cylinder": _cylinder,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
}
