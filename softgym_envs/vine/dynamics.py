"""The vine robot that a laboratory wants, as a simulator: it grows at its tip, bends, wrinkles, is steered, meets obstacles.

The equations, and the kernels that compute them, are in `stepping`.

Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ..core.complementarity import ComplementarityForm
from ..core.errors import OptionError
from ..core.parameters import Parameters
from ..core.simulator import check_array, check_number
from ..core.warp_engine import Program, WarpEngine, WarpSimulator, launch
from .boxqp import NUM_VECTORS
from .chain import Gain, Motion
from .contact import Contact, Link
from .geometry import Place, shape_arrays
from .model import ContactForces, VineModel, contact_table
from .obstacles import Polygon
from .parameters import VineParameters
from .stepping import BENDING, force_kernel, make_size, rollout_kernel

Array = NDArray[np.float64]

_forces = wp.kernel(force_kernel, enable_backward=False, module="unique")


@dataclass(frozen=True, eq=False)
class VineSimulator(WarpSimulator):
    """Our engine as a `core.simulator.Simulator`, for any `VineModel`.

    >>> simulator = VineSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.full((2, 5, 5), 0.05), substeps=10)
    >>> states.shape, status.tolist()
    ((2, 6, 86), [0, 0])

    Raises:
        OptionError: Unknown law of bending or device, dt not positive, no room for contacts.
    """

    room = "vine"
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
        if self.bending not in BENDING:
            raise OptionError(f"bending is {self.bending!r}, allowed are {', '.join(BENDING)}")
        check_number("max_contacts", self.max_contacts, low=1, high=1000, whole=True)
        self.check_options()

    def contact_forces(self, state: Array, growth: Array, parameters: Parameters | None = None) -> ContactForces:
        """Forces of the obstacles on the robot in the step of dt from `state` (B, nx); growth speed asked (B,) [m/s]."""
        state = check_array("state", state, (None, self.nx))
        growth = check_array("growth", growth, (len(state),))
        constants = self.constants(parameters, len(state))
        out = wp.zeros((len(state), self.max_contacts, 9), dtype=wp.float64, device=self.device)
        given = [wp.array(a, dtype=wp.float64, device=self.device) for a in (constants, growth, state)]
        scratch = [wp.zeros((len(state), count), dtype=dtype, device=self.device) for dtype, count in self._scratch]
        launch(_forces, dim=len(state), inputs=[*self.engine.structure, *given, *scratch, out], device=self.device)
        return contact_table(np.asarray(out.numpy()))

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        from .symbolic import complementarity_form

        return complementarity_form(self)

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator; it runs forward only."""
        structure = [
            make_size(self.model, self.dt, BENDING[self.bending]),
            *shape_arrays(self.model.obstacles, self.device),
        ]
        program = Program(rollout_kernel, (), self._scratch)
        return WarpEngine(program, structure, self.nx, self.nu, len(VineParameters.names()), self.device)

    @cached_property
    def _scratch(self) -> tuple[tuple[Any, int], ...]:
        """Work space of one row: dtype and count."""
        model, rows = self.model, 2 * self.max_contacts + 2
        corners = max(1, sum(len(o.shape.vertices) for o in model.obstacles if isinstance(o.shape, Polygon)))
        chain = ((Link, model.num_links), (Gain, model.num_links), (Motion, model.num_links + 1))
        around = ((Contact, self.max_contacts), (Place, max(1, len(model.obstacles))), (wp.vec2d, corners))
        program = ((wp.float64, rows * rows), (wp.float64, rows * rows), (wp.float64, NUM_VECTORS * rows), (wp.int32, rows))
        return (*chain, *around, *program)
