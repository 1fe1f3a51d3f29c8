"""First states of a tensegrity robot's episodes: on a random stable face, a little disturbed, settled on the ground.

Legend: B batch, R rods, F stable faces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from ...core import lie
from ...core.errors import StructureError
from ...core.simulator import Array
from ...core.task import Start
from .model import TensegrityModel

FLAT = 4e-6
"""Largest distance of a face's nodes from its plane, over the robot's radius: normals are rounded to 1e-6."""
DROP_GAP = 0.01
"""[m] Height of the lowest cap over the ground before the robot settles."""


@dataclass(frozen=True)
class StartSpread:
    """Size of the random differences between first states."""

    position: float = 0.01
    """Standard deviation of the rods' positions before settling [m]."""
    rotation: float = 0.02
    """Standard deviation of the rods' rotations before settling [rad]."""
    speed: float = 0.02
    """Standard deviation of the rods' velocities after settling [m/s, rad/s]."""
    motor: float = 0.05
    """Motors start within this fraction of their range."""
    place: float = 0.0
    """The centre of mass starts within this distance of the origin, along x and along y [m]."""


def stable_faces(model: TensegrityModel, *, margin: float = 0.02) -> Array:
    """Rotations (F, 4) that turn each stable face of the robot's convex hull downwards.

    A face with outward normal n and edge lines a_e . x <= b_e (unit a_e, in its plane) is stable if the centre of mass c,
    projected onto it, is inside by `margin` [m]: b_e - a_e . c >= margin for all e. In the order of the hull's faces.

    Raises:
        StructureError: All nodes lie in a plane, or the robot stands on no face.
    """
    hull = _hull(model.nodes, f"the nodes of {model.name!r} span no volume: it cannot stand on the ground")
    center = model.nodes.mean(axis=0)
    flat = FLAT * float(np.linalg.norm(model.nodes - center, axis=1).max())
    rotations = []
    for normal in np.unique(np.round(hull.equations[:, :3], 6) + 0.0, axis=0):
        reach = model.nodes @ normal
        down = lie.conjugate(lie.from_z_axis(-normal))
        footprint = lie.rotate(down, model.nodes[reach > reach.max() - flat] - center)[:, :2]
        edges = _hull(footprint, f"a face of {model.name!r} is too thin to stand on").equations
        if (-edges[:, 2]).min() >= margin:
            rotations.append(down)
    if not rotations:
        raise StructureError(f"{model.name!r} stands on no face of its convex hull: the centre of mass is outside of all")
    return np.array(rotations)


def _hull(points: Array, otherwise: str) -> ConvexHull:
    """The convex hull of points (N, 2) or (N, 3)."""
    try:
        return ConvexHull(points)
    except QhullError as error:
        raise StructureError(otherwise) from error


def random_states(model: TensegrityModel, faces: Array, spread: StartSpread, start: Start, settle_time: float) -> Array:
    """First states (B, nx): a random face down, a random yaw, disturbed, settled for `settle_time` [s] with held motors."""
    uniform, normal = _drawn(model, start.rngs)
    turn = lie.multiply(_yaw(uniform), faces[(uniform[:, 0] * len(faces)).astype(int)])
    state = _disturbed(model, turn, spread, uniform, normal)
    state = dropped(model, state, _place(spread, uniform), start.parameter_values["terrain_scale"])
    state = start.settle(state, state[:, model.layout.slices[1]], settle_time)
    return _pushed(model, state, spread, normal)


def repeated_states(model: TensegrityModel, kept: Array, spread: StartSpread, start: Start, settle_time: float) -> Array:
    """First states (B, nx) on level ground: one of `kept_starts`, settled, then turned, shifted and pushed at random."""
    uniform, normal = _drawn(model, start.rngs)
    state = kept[(uniform[:, 0] * len(kept)).astype(int)]
    state = start.settle(state, state[:, model.layout.slices[1]], settle_time, keep=True)
    position, quaternion, velocity, *_ = model.split(state)
    yaw = _yaw(uniform)[:, None]
    position[...] = lie.rotate(yaw, position)
    position[..., :2] += _place(spread, uniform)[:, None]
    quaternion[...], velocity[...] = lie.multiply(yaw, quaternion), lie.rotate(yaw, velocity)
    return _pushed(model, state, spread, normal)


