"""Ways of a vine robot that touches nothing: one bend per section, constant while it grows, so that it stays on its way.

Layouts draw a goal as the end of a way, and put obstacles beside it. Legend: B batch, N links, K sections, k points of a line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...core.simulator import Array
from .model import VineModel

BATCH = 100
"""Number of ways drawn at once."""
LOOKED = 10
"""Number of these that are checked together: mostly one of the first is accepted."""
TRIALS = 10
"""Number of batches that are tried."""


class Way(NamedTuple):
    """The axis of a robot of one length with one bend in every section."""

    bend: Array
    """(K,) [1/m]"""
    axis: Array
    """(N + 1, 2) [m]; beyond the length all points are the end."""

    @property
    def goal(self) -> Array:
        """End of the way, (2,) [m]."""
        return self.axis[-1]

    def early(self, model: VineModel) -> Array:
        """Axes of the robot before it grows, from straight to bent as on this way, (5, N + 1, 2) [m]."""
        shares = np.linspace(0.0, 1.0, 5)[:, None]
        return bent_axes(model, np.full(5, 1.2 * model.initial_length), shares * self.bend)

    def all_axes(self, model: VineModel) -> Array:
        """`early`, then the way itself, (6, N + 1, 2) [m]."""
        return np.concatenate([self.early(model), self.axis[None]])

    def at(self, station: float) -> tuple[Array, float]:
        """Point (2,) [m] and heading [rad] at a distance from the base [m]."""
        steps = np.diff(self.axis, axis=0)
        sizes = np.hypot(steps[:, 0], steps[:, 1])
        link = min(int(np.searchsorted(np.cumsum(sizes), station)), len(sizes) - 1)
        along = (station - sizes[:link].sum()) / max(sizes[link], 1e-9)
        return self.axis[link] + along * steps[link], float(np.arctan2(steps[link, 1], steps[link, 0]))


def bent_axes(model: VineModel, length: Array, bend: Array) -> Array:
    """Joints of robots of lengths (B,) [m] with one bend per section (B, K) [1/m], (B, N + 1, 2) [m]."""
    bend = bend[:, np.minimum(model.section_of_joint, bend.shape[1] - 1)]
    steps = np.diff(np.minimum(np.arange(model.num_links + 1) * model.link_length, length[:, None]), axis=1)
    theta = model.base[2] + (np.cumsum(bend, axis=1) - 0.5 * bend) * model.link_length
    ends = np.cumsum(steps[..., None] * np.stack([np.cos(theta), np.sin(theta)], axis=-1), axis=1)
    return np.asarray(np.array(model.base[:2]) + np.concatenate([np.zeros((len(length), 1, 2)), ends], axis=1))


def suggested(model: VineModel, goals: Array) -> Array:
    """Ways that goals (B, 2) suggest by themselves: an arc from the base, and a straight line, (B, k, 2) [m]."""
    x, y, heading = model.base
    c, s = np.cos(heading), np.sin(heading)
    ahead, aside = ((goals - (x, y)) @ np.array([[c, -s], [s, c]])).T
    bend = 2.0 * aside / (ahead**2 + aside**2)
    distance, turn = np.hypot(ahead, aside), np.arctan2(aside, ahead)
    length = np.minimum(distance / np.sinc(turn / np.pi), model.max_length)
    arc = bent_axes(model, length, np.repeat(bend[:, None], max(1, model.num_sections), axis=1))
    line = (x, y) + np.linspace(0.0, 1.0, 40)[:, None] * (goals - (x, y))[:, None]
    return np.concatenate([arc, line], axis=1)


def random_ways(
    model: VineModel,
    rng: np.random.Generator,
    lengths: tuple[float, float],
    largest: float,
    *,
    station: float = 0.0,
    beside: float = -1.0,
) -> Iterator[Way]:
    """Sample ways that are uniform in length and bends, `BATCH * TRIALS` at most.

    Args:
        model: The robot.
        rng: Random numbers.
        lengths: (low, high) [m].
        largest: Largest bend of a section [1/m].
        station: A place on the way, from the base [m].
        beside: Least distance [m] of the ways that the goal suggests from that place.
    """
    link = round(station / model.link_length)
    for _ in range(TRIALS):
        length = rng.uniform(*lengths, BATCH)
        bend = largest * rng.uniform(-1.0, 1.0, (BATCH, max(1, model.num_sections)))
        for first in range(0, BATCH, LOOKED):
            some = slice(first, first + LOOKED)
            axes = bent_axes(model, length[some], bend[some])
            for k in np.flatnonzero(_distance(model, axes, link) > beside if beside >= 0.0 else np.ones(LOOKED)):
                yield Way(bend[first + k], axes[k])


def _distance(model: VineModel, axes: Array, link: int) -> Array:
    """Smallest distance of the ways that goals at the end of axes (B, N + 1, 2) suggest from joint `link`, (B,) [m]."""
    return np.asarray(np.linalg.norm(suggested(model, axes[:, -1]) - axes[:, link, None], axis=-1).min(axis=1))
