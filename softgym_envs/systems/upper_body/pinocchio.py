"""The upper body in Pinocchio: the same tree and forces, other equations of motion and another integrator.

Differences from the native engine, apart from rounding:

* Accelerations are those of the articulated-body algorithm. Steps are Runge-Kutta's of fourth order. The native variational
  integrator is of first order, with torques half a step of 5 ms late.
* A speed is that at the end of a step; natively, the mean of the step that led there.
* Muscles have the native curves and moment arms. Their forces are computed at every stage of a step; natively, at its start.
* Joints, stops, springs and dampers follow the same laws. There is no contact in either.

Effects of the mismatched model are those of the MuJoCo model. Dry friction creeps (`mechanics.tree.Joint.friction`), where
MuJoCo's sticks. Rows are stepped one by one. Legend: B batch, n joints, m muscles.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...core.mismatch import MismatchedModel
from ...core.simulator import Array, IntArray, Status
from ...mechanics.pinocchio_tree import SPEED_LIMIT, PinocchioTree, pinocchio_tree
from ...muscles.muscle import activated
from .mismatch import LADDER
from .model import FALL, PARAMETERS, RISE, BodyModel
from .muscle_kernels import muscle_torques
from .parameters import BodyParameters

MAX_TREES = 64
"""Trees that are kept, one for every row of parameters."""


@dataclass(frozen=True, eq=False)
class PinocchioUpperBody(MismatchedModel):
    """See the module docstring.

    >>> simulator = PinocchioUpperBody()
    >>> states, status = simulator.rollout(simulator.initial_state(), np.zeros((1, 4, 12)), substeps=50)
    >>> bool(np.abs(states[0, -1] - states[0, 0]).max() < 1e-3), status.tolist()
    (True, [0])
    """

    system = "upper_body"
    parameters_class = BodyParameters
    ladder = LADDER

    model: BodyModel = field(default_factory=BodyModel)
    """Structure."""
    dt: float = 2e-3
    """Physics step [s]."""

    @cached_property
    def _trees(self) -> dict[bytes, PinocchioTree]:
        return {}

    def tree(self, row: Array) -> PinocchioTree:
        """Pinocchio's tree with one row of parameters (P,), and the effects of a mismatched model."""
        key = row.tobytes()
        if key not in self._trees:
            if len(self._trees) >= MAX_TREES:
                self._trees.clear()
            self._trees[key] = self._made(row)
        return self._trees[key]

    def _made(self, row: Array) -> PinocchioTree:
        n, tree = self.model.n, self.model.tree
        factors = np.exp(self.spread("mass_spread", len(tree.bodies)))
        bodies = [
            replace(body, mass=factor * body.mass, inertia=tuple(factor * part for part in body.inertia))
            for body, factor in zip(tree.bodies, factors.tolist(), strict=True)
        ]
        made = pinocchio_tree(replace(tree, bodies=tuple(bodies)), dict(zip(PARAMETERS, row.tolist(), strict=True)))
        return replace(
            made,
            stiffness=made.stiffness * np.exp(self.spread("stiffness_spread", n)),
            damping=made.damping * np.exp(self.spread("damping_spread", n)),
            friction=made.friction + self.amount("dry_friction") * self.model.effort,
        )

    def _held(self, state: Array, control: Array, parameter_values: Array, substeps: int) -> tuple[Array, IntArray]:
        after, status = state.copy(), np.full(len(state), Status.OK, dtype=np.int32)
        own = self.model.layout.nx
        for row, values in enumerate(parameter_values):
            moved = self._moved(state[row, :own], control[row], self.tree(values), substeps)
            if moved is None:
                status[row] = Status.DIVERGED
            else:
                after[row, :own] = moved
        return after, status

    def _moved(self, state: Array, control: Array, tree: PinocchioTree, substeps: int) -> Array | None:
        """The state (nx,) after some steps of Runge and Kutta; None: too fast."""
        n, m, h = self.model.n, len(self.model.muscle_names), self.dt
        data, motors = tree.model.createData(), np.zeros(n)
        motors[list(self.model.motors)] = control[m:]

        def slope(x: Array, active: Array) -> Array:
            q, v = x[:n], x[n:]
            pulled = motors + muscle_torques(self.model.routes, q, v, active) if m else motors
            return np.concatenate([v, tree.acceleration(data, q, v, pulled)])

        x, a = state[: 2 * n], state[2 * n :]
        for _ in range(substeps):
            if not np.abs(x[n:]).max() < SPEED_LIMIT:
                return None
            middle, last = activated(a, control[:m], RISE, FALL, h) if m else (a, a)
            k1 = slope(x, a)
            k2 = slope(x + 0.5 * h * k1, middle)
            k3 = slope(x + 0.5 * h * k2, middle)
            k4 = slope(x + h * k3, last)
            x, a = x + h / 6 * (k1 + 2 * (k2 + k3) + k4), last
        return np.concatenate([x, a]) if np.abs(x[n:]).max() < SPEED_LIMIT else None
