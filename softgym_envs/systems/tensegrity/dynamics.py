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

from ...core.errors import OptionError, StructureError
from ...core.parameters import Parameters
from ...core.simulator import Array, IntArray, check_array
from ...engines.warp import engine as warp_engine
from ...engines.warp.buffers import KernelProgram
from ...engines.warp.engine import WarpEngine
from ...engines.warp.memory import view_rows
from ...engines.warp.simulator import AdjointSimulator
from .cables import CableData
from .contact import MODES
from .energy import passive_gain
from .memory import RodWorld, tape, workspace
from .model import TensegrityModel, superball
from .parameters import CONTACT, TensegrityParameters, own_parameters
from .patch_stepping import patch_kernel
from .residual import check_weights
from .rods import Rod, RodState
from .stepping import rollout_kernel, tension_kernel

_tension = wp.kernel(tension_kernel, enable_backward=False, module="unique")


MAX_ENERGY_GAIN = 0.05
"""Share of its energy that a robot may gain in a drop or a throw without motors; see `energy`."""


@dataclass(frozen=True, eq=False)
class TensegritySimulator(AdjointSimulator):
    """Our engine as a `core.simulator.Simulator`, for any `TensegrityModel`.

    >>> simulator = TensegritySimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.zeros((2, 5, 24)), substeps=100)
    >>> states.shape, status.tolist()
    ((2, 6, 102), [0, 0])

    Raises:
        OptionError: Unknown contact mode or device, dt not positive.
        StructureError: `fixed_rod` does not exist.
    """

    system = "tensegrity"
    option_names = ("contact", "own_cables", "residual")

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
    own_cables: bool = False
    """Whether the parameters include factors of every cable: on stiffness (and damping), rest length and motor gain."""
    residual: tuple[float, ...] = ()
    """Weights of the learned correction of contact, see the module `residual`; () for none."""

    def __post_init__(self) -> None:
        if self.model is None:
            object.__setattr__(self, "model", superball())
        if self.contact not in tuple(MODES):
            raise OptionError(f"contact is {self.contact!r}, allowed are {', '.join(MODES)}")
        if not isinstance(self.own_cables, bool):
            raise OptionError(f"own_cables is {self.own_cables!r}, allowed are True and False")
        if self.fixed_rod is not None and not 0 <= self.fixed_rod < self.model.num_rods:
            raise StructureError(f"fixed_rod is {self.fixed_rod}, rods are 0 ... {self.model.num_rods - 1}")
        self.check_options()
        object.__setattr__(self, "residual", check_weights(self.residual))

    def residual_vjp(
        self, state: Array, controls: Array, cotangent: Array, parameters: Parameters | None = None, *, substeps: int = 1
    ) -> tuple[Array, IntArray, Array]:
        """As `vjp`, for the weights of `residual`: states (B, T+1, nx), status (B,), and every row's gradient (B, W)."""
        found = self._pull(state, controls, cotangent, parameters, substeps)
        return found.states, found.status, found.parameter_values[:, found.parameter_values.shape[1] - len(self.weights) :]

    @property
    def parameters_class(self) -> type[TensegrityParameters]:
        """Class of the parameters; with factors, if every cable has its own."""
        return own_parameters(self.model.num_cables, self.model.nu) if self.own_cables else TensegrityParameters

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the learned correction."""
        return self.residual

    def cable_tensions(self, state: Array, parameters: Parameters | None = None) -> Array:
        """Pull of every cable, (B, nx) -> (B, C) [N]; zero for a slack cable."""
        state = check_array("state", state, (None, self.nx))
        parameter_values = self._columns(self.parameter_values(parameters, len(state)))
        tension = wp.zeros((len(state), self.model.num_cables), dtype=wp.float64, device=self.device)
        given = [wp.array(a, dtype=wp.float64, device=self.device) for a in (parameter_values, state)]
        bodies = view_rows(given[1], RodState, self.model.num_rods)
        inputs = [*self.engine.structure, *given, bodies, tension]
        warp_engine.launch(_tension, dim=tension.shape, inputs=inputs, device=self.device)
        return np.asarray(tension.numpy())

    def stability_limits(self, parameters: Parameters) -> dict[str, float]:
        """See `TensegrityModel.stability_limits`."""
        return self.model.stability_limits(parameters, self.dt)

    def warning(self, parameters: Parameters) -> str:
        """Drop and throw the robot without motors, and tell if its energy grows; see docs/explanation/contact.md."""
        if self.contact != "patch" and parameters == TensegrityParameters():
            return ""  # checked in tests
        gained = passive_gain(self, parameters)
        if gained <= MAX_ENERGY_GAIN:
            return ""
        names = ("cable_damping", *CONTACT[self.contact])
        told = ", ".join(f"{name} {float(getattr(parameters, name)):.3g}" for name in names)
        how = f"gains {gained:.0%} of its energy" if np.isfinite(gained) else "goes beyond the limit of speed"
        return (
            f"in a drop or a throw without motors the robot {how} (contact {self.contact!r}, dt {self.dt:g} s, "
            f"{told}): it moves by itself; see docs/explanation/contact.md"
        )

    @cached_property
    def default_parameters(self) -> TensegrityParameters:
        """Parameters before identification: those of the model's file, where it has some."""
        return self.parameters_class(**self.model.parameter_values)

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator."""
        count, num_parameters = self.model.num_rods, len(self.parameters_class.names()) + len(self.residual)
        patch = self.contact == "patch"
        kernel = patch_kernel if patch else rollout_kernel
        program = KernelProgram(kernel, tape(count, patch=patch), workspace(count, patch=patch), lanes=not patch)
        return WarpEngine(program, [self._world()], self.nx, self.nu, num_parameters, self.device)

    def _world(self) -> Any:
        """The struct `RodWorld` of the model and the options."""
        model, new = self.model, lambda a, dtype: wp.array(np.ascontiguousarray(a), dtype=dtype, device=self.device)
        rods: Any = np.zeros(model.num_rods, dtype=Rod.numpy_dtype())  # type: ignore[attr-defined]
        rods["half"] = 0.5 * model.rod_lengths
        rods["free"] = [float(r != self.fixed_rod) for r in range(model.num_rods)]
        rods["across"] = 12 / (3 * model.rod_radius**2 + model.rod_lengths**2)
        rods["along"] = 2 / model.rod_radius**2
        rods["gyro"] = rods["across"] / rods["along"] - 1.0
        world, terrain = RodWorld(), model.terrain
        world.links, world.rods = new(self._padded_cables(), CableData), new(rods, Rod)
        world.terrain.heights, world.terrain.cell = new(terrain.heights, wp.float64), terrain.cell
        world.terrain.plane = wp.vec3d(-np.sin(terrain.angle), 0.0, np.cos(terrain.angle))
        world.terrain.rough = int(not terrain.is_plane)
        world.rod_radius, world.cap_radius = model.rod_radius, model.cap_radius
        world.control_limit, world.mode, world.dt = model.control_limit, MODES[self.contact], self.dt
        world.own_cables = model.num_cables if self.own_cables else 0
        world.learned = len(self.parameters_class.names()) if self.residual else 0
        return world

    def _padded_cables(self) -> Any:
        """All cables as `CableData`, padded to groups of four by cables without stiffness."""
        model, count = self.model, self.model.num_cables
        links: Any = np.zeros(4 * -(-count // 4), dtype=CableData.numpy_dtype())  # type: ignore[attr-defined]
        links["node1"], links["motor"] = 1, -1
        links["node0"][:count], links["node1"][:count] = np.array(model.cables, dtype=int).reshape(-1, 2).T
        links["motor"][list(model.actuated)] = np.arange(model.nu)
        links["stiffness"][:count] = model.stiffness_ratio or 1.0
        links["rest"][:count] = model.rest_ratio or 1.0
        links["gain"] = 1.0
        return links
