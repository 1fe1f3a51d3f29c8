"""The upper body as a `core.simulator.Simulator`: equations in `mechanics`; director coordinates are its oracle."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ..core.complementarity import ComplementarityForm
from ..core.simulator import check_number
from ..mechanics.mechanism import Mechanism
from ..mechanics.simulator import TreeSimulator
from .body_model import CONSTANTS, BodyModel
from .body_parameters import BodyParameters


@dataclass(frozen=True, eq=False)
class BodySimulator(TreeSimulator):
    """See the module docstring.

    >>> import numpy as np
    >>> simulator = BodySimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.zeros((1, 20, 12)))
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-6), status.tolist()
    (True, [0])

    Raises:
        OptionError: dt is not positive.
    """

    room = "upper_body"
    parameters_class = BodyParameters

    model: BodyModel = field(default_factory=BodyModel)
    """Structure."""
    dt: float = 0.005
    """Physics step [s]."""

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")

    @cached_property
    def mechanism(self) -> Mechanism:
        """The tree in (q, p)."""
        return Mechanism(self.model.tree, self.dt, CONSTANTS)

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        from ..mechanics.symbolic import velocity_step

        return ComplementarityForm(velocity_step(self.model.tree, CONSTANTS, self.dt))
