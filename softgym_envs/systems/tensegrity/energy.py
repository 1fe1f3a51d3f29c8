"""Energy of a tensegrity robot, and drops and throws without motors, in which it must not grow.

Legend: B batch, T times, R rods, C cables, M drops and throws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import lie
from ...core.simulator import Array
from .experiments import thrown
from .model import TensegrityModel

MOTIONS, DURATION, WINDOW = 48, 3.0, 0.5
"""Number of drops and throws at steps of 1 ms (fewer, `MIN_MOTIONS` at least, at shorter ones); their length, and that of the
windows of which the largest energy counts [s]."""
MIN_MOTIONS = 8
INTERVAL = 0.01
"""Time between the states whose energy is taken [s]."""
HIGHEST, SPEED = 0.3, (0.5, 2.0)
"""Highest drop over the longest rod's length, and speeds of throws [m/s]."""


def mechanical_energy(model: TensegrityModel, states: Array, parameters: Any) -> tuple[Array, Array]:
    """Kinetic energy, and potential energy of weight and stretched cables, both (B, T) [J]; motors change rest lengths.

    Args:
        model: The robot.
        states: (B, T, nx).
        parameters: `TensegrityParameters`, one set or B.
    """

    def value(name: str) -> Any:
        return np.asarray(getattr(parameters, name), dtype=np.float64).reshape(-1, 1)

    position, _, velocity, spin, motors = model.split(states)
    across, along = (3 * model.rod_radius**2 + model.rod_lengths**2) / 12, 0.5 * model.rod_radius**2
    turning = across * (spin[..., :2] ** 2).sum(axis=-1) + along * spin[..., 2] ** 2
    kinetic = 0.5 * value("rod_mass") * ((velocity**2).sum(axis=-1) + turning).sum(axis=-1)
    lengths, elastic = model.cable_lengths(states), np.zeros(states.shape[:2])
    stiffness_ratio, rest_ratio = (ratio or (1.0,) * model.num_cables for ratio in (model.stiffness_ratio, model.rest_ratio))
    own = hasattr(parameters, "stiffness_factor0")
    for cable in range(model.num_cables):
        stiffness = value("cable_stiffness") * stiffness_ratio[cable] * (value(f"stiffness_factor{cable}") if own else 1.0)
        rest = value("rest_length") * rest_ratio[cable] * (value(f"rest_factor{cable}") if own else 1.0)
        if cable in model.actuated:
            motor = model.actuated.index(cable)
            rest = rest + value("motor_gain") * (value(f"gain_factor{motor}") if own else 1.0) * motors[..., motor]
        elastic += 0.5 * stiffness * np.maximum(lengths[..., cable] - rest, 0.0) ** 2
    weight = value("rod_mass") * value("gravity") * position[..., 2].sum(axis=-1)
    return np.asarray(kinetic), np.asarray(weight + elastic)


def energy_gain(kinetic: Array, potential: Array, window: int) -> Array:
    """Largest rise of the energy over what it was above the lowest potential energy, of every motion, (B,).

    Energy is the largest of every `window` rows: semi-implicit Euler lets that of a vibration swing about its mean.
    """
    total = kinetic + potential
    count = (total.shape[1] - 1) // window
    largest = np.stack([total[:, k * window : (k + 1) * window + 1].max(axis=1) for k in range(count)], axis=1)
    rise = (largest - np.minimum.accumulate(largest, axis=1)).max(axis=1)
    return np.asarray(rise / np.maximum(total[:, 0] - potential.min(axis=1), 1e-9))


def released(model: TensegrityModel, rng: np.random.Generator, count: int, scale: float = 1.0) -> Array:
    """States (count, nx) of drops and throws in turn, turned at random, motors at zero."""
    states = []
    for motion in range(count):
        if motion % 2:
            states.append(thrown(model, rng, SPEED))
        else:
            height = rng.uniform(0.01, HIGHEST * float(model.rod_lengths.max()))
            turn = rng.standard_normal(4)
            rotated = model.move(model.rest_state(), rotation=lie.log(turn / np.linalg.norm(turn)))
            states.append(model.place_on_ground(rotated, gap=height, scale=scale))
    return np.array(states)


def passive_gain(simulator: Any, parameters: Any, start: Array | None = None) -> float:
    """Largest `energy_gain` of drops and throws with motors at rest; infinite if one of them fails.

    Args:
        simulator: `TensegritySimulator`.
        parameters: One set.
        start: States (M, nx) in which the robot is let go; None: those of `released`.
    """
    model = simulator.model
    substeps = max(round(INTERVAL / simulator.dt), 1)
    rows = round(DURATION / (substeps * simulator.dt))
    if start is None:
        count = int(np.clip(MOTIONS * simulator.dt / 1e-3, MIN_MOTIONS, MOTIONS))
        start = released(model, np.random.default_rng(0), count, float(parameters.terrain_scale))
    states, status = simulator.rollout(start, np.zeros((len(start), rows, model.nu)), parameters, substeps=substeps)
    if status.any():
        return float("inf")
    kinetic, potential = mechanical_energy(model, states, parameters)
    return float(energy_gain(kinetic, potential, round(WINDOW / (substeps * simulator.dt))).max())
