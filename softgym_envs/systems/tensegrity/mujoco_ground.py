"""The ground of the MuJoCo model: a plane, or a height field on which every node stands on the plane that touches it there.

MuJoCo's own contact with a height field is one with the prisms under its triangles. It is right for contacts that hardly
overlap. Those of the MuJoCo model overlap by centimetres, at the paper's time constant, and then a prism's sides are nearer
than its
top: on a *level* field, caps 13 cm deep were pushed sideways, and a robot that rolls straight on a plane ended 1.5 m aside.

So the ends of the rods (and the caps there) meet planes instead, one per node: bodies that MuJoCo holds, each tangential to
the ground under its node, z = slope + terrain_scale * heights, and moved there every `FOLLOW` integration steps. A cap at 3 m/s
goes 15 mm in between; where the ground turns by 0.1 rad on that way it is then 1.5 mm off. On a level field this is the plane's
contact to rounding. The field itself is only drawn.

Legend: B batch, N nodes.
"""

from __future__ import annotations

import mujoco
import numpy as np

from ...core import lie
from ...core.simulator import Array
from .model import TensegrityModel

FOLLOW = 5
"""Integration steps for which a node's plane stays where it is."""
FIELD_MARGIN = 10.0
"""[m] Distance by which a drawn height field continues beyond its grid."""
BASE = 1.0
"""[m] Thickness of the ground under the lowest point of a height field."""


def add_ground(spec: mujoco.MjSpec, model: TensegrityModel) -> None:
    """A plane through the origin, turned by the slope's angle; or a height field that is only drawn (see `write_ground`)."""
    terrain = model.terrain
    if terrain.is_plane:
        quat = [np.cos(0.5 * terrain.angle), 0.0, -np.sin(0.5 * terrain.angle), 0.0]
        spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0], quat=quat, condim=6)
        return
    grid = _extended_heights(model, 1.0)
    x, y = (0.5 * terrain.cell * (count - 1) for count in grid.shape)
    spec.add_hfield(name="ground", nrow=grid.shape[1], ncol=grid.shape[0], size=[x, y, 1.0, BASE], userdata=np.zeros(grid.size))
    # A position unlike the body's: else older compilers mark the frames as one, and a later geom_pos has no effect.
    ground = spec.worldbody.add_geom(
        name="ground", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", pos=[0.0, 0.0, -BASE]
    )
    ground.contype = ground.conaffinity = 0


def add_footing(spec: mujoco.MjSpec, model: TensegrityModel) -> None:
    """Plane n under node n, which meets the cap and the rod's end there and nothing else; after all rods."""
    half = 0.5 * model.rod_lengths
    poses = footing(model, model.rest_state()[None], np.ones(1))[0]
    for node, pose in enumerate(poses):
        under = spec.worldbody.add_body(name=f"ground{node}", mocap=True, pos=pose[:3], quat=pose[3:])
        flat, ball = mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_SPHERE
        plane = under.add_geom(name=f"ground{node}", type=flat, size=[0.0, 0.0, 1.0], rgba=[0.0] * 4)
        place = [0.0, 0.0, (2 * (node % 2) - 1) * half[node // 2]]
        end = spec.bodies[1 + node // 2].add_geom(name=f"end{node}", type=ball, size=[model.rod_radius, 0.0, 0.0], pos=place)
        plane.contype = plane.conaffinity = end.contype = end.conaffinity = 0
        plane.mass = end.mass = 0.0
        for name in (f"cap{node}", f"end{node}"):
            spec.add_pair(geomname1=f"ground{node}", geomname2=name, condim=6)


def footing(model: TensegrityModel, state: Array, scale: Array) -> Array:
    """Poses of the planes, states (B, nx) and terrain_scale (B,) -> position [m] and quaternion (B, N, 7)."""
    x, y, _ = np.moveaxis(model.node_positions(state[:, : model.layout.nx]), -1, 0)
    scale = scale[:, None]
    touched = np.stack([x, y, model.terrain.height(x, y, scale)], axis=-1)
    return np.concatenate([touched, lie.from_z_axis(model.terrain.normal(x, y, scale))], axis=-1)


def write_ground(mj: mujoco.MjModel, model: TensegrityModel, scale: float) -> None:
    """Write the heights, and give the planes the friction and softness of the geoms."""
    z = _extended_heights(model, scale)
    low, span = z.min(), max(float(np.ptp(z)), 1e-6)
    mj.hfield_data[:] = ((z - low) / span).T.ravel()  # in [0, 1] times an elevation, over the geom's origin; rows run along y
    mj.hfield_size[0, 2] = span
    mj.geom_pos[0] = (0.0, 0.0, low)
    mj.pair_friction[:] = mj.geom_friction[0, [0, 0, 1, 2, 2]]
    mj.pair_solref[:] = mj.geom_solref[0]


def _extended_heights(model: TensegrityModel, scale: float) -> Array:
    """z = slope + scale * heights on the grid, carried on beyond its rim by MARGIN, (x, y) [m]."""
    terrain = model.terrain
    rim = int(np.ceil(FIELD_MARGIN / terrain.cell))
    heights = scale * np.pad(terrain.heights, rim, mode="edge")
    x = (np.arange(heights.shape[0]) - 0.5 * (heights.shape[0] - 1)) * terrain.cell
    return np.asarray(heights + (x * np.tan(terrain.angle))[:, None])
