"""A known answer that Warp must give.

Some versions of Warp compile our kernels without complaint and get them wrong: 1.13 and 1.14 lose the sign of a negated
constant; in 1.16 to 1.18 the derivative of a variable leaks into its namesake in an earlier loop. The kernel below is the
small model of ours that shows both: rods pulled by springs, with structs that view the state, dynamic loops that share
names, atomic sums, branches, an adjoint by hand, and a stage that writes to a tape. NumPy computes the same, and its
derivatives by complex steps: exact to rounding.

Legend: T control steps, R rods. A row's state is p (3), q = (w, x, y, z) and v (3) of each rod, then the motor.
"""

# mypy: disable-error-code="valid-type, untyped-decorator, no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import warp as wp
from numpy.typing import NDArray

from softgym_envs.engines.warp import engine as warp_engine  # noqa: F401  (sets Warp up)
from softgym_envs.engines.warp.memory import Memory, stage

Array = NDArray[np.float64]

RODS, SUBSTEPS, DT = 2, 2, 0.1
FIRST, SECOND, WOUND, SHARE = (0, 1, 1), (2, 3, 2), (0, 1, 0), (1.0, 0.5, 2.0)
"""The springs: which ends (two per rod) each joins, whether the motor shortens it, and its share of the stiffness."""
WIDTH = 10 * RODS + 1
"""Length nx of a state."""
COMPLEX_STEP = 1e-30

_zero = wp.constant(wp.float64(0.0))
_one = wp.constant(wp.float64(1.0))
_two = wp.constant(wp.float64(2.0))


class Question(NamedTuple):
    """Arguments of one rollout, and the cotangent that is pulled back through it."""

    state: Array
    """(1, nx)"""
    controls: Array
    """(1, T, 1)"""
    parameter_values: Array
    """(1, 2) stiffness and length at rest"""
    cotangent: Array
    """(1, T+1, nx)"""


class Answer(NamedTuple):
    """States of the rollout, and the gradient of sum(cotangent * states)."""

    states: Array
    """(1, T+1, nx)"""
    state: Array
    """(1, nx)"""
    controls: Array
    """(1, T, 1)"""
    parameter_values: Array
    """(1, 2)"""


# --- the kernel ------------------------------------------------------------------------------------------------------


@wp.struct
class Rod:
    """A rod's 10 entries of the state."""

    p: wp.vec3d
    q: wp.vec4d
    v: wp.vec3d


@wp.struct
class Spring:
    """One spring; see `FIRST` ... `SHARE`."""

    first: int
    second: int
    wound: int
    share: wp.float64


@wp.func
def rotation_of(rod: Rod):
    """Quaternion in Warp's order (x, y, z, w)."""
    return wp.quatd(rod.q[1], rod.q[2], rod.q[3], rod.q[0])


@wp.func
def axis_of(q: wp.quatd):
    """R (0, 0, 1)."""
    return wp.vec3d(
        _two * (q[0] * q[2] + q[3] * q[1]), _two * (q[1] * q[2] - q[3] * q[0]), _one - _two * (q[0] * q[0] + q[1] * q[1])
    )


@wp.func
def end_of(rod: Rod, axis: wp.vec3d, side: wp.float64):
    """The end on one side, -1 or 1."""
    return rod.p + side * axis


@wp.func
def pull_along(d: wp.vec3d, rest: wp.float64, stiffness: wp.float64):
    """k max(0, l - rest) d / l, l = |d|."""
    length = wp.sqrt(wp.dot(d, d))
    tension = wp.float64(0.0)
    if length > rest:
        tension = stiffness * (length - rest)
    return (tension / length) * d


@wp.func_grad(pull_along)
def adj_pull_along(d: wp.vec3d, rest: wp.float64, stiffness: wp.float64, adjoint: wp.vec3d):
    """With e = d / l: dT = k (e . dd - drest) + (l - rest) dk, de = (1 - e e') dd / l."""
    length = wp.sqrt(wp.dot(d, d))
    e = d / length
    along = wp.dot(adjoint, e)
    if length > rest:
        wp.adjoint[d] += stiffness * (along * e + ((length - rest) / length) * (adjoint - along * e))
        wp.adjoint[rest] += -stiffness * along
        wp.adjoint[stiffness] += (length - rest) * along


