"""What `scripts/identify.py` needs of this room: the simulator, the constants to fit, and columns that are no state entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core import lie
from ..core.errors import OptionError
from ..core.trajectory import Trajectory
from .contact import MODES
from .dynamics import TensegritySimulator
from .model import TensegrityModel, prism, superball
from .parameters import CONTACT

Array = NDArray[np.float64]

ROBOTS = {"superball": superball, "prism": prism}
BODY = ("cable_stiffness", "cable_damping", "motor_speed", "motor_gain")
"""Constants that a recording in the air shows (with the rods' mass known)."""
FIRST = 6
"""Rows at the start of a recording that give the guess of positions and velocities."""


@dataclass(frozen=True)
class Setup:
    """A `sysid.data.problem.IdentificationSetup`."""

    simulator: TensegritySimulator
    free: tuple[str, ...]

    def measurement(self, names: tuple[str, ...]) -> tuple[Callable[[Array], Array], tuple[str, ...]] | None:
        """Columns "com.x" (of the centre of mass) and "node3.x" or "point3.x" (of node 3) [m]; None if there are none."""
        model, picks = self.simulator.model, self._picks(names)
        if not picks:
            return None
        nodes, axes = (np.array([pick[i] for pick in picks]) for i in (1, 2))

        def measure(states: Array) -> Array:
            points = np.concatenate([model.node_positions(states), model.center_of_mass(states)[..., None, :]], axis=-2)
            return np.asarray(points[..., nodes, axes])

        return measure, tuple(pick[0] for pick in picks)

    def first_state(self, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
        """Recording -> initial state (nx,) from the first rows of its nodes; None if fewer than three are tracked.

        Nodes that are not tracked are where the rest shape, laid onto the tracked ones, has them. Motors are at zero.
        """
        model = self.simulator.model
        picks = [pick for pick in self._picks(names) if pick[1] >= 0]
        if len({node for _, node, _ in picks}) < 3:
            return None

        def guess(trajectory: Trajectory) -> Array:
            position = np.full((len(model.nodes), 3), np.nan)
            velocity = position.copy()
            for name, node, axis in picks:
                column = trajectory.select((name,)).values[: FIRST + 1, 0]
                position[node, axis], velocity[node, axis] = _line(trajectory.times[: FIRST + 1], column)
            return _state_of(model, position, velocity)

        return guess

    def _picks(self, names: tuple[str, ...]) -> list[tuple[str, int, int]]:
        """Name, node (-1 for the centre of mass) and axis of every column that is one.

        Raises:
            OptionError: No such node.
        """
        model, picks = self.simulator.model, []
        for name in names:
            match = re.fullmatch(r"(com|(?:node|point)(\d+))\.([xyz])", name)
            if match:
                node = -1 if match[2] is None else int(match[2])
                if node >= 2 * model.num_rods:
                    raise OptionError(f"column {name!r}: nodes are 0 ... {2 * model.num_rods - 1}")
                picks.append((name, node, "xyz".index(match[3])))
        return picks


def _line(times: Array, values: Array) -> tuple[float, float]:
    """Value and slope at the first time, of the least-squares line through the values that are finite; NaN without any."""
    seen = np.isfinite(values)
    if not seen.any():
        return float("nan"), float("nan")
    if seen.sum() == 1:
        return float(values[seen][0]), 0.0
    slope, value = np.polyfit(times[seen] - times[0], values[seen], 1)
    return float(value), float(slope)


def _state_of(model: TensegrityModel, position: Array, velocity: Array) -> Array:
    """State (nx,) with tracked nodes (N, 3) where they were measured, NaN where not: v = mean, w = d x d' / |d|^2 per rod."""
    tracked = np.asarray(np.isfinite(position).all(axis=1))
    if tracked.sum() < 3:
        return np.asarray(model.state_from_nodes(model.nodes))
    nodes = _laid_onto(model.nodes, position, tracked)
    moving = np.where(tracked[:, None], velocity, velocity[tracked].mean(axis=0))
    state = model.state_from_nodes(nodes)
    _, turn, speed, rate, _ = model.split(state)
    for rod, (a, b, va, vb) in enumerate(zip(nodes[::2], nodes[1::2], moving[::2], moving[1::2], strict=True)):
        along = b - a
        speed[rod] = 0.5 * (va + vb)
        rate[rod] = lie.rotate(lie.conjugate(turn[rod]), np.cross(along, vb - va) / (along @ along))
    return np.asarray(state)


def _laid_onto(rest: Array, position: Array, tracked: NDArray[np.bool_]) -> Array:
    """`position` (N, 3), completed by the rest shape turned and shifted onto it (Kabsch 1976: SVD of the covariance)."""
    from_mean, to_mean = rest[tracked].mean(axis=0), position[tracked].mean(axis=0)
    u, _, vt = np.linalg.svd((rest[tracked] - from_mean).T @ (position[tracked] - to_mean))
    turn = vt.T @ np.diag([1.0, 1.0, np.sign(np.linalg.det(vt.T @ u.T))]) @ u.T
    return np.where(tracked[:, None], position, (rest - from_mean) @ turn.T + to_mean)


def setup(variant: str = "") -> Setup:
    """`variant` is words joined by commas: a robot (superball, prism), a contact mode (paper, stick, patch), or "air".

    "air" holds rod 0 fixed and frees the constants of cables and motors; else those of the contact mode are freed too.

    Raises:
        OptionError: An unknown word.
    """
    robot, contact, held = "superball", "patch", False
    for word in filter(None, variant.split(",")):
        if word in ROBOTS:
            robot = word
        elif word in MODES:
            contact = word
        elif word == "air":
            held = True
        else:
            raise OptionError(f"variant has {word!r}; allowed are air, {', '.join(ROBOTS)}, {', '.join(MODES)}")
    simulator = TensegritySimulator(ROBOTS[robot](), contact=contact, fixed_rod=0 if held else None)
    return Setup(simulator, BODY if held else CONTACT[contact])
