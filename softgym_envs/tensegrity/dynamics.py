"""The engine of [Wang2020] (arXiv 2011.04929): rods as rigid bodies, pull-only cables, motors, contact impulses.

One substep of dt, in the order of the functions below:

1. kinematics       ends of the rods and their velocities
2. `pull_between`   T = max(0, k (l - l_rest) + c dl/dt), l_rest = rest_length + b w, and the motors, eqs (6)-(8)
3. predicted        velocities after cable forces and gravity, without contact
4. `ground_contact` impulses between caps and ground, eqs (1), (3)-(5) or softer: see `contact`
5. `rod_impulse`    impulses between rods
6. `rotation_step`  semi-implicit Euler: the new velocity moves the pose

Legend: B batch, R rods, N nodes, C cables. A rod's frame has z along the rod; its inertia is that of a solid cylinder.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ..core import warp_engine
from ..core.errors import OptionError, ParameterError, StructureError
from ..core.parameters import Parameters
from ..core.simulator import IntArray, Linearization, check_array
from ..core.warp_engine import Gradient, Program, WarpEngine
from .contact import (
    CONTACT_MARGIN,
    MODES,
    Twist,
    arm_at,
    closest_features,
    contact_constants,
    far_apart,
    ground,
    ground_contact,
    rod_impulse,
    spin_up,
)
from .model import TensegrityModel, superball
from .parameters import TensegrityParameters

Array = NDArray[np.float64]

SPEED_LIMIT = 1e3
"""[m/s, rad/s] A rod faster than this has diverged."""

_C = {name: wp.constant(TensegrityParameters.index(name)) for name in TensegrityParameters.names()}
MASS, STIFFNESS, DAMPING, REST = _C["rod_mass"], _C["cable_stiffness"], _C["cable_damping"], _C["rest_length"]
MOTOR_SPEED, MOTOR_GAIN, GRAVITY = _C["motor_speed"], _C["motor_gain"], _C["gravity"]
TERRAIN_SCALE = _C["terrain_scale"]

_limit = wp.constant(wp.float64(SPEED_LIMIT))
_margin = wp.constant(wp.float64(CONTACT_MARGIN))
_zero = wp.constant(wp.float64(0.0))
_half = wp.constant(wp.float64(0.5))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))
_twelve = wp.constant(wp.float64(12.0))
_tiny = wp.constant(wp.float64(1e-12))


@wp.struct
class Cable:
    """Constants of all cables."""

    stiffness: wp.float64
    damping: wp.float64
    rest: wp.float64
    gain: wp.float64


@wp.func
def read3(state: wp.array2d(dtype=wp.float64), row: int, i: int):
    """Three entries of a state."""
    return wp.vec3d(state[row, i], state[row, i + 1], state[row, i + 2])


@wp.func
def read_quaternion(state: wp.array2d(dtype=wp.float64), row: int, i: int):
    """Four entries of a state, (w, x, y, z), in Warp's order (x, y, z, w)."""
    return wp.quatd(state[row, i + 1], state[row, i + 2], state[row, i + 3], state[row, i])


@wp.func
def z_axis(q: wp.quatd):
    """Direction of the rod, R (0, 0, 1)."""
    return wp.vec3d(
        _two * (q[0] * q[2] + q[3] * q[1]), _two * (q[1] * q[2] - q[3] * q[0]), _one - _two * (q[0] * q[0] + q[1] * q[1])
    )


# --- cables ----------------------------------------------------------------------------------------------------------


@wp.func
def pull_between(
    p0: wp.vec3d, v0: wp.vec3d, p1: wp.vec3d, v1: wp.vec3d, rest: wp.float64, stiffness: wp.float64, damping: wp.float64
):
    """Pull on node 0 of a Kelvin-Voigt cable that only pulls, T u with T = max(0, k (l - l_rest) + c dl/dt), u from 0 to 1."""
    along = p1 - p0
    length = wp.length(along)
    direction = (_one / length) * along
    return wp.max(_zero, stiffness * (length - rest) + damping * wp.dot(v1 - v0, direction)) * direction


