"""A tensegrity robot as a scene (rods, caps, cables coloured by tension, terrain, trail, goal, velocities), and driven by keys.

Pure functions of model and state: one state always gives one picture. Legend: R rods, C cables, m motors, k trail points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...rendering.colors import CAP, COMMAND, GOAL, ROD, SLACK, TRAIL, VELOCITY, as_color, tension_colors
from ...rendering.picture import BasePicture, shown
from ...rendering.scene import Arrow, GroundGrid, Legend, Marker, Primitive, Scene, Segment, Sphere, Trail
from .controllers import rolling
from .model import TensegrityModel
from .terrain import Terrain

CABLE_WIDTH = 0.014
"""[m] on a robot whose longest rod is 1.684 m; scales with it."""


class TensegrityPicture(BasePicture):
    """Draws and drives tensegrity robots; see `rendering.picture.Picture`."""

    keys: ClassVar[Mapping[str, str]] = {"arrows": "roll", "1-6": "pull cables", "space": "let go"}

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """Rods, cables and ground, with the hints "trail", "goal" and "velocity"."""
        parameter_values = {
            name: float(np.ravel(getattr(parameters, name))[0]) for name in ("cable_stiffness", "rest_length", "terrain_scale")
        }
        tensions = simulator.cable_tensions(np.asarray(state, dtype=np.float64)[None], parameters)[0]
        return tensegrity_scene(
            simulator.model,
            state[: simulator.model.layout.nx],
            tensions,
            max_tension=tension_scale(parameter_values["cable_stiffness"] * parameter_values["rest_length"]),
            terrain_scale=parameter_values["terrain_scale"],
            **shown(hints, "trail", "goal", "velocity"),
        )

    def followed(self, model: TensegrityModel, state: Array) -> Array:
        """The centre of mass, (3,) [m]."""
        return np.asarray(model.center_of_mass(state))

    def heading_action(self, model: TensegrityModel, state: Array, heading: Array) -> Array:
        """Action of `controllers.rolling`."""
        return rolling(model, state, heading)


PICTURE = TensegrityPicture()


def tension_scale(force: float) -> float:
    """A quarter of the force [N] that would double a cable's length, rounded to one digit of 1, 2 or 5.

    >>> tension_scale(9500.0)
    2000.0
    """
    quarter = max(0.25 * force, 1e-9)
    power = 10.0 ** np.floor(np.log10(quarter))
    return float(power * max(digit for digit in (1.0, 2.0, 5.0) if digit <= quarter / power * (1 + 1e-12)))


def tensegrity_scene(
    model: TensegrityModel,
    state: Array,
    tensions: Array,
    *,
    max_tension: float,
    terrain_scale: float = 1.0,
    trail: Array | None = None,
    goal: Array | None = None,
    velocity: Array | None = None,
) -> Scene:
    """Everything visible of one robot.

    Args:
        model: The robot and its ground.
        state: One state (nx,).
        tensions: Cable tensions (C,) [N]; a cable without tension is slack and drawn grey and dashed.
        max_tension: The tension [N] of the darkest colour.
        terrain_scale: The constant of that name, which multiplies the terrain's heights.
        trail: Earlier centres of mass (k, 3) [m], oldest first.
        goal: A point to reach (3,) [m], marked on the ground, and in view if it is not far.
        velocity: A commanded velocity (3,) [m/s]: an arrow of one second's length or half a robot's, beside the actual one.

    Raises:
        ShapeError: An argument has the wrong shape, or is not finite.
    """
    state = check_array("state", state, (model.layout.nx,))
    tensions = check_array("tensions", tensions, (model.num_cables,))
    com = model.center_of_mass(state)
    extent = float(model.rod_lengths.max()) + 2 * model.cap_radius
    ground = _ground(model.terrain, com, 2.3 * extent, terrain_scale)
    parts: list[Primitive] = [ground, *_bodies(model, state), *_cables(model, state, tensions, max_tension)]
    over: list[Primitive] = []
    if trail is not None:
        parts.append(Trail(check_array("trail", trail, (None, 3)), 0.016 * extent, TRAIL))
    if goal is not None:
        x, y, _ = goal = check_array("goal", goal, (3,))
        parts.append(Marker(np.array([x, y, float(ground.height(x, y))]), 0.22 * extent, GOAL))
        parts += _towards(ground, com, np.array([x, y]), extent)
    if velocity is not None:
        command = check_array("velocity", velocity, (3,))
        wanted, actual = _velocities(ground, com, command, model.com_velocity(state), extent)
        parts.append(wanted)
        over.append(actual)
    level = _mean_height(ground, com, 0.5 * extent) + 0.42 * extent
    entries = ((COMMAND, "commanded velocity"), (VELOCITY, "velocity")) if velocity is not None else ()
    legend = Legend("tension [N]", 0.0, max_tension, "dashed: slack", entries)
    middle, seen = _view(com, goal, extent)
    look_at = np.array([*middle, level])
    size = max(seen, 1.15 * float(np.linalg.norm(model.node_positions(state) - look_at, axis=1).max()))
    return Scene(tuple(parts), look_at, size, legend, overlay=tuple(over))


def _view(com: Array, goal: Array | None, extent: float) -> tuple[Array, float]:
    """Middle (2,) and size [m] of a picture that holds the robot, and the goal if it is no farther than three robots."""
    way = np.zeros(2) if goal is None else np.asarray(goal[:2] - com[:2])
    distance = min(float(np.linalg.norm(way)), 3.0 * extent)
    share = distance / max(float(np.linalg.norm(way)), 1e-9)
    return com[:2] + 0.4 * share * way, max(0.8 * extent, 0.6 * extent + 0.36 * distance)


def _bodies(model: TensegrityModel, state: Array) -> list[Primitive]:
    """Rods, ending inside their caps, and caps."""
    nodes = model.node_positions(state)
    parts: list[Primitive] = []
    for a, b in zip(nodes[::2], nodes[1::2], strict=True):
        inside = 0.75 * model.cap_radius * (b - a) / np.linalg.norm(b - a)
        parts.append(Segment(a + inside, b - inside, 2 * model.rod_radius, ROD))
        parts += [Sphere(a, model.cap_radius, CAP), Sphere(b, model.cap_radius, CAP)]
    return parts


def _cables(model: TensegrityModel, state: Array, tensions: Array, max_tension: float) -> list[Primitive]:
    """Cables from cap to cap; those with a motor are thicker."""
    nodes = model.node_positions(state)
    colors = tension_colors(tensions / max_tension)
    scale = float(model.rod_lengths.max()) / 1.684
    parts: list[Primitive] = []
    for index, (a, b) in enumerate(model.cables):
        along = nodes[b] - nodes[a]
        length = max(float(np.linalg.norm(along)), 1e-9)
        inside = min(0.7 * model.cap_radius, 0.4 * length) * along / length
        slack = tensions[index] <= 0.0
        width = CABLE_WIDTH * scale * (1.0 if index in model.actuated else 0.7) * (0.7 if slack else 1.0)
        color = SLACK if slack else as_color(colors[index])
        parts.append(Segment(nodes[a] + inside, nodes[b] - inside, width, color, dashed=slack))
    return parts


def _ground(terrain: Terrain, com: Array, radius: float, scale: float) -> GroundGrid:
    """A patch of the terrain around the robot, bending exactly where the height field does."""
    spacing = 0.5 if radius > 3.0 else 0.5 * tension_scale(0.67 * radius)
    return GroundGrid(
        lambda x, y: terrain.height(x, y, scale),
        (float(com[0]), float(com[1])),
        radius,
        spacing=spacing,
        breaks=_breaks(terrain),
    )


def _breaks(terrain: Terrain) -> tuple[Array, Array]:
    """Coordinates of the height field's grid lines at which it bends [m]."""
    if terrain.is_plane:
        return np.zeros(0), np.zeros(0)
    found = []
    for axis in (0, 1):
        grid = np.moveaxis(terrain.heights, axis, 0)
        slope = np.diff(np.concatenate([grid[:1], grid, grid[-1:]]), axis=0)
        bends = (np.abs(np.diff(slope, axis=0)) > 1e-9).any(axis=1)
        found.append(terrain.origin[axis] + terrain.cell * np.nonzero(bends)[0])
    return found[0], found[1]


