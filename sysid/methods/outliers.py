"""Points that a camera saw elsewhere: told from the residuals of a fit that they do not spoil, and left out of the next.

A fit by Huber's loss ends near the truth even where points jump. What it leaves is, but for those points, noise and the model's
error, of size s = 1.4826 median |r| per channel (no less than a noise that is known); points off by more than `FAR` s in some
coordinate are taken for outliers and become gaps. Least squares follow, with all that is known of them.

Of a fit by squares, predictions of whole recordings are looked at (`without_lone`): values that are far off while those in the
rows around them are not stand alone, as errors of a model do not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import DataError
from softgym_envs.core.sensors import points_of
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..data.problem import FitProblem
from ..judgement.result import FitResult
from ..judgement.starts import followed_whole
from ..least_squares.segments import Segments

Array = NDArray[np.float64]

MEDIAN = 1.4826
"""Standard deviation of normal noise over the median of its sizes."""
FAR = 5.0
"""Of normal noise one in two million is beyond."""
MOST_LONE = 0.03
"""Share of values beyond which none that stands alone is left out."""
MOST = 0.1
"""Share of points beyond which they are no outliers, but what the model does not know: nothing is left out. Nor is anything
where no fit would take what remains, as of a recording of which a column is gone."""


LONE, BESIDE = 6.0, 3.0
"""Standard deviations that a value which stands alone is off by, and that those in the rows around it are off by at most."""


class Cleaned(NamedTuple):
    """What is left without outliers."""

    problem: FitProblem
    segments: Segments
    share: float
    """Of the points that were measured."""


def without_outliers(segments: Segments, theta: Array, starts: Array) -> Cleaned:
    """The problem and its segments with outliers as gaps; as they are, where the full state is measured."""
    problem = segments.problem
    if problem.full:
        return Cleaned(problem, segments, 0.0)
    size, present = _sizes(segments, theta, starts), segments.present
    scale = MEDIAN * np.nanmedian(size, axis=(0, 1))
    if problem.known_noise is not None:
        scale = np.maximum(scale, problem.known_noise)
    far, groups = size > FAR * scale, points_of(problem.column_names)
    point = np.stack([far[..., group].any(axis=-1) for group in groups], axis=-1)
    seen = np.stack([present[..., group].any(axis=-1) for group in groups], axis=-1)
    share = float(point.sum() / max(seen.sum(), 1))
    if share == 0.0 or share > MOST:
        return Cleaned(problem, segments, 0.0)
    for place, group in enumerate(groups):
        far[..., group] = point[..., place, None]
    left = _gaps(segments, far)
    try:
        cleaned = problem.replace(data=problem.split._replace(train=left))
    except DataError:  # most of a column: no outliers either
        return Cleaned(problem, segments, 0.0)
    if problem.told:
        cleaned = cleaned.with_told_noise()
    values = segments.values.copy()
    values[:, segments.first :][far] = np.nan
    return Cleaned(cleaned, replace(segments, problem=cleaned, values=values), share)


def without_lone(problem: FitProblem, result: FitResult) -> tuple[FitProblem, int]:
    """The problem with values that stand alone as gaps, and how many there are; see the module docstring.

    Predictions are of the result's constants, from the begin of every recording.
    """
    there, recordings, residuals = problem.replace(view=result.view), problem.split.train, []
    for recording in recordings:
        states, good = followed_whole(there, result.parameters, recording)
        if not good:
            return problem, 0
        values = problem.values(recording)
        if problem.full:
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
    """Where sizes of residuals (T+1, ny) are far beyond their scale (ny,), and those beside them are not."""
    beside = np.full((len(size) + 2, size.shape[1]), np.nan)
    beside[1:-1] = size
    near = np.fmax(beside[:-2], beside[2:])  # NaN only where neither was measured
    return np.asarray((size > LONE * scale) & (near <= BESIDE * scale))


def spread(segments: Segments, theta: Array, scale: Array) -> Array:
    """Size of the residuals at a start, per channel (m,), whatever outliers do; `scale` where it is nothing, or not finite."""
    found = MEDIAN * np.nanmedian(_sizes(segments, theta, segments.starts), axis=(0, 1))
    return np.where(np.isfinite(found) & (found > 1e-9 * scale), found, scale)


def _sizes(segments: Segments, theta: Array, starts: Array) -> Array:
    """Absolute residuals (S, L', m); NaN where nothing was measured."""
    return np.where(segments.present, np.abs(segments.residuals(theta[None], starts)[0][0]), np.nan)


def _gaps(segments: Segments, far: NDArray[np.bool_]) -> TrajectorySet:
    """The recordings with gaps where (S, L', ny) says so."""
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
    """The recording with other values of some columns."""
    places = [recording.names.index(name) for name in names]
    changed = recording.values.copy()
    changed[:, places] = values
    return replace(recording, values=changed)


__all__ = ["FAR", "LONE", "Cleaned", "spread", "without_lone", "without_outliers"]
