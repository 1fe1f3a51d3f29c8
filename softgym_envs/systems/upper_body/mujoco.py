"""The MuJoCo model of the upper body: the same tree, masses, springs and dampers in another engine.

Differences from the native engine, apart from rounding:

* Steps are MuJoCo's implicitfast Euler steps of 1 ms, of first order. Torques act at once; natively, half a step of 5 ms late.
* A joint's stops begin at once; natively, over `tree.Joint.stop_softness`. Beyond it both are the same.
* Muscles are MuJoCo's own, on tendons that wrap around the same surfaces. Their curves are quadratic splines (`ACTIVE`,
  `PASSIVE`, `SHORTENING`, `LENGTHENING`), fitted to those of [DeGroote2016] over fibre lengths 0.5 ... 1.35 and speeds
  -0.8 ... 0.5. They differ by up to 0.07 F_max (active force by length, force by speed) and 0.02 F_max (passive).
* With muscles off, the arm hangs up to 0.06 rad elsewhere.
* Activation blends time constants over a width of `MUJOCO_SMOOTH`; natively, it blends rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import mujoco
import numpy as np

from ...core.simulator import Array
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator
from ...mechanics.mujoco_tree import add_stops, quaternion, spec_of, state_index, write_tree
from ...mechanics.structure import rotation
from ...mechanics.tree import Tree
from ...muscles.muscle import MUJOCO_RANGE, MUJOCO_SMOOTH, MUSCLE_SPEED
from ...muscles.paths import Muscle, Muscles
from .mismatch import LADDER
from .model import FALL, PARAMETERS, RISE, BodyModel
from .parameters import BodyParameters


class Curve(NamedTuple):
    """A curve of MuJoCo's over fibre length, read at lengths `shift` longer than they are; see the module docstring."""

    shift: float
    lmin: float
    lmax: float
    force: float = 1.0


ACTIVE, PASSIVE = Curve(0.0354, 0.398, 1.747), Curve(0.1128, 0.0, 2.298, 0.665)
SHORTENING, LENGTHENING = 0.951, 1.568
"""Force-speed curve: largest shortening speed, in units of `MUSCLE_SPEED`; force of a muscle that lengthens fast."""


@dataclass(frozen=True, eq=False)
class MujocoUpperBody(MujocoSimulator):
    """See the module docstring.

    >>> mujoco_model = MujocoUpperBody()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), np.zeros((1, 4, 12)), substeps=50)
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-3), status.tolist()
    (True, [0])
    """

    system = "upper_body"
    parameters_class = BodyParameters
    ladder = LADDER

    model: BodyModel = field(default_factory=BodyModel)
    """Structure."""
    dt: float = 1e-3
    """Physics step [s]."""

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        spec = spec_of(self._motored if self.model.muscles is None else replace(self.model.tree, actuated=()), self.dt)
        if self.model.muscles is not None:
            add_muscles(spec, self.model.muscles)
            for name in self._motored.actuated:  # controls of muscles come first
                spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT).set_to_motor()
        add_stops(spec, self.model.tree)
        compiled, n = spec.compile(), self.model.n
        index = np.concatenate([state_index(compiled, self.model.tree), np.arange(2 * n, self.model.layout.nx)])
        return MujocoEngine(compiled, nx=self.nx, nu=self.nu, state_index=index, write_parameters=self._write)

    @property
    def _motored(self) -> Tree:
        """The tree with controls only for the joints with motors."""
        tree = self.model.tree
        return replace(tree, actuated=tuple(tree.coordinates[i] for i in self.model.motors))

    def _write(self, compiled: mujoco.MjModel, row: Array) -> None:
        """Write one row of parameters, then the effects of a mismatched model."""
        write_tree(compiled, self._motored, dict(zip(PARAMETERS, row.tolist(), strict=True)))
        n, tree = self.model.n, self.model.tree
        stiffer, damped = np.exp(self.spread("stiffness_spread", n)), np.exp(self.spread("damping_spread", n))
        for i, joint in enumerate(tree.moving):
            k = compiled.joint(joint.name).id
            compiled.jnt_stiffness[k] *= stiffer[i]
            compiled.dof_damping[k] *= damped[i]
            compiled.dof_frictionloss[k] += self.amount("dry_friction") * joint.effort
        for body, factor in zip(tree.bodies, np.exp(self.spread("mass_spread", len(tree.bodies))), strict=True):
            if body.mass > 0:
                k = compiled.body(body.name).id
                compiled.body_mass[k] *= factor
                compiled.body_inertia[k] *= factor


def add_muscles(spec: mujoco.MjSpec, muscles: Muscles) -> None:
    """Add surfaces, tendons and muscles to MuJoCo, in the order of the muscles."""
    for surface in muscles.surfaces:
        kind = mujoco.mjtGeom.mjGEOM_SPHERE if surface.kind == "sphere" else mujoco.mjtGeom.mjGEOM_CYLINDER
        spec.body(surface.body).add_geom(
            name=surface.name, type=kind, size=[surface.size[0], 0.03, 0.0], pos=list(surface.xyz),
            quat=quaternion(surface.rpy), contype=0, conaffinity=0, mass=0.0,
        )  # fmt: skip
    for muscle in muscles.muscles:
        _add_tendon(spec, muscles, muscle)
        force, optimal, slack = muscle.numbers
        made = spec.add_actuator(name=muscle.name, target=muscle.name, trntype=mujoco.mjtTrn.mjTRN_TENDON)
        made.set_to_muscle(
            timeconst=[RISE, FALL], tausmooth=MUJOCO_SMOOTH, range=[part + ACTIVE.shift for part in MUJOCO_RANGE], force=force,
            scale=200.0, lmin=ACTIVE.lmin, lmax=ACTIVE.lmax, vmax=SHORTENING * MUSCLE_SPEED, fpmax=PASSIVE.force,
            fvmax=LENGTHENING,
        )  # fmt: skip
        made.biasprm[:2] = [part + PASSIVE.shift for part in MUJOCO_RANGE]
        made.biasprm[5] = PASSIVE.lmax
        made.lengthrange = [slack + part * optimal for part in MUJOCO_RANGE]


def _add_tendon(spec: mujoco.MjSpec, muscles: Muscles, muscle: Muscle) -> None:
    """Add a tendon through the muscle's points and around its surfaces."""
    tendon = spec.add_tendon(name=muscle.name)
    for k, (body, place) in enumerate(muscle.points):
        site = f"{muscle.name}_{k}"
        spec.body(body).add_site(name=site, pos=list(place))
        tendon.wrap_site(site)
        for i in muscle.around(k):
            surface, side = muscles.surface(muscle.surfaces[i]), ""
            if surface.kind == "cylinder":
                side = f"{muscle.name}_side{i}"
                away = np.array(surface.xyz) + rotation(surface.rpy) @ np.array(muscle.sides[i])
                spec.body(surface.body).add_site(name=side, pos=list(away))
            tendon.wrap_geom(surface.name, side)
