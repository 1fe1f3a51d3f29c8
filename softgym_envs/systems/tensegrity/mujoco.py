"""The MuJoCo model of a tensegrity robot: the ground truth of [Wang2020] (arXiv 2011.04929, section V) in SI units.

Set-up: rods are free bodies with the inertia of a solid cylinder, a capsule and a sphere at either end for contact; Euler,
1 ms, Newton solver, elliptic cones, condim 6, friction 1 1 1, solref 0.1 1, rods collide with rods and ground. The paper's
model is in decimetres (gain 1000 there is 100 N per unit of command here). Cables are spatial tendons in two variants:

* "pull_only" (default)  force = min(0, gain w + k L0 - k l - c dl/dt): one affine actuator per cable, which never pushes.
* "two_way"              the authors' spring and damper of the tendon plus the motor's force gain w: a slack cable pushes.

with gain = motor_gain k. A motor is a first-order filter, dw/dt = motor_speed (u - w). Commands are clamped to the control
limit (our engine takes them as they are; envs never ask for more).

Where it differs from our own engine (`systems.tensegrity.dynamics`), apart from rounding:

* Contact is a soft constraint: a contact at rest overlaps and gives way over `contact_timeconst`, forces at all contacts and
  the friction cone are solved together at the level of accelerations. Our engine applies impulses at the level of velocities.
* Friction has torsional and rolling parts (condim 6, coefficients in m). At the paper's 1 m, many times the radius of a cap,
  caps in contact hardly spin or roll on the spot. Our engine only damps the spin about the rod.
* Sliding creeps: the soft friction constraint lets a loaded contact drift slowly, our "stick" mode does not.
* Rods meet in up to five points (capsule, caps) and the ground also meets the ends of the rod within the caps; our engine takes
  one point per pair of rods, the deepest, and only caps against the ground. Caps are whole spheres over the rod's ends in both.
* On a height field every node meets the plane that touches our ground under it, which stands still for 5 integration
  steps (`mujoco_ground`); the solver starts cold again whenever planes have moved.
* "two_way" pushes where our cables are slack. "pull_only" does not differ.
* A control step starts with a cold solver (see `engines.mujoco.engine`): contact forces differ within the solver's tolerance.

Cables, motors, rigid bodies and the integrator are the same equations: without contact both agree to rounding.

Explicit damping is stable for c dt / m below 0.11 with the default robot (k = 1e4 N/m, 1 ms); see
`TensegrityModel.stability_limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import mujoco
import numpy as np

from ...core.errors import OptionError, ParameterError, StructureError
from ...core.parameters import Parameters, param
from ...core.simulator import Array, check_array, check_number
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator, empty_spec
from .mismatch import LADDER, built_on, free_centres, harden, spread_cables
from .model import TensegrityModel, superball
from .mujoco_ground import FOLLOW, add_footing, add_ground, footing, write_ground
from .parameters import TensegrityBody, TensegrityParameters

STRONGEST_PULL = 1e9
"""[N] A bound that no cable reaches: MuJoCo's force range needs one."""


@dataclass(frozen=True)
class MujocoParameters(TensegrityBody):
    """Parameters of the MuJoCo model: the body, and MuJoCo's contact."""

    friction: float = param(1.0, unit="-", bounds=(0.0, 2.0), source="[Wang2020] V: friction 1 1 1")
    torsional_friction: float = param(1.0, unit="m", bounds=(0.0, 2.0), source="[Wang2020] V: friction 1 1 1")
    rolling_friction: float = param(1.0, unit="m", bounds=(0.0, 2.0), source="[Wang2020] V: friction 1 1 1")
    contact_timeconst: float = param(0.1, unit="s", bounds=(2e-3, 1.0), scale="log", source="[Wang2020] V: solref 0.1 1")
    contact_dampratio: float = param(1.0, unit="-", bounds=(0.05, 10.0), scale="log", source="[Wang2020] V: solref 0.1 1")


IMPEDANCE = 0.95
"""MuJoCo's default solimp: d at depths over 1 mm, the share of a constraint's load that it holds in a step."""


