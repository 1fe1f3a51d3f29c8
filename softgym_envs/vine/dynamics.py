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

from ..core import warp_engine
from ..core.errors import OptionError, ParameterError
from ..core.parameters import Parameters
from ..core.simulator import IntArray, Linearization, check_array, check_number, finite_differences
from ..core.warp_engine import Program, WarpEngine
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
class VineSimulator:
    """Our engine as a `core.simulator.Simulator`, for any `VineModel`.

    >>> simulator = VineSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.full((2, 5, 5), 0.05), substeps=10)
    >>> states.shape, status.tolist()
    ((2, 6, 86), [0, 0])

    Raises:
        OptionError: Unknown law of bending or device, dt not positive, no room for contacts.
    """

    room = "vine"

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

    exact_linearize = False

    def __post_init__(self) -> None:
        if self.bending not in BENDING:
            raise OptionError(f"bending is {self.bending!r}, allowed are {', '.join(BENDING)}")
        check_number("dt", self.dt, positive=True, unit="s")
        check_number("max_contacts", self.max_contacts, low=1, high=1000, whole=True)
        warp_engine.check_device(self.device)

    @property
    def nx(self) -> int:
        """Length of a state."""
        return self.model.layout.nx

    @property
    def n(self) -> int:
        """Dimension of the tangent space."""
        return self.model.layout.n

    @property
    def nu(self) -> int:
        """Number of controls."""
        return self.model.nu

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest control, each (nu,)."""
        return self.model.control_bounds

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.model.layout.names

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.model.control_names

    @property
    def options(self) -> dict[str, str | float]:
        """Choices that identified constants belong to: written with them, and made by `gym.make(..., params=file)`."""
        return {"bending": self.bending}

    @cached_property
    def default_parameters(self) -> VineParameters:
        """Constants before identification."""
        return VineParameters()

    def initial_state(self, batch: int = 1) -> Array:
        """Straight, at rest, without pressure in the muscles, (B, nx)."""
        return np.tile(self.model.straight_state(), (batch, 1))

    def retract(self, state: Array, dx: Array) -> Array:
        """state + dx."""
        return self.model.layout.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """a - b."""
        return self.model.layout.difference(a, b)

    def step(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """One control step; see `Simulator.step`."""
        control = check_array("control", control, (None, self.nu))
        states, status = self.rollout(state, control[:, None], parameters, substeps=substeps)
        return states[:, 1], status

    def rollout(
        self, state: Array, controls: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray]:
        """T control steps; see `Simulator.rollout`."""
        state = check_array("state", state, (None, self.nx))
        controls = check_array("controls", controls, (len(state), None, self.nu))
        if substeps < 1:
            raise OptionError(f"substeps is {substeps}, expected >= 1")
        return self.engine.rollout(state, controls, self._constants(parameters, len(state)), substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences of one control step, in one batch; not exact where a contact opens or a link appears."""
        state = check_array("state", state, (None, self.nx))
        control = check_array("control", control, (len(state), self.nu))
        return finite_differences(self, state, control, parameters, substeps=substeps)

    def contact_forces(self, state: Array, growth: Array, parameters: Parameters | None = None) -> ContactForces:
        """Forces of the obstacles on the robot in the step of dt from `state` (B, nx); growth speed asked (B,) [m/s]."""
        state = check_array("state", state, (None, self.nx))
        growth = check_array("growth", growth, (len(state),))
        constants = self._constants(parameters, len(state))
        out = wp.zeros((len(state), self.max_contacts, 9), dtype=wp.float64, device=self.device)
        given = [wp.array(a, dtype=wp.float64, device=self.device) for a in (constants, growth, state)]
        scratch = [wp.zeros((len(state), count), dtype=dtype, device=self.device) for dtype, count in self._scratch]
        wp.launch(_forces, dim=len(state), inputs=[*self.engine.structure, *given, *scratch, out], device=self.device)
        return contact_table(np.asarray(out.numpy()))

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

    def _constants(self, parameters: Parameters | None, batch: int) -> Array:
        parameters = parameters or self.default_parameters
        if not isinstance(parameters, VineParameters):
            raise ParameterError(f"parameters are {type(parameters).__name__}, this simulator takes VineParameters")
        return parameters.to_matrix(batch)
