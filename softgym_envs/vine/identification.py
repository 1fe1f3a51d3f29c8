"""What `scripts/identify.py vine` needs: the simulator, the constants to fit, and points tracked along the body.

A recording holds P points at equal distances along the robot, from its base (point 0) to its tip (point P - 1), as
[Jitosho2021] III takes them from video: point k is at k / (P - 1) of the length that the robot has at that time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.complementarity import ComplementarityForm
from ..core.errors import MissingDependencyError, OptionError
from ..core.simulator import check_number
from ..core.trajectory import Trajectory
from .dynamics import VineSimulator
from .model import VineModel
from .scene_file import load_scene
from .stepping import BENDING

Array = NDArray[np.float64]

BODY = ("bending_stiffness", "bending_damping")
"""Constants that an oscillation shows (with the linear density known)."""
LONGEST_STEP = 2.5e-3
"""[s] Physics steps are whole parts of a frame, at most this long."""
WINDOW = 9
"""Frames over which a growth speed is taken."""
STEADY = 0.01
"""[m]"""
FIRST = 8
"""Rows at the start of a recording that give the guess of shape and rates."""
SMOOTH = (4, 2, 2)
"""Coefficients of the polynomials p, q and r that smooth the headings of the first rows; see `_state_of`."""


@dataclass(frozen=True)
class Setup:
    """A `sysid.data.problem.IdentificationSetup`."""

    simulator: VineSimulator
    free: tuple[str, ...] = BODY

    def measurement(self, names: tuple[str, ...]) -> tuple[Callable[[Array], Array], tuple[str, ...]] | None:
        """Columns "point0.x", "point0.y", ... [m]; None if there are none."""
        model, picks = self.simulator.model, _picks(names)
        if not picks:
            return None
        share = np.array([k for _, k, _ in picks]) / max(k for _, k, _ in picks)
        axes = np.array([axis for *_, axis in picks])

        def measure(states: Array) -> Array:
            points = along_body(model, states, share)
            return np.asarray(np.take_along_axis(points, axes.reshape(*[1] * (points.ndim - 2), -1, 1), axis=-1)[..., 0])

        return measure, tuple(name for name, *_ in picks)

    def first_state(self, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
        """Recording -> initial state (nx,) from its first rows: headings and rates by least squares; None for few points."""
        picks = _picks(names)
        if len({k for _, k, _ in picks}) < 4:
            return None
        model = self.simulator.model

        def guess(trajectory: Trajectory) -> Array:
            rows = min(FIRST, len(trajectory.times))
            return _state_of(model, trajectory.times[:rows] - trajectory.times[0], _points(picks, trajectory, rows))

        return guess

    def program(self, names: tuple[str, ...]) -> tuple[ComplementarityForm, Any]:
        """The symbolic step, and the columns of `measurement(names)` as casadi.Function of the state.

        Raises:
            OptionError: No points, or a robot that has no symbolic step; see `symbolic.complementarity_form`.
            MissingDependencyError: CasADi is not installed.
        """
        try:
            import casadi as ca

            from .symbolic import complementarity_form, tracked_points
        except ImportError as error:
            raise MissingDependencyError('the symbolic step needs CasADi: pip install "softgym-envs[sysid]"') from error
        model, picks = self.simulator.model, _picks(names)
        if not picks:
            raise OptionError(f"columns are {', '.join(names)}; expected points: point0.x, point0.y, ...")
        points = tracked_points(model, np.array([k for _, k, _ in picks]) / max(k for _, k, _ in picks))
        x = ca.SX.sym("x", model.layout.nx)
        chosen = [2 * place + axis for place, (_, _, axis) in enumerate(picks)]
        return complementarity_form(self.simulator), ca.Function("points", [x], [points(x)[chosen]])

    def infer_controls(self, trajectory: Trajectory) -> Trajectory:
        """Growth speed from the length of the line of points, smoothed over `WINDOW` frames; muscles empty.

        A length that changes by less than `STEADY` does not grow.
        """
        model, picks = self.simulator.model, _picks(trajectory.names)
        if trajectory.control_names or not picks:
            return trajectory
        lengths = _lengths(_points(picks, trajectory, len(trajectory.times)))
        controls = np.zeros((trajectory.num_steps, model.nu))
        if np.ptp(lengths) > STEADY:
            half, steps = WINDOW // 2, np.arange(trajectory.num_steps)
            low, high = np.maximum(steps - half, 0), np.minimum(steps + 1 + half, trajectory.num_steps)
            speed = (lengths[high] - lengths[low]) / ((high - low) * trajectory.period)
            controls[:, 0] = np.clip(speed, 0.0, model.max_growth)
        units = ("m/s", *["Pa"] * (model.nu - 1))
        return trajectory.with_controls(controls, model.control_names, units)


def _points(picks: list[tuple[str, int, int]], trajectory: Trajectory, rows: int) -> Array:
    """Points of the first rows, NaN where they were lost, (rows, P, 2) [m]."""
    points = np.full((rows, max(k for _, k, _ in picks) + 1, 2), np.nan)
    for name, k, axis in picks:
        points[:, k, axis] = trajectory.select((name,)).values[:rows, 0]
    return points


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


def along_body(model: VineModel, states: Array, share: Array) -> Array:
    """Points at shares (k,) of the robot's length from the base, (..., nx) -> (..., k, 2) [m]."""
    stations = share * model.split(states).length[..., None]
    return model.points_along(states, stations)


def _picks(names: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Name, number of the point and axis of every column that is one."""
    found = [(name, re.fullmatch(r"point(\d+)\.([xy])", name)) for name in names]
    return [(name, int(match[1]), "xy".index(match[2])) for name, match in found if match]


def _state_of(model: VineModel, times: Array, points: Array) -> Array:
    """State whose links follow points (rows, P, 2), which may hold NaN.

    Least squares of heading(s, t) = base + s (p(s) + t q(s) + t^2 r(s)) with polynomials in the share s of the length.
    """
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


def setup(variant: str = "") -> Setup:
    """`variant` is words joined by commas: "scene=FILE", "fps=30", "steps=2", "links=12", "linear" or "wrinkling".

    A scene is the robot and its obstacles; without one it is a robot of the default size without muscles and obstacles, of 12
    links. Steps are physics steps per frame; if they are not given, so many that none is longer than `LONGEST_STEP`.

    Raises:
        OptionError: An unknown word, or a value that is not allowed.
    """
    model, fps, bending, links, steps = VineModel(num_links=12, num_sections=0), 30.0, "linear", None, None
    for word in filter(None, variant.split(",")):
        key, _, value = word.partition("=")
        if word in BENDING:
            bending = word
        elif key == "scene" and value:
            model = load_scene(value)
        elif key == "fps":
            fps = check_number("fps", _number(value), low=1.0, high=1e5, unit="1/s")
        elif key == "links":
            links = int(check_number("links", _number(value), low=2, high=500))
        elif key == "steps":
            steps = int(check_number("steps", _number(value), low=1, high=1000))
        else:
            allowed = ("scene=FILE", "fps=NUMBER", "links=NUMBER", "steps=NUMBER", *BENDING)
            raise OptionError(f"variant has {word!r}; allowed are {', '.join(allowed)}")
    if links is not None:
        model = replace(model, num_links=links)
    dt = 1.0 / (fps * (steps or math.ceil(1.0 / (fps * LONGEST_STEP))))
    return Setup(VineSimulator(model, dt, bending))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
