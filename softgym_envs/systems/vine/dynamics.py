"""The vine robot that a laboratory wants, as a simulator: it grows at its tip, bends, wrinkles, is steered, meets obstacles.

The equations, and the kernels that compute them, are in `stepping`.

Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import warp as wp

from ...core.complementarity import ComplementarityForm
from ...core.errors import OptionError
from ...core.parameters import Parameters
from ...core.simulator import Array, check_array, check_number
from ...engines.warp.buffers import KernelProgram
from ...engines.warp.engine import WarpEngine, launch
from ...engines.warp.simulator import WarpSimulator
from .forces import force_kernel
from .memory import make_world, workspace
from .model import ContactForces, VineModel, contact_table
from .parameters import VineParameters
from .stepping import BENDING, free_kernel, rollout_kernel

_forces = wp.kernel(force_kernel, enable_backward=False, module="unique")


@dataclass(frozen=True, eq=False)
class VineSimulator(WarpSimulator):
    """Our engine as a `core.simulator.Simulator`, for any `VineModel`.

    >>> simulator = VineSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.full((2, 5, 5), 0.05), substeps=10)
    >>> states.shape, status.tolist()
    ((2, 6, 86), [0, 0])

    Raises:
        OptionError: Unknown law of bending or device, dt not positive, no space for contacts.
    """

    system = "vine"
    parameters_class = VineParameters
    option_names = ("bending",)

    model: VineModel = field(default_factory=VineModel)
    """Structure and obstacles."""
    dt: float = 0.01
    """Physics step [s]. Oscillations are damped too much where bending_damping < 0.6 dt EI: choose a smaller one then."""
    bending: str = "wrinkling"
    """"wrinkling", an inflated beam, or "linear"."""
    max_contacts: int = 24
    """Most contacts of one robot in one step; beyond, those with the widest gaps are left out."""
    device: str = "cpu"
    """"cpu", or a CUDA device of Warp."""

    def __post_init__(self) -> None:
        if self.bending not in tuple(BENDING):
            raise OptionError(f"bending is {self.bending!r}, allowed are {', '.join(BENDING)}")
        check_number("max_contacts", self.max_contacts, low=1, high=1000, whole=True)
        self.check_options()

    def contact_forces(self, state: Array, growth: Array, parameters: Parameters | None = None) -> ContactForces:
        """Forces of the obstacles on the robot in the step of dt from `state` (B, nx); growth speed command (B,) [m/s]."""
        state = check_array("state", state, (None, self.nx))
        growth = check_array("growth", growth, (len(state),))
        parameter_values = self.parameter_values(parameters, len(state))
        out = wp.zeros((len(state), self.max_contacts, 9), dtype=wp.float64, device=self.device)
        given = [wp.array(a, dtype=wp.float64, device=self.device) for a in (parameter_values, growth, state)]
        work = workspace(self.model, self.max_contacts).allocate(len(state), given[2])
        launch(_forces, dim=len(state), inputs=[*self.engine.structure, *given, work, out], device=self.device)
        return contact_table(np.asarray(out.numpy()))

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        from .symbolic import complementarity_form

        return complementarity_form(self)

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator; it runs forward only."""
        world = make_world(self.model, self.dt, BENDING[self.bending], self.device)
        if self.model.obstacles:
            program = KernelProgram(rollout_kernel, workspace=workspace(self.model, self.max_contacts))
        else:
            length = self.state_names.index("length")
            program = KernelProgram(free_kernel, workspace=workspace(self.model, 0), lanes=True, size=length)
        return WarpEngine(program, [world], self.nx, self.nu, len(VineParameters.names()), self.device)
