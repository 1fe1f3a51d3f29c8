r"""Stops of joints: springs beyond the limits, as a potential, so that energy is kept and derivatives are exact.

With the excess phi beyond a limit, a stop has the energy k psi(phi) of `contact`, which is twice continuously differentiable. A
stop has no damping of its own; the joint's damping acts there, too. Legend: n coordinates, k stopped joints.
"""

from __future__ import annotations

from ..engines.numba.engine import lean
from ..engines.numba.lanes import select, some
from .contact import push


@lean
def stop_excess(s, k, q):
    """Excess of stopped joint k at its coordinate q, and the sign of the force."""
    lower, upper = s.stop[k, 0] - q, q - s.stop[k, 1]
    return select(lower > upper, lower, upper), select(lower > upper, 1.0, -1.0)


@lean
def stop_energy(s, q):
    """Energy of all stops at q (n,) [J]."""
    total = 0.0
    for k in range(len(s.stopped)):
        excess, _ = stop_excess(s, k, q[s.stopped[k]])
        if excess > 0.0:
            total += push(s.stop[k, 2], s.stop[k, 3], excess)[0]
    return total


@lean
def add_stops(s, q, Lq):
    """Lq (n,) += forces of the stops."""
    for k in range(len(s.stopped)):
        i = s.stopped[k]
        excess, sign = stop_excess(s, k, q[i])
        if some(excess > 0.0):
            Lq[i] += select(excess > 0.0, sign * push(s.stop[k, 2], s.stop[k, 3], excess)[1], 0.0)


@lean
def stop_stiffness(s, k, q):
    """Minus the slope of the force of stopped joint k at q (n,) [N m/rad]."""
    excess, _ = stop_excess(s, k, q[s.stopped[k]])
    return select(excess > 0.0, push(s.stop[k, 2], s.stop[k, 3], excess)[2], 0.0)
