"""The model of [Jitosho2021] (arXiv 2011.01917) as a simulator; its program and the kernels are in `stepping`.

Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ...core import warp_engine
from ...core.errors import OptionError, ParameterError
from ...core.parameters import Parameters
from ...core.simulator import IntArray, Linearization, check_array, check_number, finite_differences
from ...core.warp_engine import Program, WarpEngine
from ..boxqp import NUM_VECTORS
from ..chain import Gain, Motion
from ..geometry import shape_arrays
from ..parameters import PaperParameters
from .model import PaperModel
from .stepping import Pair, Push, Scene, rollout_kernel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PaperSimulator:
    """The paper's model as a `core.simulator.Simulator`.

    >>> simulator = PaperSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.full((2, 5, 1), 0.04))
    >>> states.shape, status.tolist()
    ((2, 6, 180), [0, 0])

    Raises:
        OptionError: Unknown device, dt not positive, no room for contacts.
    """

    model: PaperModel = field(default_factory=PaperModel)
    """Structure and obstacles."""
    dt: float = 0.01
    """Physics step [s]."""
    max_contacts: int = 64
    """Most gaps that may close in one step; with more the row fails."""
    device: str = "cpu"
    """"cpu", or a CUDA device of Warp."""

    exact_linearize = False

    def __post_init__(self) -> None:
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
        return self.model.layout.nx

    @property
    def nu(self) -> int:
        """One: growth speed."""
        return 1

    @property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest growth speed, each (1,)."""
        return np.zeros(1), np.array([self.model.max_growth])

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.model.layout.names

    @property
    def control_names(self) -> tuple[str, ...]:
        """Growth."""
        return ("growth",)

    @cached_property
    def default_parameters(self) -> PaperParameters:
        """Constants before identification."""
        return PaperParameters()

    def initial_state(self, batch: int = 1) -> Array:
        """Straight and at rest, (B, nx)."""
        return np.tile(self.model.straight_state(), (batch, 1))

    def retract(self, state: Array, dx: Array) -> Array:
        """state + dx."""
        return state + dx

    def difference(self, a: Array, b: Array) -> Array:
        """a - b."""
        return a - b

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
        parameters = parameters or self.default_parameters
        if not isinstance(parameters, PaperParameters):
            raise ParameterError(f"parameters are {type(parameters).__name__}, this simulator takes PaperParameters")
        return self.engine.rollout(state, controls, parameters.to_matrix(len(state)), substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Central differences of one control step, in one batch; not exact where a contact opens."""
        state = check_array("state", state, (None, self.nx))
        control = check_array("control", control, (len(state), self.nu))
        return finite_differences(self, state, control, parameters, substeps=substeps)

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator; it runs forward only."""
        model, scene = self.model, Scene()
        scene.links, scene.d, scene.radius = model.num_links, model.half_length, 0.5 * model.diameter
        scene.heading, scene.dt, scene.max_growth = model.heading, self.dt, model.max_growth
        shapes, _ = shape_arrays(model.obstacles, self.device)
        structure = [
            scene,
            shapes,
            wp.array(model.poses, dtype=wp.vec3d, device=self.device),
            wp.array(model.corners, dtype=wp.vec2d, device=self.device),
        ]
        links, rows = model.num_links, self.max_contacts
        chain = ((Pair, links), (Gain, links), (Motion, links + 1), (Push, rows))
        program = ((wp.float64, rows * rows), (wp.float64, rows * rows), (wp.float64, NUM_VECTORS * rows), (wp.int32, rows))
        return WarpEngine(
            Program(rollout_kernel, (), (*chain, *program)), structure, self.nx, 1, len(PaperParameters.names()), self.device
        )
