r"""Trees of rigid bodies in director coordinates, derived by automatic differentiation [Penner2020, section 2.2].

A body is q = (x_s, d_1, d_2, d_3) in R^12: centre of mass and orthonormal frame. Its mass matrix is constant,

.. math:: T = \tfrac12 m |\dot x_s|^2 + \tfrac12 \sum_{ij} E_{ij}\, \dot d_i \cdot \dot d_j, \quad
   E = \tfrac12 \mathrm{tr}(J) 1 - J

and g(q) = 0 keeps frames orthonormal and joints together. This module writes down the tree's Lagrangian, g, and the nodal
reparametrisation F_d; the discrete Euler-Lagrange equations and the null-space matrix P_d follow by differentiation. Eq. (11)
as printed leaves out that a parent's rotation turns its children too; here Q_child = Q_parent cay(u n).

Trees are those of `mechanics.tree`; fixed joints and bodies without mass keep their frames. Springs, dampers and controls of
joints are generalised forces, which `director_steps` adds. Legend: b bodies, k constraint rows, f degrees of freedom, m closure
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from softgym_envs.core.errors import StructureError
from softgym_envs.core.transcription import casadi
from softgym_envs.mechanics.structure import rotation
from softgym_envs.mechanics.tree import WORLD, Joint, Tree, Value, Weld


class Pose(NamedTuple):
    """A body: centre of mass (3,) and frame (3, 3), columns d_1, d_2, d_3."""

    x: Any
    R: Any

    def point(self, arm: Any) -> Any:
        """Position of the body's point at `arm` (3,) from its centre of mass."""
        return self.x + self.R @ arm


