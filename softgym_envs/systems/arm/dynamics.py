"""The elbow with two muscles as a `core.simulator.Simulator`: equations in `elbow`, kernels in `stepping`.

Director coordinates with the same muscles (`reproductions.penner2020`) are its oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ...core.complementarity import ComplementarityForm
from ...engines.numba.engine import NumbaEngine, NumbaSimulator
from .elbow import Elbow
from .model import ElbowModel
from .stepping import derivative, forward


@dataclass(frozen=True, eq=False)
class ElbowSimulator(NumbaSimulator):
    """See the module docstring.

    >>> import numpy as np
    >>> simulator = ElbowSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.tile([0.1, 0.0], (1, 50, 1)), substeps=4)
    >>> bool(states[0, -1, 0] > states[0, 0, 0]), status.tolist()
    (True, [0])
    """

    system = "arm"

    model: ElbowModel = field(default_factory=ElbowModel)
    """Structure."""
    dt: float = 0.005
    """Physics step [s]."""

    @cached_property
    def structure(self) -> Elbow:
        """Numbers for the kernels."""
        return self.model.structure(self.dt)

    @cached_property
    def engine(self) -> NumbaEngine:
        """Numba engine of this simulator."""
        return NumbaEngine(forward, derivative, self.structure, self.nx, self.nu)

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        from .symbolic import elbow_form

        return elbow_form(self.structure, len(self.parameters_class.names()))
