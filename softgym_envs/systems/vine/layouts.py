"""Layouts of obstacles and goals: open field, barriers with openings, a narrow gap, a wall, the paper's scene.

A layout has a fixed set of shapes (structure of the model) and draws their poses and a goal for every episode. All layouts are
for a robot whose base is the world's origin, heading along +x, unless they say otherwise.
Legend: M obstacles, N links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from ...core.errors import OptionError
from ...core.simulator import Array
from .free_paths import bent_axes, random_ways
from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Shape, segment_distance, to_local

CLEAR = 0.012
"""Free space beside the tube of a robot on its way to the goal [m]."""
BEHIND = -3.0
"""Coordinate beyond which obstacles stand that a level does not use [m]."""
AWAY = 0.1
"""[m] Least distance of goals in the open from the line along which the robot leaves its reel."""


class Drawn(NamedTuple):
    """Obstacles and goal of an episode."""

    poses: Array
    """(M, 3) [m, m, rad]"""
    goal: Array
    """(2,) [m]"""


class Layout(Protocol):
    """See the module docstring."""

    levels: ClassVar[bool]
    """Whether `draw` depends on the level."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with the layout's shapes."""

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """One episode, at a level of difficulty.

        Raises:
            OptionError: There is none, e.g. because obstacles leave no way free.
        """


