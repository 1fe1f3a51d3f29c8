r"""Muscle paths as discrete geodesics around any surfaces [Penner2020]: the oracle of the closed form in `muscles.paths`.

A discrete geodesic has K + 1 nodes gamma_0 ... gamma_K, the first and last at the muscle's ends, and minimises

.. math:: E = \tfrac K2 \sum_k |\gamma_{k+1} - \gamma_k|^2 \quad\text{s.t.}\quad \phi(\gamma_k, q) \ge 0,

whose conditions are eq. (3) of [Penner2020], mu_k >= 0 being the pressures: on a surface it is a geodesic, elsewhere straight,
and its nodes are at equal distances. Its length sqrt(2 E) is K times that distance. Legend: K segments, S surfaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import StructureError
from softgym_envs.core.simulator import check_array, check_number
from softgym_envs.core.transcription import casadi
from softgym_envs.mechanics.checks import check_known
from softgym_envs.mechanics.symbolic import fixed, places
from softgym_envs.muscles.routes import Routes
from softgym_envs.muscles.surfaces import Surface

Array = NDArray[np.float64]


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
            if float(phi(surface, ca.DM(R.T @ (end - x)))) < -1e-9:
                raise StructureError(f"surface {surface.name!r} contains the end {end.round(4).tolist()} of a path")
    corners = np.array([first, *(x + R @ np.asarray(side) for side, (R, x) in zip(sides, frames, strict=True)), last])
    initial_guess = _along(corners, count)[1:-1]
    given = np.concatenate([first, last, *(np.concatenate([R.ravel(order="F"), x]) for R, x in frames)])
    solver = _solver(tuple(surfaces), count)
    found = solver(x0=initial_guess.ravel(), p=given, lbg=0.0, ubg=np.inf)
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
            gaps.append(phi(surface, ca.reshape(place[:9], 3, 3).T @ (x[:, k] - place[9:])))
    problem = {"x": ca.vec(x), "p": p, "f": path_length(nodes) ** 2 / 2, "g": ca.vertcat(ca.SX.zeros(0), *gaps)}
    settings = {"print_level": 0, "sb": "yes", "tol": 1e-11, "max_iter": 500}
    return ca.nlpsol("geodesic", "ipopt", problem, {"ipopt": settings, "print_time": False})


def _along(corners: Array, count: int) -> Array:
    """count + 1 points at equal distances along a polygon, (count + 1, 3)."""
    reach = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(corners, axis=0), axis=1))])
    at = np.linspace(0.0, reach[-1], count + 1)
    return np.stack([np.interp(at, reach, corners[:, i]) for i in range(3)], axis=1)


def discrete_length(routes: Routes, name: str, q: Any, count: int) -> float:
    """Length of one muscle at q (n,) whose pieces around surfaces are discrete geodesics of `count` segments [m]."""
    ca = casadi()
    check_known("muscle", name, [muscle.name for muscle in routes.muscles.muscles])
    muscle = next(muscle for muscle in routes.muscles.muscles if muscle.name == name)
    stand = {body: np.array(ca.DM(place)) for body, place in places(ca, routes.tree, ca.DM(q)).items()}
    ends = [(stand[body] @ [*point, 1.0])[:3] for body, point in muscle.points]
    total = 0.0
    for piece, pair in enumerate(pairwise(ends)):
        around = muscle.around(piece)
        if not around:
            total += float(np.linalg.norm(pair[1] - pair[0]))
            continue
        surfaces = [routes.muscles.surface(muscle.surfaces[i]) for i in around]
        frames = [stand[s.body] @ np.array(ca.DM(fixed(ca, s.xyz, s.rpy))) for s in surfaces]
        stands = [(frame[:3, :3], frame[:3, 3]) for frame in frames]
        total += discrete_geodesic(surfaces, stands, pair, [muscle.sides[i] for i in around], count).length
    return total


def phi(surface: Surface, x: Any) -> Any:
    """Approximate distance of a point x (3,) in the surface's frame from it [m]: > 0 outside, 0 on it, as an expression."""
    ca = casadi()
    return _FORMULAS[surface.kind](ca, ca.vertcat(*x) if isinstance(x, (list, tuple)) else x, surface.size)


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
