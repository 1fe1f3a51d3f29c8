r"""Pneumatic muscles, the second kind: force from pressure and length, and filling by a valve.

A tube in a braid of threads that do not stretch: a thread of length b goes n times around a cylinder of length l, so that with
:math:`\cos\theta = l / b` the volume is :math:`V = b^3 \sin^2\theta \cos\theta / (4 \pi n^2)`, and by virtual work

.. math:: F = -p \frac{dV}{dl} = \frac{p\, b^2}{4 \pi n^2} (3 \cos^2\theta - 1)

[ChouHannaford1996]: Chou, Hannaford, "Measurement and modeling of McKibben pneumatic artificial muscles", IEEE Transactions on
Robotics and Automation 12 (1996), eq (6), without the thickness of wall and braid. A valve fills
a muscle with a first-order lag.

Functions are plain Python that Numba compiles where a kernel calls them, as in `muscles.muscle`.
"""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable


@register_jitable
def braid_force(p, length, thread, turns):
    """Force F [N] at pressure p above the air's [Pa]; it pulls until the threads stand at 54.7 degrees, cos^2 = 1/3."""
    return p * (3.0 * length * length - thread * thread) / (4.0 * np.pi * turns * turns)


@register_jitable
def filled(inside, valve, kept):
    """Pressure in a muscle after a step, from `inside`, with pressure `valve` at its valve; kept = exp(-h / lag)."""
    return valve + (inside - valve) * kept
