r"""Muscle paths over a whole tree: lengths and moment arms of every muscle by its coordinates.

A path is a chain of pieces between the points that it passes; a piece is straight, or goes around a cylinder or a sphere, in
closed form. Moment arms are r = -dl/dq, as in OpenSim: positive where the muscle's pull raises a coordinate. Legend: n
coordinates, m muscles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.errors import StructureError
from ..core.simulator import Array, check_array
from ..core.transcription import casadi
from ..mechanics.checks import check_known
from ..mechanics.symbolic import fixed, places
from ..mechanics.tree import WORLD, Tree
from .paths import Muscle, Muscles, around_cylinder, around_sphere


@dataclass(frozen=True)
class Routes:
    """Muscles on a tree.

    Raises:
        StructureError: A muscle or a surface is on a body that is not in the tree.
    """

    tree: Tree
    muscles: Muscles
    rounding: float = 0.0
    """Half width of the transition from straight to wrapped about the angle of first touch [rad], for lengths in closed form.

    Moment arms have a kink there, at which Newton's method on whole motions may fail; for nothing else.
    """

    def __post_init__(self) -> None:
        bodies = [WORLD, *(body.name for body in self.tree.bodies)]
        for surface in self.muscles.surfaces:
            check_known(f"body of surface {surface.name!r}", surface.body, bodies)
        for muscle in self.muscles.muscles:
            for body, _ in muscle.points:
                check_known(f"body of muscle {muscle.name!r}", body, bodies)

    def expressions(self, q: Any) -> Any:
        """Lengths (m,) at casadi coordinates q (n,), in closed form [m].

        Raises:
            StructureError: A piece goes around more than one surface, or one that is neither cylinder nor sphere.
        """
        ca = casadi()
        stand = places(ca, self.tree, q)
        return ca.vertcat(*(self._length(ca, muscle, stand) for muscle in self.muscles.muscles))

    def _length(self, ca: Any, muscle: Muscle, stand: Any) -> Any:
        ends = [(stand[body] @ ca.vertcat(*point, 1))[:3] for body, point in muscle.points]
        total = 0
        for piece, (first, last) in enumerate(pairwise(ends)):
            around = muscle.around(piece)
            if not around:
                total += ca.norm_2(last - first)
                continue
            surface = self.muscles.surface(muscle.surfaces[around[0]])
            if len(around) > 1 or surface.kind not in ("cylinder", "sphere"):
                raise StructureError(f"muscle {muscle.name!r}: piece {piece} goes around more than one cylinder or sphere")
            frame = stand[surface.body] @ fixed(ca, surface.xyz, surface.rpy)
            a, b = (ca.vertsplit(frame[:3, :3].T @ (end - frame[:3, 3])) for end in (first, last))
            side, radius = muscle.sides[around[0]], surface.size[0]
            sphere, soft = surface.kind == "sphere", self.rounding
            total += around_sphere(a, b, radius, soft) if sphere else around_cylinder(a, b, side, radius, soft)
        return total

    @cached_property
    def functions(self) -> Any:
        """casadi.Function: q (n,) -> lengths (m,), moment arms (m, n)."""
        ca = casadi()
        q = ca.SX.sym("q", len(self.tree.coordinates))
        lengths = self.expressions(q)
        return ca.Function("routes", [q], [lengths, -ca.jacobian(lengths, q)])

    def lengths(self, q: Any) -> tuple[Array, Array]:
        """Lengths (B, m) and moment arms (B, m, n) at rows q (B, n) [m]."""
        q = check_array("q", q, (None, len(self.tree.coordinates)))
        found = [self.functions(row) for row in q]
        return np.array([np.array(one)[:, 0] for one, _ in found]), np.array([np.array(arm) for _, arm in found])
