"""What `scripts/identify.py` needs of this room: the simulator, the constants to fit, and columns that are no state entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from .contact import MODES
from .dynamics import TensegritySimulator
from .model import prism, superball
from .parameters import CONTACT

Array = NDArray[np.float64]

ROBOTS = {"superball": superball, "prism": prism}
BODY = ("cable_stiffness", "cable_damping", "motor_speed", "motor_gain")
"""Constants that a recording in the air shows (with the rods' mass known)."""


@dataclass(frozen=True)
class Setup:
    """A `sysid.problem.IdentificationSetup`."""

    simulator: TensegritySimulator
    free: tuple[str, ...]

    def measurement(self, names: tuple[str, ...]) -> tuple[Callable[[Array], Array], tuple[str, ...]] | None:
        """Columns "com.x" (of the centre of mass) and "node3.x" or "point3.x" (of node 3) [m]; None if there are none."""
        model, picks = self.simulator.model, []
        for name in names:
            match = re.fullmatch(r"(com|(?:node|point)(\d+))\.([xyz])", name)
            if match:
                node = -1 if match[2] is None else int(match[2])
                if node >= 2 * model.num_rods:
                    raise OptionError(f"column {name!r}: nodes are 0 ... {2 * model.num_rods - 1}")
                picks.append((name, node, "xyz".index(match[3])))
        if not picks:
            return None
        nodes, axes = (np.array([pick[i] for pick in picks]) for i in (1, 2))

        def measure(states: Array) -> Array:
            points = np.concatenate([model.node_positions(states), model.center_of_mass(states)[..., None, :]], axis=-2)
            return np.asarray(points[..., nodes, axes])

        return measure, tuple(pick[0] for pick in picks)


def setup(variant: str = "") -> Setup:
    """`variant` is words joined by commas: a robot (superball, prism), a contact mode (paper, stick, patch), or "air".

    "air" holds rod 0 fixed and frees the constants of cables and motors; else those of the contact mode are freed too.

    Raises:
        OptionError: An unknown word.
    """
    robot, contact, held = "superball", "patch", False
    for word in filter(None, variant.split(",")):
        if word in ROBOTS:
            robot = word
        elif word in MODES:
            contact = word
        elif word == "air":
            held = True
        else:
            raise OptionError(f"variant has {word!r}; allowed are air, {', '.join(ROBOTS)}, {', '.join(MODES)}")
    simulator = TensegritySimulator(ROBOTS[robot](), contact=contact, fixed_rod=0 if held else None)
    return Setup(simulator, BODY if held else CONTACT[contact])
