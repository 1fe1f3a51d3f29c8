"""Observations of a tensegrity robot that the tasks share.

Everything is expressed in the *command frame*: z up, x along the commanded horizontal direction h. A robot that is turned
together with its command observes the same numbers.

Legend: B batch, R rods, N = 2R nodes, nc context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...core.simulator import Array
from ...core.task import Entry
from ...engines.numba.engine import kernel
from ...engines.warp.row_kernel import RowKernel
from .heights import height_at
from .model import TensegrityModel
from .task_kernels import COM_X, COM_Y, COM_Z, GROUND, HEIGHT, HX, HY, NODE, OBSERVE, SCALE

SPEED_BOUND = 50.0
"""[m/s] Observed velocities are clipped here."""
HEADING, COM = slice(HX, HY + 1), slice(COM_X, COM_Z + 1)
"""Columns of a context: h, and the position of the centre of mass [m]."""


@dataclass(frozen=True, eq=False)
class RowFeatures:
    """Observations of one robot's states (B, nx)."""

    model: TensegrityModel

    def observer(self, columns: Sequence[int], context_size: int) -> RowKernel:
        """(state (B, nx), context (B, nc)) -> (B, 12 R + nu + k): see `entries`; then k further columns of the context."""
        model = self.model
        structure = (0.5 * model.rod_lengths, 1.0 / model.control_limit, np.array([HEIGHT, *columns], dtype=np.int32))
        width = 2 * NODE * model.num_rods + model.nu + 1 + len(columns)
        return RowKernel(OBSERVE, structure, (model.layout.nx, context_size), width)

    def entries(self) -> tuple[Entry, ...]:
        """Meaning and bounds of the entries that an `observer` writes before the further columns."""
        model = self.model
        reach = 3.0 * float(model.rod_lengths.max())
        position = [Entry(axis, "m", -reach, reach) for axis in ("x", "y", "z")]
        velocity = [Entry(axis, "m/s", -SPEED_BOUND, SPEED_BOUND) for axis in ("vx", "vy", "vz")]
        point = (*position, *velocity)
        nodes = [Entry(f"node{n}.{e.name}", e.unit, e.low, e.high) for n in range(2 * model.num_rods) for e in point]
        motors = [Entry(f"motor{c}", "of range", -1.0, 1.0) for c in model.actuated]
        return (*nodes, *motors, Entry("com.height", "m", -reach, 10.0 + reach))

    def state_entries(self) -> tuple[Entry, ...]:
        """Meaning and bounds of the full state."""
        bounds, limit = {"-": 1.0, "m/s": SPEED_BOUND, "rad/s": 1e3, "m": 1e4}, self.model.control_limit
        layout = self.model.layout
        rods, _ = layout.slices
        table = [(name, unit, bounds[unit]) for name, unit in zip(layout.names[rods], layout.units[rods], strict=True)]
        motors = [Entry(f"motor{c}", "-", -limit, limit, scale=limit) for c in self.model.actuated]
        return (*(Entry(name, unit, -bound, bound) for name, unit, bound in table), *motors)


def to_world(vectors: Array, heading: Array) -> Array:
    """Horizontal vectors (B, 2) of the command frame in the world frame: x' = h_x x - h_y y, y' = h_y x + h_x y."""
    x, y, hx, hy = vectors[:, 0], vectors[:, 1], heading[:, 0], heading[:, 1]
    return np.stack([hx * x - hy * y, hy * x + hx * y], axis=1)


@kernel
def feel(field, patch, context):  # type: ignore[no-untyped-def]
    """Write ground heights into contexts: under the robot (patch[0] = 0, 0), others at `patch` (k, 2) [m] relative to that.

    `patch` is in the command frame. Heights of the centre of mass become those over the ground.
    """
    for b in range(len(context)):
        hx, hy, scale = context[b, HX], context[b, HY], context[b, SCALE]
        for k in range(len(patch)):
            x = context[b, COM_X] + (hx * patch[k, 0] - hy * patch[k, 1])
            y = context[b, COM_Y] + (hy * patch[k, 0] + hx * patch[k, 1])
            context[b, GROUND + k] = height_at(field, x, y, scale) - (context[b, GROUND] if k else 0.0)
        context[b, HEIGHT] -= context[b, GROUND]
