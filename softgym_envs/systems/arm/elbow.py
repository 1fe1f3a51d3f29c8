r"""The elbow's equations, stage by stage, as `muscles.muscle` has its own: one source for kernels, numbers and symbols.

.. math:: J \ddot q = \sum_m -\frac{\partial \ell_m}{\partial q} F_m - (m c + m_L r) g \sin q - (m c' + m_L r') g \cos q
   - d \dot q - f \tanh(\dot q / w_0) + \tau_{stop}(q)

where F is a Hill muscle's (`muscles.muscle`) or a pneumatic one's (`pneumatic`); c' and r' are 0 where it hangs straight down.
Dry friction f creeps below w_0 (`mechanics.tree.Joint.friction_speed`).

One step is the midpoint rule, which with a constant J is the midpoint variational integrator: w = (q^+ - q)/h solves

.. math:: 2 J (w - v) = h\, \tau(q + \tfrac h2 w, w, \bar a), \qquad v^+ = 2 w - v

with activations in the step's middle; of a pneumatic muscle these are pressures inside, in shares of the supply's. Parameters c
are those of `parameters.ElbowParameters` or `PneumaticElbowParameters`, in their order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba.extending import register_jitable

from ...muscles.muscle import MUSCLE_SPEED, activated, around_circle, switch, tangents, tension
from .pneumatic import braid_force, filled

BICEPS, TRICEPS, DAMPING, LOAD, RISE, FALL, FRICTION = 0, 4, 8, 9, 10, 11, -1
"""Indices of the parameters, dry friction last; a muscle has force, optimal length, slack length, radius."""
TURNS, THREAD, SLACK, RADIUS, LAG = 0, 1, 2, 3, RISE
"""Offsets of a pneumatic muscle's parameters, and index of the lag of both."""
STOP_STIFFNESS, STOP_WIDTH = 1000.0, 0.02
"""[N m/rad], [rad]: soft springs of the ligaments beyond the elbow's range."""


class Wrapped(NamedTuple):
    """A muscle in the plane of motion, as seen from the elbow's axis."""

    origin: float
    """Distance of its origin [m]."""
    insertion: float
    """Distance of its insertion [m]."""
    angle: float
    """Angle from origin to insertion on the muscle's side, in a stretched arm [rad]."""
    sign: float
    """Derivative of that angle by flexion: 1 or -1."""
    supply: float = 0.0
    """Pressure of a pneumatic muscle's supply [Pa]; 0: a Hill muscle."""


class Elbow(NamedTuple):
    """Numbers that all rows share."""

    biceps: Wrapped
    triceps: Wrapped
    inertia: float
    """Moment of inertia of the forearm about the elbow [kg m^2]."""
    moment: tuple[float, float]
    """Mass times centre of mass of the stretched forearm: along gravity, and across it forwards [kg m]."""
    load: tuple[float, float]
    """Place of the load, in the same directions [m]."""
    reach: float
    """Distance of the load [m]."""
    gravity: float
    """[m/s^2]"""
    lower: float
    """Lower end of the elbow's range [rad]; `upper` is the other."""
    upper: float
    creep: float
    """Speed below which dry friction is like damping [rad/s]."""
    dt: float
    """Physics step [s]."""


@register_jitable
def muscle_tangents(m, c, k):
    """`tangents` of a muscle's path, which do not change with the angle."""
    return tangents(m.origin, m.insertion, c[k + RADIUS])


@register_jitable
def muscle_state(m, c, k, q, w, known=None):
    """Length [m], moment arm (of the torque that flexes) [m], normalised fibre length and speed of a muscle."""
    length, arm, _ = around_circle(m.origin, m.insertion, m.angle + m.sign * q, c[k + RADIUS], known)
    fibre = (length - c[k + SLACK]) / c[k + 1]
    return length, -m.sign * arm, fibre, m.sign * arm * w / (MUSCLE_SPEED * c[k + 1])


@register_jitable
def muscle_force(m, c, k, length, fibre, speed, a):
    """Force F of a muscle [N], with its length [m] and the fibre length and speed of `muscle_state`; none pushes."""
    if m.supply > 0.0:
        force = braid_force(m.supply * a, length - c[k + SLACK], c[k + THREAD], c[k + TURNS])
        return switch(force, force, 0.0 * force)
    return c[k] * tension(a, fibre, speed)


@register_jitable
def muscle_torque(m, c, k, q, w, a, known=None):
    """Torque of a muscle with activation a [N m]."""
    length, arm, fibre, speed = muscle_state(m, c, k, q, w, known)
    return arm * muscle_force(m, c, k, length, fibre, speed, a)


@register_jitable
def stop_torque(g, q):
    """Torque of the ends of the elbow's range: linear beyond them, smooth [N m]."""
    below, above = (g.lower - q) / STOP_WIDTH, (q - g.upper) / STOP_WIDTH
    return STOP_STIFFNESS * STOP_WIDTH * (np.log(1.0 + np.exp(below)) - np.log(1.0 + np.exp(above)))


@register_jitable
def resistance(g, c, w):
    """Torque of damping and dry friction, against a speed w [N m]."""
    fading = np.exp(-2.0 * switch(w, w, -w) / g.creep)  # NumPy's tanh of complex numbers overflows
    share = (1.0 - fading) / (1.0 + fading)
    return c[DAMPING] * w + c[FRICTION] * switch(w, share, -share)


@register_jitable
def net_torque(g, c, q, w, first, second, biceps=None, triceps=None):
    """Sum of all torques at angle q, speed w and activations of biceps and triceps, with their `tangents` if known [N m]."""
    muscles = muscle_torque(g.biceps, c, BICEPS, q, w, first, biceps)
    muscles += muscle_torque(g.triceps, c, TRICEPS, q, w, second, triceps)
    along, across = g.moment[0] + c[LOAD] * g.load[0], g.moment[1] + c[LOAD] * g.load[1]
    weight = g.gravity * (along * np.sin(q) + across * np.cos(q))
    return muscles - weight - resistance(g, c, w) + stop_torque(g, q)


@register_jitable
def inertia(g, c):
    """Moment of inertia J of forearm and load [kg m^2]."""
    return g.inertia + c[LOAD] * g.reach * g.reach


@register_jitable
def both_tangents(g, c):
    """Last arguments of `balance`."""
    return muscle_tangents(g.biceps, c, BICEPS), muscle_tangents(g.triceps, c, TRICEPS)


@register_jitable
def balance(g, c, h, q, v, w, first, second, known):
    """Residual 2 J (w - v) - h tau, zero for the w of a step; `known`: `both_tangents`."""
    return 2.0 * inertia(g, c) * (w - v) - h * net_torque(g, c, q + 0.5 * h * w, w, first, second, known[0], known[1])


@register_jitable
def activations(g, c, a, e, h):
    """Activation at the middle and end of a step under excitation e; pressures by the lag of the valve."""
    if g.biceps.supply > 0.0:
        return filled(a, e, np.exp(-0.5 * h / c[LAG])), filled(a, e, np.exp(-h / c[LAG]))
    return activated(a, e, c[RISE], c[FALL], h)
