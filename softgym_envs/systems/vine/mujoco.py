"""The MuJoCo model of a vine robot: a planar chain of hinges whose last link is a telescope, among the same obstacles.

A robot of length L has n = floor(L / l) links in both simulators. For each n there is one MjModel: n capsules of length l on
hinges, and a capsule of length l that slides out of the last one by L - n l. A control step runs in the model of the row's n at
its start; the next one may run in that of n + 1, with the same places and velocities (the new link is in line with the last).
Values that depend on L are written into a row's model at the start of every control step: mass of the telescope, stiffness of
its joint, the force F of growth, and the length that has been reached (a soft stop: no way back).

Where it differs from our own engine (`systems.vine.dynamics`), apart from rounding:

* Contact is soft, over `contact_timeconst`, and solved at the level of accelerations. Under random actions in clutter the tube
  overlaps by 0.2 mm in half of the states that touch, 1 mm in one of ten, 4 mm in one of a hundred, at most 18 mm (a whip's
  blow); ours by 0.05 mm at most (results/vine_speed/numbers.json). For gaps of some mm that matters.
* Tube that slides out of the tip rubs along obstacles; in our engine growth causes no friction.
* Growth is a servo of GROWTH_SERVO N s/m up to the force F, ours is exact up to F. F, the stop and the damper that stands for
  the force of the growth speed are those at the start of a control step. The sliding part carries its mass along; ours is laid
  down at rest.
* Bending is explicit (a damper, implicit, keeps it stable if bending_damping > dt/2 EI); ours is implicit.
* Wrinkling is a sum of springs that saturate, fitted to the law (`mujoco_chain.SPRINGS`): exact below kappa_w, within 1 % of
  its moment below 10 kappa_w, too stiff beyond. A muscle that is more than fully contracted pushes; ours goes limp.
* Drag is MuJoCo's viscous fluid on each body, set to the same force on a moving body. It damps turning, too: 0.3 % more
  of a swing's damping. The sliding part feels too little of it where a mass is fixed to its end.
* A control step starts with a cold solver (see `engines.mujoco.engine`).

Legend: B batch, N links, n links of a row, M obstacles.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from ...core.errors import OptionError
from ...core.mismatch import MismatchedModel
from ...core.parameters import Parameters, param
from ...core.simulator import Array, IntArray, Status, check_array, check_number
from ...engines.mujoco.engine import MujocoEngine
from .mismatch import LADDER, bear, built, factors, harden, stiffness_factors
from .model import ContactForces, VineModel, contact_table
from .mujoco_chain import GROWTH_SERVO, REEL, SPRINGS, build_spec
from .parameters import RATE_SPEED, VineBody

MAX_CONTACTS = 32
"""Most contacts of one robot that are reported."""
SOLREF, SOLIMP = 0.02, (0.9, 0.95)
"""MuJoCo's own time constant [s] and impedances of dry friction."""
HARD = (0.999, 0.999)
"""Impedances of dry friction that holds."""


@dataclass(frozen=True)
class MujocoVineParameters(VineBody):
    """Parameters of the MuJoCo model: the robot, and MuJoCo's contact."""

    contact_timeconst: float = param(0.004, unit="s", bounds=(2e-3, 1.0), scale="log", source="solref: firm, twice dt")
    contact_dampratio: float = param(1.0, unit="-", bounds=(0.05, 10.0), scale="log", source="solref: MuJoCo's default")


_P = {name: MujocoVineParameters.index(name) for name in MujocoVineParameters.names()}
_GROWTH = ("pressure", "yield_pressure", "rate_pressure", "rate_power", "tail_drag", "bend_drag", "tail_friction")


