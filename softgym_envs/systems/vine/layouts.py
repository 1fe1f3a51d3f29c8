"""Layouts of obstacles and goals: open field, barriers with openings, a narrow gap, a wall, the paper's scene.

A layout has a fixed set of shapes (structure of the model) and draws their poses and a goal for every episode. All layouts are
for a robot whose base is the world's origin, heading along +x, unless they say otherwise. Random numbers of a row come from its
own generator, all geometry is computed for many rows at once. Legend: B rows, M obstacles, N links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...core.errors import OptionError
from ...core.simulator import Array
from ...core.task import BoolArray
from .free_paths import Ways, arc_to, bent_axes, first_ways
from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Shape, lines_apart

CLEAR = 0.012
"""Free space beside the tube of a robot on its way to the goal [m]."""
BEHIND = -3.0
"""Coordinate beyond which obstacles stand that a level does not use [m]."""
NEAR, TRIED = 0.2, 20
"""Largest distance of a block from a point of a way, in x and in y [m], and number of places that are tried."""
RARE = 200
"""Batches of ways that are tried where one way in a hundred is free: ten leave one of some 20,000 episodes without."""
AWAY = 0.1
"""[m] Least distance of goals in the open from the line along which the robot leaves its reel."""


Generators = Sequence[np.random.Generator]


class Drawn(NamedTuple):
    """Obstacles and goals of episodes."""

    poses: Array
    """(B, M, 3) [m, m, rad]"""
    goal: Array
    """(B, 2) [m]"""


class Layout(Protocol):
    """See the module docstring."""

    levels: ClassVar[bool]
    """Whether `draw` depends on the level."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with the layout's shapes."""

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """One episode for each generator (B,), at a level of difficulty.

        Raises:
            OptionError: A row has none, e.g. because obstacles leave no way free.
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

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw a goal within reach."""
        x, y, heading = model.base
        poses, goals = np.repeat(model.poses[None], len(rngs), axis=0), np.empty((len(rngs), 2))

        def accept(rows: NDArray[np.intp], ways: Ways) -> BoolArray:
            to = ways.goal - (x, y)
            fits = np.abs(np.cos(heading) * to[:, 1] - np.sin(heading) * to[:, 0]) > AWAY
            if model.obstacles:
                fits &= are_free(model, poses[rows], ways.all_axes(model))
            goals[rows] = ways.goal
            return fits

        if first_ways(model, rngs, self.lengths, self.curvature, accept).any():
            raise OptionError(f"obstacles leave no way free to a goal; {self.lengths} m long ways were tried")
        return Drawn(poses, goals)


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

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw openings on a way, which ends at the goal."""
        number = min(max(int(np.ceil(level)), 1), len(self.stations))
        width = self.width / level**self.narrower
        poses, goals = np.empty((len(rngs), len(model.obstacles), 3)), np.empty((len(rngs), 2))
        axes = np.empty((len(rngs), 6, model.num_links + 1, 2))

        def accept(rows: NDArray[np.intp], ways: Ways) -> BoolArray:
            poses[rows], goals[rows], axes[rows] = hidden(len(model.obstacles), rngs, rows), ways.goal, ways.all_axes(model)
            for k, station in enumerate(self.stations[:number]):
                poses[rows, 2 * k : 2 * k + 2] = self._barriers(*ways.at(np.full(len(rows), station)), width)
            return are_free(model, poses[rows], axes[rows])

        first = np.full(len(rngs), self.stations[0])
        if first_ways(model, rngs, self.lengths, self.curvature, accept, station=first, beside=self.beside).any():
            raise OptionError(f"no way through openings of {width:.3g} m was found")
        scatter(model, axes, poses, range(2 * len(self.stations), len(model.obstacles)), rngs)
        return Drawn(poses, goals)

    def _barriers(self, middle: Array, heading: Array, width: float) -> Array:
        """Poses of two boards at right angles to each way, (k, 2, 3)."""
        across = np.stack([-np.sin(heading), np.cos(heading)], axis=1)
        half = 0.5 * (width + self.board[1])
        return np.stack([np.column_stack([middle + side * half * across, heading]) for side in (1.0, -1.0)], axis=1)


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

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw blocks beside a way, which ends at the goal."""
        poses, goals = np.empty((len(rngs), self.most, 3)), np.empty((len(rngs), 2))
        axes = np.empty((len(rngs), 6, model.num_links + 1, 2))

        def accept(rows: NDArray[np.intp], ways: Ways) -> BoolArray:
            poses[rows], goals[rows], axes[rows] = hidden(self.most, rngs, rows), ways.goal, ways.all_axes(model)
            return np.ones(len(rows), dtype=np.bool_)

        first_ways(model, rngs, self.lengths, self.curvature, accept)
        scatter(model, axes, poses, range(min(self.most, round(4 * level))), rngs)
        return Drawn(poses, goals)


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

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw place and width of the gap, on a way, which ends at the goal."""
        drawn = np.array([rng.random(3) for rng in rngs])
        (nearest, farthest), (least, most) = self.stations, self.clearances
        station = nearest + (farthest - nearest) * drawn[:, 0]
        half = model.radius + 0.5 * (least + (most - least) * drawn[:, 1]) / level
        turn = level * (-self.tilt + 2.0 * self.tilt * drawn[:, 2])
        poses, goals = np.empty((len(rngs), 2, 3)), np.empty((len(rngs), 2))

        def accept(rows: NDArray[np.intp], ways: Ways) -> BoolArray:
            middle, heading = ways.at(station[rows])
            angle = heading + turn[rows]
            across = half[rows, None] * np.stack([-np.sin(angle), np.cos(angle)], axis=1)
            poses[rows] = np.stack([np.column_stack([middle + side * across, angle]) for side in (1.0, -1.0)], axis=1)
            goals[rows] = ways.goal
            apart = ways.axis - middle[:, None]
            near = np.sqrt((apart * apart).sum(axis=-1)) < 2 * self.mouth
            before, after = near.argmax(axis=1) - 1, near.shape[1] - near[:, ::-1].argmax(axis=1)
            points, every = np.arange(near.shape[1]), np.arange(len(rows))[:, None]
            ends = [np.minimum(points, before[:, None]), np.maximum(points, after[:, None])]
            parts = np.stack([ways.axis[every, points_on] for points_on in ends], axis=1)
            return are_free(model, poses[rows], np.concatenate([parts, ways.early(model)], axis=1))

        beside = self.mouth + self.beside
        if first_ways(model, rngs, self.lengths, self.curvature, accept, station=station, beside=beside).any():
            raise OptionError("no way through a gap was found")
        return Drawn(poses, goals)


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

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw place and angle of the wall; its free end is left or right."""
        drawn = [self._wall(rng, level) for rng in rngs]
        bends = np.array([[2.0 * wall.end / (wall.x**2 + wall.end**2), -self.free] for wall in drawn])
        ways = bent_axes(model, np.full(len(rngs), model.max_length), bends)
        poses, goals = np.empty((len(rngs), 1, 3)), np.empty((len(rngs), 2))
        for row, (wall, way, rng) in enumerate(zip(drawn, ways, rngs, strict=True)):
            first = way[: np.argmax(way[:, 0]) + 1]
            free = float(np.interp(wall.x + wall.behind, first[:, 0], first[:, 1]))
            aside = rng.uniform(min(free, wall.end - 0.5 * self.leaning * wall.behind**2), free)
            poses[row], goals[row] = wall.pose, (wall.x + wall.behind, wall.side * aside)
        return Drawn(poses, goals)

    def _wall(self, rng: np.random.Generator, level: float) -> _Wall:
        x, side = rng.uniform(*self.distance), (-1.0, 1.0)[rng.integers(2)]
        end = rng.uniform(*self.end) + self.further * (level - 1.0)
        angle = rng.uniform(-self.tilt, self.tilt)
        half = 0.5 * self.size[1]
        pose = (x - half * (side * -np.sin(angle)), side * end - half * (side * np.cos(angle)), angle)
        return _Wall(x, side, end, rng.uniform(*self.behind), pose)


