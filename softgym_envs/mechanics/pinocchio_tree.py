r"""Trees in Pinocchio: the same bodies and joints, by Featherstone's articulated-body algorithm, without constraints.

Springs, dampers, dry friction and stops of the joints are torques, by the laws of `tree.Joint`. With M the mass matrix, b the
bias forces and tau the controls,

.. math:: M(q) q'' + b(q, q') = \tau + offset - k (q - rest) - d q' - f \tanh(q' / w) - k_s \psi'(excess)

Legend: n coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pinocchio as pin

from ..core.simulator import Array
from .structure import rotation
from .tree import WORLD, Body, Tree, Value

JOINTS = {"revolute": pin.JointModelRevoluteUnaligned, "prismatic": pin.JointModelPrismaticUnaligned}
SPEED_LIMIT = 1e3
"""[rad/s, m/s] Largest speed before a row counts as diverged."""


@dataclass(frozen=True, eq=False)
class PinocchioTree:
    """A tree with values of its parameters; Pinocchio's `data` is the caller's, so that threads share no buffer."""

    model: Any
    """The `pinocchio.Model`; its joint i + 1 is coordinate i."""
    joints: dict[str, int]
    """Body -> the joint that it rides on; 0: the world."""
    places: dict[str, Any]
    """Body -> its `pinocchio.SE3` on that joint."""
    stiffness: Array
    """Stiffness, rest, damping, dry friction, its speed, and offset: (n,) each."""
    rest: Array
    damping: Array
    friction: Array
    friction_speed: Array
    offset: Array
    stops: Array
    """(4, n) lower, upper, stiffness, softness; stiffness is 0 without stops."""

    def forces(self, q: Array, v: Array) -> Array:
        """Torques (n,) of springs, dampers, friction and stops at q, v (n,), and offsets [N m]."""
        found = self.offset - self.stiffness * (q - self.rest) - self.damping * v
        if self.friction.any():
            found -= self.friction * np.tanh(v / self.friction_speed)
        lower, upper, stiffness, softness = self.stops
        if ((q < lower) | (q > upper)).any():
            excess = np.maximum(np.maximum(lower - q, q - upper), 0.0)
            slope = np.where(excess < softness, excess**2 / (2 * softness), excess - 0.5 * softness)
            found += np.where(q < lower, 1.0, -1.0) * stiffness * slope
        return np.asarray(found)

    def acceleration(self, data: Any, q: Array, v: Array, torque: Array) -> Array:
        """q'' (n,) under torques (n,), beside those of `forces` [rad/s^2]."""
        return np.asarray(pin.aba(self.model, data, q, v, torque + self.forces(q, v)))


def pinocchio_tree(tree: Tree, values: Mapping[str, float]) -> PinocchioTree:
    """The tree with these values of its parameters."""

    def number(value: Value) -> float:
        return float(values[value]) if isinstance(value, str) else float(value)

    def numbers(read: Callable[[Any], Value]) -> Array:
        return np.array([number(read(joint)) for joint in tree.moving])

    model, bodies = pin.Model(), {body.name: body for body in tree.bodies}
    model.gravity.linear = np.array([number(value) for value in tree.gravity])
    joints, places = {WORLD: 0}, {WORLD: pin.SE3.Identity()}
    for joint in tree.ordered:
        body = bodies[joint.child]
        place = places[joint.parent] * pin.SE3(rotation(joint.rpy), np.array(joint.xyz))
        number_of, rides = joints[joint.parent], place
        if joint.kind != "fixed":
            axis = np.array(joint.axis) / np.linalg.norm(joint.axis)
            number_of = model.addJoint(number_of, JOINTS[joint.kind](axis), place, joint.name)
            rides = pin.SE3.Identity()
        joints[body.name], places[body.name] = number_of, rides
        if body.mass > 0:
            model.appendBodyToJoint(number_of, _inertia(body, number(body.scale)), rides)
    model.armature = numbers(lambda joint: joint.armature)
    stops = [(j.lower, j.upper, j.stop_stiffness, j.stop_softness) if j.stop_stiffness else _NO_STOPS for j in tree.moving]
    return PinocchioTree(
        model, joints, places, numbers(lambda j: j.stiffness), numbers(lambda j: j.rest), numbers(lambda j: j.damping),
        np.maximum(numbers(lambda j: j.friction), 0.0), numbers(lambda j: j.friction_speed), numbers(lambda j: j.offset),
        np.array(stops).T.copy(),
    )  # fmt: skip


_NO_STOPS = (-np.inf, np.inf, 0.0, 1.0)


def _inertia(body: Body, scale: float) -> Any:
    return pin.Inertia(scale * body.mass, np.array(body.com), scale * body.inertia_matrix)