def native_constants(mujoco_model: MujocoParameters | None = None, dt: float = 1e-3) -> TensegrityParameters:
    """Parameters of our engine's contact mode "patch" that correspond to the MuJoCo model's settings, for depths over 1 mm.

    By MuJoCo's documentation of solref (T, z) and solimp: a contact's velocity changes by -(b v + k d r) dt with b = 2 / (d T)
    and k = 1 / (d T z)^2, and it yields by (1 - d) / d times the inverse weight, 1/m for a free body.

    >>> round(native_constants().contact_compliance, 5)
    0.00526

    Raises:
        ParameterError: `mujoco_model` has a batch, or friction that turns and friction that rolls differ.
    """
    mujoco_model = mujoco_model or MujocoParameters()
    if mujoco_model.batch is not None:
        raise ParameterError(f"mujoco_model has a batch of {mujoco_model.batch}, expected a single set of parameters")
    if mujoco_model.torsional_friction != mujoco_model.rolling_friction:
        raise ParameterError(
            f"torsional_friction is {mujoco_model.torsional_friction} and "
            f"rolling_friction {mujoco_model.rolling_friction}: our engine has "
            "one pivot_friction for both, they must be equal"
        )
    held = 1.0 - 2.0 * dt / (IMPEDANCE * mujoco_model.contact_timeconst)
    stiffness = 1.0 / (IMPEDANCE * mujoco_model.contact_timeconst * mujoco_model.contact_dampratio) ** 2
    body = {f.name: getattr(mujoco_model, f.name) for f in fields(TensegrityBody)}
    return TensegrityParameters(
        **body,
        contact_bias=IMPEDANCE * stiffness * dt**2,
        restitution=-held,
        sliding_damping=held,
        pivot_damping=held,
        friction=mujoco_model.friction,
        pivot_friction=mujoco_model.rolling_friction,
        contact_compliance=(1.0 - IMPEDANCE) / IMPEDANCE / mujoco_model.rod_mass,
    )