class _Wall(NamedTuple):
    """A wall of `Plate`."""

    x: float
    """Distance along the x axis [m]."""
    side: float
    """Side of its free end, -1 or 1."""
    end: float
    """Lateral distance of its free end [m]."""
    behind: float
    """Distance from the wall to the goal along x [m]."""
    pose: tuple[float, float, float]
    """[m, m, rad]"""


@dataclass(frozen=True)
class Pocket:
    """A pocket on the arc that the goal suggests, open towards the robot, and the goal behind it.

    A robot that follows the arc, or what brings it nearer to the goal at once, ends in the pocket and cannot come back. The way
    of a bent robot leads around it.
    """

    levels: ClassVar[bool] = False

    lengths: tuple[float, float] = (0.9, 1.15)
    """[m]"""
    curvature: float = 3.6
    """Largest bend of a section [1/m]."""
    station: float = 0.75
    """Distance along the arc to the back of the pocket [m]."""
    depth: float = 0.15
    """Length of the sides [m]."""
    width: float = 0.2
    """Inner width [m]."""
    aside: float = 0.6
    """Largest bend of the arc [1/m]: the pocket is on the straight line to the goal as well."""
    thickness: ClassVar[float] = 0.02
    """Of the three boards [m]."""
    beyond: ClassVar[float] = 0.1
    """Least distance of the goal behind the back [m]."""

    def furnish(self, model: VineModel) -> VineModel:
        """The model with two sides and a back."""
        side, back = box(self.depth, self.thickness), box(self.thickness, self.width + 2.0 * self.thickness)
        return with_obstacles(model, (Obstacle(side, BEHIND), Obstacle(side, BEHIND), Obstacle(back, BEHIND)))

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Draw a way that ends at the goal, and put the pocket on the arc from the base to it."""
        poses, goals = np.empty((len(rngs), 3, 3)), np.empty((len(rngs), 2))

        def accept(rows: NDArray[np.intp], ways: Ways) -> BoolArray:
            goals[rows] = ways.goal
            bend, length = arc_to(model, ways.goal)
            arcs = Ways(bend[:, None], bent_axes(model, length, np.repeat(bend[:, None], max(1, model.num_sections), axis=1)))
            poses[rows] = self._boards(*arcs.at(np.full(len(rows), self.station)))
            fits = (length > self.station + self.beyond) & (np.abs(bend) < self.aside)
            return fits & are_free(model, poses[rows], ways.all_axes(model))

        if first_ways(model, rngs, self.lengths, self.curvature, accept, trials=RARE).any():
            raise OptionError("no way around a pocket was found")
        return Drawn(poses, goals)

    def _boards(self, back: Array, heading: Array) -> Array:
        """Poses of sides and back, (k, 3, 3)."""
        ahead = np.stack([np.cos(heading), np.sin(heading)], axis=1)
        across = np.stack([-ahead[:, 1], ahead[:, 0]], axis=1)
        half, middle = 0.5 * (self.width + self.thickness), back - 0.5 * (self.depth + self.thickness) * ahead
        places = (middle + half * across, middle - half * across, back)
        return np.stack([np.column_stack([place, heading]) for place in places], axis=1)


@dataclass(frozen=True)
class PaperClutter:
    """The cluttered scene of [Jitosho2021] IV-C, whose walls lead the growing robot to the end of the passage."""

    levels: ClassVar[bool] = False

    def furnish(self, model: VineModel) -> VineModel:
        """The authors' robot (15 mm, 52 degrees down) among their six rectangles."""
        robot = replace(model, radius=0.5 * 0.015, base=(0.0, 0.0, float(np.deg2rad(-52.0))), max_growth=0.205)
        return with_obstacles(robot, paper_obstacles())

    def draw(self, model: VineModel, rngs: Generators, level: float) -> Drawn:
        """Always the same scene; the goal is where the authors' robot is after 3 s, moved by up to 1 cm."""
        goals = np.array([0.51, -0.71]) + np.array([rng.uniform(-0.01, 0.01, 2) for rng in rngs])
        return Drawn(np.repeat(model.poses[None], len(rngs), axis=0), goals)


