"""Values that were seen at irregular times, moved to the rows of a uniform grid along the motion around them.

Predictions are compared with measurements at the times of these. Moved values serve where states at rows are needed: at starts
of segments, and for noise by differences.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .simulator import Array

NEAR, WORSE = (9, 7, 5), 1.25
"""Numbers of rows of the cubic that moves a value: the first whose residual squares are at most `WORSE` times the last's."""
ASIDE, MEDIAN = 5.0, 1.4826
"""Standard deviations from a cubic beyond which a value is an outlier; a standard deviation over the median size of noise."""
KINKED, SLIGHT, LITTLE = 3.0, 1e-4, 0.02
"""A kink leaves residuals of a cubic beyond `KINKED` times the noise and `SLIGHT` times a column's travel; `LITTLE`: part of a
frame by which values are moved even there."""


def regridded(values: Array, late: Array) -> Array:
    """Move values (rows, n), seen `late` (rows,) rows after their own, to their rows; NaN beside a kink, as of an impact.

    Each value is moved along the cubic through the rows around it, by half a row at most, so that it keeps its own noise. The
    more rows a cubic follows, the less noise it adds. No cubic follows a kink.
    """
    there, found = np.flatnonzero(np.isfinite(values).any(axis=1)), values.copy()
    if len(there):
        frames = there + late[there]
        found[there] = np.stack([_moved(column, frames, late[there]) for column in values[there].T], axis=1)
    return found


def _moved(column: Array, frames: Array, late: Array) -> Array:
    """Move values (rows,), seen at times `frames` (rows,), back by `late` (rows,) frames."""
    telling = np.isfinite(column)
    if not telling.any():
        return column
    off = np.abs(np.where(telling, column - _cubics(column, telling, frames, NEAR[0])[0][:, 0], 0.0))
    far = off > ASIDE * MEDIAN * np.median(off[telling])
    nearby = sliding_window_view(np.pad(off, NEAR[0] // 2), NEAR[0])
    telling &= ~(far & (off == nearby.max(axis=1)))  # neighbours of an outlier are off, too
    fitted = [_cubics(column, telling, frames, width) for width in NEAR]
    noise = [float(np.nanmedian(left)) if np.isfinite(left).any() else 0.0 for _, left in fitted]
    curve = next(curve for (curve, _), size in zip(fitted, noise, strict=True) if size <= WORSE * noise[-1])
    found = column + np.sum(curve[:, 1:] * (-late[:, None]) ** np.arange(1, 4), axis=1)
    # Kinks are judged by the widest cubic: over few rows noise itself looks like one, and dropping those values is not random.
    kinked = fitted[0][1] > np.maximum(KINKED**2 * noise[0], (SLIGHT * np.ptp(column[telling])) ** 2)
    return np.where(kinked & telling & (np.abs(late) > LITTLE), np.nan, found)


def _cubics(column: Array, telling: NDArray[np.bool_], frames: Array, width: int) -> tuple[Array, Array]:
    """Cubics (rows, 4) through the `width` rows around every row, from its time on, and their residual squares (rows,).

    Squares are scaled so that their median is the noise's variance. With few usable rows, curves are of lower order, and
    squares are NaN.
    """
    width = min(width, len(column))
    first = np.clip(np.arange(len(column)) - width // 2, 0, len(column) - width)
    around = first[:, None] + np.arange(width)  # (rows, width)
    there = telling[around]
    seen, count = np.where(there, column[around], 0.0), there.sum(axis=1)
    lower = np.arange(4) < count[:, None] - 1
    half = max(width // 2, 1)
    powers = ((frames[around] - frames[:, None]) / half)[..., None] ** np.arange(4) * there[..., None] * lower[:, None]
    across = np.swapaxes(powers, 1, 2)  # omitted terms are zero: 1 on the diagonal keeps them so
    curve = np.linalg.solve(across @ powers + np.eye(4) * ~lower[:, None], across @ seen[..., None])  # (rows, 4, 1)
    freedom = np.where(count > 4, count - 4.0, np.nan)
    typical = freedom * (1 - 2 / (9 * freedom)) ** 3  # median of chi squared
    return curve[..., 0] / half ** np.arange(4), np.sum((seen - (powers @ curve)[..., 0]) ** 2, axis=1) / typical
