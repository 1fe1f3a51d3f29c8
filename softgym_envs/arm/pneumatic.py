r"""Pneumatic muscles, the second kind: force from pressure and length, and filling by a valve.

A tube in a braid of threads that do not stretch: a thread of length b goes n times around a cylinder of length l, so that with
:math:`\cos\theta = l / b` the volume is :math:`V = b^3 \sin^2\theta \cos\theta / (4 \pi n^2)`, and by virtual work

.. math:: F = -p \frac{dV}{dl} = \frac{p\, b^2}{4 \pi n^2} (3 \cos^2\theta - 1)

[ChouHannaford1996]: Chou, Hannaford, "Measurement and modeling of McKibben pneumatic artificial muscles", IEEE Transactions on
Robotics and Automation 12 (1996), eq (6), without the thickness of wall and braid. The braid rubs on itself: Coulomb friction
that grows with pressure is the muscle's hysteresis. A valve fills a muscle with a first-order lag.

Functions are plain Python that Numba compiles where a kernel calls them, as in `muscles.muscle`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable


def volume(length: Any, thread: float, turns: float) -> Any:
    """Volume V [m^3] of a muscle of that length [m]."""
    return length * (thread * thread - length * length) / (4.0 * np.pi * turns * turns)


@register_jitable
def braid_force(p, length, thread, turns):
    """Force F [N] at pressure p above the air's [Pa]; it pulls until the threads stand at 54.7 degrees, cos^2 = 1/3."""
    return p * (3.0 * length * length - thread * thread) / (4.0 * np.pi * turns * turns)


@register_jitable
def filled(inside, valve, kept):
    """Pressure in a muscle after a step, from `inside`, with pressure `valve` at its valve; kept = exp(-h / lag)."""
    return valve + (inside - valve) * kept


@register_jitable
def pull(p, q, c):
    """Torque of a muscle on a pulley, p (c_0 + c_1 q + c_2 q^2); see `on_pulley`."""
    return p * (c[0] + q * (c[1] + q * c[2]))


def on_pulley(thread: float, turns: float, length: float, radius: float) -> tuple[float, float, float]:
    """Constants c of `pull` for a muscle with `length` [m] at q = 0 on a pulley of that radius [m], shortened by turning.

    >>> c = on_pulley(0.3, 1.5, 0.28, 0.02)
    >>> float(round(pull(2e5, 0.4, c) - 0.02 * braid_force(2e5, 0.28 - 0.02 * 0.4, 0.3, 1.5), 9))
    0.0
    """
    scale = radius / (4.0 * np.pi * turns * turns)
    return (
        scale * (3.0 * length * length - thread * thread),
        -6.0 * scale * length * radius,
        3.0 * scale * radius * radius,
    )


@register_jitable
def stuck_or_slid(v, friction):
    """Speed after Coulomb friction has reduced it by at most `friction` [rad/s]: zero where the joint sticks."""
    return np.sign(v) * max(abs(v) - friction, 0.0)
