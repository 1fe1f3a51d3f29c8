"""The MuJoCo models of the particles and of the sliding block: the ground truth that our own engine is compared with.

Where they differ from our own engine (`systems.rigid.dynamics`), apart from rounding:

* Contact is a soft constraint (it gives way over `contact_timeconst`), and friction at rest creeps. Ours is rigid.
* Friction cones are elliptic, i.e. round; the block's cones in our engine are polygons with `num_directions` edges.
* The block is a body in space: its state goes on, after ours, with height, pitch, roll and their velocities. Its centre of
  mass, the string and the handle are `height` over the table, so that loads move from support to support when it is pulled. In
  our engine loads are those at rest.
* Integration is semi-implicit Euler at `dt` = 1 ms; our steps are longer and implicit in the contact forces.
* A control step starts with a cold solver (see `engines.mujoco.engine`).

The string is a tendon from attachment to pulley whose armature is the weight's mass, under a constant pull m_w g: the same
equation as ours with the tension eliminated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from functools import cache, cached_property
from typing import Any

import mujoco
import numpy as np

from ...core.layout import Field
from ...core.parameters import Parameters, param
from ...core.simulator import Array, check_number
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator, empty_spec
from .mismatch import BLOCK, PARTICLES, harden, harden_block, lean
from .model import BlockModel, ParticleModel
from .parameters import BlockBody, particle_parameters

RADIUS = 0.05
"""Radius of a particle's ball [m]; its state is the ball's lowest point."""
FOOT = 0.005
"""Radius of the block's feet [m]."""
SETTLE = 1.0
"""Time for which the block settles on its soft feet before it is placed [s]."""
_TIMECONST = {"unit": "s", "bounds": (2e-3, 1.0), "scale": "log", "source": "MuJoCo's solref: its default"}
_DAMPRATIO = {"unit": "-", "bounds": (0.05, 10.0), "scale": "log", "source": "MuJoCo's solref: its default"}


@dataclass(frozen=True)
class MujocoBlockParameters(BlockBody):
    """Parameters of the block's MuJoCo model: the block itself, and MuJoCo's contact."""

    contact_timeconst: float = param(0.02, **_TIMECONST)  # type: ignore[arg-type]
    contact_dampratio: float = param(1.0, **_DAMPRATIO)  # type: ignore[arg-type]


@cache
def mujoco_particle_parameters(count: int) -> type[Parameters]:
    """Parameters of the particles' MuJoCo model: those of `particle_parameters`, and MuJoCo's contact."""
    extra = [
        ("contact_timeconst", float, param(0.02, **_TIMECONST)),  # type: ignore[arg-type]
        ("contact_dampratio", float, param(1.0, **_DAMPRATIO)),  # type: ignore[arg-type]
    ]
    made: type[Parameters] = make_dataclass(
        f"MujocoParticleParameters{count}",
        extra,
        bases=(particle_parameters(count),),
        frozen=True,
        namespace={"__module__": __name__, "__doc__": "Parameters of the particles in MuJoCo, with its contact."},
    )
    return made


def __getattr__(name: str) -> type[Parameters]:
    """Classes of `mujoco_particle_parameters`, by name: so that they can be pickled."""
    number = name.removeprefix("MujocoParticleParameters")
    if number != name and number.isdecimal() and int(number) > 0:
        return mujoco_particle_parameters(int(number))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, eq=False)
