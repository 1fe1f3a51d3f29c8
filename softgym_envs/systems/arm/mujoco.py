"""The MuJoCo model of the elbow: MuJoCo's own muscles pull tendons that wrap around cylinders.

Geometry, masses, forces, optimal and slack lengths, time constants are the same. Differences, apart from rounding:

* Curves of the muscles are MuJoCo's quadratic splines. Their shapes (`LMIN` ... `FVMAX`) are least-squares fits to those of
  [DeGroote2016] over fibre lengths 0.5 ... 1.35 and speeds -0.8 ... 0.5; they differ by up to 0.09 F_max (active force by
  length, force by speed). Passive force shares the active one's widths and is up to 0.22 F_max larger at 1.35 (0.07 at 1.2):
  published results rest on this MuJoCo model. In the upper body's the two are separate.
* Activation blends time constants where ours blends rates, over a width of `MUJOCO_SMOOTH`.
* Dry friction holds a joint; ours lets it creep, below `mechanics.tree.Joint.friction_speed`.
* Springs at the ends of the elbow's range begin sharply, ours over 0.02 rad.
* Steps are implicitfast Euler steps of 1 ms, of first order.

Tendons and moment arms are the same to rounding (`tests/integration/test_arm_elbow.py`).

MuJoCo has no pneumatic muscles. Their force is p (3 l^2 - b^2) times a constant (`pneumatic`): p times the rising part of a
MuJoCo muscle's force-length curve, which is a parabola about l = 0 where `lmin` is 0, less p times a fixed gain. So each is two
actuators on one tendon, filled by one control with one exact first-order lag: the same law, to rounding, except for a muscle
shorter than the length at which it pulls: it pushes in the MuJoCo model, and does nothing in ours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from ...core.mismatch import TRANSMISSION, Effect, Ladder
from ...core.simulator import Array
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator
from ...mechanics.structure import rotation
from ...muscles.muscle import MUJOCO_RANGE, MUJOCO_SMOOTH, MUSCLE_SPEED
from .elbow import DAMPING, FALL, FRICTION, LAG, LOAD, RISE, STOP_STIFFNESS
from .elbow_shape import forearm_of, stand
from .model import JOINT, MUSCLES, ElbowModel

LMIN, LMAX, FPMAX, FVMAX = 0.332, 1.663, 0.742, 1.592
"""Shapes of MuJoCo's curves; see the module docstring."""
MAX_WRAP_RADIUS = 0.993
"""Largest wrapping radius, relative to the distance of the muscle's nearer end from the axis."""
FAST = 1e9
"""Shortening speed without force for a muscle that has none, in its lengths per second."""
LADDER = Ladder(
    (
        *TRANSMISSION,
        Effect("force_spread", "-", (0.05, 0.15, 0.25), "maximal force of every muscle, plus or minus this share"),
        Effect("length_spread", "-", (0.005, 0.02, 0.03), "optimal and slack length of every muscle, plus or minus this share"),
        Effect("radius_spread", "-", (0.02, 0.1, 0.15), "wrapping radius of every muscle, plus or minus this share"),
        Effect("dry_friction", "N m", (0.0, 0.1, 0.3), "Coulomb friction of the elbow"),
        Effect("held", "kg", (0.0, 0.1, 0.3), "what the hand carries beyond the payload"),
    )
)
"""Differences of the arm from its nominal model; see `core.mismatch`."""


