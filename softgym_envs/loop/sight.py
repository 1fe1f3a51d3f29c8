"""Numba kernels of what the tasks see in every step: dozens of NumPy calls on a row cost more than the arithmetic in them.

Legend: B batch, n coordinates, k wanted points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..core.numba_engine import kernel, lean
from ..core.simulator import Array
from ..mechanics.kernels import new_links, place_links
from ..mechanics.structure import place_frame
from ..mechanics.vectors import add, mat, rotate, rotate_back, times, vec
from .model import LoopModel


class Hand(NamedTuple):
    """The tree, and how the hand sits on its last joint."""

    tree: Any
    joint: int
    rotation: Array
    """(1, 9)"""
    origin: Array
    """(1, 3)"""


def hand_of(model: LoopModel) -> Hand:
    """The frame "H" of a model's arm."""
    tree = model.mechanism.tree
    ride = place_frame(tree, tree.frame("H"))
    return Hand(
        model.mechanism.structure.skeleton, ride.joint, ride.rotation.reshape(1, 9).copy(), ride.origin.reshape(1, 3).copy()
    )


@lean
def hand_pose(hand, arm, q, x):  # type: ignore[no-untyped-def]
    """Rotation (9) and place (3) [m] of the hand at angles of the arm (7,); q (n,) and x are scratch memory."""
    for i in range(len(q)):
        q[i] = arm[i] if i < len(arm) else 0.0
    place_links(hand.tree, q, x)
    turn = mat(x.turn, hand.joint)
    return times(turn, mat(hand.rotation, 0)), add(vec(x.at, hand.joint), rotate(turn, vec(hand.origin, 0)))


@lean
def put_between(R0, p0, R1, p1, out):  # type: ignore[no-untyped-def]
    """Way and rotation vector, in the world's axes, from one pose to another that is less than half a turn away, into (6,)."""
    back = (R0[0], R0[3], R0[6], R0[1], R0[4], R0[7], R0[2], R0[5], R0[8])
    R = times(R1, back)
    axis = (0.5 * (R[7] - R[5]), 0.5 * (R[2] - R[6]), 0.5 * (R[3] - R[1]))
    sine = np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    angle = np.arctan2(sine, 0.5 * (R[0] + R[4] + R[8] - 1.0))
    for k in range(3):
        out[k] = p1[k] - p0[k]
        out[3 + k] = axis[k] * (angle / sine if sine > 1e-12 else 1.0)


class Bending(NamedTuple):
    """What all profiles of an arm have in common; see `loop.bend`."""

    start: Array
    """Angles of the arm at first (7,) [rad]."""
    directions: Array
    """Their change per unit of stretch, bends and twist, (7, 4)."""
    duration: float
    """[s]"""


@lean
def bent(bending, drawn, time, angles):  # type: ignore[no-untyped-def]
    """Angles of the arm (7,) on the profile of amounts and period `drawn` (5 or more,) at a time, which may be too late."""
    share = 0.5 * (1.0 - np.cos(2.0 * np.pi * min(time, bending.duration) / drawn[4]))
    for i in range(len(angles)):
        change = 0.0
        for k in range(4):
            change += drawn[k] * bending.directions[i, k]
        angles[i] = bending.start[i] + share * change


@kernel
def profiles(bending, drawn, times, angles):  # type: ignore[no-untyped-def]
    """Angles of the arm (B, 7) on profiles `drawn` (B, 5 or more) at times (B,)."""
    for b in range(len(angles)):
        bent(bending, drawn[b], times[b], angles[b])


@kernel
def look_along(hand, bending, arm, drawn, times, ahead, seen):  # type: ignore[no-untyped-def]
    """From the hand at angles of the arm (B, 7) to where it should be now, and from there to `ahead` [s] later: (B, 12)."""
    x, q, wanted = new_links(hand.tree), np.zeros(len(hand.tree.parent)), np.empty(len(bending.start))
    for b in range(len(arm)):
        R0, p0 = hand_pose(hand, arm[b], q, x)
        bent(bending, drawn[b], times[b], wanted)
        R1, p1 = hand_pose(hand, wanted, q, x)
        bent(bending, drawn[b], times[b] + ahead, wanted)
        R2, p2 = hand_pose(hand, wanted, q, x)
        put_between(R0, p0, R1, p1, seen[b, :6])
        put_between(R1, p1, R2, p2, seen[b, 6:])


