"""Recording and identification of a vine robot: grown under random pressures, or tracked as points along its body.

A laboratory's recording holds P points at equal distances along the robot, from its base (point 0) to its tip (point P - 1), as
[Jitosho2021] III takes them from video: point k is at k / (P - 1) of the length that the robot has at that time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.errors import DataError, OptionError, needed
from ...core.parameters import Parameters
from ...core.procedure import (
    Causes,
    Experiment,
    InitialState,
    Measurement,
    MethodData,
    Procedure,
    Program,
    Recorded,
    Stage,
    StageData,
    StageSimulator,
    Steps,
)
from ...core.simulator import Array
from ...core.trajectory import Trajectory
from .model import VineModel

TUBE = ("bending_stiffness", "bending_damping")
"""Parameters that an oscillation determines (with the linear density known)."""
BODY = (*TUBE, "steering_gain", "steering_lag")
"""Parameters that growth under random pressures determines."""
GUESS = {"bending_stiffness": 0.06, "bending_damping": 6e-4, "steering_gain": 1.5e-6, "steering_lag": 0.6}
"""Parameters before identification: a factor of about three off, as from a data sheet."""
AGREEMENT = {
    "theta*": 2e-3, "omega*": 0.05, "length": 1e-3, "growth": 5e-3, "left*": 50.0, "right*": 50.0, "obstacle*": 1e-3,
}  # fmt: skip
"""[rad, rad/s, m, m/s, Pa, m or rad] Tolerances of predicted state entries; see `FitProblem.noise`."""
COMMAND_TIME = 0.2
"""[s] Duration of a command."""
BY_EYE = 0.02
"""[rad] Standard deviation of a clamp that is set by eye."""
UNWEIGHED, DRAG = (0.0, 2e-3), (0.05, 0.05)
"""Prior mean and standard deviation of the mass at the tip [kg] and of drag [N s/m^2], not measured: where they were fixed,
tubes with 2 g at the tip were found four times too soft."""
VINE_MAX_STEPS = 1000
"""Physics steps of the longest recording: after 5 s at half speed the robot is 0.6 m long."""
MAX_FRAME_STEP = 2.5e-3
"""[s] Physics steps are whole parts of a frame, at most this long."""
LENGTH_OUTLIER = 6.0
"""Distance of a length from its smooth course beyond which it is an outlier, over the median or `LEAST`: four deviations."""
LEAST_OF_SPLINE = 5
"""Rows that a smoothing spline needs."""
STEADY = 0.01
"""[m] Change of length below which a robot does not grow."""
LONGER, ELSEWHERE = 1.03, 5e-3
"""Length of the points over the model's, and distance [m] of the first from its base, from which on they are remarked on."""
SHAPE_ROWS = 8
"""Rows at the start of a recording from which shape and rates are guessed."""
STRAY, LEAST = 10.0, 1e-3
"""Distance of a point from its line in the first rows beyond which it is an outlier, over the median, or `LEAST` [m]."""
MARKERS = 11
"""Points along the body that a camera tracks."""
SMOOTH = (4, 2, 2)
"""Coefficients of the polynomials p, q and r that smooth the headings of the first rows; see `_state_of`."""


def pressures(ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None) -> Trajectory:
    """Record growth at about half speed; new pressures every second command, one of every two muscles is empty."""
    controls, substeps = _commands(ground_truth, rng, steps)
    return _grown(ground_truth, controls, substeps, parameters)


def pressures_filmed(
    ground_truth: Any, rng: np.random.Generator, *, steps: int, parameters: Parameters | None = None
) -> Trajectory:
    """Record as `pressures`, one row per physics step: a camera's frames between rows of `COMMAND_TIME` would lie on lines."""
    controls, substeps = _commands(ground_truth, rng, steps)
    return _grown(ground_truth, np.repeat(controls, substeps, axis=0), 1, parameters)


