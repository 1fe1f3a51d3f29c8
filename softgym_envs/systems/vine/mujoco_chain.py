"""The MjSpec of the vine's MuJoCo model: a chain of hinged capsules, a telescope at its tip, obstacles, and actuators.

Legend: n links, m obstacles.
"""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np

from ...engines.mujoco.engine import empty_spec
from .model import VineModel
from .obstacles import Circle, Polygon, Wall

GROWTH_SERVO = 200.0
"""Gain of the growth servo [N s/m]."""
REEL = 1e3
"""[N] Largest force with which the reel holds the tail."""
HALF_DEPTH = 0.1
"""[m] Half depth of obstacles across the plane."""
WALL = 5.0
"""[m] Half width of the box that stands for a wall."""
SPRINGS = {
    "linear": ((1.0, None),),
    "wrinkling": ((0.02692, None), (0.06878, 4.257), (0.15332, 2.296), (0.28348, 1.4545), (0.4675, 1.055)),
}
"""Share of EI, and curvature over kappa_w at which that spring saturates: the smallest relative error of the law of `bending`
up to 10 kappa_w that five springs have, 0.8 %."""


def build_spec(model: VineModel, n: int, dt: float, bending: str) -> mujoco.MjSpec:
    """The chain of n links and the obstacles; the parameters are written into the compiled model by the MuJoCo model."""
    spec = empty_spec(dt, mujoco.mjtIntegrator.mjINT_IMPLICITFAST)
    spec.modelname = f"vine{n}"
    for m in range(len(model.obstacles)):
        _add_obstacle(spec, model, m)
    parent: Any = spec.worldbody
    x, y, angle = model.base
    for i in range(n):
        pose = {"pos": [x, y, 0.0], "quat": [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]} if i == 0 else {}
        parent = _add_link(parent, model, i, **(pose or {"pos": [model.link_length, 0.0, 0.0]}))
    tip = _add_body(parent, model, "tip", pos=[model.link_length, 0.0, 0.0])
    tip.add_joint(name="growth", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1.0, 0.0, 0.0], limited=True, range=[0.0, 1.0])
    _add_tube(tip, model, "tip", -model.link_length, 0.0)
    _add_actuators(spec, model, n, bending)
    return spec


def _add_body(parent: Any, model: VineModel, name: str, **pose: Any) -> Any:
    body = parent.add_body(name=name, **pose)
    body.explicitinertial = True
    body.mass, body.inertia, body.ipos = 1.0, [1.0, 1.0, 1.0], [0.5 * model.link_length, 0.0, 0.0]
    return body


def _add_link(parent: Any, model: VineModel, i: int, **pose: Any) -> Any:
    body = _add_body(parent, model, f"link{i}", **pose)
    body.add_joint(name=f"hinge{i}", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0.0, 0.0, 1.0])
    _add_tube(body, model, f"link{i}", 0.0, model.link_length)
    return body


def _add_tube(body: Any, model: VineModel, name: str, start: float, end: float) -> None:
    """A capsule along x; parts of the robot do not collide with each other."""
    shape = {"type": mujoco.mjtGeom.mjGEOM_CAPSULE, "size": [model.radius, 0.0, 0.0]}
    fromto = [start, 0.0, 0.0, end, 0.0, 0.0]
    body.add_geom(
        name=name, fromto=fromto, mass=0.0, condim=3, contype=1, conaffinity=0, solimp=[0.95, 0.99, 1e-3, 0.5, 2], **shape
    )


def _add_obstacle(spec: mujoco.MjSpec, model: VineModel, m: int) -> None:
    """A mocap body, placed by the state."""
    obstacle = model.obstacles[m]
    half = 0.5 * obstacle.angle
    body = spec.worldbody.add_body(
        name=f"obstacle{m}", mocap=True, pos=[obstacle.x, obstacle.y, 0.0], quat=[np.cos(half), 0.0, 0.0, np.sin(half)]
    )
    common = {"name": f"obstacle{m}", "condim": 3, "contype": 0, "conaffinity": 1}
    shape = obstacle.shape
    if isinstance(shape, Circle):
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, size=[shape.radius, HALF_DEPTH, 0.0], **common)
    elif isinstance(shape, Wall):
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[WALL, 2 * WALL, HALF_DEPTH], pos=[-WALL, 0.0, 0.0], **common)
    else:
        _add_polygon(spec, body, shape, common)


def _add_polygon(spec: mujoco.MjSpec, body: Any, shape: Polygon, common: dict[str, Any]) -> None:
    """A box if it is one, else a prism."""
    points = np.asarray(shape.vertices)
    half = points.max(axis=0)
    if len(points) == 4 and np.allclose(np.abs(points), half) and np.allclose(points.min(axis=0), -half):
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[*half, HALF_DEPTH], **common)
        return
    prism = np.concatenate([np.column_stack([points, np.full(len(points), z)]) for z in (-HALF_DEPTH, HALF_DEPTH)])
    name = "mesh_" + common["name"]
    spec.add_mesh(name=name, uservert=prism.ravel())
    body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname=name, **common)


def _add_actuators(spec: mujoco.MjSpec, model: VineModel, n: int, bending: str) -> None:
    """Growth; the left and right muscle of every joint; springs that saturate."""
    growth = spec.add_actuator(name="growth", target="growth", trntype=mujoco.mjtTrn.mjTRN_JOINT)
    growth.gainprm[0], growth.biasprm[2] = GROWTH_SERVO, -GROWTH_SERVO
    growth.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    growth.forcelimited, growth.forcerange = True, [-REEL, 0.0]
    for i in range(n if model.num_sections else 0):
        for side in ("left", "right"):
            muscle = spec.add_actuator(name=f"{side}{i}", target=f"hinge{i}", trntype=mujoco.mjtTrn.mjTRN_JOINT)
            muscle.dyntype = mujoco.mjtDyn.mjDYN_FILTEREXACT
            muscle.gaintype = mujoco.mjtGain.mjGAIN_AFFINE
    for k, _ in enumerate(SPRINGS[bending][1:]):
        for i in range(n):
            spring = spec.add_actuator(name=f"spring{k}_{i}", target=f"hinge{i}", trntype=mujoco.mjtTrn.mjTRN_JOINT)
            spring.gainprm[0] = 0.0
            spring.biastype = mujoco.mjtBias.mjBIAS_AFFINE
            spring.forcelimited, spring.forcerange = True, [-1.0, 1.0]
