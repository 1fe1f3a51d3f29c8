"""Checks by physics whether a recording's numbers are in the units that it states.

If one factor on all lengths, velocities or angles makes the simulator agree with the recording ten times better, that factor is
named. Where states are measured in part, the sizes of robot, motion and acceleration are compared with the simulator's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.parameters import Parameters
from softgym_envs.core.simulator import Array, Simulator
from softgym_envs.core.trajectory import Trajectory
from softgym_envs.core.units import UNITS

if TYPE_CHECKING:
    from .checks import Checked


TRAVEL = 200.0  # Recordings travel at most this many times as far as the simulator with the start parameters.
BENDING = 50.0  # Accelerations of free motions are at most this many times those of the simulator with the start parameters.
FEWEST_MOVING = 5  # Fewest samples for the fit of a parabola.
VELOCITIES = 9  # Starts that are tried: the guessed one, and some with random velocities of 1 m/s and 1 rad/s.
FACTORS = {
    1e-3: "mm (1000 x too large)",
    1e-2: "cm (100 x too large)",
    1e-1: "dm (10 x too large)",
    1e3: "km (1000 x too small)",
}
"""Factors that are tried on lengths, in words."""
UNLIKELY = {1e2: "hm (100 x too small)"}
"""Factors that are tried after all others: centimetres called metres in velocities only look the same."""
SIZE_SLACK, MOTION_SLACK = 0.75, 1.0
"""Decades by which a robot's size and motion may differ from the simulator's: such numbers may be right."""
GOOD = 0.1  # Prediction error over change below which no other unit is tried.


def check_dimensions(columns: Mapping[str, str], recording: Trajectory) -> None:
    """Compare the units of a recording's columns and controls with those of the robot's.

    Args:
        columns: Names -> SI units; see `System.recorded_columns`.
        recording: A recording; columns under other names may be in any unit, and "-" is a number in SI.

    Raises:
        DataError: A column is of another dimension, as an angle where the robot has a length.
    """
    controls = [f"control:{name}" for name in recording.control_names]
    units = (*recording.units, *recording.control_units)
    for name, unit in zip((*recording.names, *controls), units, strict=True):
        expected = columns.get(name, unit)
        if unit not in ("-", "SI", expected) and expected != "SI":
            raise DataError(f"wrong units: {name} is in {_alike(unit)}, expected {_alike(expected)}")


def _alike(si: str) -> str:
    """The units of this dimension, SI first, in words."""
    return " or ".join(dict.fromkeys([si, *(name for name, (unit, _) in UNITS.items() if unit == si)]))


def check_units(problem: Checked) -> None:
    """Raise if a unit looks wrong both with the start parameters and with the robot's defaults, as either may be far off.

    Raises:
        DataError: A unit is wrong.
    """
    messages = []
    for parameter_values in (problem.initial_parameters, problem.simulator.default_parameters):
        try:
            message = _message(problem, parameter_values)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):  # a simulator of one's own, far from what it is made for
            return
        if not message:
            return
        messages.append(message)
    raise DataError(messages[-1])


def _message(problem: Checked, parameter_values: Parameters) -> str:
    """Diagnostic under these parameters, or ""."""
    message = _by_prediction(problem, parameter_values) if problem.full_state else _by_rest(problem)
    if not problem.free_motion:
        return message or _by_motion(problem, parameter_values)
    return message or ("" if problem.full_state else _by_bending(problem, parameter_values))


def quantities(simulator: Simulator, names: tuple[str, ...], units: tuple[str, ...]) -> NDArray[np.str_]:
    """Unit of every column; where an older recording says only "SI", that of the state entry of this name."""
    entries = dict(zip(simulator.state_names, simulator.state_units, strict=True))
    return np.array([entries.get(name, unit) if unit == "SI" else unit for name, unit in zip(names, units, strict=True)])


def kinds(problem: Checked) -> NDArray[np.str_]:
    """Units of the fitted columns; see `quantities`."""
    return quantities(problem.simulator, problem.column_names, problem.split.train[0].select(problem.column_names).units)


def _by_prediction(problem: Checked, parameter_values: Parameters) -> str:
    """Message, or "": compare the recording with short rollouts of the simulator, as recorded and under every factor.

    One step shows wrong velocities, ten steps show wrong forces.
    """
    trajectory = problem.split.train[0]
    kind = kinds(problem)
    for horizon in (1, min(10, trajectory.num_steps // 2)):
        base = _prediction_error(problem, parameter_values, np.ones(len(kind)), horizon)
        if base <= GOOD:
            continue
        errors = {words: _prediction_error(problem, parameter_values, factors, horizon) for words, factors in hypotheses(kind)}
        best = min(errors.values())
        words = next(w for w, error in errors.items() if error <= 3.0 * best)  # the likelier comes first: mm before km
        if errors[words] < 0.1 * base:
            gain = (
                f"agrees {base / errors[words]:.0f} times better" if np.isfinite(base) else "follows; as recorded it diverges"
            )
            return f"wrong units: the {words}; with that factor the simulator {gain}. Convert to SI"
        if not np.isfinite(base):
            where = "within a few steps of every recorded state"
            return f"the simulator diverges {where}: wrong units, wrong columns, another robot, or start parameters far off"
    return ""


def hypotheses(kind: NDArray[np.str_]) -> list[tuple[str, Array]]:
    """Assumed errors of units, in words, and the factor per column that corrects each."""
    groups = {
        "lengths and velocities": ("m", "m/s"),
        "lengths": ("m",),
        "velocities": ("m/s",),
        "other values": tuple(sorted(set(kind.tolist()) - {"m", "m/s", "rad", "rad/s"})),
    }
    found = [
        (f"{what} look as if they were given in {meaning}", np.where(np.isin(kind, chosen), factor, 1.0))
        for tried in (FACTORS, UNLIKELY)
        for what, chosen in groups.items()
        for factor, meaning in tried.items()
        if chosen and set(chosen) <= set(kind)
    ]
    for what, chosen in {"angles and rates": ("rad", "rad/s"), "angles": ("rad",), "angular rates": ("rad/s",)}.items():
        turned = np.isin(kind, chosen)
        if set(chosen) <= set(kind):
            found.append((f"{what} look as if they were given in degrees", np.where(turned, np.pi / 180, 1.0)))
            found.append((f"{what} look as if radians were called degrees", np.where(turned, 180 / np.pi, 1.0)))
    return found


def looks_like(unit: str, ratio: float, slack: float) -> str:
    """Units, nearest first, for columns whose numbers are `ratio` times too large, as half a sentence.

    >>> looks_like("m", 950.0, 0.75)
    ', as if they were given in mm (1000 x too large)'
    >>> looks_like("m", 300.0, 0.75)
    ', as if they were given in cm (100 x too large) or mm (1000 x too large)'
    """
    tried = {"m": FACTORS, "rad": {np.pi / 180: "degrees"}}.get(unit, {})
    distances = {meaning: abs(np.log10(ratio * factor)) for factor, meaning in tried.items()}
    near = [meaning for meaning in sorted(distances, key=distances.__getitem__) if distances[meaning] <= slack]
    return f", as if they were given in {' or '.join(near)}" if near else ""


def _prediction_error(problem: Checked, parameter_values: Parameters, factors: Array, horizon: int) -> float:
    """Median over columns of `prediction_errors` with a factor per column."""
    ratio = prediction_errors(problem, parameter_values, horizon, np.diag(factors), np.eye(problem.simulator.nu))
    return float(np.median(ratio)) if len(ratio) else float("inf")


def prediction_errors(problem: Checked, parameter_values: Parameters, horizon: int, columns: Array, controls: Array) -> Array:
    """RMS prediction error over RMS change within `horizon` steps, from at most 40 recorded states, per moving column.

    Args:
        problem: Recordings of whole states; the first one is used.
        parameter_values: Parameters of the simulator.
        horizon: Rows.
        columns: (nx, nx) matrix that reads states from the recorded columns.
        controls: (nu, nu) matrix that reads controls from the recorded ones.

    Returns:
        (columns that move,); empty where most rollouts fail.
    """
    trajectory = problem.split.train[0]
    values, given = problem.values(trajectory) @ columns.T, problem.controls(trajectory) @ controls.T
    first = np.unique(np.linspace(0, trajectory.num_steps - horizon, 40).astype(int))
    windows = np.stack([given[k : k + horizon] for k in first])
    with np.errstate(all="ignore"):
        try:
            states, status = problem.simulator.rollout(values[first], windows, parameter_values, substeps=trajectory.substeps)
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):  # a simulator of one's own, far from what it is made for
            return np.empty(0)
        good = (status == 0) & np.isfinite(states[:, -1]).all(axis=1)
        if good.mean() < 0.5:
            return np.empty(0)
        error = problem.simulator.difference(states[good, -1], values[first + horizon][good])
        change = problem.simulator.difference(values[first + horizon][good], values[first][good])
        error, change = np.sqrt(np.mean(error**2, axis=0)), np.sqrt(np.mean(change**2, axis=0))
    moving = change > 1e-9 * change.max(initial=0.0)
    return np.asarray(error[moving] / change[moving])


def _by_rest(problem: Checked) -> str:
    """Message, or "": compare the spread of the measured columns along one axis with that of the robot at rest.

    Along one axis, since robots travel; over points, since one point has no spread.
    """
    trajectory = problem.split.train[0]
    kind = kinds(problem)
    axis = np.array([name.split(".")[-1] for name in problem.column_names])
    rest = problem.observe(problem.simulator.initial_state(1))[0]
    values = problem.values(trajectory)
    for chosen, along in sorted(set(zip(kind.tolist(), axis.tolist(), strict=True))):
        here = (kind == chosen) & (axis == along)
        if chosen in ("m/s", "rad/s") or here.sum() < 2:
            continue
        model, data = np.ptp(rest[here]), float(np.nanmedian(np.ptp(values[:, here], axis=1)))
        if model > 1e-9 and not 1 / 30 < data / model < 30:
            ratio = f"({data / model:.3g} times){looks_like(chosen, data / model, SIZE_SLACK)}"
            return f"wrong units: the columns in {chosen} spread over {data:.3g}, the robot over {model:.3g} {ratio}; use SI"
    return ""


def _by_bending(problem: Checked, parameter_values: Parameters) -> str:
    """Message, or "": compare the accelerations of measured columns with the simulator's, from many velocities.

    For free motions, whose initial velocities are unknown: forces bound accelerations, however fast a thing is thrown.
    """
    trajectory, simulator = problem.split.train[0], problem.simulator
    rates = np.isin(simulator.state_units, ["m/s", "rad/s"])
    starts = np.repeat(problem.initial_guess(trajectory)[None], VELOCITIES, axis=0)
    starts[1:, rates] += np.random.default_rng(0).standard_normal((VELOCITIES - 1, int(rates.sum())))
    controls = np.repeat(problem.controls(trajectory)[None], VELOCITIES, axis=0)
    with np.errstate(all="ignore"):
        states, status = simulator.rollout(starts, controls, parameter_values, substeps=trajectory.substeps)
    if (status != 0).all():
        return ""
    seen = _acceleration(trajectory.times, problem.values(trajectory)[None])
    model = _acceleration(trajectory.times, problem.observe(states[status == 0]))
    kind = kinds(problem)
    for chosen in sorted(set(kind) - {"m/s", "rad/s"}):
        data, size = (float(a[kind == chosen].max(initial=0.0)) for a in (seen, model))
        if size > 1e-9 and data > BENDING * size:
            return (
                f"wrong units: the columns in {chosen} accelerate by {data:.3g} {chosen}/s^2, the simulator's by at most "
                f"{size:.3g} under the same controls{looks_like(chosen, data / size, MOTION_SLACK)}; use SI"
            )
    return ""


def _acceleration(times: Array, values: Array) -> Array:
    """Largest second derivative of parabolas through quarters of every column, (B, T+1, ny) -> (ny,); gaps are bridged."""
    largest = np.zeros(values.shape[-1])
    for part in np.array_split(np.arange(len(times)), 4 if len(times) >= 40 else 1):
        for row in values[:, part]:
            for column, samples in enumerate(row.T):
                good = np.isfinite(samples)
                if good.sum() >= FEWEST_MOVING:
                    curve = 2.0 * np.polyfit(times[part][good] - times[part][0], samples[good], 2)[0]
                    largest[column] = max(largest[column], abs(curve))
    return largest


def _by_motion(problem: Checked, parameter_values: Parameters) -> str:
    """Message, or "": compare how far measured columns and the simulator's travel under the same controls."""
    trajectory = problem.split.train[0]
    start = problem.simulator.initial_state(1) if problem.full_state else problem.initial_guess(trajectory)[None]
    controls = problem.controls(trajectory)[None]
    states, status = problem.simulator.rollout(start, controls, parameter_values, substeps=trajectory.substeps)
    if status[0] != 0:
        return ""  # parameters far off may diverge; the method will say so
    kind = kinds(problem)
    model, values = problem.observe(states[0]), problem.values(trajectory)
    data = np.nanmax(values, axis=0) - np.nanmin(values, axis=0)
    for chosen in sorted(set(kind)):
        size, seen = float(np.ptp(model[:, kind == chosen], axis=0).max()), float(data[kind == chosen].max())
        if size > 1e-9 and seen > TRAVEL * size:
            travel = f"travel over {seen:.3g}, the simulator's over {size:.3g} under the same controls"
            travel += looks_like(chosen, seen / size, MOTION_SLACK)
            return f"wrong units: the columns in {chosen} {travel}; use SI, or say `free_motion=True` if it was thrown"
    return ""
