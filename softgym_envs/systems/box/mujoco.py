"""The MuJoCo model of the box: the ground truth that our own engine is compared with.

Where it differs from our own engine (`systems.box.dynamics`), apart from rounding:

* Contact is a soft constraint (it gives way over `contact_timeconst`, with `contact_dampratio` of critical damping), so a
  strike lasts some ms and there is no law of restitution; friction at rest creeps. Ours is rigid.
* Corners are balls of `rounding`, at least `SHARP`; edges and faces between them touch nothing, as ours.
* Integration is semi-implicit Euler at `dt`; ours takes as long steps as a camera and stops at strikes.
* A control step starts with a cold solver (see `engines.mujoco.engine`).

In a plane the body has two slides and a hinge.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from ...core.mismatch import Effect, Ladder, transmission
from ...core.parameters import param
from ...core.simulator import Array
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator, empty_spec
from .model import BoxModel
from .parameters import BoxBody

SHARP = 2e-4
"""[m] Least radius of a corner's ball."""
TALL = 1.0
"""[m] Spacing of the grid lines that MuJoCo draws on the table's plane."""


@dataclass(frozen=True)
class MujocoBoxParameters(BoxBody):
    """Parameters of the MuJoCo model: the box itself, and MuJoCo's contact."""

    contact_timeconst: float = param(0.004, unit="s", bounds=(1e-3, 1.0), scale="log", source="MuJoCo's solref; chosen hard")
    contact_dampratio: float = param(
        0.6, unit="-", bounds=(0.05, 10.0), scale="log", source="MuJoCo's solref; bounces a little"
    )


@dataclass(frozen=True, eq=False)
class MujocoBox(MujocoSimulator):
    """The box as balls at its corners, as a `core.simulator.Simulator`; see the module docstring.

    >>> mujoco_model = MujocoBox()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), np.zeros((1, 10, 3)), substeps=10)
    >>> states.shape, status.tolist()
    ((1, 11, 13), [0])
    """

    system = "box"
    parameters_class = MujocoBoxParameters
    ladder = Ladder(
        (
            *transmission((0.0, 0.01, 0.03), (0.0, 0.01, 0.02)),
            Effect("mass", "-", (0.01, 0.03, 0.1), "mass, plus or minus this share"),
            Effect("inertia_spread", "-", (0.01, 0.03, 0.1), "every moment of inertia, plus or minus this share"),
            Effect("centre", "m", (0.0005, 0.001, 0.003), "centre of mass, plus or minus along every side"),
            Effect("tilt", "rad", (0.002, 0.005, 0.02), "the table, against gravity"),
            Effect(
                "softness", "octaves", (0.3, 1.0, 1.0), "time constant of contact, either way by up to so many factors of 2"
            ),
            Effect("corner_spread", "-", (0.02, 0.1, 0.2), "friction of every corner, plus or minus this share"),
        )
    )

    model: BoxModel = field(default_factory=BoxModel)
    """Geometry."""
    dt: float = 1 / 1480
    """Physics step [s]; a tenth of a frame of [Pfrommer2020]'s cameras."""

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        return MujocoEngine(
            self._spec().compile(),
            nx=self.nx,
            nu=self.nu,
            state_index=np.arange(self.model.layout.nx),
            write_parameters=self._write_constants,
        )

    def _spec(self) -> mujoco.MjSpec:
        model, spec = self.model, empty_spec(self.dt)
        spec.option.impratio = 10.0  # less creep of friction at rest
        table = spec.worldbody.add_geom(name="table", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, TALL])
        table.friction, table.contype, table.conaffinity, table.condim = [0.0, 0.0, 0.0], 1, 2, 3
        body = spec.worldbody.add_body(name="box")
        body.explicitinertial, body.mass, body.inertia = True, 1.0, [1.0, 1.0, 1.0]
        body.ipos, body.simple = [0.0, 0.0, 0.0], 0  # a mismatched model's centre of mass is elsewhere
        if model.planar:
            body.add_joint(name="x", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[1, 0, 0])
            body.add_joint(name="z", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 0, 1])
            body.add_joint(name="theta", type=mujoco.mjtJoint.mjJNT_HINGE, axis=[0, -1, 0])
        else:
            body.add_freejoint(name="free")
        for index in range(len(model.signs)):
            ball = body.add_geom(name=f"corner{index}", type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[SHARP, 0.0, 0.0])
            ball.contype, ball.conaffinity, ball.condim = 2, 1, 3
        body.add_site(name="centre", pos=[0.0, 0.0, 0.0])
        for axis, name in zip((0, 2) if model.planar else (0, 1, 2), model.control_names, strict=True):
            gear = np.zeros(6)
            gear[axis] = 1.0
            spec.worldbody.add_site(name=f"axes{axis}", pos=[0.0, 0.0, 0.0])
            motor = spec.add_actuator(
                name=name, target="centre", refsite=f"axes{axis}", trntype=mujoco.mjtTrn.mjTRN_SITE, gear=gear
            )
            motor.set_to_motor()
        return spec

    def _write_constants(self, mj: mujoco.MjModel, row: Array) -> None:
        c: dict[str, Any] = dict(zip(MujocoBoxParameters.names(), row.tolist(), strict=True))
        model, mass = self.model, c["mass"] * (1.0 + float(self.spread("mass")))
        moments = np.resize(model.uniform_inertia, 3) * c["inertia"] * mass
        mj.opt.gravity[:] = c["gravity"] * self.down
        mj.body_mass[1], mj.body_inertia[1] = mass, moments * (1.0 + self.spread("inertia_spread", 3))
        mj.body_ipos[1] = self.spread("centre", 3) * (model.sizes > 0)
        radius = max(c["rounding"], SHARP)
        mj.geom_pos[0, 2] = c["table"]
        mj.geom_size[1:, 0] = mj.geom_rbound[1:] = radius
        mj.geom_pos[1:] = model.signs * (model.sizes - radius) * (model.sizes > 0)
        mj.geom_friction[1:, 0] = c["friction"] * (1.0 + self.spread("corner_spread", len(model.signs)))
        mj.geom_solref[:] = (c["contact_timeconst"] * 2.0 ** float(self.spread("softness")), c["contact_dampratio"])