@wp.struct
class World:
    """Data shared by all rows."""

    springs: wp.array(dtype=Spring)
    dt: wp.float64


@wp.struct
class Tape:
    """Values of one step for the backward pass."""

    rods: wp.array2d(dtype=Rod)
    ends: wp.array2d(dtype=wp.vec3d)
    forces: wp.array2d(dtype=wp.vec3d)


MEMORY = Memory(Tape, {"ends": 2 * RODS, "forces": 2 * RODS}, {"rods": RODS})


@stage
def pull_springs(now: int, wound: wp.float64, rest_length: wp.float64, stiffness: wp.float64, world: World, tape: Tape):
    """Forces of the springs on the ends."""
    for c in range(world.springs.shape[0]):
        spring = world.springs[c]
        rest = rest_length
        if spring.wound > 0:
            rest = rest - wound
        pull = pull_along(tape.ends[now, spring.second] - tape.ends[now, spring.first], rest, spring.share * stiffness)
        wp.atomic_add(tape.forces, now, spring.first, pull)
        wp.atomic_add(tape.forces, now, spring.second, -pull)


def check_kernel(
    world: World,
    parameter_values: wp.array2d(dtype=wp.float64),
    controls: wp.array3d(dtype=wp.float64),
    horizon: int,
    substeps: int,
    slots: int,
    state: wp.array2d(dtype=wp.float64),
    tape: Tape,
    states: wp.array3d(dtype=wp.float64),
    status: wp.array(dtype=wp.float64),
):
    """All substeps of row b; see `engines.warp.engine` for the arguments, and `reference` for the same in NumPy."""
    b = wp.tid()
    batch = parameter_values.shape[0]
    motor = state.shape[1] - 1
    none = wp.vec3d(_zero, _zero, _zero)
    for t in range(horizon):
        for s in range(substeps):
            now = (t * substeps + s) % slots * batch + b
            new = (t * substeps + s + 1) % slots * batch + b
            for r in range(tape.rods.shape[1]):
                rod = tape.rods[now, r]
                q = rotation_of(rod)
                axis = axis_of(q)
                tape.ends[now, 2 * r] = end_of(rod, axis, -_one)
                tape.ends[now, 2 * r + 1] = end_of(rod, axis, _one)
                tape.forces[now, 2 * r] = none
                tape.forces[now, 2 * r + 1] = none
            wound = state[now, motor]
            state[new, motor] = wound + world.dt * (wp.clamp(controls[b, t, 0], -_one, _one) - wound)
            pull_springs(now, wound, parameter_values[b, 1], parameter_values[b, 0], world, tape)
            for r in range(tape.rods.shape[1]):
                rod = tape.rods[now, r]
                q = rotation_of(rod)
                f0 = tape.forces[now, 2 * r]
                f1 = tape.forces[now, 2 * r + 1]
                turn = world.dt * (f1 - f0)
                turned = wp.normalize(q * wp.quatd(turn[0], turn[1], turn[2], _one))
                moved = Rod()
                moved.v = rod.v + world.dt * (f0 + f1)
                moved.p = rod.p + world.dt * moved.v
                moved.q = wp.vec4d(turned[3], turned[0], turned[1], turned[2])
                tape.rods[new, r] = moved
        for x in range(state.shape[1]):
            states[b, t + 1, x] = state[(t + 1) * substeps % slots * batch + b, x]


def structure() -> list[Any]:
    """The kernel's leading arguments, on the CPU."""
    layout: Any = Spring
    rows: Any = np.zeros(len(FIRST), dtype=layout.numpy_dtype())
    rows["first"], rows["second"], rows["wound"], rows["share"] = FIRST, SECOND, WOUND, SHARE
    world = World()
    world.springs, world.dt = wp.array(rows, dtype=Spring, device="cpu"), DT
    return [world]


# --- the same in NumPy -----------------------------------------------------------------------------------------------


