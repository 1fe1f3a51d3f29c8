r"""Mechanics of a tree as CasADi expressions, in textbook form: the oracle of the kernels, and a symbolic step.

Frames are 4 x 4 products down the tree, velocities are added up joint by joint, L = kinetic - potential energy; all derivatives
are CasADi's. Nothing of `structure` or `kernels` is used. Legend: n coordinates, m rows, nu controls, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import StructureError, needed
from .tree import WORLD, Ball, Body, Bond, Frame, Joint, Peg, Tree, Value, Weld


@dataclass(frozen=True, eq=False)
class SymbolicTree:
    """Expressions of a tree; see `describe`."""

    q: Any
    """(n,)"""
    v: Any
    """(n,)"""
    u: Any
    """(nu,)"""
    c: Any
    """(P,)"""
    lagrangian: Any
    """L(q, v, c)"""
    gaps: Any
    """h(q, c), (m,)"""
    force: Any
    """f(v, u, c), (n,)"""


def describe(tree: Tree, parameter_names: Sequence[str]) -> SymbolicTree:
    """Symbolic L, h and f of `tree`.

    Raises:
        MissingDependencyError: CasADi is not installed.
        StructureError: The tree uses a parameter that is not among `parameter_names`.
    """
    ca = _casadi()
    missing = [name for name in tree.parameter_names if name not in parameter_names]
    if missing:
        raise StructureError(
            f"tree {tree.name!r} uses parameters {missing}; the parameters are {', '.join(parameter_names) or 'none'}"
        )
    n, c = len(tree.moving), ca.SX.sym("c", len(parameter_names))
    q, v, u = ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u", len(tree.actuated))

    def number(value: Value) -> Any:
        return c[list(parameter_names).index(value)] if isinstance(value, str) else ca.SX(value)

    place = places(ca, tree, q)
    motion = _motions(ca, tree, place, v)
    gravity = ca.vertcat(*(number(part) for part in tree.gravity))
    energy: Any = ca.SX(0)
    for body in tree.bodies:
        if body.mass > 0:
            energy += number(body.scale) * _body_lagrangian(ca, body, place[body.name], motion[body.name], gravity)
    for peg in tree.pegs:
        for ball in tree.balls:
            energy -= _contact_energy(ca, peg, place[ball.body], ball, number)
    force: Any = ca.SX.zeros(n)
    for i, joint in enumerate(tree.moving):
        energy += number(joint.armature) * v[i] ** 2 / 2 - number(joint.stiffness) * (q[i] - number(joint.rest)) ** 2 / 2
        energy -= _stop_energy(ca, joint, q[i]) if joint.stop_stiffness else 0
        force[i] = number(joint.offset) - number(joint.damping) * v[i]
        force[i] -= number(joint.friction) * ca.tanh(v[i] / joint.friction_speed)
    for k, name in enumerate(tree.actuated):
        force[tree.coordinates.index(name)] += u[k]
    rows = [_gaps(ca, tree, constraint, place, number) for constraint in tree.constraints]
    return SymbolicTree(q, v, u, c, energy, ca.vertcat(ca.SX.zeros(0), *rows), force)


def velocity_step(tree: Tree, parameter_names: Sequence[str], dt: float) -> Any:
    r"""One step from and to (q, v) of a tree without constraints, as casadi.Function (x, u, p, y, z) -> (g (2 n), nothing).

    .. math:: g = (q^+ - q - h v^+, \quad D_2 L_d(q - h v, q) + D_1 L_d(q, q^+) + h f(v^+, u))

    the step of `stepping`: v is the speed of the step that led to q, and forces act at the beginning.

    Raises:
        StructureError: The tree has constraints, or uses a parameter that is not among `parameter_names`.
    """
    ca, s = _casadi(), describe(tree, parameter_names)
    if s.gaps.numel():
        raise StructureError(f"tree {tree.name!r} has constraints; a step from (q, v) in symbols is for open trees")
    n = s.q.numel()
    x, y, z = ca.SX.sym("x", 2 * n), ca.SX.sym("y", 2 * n), ca.SX.sym("z", 0)
    q, v, q1, v1 = x[:n], x[n:], y[:n], y[n:]
    slope = ca.Function("slope", [s.q, s.v, s.c], [ca.gradient(s.lagrangian, s.q), ca.gradient(s.lagrangian, s.v)])
    force = ca.Function("force", [s.v, s.u, s.c], [s.force])
    before, after = slope(q - dt / 2 * v, v, s.c), slope(q + dt / 2 * v1, v1, s.c)
    balance = dt / 2 * (before[0] + after[0]) + before[1] - after[1] + dt * force(v1, s.u, s.c)
    value = ca.vertcat(q1 - q - dt * v1, balance)
    return ca.Function("step", [x, s.u, s.c, y, z], [value, ca.SX.zeros(0)], ["x", "u", "p", "y", "z"], ["g", "f"])


def _casadi() -> Any:
    with needed("symbolic mechanics needs CasADi", "sysid"):
        import casadi
    return casadi


def places(ca: Any, tree: Tree, q: Any) -> dict[str, Any]:
    """World <- body transformations (4, 4) at coordinates q (n,)."""
    found = {WORLD: ca.SX.eye(4)}
    for joint in tree.ordered:
        coordinate = q[tree.coordinates.index(joint.name)] if joint.kind != "fixed" else 0
        found[joint.child] = found[joint.parent] @ fixed(ca, joint.xyz, joint.rpy) @ _moved(ca, joint, coordinate)
    return found


def fixed(ca: Any, xyz: Sequence[Any], rpy: Sequence[Any]) -> Any:
    """Transformation by xyz and R_z R_y R_x."""
    X, Y, Z = ca.vertcat(1, 0, 0), ca.vertcat(0, 1, 0), ca.vertcat(0, 0, 1)
    return _rigid(ca, _about(ca, Z, rpy[2]) @ _about(ca, Y, rpy[1]) @ _about(ca, X, rpy[0]), ca.vertcat(*xyz))


def _moved(ca: Any, joint: Joint, q: Any) -> Any:
    """Transformation by a joint's coordinate."""
    axis = ca.vertcat(*joint.axis) / ca.norm_2(ca.vertcat(*joint.axis))
    if joint.kind == "revolute":
        return _rigid(ca, _about(ca, axis, q), ca.SX.zeros(3))
    return _rigid(ca, ca.SX.eye(3), axis * q)


