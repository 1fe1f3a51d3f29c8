r"""Time-stepping of contact with Coulomb friction as a mixed complementarity problem, solved exactly in every step.

[Berard2008] slides 13 and 25, [Stewart, Trinkle 1996]: velocities and impulses at the end of the step solve

.. math::
   M (\nu^+ - \nu) = h (W_n \lambda_n + W_f \lambda_f + \lambda_{vp} + \lambda_{app}), \qquad q^+ = q + h \nu^+

   0 \le \lambda_n \perp \psi(q^+) \ge 0, \quad
   0 \le \lambda_f \perp E \sigma + W_f^T \nu^+ \ge 0, \quad
   0 \le \sigma \perp \mu \lambda_n - E^T \lambda_f \ge 0

No penalty, no tolerance on penetration: forces act exactly where the pairs allow it. Velocities are eliminated and the linear
complementarity problem in z goes to Lemke's method (`lcp`):

.. math:: A \nu^+ = b + W z, \qquad 0 \le z \perp K \nu^+ + C z + d \ge 0

A block that slides on all its supports needs none: its friction is known. The kernels are in `stepping`; `pair_values` gives z
in the paper's units.

*Derivatives.* With the set of basic z fixed, the step is an explicit formula of state, control and parameters; its derivative
is that of the implicit function theorem. It is taken by complex steps (exact to rounding) through the same code as the step. At
states where the set of active pairs changes (e.g. a block at rest without load) it is that of a neighbouring piece: the one
that a tiny fixed push selects, so that sticking supports have the derivative of sticking.

Legend: B batch, T horizon, nv velocities of a body, m pairs of a body, d friction directions, P parameters.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...core.complementarity import ComplementarityForm
from ...core.parameters import Parameters
from ...core.simulator import Array, check_array
from ...engines.numba.engine import NumbaEngine, NumbaSimulator
from .derivatives import derivative
from .model import BlockModel, ParticleModel
from .parameters import BlockParameters, particle_parameters
from .problem import BLOCK, PARTICLE, BodiesData
from .stepping import contact_forces, forward

# --- The simulators ---------------------------------------------------------------------------------------------------


class _ContactSimulator(NumbaSimulator):
    """Base of both simulators: the kernels."""

    @property
    @abstractmethod
    def scene(self) -> BodiesData:
        """Structure, as the kernels read it."""

    @property
    @abstractmethod
    def pairs(self) -> int:
        """m: complementarity pairs of a body."""

    def pair_values(self, state: Array, control: Array, parameters: Parameters | None = None) -> Array:
        """z of one physics step: (B, nx), (B, nu) -> (B, bodies m) forces [N], then slack speeds [m/s] of each body.

        NaN where the step fails.
        """
        state = check_array("state", state, (None, self.nx))
        control = check_array("control", control, (len(state), self.nu))
        parameter_values = self.parameter_values(parameters, len(state))
        found = np.empty((len(state), self.scene.bodies, self.pairs))
        contact_forces(self.scene, state, control, parameter_values, found.reshape(len(state), -1))
        mass = parameter_values[:, self.parameters_class.index("mass")]
        found[..., : self.forces_per_body] *= (mass / self.dt)[:, None, None]
        return found.reshape(len(state), -1)

    def symbolic_step(self) -> ComplementarityForm:
        """See `Symbolic`; CasADi is needed."""
        from .symbolic import complementarity_form

        this: Any = self
        return complementarity_form(this)

    @property
    @abstractmethod
    def forces_per_body(self) -> int:
        """Number of a body's z that are forces; the rest are slack speeds."""

    @cached_property
    def engine(self) -> NumbaEngine:
        """The numba side of this simulator."""
        return NumbaEngine(forward, derivative, self.scene, self.nx, self.nu)


@dataclass(frozen=True, eq=False)
class ParticleSimulator(_ContactSimulator):
    """Particles that fall on flat ground and slide, as a `core.simulator.Simulator`; see the module docstring.

    >>> simulator = ParticleSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.full((1, 100, 1), 5.0))
    >>> states[0, -1].round(3).tolist(), status.tolist()  # falls for 0.75 s, then slides against 1.96 N
    ([38.955, 0.0, 15.19, 0.0], [0])
    """

    system = "particles"

    model: ParticleModel = field(default_factory=ParticleModel)
    """Number of particles, their start and largest force."""
    dt: float = 0.05
    """Physics step [s]; [Berard2008] slide 27."""

    @property
    def parameters_class(self) -> type[Parameters]:
        """One friction per particle."""
        return particle_parameters(self.model.count)

    pairs = 4
    forces_per_body = 3

    @cached_property
    def scene(self) -> BodiesData:
        """See `BodiesData`."""
        count = self.model.count
        shared = np.arange(count, len(self.parameters_class.names()))
        place = np.array([[i, *shared] for i in range(count)], dtype=np.int64)
        empty = np.zeros((0, 2))
        return BodiesData(PARTICLE, count, float(self.dt), 2, 1, place, empty, empty, np.zeros(0), empty)


@dataclass(frozen=True, eq=False)
class BlockSimulator(_ContactSimulator):
    """The block on three supports, as a `core.simulator.Simulator`; see the module docstring.

    The string is taut: where the block is pushed towards the pulley faster than the weight can fall, `tension` is negative, and
    the numbers mean a rod instead of a string.

    >>> simulator = BlockSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.zeros((1, 40, 2)))
    >>> bool(states[0, -1, 0] > 0.05), status.tolist()
    (True, [0])
    """

    system = "block"
    parameters_class = BlockParameters

    model: BlockModel = field(default_factory=BlockModel)
    """Geometry."""
    dt: float = 0.01
    """Physics step [s]."""

    @property
    def pairs(self) -> int:
        """3 d forces and three slack speeds."""
        return 3 * self.model.num_directions + 3

    @property
    def forces_per_body(self) -> int:
        """3 d."""
        return 3 * self.model.num_directions

    @cached_property
    def scene(self) -> BodiesData:
        """See `BodiesData`."""
        model, taut = self.model, self.model.pulley is not None
        points = np.array([model.attachment, model.pulley or (0.0, 0.0), model.handle, (float(taut), 0.0)], dtype=np.float64)
        place = np.arange(len(BlockParameters.names()), dtype=np.int64)[None]
        supports = np.array(model.supports, dtype=np.float64)
        return BodiesData(BLOCK, 1, float(self.dt), 3, 2, place, points, supports, model.shares, model.directions)
