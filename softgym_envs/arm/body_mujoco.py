"""The MuJoCo twin of the upper body: the same tree, masses, springs and dampers in another engine.

Where it differs from ours, apart from rounding: steps are MuJoCo's implicitfast Euler steps of 1 ms, of first order, and
torques act at once; in ours, half a step of 5 ms late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import mujoco
import numpy as np

from ..core.hard import TRANSMISSION, Effect, Ladder
from ..core.mujoco_engine import MujocoEngine, MujocoTwin
from ..core.simulator import Array, check_number
from ..mechanics.mujoco_tree import spec_of, state_index, write_tree
from .body_model import CONSTANTS, BodyModel
from .body_parameters import BodyParameters

LADDER = Ladder(
    (
        *TRANSMISSION,
        Effect("dry_friction", "-", (0.0, 0.005, 0.02), "Coulomb friction of every joint, as a share of its effort"),
        Effect("mass_spread", "-", (0.02, 0.1, 0.2), "logarithm of a factor of every body's mass and inertia, plus or minus"),
        Effect("stiffness_spread", "-", (0.05, 0.2, 0.4), "logarithm of a factor of every joint's stiffness, plus or minus"),
        Effect("damping_spread", "-", (0.05, 0.2, 0.4), "logarithm of a factor of every joint's damping, plus or minus"),
    )
)
"""How the body is unlike its drawing; see `core.hard`."""


@dataclass(frozen=True, eq=False)
class BodyTwin(MujocoTwin):
    """See the module docstring.

    >>> twin = BodyTwin()
    >>> states, status = twin.rollout(twin.initial_state(), np.zeros((1, 4, 12)), substeps=50)
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-3), status.tolist()
    (True, [0])

    Raises:
        OptionError: dt is not positive.
    """

    room = "upper_body"
    parameters_class = BodyParameters
    ladder = LADDER

    model: BodyModel = field(default_factory=BodyModel)
    """Structure."""
    dt: float = 1e-3
    """Physics step [s]."""

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")

    @cached_property
    def engine(self) -> MujocoEngine:
        """Batched stepping."""
        compiled = spec_of(self.model.tree, self.dt).compile()
        index = state_index(compiled, self.model.tree)
        return MujocoEngine(compiled, nx=self.nx, nu=self.nu, state_index=index, write_constants=self._write)

    def _write(self, compiled: mujoco.MjModel, row: Array) -> None:
        """One row of constants, and the effects of a hard twin over them."""
        write_tree(compiled, self.model.tree, dict(zip(CONSTANTS, row.tolist(), strict=True)))
        n, tree = self.model.n, self.model.tree
        stiffer, damped = np.exp(self.spread("stiffness_spread", n)), np.exp(self.spread("damping_spread", n))
        for i, joint in enumerate(tree.moving):
            k = compiled.joint(joint.name).id
            compiled.jnt_stiffness[k] *= stiffer[i]
            compiled.dof_damping[k] *= damped[i]
            compiled.dof_frictionloss[k] += self.amount("dry_friction") * joint.effort
        for body, factor in zip(tree.bodies, np.exp(self.spread("mass_spread", len(tree.bodies))), strict=True):
            if body.mass > 0:
                k = compiled.body(body.name).id
                compiled.body_mass[k] *= factor
                compiled.body_inertia[k] *= factor
