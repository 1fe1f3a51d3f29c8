"""The engine of [Wang2020] (arXiv 2011.04929) as a simulator: rods, pull-only cables, motors, contact impulses.

The equations, and the kernels that compute them, are in `stepping`.

Legend: B batch, C cables.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import warp as wp
from numpy.typing import NDArray

from ..core import warp_engine
from ..core.errors import OptionError, ParameterError, StructureError
from ..core.parameters import Option, Parameters
from ..core.simulator import IntArray, Linearization, check_array, check_number
from ..core.warp_engine import Gradient, Program, WarpEngine
from .contact import MODES, Twist
from .joint import working_memory
from .model import TensegrityModel, superball
from .parameters import TensegrityParameters
from .residual import check_weights
from .rods import Body, Rod
from .stepping import Link, Node, rollout_kernel, tension_kernel

Array = NDArray[np.float64]

_tension = wp.kernel(tension_kernel, enable_backward=False, module="unique")


@dataclass(frozen=True, eq=False)
class TensegritySimulator:
    """Our engine as a `core.simulator.Simulator`, for any `TensegrityModel`.

    >>> simulator = TensegritySimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.zeros((2, 5, 24)), substeps=100)
    >>> states.shape, status.tolist()
    ((2, 6, 102), [0, 0])

    Raises:
        OptionError: Unknown contact mode or device, dt not positive.
        StructureError: `fixed_rod` does not exist.
    """

    room = "tensegrity"

    model: TensegrityModel = None  # type: ignore[assignment]
    """Structure; None stands for `superball()`."""
    dt: float = 1e-3
    """Physics step [s]."""
    contact: str = "stick"
    """"paper", "stick" or "patch"; see the module `contact`."""
    fixed_rod: int | None = None
    """A rod that is held where it is, as in the paper's identification in the air (V-A)."""
    device: str = "cpu"
    """"cpu", or a CUDA device of Warp."""
    residual: tuple[float, ...] = ()
    """Weights of the learned correction of contact, see the module `residual`; () for none."""

    exact_linearize = True

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", superball())
        if self.contact not in MODES:
            raise OptionError(f"contact is {self.contact!r}, allowed are {', '.join(MODES)}")
        check_number("dt", self.dt, positive=True, unit="s")
        if self.fixed_rod is not None and not 0 <= self.fixed_rod < self.model.num_rods:
            raise StructureError(f"fixed_rod is {self.fixed_rod}, rods are 0 ... {self.model.num_rods - 1}")
        warp_engine.check_device(self.device)
        object.__setattr__(self, "residual", check_weights(self.residual))

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
        """Number of motors."""
        return self.model.nu

    @cached_property
    def control_bounds(self) -> tuple[Array, Array]:
        """Lowest and highest motor command, each (nu,)."""
        return -self.model.control_limit * np.ones(self.nu), self.model.control_limit * np.ones(self.nu)

    @property
    def state_names(self) -> tuple[str, ...]:
        """One name per entry of the state."""
        return self.model.layout.names

    @property
    def control_names(self) -> tuple[str, ...]:
        """One name per control."""
        return self.model.control_names

    @property
    def options(self) -> dict[str, Option]:
        """Choices that identified constants belong to: written with them, and made by `gym.make(..., params=file)`."""
        return {"contact": self.contact, **({"residual": list(self.residual)} if self.residual else {})}

    @cached_property
    def default_parameters(self) -> TensegrityParameters:
        """Constants before identification."""
        return TensegrityParameters()

    def initial_state(self, batch: int = 1) -> Array:
        """The structure's nodes at rest, (B, nx)."""
        return np.tile(self.model.state_from_nodes(self.model.nodes), (batch, 1))

    def retract(self, state: Array, dx: Array) -> Array:
        """See `TensegrityModel`."""
        return self.model.layout.retract(state, dx)

    def difference(self, a: Array, b: Array) -> Array:
        """See `TensegrityModel`."""
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
        return self.engine.rollout(*self._checked(state, controls, parameters, substeps), substeps)

    def vjp(
        self,
        state: Array,
        controls: Array,
        cotangent: Array,
        parameters: Parameters | None = None,
        *,
        substeps: int = 1,
    ) -> Gradient:
        """Rollout, and the gradient of sum(cotangent * states) with respect to state, controls and constants.

        Args:
            state: (B, nx).
            controls: (B, T, nu).
            cotangent: (B, T+1, nx).
            parameters: Constants.
            substeps: Physics steps per control step.
        """
        arguments = self._checked(state, controls, parameters, substeps)
        cotangent = check_array("cotangent", cotangent, (len(arguments[0]), arguments[1].shape[1] + 1, self.nx))
        pulled = self.engine.vjp(*arguments, substeps, cotangent)
        return pulled._replace(constants=pulled.constants[:, : arguments[2].shape[1] - len(self.residual)])

    def residual_vjp(
        self,
        state: Array,
        controls: Array,
        cotangent: Array,
        parameters: Parameters | None = None,
        *,
        substeps: int = 1,
    ) -> tuple[Array, IntArray, Array]:
        """As `vjp`, for the weights of `residual`: states (B, T+1, nx), status (B,), and every row's gradient (B, W)."""
        arguments = self._checked(state, controls, parameters, substeps)
        cotangent = check_array("cotangent", cotangent, (len(arguments[0]), arguments[1].shape[1] + 1, self.nx))
        pulled = self.engine.vjp(*arguments, substeps, cotangent)
        return pulled.states, pulled.status, pulled.constants[:, arguments[2].shape[1] - len(self.residual) :]

    def torch_rollout(self, state: Any, controls: Any, constants: Any, *, substeps: int = 1) -> Any:
        """`rollout` for torch tensors with autograd; constants is a (B, P) tensor in the order of `to_vector`."""
        if self.residual:
            import torch

            weights = torch.tensor(self.residual, dtype=constants.dtype).expand(len(constants), -1)
            constants = torch.cat([constants, weights], dim=1)
        return warp_engine.torch_rollout(self.engine, state, controls, constants, substeps)

    def linearize(
        self, state: Array, control: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> Linearization:
        """Exact derivatives of one control step: one pull-back per tangent direction, all in one batch."""
        state, controls, constants = self._checked(
            state, check_array("control", control, (None, self.nu))[:, None], parameters, substeps
        )
        end = self.engine.rollout(state, controls, constants, substeps)[0][:, 1]
        out_of, into = self.model.layout.difference_jacobian(end), self.model.layout.retract_jacobian(state)
        chunk = self.engine.rows_recorded_at_once(substeps, self.n)
        parts = []
        for first in range(0, len(state), chunk):
            rows = slice(first, first + chunk)
            parts.append(self._pull_back(state[rows], controls[rows], constants[rows], substeps, out_of[rows], into[rows]))
        return Linearization(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def _pull_back(
        self, state: Array, controls: Array, constants: Array, substeps: int, out_of: Array, into: Array
    ) -> Linearization:
        rows, n = len(state), self.n
        cotangent = np.zeros((rows * n, 2, self.nx))
        cotangent[:, 1] = out_of.reshape(rows * n, self.nx)
        spread = [np.repeat(a, n, axis=0) for a in (state, controls, constants)]
        pulled = self.engine.vjp(spread[0], spread[1], spread[2], substeps, cotangent)
        A = pulled.state.reshape(rows, n, self.nx) @ into
        C = pulled.constants.reshape(rows, n, -1)[:, :, : len(TensegrityParameters.names())]
        return Linearization(A, pulled.controls.reshape(rows, n, self.nu), C)

    def cable_tensions(self, state: Array, parameters: Parameters | None = None) -> Array:
        """Pull of every cable, (B, nx) -> (B, C) [N]; zero for a slack cable."""
        state = check_array("state", state, (None, self.nx))
        constants = self._constants(parameters, len(state))
        tension = wp.zeros((len(state), self.model.num_cables), dtype=wp.float64, device=self.device)
        given = [wp.array(a, dtype=wp.float64, device=self.device) for a in (constants, state)]
        bodies = warp_engine.view_rows(given[1], Body, self.model.num_rods)
        inputs = [*self.engine.structure[:2], *given, bodies, tension]
        wp.launch(_tension, dim=tension.shape, inputs=inputs, device=self.device)
        return np.asarray(tension.numpy())

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator."""
        model, new = self.model, lambda a, dtype: wp.array(np.ascontiguousarray(a), dtype=dtype, device=self.device)
        rods: Any = np.zeros(model.num_rods, dtype=Rod.numpy_dtype())  # type: ignore[attr-defined]
        rods["half"] = 0.5 * model.rod_lengths
        rods["free"] = [float(r != self.fixed_rod) for r in range(model.num_rods)]
        rods["across"] = 12 / (3 * model.rod_radius**2 + model.rod_lengths**2)
        rods["along"] = 2 / model.rod_radius**2
        rods["gyro"] = rods["across"] / rods["along"] - 1.0
        terrain = model.terrain
        structure = [
            new(self._padded_cables(), Link),
            new(rods, Rod),
            new(terrain.heights, wp.float64),
            wp.float64(terrain.cell),
            wp.vec3d(-np.sin(terrain.angle), 0.0, np.cos(terrain.angle)),
            int(not terrain.is_plane),
            wp.float64(model.rod_radius),
            wp.float64(model.cap_radius),
            wp.float64(model.control_limit),
            MODES[self.contact],
            wp.float64(self.dt),
        ]
        count = model.num_rods
        scratch = ((Node, 2 * count), (Twist, count), (wp.vec3d, 5 * count), *((Twist, count),) * 3, (int, count + 1))
        program = Program(rollout_kernel, ((Body, count),), scratch, working_memory(count))
        return WarpEngine(
            program, structure, self.nx, self.nu, len(TensegrityParameters.names()) + len(self.residual), self.device
        )

    def _padded_cables(self) -> Any:
        """All cables as `Link`, padded to groups of four by cables without stiffness."""
        model, count = self.model, self.model.num_cables
        links: Any = np.zeros(4 * -(-count // 4), dtype=Link.numpy_dtype())  # type: ignore[attr-defined]
        links["node1"], links["motor"] = 1, -1
        links["node0"][:count], links["node1"][:count] = np.array(model.cables, dtype=int).reshape(-1, 2).T
        links["motor"][list(model.actuated)] = np.arange(model.nu)
        links["stiffness"][:count] = model.stiffness_ratio or 1.0
        links["rest"][:count] = model.rest_ratio or 1.0
        return links

    def _checked(
        self, state: Array, controls: Array, parameters: Parameters | None, substeps: int
    ) -> tuple[Array, Array, Array]:
        state = check_array("state", state, (None, self.nx))
        controls = check_array("controls", controls, (len(state), None, self.nu))
        if substeps < 1:
            raise OptionError(f"substeps is {substeps}, expected >= 1")
        return state, controls, self._constants(parameters, len(state))

    def _constants(self, parameters: Parameters | None, batch: int) -> Array:
        parameters = parameters or self.default_parameters
        if not isinstance(parameters, TensegrityParameters):
            raise ParameterError(f"parameters are {type(parameters).__name__}, this simulator takes TensegrityParameters")
        matrix = parameters.to_matrix(batch)
        return np.concatenate([matrix, np.tile(self.residual, (batch, 1))], axis=1) if self.residual else matrix
