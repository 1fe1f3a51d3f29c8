"""Structs of kernel arguments: the structure and its obstacles, and working memory.

Legend: N links, K sections, M obstacles.
"""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

from typing import Any

import warp as wp

from ...engines.warp.memory import Memory
from .boxqp import BoxProgram, box_program
from .chain import EndMotion, Gain
from .geometry import ObstaclePose, Shape, shape_arrays
from .model import VineModel
from .obstacles import Polygon


@wp.struct
class Size:
    """Structure of the robot: N, K, M, link length, full length, base pose, radius, dt, law of bending, limits of controls."""

    links: int
    sections: int
    obstacles: int
    link: wp.float64
    full: wp.float64
    base: wp.vec2d
    heading: wp.float64
    radius: wp.float64
    dt: wp.float64
    wrinkling: int
    max_growth: wp.float64
    max_steering: wp.float64
    max_load: wp.float64
    memory: int
    """Index of fast0 in the state; -1: the body has no memory."""


def make_size(model: VineModel, dt: float, wrinkling: int) -> Any:
    """The struct `Size` of a model."""
    size = Size()
    size.links, size.sections, size.obstacles = model.num_links, model.num_sections, len(model.obstacles)
    size.link, size.full, size.radius, size.dt = model.link_length, model.max_length, model.radius, dt
    size.base, size.heading = wp.vec2d(*model.base[:2]), model.base[2]
    size.wrinkling, size.max_growth, size.max_steering = wrinkling, model.max_growth, model.max_steering
    size.max_load, size.memory = model.max_load, model.layout.slices[5].start if model.viscoelastic else -1
    return size


@wp.struct
class VineWorld:
    """The robot's structure, and its obstacles with their corners in their own frames."""

    size: Size
    shapes: wp.array(dtype=Shape)
    corners: wp.array2d(dtype=wp.float64)


def make_world(model: VineModel, dt: float, wrinkling: int, device: str) -> Any:
    """The struct `VineWorld` of a model."""
    world = VineWorld()
    world.size = make_size(model, dt, wrinkling)
    world.shapes, world.corners = shape_arrays(model.obstacles, device)
    return world


@wp.struct
class LinkState:
    """Present state of a link: near end, direction, length, and last velocities of its middle and of a load at its end."""

    p: wp.vec2d
    t: wp.vec2d
    length: wp.float64
    v: wp.vec2d
    u: wp.vec2d


@wp.struct
class VineContact:
    """A gap that may close: its link and obstacle, gradient d, factors of w_i (normal, tangent) and g, gap, place.

    zn and zt are covariances of the two rows; normal and tangent their impulses [N s].
    """

    link: int
    obstacle: int
    d: wp.vec2d
    bn: wp.float64
    bt: wp.float64
    gamma: wp.float64
    gap: wp.float64
    arm: wp.float64
    zn: wp.vec3d
    zt: wp.vec3d
    normal: wp.float64
    tangent: wp.float64


@wp.struct
class VineWork:
    """Working memory of one row per robot: overwritten by every step."""

    links: wp.array2d(dtype=LinkState)
    gains: wp.array2d(dtype=Gain)
    """Feedback of the links."""
    motions: wp.array2d(dtype=EndMotion)
    """Velocities of the links' ends, from the base on."""
    places: wp.array2d(dtype=ObstaclePose)
    """Poses of the obstacles."""
    corners: wp.array2d(dtype=wp.vec2d)
    """Corners of the obstacles."""
    asleep: wp.array2d(dtype=int)
    """Number of further links for which each obstacle is too far away."""
    contacts: wp.array2d(dtype=VineContact)
    """Gaps that may close, in the order of the links."""
    qp: BoxProgram
    """Their program, see `contact`."""


def workspace(model: VineModel, max_contacts: int) -> Memory:
    """The working memory of a robot."""
    corners = max(1, sum(len(o.shape.vertices) for o in model.obstacles if isinstance(o.shape, Polygon)))
    chain = {"links": model.num_links, "gains": model.num_links, "motions": model.num_links + 1}
    obstacles = dict.fromkeys(("places", "asleep"), max(1, len(model.obstacles)))
    around = {**obstacles, "corners": corners, "contacts": max_contacts}
    return Memory(VineWork, {**chain, **around}, parts={"qp": box_program(2 * max_contacts + 2)})
