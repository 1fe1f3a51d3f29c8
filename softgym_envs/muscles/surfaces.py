"""Smooth surfaces that muscles wrap around."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import StructureError
from ..mechanics.checks import check_name, check_values
from ..mechanics.tree import ORIGIN, Triple

SIZES: dict[str, int] = {"sphere": 1, "cylinder": 1, "capsule": 2, "ellipsoid": 3}
"""Kind -> number of sizes: radius; radius; radius and half length; three half axes [m]."""


@dataclass(frozen=True)
class Surface:
    """A surface on a body. Cylinders (endless) and capsules lie along their z axis.

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
