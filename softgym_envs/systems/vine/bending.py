"""Bending moment of an inflated thin tube that wrinkles, [Comer1963]; NumPy, and what the kernel in `tube` shares with it.

A wall that carries tension only, of stiffness EI, at pressure P and radius R. With M_w = pi P R^3 / 2, kappa_w = M_w / EI and
the wrinkled angle g, which is 0 at kappa_w and pi at collapse,

    kappa = kappa_w pi / d(g),    M = M_w (sin 2g + 2 pi - 2g) / (2 d(g)),    d(g) = sin g + (pi - g) cos g

M rises from M_w to 2 M_w; its slope is continuous and at most EI. As a function of s = sqrt(1 - (kappa_w / kappa)^(2/3)), M is
analytic from onset (s = 0) to collapse (s = 1), so that one polynomial does for all curvatures:

    M / M_w = 1 + 3/2 s^2 + s^3 (SERIES_0 + SERIES_1 s + ...)

The first two terms make M and its slope continuous at the onset.
"""

from __future__ import annotations

import numpy as np

from ...core.simulator import Array

SERIES = (
    -1.102657790393562, 1.2670727455724522, -1.383412409554774, 1.4879951207136342, -1.5828814936972633, 1.6592735424091694,
    -1.6812656515383797, 1.5746787754992806, -1.2722572732987603, 0.8153862998632005, -0.3758782621059319, 0.10848888716689077,
    -0.014542490856889287,
)  # fmt: skip
"""Interpolates (M / M_w - 1 - 3/2 s^2) / s^3 at the 13 Chebyshev points of 0 < s < 1. M is within 3e-10 M_w of the law."""


def wrinkling_moment(curvature: Array, stiffness: float, onset: float) -> Array:
    """Bending moment of the tube.

    Args:
        curvature: kappa, any shape [1/m].
        stiffness: EI [N m^2].
        onset: M_w = pi P R^3 / 2 [N m].

    Returns:
        M, of the same shape and sign as the curvature [N m].
    """
    linear = stiffness * np.abs(curvature)
    s = np.sqrt(1.0 - np.cbrt(onset / np.maximum(linear, onset)) ** 2)
    beyond = onset * (1.0 + 1.5 * s**2 + s**3 * np.polynomial.polynomial.polyval(s, SERIES))
    return np.asarray(np.sign(curvature) * np.where(linear > onset, beyond, linear))
