"""Interface of a system for drawing and driving by hand: its `picture.py` has one value that satisfies `Picture`.

Legend: nx state, nu control, na actions, k trail points, P tracked points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from ..core.errors import OptionError
from ..core.parameters import Parameters
from ..core.simulator import Array
from .scene import Scene

HINTS = ("goal", "velocity", "trail", "pose", "rays", "way")
"""Hints that a scene may show beside the robot: a point (3,) [m], a velocity (3,) [m/s], earlier positions (k, 3) [m],
a pose on the table (3,) [m, m, rad], range readings from where to where (k, 2, 3) [m], a way to follow (k, 3) [m]. A picture
shows those that mean something for its robot."""


@runtime_checkable
class Picture(Protocol):
    """Draws the robots of a system, follows them, and turns keys into actions; every method is a pure function."""

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys and what they do to the robot: "arrows" ask for a heading, "1-6" for groups of controls; see `teleop`."""

    def scene(self, simulator: Any, state: Array, hints: Mapping[str, Array], parameters: Parameters) -> Scene:
        """The scene of one state (nx,) with the hints (see `HINTS`) and parameters given.

        Raises:
            ShapeError: The state or a hint has the wrong shape, or is not finite.
        """

    def followed(self, model: Any, state: Array) -> Array:
        """Position of the robot that the picture follows and that leaves the trail, (3,) [m]."""

    def heading_action(self, model: Any, state: Array, heading: Array) -> Array:
        """The action (na,) in -1 ... 1 that moves the robot towards `heading` (2,), a horizontal unit vector."""

    def rest_action(self, model: Any) -> Array:
        """The action (na,) without any key."""


class BasePicture:
    """A `Picture` with defaults for all but `scene`, which a subclass defines."""

    keys: ClassVar[Mapping[str, str]] = {"1-6": "groups of controls back"}

    def followed(self, model: Any, state: Array) -> Array:
        """The origin, (3,) [m]."""
        return np.zeros(3)

    def heading_action(self, model: Any, state: Array, heading: Array) -> Array:
        """Rest action (na,): the arrows do nothing."""
        return self.rest_action(model)

    def rest_action(self, model: Any) -> Array:
        """The middle of every control's range, (na,)."""
        return np.zeros(len(model.control_names))


@runtime_checkable
class PointOverlay(Protocol):
    """Draws tracked points over a fitted robot; a picture offers it or not."""

    def overlay(self, model: Any, fitted: Array, measured: Array) -> Scene:
        """The scene of one instant.

        Args:
            model: The robot.
            fitted: Points of the fitted robot, (P, 2) [m].
            measured: The same points as they were measured, (P, 2) [m]; NaN where they were lost.
        """


def check_hints(hints: Mapping[str, Array] | None) -> dict[str, Array]:
    """The hints as a dictionary.

    Raises:
        OptionError: Unknown hint.
    """
    for name in hints or {}:
        if name not in HINTS:
            raise OptionError(f"unknown hint {name!r}; allowed are {', '.join(HINTS)}")
    return dict(hints or {})


def shown(hints: Mapping[str, Array], *names: str) -> dict[str, Array]:
    """The given hints among these names."""
    return {name: hints[name] for name in names if name in hints}