@dataclass(frozen=True)
class Open:
    """Obstacles stay where the model has them. The goal is where a robot of some length and bend in every section ends.

    No obstacle is in the way of that robot, and the goal is `AWAY` from the line ahead.
    """

    levels: ClassVar[bool] = False

    lengths: tuple[float, float] = (0.45, 1.0)
    """[m]"""
    curvature: float = 2.0
    """Largest bend of a section [1/m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model unchanged."""
        return model

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Draw a goal within reach."""
        x, y, heading = model.base
        for way in random_ways(model, rng, self.lengths, self.curvature):
            to = way.goal - (x, y)
            axes = way.all_axes(model) if model.obstacles else np.zeros((0, 1, 2))
            if abs(np.cos(heading) * to[1] - np.sin(heading) * to[0]) > AWAY and is_free(model, model.poses, axes):
                return Drawn(model.poses, way.goal)
        raise OptionError(f"obstacles leave no way free to a goal; {self.lengths} m long ways were tried")


@dataclass(frozen=True)
class Doors:
    """Barriers across the way of a bent robot, each with an opening, and blocks beside the way.

    The ways that the goal suggests, an arc and a straight line, end at the first barrier, so that the opening has to be
    seen. Level k has k barriers, and openings of `width` / k^`narrower`.
    """

    levels: ClassVar[bool] = True

    lengths: tuple[float, float] = (1.0, 1.15)
    """[m]"""
    curvature: float = 3.0
    """Largest bend of a section [1/m]."""
    stations: tuple[float, ...] = (0.5, 0.72, 0.9)
    """Distance along the way to each barrier [m]."""
    width: float = 0.08
    """Width of an opening at level 1 [m]."""
    narrower: float = 0.3
    """Exponent: at level 3 an opening is 0.058 m wide."""
    beside: float = 0.065
    """Least distance of the suggested ways from the middle of the first opening [m]."""
    blocks: int = 4
    """Circles and rectangles beside the way."""
    board: ClassVar[tuple[float, float]] = (0.02, 0.5)
    """Thickness and length of the two boards of a barrier [m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with two boards per barrier, then the blocks."""
        shapes = [*[box(*self.board)] * (2 * len(self.stations)), *blocks(self.blocks)]
        return with_obstacles(model, tuple(Obstacle(shape, BEHIND) for shape in shapes))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Draw openings on a way, which ends at the goal."""
        number = min(max(int(np.ceil(level)), 1), len(self.stations))
        width = self.width / level**self.narrower
        ways = random_ways(model, rng, self.lengths, self.curvature, station=self.stations[0], beside=self.beside)
        for way in ways:
            poses = hidden(len(model.obstacles), rng)
            for k, station in enumerate(self.stations[:number]):
                poses[2 * k : 2 * k + 2] = self._barrier(*way.at(station), width)
            axes = way.all_axes(model)
            if is_free(model, poses, axes):
                scatter(model, axes, poses, range(2 * len(self.stations), len(poses)), rng)
                return Drawn(poses, way.goal)
        raise OptionError(f"no way through openings of {width:.3g} m was found")

    def _barrier(self, middle: Array, heading: float, width: float) -> Array:
        """Poses of two boards at right angles to the way, (2, 3)."""
        across = np.array([-np.sin(heading), np.cos(heading)])
        half = 0.5 * (width + self.board[1])
        return np.array([(*(middle + side * half * across), heading) for side in (1.0, -1.0)])


@dataclass(frozen=True)
class Clutter:
    """4 x level circles and rectangles beside the way of a bent robot."""

    levels: ClassVar[bool] = True

    lengths: tuple[float, float] = (0.7, 1.05)
    """[m]"""
    curvature: float = 2.0
    """Largest bend of a section [1/m]."""
    most: int = 12
    """M; those that a level does not use are hidden."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with M shapes."""
        return with_obstacles(model, tuple(Obstacle(shape, BEHIND) for shape in blocks(self.most)))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Draw blocks beside a way, which ends at the goal."""
        way = next(random_ways(model, rng, self.lengths, self.curvature))
        poses = hidden(self.most, rng)
        scatter(model, way.all_axes(model), poses, range(min(self.most, round(4 * level))), rng)
        return Drawn(poses, way.goal)


@dataclass(frozen=True)
class Gap:
    """A barrier across the way of a bent robot, with a gap a few mm wider than the tube between two slanted jaws.

    Free motion would have to be exact to a few mm and hit the gap at a right angle; leaning on a jaw leads into it.
    The ways that the goal suggests, an arc and a straight line, miss the jaws' mouth.
    """

    levels: ClassVar[bool] = True

    lengths: tuple[float, float] = (0.95, 1.15)
    """[m]"""
    curvature: float = 3.0
    """Largest bend of a section [1/m]."""
    clearances: tuple[float, float] = (0.004, 0.008)
    """Width of the gap less the tube's diameter at level 1 [m]; at level k it is divided by k."""
    stations: tuple[float, float] = (0.5, 0.6)
    """Distance along the way to the gap [m], (low, high)."""
    tilt: float = 0.1
    """Largest angle between the way and the gap at level 1 [rad]; k times that at level k."""
    mouth: float = 0.045
    """Half width of the jaws' mouth [m]."""
    beside: float = 0.015
    """Least distance of the suggested ways from the mouth [m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with two jaws."""
        m = self.mouth
        upper = ((-m, m), (0.0, 0.0), (0.03, 0.0), (0.03, 0.6), (-m, 0.6))
        lower = tuple((x, -y) for x, y in reversed(upper))
        return with_obstacles(model, (Obstacle(Polygon(upper), BEHIND), Obstacle(Polygon(lower), BEHIND)))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Draw place and width of the gap, on a way, which ends at the goal."""
        station = rng.uniform(*self.stations)
        half = model.radius + 0.5 * rng.uniform(*self.clearances) / level
        turn = level * rng.uniform(-self.tilt, self.tilt)
        beside = self.mouth + self.beside
        for way in random_ways(model, rng, self.lengths, self.curvature, station=station, beside=beside):
            middle, heading = way.at(station)
            across = half * np.array([-np.sin(heading + turn), np.cos(heading + turn)])
            poses = np.array([(*(middle + side * across), heading + turn) for side in (1.0, -1.0)])
            near = np.flatnonzero(np.linalg.norm(way.axis - middle, axis=1) < 2 * self.mouth)
            points = np.arange(len(way.axis))
            parts = [way.axis[np.minimum(points, near[0] - 1)], way.axis[np.maximum(points, near[-1] + 1)]]
            if is_free(model, poses, np.concatenate([parts, way.early(model)])):
                return Drawn(poses, way.goal)
        raise OptionError("no way through a gap was found")


@dataclass(frozen=True)
class Plate:
    """A wall across the way that ends near the axis on one side; the goal is behind it, where no free motion leads.

    The robot grows along the wall to its end ([Jitosho2021] IV-B2), and leans on the edge to bend back behind it. The goal is
    anywhere between the sharpest turn around the end without leaning and the sharpest with it, so that a policy that does not
    observe wall and goal misses it.
    """

    levels: ClassVar[bool] = True

    distance: tuple[float, float] = (0.4, 0.5)
    """Distance of the wall along the x axis [m]."""
    end: tuple[float, float] = (0.03, 0.1)
    """Lateral distance at which the wall ends at level 1 [m]; `further` more per level."""
    further: float = 0.025
    """Additional lateral distance per level [m]."""
    tilt: float = 0.3
    """Largest angle of the wall from a right angle to the way [rad]."""
    behind: tuple[float, float] = (0.2, 0.36)
    """Distance from the wall to the goal along x [m]."""
    free: ClassVar[float] = 4.0
    """Largest bend of a section that touches nothing [1/m]."""
    leaning: ClassVar[float] = 2.6
    """Largest mean bend from the end of the wall to the goal [1/m]."""
    size: ClassVar[tuple[float, float]] = (0.03, 0.6)
    """Thickness and length of the wall [m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with one wall."""
        return with_obstacles(model, (Obstacle(box(*self.size), BEHIND),))

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Draw place and angle of the wall; its free end is left or right."""
        x, side = rng.uniform(*self.distance), rng.choice((-1.0, 1.0))
        end = rng.uniform(*self.end) + self.further * (level - 1.0)
        angle = rng.uniform(-self.tilt, self.tilt)
        along = side * np.array([-np.sin(angle), np.cos(angle)])
        place = np.array([x, side * end]) - 0.5 * self.size[1] * along
        behind = rng.uniform(*self.behind)
        free = self._free(model, x, end, behind)
        aside = rng.uniform(min(free, end - 0.5 * self.leaning * behind**2), free)
        return Drawn(np.array([(*place, angle)]), np.array([x + behind, side * aside]))

    def _free(self, model: VineModel, x: float, end: float, behind: float) -> float:
        """Lateral distance [m], `behind` the wall, of a way whose first section leads to the end; the second turns back."""
        bend = np.array([[2.0 * end / (x**2 + end**2), -self.free]])
        way = bent_axes(model, np.array([model.max_length]), bend)[0]
        first = way[: np.argmax(way[:, 0]) + 1]
        return float(np.interp(x + behind, first[:, 0], first[:, 1]))


@dataclass(frozen=True)
class PaperClutter:
    """The cluttered scene of [Jitosho2021] IV-C, whose walls lead the growing robot to the end of the passage."""

    levels: ClassVar[bool] = False

    def furnish(self, model: VineModel) -> VineModel:
        """The authors' robot (15 mm, 52 degrees down) among their six rectangles."""
        robot = replace(model, radius=0.5 * 0.015, base=(0.0, 0.0, float(np.deg2rad(-52.0))), max_growth=0.205)
        return with_obstacles(robot, paper_obstacles())

    def draw(self, model: VineModel, rng: np.random.Generator, level: float) -> Drawn:
        """Always the same scene; the goal is where the authors' robot is after 3 s, moved by up to 1 cm."""
        return Drawn(model.poses, np.array([0.51, -0.71]) + rng.uniform(-0.01, 0.01, 2))


def hidden(count: int, rng: np.random.Generator) -> Array:
    """Poses behind the robot, out of its reach, (M, 3)."""
    return np.column_stack([BEHIND - rng.random(count), rng.uniform(-1, 1, count), rng.random(count)])


def apart(shape: Shape, pose: Array, axes: Array) -> float:
    """Smallest distance of lines of points (..., k, 2) from a shape [m]; negative where one crosses it."""
    local = to_local(axes, pose)
    return float(segment_distance(shape, local[..., :-1, :], local[..., 1:, :]).min(initial=np.inf))


def is_free(model: VineModel, poses: Array, axes: Array) -> bool:
    """Whether tubes along lines of points (..., k, 2) leave `CLEAR` to all obstacles that are not hidden."""
    shown = (k for k, pose in enumerate(poses) if pose[0] > BEHIND)
    return all(apart(model.obstacles[k].shape, poses[k], axes) > model.radius + CLEAR for k in shown)


def blocks(count: int) -> list[Shape]:
    """Circles and rectangles in turn, of three sizes."""
    sizes = [0.025 + 0.0125 * (m // 2 % 3) for m in range(count)]
    return [Circle(size) if m % 2 == 0 else box(size, 1.6 * size) for m, size in enumerate(sizes)]


def scatter(model: VineModel, axes: Array, poses: Array, places: range, rng: np.random.Generator) -> None:
    """Put some of the obstacles beside a way, `Way.all_axes`; one for which no place is found stays where it is. In place."""
    for m in places:
        for _ in range(20):
            near = axes[-1, rng.integers(axes.shape[1] // 3, axes.shape[1])] + rng.uniform(-0.2, 0.2, 2)
            pose = np.array([*near, rng.uniform(-np.pi, np.pi)])
            if apart(model.obstacles[m].shape, pose, axes) > model.radius + 2 * CLEAR:
                poses[m] = pose
                break


def box(width: float, height: float) -> Polygon:
    """A rectangle about its pose [m]."""
    w, h = 0.5 * width, 0.5 * height
    return Polygon(((-w, -h), (w, -h), (w, h), (-w, h)))


def paper_obstacles() -> tuple[Obstacle, ...]:
    """The six rectangles of [Jitosho2021] IV-C."""
    inch = 0.0254
    boxes = ((5.5, -5, 4, 7), (4, -17, 7, 5), (13.5, -17, 8, 6), (13.5, -30, 4, 5), (20.5, -30, 4, 5), (13.5, -30, 10, 1))
    return tuple(box_at((x + 0.5 * w) * inch, (y + 0.5 * h) * inch, 0.5 * w * inch, 0.5 * h * inch) for x, y, w, h in boxes)


def box_at(x: float, y: float, w: float, h: float) -> Obstacle:
    """A rectangle of half sizes w, h about (x, y) [m]; upper right corner first: of two faces at a corner, that is taken."""
    return Obstacle(Polygon(((w, h), (-w, h), (-w, -h), (w, -h))), x, y)
