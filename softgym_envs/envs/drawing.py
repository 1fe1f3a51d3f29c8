"""Draws any simulator's state, by the system that the simulator belongs to.

Legend: nx state, P tracked points.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..core.errors import OptionError
from ..core.parameters import Parameters
from ..core.simulator import Array
from ..core.task import load
from ..rendering.picture import Picture, PointOverlay, check_hints
from ..rendering.pygame_view import Image, PygameRenderer
from ..rendering.scene import Hud, Scene, view_of
from ..rendering.video import write_gif
from ..systems import system_of


class Drawable(Protocol):
    """Attributes of a simulator that drawing needs, beside the name of its system."""

    @property
    def model(self) -> Any:
        """Structure of the robot."""

    @property
    def default_parameters(self) -> Parameters:
        """Default parameters."""


def picture_of(simulator: object) -> Picture:
    """The picture of the simulator's system, which draws and drives its robots.

    Raises:
        OptionError: The simulator belongs to no system, or the system draws nothing.
    """
    system = system_of(simulator)
    if not system.picture:
        raise OptionError(f"system {system.name!r} cannot be drawn; give it a picture, see rendering/picture.py")
    found = load(system.picture)
    if not isinstance(found, Picture):
        raise OptionError(f"{system.picture!r} of system {system.name!r} is no Picture; see rendering/picture.py")
    return found


def scene_of(
    simulator: Drawable, state: Array, hints: Mapping[str, Array] | None = None, *, parameters: Parameters | None = None
) -> Scene:
    """The scene of one state (nx,), with the hints of a task (see `rendering.picture.HINTS`).

    Raises:
        OptionError: Unknown hint, or a simulator that nothing can draw.
        ShapeError: The state or a hint has the wrong shape.
    """
    hints = check_hints(hints)
    return picture_of(simulator).scene(simulator, state, hints, parameters or simulator.default_parameters)


def render_state(
    simulator: Drawable,
    state: Array,
    hints: Mapping[str, Array] | None,
    renderer: PygameRenderer,
    *,
    parameters: Parameters | None = None,
    view: str = "default",
    hud: Hud | None = None,
) -> Image | None:
    """Draw one state (nx,) by a renderer: the picture (height, width, 3), or None if the renderer shows it in a window.

    `view` is one of `rendering.camera.VIEWS`.

    Raises:
        OptionError: See `scene_of`.
        ShapeError: See `scene_of`.
    """
    picture = picture_of(simulator)
    scene = picture.scene(simulator, state, check_hints(hints), parameters or simulator.default_parameters)
    return renderer.draw(scene, view_of(scene, view, picture.followed(simulator.model, state)), hud)


def overlay_scene(simulator: Drawable, fitted: Array, measured: Array) -> Scene:
    """The scene of a fit to tracked points: positions on the fitted robot and as measured, (P, 2) [m].

    Raises:
        OptionError: The system cannot draw points over its robot.
    """
    picture = picture_of(simulator)
    if not isinstance(picture, PointOverlay):
        raise OptionError(f"system {system_of(simulator).name!r} cannot draw tracked points over its robot")
    return picture.overlay(simulator.model, fitted, measured)


def write_overlay(path: Path, simulator: Drawable, names: Sequence[str], times: Array, fitted: Array, measured: Array) -> Path:
    """Write a fit to tracked points, (rows, ny) each, as a GIF of at most 25 frames per second; see `overlay_scene`.

    Raises:
        OptionError: The columns are no points, or nothing draws this robot.
    """
    if not all(re.fullmatch(r"point\d+\.[xy]", name) for name in names):
        raise OptionError("--gif needs tracked points: columns point0.x, point0.y, ...")
    period = float(times[1] - times[0])
    every, renderer, shape = max(1, round(0.04 / period)), PygameRenderer((640, 480)), (len(times), -1, 2)
    pairs = zip(fitted.reshape(shape)[::every], measured.reshape(shape)[::every], strict=True)
    frames = [renderer.rgb(overlay_scene(simulator, *pair)) for pair in pairs]
    return write_gif(path, frames, min(25.0, 1.0 / (every * period)))