@dataclass(frozen=True, eq=False)
class Directors:
    """See the module docstring.

    >>> from softgym_envs.mechanics.tree import Body, Joint, Tree
    >>> rod = Body("rod", 1.0, (0.0, 0.0, -0.5), (0.1, 0.1, 0.01))
    >>> tree = Tree("pendulum", (rod,), (Joint("hinge", "revolute", "world", "rod", axis=(0.0, 1.0, 0.0)),))
    >>> directors = Directors(tree)
    >>> gaps = np.array(directors.constraints(directors.configuration([0.3])))
    >>> directors.size, directors.f, bool(abs(gaps).max() < 1e-12)
    (12, 1, True)

    Raises:
        StructureError: The tree uses a parameter that is not given.
        MissingDependencyError: CasADi is not installed.
    """

    tree: Tree
    parameter_values: Mapping[str, Any] = field(default_factory=dict)
    """Name -> number, or a casadi.SX symbol."""

    def __post_init__(self) -> None:
        missing = [name for name in self.tree.parameter_names if name not in self.parameter_values]
        if missing:
            given = ", ".join(self.parameter_values) or "none"
            raise StructureError(f"tree {self.tree.name!r} uses parameters {missing}; given are {given}")

    @property
    def f(self) -> int:
        """Degrees of freedom of the open tree."""
        return len(self.tree.moving)

    @property
    def size(self) -> int:
        """Length of q, 12 b."""
        return 12 * len(self.tree.bodies)

    def number(self, value: Value) -> Any:
        """A number of the tree's description, or the parameter that it names."""
        return self.parameter_values[value] if isinstance(value, str) else value

    # --- Lagrangian ---------------------------------------------------------------------------------------------------

    @cached_property
    def mass(self) -> Any:
        """Constant mass matrix (12 b, 12 b)."""
        ca, blocks = casadi(), []
        for body in self.tree.bodies:
            J, scale = body.inertia_matrix, self.number(body.scale)
            euler = 0.5 * np.trace(J) * np.eye(3) - J
            block = np.kron(np.block([[np.full((1, 1), body.mass), np.zeros((1, 3))], [np.zeros((3, 1)), euler]]), np.eye(3))
            blocks.append(scale * ca.SX(ca.DM(block)))
        return ca.diagcat(*blocks)

    def potential(self, q: Any) -> Any:
        """Potential energy V(q) = - sum m g . x_s [J]."""
        ca, found = casadi(), 0
        gravity = ca.vertcat(*(self.number(part) for part in self.tree.gravity))
        for body in self.tree.bodies:
            found -= self.number(body.scale) * body.mass * ca.dot(gravity, self._poses(q)[body.name].x)
        return found

    def discrete_lagrangian(self, q0: Any, q1: Any, h: float) -> Any:
        """Discrete Lagrangian L_d(q_n, q_n+1) = h L((q_n + q_n+1) / 2, (q_n+1 - q_n) / h), eq. (6)."""
        v = (q1 - q0) / h
        return h * (0.5 * v.T @ self.mass @ v - self.potential((q0 + q1) / 2))

    # --- constraints --------------------------------------------------------------------------------------------------

    @cached_property
    def constraints(self) -> Any:
        """casadi.Function: q (12 b) -> g (k): frames orthonormal, joints together."""
        ca = casadi()
        q = ca.SX.sym("q", self.size)
        poses = self._poses(q)
        rows = [_orthonormal(ca, poses[body.name].R) for body in self.tree.bodies]
        rows += [self._joint_rows(joint, poses) for joint in self.tree.ordered]
        return ca.Function("constraints", [q], [ca.vertcat(*rows)], ["q"], ["g"])

    @cached_property
    def closure(self) -> Any:
        """casadi.Function: q -> rows (m) of welds and pins, which close loops."""
        ca = casadi()
        q = ca.SX.sym("q", self.size)
        rows = [self._closure_rows(constraint, self._poses(q)) for constraint in self.tree.constraints]
        return ca.Function("closure", [q], [ca.vertcat(ca.SX.zeros(0), *rows)], ["q"], ["h"])

    def _joint_rows(self, joint: Joint, poses: Mapping[str, Pose]) -> Any:
        """5 rows of a revolute or prismatic joint, 6 of a fixed one."""
        ca, parent, child = casadi(), poses[joint.parent], poses[joint.child]
        turn = parent.R @ ca.DM(rotation(joint.rpy))
        apart = child.point(-self._com(joint.child)) - parent.point(np.array(joint.xyz) - self._com(joint.parent))
        axis = np.array(joint.axis) / np.linalg.norm(joint.axis)
        across = ca.DM(np.linalg.svd(axis[None])[2][1:].T)  # (3, 2), normal to the axis
        together = ca.vertcat(*(ca.dot(turn[:, i], child.R[:, j]) for i, j in ((0, 1), (1, 2), (2, 0))))
        if joint.kind == "revolute":
            return ca.vertcat(apart, (child.R @ across).T @ (turn @ ca.DM(axis)))
        if joint.kind == "prismatic":
            return ca.vertcat(together, (turn @ across).T @ apart)
        return ca.vertcat(apart, together)

    def _closure_rows(self, constraint: Any, poses: Mapping[str, Pose]) -> Any:
        """Rows of a `mechanics.tree.Weld` or `Pin`."""
        ca = casadi()

        def place(name: str) -> tuple[Any, Any]:
            frame = self.tree.frame(name)
            pose = poses[frame.body]
            return pose.point(np.array(frame.xyz) - self._com(frame.body)), pose.R @ ca.DM(rotation(frame.rpy))

        if not isinstance(constraint, Weld):
            return place(constraint.first)[0] - place(constraint.second)[0]
        origin, turn = place(constraint.frame)
        target = ca.DM(rotation([float(self.number(part)) for part in constraint.rpy]))
        apart = origin - ca.vertcat(*(self.number(part) for part in constraint.xyz))
        return ca.vertcat(apart, *(ca.dot(turn[:, i], target[:, j]) for i, j in ((0, 1), (0, 2), (1, 2))))

    # --- nodal reparametrisation --------------------------------------------------------------------------------------

    @cached_property
    def reparametrisation(self) -> Any:
        """casadi.Function F_d: (u (f), q_n) -> q_n+1, eqs. (7), (9) to (11) with the parents' rotations.

        u is the Cayley increment of a hinge, 2 tan(angle / 2), or the increment of a slide [m].
        """
        ca = casadi()
        u, q = ca.SX.sym("u", self.f), ca.SX.sym("q", self.size)
        before = self._poses(q)
        after, turned = {WORLD: before[WORLD]}, {WORLD: ca.SX.eye(3)}
        for joint in self.tree.ordered:
            step = u[self.tree.coordinates.index(joint.name)] if joint.kind != "fixed" else 0
            child, parent = before[joint.child], before[joint.parent]
            axis = child.R @ ca.DM(np.array(joint.axis) / np.linalg.norm(joint.axis))
            Q = turned[joint.parent]
            own = cayley(ca, step * axis) if joint.kind == "revolute" else ca.SX.eye(3)
            pivot = child.point(-self._com(joint.child))
            moved = pivot + step * axis if joint.kind == "prismatic" else pivot
            carried = after[joint.parent].x + Q @ (moved - parent.x)
            after[joint.child] = Pose(carried + Q @ own @ (child.x - pivot), Q @ own @ child.R)
            turned[joint.child] = Q @ own
        found = ca.vertcat(*(ca.vertcat(after[body.name].x, ca.vec(after[body.name].R)) for body in self.tree.bodies))
        return ca.Function("F_d", [u, q], [found], ["u", "q"], ["q1"])

    @cached_property
    def null_space(self) -> Any:
        """casadi.Function P_d: q -> (12 b, f) = dF_d(u, q) / du at u = 0, eq. (8)."""
        ca = casadi()
        u, q = ca.SX.sym("u", self.f), ca.SX.sym("q", self.size)
        slope = ca.substitute(ca.jacobian(self.reparametrisation(u, q), u), u, ca.SX.zeros(self.f))
        return ca.Function("P_d", [q], [ca.densify(ca.simplify(slope))], ["q"], ["P"])

    @cached_property
    def reference(self) -> Any:
        """Director coordinates q (12 b) of the tree with all coordinates zero."""
        found = {WORLD: (np.eye(3), np.zeros(3))}
        for joint in self.tree.ordered:
            turn, origin = found[joint.parent]
            found[joint.child] = (turn @ rotation(joint.rpy), origin + turn @ np.array(joint.xyz))
        parts = [
            (found[body.name][1] + found[body.name][0] @ np.array(body.com), found[body.name][0]) for body in self.tree.bodies
        ]
        return casadi().DM(np.concatenate([np.concatenate([x, R.ravel(order="F")]) for x, R in parts]))

    def configuration(self, theta: Any) -> Any:
        """Coordinates q (12 b) for joint coordinates theta (f), hinges within +-pi: F_d from the reference, any increment."""
        ca = casadi()
        hinges = [joint.kind == "revolute" for joint in self.tree.moving]
        parts = ca.vertsplit(theta) if isinstance(theta, (ca.SX, ca.DM)) else list(theta)
        steps = [2 * ca.tan(part / 2) if hinge else part for part, hinge in zip(parts, hinges, strict=True)]
        return self.reparametrisation(ca.vertcat(*steps), self.reference)

    def coordinates(self, u: Any) -> Any:
        """Increments of the joint coordinates (f) for u: 2 atan(u / 2) of hinges."""
        ca = casadi()
        kinds = [joint.kind for joint in self.tree.moving]
        return ca.vertcat(*(2 * ca.atan(u[i] / 2) if kind == "revolute" else u[i] for i, kind in enumerate(kinds)))

    # --- parts --------------------------------------------------------------------------------------------------------

    def pose(self, name: str, q: Any) -> Pose:
        """Pose of a body in q.

        Raises:
            StructureError: There is no such body.
        """
        poses = self._poses(q)
        if name not in poses:
            raise StructureError(f"unknown body {name!r}; there are {', '.join(poses)}")
        return poses[name]

    def _poses(self, q: Any) -> dict[str, Pose]:
        ca = casadi()
        found = {WORLD: Pose(ca.DM.zeros(3), ca.DM.eye(3))}
        for i, body in enumerate(self.tree.bodies):
            found[body.name] = Pose(q[12 * i : 12 * i + 3], ca.reshape(q[12 * i + 3 : 12 * i + 12], 3, 3))
        return found

    def _com(self, body: str) -> np.ndarray:
        """Centre of mass in the body's own frame [m]; zero for the world."""
        return next((np.array(found.com) for found in self.tree.bodies if found.name == body), np.zeros(3))


def cayley(ca: Any, rate: Any) -> Any:
    """Cayley map cay(w) = 1 + 4 / (4 + |w|^2) ([w]x + [w]x^2 / 2), a rotation by 2 atan(|w| / 2)."""
    K = ca.skew(rate)
    return ca.SX.eye(3) + 4 / (4 + ca.sumsqr(rate)) * (K + K @ K / 2)


def _orthonormal(ca: Any, R: Any) -> Any:
    """Orthonormality rows d_i . d_j - delta_ij, i <= j (6)."""
    return ca.vertcat(*(ca.dot(R[:, i], R[:, j]) - float(i == j) for i in range(3) for j in range(i, 3)))