@wp.func_grad(pull_between)
def adj_pull_between(
    p0: wp.vec3d,
    v0: wp.vec3d,
    p1: wp.vec3d,
    v1: wp.vec3d,
    rest: wp.float64,
    stiffness: wp.float64,
    damping: wp.float64,
    adj_pull: wp.vec3d,
):
    """Adjoint of `pull_between`, by hand because it is the hottest: g.dT u + T g.du with du = (1 - u u') d(p1 - p0) / l."""
    along = p1 - p0
    length = wp.length(along)
    inverse = _one / length
    u = inverse * along
    speed = v1 - v0
    rate = wp.dot(speed, u)
    tension = stiffness * (length - rest) + damping * rate
    if tension > _zero:
        adj_tension = wp.dot(adj_pull, u)
        adj_u = tension * adj_pull + (adj_tension * damping) * speed
        adj_p = (adj_tension * stiffness) * u + inverse * (adj_u - wp.dot(adj_u, u) * u)
        adj_v = (adj_tension * damping) * u
        wp.adjoint[p0] -= adj_p
        wp.adjoint[p1] += adj_p
        wp.adjoint[v0] -= adj_v
        wp.adjoint[v1] += adj_v
        wp.adjoint[rest] -= adj_tension * stiffness
        wp.adjoint[stiffness] += adj_tension * (length - rest)
        wp.adjoint[damping] += adj_tension * rate


@wp.func
def pull_of(
    c: int,
    now: int,
    cables: wp.array2d(dtype=int),
    ratios: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    work: wp.array2d(dtype=wp.vec3d),
    velocities: int,
    first_motor: int,
    cable: Cable,
):
    """Pull of cable c on its first node, l_rest = rest_length + b w, eqs (7)-(8); cables[c] = both nodes, motor or -1."""
    n0 = cables[c, 0]
    n1 = cables[c, 1]
    motor = _zero
    if cables[c, 2] >= 0:
        motor = state[now, first_motor + cables[c, 2]]
    return pull_between(
        work[now, n0],
        work[now, velocities + n0],
        work[now, n1],
        work[now, velocities + n1],
        cable.rest * ratios[c, 1] + cable.gain * motor,
        cable.stiffness * ratios[c, 0],
        cable.damping * ratios[c, 0],
    )


@wp.func
def cable_constants(constants: wp.array2d(dtype=wp.float64), b: int):
    """Row b's constants of the cables."""
    cable = Cable()
    cable.stiffness = constants[b, STIFFNESS]
    cable.damping = constants[b, DAMPING]
    cable.rest = constants[b, REST]
    cable.gain = constants[b, MOTOR_GAIN]
    return cable


# --- rods among themselves ---


@wp.func
def out_of_reach(
    state: wp.array2d(dtype=wp.float64),
    work: wp.array2d(dtype=wp.vec3d),
    now: int,
    r1: int,
    r2: int,
    rods: wp.array2d(dtype=wp.float64),
    axes: int,
    cap_radius: wp.float64,
):
    """Cheap proof that two rods do not touch."""
    apart = read3(state, now, 13 * r1) - read3(state, now, 13 * r2)
    return far_apart(apart, work[now, axes + r1], work[now, axes + r2], rods[r2, 0], _two * cap_radius + _margin)


@wp.func_grad(out_of_reach)
def adj_out_of_reach(
    state: wp.array2d(dtype=wp.float64),
    work: wp.array2d(dtype=wp.vec3d),
    now: int,
    r1: int,
    r2: int,
    rods: wp.array2d(dtype=wp.float64),
    axes: int,
    cap_radius: wp.float64,
    adj_far: bool,
):
    """A decision has no derivative; saying so spares the adjoint of every pair."""
    pass


# --- integration ---


@wp.func
def rotation_step(w: wp.vec3d, dt: wp.float64):
    """exp(dt w / 2) as a quaternion: (cos(x), dt w sin(x) / 2x), x = dt |w| / 2, by series where x < 0.05."""
    y = wp.float64(0.25) * dt * dt * wp.dot(w, w)
    cosine = _one
    sinc = _one
    if y < wp.float64(2.5e-3):  # the first term left out is below 1e-19
        cosine = _one - y / _two * (_one - y / _twelve * (_one - y / wp.float64(30.0) * (_one - y / wp.float64(56.0))))
        sinc = _one - y / wp.float64(6.0) * (
            _one - y / wp.float64(20.0) * (_one - y / wp.float64(42.0) * (_one - y / wp.float64(72.0)))
        )
    else:
        x = wp.sqrt(y)
        cosine = wp.cos(x)
        sinc = wp.sin(x) / x
    scaled = _half * dt * sinc
    return wp.quatd(scaled * w[0], scaled * w[1], scaled * w[2], cosine)


