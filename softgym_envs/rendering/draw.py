"""From a simulator's state to a scene: one function per kind of model, found by the model's type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.parameters import Parameters
from ..rigid.model import BlockModel, ParticleModel
from ..tensegrity.model import TensegrityModel
from ..vine.model import VineModel
from .camera import Camera
from .pygame_view import Image, PygameRenderer
from .rigid import block_scene, particle_scene
from .scene import Hud, Scene
from .tensegrity import tensegrity_scene
from .vine import vine_overlay, vine_scene

Array = NDArray[np.float64]

HINTS = ("goal", "velocity", "trail", "pose")
"""What a scene may show beside the robot: a point (3,) [m], a velocity (3,) [m/s], earlier positions (k, 3) [m],
a pose on the table (3,) [m, m, rad]."""


class Drawable(Protocol):
    """What drawing needs of a simulator."""

    @property
    def model(self) -> Any:
        """Structure of the robot; its type says how it is drawn."""
        ...

    @property
    def default_parameters(self) -> Parameters:
        """Constants, if none are given."""
        ...


def scene_of(
    simulator: Drawable, state: Array, hints: Mapping[str, Array] | None = None, *, parameters: Parameters | None = None
) -> Scene:
    """The scene of one state (nx,), with the hints a task gives (see `HINTS`).

    Raises:
        OptionError: Unknown hint, or a kind of model that nothing can draw.
        ShapeError: The state or a hint has the wrong shape.
    """
    hints = dict(hints or {})
    for name in hints:
        if name not in HINTS:
            raise OptionError(f"unknown hint {name!r}; allowed are {', '.join(HINTS)}")
    return _scene(simulator.model, simulator, state, hints, parameters or simulator.default_parameters)


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


@singledispatch
def _scene(model: Any, simulator: Any, state: Array, hints: dict[str, Array], parameters: Parameters) -> Scene:
    raise OptionError(f"cannot draw a model of type {type(model).__name__}; a room registers its scene in rendering/draw.py")


@_scene.register
def _tensegrity(model: TensegrityModel, simulator: Any, state: Array, hints: dict[str, Array], parameters: Parameters) -> Scene:
    constants = {
        name: float(np.ravel(getattr(parameters, name))[0]) for name in ("cable_stiffness", "rest_length", "terrain_scale")
    }
    tensions = simulator.cable_tensions(np.asarray(state, dtype=np.float64)[None], parameters)[0]
    return tensegrity_scene(
        model,
        state,
        tensions,
        max_tension=tension_scale(constants["cable_stiffness"] * constants["rest_length"]),
        terrain_scale=constants["terrain_scale"],
        **hints,
    )


@_scene.register
def _vine(model: VineModel, simulator: Any, state: Array, hints: dict[str, Array], parameters: Parameters) -> Scene:
    asked = np.array([0.5 * model.max_growth])  # forces of a robot that would grow
    forces = simulator.contact_forces(np.asarray(state, dtype=np.float64)[None], asked, parameters)
    return vine_scene(model, state, forces, **{name: value for name, value in hints.items() if name != "velocity"})


@_scene.register
def _block(model: BlockModel, simulator: Any, state: Array, hints: dict[str, Array], parameters: Parameters) -> Scene:
    return block_scene(model, state, **{name: value for name, value in hints.items() if name in ("trail", "pose")})


@_scene.register
def _particles(model: ParticleModel, simulator: Any, state: Array, hints: dict[str, Array], parameters: Parameters) -> Scene:
    return particle_scene(model, state, **{name: value for name, value in hints.items() if name == "trail"})


@singledispatch
def overlay_scene(model: Any, fitted: Array, measured: Array) -> Scene:
    """A frame of a fit to tracked points: where the points of the fitted robot are, and where they were measured, (P, 2) [m].

    Raises:
        OptionError: A kind of model that nothing can draw like this.
    """
    raise OptionError(f"cannot draw tracked points over a model of type {type(model).__name__}")


overlay_scene.register(VineModel)(vine_overlay)


def tension_scale(force: float) -> float:
    """A quarter of the force [N] that would double a cable's length, rounded to one digit of 1, 2 or 5.

    >>> tension_scale(9500.0)
    2000.0
    """
    quarter = max(0.25 * force, 1e-9)
    power = 10.0 ** np.floor(np.log10(quarter))
    return float(power * max(digit for digit in (1.0, 2.0, 5.0) if digit <= quarter / power * (1 + 1e-12)))
