"""Numba kernels of the tasks' observations: dozens of NumPy calls on a row cost more than their arithmetic.

Structures come as plain tuples (`engines.numba.engine.plain`). Legend: B batch, n coordinates, k wanted points.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from ...engines.numba.engine import kernel, lean
from ...mechanics.kernels import new_places, place_links
from ...mechanics.structure import Skeleton, place_frame
from ...mechanics.vectors import add, mat, rotate, rotate_back, times, vec
from .model import LoopModel


class LoopHand(NamedTuple):
    """The tree up to the hand's joint, and the hand's pose on it."""

    tree: Any
    joint: int
    rotation: Array
    """(1, 9)"""
    origin: Array
    """(1, 3)"""


def hand_of(model: LoopModel) -> LoopHand:
    """The frame "H" of a model's arm."""
    tree = model.mechanism.tree
    ride = place_frame(tree, tree.frame("H"))
    carriers = model.mechanism.structure.skeleton.up_to(ride.joint)
    return LoopHand(carriers, ride.joint, ride.rotation.reshape(1, 9).copy(), ride.origin.reshape(1, 3).copy())


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
    """Write way and rotation vector, in the world's axes, from one pose to another less than half a turn away into (6,)."""
    back = (R0[0], R0[3], R0[6], R0[1], R0[4], R0[7], R0[2], R0[5], R0[8])
    R = times(R1, back)
    axis = (0.5 * (R[7] - R[5]), 0.5 * (R[2] - R[6]), 0.5 * (R[3] - R[1]))
    sine = np.sqrt(axis[0] ** 2 + axis[1] ** 2 + axis[2] ** 2)
    angle = np.arctan2(sine, 0.5 * (R[0] + R[4] + R[8] - 1.0))
    for k in range(3):
        out[k] = p1[k] - p0[k]
        out[3 + k] = axis[k] * (angle / sine if sine > 1e-12 else 1.0)


class Bending(NamedTuple):
    """Parameters of all profiles of an arm; see `systems.loop.bend`."""

    start: Array
    """Initial angles of the arm (7,) [rad]."""
    directions: Array
    """Their change per unit of stretch, bends and twist, (7, 4)."""
    duration: float
    """[s]"""


@lean
def bent(bending, drawn, time, angles):  # type: ignore[no-untyped-def]
    """Angles of the arm (7,) on the profile of amounts and period `drawn` (5 or more,) at a time, which may be past its end."""
    share = 0.5 * (1.0 - np.cos(2.0 * np.pi * min(time, bending.duration) / drawn[4]))
    for i in range(len(angles)):
        change = 0.0
        for k in range(4):
            change += drawn[k] * bending.directions[i, k]
        angles[i] = bending.start[i] + share * change


@kernel
def profiles(bending, drawn, times, angles):  # type: ignore[no-untyped-def]
    """Angles of the arm (B, 7) on profiles `drawn` (B, 5 or more) at times (B,)."""
    profile = Bending(*bending)
    for b in range(len(angles)):
        bent(profile, drawn[b], times[b], angles[b])


@kernel
def look_along(hand, bending, arm, drawn, times, ahead, seen):  # type: ignore[no-untyped-def]
    """From the hand at angles of the arm (B, 7) to its wanted pose now, and from there to that `ahead` [s] later: (B, 12)."""
    grip, profile = LoopHand(Skeleton(*hand[0]), hand[1], hand[2], hand[3]), Bending(*bending)
    x, q, wanted = new_places(grip.tree), np.empty(len(grip.tree.parent)), np.empty(len(profile.start))
    for b in range(len(arm)):
        _look(grip, profile, arm[b], drawn[b], times[b], ahead, seen[b], x, q, wanted)


@lean
def _look(hand, bending, arm, drawn, time, ahead, seen, x, q, wanted):  # type: ignore[no-untyped-def]
    """One row of `look_along`; x, q, wanted are scratch memory."""
    R0, p0 = hand_pose(hand, arm, q, x)
    bent(bending, drawn, time, wanted)
    R1, p1 = hand_pose(hand, wanted, q, x)
    bent(bending, drawn, time + ahead, wanted)
    R2, p2 = hand_pose(hand, wanted, q, x)
    put_between(R0, p0, R1, p1, seen[:6])
    put_between(R1, p1, R2, p2, seen[6:])


@kernel
def follow(hand, bending, state, context, period, ahead, lever, tolerance):  # type: ignore[no-untyped-def]
    """Update contexts (B, 21) of `systems.loop.bend` at states (B, nx), `period` [s] later, in place."""
    grip, profile = LoopHand(Skeleton(*hand[0]), hand[1], hand[2], hand[3]), Bending(*bending)
    x, q, wanted = new_places(grip.tree), np.empty(len(grip.tree.parent)), np.empty(len(profile.start))
    for b in range(len(state)):
        row = context[b]
        row[5] += period
        seen = row[9:]
        _look(grip, profile, state[b, : len(wanted)], row, row[5], ahead, seen, x, q, wanted)
        way = np.sqrt(seen[0] ** 2 + seen[1] ** 2 + seen[2] ** 2)
        row[6] = way + lever * np.sqrt(seen[3] ** 2 + seen[4] ** 2 + seen[5] ** 2)
        row[7] += period * row[6]
        row[8] = 1.0 if row[5] >= profile.duration - 1e-9 and row[7] <= tolerance * row[5] else 0.0


