"""The MuJoCo model of arm and loop: the same tree, masses and springs in another engine.

Differences from the native engine, apart from rounding:

* Steps are MuJoCo's implicitfast Euler steps, of first order; springs act explicitly, which limits them (`MAX_TREE_STEP`):
  longer physics steps consist of several.
* Both ends of the loop are welded to the clamp softly, with a time constant of two steps: they yield by micrometres.
* Forces act at once; natively, half a step of 10 ms late.
* A hanging loop is closed by a soft weld of its ends. Its balls touch the peg without friction, too. MuJoCo's contacts are
  damped springs with stiffness proportional to mass. The native contact is a softer spring without damping.
* A control step starts with a cold solver (see `engines.mujoco.engine`).

A state is the same: q, and the speed of the step that led there, which is MuJoCo's qvel. A joint of two angles is two hinges on
one body, about X and then Y. MuJoCo 4.0.0 has a bug in the sparse Newton solver (google-deepmind/mujoco issue 3767), so the
Jacobian is dense by option.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import mujoco

from ...core.simulator import Array
from ...engines.mujoco.engine import MujocoEngine, MujocoSimulator
from ...mechanics.mujoco_tree import spec_of, state_index, write_tree
from .mismatch import LADDER, flawed, harden, with_sensor_errors
from .model import LoopModel

MAX_TREE_STEP = 0.002
"""[s] Explicit springs of a loop of 12 links are stable up to 4.5 ms, and silently wrong by a radian from 5 ms."""
TWISTING = 5e-4
"""[s] Longest step where links twist about themselves, with 1700 rad/s."""


@dataclass(frozen=True, eq=False)
class MujocoLoop(MujocoSimulator):
    """See the module docstring.

    >>> import numpy as np
    >>> mujoco_model = MujocoLoop()
    >>> still = np.tile(mujoco_model.model.hold, (1, 4, 1))
    >>> states, status = mujoco_model.rollout(mujoco_model.initial_state(), still, substeps=50)
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-3), status.tolist()
    (True, [0])
    """

    system = "loop"
    ladder = LADDER
    sensed = with_sensor_errors

    model: LoopModel = field(default_factory=LoopModel)
    """Structure."""
    dt: float = 1e-3
    """Physics step [s], split into as many of MuJoCo's as needed."""

    @property
    def longest_dt(self) -> float:
        """See `MujocoSimulator.longest_dt`; finer loops have faster modes."""
        return (TWISTING if self.model.twist else MAX_TREE_STEP) * min(1.0, 12 / self.model.links)

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        compiled = spec_of(self.model.tree, self.dt / self.refinement).compile()
        index = state_index(compiled, self.model.tree)
        return MujocoEngine(compiled, nx=self.nx, nu=self.nu, state_index=index, write_parameters=self._write_constants)

    def _write_constants(self, mj: mujoco.MjModel, row: Array) -> None:
        values = self.model.tree_constants(flawed(self, row)[None])[0].tolist()
        write_tree(mj, self.model.tree, dict(zip(self.model.parameter_names, values, strict=True)))
        harden(self, mj, self.model.tree)
