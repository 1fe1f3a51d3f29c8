"""What `scripts/identify.py block` and `particles` need: the simulator, the constants to fit; columns are state entries.

A recording holds the positions that a camera sees: "x", "y" and "theta" of the block in the table's frame, "x" and "y" of a
particle ("particle0.x", ... if there are several). Without control columns no force was applied but weight and string.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.complementarity import ComplementarityForm
from ..core.errors import FileFormatError, OptionError, StructureError
from ..core.files import read_toml
from ..core.simulator import check_number
from ..core.trajectory import Trajectory
from .dynamics import BlockSimulator, ParticleSimulator
from .model import BlockModel, ParticleModel

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


def load_block(path: str | Path) -> BlockModel:
    """Read the geometry of a block from a TOML file, in m; points are in the block's frame, from its centre of mass.

    The form::

        [block]                                                   # entries are those of `BlockModel`, all optional
        supports = [[0.06, 0.0], [-0.05, 0.06], [-0.05, -0.06]]   # three points that touch the table
        attachment = [0.1, 0.04]                                  # where the string is tied
        pulley = [1.2, 0.3]                                       # in the table's frame; without this entry: no string

    Raises:
        FileFormatError: No such file, not TOML, unknown entries, entries of the wrong kind.
        StructureError: The centre of mass is not between the supports.
    """
    document = read_toml(path)
    table = document.get("block")
    if set(document) != {"block"} or not isinstance(table, dict):
        raise FileFormatError(f"{path}: it has {', '.join(document) or 'nothing'}; expected one table [block]")
    allowed = [f.name for f in fields(BlockModel)]
    for key in table:
        if key not in allowed:
            raise FileFormatError(f"{path}: [block] has {key!r}; allowed are {', '.join(allowed)}")
    try:
        return BlockModel(**{"pulley": None, **{key: _points(value) for key, value in table.items()}})
    except (StructureError, OptionError) as error:
        raise type(error)(f"{path}: {error}") from None
    except TypeError as error:
        raise FileFormatError(f"{path}: [block] has {error}") from None


def _points(value: Any) -> Any:
    """Lists as tuples of numbers, all the way down; numbers as they are."""
    if isinstance(value, list):
        return tuple(_points(entry) for entry in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r}, which is no number")
    return value


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