@kernel
def watch_goal(tree, joints, state, context, period, tolerance, hold_time):  # type: ignore[no-untyped-def]
    """Last columns of context (B, 3 k + 3), goals and then distance, time held, reached, at states (B, 2 n), `period` later.

    Distance is the mean from the links' beginnings (k,) to their goals [m].
    """
    skeleton = Skeleton(*tree)
    x, q = new_places(skeleton), np.empty(len(skeleton.parent))
    for b in range(len(state)):
        for i in range(len(q)):
            q[i] = state[b, i]
        place_links(skeleton, q, x)
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
    """Rotation R_z(yaw) R_y(pitch) R_x(roll) of a peg (6,): x, y, z, roll, pitch, yaw. See `mechanics.structure.rotation`."""
    a, b, c = np.cos(peg[3]), np.cos(peg[4]), np.cos(peg[5])
    i, j, k = np.sin(peg[3]), np.sin(peg[4]), np.sin(peg[5])
    return b * c, i * j * c - a * k, a * j * c + i * k, b * k, i * j * k + a * c, a * j * k - i * c, -j, i * b, a * b


@lean
def winding(points):  # type: ignore[no-untyped-def]
    """Winding number of a closed polygon (k, 2 or more) around the origin, without sign."""
    total = 0.0
    for k in range(len(points)):
        px, py, nx, ny = points[k - 1, 0], points[k - 1, 1], points[k, 0], points[k, 1]
        total += np.arctan2(px * ny - py * nx, px * nx + py * ny)
    return abs(np.rint(total / (2.0 * np.pi)))


class Pegging(NamedTuple):
    """The arm with its loop, and the task's settings; see `systems.loop.peg`."""

    tree: Any
    joint: int
    """Joint that carries the hand."""
    origin: Array
    """(1, 3) place of the hand on it."""
    ring: NDArray[np.int64]
    """Joints that begin the loop's links, in this order (k,)."""
    axes: Array
    """Aside, down, ahead, as columns (3, 3)."""
    middle: float
    """Distance of the loop's middle below the hand [m]."""
    goal_depth: float
    """[m]"""
    depth: float
    """[m]"""
    hold_time: float
    """[s]"""


@kernel
def look_at_peg(pegging, torques, state, context, period):  # type: ignore[no-untyped-def]
    """Update contexts (B, 21) of `systems.loop.peg` in place, at states (B, 2 n), `period` [s] later, torques (B, 7) [N m].

    Columns: these torques, the peg; the tip from the loop's middle; distance of that middle from its place on the peg [m], how
    often the loop winds around the peg's axis, least depth of its joints beyond the tip [m]; time for which they are there,
    whether that was long enough.
    """
    g = Pegging(Skeleton(*pegging[0]), *pegging[1:])
    x, q, points = new_places(g.tree), np.empty(len(g.tree.parent)), np.empty((len(g.ring), 3))
    for b in range(len(state)):
        row, peg = context[b], context[b, 7:13]
        for i in range(len(q)):
            q[i] = state[b, i]
        place_links(g.tree, q, x)
        hand = add(vec(x.at, g.joint), rotate(mat(x.turn, g.joint), vec(g.origin, 0)))
        ahead, depth = _ring_on_peg(g, x, peg, points)
        off = (peg[0] - hand[0], peg[1] - hand[1], peg[2] - hand[2] + g.middle)
        for k in range(torques.shape[1]):
            row[k] = torques[b, k]
        for k in range(3):
            row[13 + k] = off[0] * g.axes[0, k] + off[1] * g.axes[1, k] + off[2] * g.axes[2, k]
        row[16], row[17], row[18] = ahead, winding(points), depth
        row[19] = row[19] + period if row[17] == 1.0 and depth >= g.depth else 0.0
        row[20] = max(row[20], 1.0 if row[19] >= g.hold_time - 1e-9 else 0.0)


@lean
def _ring_on_peg(g, x, peg, points):  # type: ignore[no-untyped-def]
    """Distance of the loop's middle from its place on the peg, least depth of its joints [m]; points (k, 3) from the tip."""
    axes, tip = peg_axes(peg), (peg[0], peg[1], peg[2])
    aside, down, ahead, depth = 0.0, 0.0, 0.0, np.inf
    for k in range(len(g.ring)):
        at = vec(x.at, g.ring[k])
        local = rotate_back(axes, (at[0] - tip[0], at[1] - tip[1], at[2] - tip[2]))
        points[k, 0], points[k, 1], points[k, 2] = local
        aside, down, ahead, depth = aside + local[0], down + local[1], ahead + local[2], min(depth, local[2])
    count = len(g.ring)
    return np.hypot(np.hypot(aside / count, down / count), ahead / count - g.goal_depth), depth


@kernel
def arm_terms(action, before, after, loss, gain, bonus, weight, found):  # type: ignore[no-untyped-def]
    """Terms of a reward (3, B): minus column `loss`, bonus for the gain of `gain`, weight |action|^2."""
    for b in range(len(action)):
        total = 0.0
        for k in range(action.shape[1]):
            total += action[b, k] * action[b, k]
        found[0, b], found[1, b], found[2, b] = -after[b, loss], bonus * (after[b, gain] - before[b, gain]), weight * total


@kernel
def feel(start, first, state, context, columns, less, found):  # type: ignore[no-untyped-def]
    """Observations (B, no): angles of the arm from `start` (7,); the state from entry `first` on; columns of context - less.

    As much of the state follows as fits.
    """
    arm = len(start)
    middle = found.shape[1] - len(columns)
    for b in range(len(state)):
        for i in range(arm):
            found[b, i] = state[b, i] - start[i]
        for i in range(middle - arm):
            found[b, arm + i] = state[b, first + i]
        for i in range(len(columns)):
            found[b, middle + i] = context[b, columns[i]] - less[i]
