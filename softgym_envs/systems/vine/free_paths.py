"""Ways of a vine robot that touches nothing: one bend per section, constant while it grows, so that it stays on its way.

Layouts draw a goal as the end of a way, and put obstacles beside it. Random numbers of a row come from its own generator, all
geometry is computed for many rows at once. Legend: B rows, N links, K sections, k points of a line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...core.simulator import Array
from ...core.task import BoolArray
from .model import VineModel

BATCH = 100
"""Number of ways drawn at once."""
LOOKED = 5
"""Number of these that are checked together: mostly one of the first is accepted."""
TRIALS = 10
"""Number of batches that are tried."""


class Ways(NamedTuple):
    """Axes of robots of one length each, with one bend in every section."""

    bend: Array
    """(B, K) [1/m]"""
    axis: Array
    """(B, N + 1, 2) [m]; beyond the length all points are the end."""

    @property
    def goal(self) -> Array:
        """Ends of the ways, (B, 2) [m]."""
        return self.axis[:, -1]

    def early(self, model: VineModel) -> Array:
        """Axes of the robots before they grow, from straight to bent as on these ways, (B, 5, N + 1, 2) [m]."""
        bend = (np.linspace(0.0, 1.0, 5)[:, None] * self.bend[:, None]).reshape(-1, self.bend.shape[1])
        return bent_axes(model, np.full(len(bend), 1.2 * model.initial_length), bend).reshape(len(self.bend), 5, -1, 2)

    def all_axes(self, model: VineModel) -> Array:
        """`early`, then the ways themselves, (B, 6, N + 1, 2) [m]."""
        return np.concatenate([self.early(model), self.axis[:, None]], axis=1)

    def at(self, station: Array) -> tuple[Array, Array]:
        """Points (B, 2) [m] and headings (B,) [rad] at distances (B,) from the base [m]."""
        steps, every = np.diff(self.axis, axis=1), np.arange(len(self.axis))
        sizes = np.hypot(steps[..., 0], steps[..., 1])
        link = np.minimum((np.cumsum(sizes, axis=1) < station[:, None]).sum(axis=1), sizes.shape[1] - 1)
        before = np.array([size[:end].sum() for size, end in zip(sizes, link, strict=True)])
        along = (station - before) / np.maximum(sizes[every, link], 1e-9)
        step = steps[every, link]
        return self.axis[every, link] + along[:, None] * step, np.arctan2(step[:, 1], step[:, 0])


def bent_axes(model: VineModel, length: Array, bend: Array) -> Array:
    """Joints of robots of lengths (B,) [m] with one bend per section (B, K) [1/m], (B, N + 1, 2) [m]."""
    from .way_kernels import headings, joints  # loads Numba

    section = np.minimum(model.section_of_joint, bend.shape[1] - 1)
    theta, axes = np.empty((len(length), len(section))), np.empty((len(length), len(section) + 1, 2))
    x, y, first = model.base
    headings(np.ascontiguousarray(bend), section, model.link_length, first, theta)
    joints(np.ascontiguousarray(length), model.link_length, np.cos(theta), np.sin(theta), x, y, axes)
    return axes


def arc_to(model: VineModel, goals: Array) -> tuple[Array, Array]:
    """Bends [1/m] and lengths [m] of arcs from the base to goals (B, 2) [m]: (B,) each; none is longer than the robot."""
    x, y, heading = model.base
    c, s = np.cos(heading), np.sin(heading)
    to = goals - (x, y)
    ahead, aside = c * to[:, 0] + s * to[:, 1], c * to[:, 1] - s * to[:, 0]
    bend = 2.0 * aside / (ahead**2 + aside**2)
    distance, turn = np.hypot(ahead, aside), np.arctan2(aside, ahead)
    return bend, np.minimum(distance / np.sinc(turn / np.pi), model.max_length)


def suggested(model: VineModel, goals: Array) -> Array:
    """Ways that goals (B, 2) suggest by themselves: an arc from the base, and a straight line, (B, k, 2) [m]."""
    x, y, _ = model.base
    bend, length = arc_to(model, goals)
    arc = bent_axes(model, length, np.repeat(bend[:, None], max(1, model.num_sections), axis=1))
    line = (x, y) + np.linspace(0.0, 1.0, 40)[:, None] * (goals - (x, y))[:, None]
    return np.concatenate([arc, line], axis=1)


def first_ways(
    model: VineModel,
    rngs: Sequence[np.random.Generator],
    lengths: tuple[float, float],
    largest: float,
    accept: Callable[[NDArray[np.intp], Ways], BoolArray],
    *,
    station: Array | None = None,
    beside: float = 0.0,
    trials: int = TRIALS,
) -> BoolArray:
    """Sample ways of every row, uniform in length and bends, until one is accepted: `BATCH * trials` at most.

    Args:
        model: The robot.
        rngs: Random numbers of the rows, (B,).
        lengths: (low, high) [m].
        largest: Largest bend of a section [1/m].
        accept: Called with rows (k,), none twice, and a way of each; -> which it accepts, (k,).
        station: Places on the rows' ways, from the base (B,) [m]; None: see `beside`.
        beside: Ways are skipped whose goal suggests ways that are nearer to that place [m].
        trials: Number of batches.

    Returns:
        Rows (B,) for which none was accepted.
    """
    left = np.ones(len(rngs), dtype=np.bool_)
    links = None if station is None else np.round(station / model.link_length).astype(np.intp)
    sections, (low, high) = max(1, model.num_sections), lengths
    for _ in range(trials):
        rows = np.flatnonzero(left)
        drawn = np.array([rngs[row].random(BATCH * (1 + sections)) for row in rows.tolist()])
        length = low + (high - low) * drawn[:, :BATCH]
        bend = largest * (-1.0 + 2.0 * drawn[:, BATCH:].reshape(-1, BATCH, sections))
        for first in range(0, BATCH, LOOKED):
            rows, length, bend = rows[left[rows]], length[left[rows]], bend[left[rows]]
            some = bend[:, first : first + LOOKED]
            axes = bent_axes(model, length[:, first : first + LOOKED].ravel(), some.reshape(-1, sections))
            fits: BoolArray = np.ones(len(axes), dtype=np.bool_)
            if links is not None:
                fits = _distance(model, axes, np.repeat(links[rows], LOOKED)) > beside
            each, fits = axes.reshape(-1, LOOKED, *axes.shape[1:]), fits.reshape(-1, LOOKED)
            while len(asked := np.flatnonzero(left[rows] & fits.any(axis=1))):
                k = fits[asked].argmax(axis=1)
                fits[asked, k] = False
                left[rows[asked]] = ~accept(rows[asked], Ways(some[asked, k], each[asked, k]))
            if not left.any():
                return left
    return left


def _distance(model: VineModel, axes: Array, link: NDArray[np.intp]) -> Array:
    """Smallest distances of the ways that goals at the end of axes (B, N + 1, 2) suggest from joints `link`, (B,) [m]."""
    from .way_kernels import nearest

    found = np.empty(len(axes))
    nearest(suggested(model, axes[:, -1]), axes, link, found)
    return found
