"""The MuJoCo twin of the elbow: MuJoCo's own muscles pull tendons that wrap around cylinders.

Geometry, masses, forces, optimal and slack lengths, time constants are the same. Where it differs, apart from rounding:

* Curves of the muscles are MuJoCo's quadratic splines. Their shapes (`LMIN` ... `FVMAX`) are least-squares fits to those of
  [DeGroote2016] over fibre lengths 0.5 ... 1.35 and speeds -0.8 ... 0.5; they differ by up to 0.09 F_max (active force by
  length, force by speed). Passive force shares the active one's widths and is up to 0.22 F_max larger at 1.35 (0.07 at 1.2):
  published results stand on this twin. In the upper body's the two are apart, see `body_mujoco`.
* Activation blends time constants where ours blends rates, over a width of `SMOOTH`.
* Springs at the ends of the elbow's range begin sharply, ours over 0.02 rad.
* Steps are implicitfast Euler steps of 1 ms, of first order.

Tendons and moment arms are the same to rounding (`tests/test_arm_elbow.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from ..core.hard import TRANSMISSION, Effect, Ladder
from ..core.mujoco_engine import MujocoEngine, MujocoTwin
from ..core.simulator import Array, check_number
from .elbow import DAMPING, FALL, GRAVITY, LOAD, RISE, STOP_STIFFNESS
from .model import JOINT, MUSCLES, ElbowModel
from .muscle import SPEED
from .parameters import ElbowParameters

LMIN, LMAX, FPMAX, FVMAX = 0.332, 1.663, 0.742, 1.592
"""Shapes of MuJoCo's curves; see the module docstring."""
SMOOTH = 0.1
"""Width over which activation turns to deactivation [-]."""
LARGEST = 0.024
"""[m] Of a wrapping radius: the triceps is attached at 0.0242 m from the axis."""
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
"""How the arm is unlike its drawing; see `core.hard`."""
RANGE = (0.5, 1.5)
"""Fibre lengths that stand for MuJoCo's two given lengths of a tendon."""


@dataclass(frozen=True, eq=False)
class ElbowTwin(MujocoTwin):
    """See the module docstring.

    >>> twin = ElbowTwin()
    >>> states, status = twin.rollout(twin.initial_state(), np.tile([0.1, 0.0], (1, 50, 1)), substeps=20)
    >>> bool(states[0, -1, 0] > states[0, 0, 0]), status.tolist()
    (True, [0])

    Raises:
        OptionError: dt is not positive.
    """

    room = "arm"
    parameters_class = ElbowParameters
    ladder = LADDER

    model: ElbowModel = field(default_factory=ElbowModel)
    """Structure."""
    dt: float = 1e-3
    """Physics step [s]."""

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        compiled = mujoco.MjModel.from_xml_string(self._xml())
        index = np.arange(4)  # angle, speed, activations
        return MujocoEngine(compiled, nx=self.nx, nu=self.nu, state_index=index, write_constants=self._write)

    def _write(self, compiled: mujoco.MjModel, row: Array) -> None:
        """One row of constants into a compiled model, and the effects of a hard twin."""
        compiled.dof_damping[0] = row[DAMPING]
        compiled.dof_frictionloss[0] = self.amount("dry_friction")
        compiled.body_mass[compiled.body("load").id] = row[LOAD] + self.amount("held")
        stronger, wider = 1.0 + self.spread("force_spread", 2), 1.0 + self.spread("radius_spread", 2)
        longer = 1.0 + self.spread("length_spread", 4).reshape(2, 2)
        for i, name in enumerate(MUSCLES):
            force, optimal, slack, radius = row[4 * i : 4 * i + 4]
            k = compiled.actuator(name).id
            compiled.actuator_gainprm[k, 2] = compiled.actuator_biasprm[k, 2] = force * stronger[i]
            compiled.actuator_lengthrange[k] = slack * longer[i, 0] + np.array(RANGE) * optimal * longer[i, 1]
            compiled.actuator_dynprm[k, :2] = row[RISE], row[FALL]
            compiled.geom_size[compiled.geom(name).id, 0] = min(radius * wider[i], LARGEST)

    def _xml(self) -> str:
        """The world; numbers that are constants are written later."""
        bodies = {body.name: body for body in self.model.tree.bodies}
        forearm, (lower, upper) = bodies["forearm"], self.model.limits
        grip = next(joint.xyz for joint in self.model.tree.joints if joint.child == "load")
        sites: dict[str, list[str]] = {"humerus": [], "forearm": []}
        tendons, actuators = [], []
        for muscle in self.model.muscles.muscles:
            name, surface = muscle.name, self.model.muscles.surface(muscle.surfaces[0])
            sites[muscle.origin_body].append(f'<site name="{name}_origin" pos="{_text(muscle.origin)}"/>')
            sites[muscle.insertion_body].append(f'<site name="{name}_insertion" pos="{_text(muscle.insertion)}"/>')
            turned = [muscle.sides[0][0], -muscle.sides[0][2], muscle.sides[0][1]]  # the surface's frame is turned about x
            sites[surface.body].append(f'<site name="{name}_side" pos="{_text(turned)}"/>')
            sites[surface.body].append(
                f'<geom name="{name}" type="cylinder" size="{surface.size[0]} 0.02" euler="{_text(np.degrees(surface.rpy))}"/>'
            )
            tendons.append(
                f'<spatial name="{name}"><site site="{name}_origin"/><geom geom="{name}" sidesite="{name}_side"/>'
                f'<site site="{name}_insertion"/></spatial>'
            )
            actuators.append(
                f'<muscle name="{name}" tendon="{name}" tausmooth="{SMOOTH}" lengthrange="0.1 0.2" range="{_text(RANGE)}" '
                f'force="1" lmin="{LMIN}" lmax="{LMAX}" vmax="{SPEED}" fpmax="{FPMAX}" fvmax="{FVMAX}"/>'
            )
        return f"""<mujoco><option timestep="{self.dt}" gravity="0 0 {-GRAVITY}" integrator="implicitfast"/>
<default><geom contype="0" conaffinity="0" mass="0"/></default>
<worldbody>{"".join(sites["humerus"])}
<body name="forearm"><joint name="{JOINT}" axis="0 -1 0"/>
<inertial pos="{_text(forearm.com)}" mass="{forearm.mass}" diaginertia="{_text(forearm.inertia)}"/>{"".join(sites["forearm"])}
<body name="load" pos="{_text(grip)}"><inertial pos="0 0 0" mass="1" diaginertia="1e-9 1e-9 1e-9"/></body></body></worldbody>
<tendon>{"".join(tendons)}<fixed name="stops" stiffness="{STOP_STIFFNESS}" springlength="{lower} {upper}">
<joint joint="{JOINT}" coef="1"/></fixed></tendon><actuator>{"".join(actuators)}</actuator></mujoco>"""


def _text(values: Array | tuple[float, ...] | list[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