def question() -> Question:
    """Two control steps from a state in general position; one spring is slack, one control beyond its bounds."""
    state = np.sin(np.arange(1.0, 10 * RODS + 2))
    for r in range(RODS):
        q = state[10 * r + 3 : 10 * r + 7]
        q /= np.linalg.norm(q)
    cotangent = np.cos(np.arange(3.0 * len(state))).reshape(1, 3, -1)
    return Question(state[None], np.array([[[0.4], [-1.5]]]), np.array([[1.3, 2.0]]), cotangent)


def rows_question() -> Question:
    """Five rows without cotangent, springs stretched in some and slack in others; one row is over after a group of four."""
    one = question()
    state = one.state * np.linspace(1.0, 1.4, 5)[:, None]
    parameter_values = np.stack([np.linspace(1.3, 1.7, 5), np.linspace(2.0, 3.0, 5)], axis=1)
    return Question(state, np.repeat(one.controls, 5, axis=0), parameter_values, np.zeros((5, 3, WIDTH)))


def reference(state: NDArray[Any], controls: NDArray[Any], parameter_values: NDArray[Any]) -> NDArray[Any]:
    """States (T+1, nx) of one row: nx numbers, (T, 1), (2,); real or complex."""
    states = [np.array(state)]
    for u in controls[:, 0]:
        x = states[-1]
        for _ in range(SUBSTEPS):
            x = _step(x, u, *parameter_values)
        states.append(x)
    return np.stack(states)


def _step(x: NDArray[Any], u: Any, stiffness: Any, rest: Any) -> NDArray[Any]:
    """One substep: forces of the springs on the ends of the rods, then each rod moves and turns."""
    rods, wound = x[:-1].reshape(RODS, 10), x[-1]
    ends = np.concatenate([[p - axis, p + axis] for p, axis in ((rod[:3], _axis(rod[3:7])) for rod in rods)])
    forces = np.zeros_like(ends)
    for first, second, winds, share in zip(FIRST, SECOND, WOUND, SHARE, strict=True):
        d = ends[second] - ends[first]
        length = np.sqrt(d @ d)
        stretch = length - (rest - winds * wound)
        pull = (share * stiffness * stretch / length) * d * (stretch.real > 0)
        forces[first] += pull
        forces[second] -= pull
    bound = u if abs(u.real) < 1 else np.sign(u.real)
    moved = [_moved(rod, f0, f1) for rod, f0, f1 in zip(rods, forces[::2], forces[1::2], strict=True)]
    return np.concatenate([*moved, [wound + DT * (bound - wound)]])


def _axis(q: NDArray[Any]) -> NDArray[Any]:
    """R (0, 0, 1) of q = (w, x, y, z)."""
    w, x, y, z = q
    return np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def _moved(rod: NDArray[Any], f0: NDArray[Any], f1: NDArray[Any]) -> NDArray[Any]:
    """p' = p + dt v', v' = v + dt (f0 + f1), q' = q (1, dt (f1 - f0)), normalised."""
    p, q, v = rod[:3], rod[3:7], rod[7:] + DT * (f0 + f1)
    turn = DT * (f1 - f0)
    turned = np.concatenate([[q[0] - q[1:] @ turn], q[0] * turn + q[1:] + np.cross(q[1:], turn)])
    return np.concatenate([p + DT * v, turned / np.sqrt(turned @ turned), v])


def known_answer(asked: Question) -> Answer:
    """Answer that Warp must find: d f / d x_i = Im f(x + i h e_i) / h, exact to rounding."""
    given = [part[0] for part in (asked.state, asked.controls, asked.parameter_values)]

    def slope(which: int, entry: tuple[int, ...]) -> float:
        moved = [part.astype(complex) for part in given]
        moved[which][entry] += 1j * COMPLEX_STEP
        return float((asked.cotangent[0] * reference(*moved).imag).sum() / COMPLEX_STEP)

    slopes = [np.array([slope(k, i) for i in np.ndindex(part.shape)]).reshape(1, *part.shape) for k, part in enumerate(given)]
    return Answer(reference(*given)[None], *slopes)
