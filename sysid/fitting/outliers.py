"""Outliers of a camera: found in the residuals of a robust fit, and left out of the next fit.

A fit by Huber's loss ends near the true parameters even where points jump. Its residuals are, but for those points, noise and
the
model's error, of size s = 1.4826 median |r| per channel (no less than a known noise). Points off by more than `OUTLIER` s in
some coordinate count as outliers and become gaps. Least squares of the remaining points follow.

For a fit by squares, predictions of whole recordings are examined (`without_lone`): values that are far off while those in the
rows around them are not stand alone, as errors of a model do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.simulator import Array
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.data.sensors import points_of

from ..diagnostics.initial_state import followed_whole
from ..diagnostics.result import FitResult
from ..least_squares.segments import Segments
from ..problem.problem import FitProblem

MEDIAN = 1.4826  # Standard deviation of normal noise over the median of its sizes.
OUTLIER = 5.0  # Standard deviations beyond which a point is an outlier: one in two million for normal noise.
MOST_LONE = 0.03  # Share of lone values above which none is left out.
MOST_OUTLIERS = 0.1
"""Share of points above which they are no outliers, but errors of the model: nothing is left out. Nor is anything where no
fit would accept the rest, as of a recording without one of its columns."""


LONE, BESIDE = 6.0, 3.0
"""Standard deviations: a lone value is off by more than the first, its neighbours by at most the second."""


class Cleaned(NamedTuple):
    """Problem and segments without outliers."""

    problem: FitProblem
    segments: Segments
    share: float  # Share of the measured points that are outliers.


def without_outliers(segments: Segments, theta: Array, starts: Array) -> Cleaned:
    """Turn outliers into gaps of the problem and its segments; no change where the full state is measured."""
    problem = segments.problem
    if problem.full_state:
        return Cleaned(problem, segments, 0.0)
    size, present = _sizes(segments, theta, starts), segments.present
    scale = MEDIAN * np.nanmedian(size, axis=(0, 1))
    if problem.known_noise is not None:
        scale = np.maximum(scale, problem.known_noise)
    far, groups = size > OUTLIER * scale, points_of(problem.column_names)
    point = np.stack([far[..., group].any(axis=-1) for group in groups], axis=-1)
    seen = np.stack([present[..., group].any(axis=-1) for group in groups], axis=-1)
    share = float(point.sum() / max(seen.sum(), 1))
    if share == 0.0 or share > MOST_OUTLIERS:
        return Cleaned(problem, segments, 0.0)
    for place, group in enumerate(groups):
        far[..., group] = point[..., place, None]
    left = _gaps(segments, far)
    try:
        cleaned = problem.replace(data=problem.split._replace(train=left))
    except DataError:  # most of a column: these are no outliers
        return Cleaned(problem, segments, 0.0)
    if problem.noise_estimated:
        cleaned = cleaned.with_estimated_noise()
    values = segments.values.copy()
    values[:, segments.first :][far] = np.nan
    return Cleaned(cleaned, replace(segments, problem=cleaned, values=values), share)


def without_lone(problem: FitProblem, result: FitResult) -> tuple[FitProblem, int]:
    """Turn values that stand alone into gaps, and count them; see the module docstring.

    Predictions are those of the result's parameters, from the start of every recording.
    """
    there, recordings, residuals = problem.replace(view=result.view), problem.split.train, []
    for recording in recordings:
        states, good = followed_whole(there, result.parameters, recording)
        if not good:
            return problem, 0
        values = problem.values(recording)
        if problem.full_state:
            values = problem.simulator.retract(states, problem.simulator.difference(values, states))
        residuals.append(there.seen(states[None])[0] - values)
    scale = MEDIAN * np.nanmedian(np.abs(np.concatenate(residuals)), axis=0)
    lone = [_lone(np.abs(residual), scale) for residual in residuals]
    count = sum(int(off.sum()) for off in lone)
    if count == 0 or count > MOST_LONE * sum(int(np.isfinite(residual).sum()) for residual in residuals):
        return problem, 0
    kept = [np.where(off, np.nan, problem.values(recording)) for off, recording in zip(lone, recordings, strict=True)]
    left = [_with(recording, problem.column_names, values) for recording, values in zip(recordings, kept, strict=True)]
    try:
        return problem.replace(data=problem.split._replace(train=TrajectorySet(tuple(left)))), count
    except DataError:
        return problem, 0


def _lone(size: Array, scale: Array) -> NDArray[np.bool_]:
    """Mask of residuals' sizes (T+1, ny) far beyond their scale (ny,) whose neighbours are not."""
    beside = np.full((len(size) + 2, size.shape[1]), np.nan)
    beside[1:-1] = size
    near = np.fmax(beside[:-2], beside[2:])  # NaN only where neither was measured
    return np.asarray((size > LONE * scale) & (near <= BESIDE * scale))


def spread(segments: Segments, theta: Array, scale: Array) -> Array:
    """Robust size of the residuals at a start, per channel (m,); `scale` where it is zero, or not finite."""
    found = MEDIAN * np.nanmedian(_sizes(segments, theta, segments.starts), axis=(0, 1))
    return np.where(np.isfinite(found) & (found > 1e-9 * scale), found, scale)


def _sizes(segments: Segments, theta: Array, starts: Array) -> Array:
    """Absolute residuals (S, L', m); NaN where nothing was measured."""
    return np.where(segments.present, np.abs(segments.residuals(theta[None], starts)[0][0]), np.nan)


def _gaps(segments: Segments, far: NDArray[np.bool_]) -> TrajectorySet:
    """The recordings with gaps where the mask (S, L', ny) is true."""
    problem, found = segments.problem, []
    for index, recording in enumerate(problem.split.train):
        values = problem.values(recording).copy()
        for s in np.flatnonzero(segments.recording == index):
            first = segments.begins[s] + segments.first
            rows = values[first : first + far.shape[1]]
            rows[far[s, : len(rows)]] = np.nan
        found.append(_with(recording, problem.column_names, values))
    return TrajectorySet(tuple(found))


def _with(recording: Trajectory, names: tuple[str, ...], values: Array) -> Trajectory:
    """Copy of the recording with other values of some columns."""
    places = [recording.names.index(name) for name in names]
    changed = recording.values.copy()
    changed[:, places] = values
    return replace(recording, values=changed)
