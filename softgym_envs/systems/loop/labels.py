"""Wrong labels of an arm's recording: signs and names that the torques at rest contradict.

An arm at rest is held by torques against its weight, which its angles determine; a loop adds little. Where recorded torques are
far from these, and exchanged names or turned signs make them fit, the recording is refused with that in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ...core.errors import DataError
from ...core.simulator import Array
from ...mechanics.mechanism import Mechanism
from .model import ARM, LoopModel

LABEL_ERROR = 0.5
"""Error of the torques at rest, as a share of their size, above which other labels are tried."""
FITS = 0.2
"""Largest share of that error that remains where other labels fit."""
HEAVY = 5.0
"""[N m] Torques at rest below this show nothing."""


class _Reading(NamedTuple):
    """Angles and torques (7,) as they may have been meant."""

    words: str
    angles: Array
    torques: Array


def check_labels(model: LoopModel, angles: Array, torques: Array) -> None:
    """Compare torques (7,) [N m] with those that hold the arm at rest at angles (7,) [rad].

    Raises:
        DataError: They do not fit, and other labels do.
    """
    given, *others = _readings(angles, torques)
    arm = Mechanism(model.arm, 0.01, model.parameter_names)
    parameter_values = np.repeat(model.tree_constants(model.defaults[None]), 1 + len(others), axis=0)
    needed = arm.rest(
        np.stack([angles, *(reading.angles for reading in others)]), parameter_values=parameter_values, held=ARM
    ).needed
    size = max(float(np.linalg.norm(needed[0])), float(np.linalg.norm(torques)))
    error = float(np.linalg.norm(given.torques - needed[0]))
    if size < HEAVY or error < LABEL_ERROR * size:
        return
    if np.linalg.norm(torques) < FITS * error:
        raise DataError(
            f"torques at rest are up to {np.abs(torques).max():.2g} N m, and this arm's weight takes up to "
            f"{np.abs(needed[0]).max():.2g} N m: is it compensated elsewhere? Give whole torques"
        )
    left = np.array([np.linalg.norm(reading.torques - own) for reading, own in zip(others, needed[1:], strict=True)])
    best = int(np.argmin(left))
    if left[best] < FITS * error:
        raise DataError(
            f"torques at rest are {error:.3g} N m off those that hold this arm at its angles, and {left[best]:.2g} N m with "
            f"{others[best].words}: correct the file"
        )


def _readings(angles: Array, torques: Array) -> Iterator[_Reading]:
    """The recording as it is, and with one mistake undone."""
    yield _Reading("", angles, torques)
    yield _Reading("all torques of the other sign", angles, -torques)
    yield _Reading("all angles of the other sign", -angles, torques)
    for joint, name in enumerate(ARM):
        turned = np.where(np.arange(len(ARM)) == joint, -1.0, 1.0)
        yield _Reading(f"the torque of {name} of the other sign", angles, turned * torques)
        yield _Reading(f"the angle of {name} of the other sign", turned * angles, torques)
    for pair in combinations(range(len(ARM)), 2):
        order, names = np.arange(len(ARM)), " and ".join(ARM[joint] for joint in pair)
        order[list(pair)] = pair[::-1]
        yield _Reading(f"{names} exchanged", angles[order], torques[order])
        yield _Reading(f"torques of {names} exchanged", angles, torques[order])
        yield _Reading(f"angles of {names} exchanged", angles[order], torques)