def _about(ca: Any, axis: Any, angle: Any) -> Any:
    """1 + sin(angle) [a]x + (1 - cos(angle)) [a]x^2."""
    K = ca.skew(axis)
    return ca.SX.eye(3) + ca.sin(angle) * K + (1 - ca.cos(angle)) * (K @ K)


def _rigid(ca: Any, R: Any, r: Any) -> Any:
    return ca.vertcat(ca.horzcat(R, r), ca.horzcat(0, 0, 0, 1))


def _motions(ca: Any, tree: Tree, place: dict[str, Any], v: Any) -> dict[str, tuple[Any, Any]]:
    """Angular velocity of every body, and velocity of its origin, in the world."""
    found = {WORLD: (ca.SX.zeros(3), ca.SX.zeros(3))}
    for joint in tree.ordered:
        omega, speed = found[joint.parent]
        speed = speed + ca.cross(omega, (place[joint.child] - place[joint.parent])[:3, 3])
        axis = place[joint.child][:3, :3] @ (ca.vertcat(*joint.axis) / ca.norm_2(ca.vertcat(*joint.axis)))
        rate = v[tree.coordinates.index(joint.name)] * axis if joint.kind != "fixed" else ca.SX.zeros(3)
        turning = joint.kind == "revolute"
        found[joint.child] = (omega + rate, speed) if turning else (omega, speed + rate)
    return found


def _body_lagrangian(ca: Any, body: Body, place: Any, motion: tuple[Any, Any], gravity: Any) -> Any:
    """m |c'|^2 / 2 + omega . R I R' omega / 2 + m g . c."""
    arm = place[:3, :3] @ ca.vertcat(*body.com)
    spin = place[:3, :3].T @ motion[0]
    speed = motion[1] + ca.cross(motion[0], arm)
    turning = spin.T @ ca.DM(body.inertia_matrix.tolist()) @ spin / 2
    return body.mass * ca.sumsqr(speed) / 2 + turning + body.mass * ca.dot(gravity, place[:3, 3] + arm)


def _gaps(ca: Any, tree: Tree, constraint: Any, place: dict[str, Any], number: Any) -> Any:
    """Rows of one constraint."""

    def pose(frame: Frame) -> Any:
        return place[frame.body] @ fixed(ca, frame.xyz, frame.rpy)

    if isinstance(constraint, Weld):
        T = pose(tree.frame(constraint.frame))
        target = fixed(ca, [number(part) for part in constraint.xyz], [number(part) for part in constraint.rpy])
    else:
        T, target = pose(tree.frame(constraint.first)), pose(tree.frame(constraint.second))
        if not isinstance(constraint, Bond):
            return (T - target)[:3, 3]
    x, y, Y, Z = T[:3, 0], T[:3, 1], target[:3, 1], target[:3, 2]
    return ca.vertcat(T[:3, 3] - target[:3, 3], ca.dot(x, Y), ca.dot(x, Z), ca.dot(y, Z))


def _contact_energy(ca: Any, peg: Peg, place: Any, ball: Ball, number: Any) -> Any:
    """k psi(phi) with the nearest point of the peg's axis; see `contact`."""
    stand = fixed(ca, [number(part) for part in peg.xyz], [number(part) for part in peg.rpy])
    off = (place @ ca.vertcat(*ball.xyz, 1))[:3] - stand[:3, 3]
    along = ca.fmin(ca.fmax(ca.dot(off, stand[:3, 2]), 0), peg.length)
    depth, soft = ball.radius + peg.radius - ca.norm_2(off - along * stand[:3, 2]), peg.softness
    return peg.stiffness * _depth_energy(ca, depth, soft)


def _stop_energy(ca: Any, joint: Joint, q: Any) -> Any:
    """k psi of the excess beyond either limit; see `stops`."""
    beyond = (joint.lower - q, q - joint.upper)
    return joint.stop_stiffness * sum(_depth_energy(ca, depth, joint.stop_softness) for depth in beyond)


def _depth_energy(ca: Any, depth: Any, soft: float) -> Any:
    """psi of `contact`."""
    firm = soft**2 / 6 + (depth**2 - soft**2) / 2 - soft * (depth - soft) / 2
    return ca.if_else(depth <= 0, 0, ca.if_else(depth < soft, depth**3 / (6 * soft), firm))
