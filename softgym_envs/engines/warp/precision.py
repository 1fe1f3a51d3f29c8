"""What depends on the precision of the kernels' numbers; see `float32`."""

from __future__ import annotations

import math

import numpy as np
import warp as wp

DOUBLE = 2.0**-52
EPS = float(np.finfo(wp.dtype_to_numpy(wp.float64)).eps)
"""Spacing of numbers at 1."""


def tolerance(double: float) -> float:
    """A solver's tolerance eps^p, with the p that it has in double precision.

    >>> tolerance(1e-12)
    1e-12
    """
    return double ** (math.log(EPS) / math.log(DOUBLE))