@dataclass(frozen=True, eq=False)
class MujocoTensegrity(MujocoSimulator):
    """MuJoCo as a `core.simulator.Simulator`, for any `TensegrityModel`; see the module docstring.

    >>> mujoco_model = MujocoTensegrity()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(2), np.zeros((2, 5, 24)), substeps=100)
    >>> states.shape, status.tolist()
    ((2, 6, 102), [0, 0])

    Raises:
        OptionError: Unknown variant of cables, or dt not positive.
        StructureError: `fixed_rod` does not exist.
    """

    system = "tensegrity"
    parameters_class = MujocoParameters
    ladder = LADDER

    model: TensegrityModel = field(default_factory=superball)
    """Structure and ground."""
    dt: float = 1e-3
    """Physics step [s]."""
    cables: str = "pull_only"
    """"pull_only" or "two_way"; see the module docstring."""
    fixed_rod: int | None = None
    """A rod that is held where it is, as in the paper's identification in the air (V-A); its velocity counts as zero."""

    def __post_init__(self) -> None:
        if self.cables not in ("pull_only", "two_way"):
            raise OptionError(f"cables is {self.cables!r}, allowed are 'pull_only' and 'two_way'")
        check_number("dt", self.dt, positive=True, unit="s")
        if self.fixed_rod is not None and not 0 <= self.fixed_rod < self.model.num_rods:
            raise StructureError(f"fixed_rod is {self.fixed_rod}, rods are 0 ... {self.model.num_rods - 1}")

    def cable_tensions(self, state: Array, parameters: Parameters | None = None) -> Array:
        """Pull of every cable as MuJoCo computes it, (B, nx) -> (B, C) [N]; a "two_way" cable that pushes is negative."""
        state = check_array("state", state, (None, self.nx))
        return self.engine.evaluate(state, self.parameter_values(parameters, len(state)), self._read_tensions)

    # --- the MuJoCo side -------------------------------------------------------------------------------------------

    @cached_property
    def default_parameters(self) -> MujocoParameters:
        """Parameters before identification: those of the model's file, where it has some."""
        return MujocoParameters(**self.model.parameter_values)

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping; moving rods and motors are MuJoCo's state, a fixed rod is a mocap body."""
        index: Any = np.arange(self.model.layout.nx)
        *rods, motors = self.model.split(index)
        fixed = [] if self.fixed_rod is None else [self.fixed_rod]
        position, quaternion, velocity, rate = (np.delete(part, fixed, axis=0) for part in rods)
        places, speeds = np.concatenate([position, quaternion], axis=1), np.concatenate([velocity, rate], axis=1)
        return MujocoEngine(
            free_centres(self, build_spec(self._built, self.dt / self.refinement, self.cables, self.fixed_rod)).compile(),
            nx=self.nx,
            nu=self.nu,
            state_index=np.concatenate([places.ravel(), speeds.ravel(), motors]),
            mocap_index=np.concatenate([rods[0][fixed].ravel(), rods[1][fixed].ravel()]),
            write_parameters=self._write_constants,
            held=None if self._built.terrain.is_plane else self._held_bodies,
            held_steps=FOLLOW,
        )

    def _held_bodies(self, state: Array, parameter_values: Array) -> Array:
        """Positions, then quaternions, of a fixed rod and of the planes under the nodes, (B, nx), (B, P) -> (B, 7 bodies)."""
        poses = footing(self._built, state, parameter_values[:, MujocoParameters.index("terrain_scale")])
        if self.fixed_rod is not None:
            position, quaternion, *_ = self.model.split(state[:, : self.model.layout.nx])
            rod = np.concatenate([position[:, self.fixed_rod], quaternion[:, self.fixed_rod]], axis=1)
            poses = np.concatenate([rod[:, None], poses], axis=1)
        return np.concatenate([poses[..., :3].reshape(len(poses), -1), poses[..., 3:].reshape(len(poses), -1)], axis=1)

    @cached_property
    def _built(self) -> TensegrityModel:
        """The structure on the MuJoCo model's floor, see `mismatch.built_on`."""
        return built_on(self, self.model)

    @cached_property
    def _cable_order(self) -> list[int]:
        """The cable of each actuator: those with a motor in the order of the controls, then (pull_only) the others."""
        passive = [c for c in range(self.model.num_cables) if c not in self.model.actuated]
        return [*self.model.actuated, *(passive if self.cables == "pull_only" else [])]

    def stability_limits(self, parameters: Parameters) -> dict[str, float]:
        """See `TensegrityModel.stability_limits`; MuJoCo's implicit integrator is stable for all."""
        return {} if self.sizes["implicit"] else self.model.stability_limits(parameters, self.dt)

    def _write_constants(self, mj: mujoco.MjModel, row: Array) -> None:
        c = dict(zip(MujocoParameters.names(), row.tolist(), strict=True))
        mj.opt.gravity[:] = (0.0, 0.0, -c["gravity"])
        rods = slice(1, 1 + self.model.num_rods)
        mj.body_mass[rods] = c["rod_mass"]
        mj.body_inertia[rods] = c["rod_mass"] * _unit_inertia(self.model)
        mj.geom_friction[:] = (c["friction"], c["torsional_friction"], c["rolling_friction"])
        mj.geom_solref[:] = (c["contact_timeconst"], c["contact_dampratio"])
        self._write_cables(mj, c)
        harden(self, mj, self.model)
        if not self._built.terrain.is_plane:
            write_ground(mj, self._built, c["terrain_scale"])

    def _write_cables(self, mj: mujoco.MjModel, c: dict[str, float]) -> None:
        ratio, rest = (
            np.array(r or (1.0,) * self.model.num_cables) for r in (self.model.stiffness_ratio, self.model.rest_ratio)
        )
        stiffness, damping, rest = ratio * c["cable_stiffness"], ratio * c["cable_damping"], rest * c["rest_length"]
        stiffness, damping, rest, gain = spread_cables(self, stiffness, damping, rest)
        order = self._cable_order
        mj.actuator_dynprm[: self.nu, 0] = 1.0 / c["motor_speed"]
        mj.actuator_gainprm[: self.nu, 0] = c["motor_gain"] * (gain * stiffness)[order[: self.nu]]
        if self.cables == "two_way":
            mj.tendon_stiffness[:], mj.tendon_damping[:] = stiffness, damping
            mj.tendon_lengthspring[:] = rest[:, None]
        else:
            mj.actuator_biasprm[:, :3] = np.stack([stiffness * rest, -stiffness, -damping], axis=1)[order]

    def _read_tensions(self, mj: mujoco.MjModel, data: mujoco.MjData) -> Array:
        """Minus MuJoCo's force along each tendon: actuator, and in "two_way" the tendon's spring and damper."""
        tension = np.zeros(self.model.num_cables)
        tension[self._cable_order] = -data.actuator_force
        if self.cables == "two_way":
            tension += mj.tendon_stiffness * (data.ten_length - mj.tendon_lengthspring[:, 1])
            tension += mj.tendon_damping * data.ten_velocity
        return tension


