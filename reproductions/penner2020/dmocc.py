r"""The elbow's step in director coordinates, eq. (2) of [Penner2020]; muscle paths in closed form or as discrete geodesics.

Unknowns of a step are angle, momentum, activations, and the inner nodes of discrete paths, which obey eq. (3) at its end:

.. math:: p_n + P_d^T D_1 L_d + f^-_n = 0, \quad p_{n+1} = P_d^T D_2 L_d + f^+_n, \quad
   f^\mp_n = -\tfrac h2 \sum_m F_m \frac{\partial \ell_m}{\partial \theta}\Big|_{n,\,n+1}

with fibre length and speed from the lengths at both ends of the step, (l_n + l_n+1) / 2 and (l_n+1 - l_n) / h. Pressures mu and
gaps phi of the nodes are complementary pairs. This is the oracle of `elbow`, and the paper's optimal control is posed on it.
Nodes are in the plane of motion, in units of the wrapping radius. Legend: K segments per path.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproductions.penner2020.geodesics import path_conditions, path_length
from softgym_envs.core.complementarity import ComplementarityForm
from softgym_envs.core.simulator import check_number
from softgym_envs.core.transcription import casadi
from softgym_envs.muscles.muscle import MUSCLE_SPEED, around_circle, symbols
from softgym_envs.systems.arm.elbow import Elbow, Wrapped, activations, muscle_force, resistance, stop_torque
from softgym_envs.systems.arm.model import MUSCLES, ElbowModel, muscle_path
from softgym_envs.systems.arm.parameters import ElbowParameters, PneumaticElbowParameters

from .director_steps import DirectorSteps
from .directors import Directors

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DirectorElbow:
    """See the module docstring.

    Raises:
        OptionError: dt is not positive, or a path has less than 2 segments.
    """

    dt: float
    """Step h [s]."""
    segments: int = 0
    """Segments K of both muscles' discrete paths; 0: in closed form."""
    model: ElbowModel = field(default_factory=ElbowModel)
    parameters: ElbowParameters | PneumaticElbowParameters = field(default_factory=ElbowParameters)
    """Fixes masses and radii; the other parameters are arguments of the step."""

    def __post_init__(self) -> None:
        check_number("dt", self.dt, positive=True, unit="s")
        if self.segments:
            check_number("segments", self.segments, low=2, whole=True)

    @cached_property
    def steps(self) -> DirectorSteps:
        """The bones."""
        values = {"damping": 0.0, "friction": 0.0, "payload": float(self.parameters.payload)}
        return DirectorSteps(Directors(self.model.tree, values), self.dt)

    @cached_property
    def structure(self) -> Elbow:
        """Muscles in the plane."""
        return self.model.structure(self.dt)

    @property
    def radii(self) -> tuple[float, float]:
        """Wrapping radii [m]."""
        first, second = (float(getattr(self.parameters, f"{name}_radius")) for name in MUSCLES)
        return first, second

    @property
    def inner(self) -> int:
        """Inner nodes of one path."""
        return max(self.segments - 1, 0)

    @property
    def nx(self) -> int:
        """Number of states: angle, momentum, activations, nodes."""
        return 4 + 4 * self.inner

    @cached_property
    def form(self) -> ComplementarityForm:
        """g(x, e, c, x+, mu) = 0 and 0 <= mu with phi >= 0, for `core.transcription`."""
        ca = casadi()
        sizes = (("x", self.nx), ("u", 2), ("p", len(self.parameters.names())), ("y", self.nx), ("z", 2 * self.inner))
        x, u, p, y, z = (ca.SX.sym(name, size) for name, size in sizes)
        with symbols():
            g, f = self._equations(x, u, p, y, z)
        return ComplementarityForm(ca.Function("step", [x, u, p, y, z], [g, f], ["x", "u", "p", "y", "z"], ["g", "f"]))

    def _equations(self, x: Any, u: Any, c: Any, y: Any, z: Any) -> tuple[Any, Any]:
        ca, h = casadi(), self.dt
        directors, middle = self.steps.directors, 0.5 * (x[0] + y[0])
        q = directors.configuration(x[0:1])
        q1 = directors.reparametrisation(2 * ca.tan(0.5 * (y[0] - x[0])), q)
        first, second = self.steps.slopes(q, q1)
        before, after = directors.null_space(q).T @ first, directors.null_space(q1).T @ second
        joint = h * (stop_torque(self.structure, middle) - resistance(self.structure, c, (y[0] - x[0]) / h))
        early, late = joint / 2, joint / 2
        rows, gaps = [], []
        for k in range(2):
            (l0, s0), (l1, s1) = self._length(k, x), self._length(k, y)
            active, end = activations(self.structure, c, x[2 + k], u[k], h)
            length, fibre = (l0 + l1) / 2, ((l0 + l1) / 2 - c[4 * k + 2]) / c[4 * k + 1]
            speed = (l1 - l0) / (h * MUSCLE_SPEED * c[4 * k + 1])
            force = h / 2 * muscle_force(self._wrapped(k), c, 4 * k, length, fibre, speed, active)
            early, late = early - force * s0, late - force * s1
            rows.append(y[2 + k] - end)
            if self.inner:
                conditions, phi = path_conditions(self._nodes(k, y), z[self.inner * k : self.inner * (k + 1)].T, self._gaps())
                rows.append(conditions)
                gaps.append(ca.vec(phi))
        return ca.vertcat(x[1] + before + early, y[1] - after - late, *rows), ca.vertcat(ca.SX.zeros(0), *gaps)

    # --- muscles ------------------------------------------------------------------------------------------------------

    def _length(self, k: int, x: Any) -> tuple[Any, Any]:
        """Length of muscle k [m], and its derivative by the angle with nodes fixed: complete where surfaces do not move."""
        ca, wrapped = casadi(), self._wrapped(k)
        if not self.inner:
            length, arm, _ = around_circle(
                wrapped.origin, wrapped.insertion, wrapped.angle + wrapped.sign * x[0], self.radii[k]
            )
            return length, wrapped.sign * arm
        length = self.radii[k] * path_length(self._nodes(k, x))
        return length, ca.jtimes(length, x, ca.vertcat(1, ca.SX.zeros(self.nx - 1)))

    def _wrapped(self, k: int) -> Wrapped:
        return (self.structure.biceps, self.structure.triceps)[k]

    def _nodes(self, k: int, x: Any) -> Any:
        """Nodes of path k, (2, K + 1), in radii: (x, z) of the world."""
        ca = casadi()
        first, last = (point[[0, 2]] / self.radii[k] for point in self.model.ends[MUSCLES[k]])
        cosine, sine = ca.cos(x[0]), ca.sin(x[0])
        end = ca.vertcat(cosine * last[0] - sine * last[1], sine * last[0] + cosine * last[1])
        own = x[4 + 2 * self.inner * k : 4 + 2 * self.inner * (k + 1)]
        return ca.horzcat(ca.DM(first), ca.reshape(own, 2, self.inner), end)

    def _gaps(self) -> Any:
        """Gaps phi of inner nodes: distance from a circle of radius 1."""
        ca = casadi()
        return lambda inner: ca.sqrt(ca.sum1(inner**2)) - 1

    # --- states -------------------------------------------------------------------------------------------------------

    def states(self, plain: Any) -> Array:
        """States of this step from those of the system (K, 4): momenta for speeds, and nodes for paths in closed form."""
        plain = np.asarray(plain, dtype=np.float64)
        inertia = self.inertia
        found = np.column_stack([plain[:, 0], inertia * plain[:, 1], plain[:, 2:4], np.zeros((len(plain), 4 * self.inner))])
        for row, angle in enumerate(plain[:, 0]):
            for k in range(2 if self.inner else 0):
                found[row, 4 + 2 * self.inner * k : 4 + 2 * self.inner * (k + 1)] = self._placed(k, float(angle))[1:-1].ravel()
        return found

    def pressures(self, states: Array) -> Array:
        """Pressures mu (K, 2 (K - 1)) >= 0 that fit the nodes best."""
        found = np.zeros((len(states), 2 * self.inner))
        for row, state in enumerate(states):
            for k in range(2 if self.inner else 0):
                nodes = self._placed(k, float(state[0]))
                pull = self.segments * (2 * nodes[1:-1] - nodes[:-2] - nodes[2:])
                out = nodes[1:-1] / np.linalg.norm(nodes[1:-1], axis=1, keepdims=True)
                found[row, self.inner * k : self.inner * (k + 1)] = np.maximum((pull * out).sum(axis=1), 0.0)
        return found

    @cached_property
    def inertia(self) -> float:
        """Inertia of the momentum, P' M P [kg m^2]."""
        return float(self.steps.momentum(np.zeros(1), np.ones(1))[0])

    def _placed(self, k: int, angle: float) -> Array:
        """K + 1 nodes at equal distances along the closed-form path, in radii, (K + 1, 2)."""
        places, name = self.model.places(angle), MUSCLES[k]
        ends = places[f"{name}_origin"], places[f"{name}_insertion"]
        path = muscle_path(self._wrapped(k), ends, self.radii[k], angle)[:, [0, 2]]
        reach = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(path, axis=0), axis=1))])
        at = np.linspace(0.0, reach[-1], self.segments + 1)
        return np.stack([np.interp(at, reach, path[:, i]) for i in range(2)], axis=1) / self.radii[k]