@dataclass(frozen=True, eq=False)
class MujocoElbow(MujocoSimulator):
    """See the module docstring.

    >>> mujoco_model = MujocoElbow()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), np.tile([0.1, 0.0], (1, 50, 1)), substeps=20)
    >>> bool(states[0, -1, 0] > states[0, 0, 0]), status.tolist()
    (True, [0])
    """

    system = "arm"
    ladder = LADDER

    model: ElbowModel = field(default_factory=ElbowModel)
    """Structure."""
    dt: float = 1e-3
    """Physics step [s]."""

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        compiled = mujoco.MjModel.from_xml_string(self._xml())
        index, driven = np.arange(4), np.arange(compiled.nu)  # angle, speed, activations
        if self.model.kind == "pneumatic":
            index = np.append(index, [2, 3])  # the fixed gains' are the same pressures
        return MujocoEngine(
            compiled, nx=self.nx, nu=self.nu, state_index=index, write_parameters=self._write, control_index=driven
        )

    def _write(self, compiled: mujoco.MjModel, row: Array) -> None:
        """Write one row of parameters into a compiled model, then the effects of a mismatched model."""
        compiled.dof_damping[0] = row[DAMPING]
        compiled.dof_frictionloss[0] = max(row[FRICTION], 0.0) + self.amount("dry_friction")
        compiled.body_mass[compiled.body("load").id] = row[LOAD] + self.amount("held")
        stronger, wider = 1.0 + self.spread("force_spread", 2), 1.0 + self.spread("radius_spread", 2)
        longer = 1.0 + self.spread("length_spread", 4).reshape(2, 2)
        for i, name in enumerate(MUSCLES):
            own, (origin, insertion) = row[4 * i : 4 * i + 4], self.model.ends[name]
            write = self._write_pneumatic if self.model.kind == "pneumatic" else self._write_hill
            write(compiled, name, own * (1.0, longer[i, 1], longer[i, 0], wider[i]), stronger[i], row)
            nearer = min(np.linalg.norm(origin[[0, 2]]), np.linalg.norm(insertion[[0, 2]]))
            compiled.geom_size[compiled.geom(name).id, 0] = min(own[3] * wider[i], MAX_WRAP_RADIUS * nearer)

    def _write_hill(self, compiled: mujoco.MjModel, name: str, own: Array, stronger: float, row: Array) -> None:
        """Write force, optimal and slack length, and time constants of a muscle."""
        k = compiled.actuator(name).id
        compiled.actuator_gainprm[k, 2] = compiled.actuator_biasprm[k, 2] = own[0] * stronger
        compiled.actuator_lengthrange[k] = own[2] + np.array(MUJOCO_RANGE) * own[1]
        compiled.actuator_dynprm[k, :2] = row[RISE], row[FALL]

    def _write_pneumatic(self, compiled: mujoco.MjModel, name: str, own: Array, stronger: float, row: Array) -> None:
        """Write turns and length of the threads, and the lag; see the module docstring."""
        turns, thread, slack, _ = own
        gain = stronger * self.model.muscle(name).pressure * thread * thread / (4.0 * np.pi * turns * turns)
        parabola, fixed = compiled.actuator(name).id, compiled.actuator(f"{name}_fixed").id
        compiled.actuator_gainprm[parabola, 2] = 6.0 * gain  # half of it where l = b
        compiled.actuator_lengthrange[parabola] = slack + np.array([0.0, thread])
        compiled.actuator_gainprm[fixed, 0] = gain
        compiled.actuator_dynprm[[parabola, fixed], 0] = row[LAG]

    def _xml(self) -> str:
        """MJCF of the world; numbers that are parameters are written later."""
        forearm, tree, model = forearm_of(self.model.tree), self.model.tree, self.model
        sites, tendons, actuators, fixed = [], [], [], []
        insertions: list[str] = []
        for name in MUSCLES:
            muscle, (origin, insertion) = model.muscle(name), model.ends[name]
            surface = model.muscles.surface(muscle.surfaces[0])
            turn = stand(tree, surface.body, surface.xyz)[0] @ rotation(surface.rpy)
            side = turn @ np.array(muscle.sides[0]) * [1.0, 0.0, 1.0] + [0.0, origin[1], 0.0]
            side *= max(1.0, 4.0 * surface.size[0] / np.linalg.norm(side))  # inside it would mean a path inside
            sites += [
                f'<site name="{name}_origin" pos="{_text(origin)}"/><site name="{name}_side" pos="{_text(side)}"/>',
                f'<geom name="{name}" type="cylinder" size="{surface.size[0]} 0.02" euler="90 0 0"/>',
            ]
            insertions.append(f'<site name="{name}_insertion" pos="{_text(insertion)}"/>')
            tendons.append(
                f'<spatial name="{name}"><site site="{name}_origin"/><geom geom="{name}" sidesite="{name}_side"/>'
                f'<site site="{name}_insertion"/></spatial>'
            )
            made = PNEUMATIC if model.kind == "pneumatic" else HILL
            actuators.append(made.format(name=name))
            fixed.append(FIXED.format(name=name) if model.kind == "pneumatic" else "")
        lower, upper = model.limits
        about = max(forearm.inertia - forearm.mass * float(forearm.com @ forearm.com), TINY_INERTIA)
        return f"""<mujoco><option timestep="{self.dt}" gravity="{_text(tree.gravity)}" integrator="implicitfast"/>
<default><geom contype="0" conaffinity="0" mass="0"/></default>
<worldbody>{"".join(sites)}
<body name="forearm"><joint name="{JOINT}" axis="0 -1 0"/>
<inertial pos="{forearm.com[0]} 0 {forearm.com[1]}" mass="{forearm.mass}" diaginertia="{about} {about} {about}"/>
{"".join(insertions)}
<body name="load" pos="{_text(forearm.load)}"><inertial pos="0 0 0" mass="1" diaginertia="{_text((TINY_INERTIA,) * 3)}"/></body>
</body>
</worldbody>
<tendon>{"".join(tendons)}<fixed name="stops" stiffness="{STOP_STIFFNESS}" springlength="{lower} {upper}">
<joint joint="{JOINT}" coef="1"/></fixed></tendon><actuator>{"".join(actuators + fixed)}</actuator></mujoco>"""


TINY_INERTIA = 1e-9
"""[kg m^2] Least inertia of a body, for MuJoCo."""
HILL = (
    f'<muscle name="{{name}}" tendon="{{name}}" tausmooth="{MUJOCO_SMOOTH}" lengthrange="0.1 0.2" '
    f'range="{MUJOCO_RANGE[0]} {MUJOCO_RANGE[1]}" '
    f'force="1" lmin="{LMIN}" lmax="{LMAX}" vmax="{MUSCLE_SPEED}" fpmax="{FPMAX}" fvmax="{FVMAX}"/>'
)
_LAGGING = '<general name="{name}" tendon="{target}" dyntype="filterexact" dynprm="1" biastype="none" {gain}/>'
PNEUMATIC = _LAGGING.format(
    name="{name}", target="{name}", gain=f'lengthrange="0 1" gaintype="muscle" gainprm="0 0.5 1 1 0 2 {FAST} 1 1"'
)
FIXED = _LAGGING.format(name="{name}_fixed", target="{name}", gain='gaintype="fixed" gainprm="1"')
"""Actuators; their numbers that are parameters are written later; see the module docstring."""


def _text(values: Iterable[Any]) -> str:
    return " ".join(repr(float(value)) for value in values)
