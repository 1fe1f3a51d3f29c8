"""Drawn muscles: thicker and redder where they are active."""

from __future__ import annotations

import numpy as np

from ..rendering.colors import Color

OFF, ON = np.array([214.0, 178.0, 170.0]), np.array([176.0, 24.0, 32.0])
"""Colours of a muscle without and with full activation."""
THICK = (0.016, 0.036)
"""Drawn width of a muscle without and with full activation [m]."""


def muscle_color(activation: float) -> Color:
    """Colour of a muscle with an activation, 0 ... 1.

    >>> muscle_color(1.0)
    (176, 24, 32)
    """
    return tuple(int(value) for value in OFF + activation * (ON - OFF))  # type: ignore[return-value]
