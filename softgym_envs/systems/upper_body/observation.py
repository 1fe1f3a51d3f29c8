"""Numba kernel of the upper body's observations: NumPy calls on a row cost more than their arithmetic.

Legend: B batch, n joints.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...core.simulator import Array
from ...engines.numba.engine import kernel
from ...mechanics.kernels import new_links, place_links
from ...mechanics.mechanism import Mechanism
from ...mechanics.structure import place_frame
from ...mechanics.vectors import add, mat, rotate, vec


class BodyHand(NamedTuple):
    """The tree up to the hand's joint, and the hand's place on it."""

    tree: Any
    joint: int
    origin: Array
    """(1, 3)"""


def hand_of(mechanism: Mechanism, frame: str) -> BodyHand:
    """A frame of the tree that moves with a link."""
    ride = place_frame(mechanism.tree, mechanism.tree.frame(frame))
    return BodyHand(mechanism.structure.skeleton.up_to(ride.joint), ride.joint, ride.origin.reshape(1, 3).copy())


@kernel
def watch_hand(hand, state, context, period, tolerance, hold_time):  # type: ignore[no-untyped-def]
    """Update the columns of context (B, 9) behind the goal, at states (B, 2 n), `period` [s] later.

    Distance from the goal [m], time for which it has been held [s], whether that was long enough, and the way to it [m].
    """
    x, q = new_links(hand.tree), np.empty(len(hand.tree.parent))
    for b in range(len(state)):
        for i in range(len(q)):
            q[i] = state[b, i]
        place_links(hand.tree, q, x)
        place = add(vec(x.at, hand.joint), rotate(mat(x.turn, hand.joint), vec(hand.origin, 0)))
        square = 0.0
        for axis in range(3):
            context[b, 6 + axis] = context[b, axis] - place[axis]
            square += context[b, 6 + axis] ** 2
        context[b, 3] = np.sqrt(square)
        context[b, 4] = context[b, 4] + period if context[b, 3] <= tolerance else 0.0
        if context[b, 4] >= hold_time - 1e-9:
            context[b, 5] = 1.0


@kernel
def reach_terms(action, muscles, before, after, bonus, weight, found):  # type: ignore[no-untyped-def]
    """Terms of the reward (3, B): minus the distance, bonus for a goal reached, weight |use|^2; excitations come first."""
    for b in range(len(action)):
        total = 0.0
        for k in range(action.shape[1]):
            total += (0.5 * (action[b, k] + 1.0) if k < muscles else action[b, k]) ** 2
        found[0, b], found[1, b], found[2, b] = -after[b, 3], bonus * (after[b, 5] - before[b, 5]), weight * total
