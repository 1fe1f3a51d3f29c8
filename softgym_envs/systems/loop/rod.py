r"""A second ground truth: the loop as an elastic rod in MuJoCo, which the system's model cannot be, whatever its parameters.

The tyre is a Kirchhoff rod of rigid pieces, two per link of the model (or one, which takes a third of the time), closed between
gripper and clamp as the model's loop is.
Neighbours turn against each other in three directions: they bend both ways alike, and twist, as a round tube of Young's modulus
E does:

.. math:: EI = \kappa_\theta \, \ell, \qquad GJ = EI / (1 + \nu), \qquad k_{bend} = EI / s, \quad k_{twist} = GJ / s

with the model's link length l and the piece's length s; `psi_stiffness` has no effect. Arm, mass, tube, clamp and peg are the
model's, and so are the effects of the mismatched model (`mismatch`).

Differences from the native engine:

* The loop has twice as many pieces, on a polygon of the same height and more corners (perimeter 1.7 % shorter).
* Pieces bend alike in both planes, and they twist. The native joints have one hinge for twist and bending out of the plane.
* Steps are MuJoCo's, of 0.25 ms at most.

(MuJoCo 4.0.0 has no cable plugin any more. Its one-dimensional flex has no twist in a closed ring, and vertices without
orientation, so that neither gripper nor clamp could hold it as they hold a tyre. Hence hinges.)

A state begins with the model's: the arm's angles are the rod's own; the loop's are those of the polygon through the middle of
every second piece (or through the joints, of as many pieces as links), link by link, with twist if the model has it; their
speeds are differences over the control step. The rod's own angles and speeds follow as further entries. A first state has the
loop's angles of the model's rest, up to 5 mrad from the polygon's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import cos, pi
from typing import Any

import mujoco
import numpy as np

from ...core.layout import Field
from ...core.simulator import Array, IntArray, check_number
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator
from ...mechanics.mujoco_tree import spec_of, write_tree
from ...mechanics.tree import Tree
from .links import TWIST, polygon_angles
from .mismatch import LADDER, flawed, harden, with_sensor_errors
from .model import ARM, LoopModel
from .springs import SIDES

ROD_REST_TIME = 1.0
"""[s] Time for which the rod hangs before its rest is taken; it is stopped whenever it slows down (dynamic relaxation)."""
MAX_ROD_STEP = 2.5e-4
"""[s] A piece's twist against its neighbours, 3300 rad/s, is stable up to 0.6 ms; pieces twice as long allow twice that."""
PIECES = (1, 2)
"""Pieces per link of the model."""


