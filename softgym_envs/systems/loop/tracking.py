r"""Reading of a laboratory's recording of the arm, and how a model of arm and loop follows it.

An arm without a controller falls away from its recording. So the model is fitted with springs K that pull the arm to `start`,
and with torques that make them pull to the recorded angles b instead, as eq. IV-C of [Caldwell2014] does:

.. math:: u_k = T_k + K \bigl(\tfrac14 (b_{k-1} + 2 b_k + b_{k+1}) - b_{start}\bigr)

Springs act at the midpoints of steps, hence these weights: where the model moves as recorded, nothing is added to T. The errors
that are then fitted are the innovations of `mechanics.innovations`, which do not depend on K. Legend: T control steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline

from ...core.errors import DataError
from ...core.simulator import Array
from ...core.trajectory import UNKNOWN, Trajectory
from ...mechanics.closed_loop import Following
from ...mechanics.innovations import Innovations, innovations, smoothed
from .labels import check_labels
from .manipulation import STIFF, STILL
from .model import ARM, LoopModel
from .parameters import DELAY, GAIN

MAX_LOOP_STEP = 0.01
"""[s] Baxter's 100 Hz, and the longest step at which the loop is stable."""
FOLLOW = tuple(0.5 * value for value in STIFF)
"""[N m/rad] Springs K."""
UNMOVED = 1.5
"""An arm counts as unmoved if its angles vary by no more than this many standard deviations of the noise."""
HELD_COMMAND_MARGIN = 3.0
"""[rad] Larger than any angle from the start."""
RESOLUTION = {"angle": 2e-4, "torque": 0.02}
"""[rad], [N m] Least noise of the sensors, even for a recording without noise."""
TORQUES, HELD = "torques", "held"
"""Key of a recording's metadata, and its value for torques that act from row to row; else they are sampled at rows."""
MORE = 0.25
"""Relative increase of the friction speed that tests the effect of creep; a decrease is harder for steps of 10 ms."""
SHORTEST_REST = 0.1
"""[s]"""


def held(simulator: Any) -> Any:
    """The simulator with springs K on the arm, added to its own, at the longest step up to `MAX_LOOP_STEP`."""
    model: LoopModel = simulator.model
    stiffness = tuple(own + more for own, more in zip(model.servo_stiffness, FOLLOW, strict=True))
    dt = simulator.dt * max(int(MAX_LOOP_STEP / simulator.dt * (1 + 1e-6)), 1)
    return replace(simulator, dt=dt, model=replace(model, servo_stiffness=stiffness, command_margin=HELD_COMMAND_MARGIN))


def released(simulator: Any) -> Any:
    """The simulator without the springs of `held`."""
    model: LoopModel = simulator.model
    stiffness = tuple(max(both - more, 0.0) for both, more in zip(model.servo_stiffness, FOLLOW, strict=True))
    return replace(simulator, model=replace(model, servo_stiffness=stiffness))


def creeping(simulator: Any, factor: float = 1.0 + MORE) -> Any:
    """Arm and loop whose dry friction sets in over other speeds (`tree.Joint.friction_speed`)."""
    model: LoopModel = simulator.model
    joints = (replace(joint, friction_speed=factor * joint.friction_speed) for joint in model.arm.joints)
    return replace(simulator, model=replace(model, own_arm=replace(model.arm, joints=tuple(joints))))


# --- Reading ----------------------------------------------------------------------------------------------------------