@dataclass(frozen=True, eq=False)
class MujocoVine(MismatchedModel):
    """MuJoCo as a `core.simulator.Simulator`, for any `VineModel`; see the module docstring.

    >>> mujoco_model = MujocoVine()
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(2), np.full((2, 2, 5), 0.05), substeps=50)
    >>> states.shape, status.tolist()
    ((2, 3, 86), [0, 0])

    Raises:
        OptionError: Unknown law of bending, or dt not positive.
    """

    system = "vine"
    parameters_class = MujocoVineParameters
    option_names = ("bending",)
    ladder = LADDER

    model: VineModel = field(default_factory=VineModel)
    """Structure and obstacles."""
    dt: float = 0.002
    """Physics step [s]."""
    bending: str = "wrinkling"
    """"wrinkling" or "linear"."""

    def __post_init__(self) -> None:
        if self.bending not in tuple(SPRINGS):
            raise OptionError(f"bending is {self.bending!r}, allowed are {', '.join(SPRINGS)}")
        check_number("dt", self.dt, positive=True, unit="s")
        if self.model.viscoelastic:
            raise OptionError(
                "the MuJoCo model has no viscoelastic body; build it with viscoelastic = False, or use our engine"
            )

    def contact_forces(self, state: Array, growth: Array, parameters: Parameters | None = None) -> ContactForces:
        """Forces of the obstacles on the robot at `state` (B, nx), reel stopped and without load; `growth` is not used."""
        state = check_array("state", state, (None, self.nx))
        parameter_values, count = (
            self.parameter_values(parameters, len(state)),
            self.model.num_active(self.model.split(state).length),
        )
        table = np.zeros((len(state), MAX_CONTACTS, 9))
        for row, n in enumerate(count.tolist()):
            one = slice(row, row + 1)
            given = np.concatenate([parameter_values[one], self._of_row(state[one], parameter_values[one], n)], axis=1)
            table[row] = self._engine(n).evaluate(self._to_mujoco(state[one], parameter_values[one], n), given, _read_contacts)[
                0
            ]
        return contact_table(table)

    def mj_model(self, num_links: int | None = None) -> mujoco.MjModel:
        """A copy of the MuJoCo model of a robot with `num_links` links, e.g. for MuJoCo's viewer."""
        return copy.copy(self._engine(num_links or self.model.num_links).model)

    # --- the MuJoCo side -------------------------------------------------------------------------------------------

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        """One control step: rows with the same number of links run together. Pressures follow p' = (u - p) / lag exactly."""
        count = self.model.num_active(self.model.split(state).length)
        after, status = state.copy(), np.zeros(len(state), dtype=np.int32)
        for n in np.unique(count):
            rows = np.flatnonzero(count == n)
            load = np.clip(control[rows, -1], 0.0, self.model.max_load) if self.model.has_load else None
            given = np.concatenate(
                [parameter_values[rows], self._of_row(state[rows], parameter_values[rows], int(n), load)], axis=1
            )
            inner = self._to_mujoco(state[rows], parameter_values[rows], int(n))
            end, status[rows] = self._engine(int(n)).step(
                inner, self._commands(control[rows], int(n)), given, substeps * self._refinement
            )
            good = rows[status[rows] == Status.OK]
            after[good] = self._from_mujoco(state[good], end[status[rows] == Status.OK], parameter_values[good], int(n))
        good = status == Status.OK
        asked = np.clip(control, *self.control_bounds)[:, 1 : 1 + 2 * self.model.num_sections]
        decay = np.exp(-substeps * self.dt / parameter_values[:, [_P["steering_lag"]]])
        before = self.model.split(state).pressure
        self.model.split(after).pressure[good] = (asked + decay * (before - asked))[good]
        return after, status

    def _engine(self, n: int) -> MujocoEngine:
        """Batched stepping of robots with n links. State: qpos, qvel, muscles, then places of the obstacles."""
        if n not in self._engines:
            compiled = build_spec(self._built, n, self.dt / self._refinement, self.bending).compile()
            moving = 2 * (n + 1) + 2 * n * bool(self.model.num_sections)
            mocap = 7 * len(self.model.obstacles)
            self._engines[n] = MujocoEngine(
                compiled,
                nx=moving + mocap,
                nu=1 + 2 * n * bool(self.model.num_sections),
                state_index=np.arange(moving),
                mocap_index=moving + np.arange(mocap),
                write_parameters=lambda mj, row: self._write_constants(mj, row, n),
                speed_limit=1e4,
                cache_bytes=0,  # parameters hold the length, which hardly ever recurs; and there is an engine for every n
            )
        return self._engines[n]

    @cached_property
    def _built(self) -> VineModel:
        """The structure with its base turned by the MuJoCo model's effect."""
        return built(self, self.model)

    @property
    def _refinement(self) -> int:
        """Integration steps per physics step."""
        return 2 if self.sizes["half_steps"] else 1

    @cached_property
    def _engines(self) -> dict[int, MujocoEngine]:
        return {}

    def _heading(self, parameter_values: Array) -> Array:
        """Heading of the clamp, (B, 1) [rad]."""
        return np.asarray(self._built.base[2] + parameter_values[:, [_P["base_turn"]]])

    def _to_mujoco(self, state: Array, parameter_values: Array, n: int) -> Array:
        """Hinge angles and the telescope; their rates; both muscles of every joint; places and quaternions of obstacles."""
        parts = self.model.split(state)
        angle = np.diff(parts.theta[:, :n], axis=1, prepend=self._heading(parameter_values))
        rate = np.diff(parts.omega[:, :n], axis=1, prepend=0.0)
        out = (parts.length - n * self.model.link_length)[:, None]
        muscles = self._per_joint(parts.pressure, n)
        pose = parts.obstacles
        flat = np.zeros_like(pose[:, :, :1])
        places = np.concatenate([pose[:, :, :2], flat], axis=2).reshape(len(state), -1)
        half = 0.5 * pose[:, :, 2:]
        quats = np.concatenate([np.cos(half), flat, flat, np.sin(half)], axis=2).reshape(len(state), -1)
        return np.concatenate([angle, out, rate, parts.growth[:, None], muscles, places, quats], axis=1)

    def _from_mujoco(self, state: Array, inner: Array, parameter_values: Array, n: int) -> Array:
        after = state.copy()
        parts = self.model.split(after)
        parts.theta[:, :n] = self._heading(parameter_values) + np.cumsum(inner[:, :n], axis=1)
        parts.omega[:, :n] = np.cumsum(inner[:, n + 1 : 2 * n + 1], axis=1)
        parts.theta[:, n:], parts.omega[:, n:] = parts.theta[:, n - 1 : n], parts.omega[:, n - 1 : n]
        parts.length[:] = np.clip(inner[:, n] + n * self.model.link_length, self.model.link_length, self.model.max_length)
        parts.growth[:] = inner[:, 2 * n + 1]
        return after

    def _per_joint(self, pressure: Array, n: int) -> Array:
        """Left and right pressure of every section (B, 2 K) -> of every joint (B, 2 n)."""
        pairs = pressure.reshape(len(pressure), -1, 2)
        if not self.model.num_sections:
            return np.zeros((len(pressure), 0))
        return pairs[:, self.model.section_of_joint[:n]].reshape(len(pressure), -1)

    def _commands(self, control: Array, n: int) -> Array:
        control = np.clip(control, *self.control_bounds)
        muscles = control[:, 1 : 1 + 2 * self.model.num_sections]
        return np.concatenate([control[:, :1], self._per_joint(muscles, n)], axis=1)

    def _of_row(self, state: Array, parameter_values: Array, n: int, load: Array | None = None) -> Array:
        """Length [m], force for growth [N] and its damper [N s/m] as in `tube`, and load [kg], (B, 4)."""
        parts = self.model.split(state)
        c = {name: parameter_values[:, _P[name]] for name in _GROWTH}
        bends = np.abs(np.diff(parts.theta[:, :n], axis=1, prepend=self._heading(parameter_values))).sum(axis=1)
        area = np.pi * self.model.radius**2
        head = area * np.maximum(0.0, c["pressure"] - c["yield_pressure"])
        tail = c["tail_drag"] * parts.length + c["bend_drag"] * np.expm1(c["tail_friction"] * bends)
        force, rate = np.maximum(0.0, head - tail), area * c["rate_pressure"]
        reached = (force / np.maximum(rate, 1e-9)) ** c["rate_power"]
        speed = np.where(parts.growth > 1e-2 * RATE_SPEED, parts.growth / RATE_SPEED, np.maximum(reached, 1e-2))
        damper = rate / RATE_SPEED * speed ** (1.0 / c["rate_power"] - 1.0)
        load = np.zeros(len(state)) if load is None else load
        return np.stack([parts.length, force, damper, load], axis=1)

    def _write_constants(self, mj: mujoco.MjModel, row: Array, n: int) -> None:
        c = dict(zip(MujocoVineParameters.names(), row[:-4].tolist(), strict=True))
        length, force, damper, load = row[-4:].tolist()
        link, out = self.model.link_length, length - n * self.model.link_length
        tilt, half = c["gravity_angle"], 0.5 * (self._built.base[2] + c["base_turn"])
        mj.opt.gravity[:] = (c["gravity"] * np.sin(tilt), -c["gravity"] * np.cos(tilt), 0.0)
        mj.body_quat[mj.nbody - n - 1] = (np.cos(half), 0.0, 0.0, np.sin(half))
        mj.geom_friction[:, 0] = c["friction"]
        mj.geom_solref[:] = (c["contact_timeconst"], c["contact_dampratio"])
        self._write_masses(mj, c["linear_density"], n, out)
        bear(mj, c["tip_mass"] + load, c["tip_offset"])
        mj.opt.viscosity = viscosity(mj, c["drag"] * link)
        mj.dof_armature[n] = 2 * c["linear_density"] * length
        mj.jnt_range[n] = (out, self.model.max_length - (n - 1) * link)
        mj.actuator_forcerange[0] = (-REEL, force)
        mj.dof_damping[n] = damper
        mj.actuator_gainprm[0, 0] = GROWTH_SERVO + damper
        spacing = np.full(n, link)
        spacing[n - 1] += 0.5 * out
        spacing[0] += c["clamp_length"] - 0.5 * link
        self._write_bending(mj, c, spacing)
        harden(self, mj, n)

    def _write_masses(self, mj: mujoco.MjModel, density: float, n: int, out: float) -> None:
        """Uniform rods; the telescope's part that is out hangs at its front end, and is as wide as it is long.

        The box of its inertia is a link's, made smaller: MuJoCo's drag grows with the box's sides, and has to with the length.
        """
        link, radius = self.model.link_length, self.model.radius
        lengths = np.append(np.full(n, link), max(out, 1e-3 * link))
        first, scale = mj.nbody - n - 1, lengths / link
        mj.body_mass[first:] = density * lengths
        across = density * lengths * (lengths**2 / 12 + 0.5 * (scale * radius) ** 2)
        along = density * lengths * (scale * radius) ** 2
        mj.body_inertia[first:] = np.stack([along, across, across], axis=1)
        mj.body_ipos[first:, 0] = 0.5 * lengths
        mj.body_ipos[-1, 0] = -0.5 * lengths[-1]

    def _write_bending(self, mj: mujoco.MjModel, c: dict[str, float], spacing: Array) -> None:
        """Springs, dampers and muscles of the joints; `spacing` (n,) [m] as in `systems.vine.dynamics`."""
        n = len(spacing)
        slope = stiffness_factors(self, self.model, n) * c["bending_stiffness"] / spacing
        gain = factors(self, "steering_spread", n) * c["steering_gain"]
        onset = 0.5 * np.pi * c["pressure"] * self.model.radius**3
        (passive, _), *saturating = SPRINGS[self.bending]
        mj.jnt_stiffness[:n] = _as_column(mj.jnt_stiffness, passive * slope)
        mj.dof_damping[:n] = _as_column(mj.dof_damping, factors(self, "damping_spread", n) * c["bending_damping"] / spacing)
        self._write_friction(mj, c["bending_friction"], n)
        place = 1
        if self.model.num_sections:
            falloff = gain / (c["steering_curvature"] * spacing)
            for side in (0, 1):
                index = place + side + 2 * np.arange(n)
                mj.actuator_gainprm[index, 0] = (1 - 2 * side) * gain
                mj.actuator_gainprm[index, 1] = -falloff
                mj.actuator_dynprm[index, 0] = c["steering_lag"]
            place += 2 * n
        for share, at in saturating:
            index = place + np.arange(n)
            mj.actuator_biasprm[index, 1] = -share * slope
            mj.actuator_forcerange[index] = share * float(at or 0.0) * onset * np.array([-1.0, 1.0])
            place += n

    def _write_friction(self, mj: mujoco.MjModel, moment: float, n: int) -> None:
        """Write dry friction of the joints, as hard as is stable: MuJoCo's usual one only damps links as light as these."""
        mj.dof_frictionloss[:n] = moment
        mj.dof_solref[:n, 0] = 2.0 * mj.opt.timestep if moment > 0.0 else SOLREF
        mj.dof_solimp[:n, :2] = HARD if moment > 0.0 else SOLIMP