@dataclass(frozen=True, eq=False)
class LoopRod(MujocoSimulator):
    """See the module docstring.

    Raises:
        OptionError: poisson is not within [0, 0.5], or pieces is neither 1 nor 2.
    """

    system = "loop"
    ladder = LADDER
    sensed = with_sensor_errors

    model: LoopModel = field(default_factory=LoopModel)
    """Structure: the arm, and the polygon of the states."""
    dt: float = MAX_ROD_STEP
    """Physics step [s], split into as many of MuJoCo's as needed."""
    poisson: float = 0.5
    """Poisson's ratio nu; 0.5 for rubber."""
    pieces: int = 2
    """Pieces of the rod per link of the model, 1 or 2."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("poisson", self.poisson, low=0.0, high=0.5)
        check_number("pieces", self.pieces, low=PIECES[0], high=PIECES[-1], whole=True)

    @property
    def longest_dt(self) -> float:
        """See `MujocoSimulator.longest_dt`; finer loops have faster modes."""
        return MAX_ROD_STEP * min(1.0, 12 / self.model.links) * PIECES[-1] / self.pieces

    # --- structure ------------------------------------------------------------------------------------------------------

    @cached_property
    def fine(self) -> LoopModel:
        """A loop of as many links as there are pieces, as high as the model's."""
        pieces = self.pieces * self.model.links
        return replace(self.model, links=pieces, spring_parts=0, radius=self.model.height / (2 * cos(pi / pieces)), twist=True)

    @cached_property
    def tree(self) -> Tree:
        """The fine loop's tree, which bends both ways alike."""
        alike: dict[str, dict[str, Any]] = {
            "psi_stiffness": {"stiffness": "theta_stiffness"},
            TWIST[0]: {"damping": "loop_damping"},
        }
        tree = self.fine.tree
        return replace(tree, joints=tuple(replace(joint, **alike.get(str(joint.stiffness), {})) for joint in tree.joints))

    @cached_property
    def extra_fields(self) -> tuple[Field, ...]:  # type: ignore[override]
        """The rod's own angles and speeds."""
        names = [name for name in self.tree.coordinates if name not in ARM]
        return (Field("rod", None, (" ".join(names), "rad")), Field("rod.v", None, (" ".join(names), "rad/s")))

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping of arm and rod."""
        compiled = spec_of(self.tree, self.dt / self.refinement).compile()
        n, own = self.model.n, [name for name in self.tree.coordinates if name not in ARM]
        place = {name: i for i, name in enumerate(ARM)} | {name: 2 * n + i for i, name in enumerate(own)}
        order = np.array([place[compiled.joint(i).name] for i in range(compiled.njnt)])
        speeds = np.where(order < len(ARM), n + order, order + len(own))
        return MujocoEngine(
            compiled, nx=self.nx, nu=self.nu, state_index=np.concatenate([order, speeds]), write_parameters=self._write
        )

    def _write(self, mj: mujoco.MjModel, row: Array) -> None:
        ratio = self.model.link_length / self.fine.link_length
        values = dict(
            zip(self.model.parameter_names, self.model.tree_constants(flawed(self, row)[None])[0].tolist(), strict=True)
        )
        values["theta_stiffness"] *= ratio
        values["loop_damping"] *= ratio
        values[TWIST[0]] = values["theta_stiffness"] / (1 + self.poisson)
        write_tree(mj, self.tree, values)
        harden(self, mj, self.tree)

    # --- states ---------------------------------------------------------------------------------------------------------

    @cached_property
    def extra_rest(self) -> Array:
        """The rod's angles where it hangs at rest below the arm at `start`, and no speeds."""
        mj = self.engine.models(self.default_parameters.to_matrix(1))[0]
        heavy, data = mj.__copy__(), mujoco.MjData(mj)
        joints = [mj.joint(name) for name in ARM]
        for joint, angle in zip(joints, self.model.start, strict=True):
            heavy.dof_damping[joint.dofadr[0]] = 1e6  # the arm stands still
            data.qpos[joint.qposadr[0]] = angle
        speed = 0.0
        for _ in range(round(ROD_REST_TIME / mj.opt.timestep)):
            mujoco.mj_step(heavy, data)
            before, speed = speed, float(data.qvel @ data.qvel)
            if speed < before:
                data.qvel[:], speed = 0.0, 0.0
        own = [name for name in self.tree.coordinates if name not in ARM]
        angles = np.array([data.qpos[mj.joint(name).qposadr[0]] for name in own])
        return np.concatenate([angles, np.zeros(len(own))])

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        after, status = super()._held(state, control, parameter_values, substeps)
        n, arm = self.model.n, len(ARM)
        after[:, arm:n] = self._polygon(after, parameter_values)
        after[:, n + arm : 2 * n] = (after[:, arm:n] - state[:, arm:n]) / (self.dt * substeps)
        return np.where(status[:, None] == 0, after, state), status

    def _polygon(self, state: Array, parameter_values: Array) -> Array:
        """The model's angles (B, n - 7) of the polygon through the middle of every second piece, or through the joints."""
        links, count = self.model.links, self.fine.links // 2

        def read(mj: mujoco.MjModel, data: mujoco.MjData) -> Array:
            turn = data.body("gripper").xmat.reshape(3, 3)
            found = []
            for side, sign in zip(SIDES, (1, -1), strict=True):
                bodies = [data.body(f"{side}{i}") for i in range(0, count, self.pieces)]
                corners = np.array([body.xipos if self.pieces == 2 else body.xpos for body in bodies])
                frames = np.array([body.xmat.reshape(3, 3) for body in bodies])
                last = data.body(f"{side}{count - 1}").xmat.reshape(3, 3)[:, 2]
                ways = np.vstack([np.diff(corners, axis=0), last])
                found.append(polygon_angles(turn, sign, ways, links, frames[:, :, 0] if self.model.twist else None))
            return np.concatenate(found)

        return self.engine.evaluate(state, parameter_values, read)
