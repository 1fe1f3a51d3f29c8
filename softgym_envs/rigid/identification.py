"""What `scripts/identify.py block` and `particles` need: the simulator, the constants to fit; columns are state entries.

A recording holds the positions that a camera sees: "x", "y" and "theta" of the block in the table's frame, "x" and "y" of a
particle ("particle0.x", ... if there are several). Without control columns no force was applied but weight and string.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.complementarity import ComplementarityForm
from ..core.errors import OptionError
from ..core.simulator import check_number
from ..core.trajectory import Trajectory
from .dynamics import BlockSimulator, ParticleSimulator
from .model import BlockModel, ParticleModel
from .scene_file import load_block

Array = NDArray[np.float64]

COARSE = 8
"""Edges of the friction cone in the complementarity form: enough to come near; the simulator's own decide in the end."""
WORDS = "block, particles, count=NUMBER, fps=NUMBER, scene=FILE"


@dataclass(frozen=True)
class Setup:
    """A `sysid.data.problem.ComplementaritySetup`."""

    simulator: ParticleSimulator | BlockSimulator
    free: tuple[str, ...]

    def measurement(self, names: tuple[str, ...]) -> tuple[Callable[[Array], Array], tuple[str, ...]] | None:
        """None: positions are state entries."""
        return None

    def first_state(self, names: tuple[str, ...]) -> Callable[[Trajectory], Array] | None:
        """None: the rest state with the measured entries put in."""
        return None

    def infer_controls(self, trajectory: Trajectory) -> Trajectory:
        """No force where none is recorded."""
        if trajectory.control_names:
            return trajectory
        simulator = self.simulator
        still = np.zeros((trajectory.num_steps, simulator.nu))
        return trajectory.with_controls(still, simulator.control_names, ("N",) * simulator.nu)

    def complementarity(self) -> ComplementarityForm:
        """The physics step for `sysid.mpec`; the block's with a cone of at most `COARSE` edges.

        Raises:
            MissingDependencyError: CasADi is not installed.
        """
        from .symbolic import complementarity_form

        simulator = self.simulator
        if isinstance(simulator, BlockSimulator):
            model = replace(simulator.model, num_directions=min(COARSE, simulator.model.num_directions))
            simulator = BlockSimulator(model, simulator.dt)
        return complementarity_form(simulator)


def setup(variant: str = "") -> Setup:
    """`variant` is words joined by commas: "block" (default) or "particles", then what is known of them.

    - "scene=FILE": geometry of the block, see `load_block`.
    - "count=3": number of particles; every one has its own friction.
    - "fps=60": frames per second of the camera; the physics step is a whole part of a frame.

    >>> setup("particles,count=2").free, setup("fps=60").simulator.dt
    (('friction0', 'friction1'), 0.008333333333333333)

    Raises:
        OptionError: An unknown word, or a value that is not allowed.
    """
    kind, values = "block", {}
    for word in filter(None, variant.split(",")):
        key, _, value = word.partition("=")
        if word in ("block", "particles"):
            kind = word
        elif value and key in ("count", "fps", "scene"):
            values[key] = value
        else:
            raise OptionError(f"variant has {word!r}; allowed are {WORDS}")
    misplaced = "scene" if kind == "particles" else "count"
    if misplaced in values:
        raise OptionError(f"variant has {misplaced}={values[misplaced]}, which means nothing for {kind}")
    if kind == "block":
        model = load_block(values["scene"]) if "scene" in values else BlockModel()
        return Setup(BlockSimulator(model, _timestep(values, BlockSimulator.dt)), ("friction",))
    given = values.get("count", "1")
    count = int(check_number("count", int(given) if given.isdecimal() else given, low=1, high=10_000, whole=True))
    simulator = ParticleSimulator(ParticleModel(count), _timestep(values, ParticleSimulator.dt))
    return Setup(simulator, tuple(name for name in simulator.parameters_class.names() if name.startswith("friction")))


def _timestep(values: dict[str, str], longest: float) -> float:
    """The largest whole part of a frame that is at most `longest` [s]."""
    if "fps" not in values:
        return longest
    fps = check_number("fps", _number(values["fps"]), low=1.0, high=1e5, unit="1/s")
    return 1.0 / (fps * math.ceil(1.0 / (fps * longest) - 1e-9))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
