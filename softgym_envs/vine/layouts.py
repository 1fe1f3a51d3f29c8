"""Where obstacles and goals are in an episode: open field, random clutter, a narrow gap, a wall, the paper's scene.

A layout has a fixed set of shapes (structure of the model) and draws their poses and a goal for every episode. All layouts are
for a robot whose base is the world's origin, heading along +x, unless they say otherwise.
Legend: M obstacles, N links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Shape, Wall, to_local
from .paper.model import cluttered_scene

Array = NDArray[np.float64]

CLEAR = 0.012
"""Free space that clutter leaves beside the tube of a robot on its way to the goal [m]."""
TRIALS = 200
"""So many places of an obstacle are tried before it is left out."""


class Drawn(NamedTuple):
    """What an episode looks like."""

    poses: Array
    """(M, 3) [m, m, rad]"""
    goal: Array
    """(2,) [m]"""


class Layout(Protocol):
    """See the module docstring."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with the layout's shapes."""
        ...

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """One episode, at a level of difficulty (a whole number where levels are counted)."""
        ...


@dataclass(frozen=True)
class Open:
    """Obstacles stay where the model has them. The goal is where a robot of some length and bend in every section ends."""

    lengths: tuple[float, float] = (0.45, 1.0)
    """[m]"""
    curvature: float = 2.0
    """Largest bend of a section [1/m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """As it is."""
        return model

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """A goal within reach."""
        return Drawn(model.poses, bent_axis(model, *self.bend(model, rng))[-1])

    def bend(self, model: VineModel, rng: np.random.Generator) -> tuple[float, Array]:
        """Length [m] and curvature of every section [1/m]."""
        length = rng.uniform(*self.lengths)
        return length, self.curvature * rng.uniform(-1.0, 1.0, max(1, model.num_sections))


@dataclass(frozen=True)
class Clutter:
    """4 x level circles and rectangles around the way of a bent robot, which the right pressures would take freely."""

    lengths: tuple[float, float] = (0.7, 1.05)
    """[m]"""
    curvature: float = 2.0
    """Largest bend of a section [1/m]."""
    most: int = 12
    """M; those that a level does not use stand far behind the robot."""

    def furnish(self, model: VineModel) -> VineModel:
        """With M shapes."""
        kinds: list[Shape] = []
        for m in range(self.most):
            size = 0.025 + 0.0125 * (m // 2 % 3)
            kinds.append(Circle(size) if m % 2 == 0 else box(size, 1.6 * size))
        return with_obstacles(model, tuple(Obstacle(shape) for shape in kinds))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Obstacles as near to the way as `CLEAR` allows, or anywhere in the field."""
        length, bend = Open(self.lengths, self.curvature).bend(model, rng)
        way = bent_axis(model, length, bend)
        early = [bent_axis(model, 1.2 * model.initial_length, share * bend) for share in np.linspace(0.0, 1.0, 5)]
        kept_free = np.concatenate([way, *early])
        poses = np.column_stack([-3.0 - rng.random(self.most), rng.uniform(-1, 1, self.most), rng.random(self.most)])
        for m in range(min(self.most, round(4 * level))):
            found = self._place(model.obstacles[m].shape, kept_free, way, model.radius + CLEAR, rng)
            poses[m] = poses[m] if found is None else found
        return Drawn(poses, way[-1])

    def _place(self, shape: Shape, kept_free: Array, way: Array, clear: float, rng: np.random.Generator) -> Array | None:
        """A pose at which the shape leaves the way free; at first close to it."""
        for _ in range(TRIALS):
            near = way[rng.integers(len(way) // 4, len(way))] + rng.uniform(-0.15, 0.15, 2)
            pose = np.array([*near, rng.uniform(-np.pi, np.pi)])
            if shape.distance(to_local(kept_free, pose)).min() > clear:
                return pose
        return None


@dataclass(frozen=True)
class Gap:
    """A barrier with a gap a few mm wider than the tube, between two slanted jaws; the goal is behind it.

    Free motion would have to be exact to a few mm and hit the gap at a right angle; leaning on a jaw leads into it.
    """

    clearances: tuple[float, float] = (0.002, 0.008)
    """Width of the gap less the tube's diameter at level 1 [m]; at level k it is divided by k."""
    distance: tuple[float, float] = (0.5, 0.6)
    """Distance of the barrier [m], (low, high)."""
    side: float = 0.1
    """Largest sideways place of the gap [m]."""
    tilt: float = 0.1
    """Largest angle of the barrier [rad]."""

    def furnish(self, model: VineModel) -> VineModel:
        """With two jaws."""
        upper = ((-0.08, 0.08), (0.0, 0.0), (0.04, 0.0), (0.04, 0.6), (-0.08, 0.6))
        lower = tuple((x, -y) for x, y in reversed(upper))
        return with_obstacles(model, (Obstacle(Polygon(upper)), Obstacle(Polygon(lower))))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Place and width of the gap."""
        x, y, clear = rng.uniform(*self.distance), rng.uniform(-self.side, self.side), rng.uniform(*self.clearances)
        half = model.radius + 0.5 * clear / max(level, 1.0)
        tilt = rng.uniform(-self.tilt, self.tilt)
        across = half * np.array([-np.sin(tilt), np.cos(tilt)])
        goal = np.array([x + rng.uniform(0.2, 0.3), y + rng.uniform(-0.05, 0.05)])
        return Drawn(np.array([(x + across[0], y + across[1], tilt), (x - across[0], y - across[1], tilt)]), goal)


@dataclass(frozen=True)
class WallAhead:
    """A wall across the way (growth into a wall, [Jitosho2021] IV-B2); the goal is where sliding along it leads."""

    distance: tuple[float, float] = (0.45, 0.6)
    """Along the x axis [m]."""
    tilt: float = 0.5
    """Largest angle of the wall from a right angle to the way [rad]; at least a quarter of it."""
    slide: tuple[float, float] = (0.15, 0.35)
    """Way of the goal along the wall [m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """With one wall."""
        return with_obstacles(model, (Obstacle(Wall()),))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Place and angle of the wall; the goal on the side to which it deflects the robot."""
        x, sign = rng.uniform(*self.distance), rng.choice((-1.0, 1.0))
        angle = np.pi + sign * self.tilt * rng.uniform(0.25, 1.0)
        normal = np.array([np.cos(angle), np.sin(angle)])
        along = np.array([-normal[1], normal[0]])
        along *= np.sign(along[0])  # growth goes on in the direction that leads forward
        goal = np.array([x, 0.0]) + rng.uniform(*self.slide) * along + (model.radius + 0.005) * normal
        place = np.array([x, 0.0]) + rng.uniform(-0.1, 0.1) * along  # another point of the same wall
        return Drawn(np.array([(*place, angle)]), goal)


@dataclass(frozen=True)
class PaperClutter:
    """The cluttered scene of [Jitosho2021] IV-C, whose walls lead the growing robot to the end of the passage."""

    def furnish(self, model: VineModel) -> VineModel:
        """The authors' robot (15 mm, 52 degrees down) among their six rectangles."""
        scene = cluttered_scene()
        robot = replace(model, radius=0.5 * scene.diameter, base=(0.0, 0.0, scene.heading), max_growth=0.205)
        return with_obstacles(robot, scene.obstacles)

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Always the same scene; the goal is where the authors' robot is after 3 s, moved by up to 1 cm."""
        return Drawn(model.poses, np.array([0.51, -0.71]) + rng.uniform(-0.01, 0.01, 2))


def box(width: float, height: float) -> Polygon:
    """A rectangle about its pose [m]."""
    w, h = 0.5 * width, 0.5 * height
    return Polygon(((-w, -h), (w, -h), (w, h), (-w, h)))


def bent_axis(model: VineModel, length: float, bend: Array) -> Array:
    """Joints of a robot of some length with one curvature in every section [1/m], (N + 1, 2) [m]."""
    curvature = bend[np.minimum(model.section_of_joint, len(bend) - 1)]
    steps = np.diff(np.minimum(np.arange(model.num_links + 1) * model.link_length, length))
    theta = model.base[2] + np.cumsum(curvature * model.link_length) - 0.5 * curvature * model.link_length
    ends = np.cumsum(steps[:, None] * np.stack([np.cos(theta), np.sin(theta)], axis=1), axis=0)
    return np.array(model.base[:2]) + np.concatenate([np.zeros((1, 2)), ends])
