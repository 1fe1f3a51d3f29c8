"""The variational step as one CasADi function: what the kernels are timed and tested against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca

from softgym_envs.mechanics.symbolic import describe
from softgym_envs.mechanics.tree import Tree


def step_equations(tree: Tree, parameter_values: Sequence[str], dt: float, *, early: float = 1.0) -> Any:
    r"""One step as casadi.Function (x, u, c, y, lambda) -> g (2 n + m): zero at the next state y and its multipliers.

    .. math:: g = (p + D_1 L_d + a h f - h_q(q)^T \lambda, \quad D_2 L_d + (1 - a) h f - p^+, \quad h(q^+))

    with L_d(q, q+) = dt L((q + q+)/2, (q+ - q)/dt) and `early` = a.
    """
    s = describe(tree, parameter_values)
    n = s.q.numel()
    x, y, lam = ca.SX.sym("x", 2 * n), ca.SX.sym("y", 2 * n), ca.SX.sym("lambda", s.gaps.numel())
    q, q1 = x[:n], y[:n]
    middle, speed = (q + q1) / 2, (q1 - q) / dt
    discrete = dt * ca.substitute(s.lagrangian, ca.vertcat(s.q, s.v), ca.vertcat(middle, speed))
    impulse = dt * ca.substitute(s.force, s.v, speed)
    held = ca.jacobian(s.gaps, s.q)
    first = x[n:] + ca.gradient(discrete, x)[:n] + early * impulse - ca.substitute(held, s.q, q).T @ lam
    second = ca.gradient(discrete, y)[:n] + (1 - early) * impulse - y[n:]
    equations = ca.vertcat(first, second, ca.substitute(s.gaps, s.q, q1))
    return ca.Function("step", [x, s.u, s.c, y, lam], [equations], ["x", "u", "c", "y", "lambda"], ["g"])