def build_spec(model: TensegrityModel, dt: float, cables: str, fixed_rod: int | None = None) -> mujoco.MjSpec:
    """The structure as an MjSpec; the parameters are written into the compiled model by the MuJoCo model."""
    spec = empty_spec(dt)
    spec.modelname = model.name
    add_ground(spec, model)
    position, quaternion, *_ = model.split(model.rest_state())
    for r in range(model.num_rods):
        _add_rod(spec, model, r, position[r], quaternion[r], held=r == fixed_rod)
    if not model.terrain.is_plane:
        add_footing(spec, model)
    for index, ends in enumerate(model.cables):
        tendon = spec.add_tendon(name=f"cable{index}")
        for node in ends:
            tendon.wrap_site(f"node{node}")
    passive = [c for c in range(model.num_cables) if c not in model.actuated]
    for c in (*model.actuated, *(passive if cables == "pull_only" else ())):
        _add_actuator(spec, model, c, cables)
    return spec


def _unit_inertia(model: TensegrityModel) -> Array:
    """Inertia over mass of a solid cylinder, (3 r^2 + L^2)/12 across and r^2/2 along the rod, (R, 3) [m^2]."""
    across = (3.0 * model.rod_radius**2 + model.rod_lengths**2) / 12.0
    return np.stack([across, across, np.full(model.num_rods, 0.5 * model.rod_radius**2)], axis=1)


def _add_rod(spec: mujoco.MjSpec, model: TensegrityModel, r: int, position: Array, quaternion: Array, *, held: bool) -> None:
    """A free body (a held one has no joint: MuJoCo's mocap body); geoms of one body do not collide, and carry no mass."""
    body = spec.worldbody.add_body(name=f"rod{r}", pos=position, quat=quaternion, mocap=held)
    if not held:
        body.add_freejoint()
    body.explicitinertial = True
    body.ipos, body.mass, body.inertia = np.zeros(3), 1.0, _unit_inertia(model)[r]
    half = 0.5 * model.rod_lengths[r]
    shape = mujoco.mjtGeom
    body.add_geom(name=f"rod{r}", type=shape.mjGEOM_CAPSULE, size=[model.rod_radius, half, 0.0], mass=0.0, condim=6)
    for node, z in ((2 * r, -half), (2 * r + 1, half)):
        body.add_site(name=f"node{node}", pos=[0.0, 0.0, z])
        body.add_geom(
            name=f"cap{node}",
            type=shape.mjGEOM_SPHERE,
            size=[model.cap_radius, 0.0, 0.0],
            pos=[0.0, 0.0, z],
            mass=0.0,
            condim=6,
        )


def _add_actuator(spec: mujoco.MjSpec, model: TensegrityModel, c: int, cables: str) -> None:
    """Cable c's actuator: with a motor if it is actuated; in "pull_only" it also is the spring and damper."""
    actuator = spec.add_actuator(name=f"cable{c}", target=f"cable{c}", trntype=mujoco.mjtTrn.mjTRN_TENDON)
    actuator.gaintype = mujoco.mjtGain.mjGAIN_FIXED
    actuator.gainprm[0] = 0.0
    if c in model.actuated:
        actuator.dyntype = mujoco.mjtDyn.mjDYN_FILTER
        actuator.ctrllimited = True
        actuator.ctrlrange = [-model.control_limit, model.control_limit]
    if cables == "pull_only":
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.forcelimited = True
        actuator.forcerange = [-STRONGEST_PULL, 0.0]