class MujocoParticles(MujocoSimulator):
    """Balls that slide without turning, as a `core.simulator.Simulator`; see the module docstring.

    >>> mujoco_model = MujocoParticles()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), np.full((1, 10, 1), 5.0), substeps=50)
    >>> states.shape, status.tolist()
    ((1, 11, 4), [0])
    """

    system = "particles"
    ladder = PARTICLES

    model: ParticleModel = field(default_factory=ParticleModel)
    """Number of particles, their start and largest force."""
    dt: float = 1e-3
    """Physics step [s]."""

    @property
    def parameters_class(self) -> type[Parameters]:
        """One friction per particle, and MuJoCo's contact."""
        return mujoco_particle_parameters(self.model.count)

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        spec = _table(self.dt / self.refinement)
        for i in range(self.model.count):
            body = spec.worldbody.add_body(name=f"particle{i}", pos=[0.0, 0.0, RADIUS])
            body.explicitinertial, body.mass, body.inertia = True, 1.0, [1.0, 1.0, 1.0]
            for name, axis in (("x", [1, 0, 0]), ("y", [0, 0, 1])):
                body.add_joint(name=f"{name}{i}", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
            _add_foot(body, [0.0, 0.0, 0.0], RADIUS)
            motor = spec.add_actuator(name=f"force{i}", target=f"x{i}", trntype=mujoco.mjtTrn.mjTRN_JOINT)
            motor.set_to_motor()
        entries = np.arange(4 * self.model.count).reshape(-1, 4)
        index = np.concatenate([entries[:, :2].ravel(), entries[:, 2:].ravel()])
        return MujocoEngine(spec.compile(), nx=self.nx, nu=self.nu, state_index=index, write_parameters=self._write_constants)

    def _write_constants(self, mj: mujoco.MjModel, row: Array) -> None:
        friction = row[: self.model.count]
        mass, gravity, drag, tilt, timeconst, dampratio = row[self.model.count :]
        mj.opt.gravity[:] = (0.0, 0.0, -gravity)
        mj.body_mass[1:] = mass
        mj.geom_friction[1:, 0] = friction
        mj.geom_solref[:] = (timeconst, dampratio)
        harden(self, mj, mj.nv, drag)
        lean(mj, tilt)


EXTRA = Field("", None, ("height", "m"), ("pitch roll", "rad"), ("vheight", "m/s"), ("vpitch vroll", "rad/s"))
"""Entries of the block's MuJoCo model beside the planar state: displacements from the pose in which the feet just touch [m,
rad]."""


@dataclass(frozen=True, eq=False)
class MujocoBlock(MujocoSimulator):
    """The block in space, on three spherical feet, as a `core.simulator.Simulator`; see the module docstring.

    >>> mujoco_model = MujocoBlock()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), np.zeros((1, 10, 2)), substeps=10)
    >>> states.shape, status.tolist()
    ((1, 11, 12), [0])

    Raises:
        OptionError: height is not positive.
    """

    system = "block"
    ladder = BLOCK
    parameters_class = MujocoBlockParameters
    extra_fields = (EXTRA,)

    model: BlockModel = field(default_factory=BlockModel)
    """Geometry."""
    dt: float = 1e-3
    """Physics step [s]."""
    height: float = 0.02
    """Height of centre of mass, string and handle over the table [m]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("height", self.height, positive=True, unit="m")

    @cached_property
    def extra_rest(self) -> Array:
        """Height, pitch, roll and velocities after `SETTLE` without pull, (6,)."""
        still = self.default_parameters.replace(weight=0.0)
        settle = max(1, round(SETTLE / self.dt))
        state, _ = self._held(np.zeros((1, self.nx)), np.zeros((1, 2)), self.parameter_values(still, 1), settle)
        return np.asarray(state[0, 6:12])

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        return MujocoEngine(
            self._spec().compile(),
            nx=self.nx,
            nu=self.nu,
            state_index=np.array([0, 1, 6, 2, 7, 8, 3, 4, 9, 5, 10, 11]),
            write_parameters=self._write_constants,
        )

    def _spec(self) -> mujoco.MjSpec:
        model, spec = self.model, _table(self.dt / self.refinement)
        body = spec.worldbody.add_body(name="block", pos=[0.0, 0.0, self.height])
        body.explicitinertial, body.mass, body.inertia = True, 1.0, [0.5, 0.5, 1.0]
        body.ipos = [0.0, 0.0, 0.0]  # else the compiler puts it at `pos`, in the body's frame: twice as high
        for name, axis in (("x", [1, 0, 0]), ("y", [0, 1, 0]), ("height", [0, 0, 1])):
            body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_SLIDE, axis=axis)
        for name, axis in (("theta", [0, 0, 1]), ("pitch", [0, 1, 0]), ("roll", [1, 0, 0])):
            body.add_joint(name=name, type=mujoco.mjtJoint.mjJNT_HINGE, axis=axis)
        for x, y in model.supports:
            _add_foot(body, [x, y, FOOT - self.height], FOOT)
        body.add_site(name="handle", pos=[*model.handle, 0.0])
        for name, gear in (("force_x", [1, 0, 0, 0, 0, 0]), ("force_y", [0, 1, 0, 0, 0, 0])):
            motor = spec.add_actuator(name=name, target="handle", trntype=mujoco.mjtTrn.mjTRN_SITE, gear=gear)
            motor.set_to_motor()
        if model.pulley is not None:
            body.add_site(name="attachment", pos=[*model.attachment, 0.0])
            spec.worldbody.add_site(name="pulley", pos=[*model.pulley, self.height])
            string = spec.add_tendon(name="string")
            string.wrap_site("attachment")
            string.wrap_site("pulley")
            pull = spec.add_actuator(name="weight", target="string", trntype=mujoco.mjtTrn.mjTRN_TENDON)
            pull.gaintype, pull.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
            pull.gainprm[0] = 0.0
        return spec

    def _write_constants(self, mj: mujoco.MjModel, row: Array) -> None:
        c = dict(zip(MujocoBlockParameters.names(), row.tolist(), strict=True))
        mj.opt.gravity[:] = (0.0, 0.0, -c["gravity"])
        mj.body_mass[1] = c["mass"]
        mj.body_inertia[1] = c["inertia"] * np.array([0.5, 0.5, 1.0])
        mj.geom_friction[1:, 0] = c["friction"]
        mj.geom_solref[:] = (c["contact_timeconst"], c["contact_dampratio"])
        if self.model.pulley is not None:
            mj.tendon_armature[0] = c["weight"]
            mj.actuator_biasprm[2, 0] = -c["weight"] * c["gravity"]
        harden(self, mj, 2, c["drag"])
        lean(mj, c["tilt_x"], c["tilt_y"])
        harden_block(self, mj, self.model.pulley is not None)


def _table(dt: float) -> mujoco.MjSpec:
    """A table without friction of its own (a pair takes the larger one of its two geoms)."""
    spec = empty_spec(dt)
    spec.option.impratio = 10.0  # less creep of friction at rest
    ground = spec.worldbody.add_geom(name="table", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0.0, 0.0, 1.0])
    ground.friction, ground.contype, ground.conaffinity, ground.condim = [0.0, 0.0, 0.0], 1, 2, 3
    return spec


def _add_foot(body: Any, place: list[float], radius: float) -> None:
    """A ball that touches the table only."""
    foot = body.add_geom(type=mujoco.mjtGeom.mjGEOM_SPHERE, size=[radius, 0.0, 0.0], pos=place)
    foot.contype, foot.conaffinity, foot.condim, foot.friction = 2, 1, 3, [0.3, 0.0, 0.0]