def _read_contacts(mj: mujoco.MjModel, data: mujoco.MjData) -> Array:
    """Columns of `model.contact_table`, one row per contact that pushes."""
    table, wrench, count = np.zeros((MAX_CONTACTS, 9)), np.zeros(6), 0
    first = mj.nbody - mj.nv
    for c, contact in enumerate(data.contact):
        mujoco.mj_contactForce(mj, data, c, wrench)
        if wrench[0] <= 0 or count == MAX_CONTACTS:
            continue
        bodies = mj.geom_bodyid[list(contact.geom)]
        robot = int(np.argmax(bodies))  # obstacles come first
        frame = contact.frame.reshape(3, 3) * (1 if robot == 1 else -1)
        force = frame.T @ wrench[:3]
        left = np.array([-frame[0, 1], frame[0, 0], 0.0])
        row = [min(bodies[robot] - first, mj.nv - 2), bodies[1 - robot] - 1, *contact.pos[:2], *force[:2]]
        table[count] = [*row, wrench[0], force @ left, contact.dist]
        count += 1
    return table


def _as_column(like: Array, values: Array) -> Array:
    """Values in the shape of one column: newer versions keep polynomials there, of which only the first term is used."""
    return values if like.ndim == 1 else np.pad(values[:, None], ((0, 0), (0, like.shape[1] - 1)))


def viscosity(mj: mujoco.MjModel, drag: float) -> float:
    """Viscosity of the fluid in which a full link feels `drag` [N s/m]: 3 pi d mu, d the mean side of its inertia box."""
    body = mj.nbody - len(mj.dof_armature)  # the link at the base
    inertia, mass = mj.body_inertia[body], mj.body_mass[body]
    sides = np.sqrt(np.maximum(1e-15, inertia.sum() - 2 * inertia) * 6 / mass)
    return float(drag / (3 * np.pi * sides.mean()))
