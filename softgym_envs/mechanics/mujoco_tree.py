"""Trees in MuJoCo: the same bodies, joints, springs and constraints, for the MuJoCo models of systems.

A joint of several angles is that many hinges on one body. MuJoCo 4.0.0 has a bug in the sparse Newton solver
(google-deepmind/mujoco issue 3767), so the Jacobian is dense by option. Slides are not made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from ..core.errors import StructureError
from .structure import rotation
from .tree import Bond, Joint, Tree, Value, Weld

SOLIMP = (0.9999, 0.9999, 0.001, 0.5, 2.0)
"""A weld holds nearly all of its load at once."""
DRY = (0.99, 0.99, 0.001, 0.5, 2.0)
"""Dry friction that hardly creeps; by MuJoCo's own numbers a light joint slips as if it were damped, up to 0.3 rad/s."""
CONTACT = (0.005, 1.0)
"""Time constant [s] and damping ratio of a ball on a peg."""


def state_index(compiled: mujoco.MjModel, tree: Tree) -> NDArray[np.int_]:
    """Indices in a state (q, v) of MuJoCo's positions and speeds, (2 n,)."""
    order = np.array([tree.coordinates.index(compiled.joint(i).name) for i in range(compiled.njnt)])
    return np.concatenate([order, len(order) + order])


def write_tree(mj: mujoco.MjModel, tree: Tree, values: Mapping[str, float]) -> None:
    """Write what the tree says into its MjModel, with these values of its parameters."""

    def number(value: Value) -> float:
        return values[value] if isinstance(value, str) else value

    mj.opt.gravity[:] = [number(value) for value in tree.gravity]
    for joint in tree.moving:
        k = mj.joint(joint.name).id  # hinges only: joint, angle and speed have one number
        mj.jnt_stiffness[k], mj.qpos_spring[k] = number(joint.stiffness), number(joint.rest)
        mj.dof_damping[k], mj.dof_armature[k] = number(joint.damping), number(joint.armature)
        if isinstance(joint.friction, str) or joint.friction > 0:
            mj.dof_frictionloss[k] = max(number(joint.friction), 0.0)
            mj.dof_solref[k], mj.dof_solimp[k] = [2 * mj.opt.timestep, 1.0], DRY
        if joint.name in tree.actuated:
            mj.actuator_biasprm[mj.actuator(joint.name).id, 0] = number(joint.offset)
    for body in tree.bodies:
        if body.mass > 0:
            k = mj.body(body.name).id
            scale = number(body.scale)
            mj.body_mass[k] *= scale
            mj.body_inertia[k] *= scale
    for weld in tree.constraints:
        if isinstance(weld, Weld):
            k = mj.site(weld.name).id
            turn = rotation([number(value) for value in weld.rpy])
            mj.site_pos[k] = [number(value) for value in weld.xyz]
            mujoco.mju_mat2Quat(mj.site_quat[k], turn.ravel())
    for peg in tree.pegs:
        k = mj.geom(peg.name).id
        turn = rotation([number(value) for value in peg.rpy])
        mj.geom_pos[k] = np.array([number(value) for value in peg.xyz]) + 0.5 * peg.length * turn[:, 2]
        mujoco.mju_mat2Quat(mj.geom_quat[k], turn.ravel())


def spec_of(tree: Tree, dt: float) -> mujoco.MjSpec:
    """The tree in MuJoCo; numbers that are parameters are written later."""
    spec = mujoco.MjSpec()
    option = spec.option
    option.timestep = dt
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.solver = mujoco.mjtSolver.mjSOL_NEWTON
    option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    bodies = {"world": spec.worldbody}
    knees: dict[str, tuple[Any, tuple[Joint, ...]]] = {}
    for joint in tree.ordered:
        _add(bodies, knees, joint, tree)
    for frame in tree.frames:
        bodies[frame.body].add_site(name=frame.name, pos=list(frame.xyz), quat=quaternion(frame.rpy))
    for weld in tree.constraints:
        if isinstance(weld, Weld):
            spec.worldbody.add_site(name=weld.name)
            held = (weld.frame, weld.name)
        elif isinstance(weld, Bond):
            held = (weld.first, weld.second)
        else:
            raise StructureError(f"constraint {weld.name!r} is neither weld nor bond")
        equality = spec.add_equality(
            type=mujoco.mjtEq.mjEQ_WELD, objtype=mujoco.mjtObj.mjOBJ_SITE, name=weld.name, name1=held[0], name2=held[1]
        )
        equality.solref, equality.solimp = [2 * dt, 1.0], list(SOLIMP)
    _add_contacts(spec, bodies, tree)
    for name in tree.actuated:
        motor = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        motor.set_to_motor()
        motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
    return spec


def _add(bodies: dict[str, Any], knees: dict[str, tuple[Any, tuple[Joint, ...]]], joint: Joint, tree: Tree) -> None:
    """Add a joint and its body. Joints of bodies without mass become further hinges of the next body."""
    body = next(body for body in tree.bodies if body.name == joint.child)
    if joint.parent in knees:
        made, before = knees[joint.parent]
        hinges = (*before, joint)
    else:
        made = bodies[joint.parent].add_body(pos=list(joint.xyz), quat=quaternion(joint.rpy))
        hinges = (joint,) if joint.kind == "revolute" else ()
    if body.mass == 0 and joint.kind == "revolute":
        knees[joint.child] = (made, hinges)
        return
    made.name, bodies[body.name] = body.name, made
    if body.mass > 0:
        made.explicitinertial, made.mass, made.ipos = True, body.mass, list(body.com)
        made.fullinertia = [*body.inertia, 0.0, 0.0, 0.0][:6]
    for hinge in hinges:
        made.add_joint(name=hinge.name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=list(hinge.axis))


def _add_contacts(spec: mujoco.MjSpec, bodies: dict[str, Any], tree: Tree) -> None:
    """Add balls that touch pegs and nothing else."""
    for ball in tree.balls:
        made = bodies[ball.body].add_geom(
            name=ball.name, type=mujoco.mjtGeom.mjGEOM_SPHERE, pos=list(ball.xyz), size=[ball.radius, 0.0, 0.0]
        )
        made.contype, made.conaffinity, made.condim, made.solref = 1, 0, 1, list(CONTACT)
    for peg in tree.pegs:
        made = spec.worldbody.add_geom(
            name=peg.name, type=mujoco.mjtGeom.mjGEOM_CAPSULE, size=[peg.radius, 0.5 * peg.length, 0.0]
        )
        made.contype, made.conaffinity, made.condim, made.solref = 0, 1, 1, list(CONTACT)


def add_stops(spec: mujoco.MjSpec, tree: Tree) -> None:
    """Springs beyond the limits of joints with stops, which begin at once where ours are half as stiff.

    MuJoCo's own limits have no stiffness of their own: theirs goes with the mass.
    """
    for joint in tree.moving:
        if joint.stop_stiffness:
            half = 0.5 * joint.stop_softness
            tendon = spec.add_tendon(name=f"stop_{joint.name}", springlength=[joint.lower - half, joint.upper + half])
            tendon.stiffness = [joint.stop_stiffness, 0.0, 0.0]
            tendon.wrap_joint(joint.name, 1.0)


def quaternion(rpy: Any) -> list[float]:
    """(w, x, y, z) of R_z R_y R_x."""
    found = np.empty(4)
    mujoco.mju_mat2Quat(found, rotation(rpy).ravel())
    return [float(value) for value in found]
