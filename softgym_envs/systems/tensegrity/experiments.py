"""The two recordings that identify a tensegrity robot ([Wang2020] V-A, V-B), made on any simulator: in the air, and thrown.

Both return a `Trajectory` of the full state with one row per physics step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...core import lie
from ...core.errors import SoftgymError
from ...core.parameters import Parameters
from ...core.simulator import Array, Simulator, Status
from ...core.trajectory import Trajectory


def record_in_air(
    simulator: Any,
    rng: np.random.Generator,
    *,
    duration: float = 5.0,
    hold: float = 0.001,
    parameters: Parameters | None = None,
    quiet: int = 0,
) -> Trajectory:
    """One rod held fixed 10 m up, random motor commands, uniform in the control bounds, each held for `hold` seconds.

    Args:
        simulator: A tensegrity simulator or its MuJoCo model.
        rng: Source of the commands.
        duration: Length [s].
        hold: Duration of a command [s].
        parameters: Parameters; None: the simulator's.
        quiet: Number of first commands that are zero.
    """
    held = replace(simulator, fixed_rod=0)
    state = held.model.move(held.initial_state()[0], translation=np.array([0.0, 0.0, 10.0]))
    substeps = round(hold / held.dt)
    low, high = held.control_bounds
    commands = rng.uniform(low, high, (round(duration / hold), held.nu))
    commands[:quiet] = 0.0
    return _record(held, state, np.repeat(commands, substeps, axis=0), parameters)


def record_throw(
    simulator: Any,
    rng: np.random.Generator,
    *,
    duration: float = 5.0,
    speed: float | tuple[float, float] = (0.5, 2.0),
    parameters: Parameters | None = None,
) -> Trajectory:
    """The robot, turned at random, starts just over the ground with a random speed and direction, rolling, motors off.

    Args:
        simulator: A tensegrity simulator or its MuJoCo model.
        rng: Source of pose, direction and speed.
        duration: Length [s].
        speed: Speed of the centre of mass [m/s], or an interval to draw it from.
        parameters: Parameters; None: the simulator's.
    """
    state = thrown(simulator.model, rng, speed)
    return _record(simulator, state, np.zeros((round(duration / simulator.dt), simulator.nu)), parameters)


def thrown(model: Any, rng: np.random.Generator, speed: float | tuple[float, float]) -> Array:
    """Initial state of a throw, (nx,): v = s (cos a, sin a, 0) and w = z x v / height, so that it rolls."""
    turn = lie.log(lie.multiply(np.array([1.0, 0.0, 0.0, 0.0]), _random_quaternion(rng)))
    state = model.place_on_ground(model.move(model.state_from_nodes(model.nodes), rotation=turn), gap=0.01)
    pace = rng.uniform(*speed) if isinstance(speed, tuple) else speed
    angle = rng.uniform(0.0, 2.0 * np.pi)
    velocity = pace * np.array([np.cos(angle), np.sin(angle), 0.0])
    center = model.center_of_mass(state)
    height = center[2] - float(model.terrain.height(center[0], center[1]))
    rotation = np.cross([0.0, 0.0, 1.0], velocity) / height
    position, quaternion, moves, spins, _ = model.split(state)
    for r in range(model.num_rods):
        moves[r] = velocity + np.cross(rotation, position[r] - center)
        spins[r] = lie.rotate(lie.conjugate(quaternion[r]), rotation)
    return np.asarray(state)


def _random_quaternion(rng: np.random.Generator) -> Array:
    q = rng.standard_normal(4)
    return np.asarray(q / np.linalg.norm(q))


def _record(simulator: Simulator, state: Array, controls: Array, parameters: Parameters | None) -> Trajectory:
    states, status = simulator.rollout(state[None], controls[None], parameters)
    if status[0]:
        raise SoftgymError(f"the recording failed: {Status(status[0]).message}")
    return Trajectory.from_rollout(simulator, states[0], controls)