def named(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """The recording with torques as controls and angles as columns, recognised by joint names and units in the columns' names.

    `left_s0 [deg]` is the angle of s0, `effort.left_s0 [N m]` its torque; a joint with our name or two matches is left alone.
    Torques that a file calls controls act until the next row, as all controls; measured ones are sampled at their row.
    """
    del simulator
    trajectory = trajectory.on_grid
    names, values = list(trajectory.names), trajectory.values
    for name in ARM:
        found = _matching(trajectory, name, "rad")
        if name not in names and len(found) == 1:
            names[found[0]] = name
    if trajectory.control_names:
        said = trajectory.metadata.get(TORQUES, HELD if "source" in trajectory.metadata else "sampled")
        return replace(trajectory, names=tuple(names), metadata={**trajectory.metadata, TORQUES: said})
    torques = [_matching(trajectory, name, "N m") for name in ARM]
    if any(len(found) != 1 for found in torques):
        return replace(trajectory, names=tuple(names))
    chosen = [found[0] for found in torques]
    kept = [i for i in range(len(names)) if i not in chosen]
    if np.isnan(values[:-1, chosen]).any():
        row, column = np.argwhere(np.isnan(values[:-1, chosen]))[0]
        raise DataError(f"the torque of {ARM[column]} is missing at {trajectory.times[row]:g} s")
    return replace(
        trajectory, values=values[:, kept], names=tuple(names[i] for i in kept), units=tuple(trajectory.units[i] for i in kept),
        controls=values[:-1, chosen], control_names=ARM, control_units=("N m",) * len(ARM),
    )  # fmt: skip


def _matching(trajectory: Trajectory, joint: str, unit: str) -> list[int]:
    """Indices of columns in this unit whose name contains the joint's as a word."""
    words = [re.split(r"[^a-z0-9]+", name.lower()) for name in trajectory.names]
    return [i for i, own in enumerate(trajectory.units) if own == unit and joint in words[i]]


def thinned(trajectory: Trajectory, count: int) -> Trajectory:
    """Keep every `count`-th row, with means of values and torques over as long a time about it; torques are then sampled."""
    if count == 1:
        return trajectory
    rows = np.arange(0, len(trajectory.times), count)
    values = np.array([_middle(trajectory.values, int(row), (count - 1) // 2) for row in rows])
    reach = count // 2  # a torque acts until the next row: `count` of them, half before and half after
    controls = np.array([trajectory.controls[max(row - reach, 0) : row - reach + count].mean(axis=0) for row in rows[:-1]])
    metadata = {**trajectory.metadata, TORQUES: "sampled"}
    return replace(
        trajectory,
        times=trajectory.times[rows],
        values=values,
        controls=controls,
        before=UNKNOWN,
        substeps=1,
        metadata=metadata,
    )


def _middle(values: Array, row: int, reach: int) -> Array:
    """Symmetric mean about a row, as far as the ends allow."""
    reach = min(reach, row, len(values) - 1 - row)
    return np.asarray(values[row - reach : row + reach + 1].mean(axis=0))


def pulled(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """Angles at the simulator's step, and torques that make the springs of `held` pull to them.

    Raises:
        DataError: An angle or torque is missing, angles cannot be the arm's or never change, rows are too far apart, or labels
            are wrong (`labels.check_labels`).
    """
    if trajectory.period > simulator.dt * (1 + 1e-3):
        raise DataError(
            f"rows are {trajectory.period:g} s apart; arm and loop need {MAX_LOOP_STEP:g} s or less (100 Hz or more)"
        )
    missing = [name for name in ARM if name not in trajectory.names or name not in trajectory.control_names]
    if missing:
        what = f"columns {missing[0]} [rad] and control:{missing[0]} [N m]"
        raise DataError(f"angle or torque of {', '.join(missing)} is not recorded; expected {what} (or deg, N mm)")
    found = thinned(trajectory.select(ARM), max(round(simulator.dt / trajectory.period), 1)).for_timestep(simulator.dt)
    if np.isnan(found.values).any():
        row, column = np.argwhere(np.isnan(found.values))[0]
        raise DataError(
            f"the angle of {ARM[column]} is missing near {found.times[row]:g} s; no gaps are allowed here: cut the recording"
        )
    _check_angles(found.values)
    order = [found.control_names.index(name) for name in ARM]
    if not simulator.model.command_limit:
        rest = max(round(SHORTEST_REST / found.period), 1)
        check_labels(simulator.model, found.values[:rest].mean(axis=0), found.controls[:rest, order].mean(axis=0))
    springs = np.array(FOLLOW) * (_between(found.values) - np.array(simulator.model.start))
    return found.with_controls(found.controls[:, order] + springs, ARM, ("N m",) * len(ARM))


def _check_angles(angles: Array) -> None:
    """Refuse angles (T + 1, 7) [rad] that are impossible for a joint of an arm, and those of an arm that does not move."""
    largest = np.abs(angles).max(axis=0)
    if largest.max() > 2.0 * np.pi:
        name = ARM[int(largest.argmax())]
        raise DataError(f"the angle of {name} reaches {largest.max():.3g} rad, more than a turn: is it in degrees, not rad?")
    noise = np.diff(angles, 3, axis=0).std(axis=0) / np.sqrt(20.0)  # of white noise: 1 + 9 + 9 + 1 times its variance
    if (angles.std(axis=0) <= UNMOVED * noise).all():
        raise DataError("the arm never moves: its angles show noise alone, which tells nothing; record a manipulation")


def _between(angles: Array) -> Array:
    """Weighted means of angles (T + 1, 7) that springs at midpoints act on, (T, 7)."""
    before = np.concatenate([angles[:1], angles[:-2]])
    return np.asarray(0.25 * (before + 2 * angles[:-1] + angles[1:]))


# --- Following --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoopTracker:
    """See `sysid.fitting.innovations.Tracker`; channels are the arm's angles."""

    simulator: Any
    """Simulator made by `held`."""
    trajectory: Trajectory
    """Recording made by `pulled`."""

    @cached_property
    def sensed(self) -> Trajectory:
        """Angles and torques."""
        springs = np.array(FOLLOW) * (_between(self.trajectory.values) - np.array(self.simulator.model.start))
        return self.trajectory.with_controls(self.trajectory.controls - springs, ARM, ("N m",) * len(ARM))

    @cached_property
    def following(self) -> Following:
        """The mechanism without springs follows angles by feedback."""
        free, sensed = released(self.simulator), self.sensed
        still = resting_rows(sensed)
        substeps, gains = round(sensed.period / free.dt), np.diag(FOLLOW)[None]
        return Following(free.mechanism, sensed.controls, sensed.values, gains, still=still, substeps=substeps)

    def anchored(self, parameter_values: Array, noise: Mapping[str, float]) -> LoopErrors:
        """See `sysid.fitting.innovations.Tracker`; noise below `RESOLUTION` counts as that."""
        force = np.array([max(noise[f"control:{name}"], RESOLUTION["torque"]) for name in ARM])
        angle = np.array([max(noise[name], RESOLUTION["angle"]) for name in ARM])
        model = released(self.simulator).model
        calm = replace(self.following, forces=smoothed(self.sensed.controls, force), angles=smoothed(self.sensed.values, angle))
        tree = model.tree_constants(parameter_values[None])[0]
        early = 0.5 * self.trajectory.period if self.trajectory.metadata.get(TORQUES) == HELD else 0.0
        late = 0.5 * (calm.period - calm.mechanism.dt)  # the middle of a row's impulses, one at the beginning of every step
        calm = undelayed(calm, late - early)  # they stand for torques about them
        acting = acted(calm, parameter_values[DELAY], parameter_values[GAIN])
        found = innovations(acting, self.sensed.values, tree, force=force / parameter_values[GAIN], angle=angle)
        return LoopErrors(model, calm, found)


def acted(following: Following, delay: float, gain: float) -> Following:
    """Forces as they acted: the recorded ones are `gain` times as much, `delay` [s] later."""
    found = undelayed(following, delay)
    return replace(found, forces=found.forces / gain)


def undelayed(following: Following, delay: float) -> Following:
    """Forces `delay` [s] later, on a spline through the recorded ones; the first and last hold beyond the ends."""
    times = following.period * np.arange(len(following.forces))
    later = np.clip(times + delay, times[0], times[-1])
    return replace(following, forces=CubicSpline(times, following.forces)(later))


def _by_delay(following: Following, delay: float) -> Array:
    """Derivatives (T, 7) of the forces of `undelayed` by the delay; at a kink the mean of both sides."""
    times = following.period * np.arange(len(following.forces))
    later, ends = times + delay, times[[0, -1]]
    inside = np.heaviside(later - ends[0], 0.5) * np.heaviside(ends[1] - later, 0.5)
    return np.asarray(CubicSpline(times, following.forces)(np.clip(later, *ends), 1) * inside[:, None])


@dataclass(frozen=True, eq=False)
class LoopErrors:
    """See `sysid.fitting.innovations.Whitened`: `Innovations` of `LoopParameters`, two of which are of the torque sensors."""

    model: LoopModel
    recorded: Following
    """Smoothed recording, with forces at the times of the record."""
    innovations: Innovations
    _latest: dict[tuple[float, float], Innovations] = field(default_factory=dict, init=False, repr=False)

    def errors(self, parameter_values: Array) -> tuple[Array, NDArray[np.bool_]]:
        """See `sysid.fitting.innovations.Whitened`."""
        tree, sensors = self.model.tree_constants(parameter_values), parameter_values[:, [DELAY, GAIN]]
        if (sensors == sensors[:1]).all():
            return self._at(*sensors[0]).errors(tree)
        found = [self._at(*sensor).errors(row[None]) for row, sensor in zip(tree, sensors, strict=True)]
        return np.concatenate([errors for errors, _ in found]), np.concatenate([good for _, good in found])

    def slopes(self, parameter_values: Array, directions: Array) -> Array:
        """See `sysid.fitting.innovations.Whitened`."""
        tree, ways = (
            self.model.tree_constants(parameter_values[None])[0],
            self.model.tree_slopes(parameter_values[None])[0] @ directions,
        )
        delay, gain = parameter_values[[DELAY, GAIN]]
        latest = self._at(delay, gain)
        pushes = _by_delay(self.recorded, delay)[..., None] * directions[DELAY] / gain
        pushes = pushes - latest.following.forces[..., None] * directions[GAIN] / gain
        return latest.slopes(tree, ways, pushes)

    def _at(self, delay: float, gain: float) -> Innovations:
        """Innovations at a delay and gain; caches the latest one with its motion."""
        if (delay, gain) not in self._latest:
            self._latest.clear()
            self._latest[delay, gain] = replace(self.innovations, following=acted(self.recorded, delay, gain))
        return self._latest[delay, gain]


def resting_rows(trajectory: Trajectory) -> int:
    """Number of initial rows at which the arm rests, at most `STILL`.

    Raises:
        DataError: The arm moves within `SHORTEST_REST`.
    """
    angles = trajectory.select(ARM).values
    count, least = (max(round(time / trajectory.period), 1) for time in (STILL, SHORTEST_REST))
    noise = np.sqrt(np.mean(np.diff(angles, n=3, axis=0) ** 2, axis=0) / 20.0) + RESOLUTION["angle"]
    while count > least:
        half = count // 2
        drift = np.abs(angles[half:count].mean(axis=0) - angles[:half].mean(axis=0))
        if (drift < 5.0 * noise / np.sqrt(half)).all():
            return count
        count -= max(count // 5, 1)
    raise DataError(f"the arm moves from the first row; record {STILL:g} s at rest before it moves")


def tracker(simulator: Any, trajectory: Trajectory) -> LoopTracker:
    """See `sysid.fitting.innovations.InnovationOptions.tracker`."""
    return LoopTracker(simulator, trajectory)