# --- one row of the batch --------------------------------------------------------------------------------------------


def rollout_kernel(
    cables: wp.array2d(dtype=int),
    ratios: wp.array2d(dtype=wp.float64),
    rods: wp.array2d(dtype=wp.float64),
    heights: wp.array2d(dtype=wp.float64),
    cell: wp.float64,
    plane: wp.vec3d,
    rough: int,
    rod_radius: wp.float64,
    cap_radius: wp.float64,
    control_limit: wp.float64,
    mode: int,
    dt: wp.float64,
    constants: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    work: wp.array2d(dtype=wp.vec3d),
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=int),
):
    """All substeps of row b; see the module docstring and `core.warp_engine` for the arguments.

    rods[r] = half length, free (1, or 0 if held), and I^-1 m across and along the rod. One row of `work` holds, for one
    substep, positions, velocities and forces of the nodes; then per rod axis, velocity and angular velocity (rod frame) after
    ground contact, and the changes of both by contact between rods.
    """
    b = wp.tid()
    batch = constants.shape[0]
    num_rods = rods.shape[0]
    num_groups = cables.shape[0] // 4
    first_motor = 13 * num_rods
    velocities = 2 * num_rods
    forces = 4 * num_rods
    axes = 6 * num_rods
    linear = 7 * num_rods
    angular = 8 * num_rods
    dlinear = 9 * num_rods
    dangular = 10 * num_rods
    none = wp.vec3d(_zero, _zero, _zero)
    cable = cable_constants(constants, b)
    contact = contact_constants(constants, b, dt, mode)
    inverse = _one / constants[b, MASS]
    motor_rate = constants[b, MOTOR_SPEED] * dt
    scale = constants[b, TERRAIN_SCALE]
    fall = wp.vec3d(_zero, _zero, -dt * constants[b, GRAVITY])
    for t in range(horizon):
        if status[b] == 0:
            for s in range(substeps):
                now = (t * substeps + s) % slots * batch + b
                new = (t * substeps + s + 1) % slots * batch + b

                # kinematics
                for r in range(num_rods):
                    i = 13 * r
                    p = read3(state, now, i)
                    q = read_quaternion(state, now, i + 3)
                    v = rods[r, 1] * read3(state, now, i + 7)
                    axis = z_axis(q)
                    arm = rods[r, 0] * axis
                    tip = rods[r, 1] * wp.cross(wp.quat_rotate(q, read3(state, now, i + 10)), arm)
                    work[now, 2 * r] = p - arm
                    work[now, 2 * r + 1] = p + arm
                    work[now, velocities + 2 * r] = v - tip
                    work[now, velocities + 2 * r + 1] = v + tip
                    work[now, forces + 2 * r] = none
                    work[now, forces + 2 * r + 1] = none
                    work[now, axes + r] = axis
                    work[now, dlinear + r] = none
                    work[now, dangular + r] = none

                # motors: w' = w + a (u - w), a = motor_speed dt, eq. (6)
                for m in range(controls.shape[2]):
                    w_motor = state[now, first_motor + m]
                    command = wp.clamp(controls[b, t, m], -control_limit, control_limit)
                    state[new, first_motor + m] = w_motor + motor_rate * (command - w_motor)

                # cables, four at a time so that the processor can overlap them
                for group in range(num_groups):
                    c = 4 * group
                    pull0 = pull_of(c, now, cables, ratios, state, work, velocities, first_motor, cable)
                    pull1 = pull_of(c + 1, now, cables, ratios, state, work, velocities, first_motor, cable)
                    pull2 = pull_of(c + 2, now, cables, ratios, state, work, velocities, first_motor, cable)
                    pull3 = pull_of(c + 3, now, cables, ratios, state, work, velocities, first_motor, cable)
                    wp.atomic_add(work, now, forces + cables[c, 0], pull0)
                    wp.atomic_add(work, now, forces + cables[c, 1], -pull0)
                    wp.atomic_add(work, now, forces + cables[c + 1, 0], pull1)
                    wp.atomic_add(work, now, forces + cables[c + 1, 1], -pull1)
                    wp.atomic_add(work, now, forces + cables[c + 2, 0], pull2)
                    wp.atomic_add(work, now, forces + cables[c + 2, 1], -pull2)
                    wp.atomic_add(work, now, forces + cables[c + 3, 0], pull3)
                    wp.atomic_add(work, now, forces + cables[c + 3, 1], -pull3)

                # predicted velocity, and contact with the ground
                for r in range(num_rods):
                    i = 13 * r
                    q = read_quaternion(state, now, i + 3)
                    w = read3(state, now, i + 10)
                    z = work[now, axes + r]
                    f0 = work[now, forces + 2 * r]
                    f1 = work[now, forces + 2 * r + 1]
                    h = rods[r, 0]
                    im = rods[r, 1] * inverse
                    it = rods[r, 2] * im
                    ia = rods[r, 3] * im
                    velocity = read3(state, now, i + 7) + dt * im * (f0 + f1) + rods[r, 1] * fall
                    # I w' = I w + dt (tau - w x I w) in the rod's frame, I = diag(1/it, 1/it, 1/ia)
                    torque = wp.quat_rotate_inv(q, h * wp.cross(z, f1 - f0))
                    gyro = rods[r, 1] * w[2] * (rods[r, 2] / rods[r, 3] - _one)
                    rotation = wp.vec3d(
                        w[0] + dt * (it * torque[0] - gyro * w[1]), w[1] + dt * (it * torque[1] + gyro * w[0]), w[2]
                    )
                    s0 = ground(work[now, 2 * r], cap_radius, scale, plane, cell, rough, heights)
                    s1 = ground(work[now, 2 * r + 1], cap_radius, scale, plane, cell, rough, heights)
                    if wp.min(s0.gap, s1.gap) < _margin and im > _zero:
                        before = Twist()
                        before.v = read3(state, now, i + 7)
                        before.w = wp.quat_rotate(q, w)
                        predicted = Twist()
                        predicted.v = velocity
                        predicted.w = wp.quat_rotate(q, rotation)
                        after = ground_contact(before, predicted, z, h, s0, s1, cap_radius, im, it, ia, contact)
                        velocity = after.v
                        rotation = wp.quat_rotate_inv(q, after.w)
                    work[now, linear + r] = velocity
                    work[now, angular + r] = rotation

                # contact between rods
                for r1 in range(num_rods):
                    for r2 in range(r1 + 1, num_rods):
                        if not out_of_reach(state, work, now, r1, r2, rods, axes, cap_radius):
                            u1 = work[now, axes + r1]
                            u2 = work[now, axes + r2]
                            apart = read3(state, now, 13 * r1) - read3(state, now, 13 * r2)
                            feature = closest_features(apart, u1, u2, rods[r1, 0], rods[r2, 0], rod_radius, cap_radius)
                            between = apart + feature[0] * u1 - feature[1] * u2
                            distance = wp.length(between)
                            gap = distance - feature[2]
                            if gap < _margin and distance > _tiny:
                                normal = between / distance
                                share = _half * (feature[2] + gap)
                                im1 = rods[r1, 1] * inverse
                                im2 = rods[r2, 1] * inverse
                                a1 = arm_at(feature[0] * u1 - share * normal, u1, im1, rods[r1, 2] * im1, rods[r1, 3] * im1)
                                a2 = arm_at(feature[1] * u2 + share * normal, u2, im2, rods[r2, 2] * im2, rods[r2, 3] * im2)
                                q1 = read_quaternion(state, now, 13 * r1 + 3)
                                q2 = read_quaternion(state, now, 13 * r2 + 3)
                                slip = (
                                    work[now, linear + r1]
                                    + wp.cross(wp.quat_rotate(q1, work[now, angular + r1]), a1.r)
                                    - work[now, linear + r2]
                                    - wp.cross(wp.quat_rotate(q2, work[now, angular + r2]), a2.r)
                                )
                                before_slip = (
                                    read3(state, now, 13 * r1 + 7)
                                    + wp.cross(wp.quat_rotate(q1, read3(state, now, 13 * r1 + 10)), a1.r)
                                    - read3(state, now, 13 * r2 + 7)
                                    - wp.cross(wp.quat_rotate(q2, read3(state, now, 13 * r2 + 10)), a2.r)
                                )
                                impulse = rod_impulse(a1, a2, before_slip, slip, normal, gap, contact)
                                wp.atomic_add(work, now, dlinear + r1, im1 * impulse)
                                wp.atomic_add(work, now, dlinear + r2, -im2 * impulse)
                                wp.atomic_add(work, now, dangular + r1, spin_up(a1, impulse))
                                wp.atomic_add(work, now, dangular + r2, -spin_up(a2, impulse))

                # integrate
                for r in range(num_rods):
                    i = 13 * r
                    q = read_quaternion(state, now, i + 3)
                    v = rods[r, 1] * (work[now, linear + r] + work[now, dlinear + r])
                    dw = work[now, dangular + r]
                    w = work[now, angular + r]
                    if wp.dot(dw, dw) > _zero:
                        w = w + wp.quat_rotate_inv(q, dw)
                    w = rods[r, 1] * w
                    turned = wp.normalize(q * rotation_step(w, dt))
                    state[new, i] = state[now, i] + dt * v[0]
                    state[new, i + 1] = state[now, i + 1] + dt * v[1]
                    state[new, i + 2] = state[now, i + 2] + dt * v[2]
                    state[new, i + 3] = turned[3]
                    state[new, i + 4] = turned[0]
                    state[new, i + 5] = turned[1]
                    state[new, i + 6] = turned[2]
                    state[new, i + 7] = v[0]
                    state[new, i + 8] = v[1]
                    state[new, i + 9] = v[2]
                    state[new, i + 10] = w[0]
                    state[new, i + 11] = w[1]
                    state[new, i + 12] = w[2]

            end = (t + 1) * substeps % slots * batch + b
            for r in range(num_rods):
                fast = wp.max(wp.length(read3(state, end, 13 * r + 7)), wp.length(read3(state, end, 13 * r + 10)))
                if not (fast < _limit):
                    status[b] = 1
        for x in range(state.shape[1]):
            if status[b] == 0:
                states[b, t + 1, x] = state[(t + 1) * substeps % slots * batch + b, x]
            else:
                states[b, t + 1, x] = states[b, t, x]