@kernel
def watch_goal(tree, joints, state, context, period, tolerance, hold_time):  # type: ignore[no-untyped-def]
    """Last columns of context (B, 3 k + 3), goals and then distance, time held, reached, at states (B, 2 n), `period` later.

    Distance is the mean of the links' beginnings (k,) from their goals [m].
    """
    x, q = new_links(tree), np.zeros(len(tree.parent))
    for b in range(len(state)):
        for i in range(len(q)):
            q[i] = state[b, i]
        place_links(tree, q, x)
        total = 0.0
        for k in range(len(joints)):
            square = 0.0
            for axis in range(3):
                square += (x.at[joints[k], axis] - context[b, 3 * k + axis]) ** 2
            total += np.sqrt(square)
        distance = total / len(joints)
        held = context[b, -2] + period if distance <= tolerance else 0.0
        context[b, -3], context[b, -2] = distance, held
        if held >= hold_time - 1e-9:
            context[b, -1] = 1.0


@lean
def peg_axes(peg):  # type: ignore[no-untyped-def]
    """R_z(yaw) R_y(pitch) R_x(roll) of a peg (6,): x, y, z, roll, pitch, yaw. See `mechanics.structure.rotation`."""
    a, b, c = np.cos(peg[3]), np.cos(peg[4]), np.cos(peg[5])
    i, j, k = np.sin(peg[3]), np.sin(peg[4]), np.sin(peg[5])
    return b * c, i * j * c - a * k, a * j * c + i * k, b * k, i * j * k + a * c, a * j * k - i * c, -j, i * b, a * b


@kernel
def windings(points):  # type: ignore[no-untyped-def]
    """How often closed polygons (B, k, 2) wind around the origin, without sign (B,)."""
    found = np.empty(len(points))
    for b in range(len(points)):
        found[b] = winding(points[b])
    return found


@lean
def winding(points):  # type: ignore[no-untyped-def]
    """See `windings`; points (k, 2 or more)."""
    total = 0.0
    for k in range(len(points)):
        px, py, nx, ny = points[k - 1, 0], points[k - 1, 1], points[k, 0], points[k, 1]
        total += np.arctan2(px * ny - py * nx, px * nx + py * ny)
    return abs(np.rint(total / (2.0 * np.pi)))


@kernel
def look_at_peg(hand, ring, peg, state, goal_depth, found):  # type: ignore[no-untyped-def]
    """Where a loop is around a peg (B, 6), at states (B, 2 n): columns of (B, 6).

    Place of the hand, distance of the loop's middle from its place on the peg [m], how often the loop winds around the peg's
    axis, and how far all its joints, which begin the links `ring` (k,) in this order, are beyond the tip [m].
    """
    x, q, points = new_links(hand.tree), np.zeros(len(hand.tree.parent)), np.empty((len(ring), 3))
    for b in range(len(state)):
        _, place = hand_pose(hand, state[b, :7], q, x)
        axes, tip = peg_axes(peg[b]), (peg[b, 0], peg[b, 1], peg[b, 2])
        for i in range(len(q)):
            q[i] = state[b, i]
        place_links(hand.tree, q, x)
        aside, down, ahead, depth = 0.0, 0.0, 0.0, np.inf
        for k in range(len(ring)):
            at = vec(x.at, ring[k])
            local = rotate_back(axes, (at[0] - tip[0], at[1] - tip[1], at[2] - tip[2]))
            points[k, 0], points[k, 1], points[k, 2] = local
            aside, down, ahead, depth = aside + local[0], down + local[1], ahead + local[2], min(depth, local[2])
        count = len(ring)
        found[b, 0], found[b, 1], found[b, 2] = place
        found[b, 3] = np.hypot(np.hypot(aside / count, down / count), ahead / count - goal_depth)
        found[b, 4], found[b, 5] = winding(points), depth
