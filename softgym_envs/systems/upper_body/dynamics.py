"""The upper body as a `core.simulator.Simulator`: equations in `mechanics`, those of muscles in `muscle_kernels`.

Director coordinates are the oracle of the bones, `muscles.routes` that of the muscles. Steps are of first order in dt: at 5 ms
angles are about 10 mrad off after 0.5 s of random torques, 14 mrad with muscles (docs/explanation/loop.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...core.complementarity import ComplementarityForm
from ...core.parameters import Parameters
from ...core.simulator import Array, Gradient
from ...engines.numba.engine import NumbaEngine, NumbaSimulator
from ...mechanics.mechanism import Mechanism
from ...mechanics.simulator import TreeSimulator
from .model import FALL, PARAMETERS, RISE, BodyModel
from .parameters import BodyParameters
from .stepping import Muscled, derivative, forward


@dataclass(frozen=True, eq=False)
class BodySimulator(TreeSimulator):
    """See the module docstring.

    >>> import numpy as np
    >>> simulator = BodySimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.zeros((1, 20, 12)))
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-6), status.tolist()
    (True, [0])
    """

    system = "upper_body"
    parameters_class = BodyParameters

    model: BodyModel = field(default_factory=BodyModel)
    """Structure."""
    dt: float = 0.005
    """Physics step [s]."""

    @cached_property
    def mechanism(self) -> Mechanism:
        """The tree in (q, p)."""
        return Mechanism(self.model.tree, self.dt, PARAMETERS)

    @cached_property
    def engine(self) -> NumbaEngine:
        """Numba engine of this simulator."""
        if self.model.muscles is None:
            return super().engine
        structure = Muscled(
            self.mechanism.structure, self.model.routes, np.array(self.model.motors, dtype=np.int64), RISE, FALL
        )
        return NumbaEngine(forward, derivative, structure, self.nx, self.nu)

    def vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Gradient:
        """See `Differentiable.vjp`; with muscles by the chain rule over control steps."""
        way: Any = TreeSimulator if self.model.muscles is None else NumbaSimulator
        found: Gradient = way.vjp(self, state, controls, cotangent, parameters, substeps=substeps)
        return found

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        if self.model.muscles is not None:
            from .symbolic import muscled_step

            return ComplementarityForm(muscled_step(self.model, self.dt))
        from ...mechanics.symbolic import velocity_step

        return ComplementarityForm(velocity_step(self.model.tree, PARAMETERS, self.dt))