def kept_starts(model: TensegrityModel, faces: Array, spread: StartSpread, count: int) -> Array:
    """States (count, nx) over level ground before they settle, the same ones always: as in `random_states`, without a yaw.

    Faces take turns.
    """
    uniform, normal = _drawn(model, [np.random.default_rng(k) for k in range(count)])
    state = _disturbed(model, faces[np.arange(count) % len(faces)], spread, uniform, normal)
    return dropped(model, state, np.zeros((count, 2)), np.zeros(count))


def _drawn(model: TensegrityModel, rngs: Sequence[np.random.Generator]) -> tuple[Array, Array]:
    """Random numbers: uniform (B, 4 + nu) for face, yaw, place and motors; normal (B, 24 R) before and after settling."""
    uniform = np.array([rng.random(4 + model.nu) for rng in rngs])
    return uniform, np.array([rng.standard_normal(2 * model.layout.tangent_slices[0].stop) for rng in rngs])


def _yaw(uniform: Array) -> Array:
    """Random rotations (B, 4) about the vertical."""
    half = np.pi * uniform[:, 1]
    return np.stack([np.cos(half), 0 * half, 0 * half, np.sin(half)], axis=-1)


def _place(spread: StartSpread, uniform: Array) -> Array:
    """Random places (B, 2) [m]."""
    return spread.place * (2 * uniform[:, 2:4] - 1)


def _disturbed(model: TensegrityModel, turn: Array, spread: StartSpread, uniform: Array, normal: Array) -> Array:
    """The rest pose turned by (B, 4), with rods and motors moved at random, (B, nx)."""
    shape = np.array([spread.position] * 3 + [spread.rotation] * 3 + [0.0] * 6)
    state = model.layout.retract(turned(model, turn), rod_tangent(model, normal[:, : normal.shape[1] // 2], shape))
    state[:, model.layout.slices[1]] = spread.motor * model.control_limit * (2 * uniform[:, 4:] - 1)
    return state


def _pushed(model: TensegrityModel, state: Array, spread: StartSpread, normal: Array) -> Array:
    """States (B, nx) with random velocities on top."""
    sizes = np.array([0.0] * 6 + [spread.speed] * 6)
    return model.layout.retract(state, rod_tangent(model, normal[:, normal.shape[1] // 2 :], sizes))


def turned(model: TensegrityModel, turn: Array) -> Array:
    """The rest pose turned about its centre of mass by B quaternions (B, 4), motors at zero; -> (B, nx)."""
    rest_position, rest_quaternion, *_ = model.split(model.rest_state())
    state = np.zeros((len(turn), model.layout.nx))
    position, quaternion, *_ = model.split(state)
    position[...] = lie.rotate(turn[:, None], rest_position - rest_position.mean(axis=0))
    quaternion[...] = lie.multiply(turn[:, None], rest_quaternion)
    return state


def dropped(model: TensegrityModel, state: Array, place: Array, scale: Array) -> Array:
    """States (B, nx) shifted to `place` (B, 2) [m], the lowest cap `DROP_GAP` over the ground."""
    state = state.copy()
    position = model.split(state)[0]
    position[..., :2] += place[:, None]
    gap = model.clearance(state, scale[:, None])  # type: ignore[arg-type]
    position[..., 2] += (DROP_GAP - gap)[:, None]
    return state


def rod_tangent(model: TensegrityModel, normal: Array, sizes: Array) -> Array:
    """Numbers (B, 12 R) times the sizes (12,) of a rod's tangent, as tangent vectors (B, n) with the motors at rest."""
    scaled = normal * np.tile(sizes, model.num_rods)
    return np.concatenate([scaled, np.zeros((len(normal), model.nu))], axis=1)


def disturbance_scale(model: TensegrityModel) -> Array:
    """Kick of unit size, (n,): 1 m/s for every rod's centre and for the velocity of its ends about the centre."""
    parts = [np.concatenate([np.zeros(6), np.ones(3), np.full(3, 2.0 / length)]) for length in model.rod_lengths]
    return np.concatenate([*parts, np.zeros(model.nu)])