def tension_kernel(
    cables: wp.array2d(dtype=int),
    ratios: wp.array2d(dtype=wp.float64),
    rods: wp.array2d(dtype=wp.float64),
    constants: wp.array2d(dtype=wp.float64),
    state: wp.array2d(dtype=wp.float64),
    tension: wp.array2d(dtype=wp.float64),
):
    """Tension of cable c in row b."""
    b, c = wp.tid()
    motor = _zero
    if cables[c, 2] >= 0:
        motor = state[b, 13 * rods.shape[0] + cables[c, 2]]
    e0 = node_motion(state, rods, b, cables[c, 0])
    e1 = node_motion(state, rods, b, cables[c, 1])
    cable = cable_constants(constants, b)
    rest = cable.rest * ratios[c, 1] + cable.gain * motor
    pull = pull_between(e0.v, e0.w, e1.v, e1.w, rest, cable.stiffness * ratios[c, 0], cable.damping * ratios[c, 0])
    tension[b, c] = wp.length(pull)


@wp.func
def node_motion(state: wp.array2d(dtype=wp.float64), rods: wp.array2d(dtype=wp.float64), b: int, node: int):
    """Position (as v) and velocity (as w) of a rod's end."""
    i = 13 * (node // 2)
    q = read_quaternion(state, b, i + 3)
    arm = (_two * wp.float64(node % 2) - _one) * rods[node // 2, 0] * z_axis(q)
    out = Twist()
    out.v = read3(state, b, i) + arm
    out.w = read3(state, b, i + 7) + wp.cross(wp.quat_rotate(q, read3(state, b, i + 10)), arm)
    return out


_tension = wp.kernel(tension_kernel, enable_backward=False, module="unique")


@dataclass(frozen=True, eq=False)
class TensegritySimulator:
    """Our engine as a `core.simulator.Simulator`, for any `TensegrityModel`.

    >>> simulator = TensegritySimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.zeros((2, 5, 24)), substeps=100)
    >>> states.shape, status.tolist()
    ((2, 6, 102), [0, 0])

    Raises:
        OptionError: Unknown contact mode or device, dt not positive.
        StructureError: `fixed_rod` does not exist.
    """

    model: TensegrityModel = None  # type: ignore[assignment]
    """Structure; None stands for `superball()`."""
    dt: float = 1e-3
    """Physics step [s]."""
    contact: str = "stick"
    """"paper", "stick" or "patch"; see the module `contact`."""
    fixed_rod: int | None = None
    """A rod that is held where it is, as in the paper's identification in the air (V-A)."""
    device: str = "cpu"
    """"cpu", or a CUDA device of Warp."""

    exact_linearize = True

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", superball())
        if self.contact not in MODES:
            raise OptionError(f"contact is {self.contact!r}, allowed are {', '.join(MODES)}")
        if not self.dt > 0:
            raise OptionError(f"dt is {self.dt} s, expected > 0")
        if self.fixed_rod is not None and not 0 <= self.fixed_rod < self.model.num_rods:
            raise StructureError(f"fixed_rod is {self.fixed_rod}, rods are 0 ... {self.model.num_rods - 1}")
        warp_engine.check_device(self.device)

    @property
    def nx(self) -> int:
        """Length of a state."""
        return self.model.nx

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.model.n

    @property
    def nu(self) -> int:
        """Number of motors."""
        return self.model.nu

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest motor command, each (nu,)."""
        return -self.model.control_limit * np.ones(self.nu), self.model.control_limit * np.ones(self.nu)

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.model.state_names

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.model.control_names

    @property
    def options(self) -> dict[str, str | float]:
        """Choices that identified constants belong to: written with them, and made by `gym.make(..., params=file)`."""
        return {"contact": self.contact}

    @cached_property
    def default_parameters(self) -> TensegrityParameters:
        """Constants before identification."""
        return TensegrityParameters()

    def initial_state(self, batch: int = 1) -> Array:
        """The structure's nodes at rest, (B, nx)."""
        return np.tile(self.model.state_from_nodes(self.model.nodes), (batch, 1))

    def retract(self, state: Array, dx: Array) -> Array:
        """See `TensegrityModel`."""
        return self.model.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """See `TensegrityModel`."""
        return self.model.difference(a, b)

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """One control step; see `Simulator.step`."""
        control = check_array("control", control, (None, self.nu))
        states, status = self.rollout(state, control[:, None], parameters, substeps=substeps)
        return states[:, 1], status

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """T control steps; see `Simulator.rollout`."""
        return self.engine.rollout(*self._checked(state, controls, parameters, substeps), substeps)

    def vjp(
        self,
        state: Array,
        controls: Array,
        cotangent: Array,
        parameters: Parameters | None = None,
        *,
        substeps: int = 1,
    ) -> Gradient:
        """Rollout, and the gradient of sum(cotangent * states) with respect to state, controls and constants.

        Args:
            state: (B, nx).
            controls: (B, T, nu).
            cotangent: (B, T+1, nx).
            parameters: Constants.
            substeps: Physics steps per control step.
        """
        arguments = self._checked(state, controls, parameters, substeps)
        cotangent = check_array("cotangent", cotangent, (len(arguments[0]), arguments[1].shape[1] + 1, self.nx))
        return self.engine.vjp(*arguments, substeps, cotangent)

    def torch_rollout(self, state: Any, controls: Any, constants: Any, *, substeps: int = 1) -> Any:
        """`rollout` for torch tensors with autograd; constants is a (B, P) tensor in the order of `to_vector`."""
        return warp_engine.torch_rollout(self.engine, state, controls, constants, substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Exact derivatives of one control step: one pull-back per tangent direction, all in one batch."""
        state, controls, constants = self._checked(
            state, check_array("control", control, (None, self.nu))[:, None], parameters, substeps
        )
        end = self.engine.rollout(state, controls, constants, substeps)[0][:, 1]
        out_of, into = self.model.difference_jacobian(end), self.model.retract_jacobian(state)
        chunk = self.engine.rows_recorded_at_once(substeps, self.n)
        parts = []
        for first in range(0, len(state), chunk):
            rows = slice(first, first + chunk)
            parts.append(self._pull_back(state[rows], controls[rows], constants[rows], substeps, out_of[rows], into[rows]))
        return Linearization(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _pull_back(
        self, state: Array, controls: Array, constants: Array, substeps: int, out_of: Array, into: Array
    ) -> Linearization:
        rows, n = len(state), self.n
        cotangent = np.zeros((rows * n, 2, self.nx))
        cotangent[:, 1] = out_of.reshape(rows * n, self.nx)
        spread = [np.repeat(a, n, axis=0) for a in (state, controls, constants)]
        pulled = self.engine.vjp(spread[0], spread[1], spread[2], substeps, cotangent)
        A = pulled.state.reshape(rows, n, self.nx) @ into
        return Linearization(A, pulled.controls.reshape(rows, n, self.nu), pulled.constants.reshape(rows, n, -1))

    def cable_tensions(self, state: Array, parameters: Parameters | None = None) -> Array:
        """Pull of every cable, (B, nx) -> (B, C) [N]; zero for a slack cable."""
        state = check_array("state", state, (None, self.nx))
        constants = self._constants(parameters, len(state))
        tension = wp.zeros((len(state), self.model.num_cables), dtype=wp.float64, device=self.device)
        arrays = [wp.array(a, dtype=wp.float64, device=self.device) for a in (constants, state)]
        wp.launch(_tension, dim=tension.shape, inputs=[*self.engine.structure[:3], *arrays, tension], device=self.device)
        return np.asarray(tension.numpy())

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator."""
        model, new = self.model, lambda a, dtype: wp.array(np.ascontiguousarray(a), dtype=dtype, device=self.device)
        cables, ratios = self._padded_cables()
        half, radius, free = 0.5 * model.rod_lengths, model.rod_radius, np.ones(model.num_rods)
        if self.fixed_rod is not None:
            free[self.fixed_rod] = 0.0
        across, along = 12 / (3 * radius**2 + (2 * half) ** 2), np.full(model.num_rods, 2 / radius**2)
        terrain = model.terrain
        structure = [
            new(cables, int),
            new(ratios, wp.float64),
            new(np.stack([half, free, across, along], axis=1), wp.float64),
            new(terrain.heights, wp.float64),
            wp.float64(terrain.cell),
            wp.vec3d(-np.sin(terrain.angle), 0.0, np.cos(terrain.angle)),
            int(not terrain.is_plane),
            wp.float64(model.rod_radius),
            wp.float64(model.cap_radius),
            wp.float64(model.control_limit),
            MODES[self.contact],
            wp.float64(self.dt),
        ]
        program = Program(rollout_kernel, ((wp.vec3d, 11 * model.num_rods),))
        return WarpEngine(program, structure, self.nx, self.nu, len(TensegrityParameters.names()), self.device)

    def _padded_cables(self) -> tuple[NDArray[np.int_], Array]:
        """First node, second node, motor or -1; and both ratios; padded to groups of four by cables without stiffness."""
        model, count = self.model, self.model.num_cables
        padded = 4 * -(-count // 4)
        cables = np.tile([0, 1, -1], (padded, 1))
        cables[:count, :2] = np.array(model.cables, dtype=int).reshape(-1, 2)
        cables[list(model.actuated), 2] = np.arange(model.nu)
        ratios = np.zeros((padded, 2))
        ratios[:count, 0] = model.stiffness_ratio or 1.0
        ratios[:count, 1] = model.rest_ratio or 1.0
        return cables, ratios

    def _checked(
        self, state: Array, controls: Array, parameters: Parameters | None, substeps: int
    ) -> tuple[Array, Array, Array]:
        state = check_array("state", state, (None, self.nx))
        controls = check_array("controls", controls, (len(state), None, self.nu))
        if substeps < 1:
            raise OptionError(f"substeps is {substeps}, expected >= 1")
        return state, controls, self._constants(parameters, len(state))

    def _constants(self, parameters: Parameters | None, batch: int) -> Array:
        parameters = parameters or self.default_parameters
        if not isinstance(parameters, TensegrityParameters):
            raise ParameterError(f"parameters are {type(parameters).__name__}, this simulator takes TensegrityParameters")
        return parameters.to_matrix(batch)