def _mean_height(ground: GroundGrid, com: Array, radius: float) -> float:
    """Mean ground height around the robot [m]: the camera follows it without jumping at a step."""
    x, y = np.meshgrid(com[0] + radius * np.linspace(-1, 1, 7), com[1] + radius * np.linspace(-1, 1, 7))
    return float(np.mean(ground.height(x, y)))


def _towards(ground: GroundGrid, com: Array, goal: Array, extent: float) -> list[Primitive]:
    """A small arrow beside the robot that points to the goal, unless it is near: it may be out of the picture."""
    offset = goal - com[:2]
    distance = float(np.linalg.norm(offset))
    if distance < 1.4 * extent:
        return []
    ends = com[:2] + np.array([[0.75], [1.05]]) * extent * offset / distance
    z = ground.height(ends[:, 0], ends[:, 1]) + 0.012
    return [Arrow(np.append(ends[0], z[0]), np.append(ends[1], z[1]), 0.05 * extent, GOAL)]


def _velocities(ground: GroundGrid, com: Array, command: Array, actual: Array, extent: float) -> list[Primitive]:
    """Commanded and actual velocity as arrows on the ground under the robot, one second long, or longer on a slow robot."""
    parts: list[Primitive] = []
    seconds = max(1.0, 0.5 * extent / max(float(np.hypot(command[0], command[1])), 0.02 * extent))
    for vector, color, width in ((command, COMMAND, 0.07 * extent), (actual, VELOCITY, 0.034 * extent)):
        ends = np.array([com[:2], com[:2] + seconds * vector[:2]])
        z = ground.height(ends[:, 0], ends[:, 1]) + 0.012
        parts.append(Arrow(np.append(ends[0], z[0]), np.append(ends[1], z[1]), width, color))
    return parts
