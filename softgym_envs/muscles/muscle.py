r"""Hill muscles with rigid tendons [DeGroote2016], and a path around a circle: one source for numbers and symbols.

Every function is plain Python that Numba compiles where a kernel calls it. It takes complex numbers (whose imaginary part then
is a derivative, exact to rounding) and, where nothing compiles, casadi expressions. With fibre length x and speed v in units
of the optimal length and of `MUSCLE_SPEED` optimal lengths per second,

.. math:: F / F_{max} = a f_L(x) f_V(v) + f_P(x), \qquad \dot a = k(a, e) (e - a)

Curves and parameters are those of [DeGroote2016]; the passive one is shifted to vanish at x = 0.2, as in OpenSim Moco.
[DeGroote2016]: De Groote, Kinney, Rao, Fregly, "Evaluation of direct collocation optimal control problem formulations for
solving the muscle redundancy problem", Annals of Biomedical Engineering 44 (2016).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numba.extending import overload, register_jitable

MUSCLE_SPEED = 10.0
"""Largest shortening speed [optimal lengths per s]."""
MUJOCO_SMOOTH = 0.1
"""Of MuJoCo's own muscles: width of the transition from activation to deactivation [-]."""
MUJOCO_RANGE = (0.5, 1.5)
"""Of MuJoCo's own muscles: fibre lengths at the two given lengths of a tendon."""
STEEPNESS = 10.0
"""Steepness of the transition from activation (excitation above) to deactivation (below) [-]."""


@contextmanager
def symbols() -> Iterator[None]:
    """Context for calls with casadi expressions: NumPy's functions pass them on, which casadi warns of."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


def switch(x: Any, above: Any, below: Any) -> Any:
    """`above` where x > 0, else `below`; both are computed."""
    if hasattr(x, "is_constant"):  # a casadi expression
        from ..core.transcription import casadi

        return casadi().if_else(x > 0, above, below)
    return np.where(np.real(x) > 0, above, below)


def blend(x: Any, above: Any, below: Any, width: float) -> Any:
    """`switch` with a transition from -width to width and two continuous derivatives; at a width of 0, `switch`."""
    if width == 0.0:
        return switch(x, above, below)
    t = np.fmin(np.fmax(x / width, -1.0), 1.0)
    return below + (0.5 + t * (15.0 - t * t * (10.0 - 3.0 * t * t)) / 16.0) * (above - below)


@overload(switch)
def _switch(x, above, below):
    return lambda x, above, below: above if x.real > 0 else below


@register_jitable
def active_force(x):
    """Active force f_L(x): three Gaussians whose width depends on x."""
    i, j, k = (x - 1.06) / (0.162 + 0.0633 * x), (x - 0.717) / (-0.0299 + 0.2 * x), (x - 1.0) / 0.354
    return 0.814 * np.exp(-0.5 * i * i) + 0.433 * np.exp(-0.5 * j * j) + 0.1 * np.exp(-0.5 * k * k)


@register_jitable
def passive_force(x):
    """Passive force f_P(x): 0 at 0.2, 1 at 1.6."""
    low = np.exp(4.0 * (0.2 - 1.0) / 0.6)
    return (np.exp(4.0 * (x - 1.0) / 0.6) - low) / (np.exp(4.0) - low)


@register_jitable
def speed_force(v):
    """Force by speed f_V(v): 0 at -1 (shortening), about 1 at 0, 1.79 at 1 (lengthening)."""
    return -0.318 * np.arcsinh(-8.149 * v - 0.374) + 0.886


@register_jitable
def tension(a, x, v):
    """Tension F / F_max = a f_L f_V + f_P of activation a, fibre length x, fibre speed v."""
    return a * active_force(x) * speed_force(v) + passive_force(x)


@register_jitable
def activation_rate(a, e, rise, fall):
    """Rate k(a, e) [1/s] with the time constants of activation and deactivation [s]."""
    up, slow = 0.5 * np.tanh(STEEPNESS * (e - a)), 0.5 + 1.5 * a
    return (up + 0.5) / (rise * slow) + (0.5 - up) * slow / fall


@register_jitable
def activated(a, e, rise, fall, h):
    """Activation after h / 2 and h seconds of excitation e, at the middle's rate throughout: second order, within 0 ... 1."""
    middle = e + (a - e) * np.exp(-0.5 * h * activation_rate(a, e, rise, fall))
    return middle, e + (a - e) * np.exp(-h * activation_rate(middle, e, rise, fall))


@register_jitable
def tangents(a, b, radius):
    """Length of the tangents from points at distances a, b to a circle, both together, and the angle that they span with it."""
    ta, tb = np.sqrt(a * a - radius * radius), np.sqrt(b * b - radius * radius)
    return ta + tb, np.arctan(ta / radius) + np.arctan(tb / radius)


@register_jitable
def both_ways(a, b, delta, radius, known=None):
    """Lengths of the straight path and of that on the circle, and the contact angle of the latter; see `around_circle`."""
    length, angle = tangents(a, b, radius) if known is None else known
    touching = delta - angle
    return np.sqrt(a * a + b * b - 2.0 * a * b * np.cos(delta)), length + radius * touching, touching


@register_jitable
def around_circle(a, b, delta, radius, known=None):
    """Shortest path between points at distances a, b from a circle's centre that stays on one side, in closed form.

    Args:
        a: Distance of the first point, > radius.
        b: Distance of the second one.
        delta: Angle from the first to the second as seen from the centre, on the path's side, in (0, 2 pi) [rad].
        radius: Radius of the circle.
        known: `tangents(a, b, radius)`, if they are known.

    Returns:
        Length, d length / d delta (the moment arm), and the angle of contact (negative where the path is free).
    """
    straight, wrapped, touching = both_ways(a, b, delta, radius, known)
    length = switch(touching, wrapped, straight)
    return length, switch(touching, radius + 0.0 * straight, a * b * np.sin(delta) / straight), touching
