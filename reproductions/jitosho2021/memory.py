"""Structs of the paper's model: data that all rows share, parameters of one row, working memory."""

# mypy: disable-error-code="valid-type"
from __future__ import annotations

import warp as wp

from softgym_envs.engines.warp.memory import Memory
from softgym_envs.systems.vine.boxqp import BoxProgram, box_program
from softgym_envs.systems.vine.chain import EndMotion, Gain
from softgym_envs.systems.vine.geometry import Shape


@wp.struct
class World:
    """Structure: L, d, tube radius, heading at the base, dt, largest growth speed; obstacles, their poses and corners."""

    links: int
    d: wp.float64
    radius: wp.float64
    heading: wp.float64
    dt: wp.float64
    max_growth: wp.float64
    shapes: wp.array(dtype=Shape)
    poses: wp.array(dtype=wp.vec3d)
    corners: wp.array(dtype=wp.vec2d)


@wp.struct
class Tube:
    """Parameters of one row: mass and inertia of a body, stiffness and damping of a pin."""

    m: wp.float64
    inertia: wp.float64
    k: wp.float64
    c: wp.float64


@wp.struct
class Pair:
    """A link: directions of its bodies, and v_p = v_a + alpha + beta w, w_p = gamma + delta w, w = w_a."""

    ta: wp.vec2d
    tp: wp.vec2d
    alpha: wp.vec2d
    beta: wp.vec2d
    gamma: wp.float64
    delta: wp.float64


@wp.struct
class Push:
    """A contact: its link, the row d . e + bn w + bias >= 0 (bias holds Phi/h), and the covariance of the row."""

    link: int
    d: wp.vec2d
    bn: wp.float64
    bias: wp.float64
    z: wp.vec3d


@wp.struct
class Workspace:
    """Scratch memory: one row per robot, overwritten by every step."""

    pairs: wp.array2d(dtype=Pair)
    gains: wp.array2d(dtype=Gain)
    motions: wp.array2d(dtype=EndMotion)
    pushes: wp.array2d(dtype=Push)
    qp: BoxProgram


def workspace(links: int, rows: int) -> Memory:
    """Scratch memory for the given numbers of links and contacts."""
    chain = {"pairs": links, "gains": links, "motions": links + 1, "pushes": rows}
    return Memory(Workspace, chain, parts={"qp": box_program(rows)})


@wp.func
def turn_left(t: wp.vec2d):
    """n = (-sin, cos) of t = (cos, sin)."""
    return wp.vec2d(-t[1], t[0])


@wp.func
def at(row: int, place: int, state: wp.array2d(dtype=wp.float64)):
    """x, y, theta of a body, or their rates."""
    return wp.vec3d(state[row, 3 * place], state[row, 3 * place + 1], state[row, 3 * place + 2])