def _commands(ground_truth: Any, rng: np.random.Generator, steps: int) -> tuple[Array, int]:
    """Commands (T, nu), and the physics steps that each lasts."""
    substeps = round(COMMAND_TIME / ground_truth.dt)
    length, model, limit = max(steps // substeps, 1), ground_truth.model, ground_truth.control_bounds[1]
    steer = np.repeat(rng.uniform(-1.0, 1.0, (-(-length // 2), model.num_sections)), 2, axis=0)[:length]
    controls = np.empty((length, ground_truth.nu))
    controls[:, 0] = limit[0] * rng.uniform(0.2, 0.9, length)
    controls[:, 1::2], controls[:, 2::2] = limit[1::2] * np.maximum(steer, 0), limit[2::2] * np.maximum(-steer, 0)
    return controls, substeps


def _grown(ground_truth: Any, controls: Array, substeps: int, parameters: Parameters | None) -> Trajectory:
    """Record a straight robot under commands (T, nu), each for `substeps` physics steps."""
    states, _ = ground_truth.rollout(ground_truth.model.straight_state()[None], controls[None], parameters, substeps=substeps)
    return Trajectory.from_rollout(ground_truth, states[0], controls, substeps=substeps)


def measurement(simulator: Any, names: tuple[str, ...]) -> Measurement | None:
    """Columns "point0.x", "point0.y", ... or else "marker0.x", "marker0.y", ... [m]; None if there are none."""
    model, picks = simulator.model, _picks(names)
    if not picks:
        return _markers_seen(model, names)
    share = np.array([k for _, k, _ in picks]) / max(k for _, k, _ in picks)
    axes = np.array([axis for *_, axis in picks])

    def measure(states: Array) -> Array:
        points = along_body(model, states, share)
        return np.asarray(np.take_along_axis(points, axes.reshape(*[1] * (points.ndim - 2), -1, 1), axis=-1)[..., 0])

    return Measurement(tuple(name for name, *_ in picks), measure)


def _markers_seen(model: VineModel, names: tuple[str, ...]) -> Measurement | None:
    """Columns of markers that the robot has; None if there are none."""
    picks = [pick for pick in _picks(names, "marker") if pick[1] < model.num_markers]
    places, axes = [k for _, k, _ in picks], [axis for *_, axis in picks]
    return (
        Measurement(tuple(pick[0] for pick in picks), lambda states: model.marker_places(states)[..., places, axes])
        if picks
        else None
    )


def markers(simulator: Any) -> tuple[str, ...]:
    """Columns of points at equal distances from base to tip."""
    return tuple(f"point{k}.{axis}" for k in range(MARKERS) for axis in "xy")


def first_state(simulator: Any, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
    """Recording -> initial state (nx,) from its first rows; None for few points.

    From points: headings and rates by least squares. From markers: a straight robot at rest, with markers fixed where seen.
    """
    model, picks = simulator.model, _picks(names)
    if model.num_markers and not picks:
        return lambda trajectory: _held_state(model, trajectory)
    if len({k for _, k, _ in picks}) < 4:
        return None

    def initial_guess(trajectory: Trajectory) -> Array:
        rows = min(SHAPE_ROWS, len(trajectory.times))
        _check_numbering(model, picks, trajectory)
        times = trajectory.times[:rows] - trajectory.times[0]
        return _state_of(model, times, _without_strays(times, _points(picks, trajectory, rows)))

    return initial_guess


def _check_numbering(model: VineModel, picks: list[tuple[str, int, int]], trajectory: Trajectory) -> None:
    """Raises DataError: there is no point 0, and point 1 is at the base."""
    if min(k for _, k, _ in picks) != 1:
        return
    points = _points(picks, trajectory, len(trajectory.times))
    away = np.nanmedian(np.linalg.norm(points[:, 1] - np.asarray(model.base[:2]), axis=1)) if points.shape[1] > 2 else np.inf
    if away < 0.5 * np.nanmedian(np.linalg.norm(points[:, 2] - points[:, 1], axis=1)):
        raise DataError("point1 is where the robot begins, and there is no point0: number the points from 0, at the base")


def _held_state(model: VineModel, trajectory: Trajectory) -> Array:
    """Straight along the drawing's base, markers where the first row that saw them all has them; at the tip where none does."""
    state = model.straight_state()
    (x, y, angle), fixed = model.tip(state), model.split(state).markers
    picks = [pick for pick in _picks(trajectory.names, "marker") if pick[1] < model.num_markers]
    rows = trajectory.select(tuple(name for name, *_ in picks)).values
    seen = np.isfinite(rows).all(axis=1)
    for (_, k, axis), value in zip(picks, rows[int(np.argmax(seen))] if seen.any() else (), strict=False):
        fixed[k, axis] = value - (x, y)[axis]
    fixed[...] = fixed @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return state


def program(simulator: Any, names: tuple[str, ...]) -> Program:
    """The symbolic step, and measured points as casadi.Function of the state.

    Raises:
        OptionError: No points, or a robot that has no symbolic step; see `symbolic.complementarity_form`.
        MissingDependencyError: CasADi is not installed.
    """
    with needed("the symbolic step needs CasADi", "sysid"):
        import casadi as ca

        from .symbolic import complementarity_form, tracked_points
    model, picks = simulator.model, _picks(names)
    if not picks:
        raise OptionError(f"columns are {', '.join(names)}; expected points: point0.x, point0.y, ...")
    points = tracked_points(model, np.array([k for _, k, _ in picks]) / max(k for _, k, _ in picks))
    x = ca.SX.sym("x", simulator.nx)
    chosen = [2 * place + axis for place, (_, _, axis) in enumerate(picks)]
    return Program(
        complementarity_form(simulator), ca.Function("points", [x], [points(x)[chosen]]), tuple(pick[0] for pick in picks)
    )


def infer_controls(simulator: Any, trajectory: Trajectory) -> Trajectory:
    """Estimate growth speed from the length of the line of points, by a cross-validated smoothing spline; muscles empty.

    A length that changes by less than `STEADY` does not grow; nor does a robot that is tracked by markers at its tip.
    """
    model, picks = simulator.model, _picks(trajectory.names)
    if model.num_markers and not picks:
        return _not_growing(model, trajectory)
    if trajectory.control_names or not picks:
        return trajectory
    lengths = _lengths(_points(picks, trajectory.on_grid, len(trajectory.times)))
    controls = np.zeros((trajectory.num_steps, model.nu))
    if np.ptp(lengths) > STEADY:
        controls[:, 0] = np.clip(np.diff(_smooth(trajectory.times, lengths)) / trajectory.period, 0.0, model.max_growth)
    units = ("m/s", *["Pa"] * (model.nu - 1))
    return trajectory.with_controls(controls, model.control_names, units)


def _smooth(times: Array, lengths: Array) -> Array:
    """Smooth lengths (T+1,) by a cross-validated cubic spline, once more without those far off it."""
    if len(times) < LEAST_OF_SPLINE:
        return np.asarray(np.polyval(np.polyfit(times, lengths, 1), times))
    from scipy.interpolate import make_smoothing_spline

    found = make_smoothing_spline(times, lengths)(times)
    off = np.abs(lengths - found)
    near = off <= max(LENGTH_OUTLIER * float(np.median(off)), LEAST)
    return np.asarray(make_smoothing_spline(times[near], lengths[near])(times))


def _not_growing(model: VineModel, trajectory: Trajectory) -> Trajectory:
    """The recording with controls of 0 where it has none."""
    given = [model.control_names.index(name) for name in trajectory.control_names if name in model.control_names]
    known = trajectory.select_controls([model.control_names[place] for place in given])

    def among(controls: Array) -> Array:
        found = np.zeros((len(controls), model.nu))
        found[:, given] = controls
        return found

    return replace(
        known, controls=among(known.controls), before=among(known.before), control_names=model.control_names,
        commanded=np.hstack([known.commanded[:, :1], among(known.commanded[:, 1:])]), control_units=model.control_units,
    )  # fmt: skip


def _points(picks: list[tuple[str, int, int]], trajectory: Trajectory, rows: int) -> Array:
    """Points of the first rows, NaN where they were lost, (rows, P, 2) [m]."""
    points = np.full((rows, max(k for _, k, _ in picks) + 1, 2), np.nan)
    for name, k, axis in picks:
        points[:, k, axis] = trajectory.select((name,)).values[:rows, 0]
    return points


def _without_strays(times: Array, points: Array) -> Array:
    """Points of the first rows (rows, P, 2), NaN where one is far from the line that it moves along (Theil 1950, Sen 1968)."""
    from scipy.stats import theilslopes

    found = points.copy()
    for point in np.moveaxis(found, 1, 0):
        for column in point.T:
            seen = np.isfinite(column)
            if seen.sum() > 2:
                slope = theilslopes(column[seen], times[seen]).slope
                off = column - slope * times
                off = np.abs(off - np.median(off[seen]))
                point[off > STRAY * max(float(np.median(off[seen])), LEAST)] = np.nan
    return found


def _lengths(points: Array) -> Array:
    """Length of the line of points in every row, gaps bridged, (rows, P, 2) -> (rows,) [m]."""
    lengths = np.full(len(points), np.nan)
    for row, line in enumerate(points):
        seen = np.flatnonzero(np.isfinite(line).all(axis=1))
        if len(seen) > 1:
            size = np.linalg.norm(np.diff(line[seen], axis=0), axis=1).sum()
            lengths[row] = size * (len(line) - 1) / (seen[-1] - seen[0])
    found = np.flatnonzero(np.isfinite(lengths))
    return np.interp(np.arange(len(points)), found, lengths[found]) if len(found) else np.zeros(len(points))


def misplaced(simulator: Any, recording: Trajectory) -> str:
    """Points that do not lie on the model: on a longer body, a shorter one than one that begins fully grown, or elsewhere."""
    model, picks = simulator.model, _picks(recording.names)
    if len({k for _, k, _ in picks}) < 4:
        return ""
    points, said = _points(picks, recording, len(recording.times)), []
    seen = np.asarray(np.isfinite(points).any(axis=(0, 2)))
    lengths = np.linalg.norm(np.diff(points[:, seen], axis=1), axis=2).sum(axis=1)  # of frames that show them all
    length, grown = float(np.median(lengths[np.isfinite(lengths)])) if np.isfinite(lengths).any() else np.nan, model.max_length
    if length > LONGER * grown or (model.initial_length == grown and length < grown / LONGER):
        said.append(f"the points lie on a body {length:.3g} m long, the model's is {grown:.3g} m fully grown")
    away = np.nanmedian(points[:, 0], axis=0) - model.base[:2] if seen[0] else np.zeros(2)
    if np.linalg.norm(away) > ELSEWHERE:
        said.append(
            f"point0 is {1e3 * np.linalg.norm(away):.2g} mm from the model's base: set [robot] base, or shift the points"
        )
    return "; ".join(said)


def along_body(model: VineModel, states: Array, share: Array) -> Array:
    """Points at shares (k,) of the robot's length from the base, (..., nx) -> (..., k, 2) [m]."""
    stations = share * model.split(states).length[..., None]
    return model.points_along(states, stations)


def _picks(names: tuple[str, ...], what: str = "point") -> list[tuple[str, int, int]]:
    """Name, number and axis of every column that is of a point (or marker)."""
    found = [(name, re.fullmatch(rf"{what}(\d+)\.([xy])", name)) for name in names]
    return [(name, int(match[1]), "xy".index(match[2])) for name, match in found if match]


def _state_of(model: VineModel, times: Array, points: Array) -> Array:
    """State whose links follow points (rows, P, 2), which may hold NaN.

    Least squares of heading(s, t) = base + s (p(s) + t q(s) + t^2 r(s)) with polynomials in the share s of the length.
    """
    shown = np.isfinite(points).all(axis=2).sum(axis=1) > 1
    if not shown.any():
        raise DataError(f"no two points are seen in any of the first {len(points)} rows: begin the recording later")
    times, points = times[shown], points[shown]
    samples, lengths = [], []
    for time, row in zip(times, points, strict=True):
        seen = np.isfinite(row).all(axis=1)
        share, steps = np.flatnonzero(seen) / (len(row) - 1), np.diff(row[seen], axis=0)
        size = np.linalg.norm(steps, axis=1)
        heading = model.base[2] + np.unwrap(np.arctan2(steps[:, 1], steps[:, 0]) - model.base[2])
        lengths.append(size.sum() / max(share[-1] - share[0], 1e-9))
        samples += [(0.5 * (a + b), time, h, w) for a, b, h, w in zip(share[:-1], share[1:], heading, size, strict=True)]
    share, when, heading, size = np.array(samples).T
    orders = [
        (power, order) for order, degree in enumerate(SMOOTH if len(times) > 2 else SMOOTH[:1]) for power in range(degree)
    ]
    columns = np.stack([share ** (power + 1) * when**order for power, order in orders], axis=1)
    fitted = np.linalg.lstsq(columns * size[:, None], (heading - model.base[2]) * size, rcond=None)[0]
    growth, length = np.polyfit(times, lengths, 1) if len(times) > 2 else (0.0, lengths[0])
    state = model.straight_state(float(np.clip(length, model.link_length, model.max_length)))
    parts = model.split(state)
    ends = np.concatenate([[0.0], np.cumsum(model.link_lengths(parts.length))]) / parts.length
    middles = 0.5 * (ends[1:] + ends[:-1])
    for (power, order), value in zip(orders, fitted, strict=True):
        if order < 2:
            (parts.theta, parts.omega)[order][:] += value * middles ** (power + 1)
    parts.growth[...] = np.clip(growth, 0.0, model.max_growth)
    return model.tidy(state)


def wrinkling(simulator: Any) -> Any:
    """Simulator of a tube that wrinkles (bends more easily once its wall is slack)."""
    return replace(simulator, bending="wrinkling")


_PATIENT = {"max_iterations": 40, "cost_tolerance": 1e-4}

PROCEDURE = Procedure(
    experiments=(Experiment("pressures", pressures, VINE_MAX_STEPS, from_markers=pressures_filmed, held=COMMAND_TIME),),
    stages=(
        Stage(
            "body", "pressures", BODY, "multiple_shooting",
            {"segment_steps": 5, "errors": "clustered", "levenberg": {"max_iterations": 30}},
            # Not a sensor's noise: states are as recorded, and fits that change them creep.
            data=StageData(noise=AGREEMENT, free_initial=False),
            causes=Causes({"commands that act late": ("latency",)}),
        ),
    ),
    from_markers=(
        # Over a fifth of a second from any parameters, then over 1.25 s, which plans need: as muscles are as full as commands
        # left them (`actuated`), either determines the lag.
        Stage(
            "seen", "pressures", (*BODY, "base_turn", "tip_mass", "drag"), "multiple_shooting",
            {"segment_steps": 125, "initial": {"short_steps": 20}, "loss": "robust", "errors": "clustered",
             "levenberg": _PATIENT},
            prior={"base_turn": (0.0, BY_EYE), "tip_mass": UNWEIGHED, "drag": DRAG},
            data=StageData(noise_known=True),
            causes=Causes({"frames or commands that are late": ("latency",)}),
        ),
    ),
    from_recordings=Stage(
        "from_recordings", "", TUBE, "single_shooting",
        {"starts": 3, "initial": {"restart_steps": 24}, "intervals": {"half_step": True}, "loss": "robust",
         "levenberg": {"cost_tolerance": 1e-6}},
        simulator=StageSimulator({"bending": "linear"}, fallback=wrinkling),
        causes=Causes({
            "another drag": ("drag",), "a base that is turned": ("base_turn",), "a mass at the tip": ("tip_mass",),
            "dry friction in the body": ("bending_friction",), "lengths on another scale": ("scale",),
            "gravity from another side": ("gravity_angle",),
        }, idle_without={"gravity_angle": "gravity"}, doubtful=("drag",)),
    ),
    initial_guess=GUESS,
    steps=Steps(MAX_FRAME_STEP),
    recorded=Recorded(measurement, markers, infer_controls, remark=misplaced),
    initial=InitialState(first_state, actuated=("left*", "right*")),
    methods=MethodData({"simultaneous": {"tau": 1e-2, "factor": 1e-2}}, program=program),  # pairs of N and m/s
)  # fmt: skip
"""Fits bending and muscles to segments of a second; to a camera's points over 1.25 s, with the clamp's heading, drag and the
mass at the tip; to a laboratory's points, only bending."""
