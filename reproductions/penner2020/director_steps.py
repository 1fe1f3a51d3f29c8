r"""Steps of a director tree: discrete Euler-Lagrange equations, reduced by the null space, or in full with multipliers.

.. math:: P_d(q_n)^T \bigl[D_2 L_d(q_{n-1}, q_n) + D_1 L_d(q_n, q_{n+1}) - h_q^T \lambda\bigr] + F_n = 0, \quad
   q_{n+1} = F_d(u_{n+1}, q_n)

as eq. (2) of [Penner2020], in f unknowns u; in full, D_2 L_d + D_1 L_d - g_q^T mu + P (P^T P)^{-1} F = 0 with g(q_{n+1}) = 0,
in 12 b + k unknowns: the same motion. Forces F are impulses of generalised forces (f), half at each end of an interval, which
is of second order. Welds and pins of the tree close loops: their multipliers lambda remain. Legend as in `directors`; T steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import StructureError
from softgym_envs.core.simulator import check_array, check_number
from softgym_envs.core.transcription import casadi

from .directors import Directors

Array = NDArray[np.float64]
TOLERANCE = 1e-11
MAX_ITERATIONS = 30


class DirectorMotion(NamedTuple):
    """A simulated motion of T steps."""

    q: Array
    """(T + 1, 12 b) director coordinates."""
    theta: Array
    """(T + 1, f) joint coordinates [rad, m]."""
    momentum: Array
    """(T + 1, f) momenta conjugate to the joint coordinates."""


@dataclass(frozen=True, eq=False)
class DirectorSteps:
    """See the module docstring.

    Raises:
        OptionError: h is not positive.
    """

    directors: Directors
    h: float
    """Step [s]."""

    def __post_init__(self) -> None:
        check_number("h", self.h, positive=True, unit="s")

    @cached_property
    def slopes(self) -> Any:
        """casadi.Function: (q0, q1) -> D_1 L_d, D_2 L_d (12 b each)."""
        ca, d = casadi(), self.directors
        q0, q1 = ca.SX.sym("q0", d.size), ca.SX.sym("q1", d.size)
        value = d.discrete_lagrangian(q0, q1, self.h)
        return ca.Function("slopes", [q0, q1], [ca.gradient(value, q0), ca.gradient(value, q1)])

    @cached_property
    def momentum_after(self) -> Any:
        """casadi.Function: (q0, q1, impulse) -> p_1 = P(q1)' D_2 L_d + impulse / 2 (f)."""
        ca, d = casadi(), self.directors
        q0, q1, impulse = ca.SX.sym("q0", d.size), ca.SX.sym("q1", d.size), ca.SX.sym("impulse", d.f)
        value = d.null_space(q1).T @ self.slopes(q0, q1)[1] + impulse / 2
        return ca.Function("momentum_after", [q0, q1, impulse], [value])

    @cached_property
    def reduced(self) -> Any:
        """casadi.Function: (q, p, impulse, u, lambda) -> p + P' (D_1 L_d - h_q' lambda) + impulse / 2 and h (f + m)."""
        ca, d = casadi(), self.directors
        q, p, impulse, u = (ca.SX.sym(name, size) for name, size in (("q", d.size), ("p", d.f), ("i", d.f), ("u", d.f)))
        after, held = d.reparametrisation(u, q), d.closure(q)
        lam = ca.SX.sym("lambda", held.numel())
        P = d.null_space(q)
        balance = p + P.T @ (self.slopes(q, after)[0] - ca.jacobian(held, q).T @ lam) + impulse / 2
        value = ca.vertcat(balance, d.closure(after))
        return ca.Function("reduced", [q, p, impulse, u, lam], [value, ca.jacobian(value, ca.vertcat(u, lam))])

    @cached_property
    def full(self) -> Any:
        """casadi.Function: (q_before, q, impulses (f), q_after, mu) -> residual (12 b + k + m) of the constrained equations."""
        ca, d = casadi(), self.directors
        before, q, after = (ca.SX.sym(name, d.size) for name in ("before", "q", "after"))
        impulse = ca.SX.sym("impulse", d.f)
        held = ca.vertcat(d.constraints(q), d.closure(q))
        mu = ca.SX.sym("mu", held.numel())
        P = d.null_space(q)
        force = P @ ca.solve(P.T @ P, impulse)
        balance = self.slopes(before, q)[1] + self.slopes(q, after)[0] - ca.jacobian(held, q).T @ mu + force
        value = ca.vertcat(balance, ca.vertcat(d.constraints(after), d.closure(after)))
        return ca.Function("full", [before, q, impulse, after, mu], [value, ca.jacobian(value, ca.vertcat(after, mu))])

    def momentum(self, theta: Any, velocity: Any) -> Array:
        """Momenta P' M P v (f) of joint coordinates and velocities (f)."""
        q = self.directors.configuration(check_array("theta", theta, (self.directors.f,)))
        P = np.array(self.directors.null_space(q))
        return np.asarray(
            P.T @ np.array(casadi().DM(self.directors.mass)) @ P @ check_array("velocity", velocity, (P.shape[1],))
        )

    def energy(self, q0: Any, q1: Any) -> float:
        """Energy T + V at the middle of a step [J], which the discrete motion conserves up to h^2."""
        v = (q1 - q0) / self.h
        kinetic = 0.5 * v @ np.array(casadi().DM(self.directors.mass)) @ v
        return float(kinetic + float(self.directors.potential(casadi().DM((q0 + q1) / 2))))

    def step(self, q: Any, p: Any, impulse: Any, u: Any = None) -> tuple[Array, Array]:
        """Step (q_n, p_n) -> (u_n+1, q_n+1) by Newton's method on the reduced equations.

        Raises:
            StructureError: There is no solution near.
        """
        f = self.directors.f
        x = np.zeros(f + self.directors.closure.size1_out(0))
        x[:f] = 0.0 if u is None else u
        for _ in range(MAX_ITERATIONS):
            value, slope = self.reduced(q, p, impulse, x[:f], x[f:])
            change = np.linalg.solve(np.array(slope), np.array(value)).ravel()
            x -= change
            if np.abs(change[:f]).max() < TOLERANCE:
                return x[:f], np.array(self.directors.reparametrisation(x[:f], q)).ravel()
        raise StructureError(f"tree {self.directors.tree.name!r}: the reduced step has no solution near; use a smaller h")

    def full_step(self, before: Any, q: Any, impulse: Any) -> Array:
        """Step (q_n-1, q_n) -> q_n+1 by Newton's method on the constrained equations; the oracle of `step`.

        Raises:
            StructureError: There is no solution near.
        """
        size = self.directors.size
        x = np.zeros(size + self.full.size1_in(4))
        x[:size] = 2 * q - before
        for _ in range(MAX_ITERATIONS):
            value, slope = self.full(before, q, impulse, x[:size], x[size:])
            # rows of joints may repeat each other where axes are parallel: the smallest solution
            change = np.linalg.lstsq(np.array(slope), np.array(value), rcond=1e-13)[0].ravel()
            x -= change
            if np.abs(change[:size]).max() < TOLERANCE:
                return x[:size]
        raise StructureError(f"tree {self.directors.tree.name!r}: the full step has no solution near; use a smaller h")

    def simulate(self, theta: Any, velocity: Any, impulses: Any) -> DirectorMotion:
        """Simulate T steps from joint coordinates and velocities (f) under impulses (T, f)."""
        d = self.directors
        impulses = check_array("impulses", impulses, (None, d.f))
        where, p = check_array("theta", theta, (d.f,)), self.momentum(theta, velocity)
        q, u = np.array(d.configuration(where)).ravel(), self.h * np.asarray(velocity, dtype=np.float64)
        found = [(q, where, p)]
        for impulse in impulses:
            u, after = self.step(q, p, impulse, u)
            p = np.array(self.momentum_after(q, after, impulse)).ravel()
            q, where = after, where + np.array(d.coordinates(u)).ravel()
            found.append((q, where, p))
        return DirectorMotion(*(np.array(part) for part in zip(*found, strict=True)))
