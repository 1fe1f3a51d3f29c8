"""Any simulator's state as a picture: the room that the simulator belongs to draws it.

Legend: nx state, P tracked points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.parameters import Parameters
from ..core.task import load
from ..rendering.camera import Camera
from ..rendering.picture import Picture, PointOverlay, check_hints
from ..rendering.pygame_view import Image, PygameRenderer
from ..rendering.scene import Hud, Scene
from ..rooms import room_of

Array = NDArray[np.float64]


class Drawable(Protocol):
    """What drawing needs of a simulator, beside the name of its room."""

    @property
    def model(self) -> Any:
        """Structure of the robot."""
        ...

    @property
    def default_parameters(self) -> Parameters:
        """Constants, if none are given."""
        ...


def picture_of(simulator: object) -> Picture:
    """How the simulator's room draws and drives its robots.

    Raises:
        OptionError: The simulator belongs to no room, or the room draws nothing.
    """
    room = room_of(simulator)
    if not room.picture:
        raise OptionError(f"room {room.name!r} cannot be drawn; give it a picture, see rendering/picture.py")
    found = load(room.picture)
    if not isinstance(found, Picture):
        raise OptionError(f"{room.picture!r} of room {room.name!r} is no Picture; see rendering/picture.py")
    return found


def scene_of(
    simulator: Drawable, state: Array, hints: Mapping[str, Array] | None = None, *, parameters: Parameters | None = None
) -> Scene:
    """The scene of one state (nx,), with the hints a task gives (see `rendering.picture.HINTS`).

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
    camera: Camera | None = None,
    hud: Hud | None = None,
) -> Image | None:
    """Draw one state (nx,) by a renderer: the picture (height, width, 3), or None if the renderer shows it in a window.

    Raises:
        OptionError: See `scene_of`.
        ShapeError: See `scene_of`.
    """
    return renderer.draw(scene_of(simulator, state, hints, parameters=parameters), camera, hud)


def overlay_scene(simulator: Drawable, fitted: Array, measured: Array) -> Scene:
    """A frame of a fit to tracked points: where the points of the fitted robot are, and where they were measured, (P, 2) [m].

    Raises:
        OptionError: A robot that nothing can draw like this.
    """
    picture = picture_of(simulator)
    if not isinstance(picture, PointOverlay):
        raise OptionError(f"room {room_of(simulator).name!r} cannot draw tracked points over its robot")
    return picture.overlay(simulator.model, fitted, measured)