def hidden(count: int, rngs: Generators, rows: NDArray[np.intp]) -> Array:
    """Poses behind the robot, out of its reach, (k, M, 3), for some rows (k,)."""
    x, y, angle = np.array([rngs[row].random(3 * count) for row in rows.tolist()]).reshape(-1, 3, count).transpose(1, 0, 2)
    return np.stack([BEHIND - x, -1.0 + 2.0 * y, angle], axis=-1)


def are_free(model: VineModel, poses: Array, axes: Array) -> BoolArray:
    """Whether tubes along lines of points (B, L, k, 2) leave `CLEAR` to all obstacles (B, M, 3) that are not hidden, (B,)."""
    fits = np.ones(len(axes), dtype=np.bool_)
    for k, obstacle in enumerate(model.obstacles):
        shown = np.flatnonzero(fits & (poses[:, k, 0] > BEHIND))
        if len(shown):
            fits[shown] = lines_apart(obstacle.shape, poses[shown, k], axes[shown], model.radius + CLEAR)
    return fits


def blocks(count: int) -> list[Shape]:
    """Circles and rectangles in turn, of three sizes."""
    sizes = [0.025 + 0.0125 * (m // 2 % 3) for m in range(count)]
    return [Circle(size) if m % 2 == 0 else box(size, 1.6 * size) for m, size in enumerate(sizes)]


def scatter(model: VineModel, axes: Array, poses: Array, places: range, rngs: Generators) -> None:
    """Put some of the obstacles (B, M, 3) beside ways, `Ways.all_axes`; one that finds no place stays where it is. In place."""
    points = axes.shape[2]
    for m in places:
        left = np.arange(len(rngs))
        for _ in range(TRIED):
            beside = [rngs[row].integers(points // 3, points) for row in left.tolist()]
            drawn = np.array([rngs[row].random(3) for row in left.tolist()])
            near = axes[left, -1, beside] + (-NEAR + 2.0 * NEAR * drawn[:, :2])
            pose = np.column_stack([near, -np.pi + 2.0 * np.pi * drawn[:, 2]])
            fits = lines_apart(model.obstacles[m].shape, pose, axes[left], model.radius + 2 * CLEAR)
            poses[left[fits], m] = pose[fits]
            left = left[~fits]
            if not len(left):
                break


def box(width: float, height: float) -> Polygon:
    """A rectangle about its pose [m]."""
    w, h = 0.5 * width, 0.5 * height
    return Polygon(((-w, -h), (w, -h), (w, h), (-w, h)))


def paper_obstacles() -> tuple[Obstacle, ...]:
    """The six rectangles of [Jitosho2021] IV-C, upper right corner first: of two faces at a corner, that is taken."""
    inch = 0.0254
    boxes = ((5.5, -5, 4, 7), (4, -17, 7, 5), (13.5, -17, 8, 6), (13.5, -30, 4, 5), (20.5, -30, 4, 5), (13.5, -30, 10, 1))
    found = []
    for x, y, width, height in boxes:
        w, h = 0.5 * width * inch, 0.5 * height * inch
        corners = ((w, h), (-w, h), (-w, -h), (w, -h))
        found.append(Obstacle(Polygon(corners), (x + 0.5 * width) * inch, (y + 0.5 * height) * inch))
    return tuple(found)
