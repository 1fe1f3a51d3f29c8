"""What `scripts/identify.py` needs of this room: the simulator and the constants to fit; columns are state entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.trajectory import Trajectory
from .dynamics import BlockSimulator, ParticleSimulator

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setup:
    """A `sysid.problem.IdentificationSetup`."""

    simulator: ParticleSimulator | BlockSimulator
    free: tuple[str, ...] = ("friction",)

    def measurement(self, names: tuple[str, ...]) -> tuple[Callable[[Array], Array], tuple[str, ...]] | None:
        """None: positions are state entries."""
        return None

    def first_state(self, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
        """None: the rest state with the measured entries put in."""
        return None


def setup(variant: str = "") -> Setup:
    """`variant` is "block" (default) or "particle".

    Raises:
        OptionError: Another word.
    """
    if variant in ("", "block"):
        return Setup(BlockSimulator())
    if variant == "particle":
        return Setup(ParticleSimulator())
    raise OptionError(f"variant is {variant!r}; allowed are block, particle")
