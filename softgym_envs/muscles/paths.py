r"""Muscle paths, from origin to insertion around surfaces: in closed form around a cylinder, as discrete geodesics around any.

A discrete geodesic has K + 1 nodes gamma_0 ... gamma_K, the first and last at the muscle's ends, and minimises

.. math:: E = \tfrac K2 \sum_k |\gamma_{k+1} - \gamma_k|^2 \quad\text{s.t.}\quad \phi(\gamma_k, q) \ge 0,

whose conditions are eq. (3) of [Penner2020], mu_k >= 0 being the pressures: on a surface it is a geodesic, elsewhere straight,
and its nodes are at equal distances. Its length sqrt(2 E) is K times that distance. Legend: K segments, S surfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.errors import StructureError
from ..core.simulator import check_array, check_number
from ..core.transcription import casadi
from ..mechanics.checks import check_known, check_name, check_unique, check_values
from ..mechanics.tree import Triple
from .muscle import blend, both_ways, switch, symbols
from .surfaces import Surface

Array = NDArray[np.float64]


KINDS: dict[str, tuple[str, ...]] = {"hill": ("force", "optimal"), "pneumatic": ("thread", "turns", "pressure")}
"""Kind of a muscle -> the numbers that only it has; see `muscle`, and `pneumatic` in the room `arm`."""


@dataclass(frozen=True)
class Muscle:
    """A muscle's path, and its numbers unless the constants of the room have them.

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


# --- closed form ----------------------------------------------------------------------------------------------------------


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


# --- discrete geodesics ---------------------------------------------------------------------------------------------------


class Geodesic(NamedTuple):
    """A discrete geodesic."""

    nodes: Array
    """(K + 1, 3) [m]"""
    pressures: Array
    """(K - 1, S) mu, of the gradient of E [m]; divided by the length they are shares of the muscle's force."""
    length: float
    """[m]"""


def path_conditions(nodes: Any, pressures: Any, gaps: Any) -> tuple[Any, Any]:
    """Conditions of eq. (3) as casadi expressions.

    Args:
        nodes: (3, K + 1), the first and last given.
        pressures: (S, K - 1).
        gaps: Function of inner nodes (3, K - 1) -> phi (S, K - 1).

    Returns:
        dE/dgamma - phi_gamma' mu (3 (K - 1),), and phi (S, K - 1).
    """
    ca = casadi()
    count = nodes.shape[1] - 1
    inner = nodes[:, 1:-1]
    phi = gaps(inner)
    pull = count * (2 * inner - nodes[:, :-2] - nodes[:, 2:])
    push = ca.jtimes(phi, inner, pressures, True) if phi.numel() else ca.SX.zeros(3, count - 1)
    return ca.vec(pull - push), phi


def path_length(nodes: Any) -> Any:
    """Length sqrt(2 E) of nodes (3, K + 1) [m]."""
    ca = casadi()
    steps = nodes[:, 1:] - nodes[:, :-1]
    return ca.sqrt((nodes.shape[1] - 1) * ca.sumsqr(steps))


def discrete_geodesic(
    surfaces: Sequence[Surface], places: Sequence[tuple[Any, Any]], ends: tuple[Any, Any], sides: Sequence[Any], count: int
) -> Geodesic:
    """The discrete geodesic of `count` segments between two points, around surfaces that are placed in the world.

    It starts from a polygon over the `sides`, so it stays on them; found by IPOPT.

    Args:
        surfaces: S surfaces.
        places: Rotation (3, 3) and origin (3,) of each.
        ends: Two points (3,) [m], outside.
        sides: A point (3,) per surface, in the surface's frame.
        count: K.

    Raises:
        StructureError: An end is inside a surface, or no path was found.
        OptionError: K is below 2.
    """
    ca = casadi()
    check_number("count", count, low=2, whole=True)
    first, last = (check_array("ends", end, (3,)) for end in ends)
    frames = [(np.asarray(R, dtype=np.float64), np.asarray(x, dtype=np.float64)) for R, x in places]
    for surface, (R, x) in zip(surfaces, frames, strict=True):
        for end in (first, last):
            if float(surface.phi(ca.DM(R.T @ (end - x)))) < -1e-9:
                raise StructureError(f"surface {surface.name!r} contains the end {end.round(4).tolist()} of a path")
    corners = np.array([first, *(x + R @ np.asarray(side) for side, (R, x) in zip(sides, frames, strict=True)), last])
    guess = _along(corners, count)[1:-1]
    given = np.concatenate([first, last, *(np.concatenate([R.ravel(order="F"), x]) for R, x in frames)])
    solver = _solver(tuple(surfaces), count)
    found = solver(x0=guess.ravel(), p=given, lbg=0.0, ubg=np.inf)
    if not solver.stats()["success"]:
        raise StructureError(f"no discrete geodesic was found: {solver.stats()['return_status']}")
    nodes = np.vstack([first, np.array(found["x"]).reshape(-1, 3), last])
    pressures = -np.array(found["lam_g"]).reshape(count - 1, len(surfaces))
    return Geodesic(nodes, pressures, float(np.sqrt(count * (np.diff(nodes, axis=0) ** 2).sum())))


@lru_cache(maxsize=64)
def _solver(surfaces: tuple[Surface, ...], count: int) -> Any:
    """min E s.t. phi >= 0; parameters: both ends, and rotation and origin of every surface."""
    ca = casadi()
    x, p = ca.SX.sym("x", 3, count - 1), ca.SX.sym("p", 6 + 12 * len(surfaces))
    nodes = ca.horzcat(p[:3], x, p[3:6])
    gaps = []
    for k in range(count - 1):
        for s, surface in enumerate(surfaces):
            place = p[6 + 12 * s : 18 + 12 * s]
            gaps.append(surface.phi(ca.reshape(place[:9], 3, 3).T @ (x[:, k] - place[9:])))
    problem = {"x": ca.vec(x), "p": p, "f": path_length(nodes) ** 2 / 2, "g": ca.vertcat(ca.SX.zeros(0), *gaps)}
    settings = {"print_level": 0, "sb": "yes", "tol": 1e-11, "max_iter": 500}
    return ca.nlpsol("geodesic", "ipopt", problem, {"ipopt": settings, "print_time": False})


def _along(corners: Array, count: int) -> Array:
    """count + 1 points at equal distances along a polygon, (count + 1, 3)."""
    reach = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    at = np.linspace(0.0, reach[-1], count + 1)
    return np.stack([np.interp(at, reach, corners[:, i]) for i in range(3)], axis=1)
